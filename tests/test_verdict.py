"""The verdict, from synthetic runs of known truth: each criterion must pass, must fail, must be undecided, must be invalid."""

from __future__ import annotations

import json
import math
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gates import criteria, stats, verdict
from tests.synthetic import Truth, make_run, only, put
from workloads.evidence import Run

Json = dict[str, Any]
ROOT = Path(__file__).resolve().parent.parent
TTFT = {"recompute": 3.0, "baseline": 1.2, "candidate": 0.6}


def judged(folder: Path, **truth: Any) -> Json:
    return verdict.judge(Run(make_run(folder, Truth(**truth))))


def row(result: Json, name: str, step: int = 2) -> Json:
    (found,) = [r for r in result["criteria"] if (r["id"], r["step"]) == (name, step)]
    return found


def candidate(ttft_s: float) -> dict[str, float]:
    return {**TTFT, "candidate": ttft_s}


IDS = [c.id for c in criteria.load(criteria.default_file("g3")).criterion]


def test_a_good_run_passes_on_every_row(tmp_path: Path) -> None:
    result = judged(tmp_path)
    assert result["verdict"] == "PASS"
    assert [(r["id"], r["step"], r["verdict"]) for r in result["criteria"]] == [
        (i, s, "PASS") for i in IDS for s in (2, 4)
    ]
    assert result["acceptance"] is False  # a rehearsal never is
    found = row(result, "ttft-p50-reduction")["estimate"]
    assert found["point"] == pytest.approx(0.5, abs=0.02)
    assert found["n"] == 5
    assert found["low"] < found["point"] < found["high"]


def test_only_a_lab_can_accept(tmp_path: Path) -> None:
    assert judged(tmp_path, rehearsal=False)["acceptance"] is True


def fail_candidate(record: Json) -> None:
    record.update(status="failed", error="reset", t_first_ns=None, usage=None)


MUST_FAIL: dict[str, Json] = {
    "ttft-p50-reduction": {"ttft_s": candidate(1.1)},
    "throughput-gain": {"ttft_s": candidate(1.1)},
    "ttft-p50-vs-recompute": {"ttft_s": {**TTFT, "candidate": 3.5}},
    "throughput-vs-recompute": {"ttft_s": {**TTFT, "candidate": 3.5}},
    "failed-requests": {"request": only({"id": "candidate-c2-b03-w2-1"}, fail_candidate)},
    "tier-faults": {"incidents": [{"whose": "candidate", "kind": "engine-died", "message": "killed"}]},
}


@pytest.mark.parametrize("name", IDS)
def test_every_criterion_can_fail(tmp_path: Path, name: str) -> None:
    result = judged(tmp_path, **MUST_FAIL[name])
    assert row(result, name)["verdict"] == "FAIL"
    assert result["verdict"] == "FAIL"


@pytest.mark.parametrize("name", IDS)
def test_every_criterion_is_invalid_when_the_run_cannot_be_trusted(tmp_path: Path, name: str) -> None:
    result = judged(tmp_path, incidents=[{"whose": "host", "kind": "aborted", "message": "disk full"}])
    assert row(result, name)["verdict"] == "INVALID"
    assert result["verdict"] == "INVALID"
    assert "disk full" in result["reasons"][0]


@pytest.mark.parametrize("name", IDS)
def test_every_criterion_is_invalid_without_data(tmp_path: Path, name: str) -> None:
    result = judged(tmp_path, blocks=0)
    assert row(result, name)["verdict"] in ("INVALID", "INCONCLUSIVE")
    assert result["verdict"] == "INVALID"


@pytest.mark.parametrize("name", IDS[:4])
def test_every_comparison_can_be_undecided(tmp_path: Path, name: str) -> None:
    ttft = {"recompute": 0.9, "baseline": 1.2, "candidate": 0.9 if name.startswith("t") else 0.8}
    result = judged(tmp_path, ttft_s=ttft, noise=0.25, seed=3)
    assert row(result, name)["verdict"] == "INCONCLUSIVE"


def test_too_few_blocks_are_inconclusive_however_good(tmp_path: Path) -> None:
    result = judged(tmp_path, blocks=4)
    assert result["verdict"] == "INCONCLUSIVE"
    assert "4 valid blocks, 5 needed" in row(result, "ttft-p50-reduction")["reason"]


@pytest.mark.parametrize("seed", range(5))
def test_equal_tiers_and_a_slower_candidate_never_pass(tmp_path: Path, seed: int) -> None:
    assert judged(tmp_path, ttft_s=candidate(1.2), seed=seed)["verdict"] == "FAIL"
    assert judged(tmp_path, ttft_s=candidate(1.5), seed=seed)["verdict"] == "FAIL"


