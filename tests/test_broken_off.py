"""A trial that was broken off: its records are read as far as they go, and no block that holds it counts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gates import verdict
from scenarios.load import load_scenario, load_site
from tests.synthetic import make_run
from tests.synthetic_truth import Truth, only, put
from tests.test_resume import INTERRUPTED, go_on
from workloads.blocks import plan_blocks
from workloads.evidence import Run, RunDir, verify

Json = dict[str, Any]
SCENARIO = load_scenario("rehearsal", load_site("rehearsal")).value
PLAN = plan_blocks(SCENARIO, [5, 8, 12], 1)[1]
TRIALS = [f"{arm}/c{step}/b02" for arm in PLAN.order for step in PLAN.steps]  # of block 2, in their order


def broken_off_in(folder: Path, name: str, error: str = "interrupted", **truth: Any) -> RunDir:
    """A run that ended in block 2 while the trial was in its first wave, of which there are no records yet."""
    ended = {"block": only({"block": 2}, put(complete=False)), "leave_out": TRIALS[TRIALS.index(name) :]}
    path = make_run(folder, Truth(**ended, seal=False, **truth))
    arm, step, _ = name.split("/")
    run = RunDir(path)
    facts: Json = json.loads((path / f"raw/{arm}/c{step[1:]}/b01/trial.json").read_text(encoding="utf-8"))
    position = PLAN.order.index(arm)
    facts |= {"block": 2, "prompt_set": PLAN.prompt_set, "position": position, "completed": False, "error": error}
    run.write_json(f"raw/{name}/trial.json", facts)
    run.write_bytes(f"raw/{name}/engine.log", b"")
    return run


def first_of(arm: str) -> str:
    return next(name for name in TRIALS if name.startswith(arm))


def judged(run: RunDir) -> Json:
    run.seal("end")
    assert verify(run.path) == []
    return verdict.judge(Run(run.path))


@pytest.mark.parametrize("arm", ["recompute", "baseline", "candidate"])
def test_an_interruption_before_the_first_records_costs_its_block_and_no_more(tmp_path: Path, arm: str) -> None:
    run = broken_off_in(tmp_path, first_of(arm), blocks=6, incidents=[INTERRUPTED])
    result = judged(go_on(run.path))
    assert (result["verdict"], result["blocks"]["valid"]) == ("PASS", [1, 3, 4, 5, 6])


def died(kind: str, message: str) -> Json:
    step = int(first_of("candidate").split("/")[1][1:])
    return {"whose": "candidate", "kind": kind, "message": message, "arm": "candidate", "step": step, "block": 2}


@pytest.mark.parametrize("kind", ["engine-died", "trial-failed"])
def test_a_fault_of_the_candidate_before_its_first_wave_fails(tmp_path: Path, kind: str) -> None:
    told = "arm 'candidate': 3 stores still pending after 120 s"
    run = broken_off_in(tmp_path, first_of("candidate"), told, blocks=2, incidents=[died(kind, told)])
    result = judged(run)
    assert (result["verdict"], result["reasons"]) == ("FAIL", [])
    assert {r["verdict"] for r in result["criteria"] if r["id"] == "tier-faults"} == {"FAIL"}
    assert f"the candidate broke it off: {told}" in result["blocks"]["invalid"][0]["reasons"]


def test_a_fault_of_the_baseline_there_stays_invalid(tmp_path: Path) -> None:
    incident = {**died("trial-failed", "pending"), "whose": "baseline", "arm": "baseline"}
    assert judged(broken_off_in(tmp_path, first_of("baseline"), blocks=2, incidents=[incident]))["verdict"] == "INVALID"


LAST = TRIALS[-1]
CUT = only({"arm": LAST.split("/")[0], "block": 2, "step": PLAN.steps[-1]}, put(completed=False, error="interrupted"))
UNFINISHED = only({"block": 2}, put(complete=False))


def cut(path: Path, name: str, file: str) -> Path:
    found = path / f"raw/{name}/{file}"
    found.write_bytes(found.read_bytes()[:-20])
    return path


@pytest.mark.parametrize("file", ["requests.jsonl", "counters.jsonl"])
def test_a_last_line_that_was_cut_ends_the_records_of_a_trial_that_was_broken_off(tmp_path: Path, file: str) -> None:
    path = make_run(tmp_path, Truth(blocks=6, trial=CUT, block=UNFINISHED, seal=False, incidents=[INTERRUPTED]))
    result = judged(go_on(cut(path, LAST, file)))
    assert (result["verdict"], result["blocks"]["valid"]) == ("PASS", [1, 3, 4, 5, 6])


def test_failures_that_were_recorded_before_the_cut_are_not_washed_out(tmp_path: Path) -> None:
    step = PLAN.steps[-1]
    name = next(name for name in reversed(TRIALS) if name.startswith("candidate/"))
    cut_off = only({"arm": "candidate", "block": 2, "step": step}, put(completed=False, error="interrupted"))
    fail = put(status="failed", error="reset", t_first_ns=None, usage=None)
    request = only({"id": f"candidate-c{step}-b02-w1-0"}, fail)
    path = make_run(tmp_path, Truth(blocks=6, trial=cut_off, block=UNFINISHED, request=request, seal=False))
    result = judged(go_on(cut(path, name, "requests.jsonl")))
    (row,) = [r for r in result["criteria"] if (r["id"], r["step"]) == ("failed-requests", step)]
    assert (result["verdict"], row["verdict"]) == ("FAIL", "FAIL")


@pytest.mark.parametrize("file", ["requests.jsonl", "counters.jsonl"])
@pytest.mark.parametrize("how", ["cut", "gone"])
def test_a_trial_that_was_carried_through_needs_every_line(tmp_path: Path, file: str, how: str) -> None:
    """Also in a block that does not count: its failures would be gone with them."""
    path = make_run(tmp_path, Truth(blocks=6, block=UNFINISHED, seal=False))
    cut(path, LAST, file)
    if how == "gone":
        (path / f"raw/{LAST}/{file}").unlink()
    assert LAST.startswith("candidate/")
    result = judged(go_on(path))
    if file == "requests.jsonl":
        assert (result["verdict"], f"{LAST}/{file}" in result["reasons"][0]) == ("INVALID", True)
    else:
        assert "readable" in [b["check"] for b in result["breaches"] if b["trial"] == LAST]
    sound = make_run(tmp_path / "counts", Truth(seal=False))
    assert judged(RunDir(cut(sound, "candidate/c2/b03", file)))["verdict"] == "INVALID"


def test_a_line_that_is_wrong_was_not_cut_off(tmp_path: Path) -> None:
    path = make_run(tmp_path, Truth(blocks=6, trial=CUT, block=UNFINISHED, seal=False, incidents=[INTERRUPTED]))
    file = path / f"raw/{LAST}/requests.jsonl"
    first, *others = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join([first, b"{\n", *others])[:-20])
    result = judged(go_on(path))
    assert result["verdict"] == "INVALID"
    assert f"{LAST}/requests.jsonl:2: not JSON" in result["reasons"][0]


def test_a_block_that_holds_a_trial_which_was_broken_off_never_counts(tmp_path: Path) -> None:
    """Whatever the block's own record says, and whoever broke it off."""
    trial = only({"arm": "candidate", "block": 5, "step": 2}, put(completed=False, error="died"))
    incident = {**died("engine-died", "killed"), "step": 2, "block": 5}
    result = verdict.judge(Run(make_run(tmp_path, Truth(trial=trial, incidents=[incident]))))
    assert (result["verdict"], result["blocks"]["valid"]) == ("FAIL", [1, 2, 3, 4])
