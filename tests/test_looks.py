"""The looks in their order: the first that decides has decided, and no block measured after it changes that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gates import verdict
from tests.synthetic import make_run
from tests.synthetic_truth import Truth, only, put
from workloads.evidence import Run

Json = dict[str, Any]
BASELINE_S = 1.2
OPEN = (0.55, 0.75, 0.60, 0.80, 0.62)  # reductions of about a third, too far apart to decide at five blocks


def judged(folder: Path, shares: tuple[float, ...], **truth: Any) -> Json:
    """Judge a run whose candidate has, block by block, this share of the baseline's TTFT; decoding takes nearly none."""
    ttft = {("candidate", block): BASELINE_S * share for block, share in enumerate(shares, start=1)}
    truth = {"noise": 0.0005, "decode_s": 0.001, **truth}
    return verdict.judge(Run(make_run(folder, Truth(blocks=len(shares), ttft_in_s=ttft, **truth))))


def row(result: Json, name: str = "ttft-p50-reduction", step: int = 2) -> Json:
    (found,) = [r for r in result["criteria"] if (r["id"], r["step"]) == (name, step)]
    return found


def test_a_fail_at_a_look_cannot_be_outrun(tmp_path: Path) -> None:
    result = judged(tmp_path, (0.757,) * 5 + (0.715,) * 3)
    assert result["verdict"] == "FAIL"
    assert (row(result)["verdict"], row(result)["estimate"]["n"]) == ("FAIL", 5)
    assert "the look at 5 blocks decided: 3 valid blocks that came after it do not count" in result["reasons"]


def test_a_pass_at_a_look_is_not_taken_back_by_blocks_after_it(tmp_path: Path) -> None:
    result = judged(tmp_path, (0.6,) * 5 + (0.9,) * 3)
    assert result["verdict"] == "PASS"
    assert row(result)["estimate"]["n"] == 5
    assert result["blocks"]["valid"] == [1, 2, 3, 4, 5, 6, 7, 8]


def test_a_look_that_decides_nothing_lets_the_next_one_judge_all_blocks(tmp_path: Path) -> None:
    result = judged(tmp_path, OPEN)
    assert result["verdict"] == "INCONCLUSIVE"
    result = judged(tmp_path, (*OPEN, 0.5, 0.52, 0.51))
    assert (row(result)["verdict"], row(result)["estimate"]["n"]) == ("PASS", 8)
    assert row(result)["estimate"]["confidence"] == pytest.approx(1 - 2 * 0.015)
    assert result["reasons"] == []


def test_twelve_blocks_are_judged_at_the_last_look_where_none_before_decides(tmp_path: Path) -> None:
    result = judged(tmp_path, (*OPEN, 0.9, 0.5, 0.95, *OPEN[:4]))
    assert row(result)["estimate"]["n"] == 12


def test_what_the_candidate_did_itself_counts_whenever_it_did_it(tmp_path: Path) -> None:
    """A failure in a block after the look that decided is no block's value: it is never washed out."""
    fail = only({"id": "candidate-c2-b07-w2-1"}, put(status="failed", error="reset", t_first_ns=None, usage=None))
    result = judged(tmp_path, (0.6,) * 8, request=fail)
    assert (result["verdict"], row(result, "failed-requests")["verdict"]) == ("FAIL", "FAIL")


def test_a_look_that_was_invalid_ended_the_run(tmp_path: Path) -> None:
    """The run stops there, so that nobody can go on until the doubt is averaged away."""

    def sick(record: Json) -> None:
        for level in record["levels"]:
            level["day_values"] = [value * 1.25 for value in level["day_values"]]

    baseline = {("baseline", block): 1.2 if block <= 5 else 1.9 for block in range(1, 9)}
    candidate = {("candidate", block): 0.6 if block <= 5 else 0.95 for block in range(1, 9)}
    path = make_run(tmp_path, Truth(blocks=8, ttft_in_s={**baseline, **candidate}, record=sick))
    result = verdict.judge(Run(path))
    assert result["verdict"] == "INVALID"
    assert "not the baseline that G2 has recorded" in row(result)["reason"]


def test_while_it_runs_the_same_looks_decide(tmp_path: Path) -> None:
    ttft = {("candidate", block): BASELINE_S * (0.757 if block <= 5 else 0.715) for block in range(1, 9)}
    run = Run(make_run(tmp_path, Truth(blocks=8, ttft_in_s=ttft, noise=0.0005, decode_s=0.001, seal=False)))
    assert verdict.decide(run, 8) == "FAIL"