def test_above_the_band_passes_with_a_flag(tmp_path: Path) -> None:
    assert row(judged(tmp_path), "throughput-gain")["flags"] == ["explain"]
    inside = judged(tmp_path, ttft_s=candidate(0.88), decode_s=0.05)
    assert row(inside, "throughput-gain")["verdict"] == "PASS"
    assert row(inside, "throughput-gain")["flags"] == []


def test_a_candidate_whose_median_rests_on_failures_fails(tmp_path: Path) -> None:
    result = judged(tmp_path, request=only({"arm": "candidate", "step": 2, "prompt_index": 1}, fail_candidate))
    assert row(result, "ttft-p50-reduction")["verdict"] == "FAIL"
    assert row(result, "ttft-p50-reduction")["estimate"] is None
    assert result["verdict"] == "FAIL"


def test_a_failing_baseline_is_invalid_and_never_a_gain(tmp_path: Path) -> None:
    result = judged(tmp_path, request=only({"arm": "baseline"}, fail_candidate))
    assert result["verdict"] == "INVALID"


def test_everything_failing_is_never_a_pass(tmp_path: Path) -> None:
    result = judged(tmp_path, request=fail_candidate)
    assert result["verdict"] == "INVALID"


def test_one_invalid_block_in_six_is_left_out_and_listed(tmp_path: Path) -> None:
    result = judged(tmp_path, blocks=6, snapshot=_stale_block_5())
    assert result["blocks"]["valid"] == [1, 2, 3, 4, 6]
    assert [b["block"] for b in result["blocks"]["invalid"]] == [5]
    assert result["verdict"] == "PASS"


def test_more_than_one_in_five_is_invalid(tmp_path: Path) -> None:
    result = judged(tmp_path, blocks=7, trial=lambda f: f.update(completed=f["block"] > 2))
    assert result["verdict"] == "INVALID"
    assert "more than one in five" in result["reasons"][0]


def _stale_block_5() -> Any:
    seen = {"n": 0}

    def change(snapshot: Json) -> None:
        # Each block has 2 steps * 6 waves * 2 snapshots of that arm.
        if snapshot["arm"] == "baseline":
            seen["n"] += 1
            if seen["n"] == 4 * 24 + 1:
                snapshot["lmcache_pending"] = 3

    return change


def test_a_missing_trial_or_step_is_never_a_pass(tmp_path: Path) -> None:
    everywhere = [f"baseline/c4/b{n:02d}" for n in range(1, 6)]
    result = judged(tmp_path, leave_out=everywhere)
    assert result["verdict"] == "INVALID"


def test_a_partial_selection_never_passes(tmp_path: Path) -> None:
    result = judged(tmp_path, selection={"collected": 12, "selected": 3})
    assert result["verdict"] == "INCONCLUSIVE"
    assert "only 3 of 12" in result["reasons"][0]


def test_a_smoke_run_has_no_verdict(tmp_path: Path) -> None:
    with pytest.raises(verdict.NotJudgedError):
        judged(tmp_path, kind="smoke")


def test_an_unsealed_or_changed_run_is_invalid(tmp_path: Path) -> None:
    assert judged(tmp_path, seal=False)["verdict"] == "INVALID"
    path = make_run(tmp_path)
    requests = path / "raw/candidate/c2/b01/requests.jsonl"
    requests.write_text(
        requests.read_text(encoding="utf-8").replace('"status":"ok"', '"status":"OK"'), encoding="utf-8"
    )
    result = verdict.judge(Run(path))
    assert result["verdict"] == "INVALID"
    assert "raw/candidate/c2/b01/requests.jsonl: changed" in result["reasons"][0]


def test_a_cut_off_line_is_named_and_invalid(tmp_path: Path) -> None:
    path = make_run(tmp_path)
    requests = path / "raw/candidate/c2/b01/requests.jsonl"
    requests.write_bytes(requests.read_bytes()[:-20])
    result = verdict.judge(Run(path))
    assert result["verdict"] == "INVALID"


def test_criteria_that_were_exchanged_are_invalid(tmp_path: Path) -> None:
    path = make_run(tmp_path, Truth(seal=False))
    file = path / "criteria.toml"
    file.write_text(file.read_text(encoding="utf-8").replace("limit = 0.25", "limit = 0.01"), encoding="utf-8")
    assert any("not the criteria" in reason for reason in verdict.judge(Run(path))["reasons"])


@pytest.mark.parametrize("damage", ["scenario", "site", "run_id", "selection", "criteria_sha256"])
def test_a_run_json_of_another_shape_never_passes_and_never_raises(tmp_path: Path, damage: str) -> None:
    result = judged(tmp_path, run=lambda facts: facts.pop(damage))
    assert result["verdict"] != "PASS" or damage == "run_id"


