"""What was asked for needles: a record that does not say how it ended is nobody's fault but the harness's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gates import verdict
from tests.synthetic import make_run
from tests.synthetic_truth import Truth
from workloads.evidence import Run

Json = dict[str, Any]


def judged(folder: Path, change: Callable[[Json], object], arm: str = "candidate") -> Json:
    def needles(facts: Json) -> None:
        if facts["arm"] == arm:
            change(facts)

    ttft = {"recompute": 3.0, "baseline": 1.2, "candidate": 0.87}
    return verdict.judge(Run(make_run(folder, Truth(rehearsal=False, ttft_s=ttft, needles=needles))))


def read(**values: object) -> Callable[[Json], object]:
    """The change of the first needle that was read back."""
    return lambda facts: facts["read"][0].update(values)


def test_needles_that_were_all_found_pass(tmp_path: Path) -> None:
    assert judged(tmp_path, lambda _facts: None)["verdict"] == "PASS"


FAILS: dict[str, Callable[[Json], object]] = {
    "failed": read(status="failed", error="HTTP 500", text="", usage=None),
    "lost": read(text="12345 or so"),
}


@pytest.mark.parametrize("name", FAILS)
def test_a_needle_that_the_candidate_lost_or_failed_is_its_own_fault(tmp_path: Path, name: str) -> None:
    assert judged(tmp_path, FAILS[name])["verdict"] == "FAIL"


def test_needles_that_failed_explain_no_more_tokens_than_they_have(tmp_path: Path) -> None:
    def none(facts: Json) -> None:
        facts["after"]["engine_metrics"] = facts["before"]["engine_metrics"]
        facts["read"][0].update(status="failed", error="HTTP 500", text="", usage=None)

    result = judged(tmp_path, none)
    assert result["verdict"] == "INVALID"
    told = "candidate: 0 tokens of its needles came from the tier, 12285 to 16380 expected"
    assert any(told in reason for reason in result["reasons"]), result["reasons"]


UNCLEAR: dict[str, tuple[Callable[[Json], object], str]] = {
    "another status": (read(status="?"), "candidate-needle-read-0: its status is '?', 'ok' or 'failed' expected"),
    "no status": (read(status=None), "its status is None"),
    "failed without error": (read(status="failed", error=None), "failed, but no error is told"),
    "error in success": (read(error="reset"), "succeeded, but with the error 'reset'"),
    "not recorded": (lambda f: f["read"].pop(), "candidate: no data on the others: 3 needles are recorded as read, 4 expected"),
    "none recorded": (lambda f: f["computed"].clear(), "0 needles are recorded as computed, 4 expected"),
    "field lost": (lambda f: f["read"][0].pop("status"), "lacks the field 'status'"),
}  # fmt: skip


@pytest.mark.parametrize("name", UNCLEAR)
def test_a_record_that_does_not_say_how_it_ended_is_invalid(tmp_path: Path, name: str) -> None:
    change, told = UNCLEAR[name]
    result = judged(tmp_path, change)
    assert result["verdict"] == "INVALID"
    assert any(told in reason for reason in result["reasons"]), result["reasons"]
