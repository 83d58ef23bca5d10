"""A run that cannot come to a verdict any more is not gone on with: one line and status 4, before an engine starts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import conftest
from gates import criteria, verdict
from gates.validity.clocks import CLOCK_STEP_NS
from scenarios import arms, preflight
from scenarios.load import load_scenario, load_site
from tests.synthetic import make_run
from tests.synthetic_host import EPOCH_OFFSET_NS
from tests.synthetic_truth import Truth
from workloads import gate_run, populate, provenance, resume
from workloads.blocks import plan_blocks
from workloads.evidence import Run, RunDir, read_json, sha256_of, verify
from workloads.progress import Progress
from workloads.resume import Position, ResumeError, position, starts_begun

Json = dict[str, Any]
SITE = load_site("rehearsal")
SCENARIO = load_scenario("rehearsal", SITE)
LOOKS = [5, 8, 12]
INTERRUPTED = {"whose": "harness", "kind": "interrupted", "message": "stopped by a signal"}
SOFTWARE = {"python": "3.11.7", "vllm": "0.11.2", "lmcache": "0.3.9"}
HOST = {"hostname": "h", "cpu": "c", "cores": 2, "memory_bytes": 1 << 34, "kernel": "6.1"}
FILES = {"config.json": "0" * 64}


def at(path: Path) -> Position:
    return position(Run(path), SCENARIO.value, LOOKS, 1)


def broken(*bad: int, blocks: int, **truth: Any) -> Truth:
    """A run of which these blocks were never finished: nothing of them was measured."""
    trials = [f"{arm}/c{step}/b{n:02d}" for n in bad for arm in SCENARIO.value.arms for step in SCENARIO.value.steps]

    def unfinished(block: Json) -> None:
        if block["block"] in bad:
            block["complete"] = False

    return Truth(blocks=blocks, leave_out=trials, block=unfinished, **truth)


@pytest.mark.parametrize(
    ("whose", "kind"),
    [("harness", "crashed"), ("host", "populate-lost"), ("baseline", "engine-died"), ("recompute", "trial-failed")],
)
def test_an_incident_that_stands_against_the_run_for_good(tmp_path: Path, whose: str, kind: str) -> None:
    """No block measured later takes it back: the judge says so of a run that is whole otherwise."""
    incident = {"whose": whose, "kind": kind, "message": "OSError: [Errno 28]\nNo space left on device"}
    path = make_run(tmp_path / "a", Truth(blocks=3, seal=False, incidents=[incident]))
    before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    with pytest.raises(ResumeError, match="INVALID for good") as refused:
        at(path)
    told = f"({whose}: {kind}: OSError: [Errno 28] No space left on device): start a new run instead"
    assert told in str(refused.value) and "\n" not in str(refused.value)
    assert before == {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    later = make_run(tmp_path / "b", Truth(blocks=5, seal=False, incidents=[incident]))
    again = RunDir.reopen(later)
    for when in ("before", "after"):
        again.write_bytes(f"host/{again.of_session(when)}/uname.txt", b"x")
    again.seal("end")
    assert verdict.judge(Run(later))["verdict"] == "INVALID"


def test_interruptions_and_what_the_candidate_did_do_not_stand_in_the_way(tmp_path: Path) -> None:
    """What the candidate did is the verdict's to tell; a run that it decided is refused by its verdict."""
    mine = {"whose": "candidate", "kind": "trial-failed", "message": "x"}
    assert at(make_run(tmp_path, Truth(blocks=3, seal=False, incidents=[INTERRUPTED, mine]))).valid == 3


REPLACED: dict[str, tuple[Truth, int | None]] = {
    "one of the first five": (broken(2, blocks=4), None),
    "two before the first look": (broken(2, 4, blocks=4), 5),
    "two before the second": (broken(2, 7, blocks=8), 8),
    "one before the second": (broken(7, blocks=8), None),
    "two, the second one after the second look": (broken(2, 10, blocks=10), None),
    "three before the last look": (broken(2, 10, 12, blocks=12), 12),
}


@pytest.mark.parametrize("name", REPLACED)
def test_so_many_replaced_that_the_next_look_must_be_invalid(tmp_path: Path, name: str) -> None:
    truth, look = REPLACED[name]
    path = make_run(tmp_path, replace(truth, seal=False))
    if look is None:
        at(path)
        return
    with pytest.raises(ResumeError, match=f"had to be replaced, too many for the look at {look} blocks"):
        at(path)