def test_while_running_the_same_rule_decides(tmp_path: Path) -> None:
    run = Run(make_run(tmp_path, Truth(seal=False)))
    assert verdict.decide(run, 5) == "PASS"
    assert verdict.decide(run, 4) == "INVALID"


def test_the_look_decides_on_its_own_blocks_alone(tmp_path: Path) -> None:
    """Six valid blocks are judged as the five of the look reached: nothing between looks counts."""
    assert row(judged(tmp_path, blocks=6), "ttft-p50-reduction")["estimate"]["n"] == 5
    assert row(judged(tmp_path, blocks=8), "ttft-p50-reduction")["estimate"]["n"] == 8
    found = row(judged(tmp_path, blocks=8), "ttft-p50-reduction")["estimate"]
    assert found["confidence"] == pytest.approx(1 - 2 * 0.015)


def test_interval_equals_the_published_t_table() -> None:
    # t(0.99, 4) = 3.747 (Student's table); values with mean 0 and s = 1.
    values = [-math.sqrt(2), 0.0, 0.0, 0.0, math.sqrt(2)]
    found = stats.mean_interval(values, 0.01)
    assert found.high == pytest.approx(3.747 / math.sqrt(5), abs=1e-3)
    assert found.low == pytest.approx(-found.high)
    with pytest.raises(ValueError, match="at least two finite"):
        stats.mean_interval([1.0], 0.01)
    with pytest.raises(ValueError, match="at least two finite"):
        stats.mean_interval([1.0, math.inf], 0.01)


def test_quantiles_hold_infinity() -> None:
    assert stats.quantile([1.0, 2.0, 3.0, 4.0], 0.5) == 2.5
    assert stats.quantile([1.0, math.inf], 0.5) == math.inf
    assert stats.quantile([math.inf, math.inf], 0.5) == math.inf
    assert stats.quantile([1.0, 1.0, math.inf], 0.5) == 1.0
    with pytest.raises(ValueError, match="none of them NaN"):
        stats.quantile([1.0, math.nan], 0.5)


def test_rare_wrong_verdicts_at_the_first_look() -> None:
    """At one precision from the limit, with noise of the precision, wrong verdicts stay below half a percent."""
    criterion = criteria.load(criteria.default_file("g3")).criterion[0]
    draw = random.Random(1)
    wrong = {True: 0, False: 0}
    edge = math.log(0.75)
    for good in (True, False):
        truth = edge - 0.03 if good else edge + 0.03
        for _ in range(1500):
            log = stats.mean_interval([draw.gauss(truth, 0.03) for _ in range(5)], 0.01)
            given, _ = verdict._by_policy(criterion, log)
            wrong[good] += given == ("FAIL" if good else "PASS")
    assert max(wrong.values()) / 1500 <= 0.005


def test_rejudge_writes_the_same_bytes_anywhere(tmp_path: Path) -> None:
    path = make_run(tmp_path)
    copy = tmp_path / "elsewhere"
    shutil.copytree(path, copy)
    for folder in (path, copy):
        done = subprocess.run(
            [sys.executable, "-m", "gates", "rejudge", str(folder)], cwd=ROOT, capture_output=True, text=True
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert "G3 verdict: PASS" in done.stdout
    assert (path / "verdict.json").read_bytes() == (copy / "verdict.json").read_bytes()
    content = json.loads((path / "verdict.json").read_bytes())
    assert content["schema"] == 1
    assert content["manifest_sha256"]


@pytest.mark.parametrize(("command", "status"), [("verify", 0), ("explain", 0), ("rejudge", 0)])
def test_commands_on_a_good_run(tmp_path: Path, command: str, status: int) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gates", command, str(make_run(tmp_path))], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == status
    assert done.stdout


def test_commands_on_what_is_no_run_say_one_line(tmp_path: Path) -> None:
    for target in (tmp_path / "nowhere", tmp_path):
        done = subprocess.run(
            [sys.executable, "-m", "gates", "rejudge", str(target)], cwd=ROOT, capture_output=True, text=True
        )
        assert done.returncode == 4
        assert done.stderr.startswith("kvgate: ")
        assert done.stderr.count("\n") == 1


def test_exit_status_of_a_failed_run(tmp_path: Path) -> None:
    path = make_run(tmp_path, Truth(ttft_s=candidate(1.5)))
    done = subprocess.run(
        [sys.executable, "-m", "gates", "rejudge", str(path)], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 1


def test_the_summary_is_short_and_worst_first(tmp_path: Path) -> None:
    lines = verdict.summary_lines(judged(tmp_path, ttft_s=candidate(1.1)))
    assert len(lines) <= 13
    assert lines[0].startswith("FAIL")
    assert lines[-1].startswith("G3 verdict: FAIL")


def test_put_sets_fields() -> None:
    record: Json = {}
    put(a=1)(record)
    assert record == {"a": 1}
