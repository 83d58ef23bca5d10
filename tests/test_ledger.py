"""The ledger: every start counts, the chain holds, and the k-th attempt is judged at a/k."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gates import criteria, verdict
from gates.__main__ import main
from scenarios.load import load_scenario, load_site
from tests.synthetic import make_run
from tests.synthetic_truth import Truth, put
from workloads import attempts, gate_run
from workloads.attempts import enter, enter_end, enter_resume
from workloads.evidence import Run, RunDir, read_json
from workloads.ledger import EXTRACT, LEDGER, LedgerError, lines_of, read, read_extract

Json = dict[str, Any]


def facts(run: str, **changes: object) -> Json:
    said = {
        "created_utc": "2026-01-01T00:00:00+00:00", "run_id": run, "gate": "g3", "kind": "gate", "rehearsal": False,
        "site": {"name": "lab"}, "scenario": {"name": "cold"}, "suite": {"version": "0.1.0", "commit": "0" * 40},
        "criteria_sha256": "1" * 64,
    }  # fmt: skip
    return {**said, **changes}


def number(extract: Json) -> int:
    return int(extract["attempts"][-1]["attempt"])


def test_every_start_of_a_series_counts_whatever_came_of_it(tmp_path: Path) -> None:
    assert number(enter(tmp_path, facts("a"))) == 1
    enter_end(tmp_path, "a", "FAIL", "2" * 64)
    assert number(enter(tmp_path, facts("b"))) == 2  # killed: no end
    assert number(enter(tmp_path, facts("c", scenario={"name": "other"}))) == 1
    assert number(enter(tmp_path, facts("d", site={"name": "other"}))) == 1
    assert number(enter(tmp_path, facts("e", gate="g2"))) == 1
    assert number(enter(tmp_path, facts("f", rehearsal=True))) == 1
    assert number(enter(tmp_path, facts("g", rehearsal=True))) == 1
    enter_resume(tmp_path, "b")
    last = enter(tmp_path, facts("h", site={"name": "lab", "title": "changed"}, criteria_sha256="3" * 64))
    assert [(a["run"], a["attempt"], a["verdict"]) for a in last["attempts"]] == [
        ("a", 1, "FAIL"),
        ("b", 2, None),
        ("h", 3, None),
    ]
    assert [line.values["event"] for line in read_extract(last, "x")] == ["start", "end", "start", "resume", "start"]
    assert last["ledger_lines"] == len(read(tmp_path)) == 10


def test_a_rehearsal_carries_its_own_start_alone(tmp_path: Path) -> None:
    enter(tmp_path, facts("a", rehearsal=True))
    assert len(enter(tmp_path, facts("b", rehearsal=True))["lines"]) == 1


def test_the_same_run_cannot_start_twice_and_an_unknown_one_cannot_end(tmp_path: Path) -> None:
    enter(tmp_path, facts("a"))
    with pytest.raises(LedgerError, match="the start of b is not in there"):
        enter_end(tmp_path, "b", "PASS", None)
    enter(tmp_path, facts("a"))
    with pytest.raises(LedgerError, match=f"{LEDGER}:2: a starts a second time"):
        read(tmp_path)


def start_some(folder: str, name: str) -> None:
    for count in range(10):
        enter(Path(folder), facts(f"{name}{count}"))


def test_starts_at_the_same_time_get_different_numbers(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=start_some, args=(str(tmp_path), name)) for name in "abc"]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [line.values["attempt"] for line in read(tmp_path)] == list(range(1, 31))


def rewrite(path: Path, change: Callable[[list[bytes]], list[bytes]]) -> None:
    path.write_bytes(b"".join(change(path.read_bytes().splitlines(keepends=True))))


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "a line changed": (
        lambda f: rewrite(f, lambda ls: [ls[0], ls[1].replace(b"FAIL", b"PASS"), *ls[2:]]),
        ":3: does not follow the line before it",
    ),
    "a line taken out": (lambda f: rewrite(f, lambda ls: [*ls[:1], *ls[2:]]), ":2: does not follow the line before it"),
    "the first lines cut": (lambda f: rewrite(f, lambda ls: ls[2:]), ":1: does not follow the line before it"),
    "a line twice": (lambda f: rewrite(f, lambda ls: [*ls[:2], *ls[1:]]), ":3: does not follow the line before it"),
    "a line cut off": (lambda f: f.write_bytes(f.read_bytes()[:-9]), ":3: cut off in the middle of a line"),
    "no JSON": (lambda f: f.write_bytes(f.read_bytes() + b"{\n"), ":4: not JSON"),
    "NaN": (lambda f: f.write_bytes(f.read_bytes() + b'{"schema": NaN}\n'), ":4: not JSON"),
    "newer": (lambda f: f.write_bytes(f.read_bytes() + b'{"schema":2}\n'), ":4: not an entry of schema 1"),
    "an empty line": (lambda f: f.write_bytes(f.read_bytes() + b"\n"), ":4: not JSON"),
    "the last line cut": (lambda f: rewrite(f, lambda ls: ls[:-1]), "the start of run-b is not in there: it was cut"),
    "gone": (lambda f: f.unlink(), "the start of run-a is not in there: it was cut, or is another"),
    "a pipe": (lambda f: (f.unlink(), os.mkfifo(f)), "not a plain file"),
    "a folder": (lambda f: (f.unlink(), f.mkdir()), "cannot be written"),
}


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    for name in ("run-a", "run-b"):
        extract = enter(tmp_path, facts(name))
        (tmp_path / name).mkdir()
        (tmp_path / name / EXTRACT).write_text(json.dumps(extract))
        if name == "run-a":
            enter_end(tmp_path, name, "FAIL", "2" * 64)
    return tmp_path


def begin(runs: Path, **changes: object) -> tuple[RunDir, Json, list[str]]:
    recorded, said = RunDir.create(runs, "g3"), []
    told = facts(recorded.run_id, **changes)
    attempts.begin(recorded, told, said.append)
    return recorded, told, said


@pytest.mark.parametrize("name", DAMAGE)
def test_a_lab_run_does_not_begin_on_a_damaged_ledger_and_leaves_nothing(runs: Path, name: str) -> None:
    damage, told = DAMAGE[name]
    damage(runs / LEDGER)
    before = sorted(runs.iterdir())
    with pytest.raises(LedgerError) as error:
        begin(runs)
    assert told in str(error.value)
    assert "\n" not in str(error.value)
    assert "docs/evidence.md" in str(error.value)
    assert [p for p in sorted(runs.iterdir()) if p.name != LEDGER] == [p for p in before if p.name != LEDGER]


@pytest.mark.parametrize("name", [name for name in DAMAGE if name not in ("the last line cut", "gone")])
def test_a_rehearsal_goes_on_and_says_so(runs: Path, name: str) -> None:
    DAMAGE[name][0](runs / LEDGER)
    recorded, told, said = begin(runs, rehearsal=True)
    assert told["attempt"] == 1
    assert len(said) == 1
    assert said[0].startswith("not entered in the ledger: ")
    assert list(recorded.path.iterdir()) == []


@pytest.mark.parametrize("kind", ["smoke", "selfcheck"])
def test_what_is_no_attempt_is_not_entered(tmp_path: Path, kind: str) -> None:
    _, told, said = begin(tmp_path, kind=kind)
    assert (told["attempt"], said, (tmp_path / LEDGER).exists()) == (1, [], False)
    attempts.end(tmp_path / "x", told, {"verdict": "PASS", "manifest_sha256": None}, said.append)
    assert said == []


def test_a_run_is_begun_resumed_and_ended(runs: Path) -> None:
    recorded, told, said = begin(runs)
    assert told["attempt"] == 3
    assert read_extract(read_json(recorded.path / EXTRACT), "x")[-1].values["run"] == recorded.run_id
    attempts.resume(recorded, told, said.append)
    attempts.end(recorded.path, told, {"verdict": "PASS", "manifest_sha256": "4" * 64}, said.append)
    assert said == []
    assert [line.values["event"] for line in read(runs)][-3:] == ["start", "resume", "end"]
    (runs / LEDGER).unlink()
    with pytest.raises(LedgerError):
        attempts.resume(recorded, told, said.append)
    attempts.end(recorded.path, told, {"verdict": "PASS", "manifest_sha256": None}, said.append)
    assert said[0].startswith("not entered in the ledger: ")


def test_a_line_that_cannot_be_written_whole_is_taken_back(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = (runs / LEDGER).read_bytes()
    real = os.write
    monkeypatch.setattr(os, "write", lambda handle, content: real(handle, content[:10]))
    with pytest.raises(LedgerError, match="could not be written whole"):
        begin(runs)
    assert (runs / LEDGER).read_bytes() == before


@given(st.binary(max_size=300))
def test_no_ledger_is_too_strange_to_be_read(content: bytes) -> None:
    try:
        assert lines_of(content, "x") == []
        assert content == b""
    except LedgerError as error:
        assert str(error).startswith("x:")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(st.sampled_from(["schema", "event", "run", "site", "attempt", "rehearsal", "gate", "utc", "after"]), JSON)
@settings(max_examples=80, deadline=None)
def test_no_entry_is_too_strange_to_be_read(key: str, value: object) -> None:
    entry = {
        "schema": 1,
        "event": "start",
        "after": "0" * 64,
        "series_after": "0" * 64,
        "utc": "",
        "run": "a",
        "attempt": 1,
    }
    entry |= {
        k: v for k, v in facts("a").items() if k in ("gate", "kind", "rehearsal", "site", "scenario", "criteria_sha256")
    }
    assert len(lines_of(json.dumps(entry).encode() + b"\n", "x")) == 1
    changed = json.dumps({**entry, key: value})
    for reader in (
        lambda: lines_of(changed.encode() + b"\n", "x"),
        lambda: read_extract({"schema": 1, "lines": [changed], "attempts": value}, "x"),
    ):
        try:
            reader()
        except LedgerError as error:
            assert str(error).startswith("x")


def test_the_ledger_on_the_command_line(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    enter(runs, facts("run-c", rehearsal=True))
    assert main(["ledger", str(runs)]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].endswith("run-a  g3 on lab, scenario cold: attempt 1: FAIL")
    assert out[1].endswith("attempt 2: no end: it was killed, or still runs")
    assert out[2].endswith("rehearsal: no end: it was killed, or still runs")
    assert "4 lines, every one follows the one before it" in out[3]
    rewrite(runs / LEDGER, lambda lines: lines[:2])
    assert main(["ledger", str(runs)]) == 1
    assert "run-b: its start is not in the ledger" in capsys.readouterr().out
    rewrite(runs / LEDGER, lambda lines: lines[1:])
    assert main(["ledger", str(runs)]) == 1
    assert f"{LEDGER}:1: " in capsys.readouterr().out
    assert main(["ledger", str(runs / "run-a")]) == 4
    assert capsys.readouterr().err.count("\n") == 1


def request(runs: Path, **changes: Any) -> gate_run.Request:
    site = load_site("rehearsal")
    said: Json = {
        "gate": "g3", "kind": "gate", "site": site, "scenario": load_scenario("rehearsal", site), "runs": runs,
        "criteria_file": criteria.default_file("g3"), "baseline_record": None, "looks": {"blocks": [5], "alpha": [0.01]},
        "seed": 1, "nonce": None, "selection": {"collected": 1, "selected": 1}, "overrides": {},
    }  # fmt: skip
    return gate_run.Request(**{**said, **changes})


class Screen:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def line(self, text: str) -> None:
        self.lines.append(text)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[Json]:
    """What the ledger, run.json and the extract held when measuring began; nothing is measured."""
    seen: list[Json] = []

    def measure(_request: object, recorded: RunDir, *_rest: object) -> None:
        ledger = recorded.path.parent / LEDGER
        seen.append(
            {
                "ledger": [json.loads(text) for text in ledger.read_text().splitlines()] if ledger.exists() else [],
                "facts": read_json(recorded.path / "run.json"),
                "extract": read_json(recorded.path / EXTRACT) if (recorded.path / EXTRACT).exists() else None,
            }
        )

    monkeypatch.setattr(gate_run, "_measure", measure)
    for name in ("model_folder", "arm_plans"):
        monkeypatch.setattr(gate_run.arms, name, lambda *_a: None)
    monkeypatch.setattr(gate_run.toy_model, "fingerprint", lambda _folder: {})
    return seen


def carry_out(asked: gate_run.Request) -> tuple[Path | None, list[str]]:
    screen, paths = Screen(), []
    gate_run.carry_out(asked, lambda *_a: [], lambda *_a: "PASS", screen, paths.append)  # type: ignore[arg-type]
    return paths[0], screen.lines


def test_a_gate_is_entered_before_anything_is_measured(
    tmp_path: Path, measured: list[Json], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KVGATE_SIGNING_KEY", str(tmp_path / "nope"))
    path, said = carry_out(request(tmp_path))
    assert path is not None
    (seen,) = measured
    assert [entry["run"] for entry in seen["ledger"]] == [path.name]
    assert seen["facts"]["attempt"] == 1
    assert seen["extract"]["attempts"][-1]["run"] == path.name
    assert EXTRACT in (path / "MANIFEST.sha256").read_text()
    assert [line.split(":")[0] for line in said if "signed" in line] == [
        "the manifest will not be signed", "the manifest is not signed",
    ]  # fmt: skip


def test_smoke_is_not_entered(tmp_path: Path, measured: list[Json]) -> None:
    carry_out(request(tmp_path, kind="smoke"))
    assert (measured[0]["ledger"], measured[0]["extract"], measured[0]["facts"]["attempt"]) == ([], None, 1)


def test_on_a_damaged_ledger_a_rehearsal_is_measured_and_a_lab_run_is_not(tmp_path: Path, measured: list[Json]) -> None:
    (tmp_path / LEDGER).write_bytes(b"{}")
    _, said = carry_out(request(tmp_path))
    assert any("not entered in the ledger" in line and f"{LEDGER}:1: cut off" in line for line in said)
    site = load_site("rehearsal")
    lab = replace(site, value=site.value.model_copy(update={"rehearsal": False}))
    before = sorted(tmp_path.iterdir())
    with pytest.raises(LedgerError, match=f"{LEDGER}:1: cut off"):
        carry_out(request(tmp_path, site=lab))
    assert (len(measured), sorted(tmp_path.iterdir())) == (1, before)


# What the judge makes of it.


def judged(folder: Path, **truth: Any) -> Json:
    return verdict.judge(Run(make_run(folder, Truth(**truth))))


def test_the_kth_attempt_of_a_lab_is_judged_at_a_over_k(tmp_path: Path) -> None:
    levels = {}
    for k in (1, 3):
        result = judged(tmp_path, rehearsal=False, attempt=k)
        assert (result["verdict"], result["attempt"], result["reasons"]) == ("PASS", k, [])
        levels[k] = {
            row["id"]: 1 - row["estimate"]["confidence"]
            for row in result["criteria"]
            if row["estimate"]["n"] and row["estimate"]["confidence"] < 1
        }
    assert levels[1]
    assert levels[3] == pytest.approx({name: level / 3 for name, level in levels[1].items()}, rel=1e-6)


def test_a_later_attempt_only_widens_the_intervals(tmp_path: Path) -> None:
    close = {"ttft_s": {"recompute": 3.0, "baseline": 1.2, "candidate": 0.78}, "noise": 0.06, "blocks": 8, "seed": 4}
    first, late = (judged(tmp_path, rehearsal=False, attempt=k, **close) for k in (1, 200))
    widths = [
        [row["estimate"]["high"] - row["estimate"]["low"] for row in r["criteria"] if row["estimate"]]
        for r in (first, late)
    ]
    assert all(b >= a for a, b in zip(*widths, strict=True))
    assert any(b > a for a, b in zip(*widths, strict=True))


def lose_first_line(extract: Json) -> None:
    del extract["lines"][0]


def change_line(extract: Json) -> None:
    extract["lines"][1] = extract["lines"][1].replace("FAIL", "PASS")


def hide_attempts(extract: Json) -> None:
    del extract["attempts"][0]


LAB: dict[str, tuple[Json, str]] = {
    "another k": ({"run": put(attempt=1)}, "run.json: attempt is 1, it is number 2 by LEDGER.extract.json"),
    "no k": ({"run": put(attempt=None)}, "run.json: attempt is None, it is number 2"),
    "true": ({"run": put(attempt=True)}, "run.json: attempt is True"),
    "a line lost": ({"extract": lose_first_line}, "LEDGER.extract.json: line 1:"),
    "a line changed": ({"extract": change_line}, "LEDGER.extract.json: line 3: does not follow the attempt before it"),
    "no lines": ({"extract": put(lines=[])}, "LEDGER.extract.json: holds no lines of a ledger"),
    "a newer extract": ({"extract": put(schema=2)}, "LEDGER.extract.json: not an extract of schema 1"),
    "attempts hidden": ({"extract": hide_attempts}, "LEDGER.extract.json: its attempts are not those of its lines"),
}


@pytest.mark.parametrize("name", LAB)
def test_an_attempt_that_is_not_borne_out_is_invalid(tmp_path: Path, name: str) -> None:
    truth, told = LAB[name]
    result = judged(tmp_path, rehearsal=False, attempt=2, blocks=1, **truth)
    assert result["verdict"] == "INVALID"
    assert any(told in reason for reason in result["reasons"]), result["reasons"]


def test_a_lab_run_without_an_extract_is_invalid_and_a_rehearsal_is_not(tmp_path: Path) -> None:
    for rehearsal, expected in ((False, "INVALID"), (True, "PASS")):
        path = make_run(tmp_path, Truth(rehearsal=rehearsal, seal=False))
        (path / EXTRACT).unlink()
        RunDir(path).seal("end")
        result = verdict.judge(Run(path))
        assert result["verdict"] == expected
        told = "ledger: LEDGER.extract.json: missing: nobody can tell which attempt this is"
        assert (told in result["reasons"]) is (expected == "INVALID")


def test_an_extract_of_another_run_is_invalid(tmp_path: Path) -> None:
    for rehearsal in (True, False):
        mine = make_run(tmp_path, Truth(rehearsal=rehearsal, blocks=1, seal=False))
        other = make_run(tmp_path, Truth(rehearsal=rehearsal, blocks=1, seal=False))
        shutil.copyfile(other / EXTRACT, mine / EXTRACT)
        RunDir(mine).seal("end")
        reasons = verdict.judge(Run(mine))["reasons"]
        assert "ledger: LEDGER.extract.json: its run is not that of run.json" in reasons


def test_a_rehearsal_is_always_its_first_attempt(tmp_path: Path) -> None:
    result = judged(tmp_path, run=put(attempt=2), blocks=1)
    assert result["verdict"] == "INVALID"
    assert "ledger: run.json: attempt is 2, it is number 1 by LEDGER.extract.json" in result["reasons"]


def test_the_attempt_holds_while_the_run_goes_on_too(tmp_path: Path) -> None:
    path = make_run(tmp_path, Truth(rehearsal=False, seal=False))
    assert verdict.decide(Run(path), 5) == "PASS"
    (path / EXTRACT).unlink()
    assert verdict.decide(Run(path), 5) == "INVALID"