def test_a_block_under_way_counts_as_replaced(tmp_path: Path) -> None:
    path = make_run(tmp_path, broken(2, blocks=4, seal=False))
    (path / "blocks/b04.json").unlink()  # as kill -9 leaves it
    with pytest.raises(ResumeError, match="2 blocks had to be replaced"):
        at(path)
    assert not (path / "blocks/b04.json").exists()


def test_a_look_that_was_taken_is_not_taken_again() -> None:
    """Else two replaced blocks would end at 8 what 12 blocks can still decide."""
    assert not Position(valid=0).is_past(5)
    assert not Position(valid=5).is_past(5)  # it may have been killed just before
    assert Position(valid=5, replaced=1, replaces=6).is_past(5)
    assert Position(valid=6).is_past(5) and not Position(valid=6).is_past(8)


def test_a_hundred_blocks_and_more_keep_their_order(tmp_path: Path) -> None:
    run = RunDir(make_run(tmp_path, Truth(blocks=1, seal=False)))
    plans = plan_blocks(SCENARIO.value, [120], 1)
    for number, plan in enumerate(plans[:101], start=1):
        block = {
            "block": number, "prompt_set": plan.prompt_set, "order": list(plan.order), "steps": list(plan.steps),
            "replaces": None, "complete": True, "breaches": [],
        }  # fmt: skip
        run.write_json(f"blocks/b{number:02d}.json", block)
    found = position(Run(run.path), SCENARIO.value, [120], 1)
    assert (found.number, found.valid) == (101, 101)


def test_a_start_that_was_cut_off_keeps_its_number(tmp_path: Path) -> None:
    path = make_run(tmp_path, Truth(blocks=3, rehearsal=False, seal=False))
    assert starts_begun(path, "candidate") == 4
    (path / "raw/candidate/start-05").mkdir()
    (path / "raw/candidate/start-05/engine.log").write_bytes(b"loading model\n")
    RunDir(path).seal("end")
    assert starts_begun(path, "candidate") == 5
    (path / "raw/candidate/start-100").mkdir()
    assert starts_begun(path, "candidate") == 100
    assert starts_begun(path, "nobody") == 0


# From here on as whoever types `make gate-g3 RUN=` meets it.


