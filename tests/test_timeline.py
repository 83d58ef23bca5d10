"""One thing after the other: what was measured at the same time, out of order, or is told twice, is found."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gates import validity, verdict
from tests.synthetic import make_run
from tests.synthetic_truth import Truth, only, put
from workloads.evidence import Run, RunDir

Json = dict[str, Any]
MINUTE_NS = 60_000_000_000
STAMPS = ("t_ns", "realtime_ns", "t_intended_ns", "t_sent_ns", "t_first_ns", "t_last_ns")


def rewrite(file: Path, change: Callable[[Json], None]) -> None:
    records = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    for record in records:
        change(record)
    file.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")


def shifted(trial: Path, by_ns: int) -> None:
    """Move all that is recorded of a trial in time: every check of the trial itself still holds."""

    def change(record: Json) -> None:
        record.update({key: record[key] + by_ns for key in STAMPS if key in record})

    for name in ("requests.jsonl", "counters.jsonl"):
        rewrite(trial / name, change)


def told(path: Path, check: str = "timeline") -> list[str]:
    found = validity.check_run(Run(path))
    assert all(b.whose == "harness" for b in found if b.check == check)
    return [b.reason for b in found if b.check == check]


def test_a_sound_run_is_of_one_line(tmp_path: Path) -> None:
    assert told(make_run(tmp_path, Truth(blocks=3))) == []


@pytest.mark.parametrize(
    ("arm", "step", "other"),
    [("recompute", 2, "baseline/c4/b01"), ("baseline", 2, "candidate/c4/b01"), ("baseline", 4, "baseline/c2/b01")],
)
def test_trials_at_the_same_time_are_told_whatever_their_arms(tmp_path: Path, arm: str, step: int, other: str) -> None:
    path = make_run(tmp_path, Truth(blocks=1))
    shifted(path / f"raw/{arm}/c{step}/b01", -MINUTE_NS // 2)
    assert told(path) == [f"{arm}/c{step}/b01 began 30.000 s before {other} had ended"]
    run = Run(path)
    recorded = run.trial(arm, step, 1)
    assert recorded is not None
    assert validity.check_trial(run, recorded) == []


def test_trials_out_of_the_recorded_order_are_told(tmp_path: Path) -> None:
    arms = make_run(tmp_path / "a", Truth(blocks=1, block=put(order=["baseline", "recompute", "candidate"])))
    assert "was measured where the recorded order has" in told(arms)[0]
    assert any("says that it is number" in reason for reason in told(arms))
    steps = make_run(tmp_path / "b", Truth(blocks=1, block=put(steps=[4, 2])))
    assert told(steps) == ["candidate/c2/b01 was measured where the recorded order has candidate/c4/b01"]
    position = make_run(tmp_path / "c", Truth(blocks=1, trial=only({"arm": "baseline", "step": 4}, put(position=0))))
    assert told(position) == ["baseline/c4/b01 says that it is number 0 of its block, 1 by the recorded order"]


def test_blocks_follow_one_another(tmp_path: Path) -> None:
    path = make_run(tmp_path, Truth(blocks=3))
    for trial in path.glob("raw/*/c*/b02"):
        shifted(trial, 1000 * MINUTE_NS)
    assert told(path) == ["recompute/c4/b03 was measured where the recorded order has recompute/c2/b02"]


def test_a_copied_block_is_told_by_its_times_and_its_requests(tmp_path: Path) -> None:
    path = make_run(tmp_path, Truth(blocks=4, seal=False))
    for file in [*path.glob("raw/*/c*/b02"), path / "blocks/b02.json"]:
        copy = file.with_name(file.name.replace("b02", "b04"))
        if file.is_dir():
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(file, copy)
            rewrite(copy / "requests.jsonl", lambda r: r.update(block=4, trial=r["trial"].replace("b02", "b04")))
            facts = copy / "trial.json"
        else:
            shutil.copy(file, copy)
            facts = copy
        facts.write_text(json.dumps({**json.loads(facts.read_bytes()), "block": 4}), encoding="utf-8")
    RunDir(path).seal("end")
    assert any("had ended" in reason for reason in told(path))
    moved = "request candidate-c2-b02-w0-0 is recorded in candidate/c2/b04, and is of candidate/c2/b02"
    assert moved in told(path, "requests")
    assert verdict.judge(Run(path))["verdict"] == "INVALID"


def test_an_id_used_twice_while_populating_is_told(tmp_path: Path) -> None:
    twice = only({"arm": "candidate", "prompt_set": 1}, put(requests=[{"id": "baseline-c2-b01-w1-0"}]))
    path = make_run(tmp_path, Truth(blocks=1, populate=twice))
    (found,) = told(path, "requests")
    assert found == "request baseline-c2-b01-w1-0 is recorded in candidate, populating set 1, and is of baseline/c2/b01"


def test_a_completed_trial_without_a_time_is_told(tmp_path: Path) -> None:
    path = make_run(tmp_path, Truth(blocks=1))
    (path / "raw/candidate/c2/b01/counters.jsonl").unlink()
    assert told(path) == ["candidate/c2/b01: no data on when it was measured"]


def test_a_clock_that_began_anew_is_told(tmp_path: Path) -> None:
    """What a run continued after a reboot looks like: its later blocks lie before its first ones."""
    path = make_run(tmp_path, Truth(blocks=2))
    for trial in path.glob("raw/*/c*/b02"):
        shifted(trial, -33 * MINUTE_NS)
    assert told(path)


@pytest.mark.parametrize(
    ("shift_ns", "reason"),
    [
        (-MINUTE_NS // 2, "wave 3 began before wave 2 had ended"),
        (MINUTE_NS // 2, "wave 4 began before wave 3 had ended"),
    ],
)
def test_waves_of_a_trial_follow_one_another(tmp_path: Path, shift_ns: int, reason: str) -> None:
    path = make_run(tmp_path, Truth(blocks=1))
    for name in ("requests.jsonl", "counters.jsonl"):
        rewrite(
            path / "raw/candidate/c2/b01" / name,
            only({"wave": 3}, lambda r: r.update({k: r[k] + shift_ns for k in STAMPS if k in r})),
        )
    run = Run(path)
    trial = run.trial("candidate", 2, 1)
    assert trial is not None
    assert [(b.check, b.whose, b.reason) for b in validity.check_trial(run, trial)] == [("timeline", "harness", reason)]


def test_a_wave_that_ends_before_it_begins_is_told(tmp_path: Path) -> None:
    path = make_run(tmp_path, Truth(blocks=1))
    rewrite(path / "raw/candidate/c2/b01/counters.jsonl", only({"wave": 3, "when": "before"}, put(t_ns=10**18)))
    run = Run(path)
    trial = run.trial("candidate", 2, 1)
    assert trial is not None
    assert any(b.reason == "wave 3 ended before it began" for b in validity.check_trial(run, trial))
