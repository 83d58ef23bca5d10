"""Evidence that must be there: host probes, logs, and what was told while the run went on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gates import validity, verdict
from tests.synthetic import make_run
from tests.synthetic_truth import Truth, only, put
from workloads.evidence import Run, RunDir

Json = dict[str, Any]


@pytest.mark.parametrize(
    ("file", "told"),
    [
        ("host/before/uname.txt", "host/before: no probe of the host was kept"),
        ("host/after/uname.txt", "host/after: no probe of the host was kept"),
        ("raw/candidate/c2/b01/engine.log", "candidate/c2/b01: its engine.log is missing"),
        ("raw/recompute/start-01/engine.log", "recompute/start-01: engine.log is missing"),
        ("raw/baseline/start-01/lmcache.log", "baseline/start-01: lmcache.log is missing"),
    ],
)
@pytest.mark.parametrize("how", ["gone", "empty"])
def test_what_is_missing_makes_the_run_invalid(tmp_path: Path, file: str, told: str, how: str) -> None:
    path = make_run(tmp_path, Truth(seal=False))
    assert (path / file).is_file()
    (path / file).unlink()
    if how == "empty":
        (path / file).write_bytes(b"")
    RunDir(path).seal("end")
    result = verdict.judge(Run(path))
    if how == "empty" and file.endswith(".log"):
        assert result["verdict"] == "PASS"  # an engine may have had nothing to say
        return
    assert result["verdict"] == "INVALID"
    assert any(told in reason for reason in result["reasons"]), result["reasons"]


def test_a_run_that_goes_on_has_no_probes_of_its_end_yet(tmp_path: Path) -> None:
    path = make_run(tmp_path, Truth(seal=False))
    (path / "host/after/uname.txt").unlink()
    assert verdict.decide(Run(path), 5) == "PASS"
    (path / "host/before/uname.txt").unlink()
    assert verdict.decide(Run(path), 5) == "INVALID"


def test_a_trial_that_was_broken_off_needs_no_log(tmp_path: Path) -> None:
    cut = only({"arm": "candidate", "step": 2}, put(completed=False, error="engine died"))
    path = make_run(tmp_path, Truth(blocks=1, trial=cut))
    (path / "raw/candidate/c2/b01/engine.log").unlink()
    assert [b for b in validity.check_run(Run(path)) if b.check == "kept"] == []


def recording(breaches: object, block: int = 2) -> Any:
    return only({"block": block}, put(breaches=breaches))


def test_a_breach_told_while_running_and_not_found_again_is_not_dropped(tmp_path: Path) -> None:
    breach = {"trial": "candidate/c2/b02", "check": "cold", "whose": "host", "reason": "256 tokens from DRAM"}
    result = verdict.judge(Run(make_run(tmp_path, Truth(block=recording([breach])))))
    assert result["verdict"] == "INVALID"
    told = "block 2: candidate/c2/b02: cold: told while it ran, but not found in what was recorded"
    assert result["reasons"] == [told]


@pytest.mark.parametrize("breaches", [None, {}, "", [None], [{}]])
def test_recorded_breaches_of_another_shape_never_pass(tmp_path: Path, breaches: object) -> None:
    assert verdict.judge(Run(make_run(tmp_path, Truth(block=recording(breaches)))))["verdict"] == "INVALID"


def test_what_is_found_again_or_belongs_to_a_block_that_does_not_count_is_no_contradiction(tmp_path: Path) -> None:
    short = only({"id": "baseline-c2-b05-w1-0"}, put(usage={"prompt_tokens": 1, "completion_tokens": 8}))
    breach = {"trial": "baseline/c2/b05", "check": "odd", "whose": "host", "reason": "not found again"}
    result = verdict.judge(Run(make_run(tmp_path, Truth(blocks=6, request=short, block=recording([breach], 5)))))
    assert result["verdict"] == "PASS"
    assert [b["block"] for b in result["blocks"]["invalid"]] == [5]
    own = {"trial": "candidate/c2/b02", "check": "errors", "whose": "candidate", "reason": "as found"}
    failed = only({"id": "candidate-c2-b02-w1-0"}, put(status="failed", error="reset", t_first_ns=None, usage=None))
    again = verdict.judge(Run(make_run(tmp_path, Truth(request=failed, block=recording([own])))))
    assert (again["verdict"], again["reasons"]) == ("FAIL", [])