@pytest.fixture
def same(monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine, as the made-up runs describe it, in the boot that they were measured in."""
    monkeypatch.setattr(provenance, "software", lambda *_args: dict(SOFTWARE))
    monkeypatch.setattr(provenance, "host", lambda: dict(HOST))
    monkeypatch.setattr(arms, "model_folder", lambda *_args: Path("/srv/models/m"))
    monkeypatch.setattr(gate_run, "_model_files", lambda *_args: dict(FILES))
    monkeypatch.setattr(gate_run.kernel_time, "clock_offset_ns", lambda: EPOCH_OFFSET_NS)
    monkeypatch.setattr(preflight, "refusal", lambda _findings: None)
    monkeypatch.setattr(gate_run.run, "measure", lambda *_args: None)  # what would cost hours


@pytest.fixture
def stored(monkeypatch: pytest.MonkeyPatch) -> None:
    """The chunk files that the made-up runs tell of lie in no tier here."""
    monkeypatch.setattr(populate, "still_there", lambda *_args: None)


def described(facts: Json) -> None:
    facts["software"], facts["model"]["files"], facts["host"] = dict(SOFTWARE), dict(FILES), dict(HOST)


def interrupted(folder: Path, truth: Truth | None = None) -> Path:
    truth = truth or Truth(blocks=3)
    return make_run(folder, replace(truth, run=described, incidents=truth.incidents or [INTERRUPTED]))


def go_on(path: Path) -> list[str]:
    """Go on with the run as the gate's session does; return what it said. Raises pytest's exit."""
    file = criteria.default_file("g3")
    options = {**conftest.DEFAULTS, "runs": str(path.parent), "langs": ""}
    cases = criteria.cases(criteria.load(file), SCENARIO.value.steps)
    session = conftest.Session("g3", "gate", SITE, SCENARIO, file, None, path, cases, {}, options)
    said: list[str] = []
    conftest._carry_out(session, len(cases), Progress(said.append, False))
    return said


def refused(path: Path) -> str:
    before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    with pytest.raises(pytest.exit.Exception) as exited:
        go_on(path)
    assert exited.value.returncode == 4
    assert "\n" not in str(exited.value.msg)
    assert before == {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    return str(exited.value.msg)


@pytest.mark.usefixtures("same", "stored")
def test_a_run_that_is_as_it_was_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conftest, "_report", lambda *_args: None)
    path = interrupted(tmp_path)
    assert any(f"run {path}" in line for line in go_on(path))
    assert verify(path) == []


OTHER: dict[str, tuple[Any, str, Callable[..., Any], str]] = {
    "engine": (provenance, "software", lambda *_a: {**SOFTWARE, "vllm": "0.12.0"}, "software.vllm: '0.11.2' when the run began, '0.12.0' now"),
    "engine that does not tell": (provenance, "software", lambda *_a: {**SOFTWARE, "vllm": None}, "software.vllm: '0.11.2' when the run began, None now"),
    "LMCache": (provenance, "software", lambda *_a: {**SOFTWARE, "lmcache": "9"}, "software.lmcache: '0.3.9'"),
    "host": (provenance, "host", lambda: {**HOST, "hostname": "lab-b"}, "host.hostname: 'h' when the run began, 'lab-b' now"),
    "kernel": (provenance, "host", lambda: {**HOST, "kernel": "6.8"}, "host.kernel: '6.1' when the run began, '6.8' now"),
    "model": (gate_run, "_model_files", lambda *_a: {"config.json": "1" * 64}, "model.files.config.json: "),
    "boot": (gate_run.kernel_time, "clock_offset_ns", lambda: EPOCH_OFFSET_NS + 3_600_000_000_000, "this host was started anew or slept, or its clock was set (by 3600.000 s)"),
}  # fmt: skip


@pytest.mark.usefixtures("same", "stored")
@pytest.mark.parametrize("name", OTHER)
def test_what_differs_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    where, what, instead, told = OTHER[name]
    monkeypatch.setattr(where, what, instead)
    said = refused(interrupted(tmp_path))
    assert told in said and said.endswith("start a new run instead")


@pytest.mark.usefixtures("same", "stored")
def test_what_may_differ_does_not_stand_in_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conftest, "_report", lambda *_args: None)
    monkeypatch.setattr(provenance, "host", lambda: {**HOST, "memory_bytes": 5, "zone": "Asia/Shanghai"})
    monkeypatch.setattr(gate_run.kernel_time, "clock_offset_ns", lambda: EPOCH_OFFSET_NS + CLOCK_STEP_NS)
    go_on(interrupted(tmp_path))


def test_a_step_of_the_clock_is_what_the_judge_takes_for_one() -> None:
    assert resume.CLOCK_STEP_NS == CLOCK_STEP_NS


@pytest.mark.usefixtures("same", "stored")
def test_hopeless_runs_are_refused_with_status_4(tmp_path: Path) -> None:
    crashed = {"whose": "harness", "kind": "crashed", "message": "OSError: [Errno 28] No space left on device"}
    said = refused(interrupted(tmp_path / "a", Truth(blocks=3, incidents=[crashed])))
    assert "INVALID for good (harness: crashed: OSError: [Errno 28] No space left on device)" in said
    assert "2 blocks had to be replaced" in refused(interrupted(tmp_path / "b", broken(2, 4, blocks=4)))


@pytest.mark.usefixtures("same")
def test_chunk_files_that_are_gone_are_told_before_an_engine_starts(tmp_path: Path) -> None:
    assert "the tier cannot be listed: No such file or directory" in refused(interrupted(tmp_path))


@pytest.mark.usefixtures("same", "stored")
def test_a_damaged_record_is_refused_in_one_line(tmp_path: Path) -> None:
    path = interrupted(tmp_path / "a")
    (path / "blocks/b02.json").write_text("[1]", encoding="utf-8")
    assert "blocks/b02.json" in refused(path)
    path = interrupted(tmp_path / "b")
    facts = read_json(path / "blocks/b02.json")
    del facts["breaches"]
    RunDir(path).write_json("blocks/b02.json", facts)
    assert "of another shape than a run writes (KeyError)" in refused(path)
    assert sha256_of(path / "criteria.toml") == Run(path).facts["criteria_sha256"]
