"""The checks of imported results: what contradicts itself, differs between the arms, is in the wrong place, failed."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gates.imports.checks import contradictions, differences, mixed_up, of_two_kinds
from gates.imports.judge import INVALID, failed
from tests.import_lab import LOOSE, imported, result, rows, values

Json = dict[str, Any]


def test_what_a_failed_request_left_enters_no_figure() -> None:
    """The fixture's failed requests hold 0.0, or the times of an answer that broke off; the median is without them."""
    held = values("stopped.json")
    assert sorted(t for t, e in zip(held["ttfts"], held["errors"], strict=True) if e)[3:5] == [
        0.0,
        pytest.approx(0.0523, abs=1e-3),
    ]
    assert contradictions(result(held)) == []
    held["median_ttft_ms"] = sorted(held["ttfts"])[5] * 1e3
    assert any("median_ttft_ms" in line for line in contradictions(result(held)))


def test_a_success_without_a_token_or_an_error_without_words_is_a_failure() -> None:
    held = values("candidate.json")
    held["output_lens"][3] = 0
    assert failed(result(held)) == 1
    held = values("dead.json")
    held["errors"] = [""] * 8
    assert failed(result(held)) == 8


def put(**changes: object) -> Callable[[Json], None]:
    return lambda held: held.update(changes)


def at(key: str, index: int, value: object) -> Callable[[Json], None]:
    def change(held: Json) -> None:
        held[key][index] = value

    return change


CONTRADICTIONS: dict[str, tuple[Callable[[Json], None], str]] = {
    "counts": (put(failed=1), "completed 12 + failed 1 is not num_prompts 12"),
    "no prompts": (put(num_prompts=0, completed=0), "nothing was sent"),
    "tokens": (put(total_output_tokens=95), "total_output_tokens is 95"),
    "prompts": (put(total_input_tokens=1), "total_input_tokens is 1"),
    "short": (put(duration=0.01), "duration is 0.01 s, its longest request"),
    "zero": (put(duration=0.0), "duration is 0"),
    "nan": (put(duration=math.nan), "duration is nan"),
    "infinite": (put(median_ttft_ms=math.inf), "median_ttft_ms is inf"),
    "negative": (at("ttfts", 2, -0.1), "ttfts: 1 times that no clock shows, the first -0.1"),
    "gap": (at("itls", 0, [math.nan]), "itls: 1 times"),
    "latency": (at("latencies", 0, 0.2), "off its ttft and the sum of its itls"),
    "length": (at("output_lens", 0, -8), "output_lens: -8 tokens"),
    "other size": (put(errors=[""] * 11), "errors speaks of 11 requests"),
    "hidden error": (at("errors", 0, "Bad Gateway"), "completed is 12, by errors and ttfts it is 11"),
    "rate": (put(output_throughput=999.0), "output_throughput is 999"),
    "median": (put(median_ttft_ms=1.0), "median_ttft_ms is 1, by the rest of the file 62"),
    "crowd": (put(max_concurrency=3), "4 requests were under way at once, max_concurrency is 3"),
    "no user": (put(max_concurrency=0), "max_concurrency is 0"),
    "never": (put(request_rate=0.0), "request_rate is 0"),
    "late": (at("start_times", 0, 1.0), "its requests span"),
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_contradictions(tmp_path: Path, name: str) -> None:
    """Each is told, voids every comparison, and takes the file's failures out of the count."""
    change, told = CONTRADICTIONS[name]
    held = values("candidate.json")
    change(held)
    lines = contradictions(result(held))
    assert any(told in line for line in lines), lines
    _, judged = imported(tmp_path, "baseline.json", held)
    assert judged["verdict"] == INVALID
    assert all(row["verdict"] == INVALID and row["estimate"] is None for row in judged["criteria"])
    assert any(told in reason for reason in judged["reasons"])


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (put(model_id="other"), "other model_id"),
        (put(max_concurrency=5), "other max_concurrency"),
        (put(num_prompts=13), "other num_prompts"),
        (put(request_rate=5.0), "other request_rate"),
        (put(ramp_up_strategy="linear"), "other ramp_up_strategy"),
        (at("input_lens", 1, 27), "other input_lens in 1 of 12 requests"),
        (at("output_lens", 1, 7), "other output_lens in 1 of 12 requests"),
    ],
)
def test_differences_between_the_arms(change: Callable[[Json], None], told: str) -> None:
    held = values("candidate.json")
    assert differences(result(values("baseline.json"), "baseline"), result(held)) == []
    change(held)
    assert any(told in line for line in differences(result(values("baseline.json"), "baseline"), result(held)))


def test_files_in_the_wrong_place() -> None:
    held = values("candidate.json")
    mine = result({**held, "label": "Candidate"}, "baseline")
    assert "label" in mixed_up([mine])[0]
    assert "the same result" in mixed_up([result(held, "baseline"), result(held)])[0]
    other = result({**held, "tier": "nvme"})
    assert "'tier' is 'nvme', but 'array'" in of_two_kinds([result(held), other])[0]


def test_old_versions_lack_what_they_lack(tmp_path: Path) -> None:
    held = values("candidate.json")
    for key in ("latencies", "queue_times", "start_times", "failed", "backend", "burstiness"):
        del held[key]
    assert contradictions(result(held)) == [] and failed(result(held)) == 0
    for key in ("input_lens", "output_lens", "ttfts", "itls", "errors"):
        del held[key]
    held["completed"], held["request_throughput"] = 11, 11 / held["duration"]
    _, judged = imported(tmp_path, "baseline.json", held)
    reason = rows(judged)["failed-requests"]["reason"]
    assert judged["verdict"] == INVALID
    assert "completed 11 of 12" in reason and "measure again with --save-detailed" in reason


@LOOSE
@given(st.integers(0, 11), st.floats(allow_nan=True), st.sampled_from(["ttfts", "latencies", "start_times"]))
def test_a_time_that_is_none_is_a_contradiction(index: int, value: float, key: str) -> None:
    held = values("candidate.json")
    held[key][index] = value
    if not (math.isfinite(value) and value >= 0):
        assert any(key in line for line in contradictions(result(held)))
