"""An interrupted run goes on at the boundary of a block, as it began, or not at all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gates import criteria, verdict
from scenarios.load import load_scenario, load_site
from tests.synthetic import make_run
from tests.synthetic_truth import Truth
from workloads.blocks import plan_blocks
from workloads.evidence import Run, RunDir, read_json, sha256_of, verify
from workloads.resume import Position, ResumeError, differences, position, write_unfinished

Json = dict[str, Any]
SITE = load_site("rehearsal")
SCENARIO = load_scenario("rehearsal", SITE).value
LOOKS = [5, 8, 12]
ROOT = Path(__file__).resolve().parent.parent


def at(path: Path) -> Position:
    return position(Run(path), SCENARIO, LOOKS, 1)


def test_a_run_goes_on_after_its_last_whole_block(tmp_path: Path) -> None:
    found = at(make_run(tmp_path, Truth(blocks=3, seal=False)))
    assert (found.number, found.valid, found.replaced, found.replaces) == (3, 3, 0, None)


def test_a_block_that_was_under_way_is_told_as_not_finished_and_replaced(tmp_path: Path) -> None:
    path = make_run(tmp_path, Truth(blocks=3, seal=False))
    (path / "blocks/b03.json").unlink()  # as kill -9 leaves it
    found = at(path)
    assert (found.number, found.valid, found.replaced, found.replaces) == (3, 2, 1, 3)
    assert not (path / "blocks/b03.json").exists()
    write_unfinished(RunDir.reopen(path), found)
    block = read_json(path / "blocks/b03.json")
    assert block["complete"] is False
    assert tuple(block["order"]) == plan_blocks(SCENARIO, LOOKS, 1)[2].order


def test_invalid_blocks_and_their_faults_are_remembered(tmp_path: Path) -> None:
    breach = {"trial": "baseline/c2/b02", "check": "cold", "whose": "host", "reason": "warm"}

    def spoil(block: Json) -> None:
        if block["block"] == 2:
            block["breaches"] = [breach]

    found = at(make_run(tmp_path, Truth(blocks=3, block=spoil, seal=False)))
    assert (found.valid, found.replaced, found.replaces) == (2, 1, None)
    assert found.seen == {("baseline", "cold"): 1}


@pytest.mark.parametrize(("blocks", "told"), [(0, "no block was finished"), (12, "nothing left to measure")])
def test_a_run_with_nothing_to_go_on_with_is_refused(tmp_path: Path, blocks: int, told: str) -> None:
    with pytest.raises(ResumeError, match=told):
        at(make_run(tmp_path, Truth(blocks=blocks, seal=False)))


def go_on(path: Path) -> RunDir:
    """Another session that measures nothing more."""
    again = RunDir.reopen(path)
    for when in ("before", "after"):
        again.write_bytes(f"host/{again.of_session(when)}/uname.txt", b"x")
    return again


INTERRUPTED = {"whose": "harness", "kind": "interrupted", "message": "stopped by a signal"}


def test_the_files_of_another_session_do_not_touch_what_was_sealed(tmp_path: Path) -> None:
    path = make_run(tmp_path, Truth(blocks=5, incidents=[INTERRUPTED]))
    assert verdict.judge(Run(path))["verdict"] == "INVALID"
    again = go_on(path)
    again.incident(whose="host", kind="note", message="second session")
    again.seal("end")
    assert verify(path) == []
    assert [(i["kind"], i["session"]) for i in Run(path).incidents()] == [("interrupted", 1), ("note", 2)]


def test_an_interruption_that_was_gone_on_from_is_not_held_against_the_run(tmp_path: Path) -> None:
    path = make_run(tmp_path, Truth(blocks=5, incidents=[INTERRUPTED]))
    go_on(path).seal("end")
    assert verdict.judge(Run(path))["verdict"] == "PASS"


def test_only_an_interruption_is_forgiven(tmp_path: Path) -> None:
    path = make_run(tmp_path, Truth(blocks=5, incidents=[{**INTERRUPTED, "kind": "aborted"}]))
    go_on(path).seal("end")
    assert verdict.judge(Run(path))["verdict"] == "INVALID"


def test_the_last_interruption_is_never_forgiven(tmp_path: Path) -> None:
    path = make_run(tmp_path, Truth(blocks=5))
    again = go_on(path)
    again.incident(**INTERRUPTED)
    again.seal("end")
    assert verdict.judge(Run(path))["verdict"] == "INVALID"


def test_what_is_no_longer_as_it_was_is_named(tmp_path: Path) -> None:
    path = make_run(tmp_path, Truth(blocks=1))
    facts = Run(path).facts
    assert differences(path, {"site": facts["site"], "kind": "gate"}) == []
    other = {**facts["site"], "engine": {**facts["site"]["engine"], "policy": "exclusive"}}
    assert differences(path, {"site": other}) == ["site.engine.policy: 'resident' when the run began, 'exclusive' now"]


def gate(*args: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "pytest", "gates/test_g3.py", "-q", *args]
    return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=120)


def recorded_here(folder: Path) -> Path:
    """A run with the criteria of the rehearsal, recorded by another version of the suite."""
    path = make_run(folder, Truth(blocks=2))
    facts = read_json(path / "run.json")
    facts["criteria_sha256"] = sha256_of(criteria.file_for("g3", SITE))
    RunDir(path).write_json("run.json", facts)
    return path


REFUSALS: dict[str, tuple[Any, tuple[str, ...], str]] = {
    "another suite": (lambda _path: None, (), "suite.commit: '0000"),
    "another kind": (lambda _path: None, ("--smoke",), "kind: 'gate' when the run began, 'smoke' now"),
    "a nonce": (lambda _path: None, ("--nonce", "x"), "leave out NONCE="),
    "not a run": (lambda path: (path / "run.json").unlink(), (), "run.json: missing"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_run_that_cannot_go_on_is_refused_in_one_line(tmp_path: Path, name: str) -> None:
    damage, options, told = REFUSALS[name]
    path = recorded_here(tmp_path)
    damage(path)
    done = gate("--resume", str(path), *options)
    assert done.returncode == 4, done.stdout
    assert told in done.stderr
    assert "Traceback" not in done.stderr


def test_a_run_that_is_not_there_is_refused(tmp_path: Path) -> None:
    done = gate("--resume", str(tmp_path / "nothing"))
    assert done.returncode == 4
    assert "no such run" in done.stderr
