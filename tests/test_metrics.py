"""Evidence to numbers: by hand on small trials, and what is missing is NoData."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from gates import metrics
from gates.nodata import NoData
from workloads.evidence import Trial

Json = dict[str, Any]
S = 1_000_000_000


def request(wave: int, sent_s: float, ttft_s: float, decode_s: float, **values: object) -> Json:
    sent = int(sent_s * S)
    first = sent + int(ttft_s * S)
    record: Json = {
        "id": f"w{wave}", "wave": wave, "measured": wave > 0, "t_sent_ns": sent, "t_first_ns": first,
        "t_last_ns": first + int(decode_s * S), "usage": {"prompt_tokens": 4096, "completion_tokens": 8}, "status": "ok",
        "chunk_tokens": [1, 7], "chunk_ns": [0, int(decode_s * S)],
    }  # fmt: skip
    return {**record, **values}


FAILED: Json = {"status": "failed", "t_first_ns": None, "t_last_ns": None, "usage": None}


def trial(folder: Path, *records: Json) -> Trial:
    (folder / "requests.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records), encoding="utf-8")
    return Trial(folder, {})


def test_ttft_is_the_mean_over_waves_of_the_waves_median(tmp_path: Path) -> None:
    found = trial(
        tmp_path,
        request(0, 0, 50, 1),  # the discarded wave
        request(1, 10, 1, 1), request(1, 10, 2, 1), request(1, 10, 9, 1),
        request(2, 20, 3, 1), request(2, 20, 5, 1),
    )  # fmt: skip
    assert metrics.ttft_p50_s(found) == pytest.approx((2 + 4) / 2)
    assert sorted(metrics.ttft_samples_s(found)) == pytest.approx([1, 2, 3, 5, 9])


def test_ttft_counts_from_the_real_send_and_failures_are_infinite(tmp_path: Path) -> None:
    one = trial(tmp_path, request(1, 0, 1, 1), request(1, 0, 2, 1), request(1, 0, 0, 0, **FAILED))
    assert metrics.ttft_p50_s(one) == pytest.approx(2)
    two = trial(tmp_path, request(1, 0, 1, 1), request(1, 0, 0, 0, **FAILED))
    assert metrics.ttft_p50_s(two) == math.inf
    assert metrics.ttft_samples_s(two) == [1.0, math.inf]


def test_throughput_is_tokens_over_the_summed_windows(tmp_path: Path) -> None:
    found = trial(
        tmp_path,
        request(0, 0, 50, 1),
        request(1, 10.0, 1, 1), request(1, 10.5, 1, 2),  # 10.0 to 13.5
        request(2, 100, 1, 0.5), request(2, 100, 1, 0.4),  # 1.5; what lies between waves is no part of it
    )  # fmt: skip
    assert metrics.output_tokens_per_s(found) == pytest.approx(32 / 5)


def test_a_failed_request_adds_its_time_and_no_token(tmp_path: Path) -> None:
    hung = {"status": "failed", "usage": None}
    found = trial(tmp_path, request(1, 0, 1, 1), request(1, 0, 1, 7, **hung))
    assert metrics.output_tokens_per_s(found) == pytest.approx(8 / 8)
    found = trial(tmp_path, request(1, 1, 1, 1), request(1, 0, 1, 7, **FAILED))
    assert metrics.output_tokens_per_s(found) == pytest.approx(8 / 3)


def test_nothing_but_failures_is_a_rate_of_zero_and_an_infinite_time(tmp_path: Path) -> None:
    found = trial(tmp_path, request(1, 0, 0, 0, **FAILED))
    assert metrics.output_tokens_per_s(found) == 0.0
    assert metrics.ttft_p50_s(found) == math.inf


def test_what_is_not_there_is_no_data_and_never_zero(tmp_path: Path) -> None:
    for records in ((), (request(0, 0, 1, 1),)):
        found = trial(tmp_path, *records)
        assert isinstance(metrics.ttft_p50_s(found), NoData)
        assert isinstance(metrics.output_tokens_per_s(found), NoData)
    one_wave_lost = trial(tmp_path, request(1, 0, 1, 1), request(2, 9, 0, 0, **FAILED))
    assert isinstance(metrics.output_tokens_per_s(one_wave_lost), NoData)
    no_length = trial(tmp_path, request(1, 0, 0, 0))
    assert isinstance(metrics.output_tokens_per_s(no_length), NoData)
    assert not NoData("it is never true")


def test_failures_are_counted_in_discarded_waves_too(tmp_path: Path) -> None:
    found = trial(tmp_path, request(0, 0, 0, 0, **FAILED), request(1, 0, 1, 1))
    assert metrics.failed_requests([found, found]) == (2, 4)


def test_e2e_of_a_failed_request_is_no_data() -> None:
    assert metrics.e2e_s(request(1, 0, 1, 2)) == pytest.approx(3)
    assert isinstance(metrics.e2e_s(request(1, 0, 1, 2, **FAILED)), NoData)


def streamed(counts: list[int], stamps_s: list[float], **values: object) -> Json:
    record = request(1, 10, 1, stamps_s[-1], t_intended_ns=9 * S)
    chunks = {"chunk_tokens": counts, "chunk_ns": [int(s * S) for s in stamps_s]}
    return {**record, **chunks, "usage": {"prompt_tokens": 4, "completion_tokens": sum(counts)}, **values}


def test_latency_in_an_open_loop_counts_from_the_intended_time() -> None:
    assert metrics.ttft_intended_s(streamed([1], [0.0])) == pytest.approx(2.0)
    assert metrics.ttft_s(streamed([1], [0.0])) == pytest.approx(1.0)
    assert metrics.ttft_intended_s({**streamed([1], [0.0]), **FAILED}) == math.inf


def test_a_chunk_of_several_tokens_counts_as_so_many() -> None:
    one = streamed([1, 2, 1], [0.0, 0.2, 0.3])
    assert metrics.itl_s(one) == pytest.approx([0.1, 0.1, 0.1])
    assert metrics.tpot_s(one) == pytest.approx(0.1)
    # Further tokens of the first chunk came with the first.
    assert metrics.itl_s(streamed([3, 1], [0.0, 0.3])) == pytest.approx([0.0, 0.0, 0.3])


def test_the_mean_gap_is_the_tpot() -> None:
    one = streamed([2, 1, 3], [0.0, 0.1, 0.7])
    gaps = metrics.itl_s(one)
    assert not isinstance(gaps, NoData)
    assert sum(gaps) / len(gaps) == pytest.approx(metrics.tpot_s(one))


@pytest.mark.parametrize(
    ("record", "told"),
    [
        (streamed([1], [0.0]), "has 1 output tokens, two needed"),
        (streamed([1, 1], [0.0, 1.0], **FAILED), "failed"),
    ],
)
def test_no_tpot_of_one_token_or_of_a_failure(record: Json, told: str) -> None:
    found = metrics.tpot_s(record)
    assert isinstance(found, NoData) and told in found.reason


def test_gaps_are_no_data_where_chunks_and_usage_disagree() -> None:
    five = {"prompt_tokens": 4, "completion_tokens": 5}
    found = metrics.itl_s(streamed([1, 1], [0.0, 1.0], usage=five))
    assert isinstance(found, NoData)
    assert found.reason.endswith("its chunks hold 2 tokens, usage says 5")
