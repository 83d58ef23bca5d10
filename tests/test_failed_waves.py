"""Waves with failed requests: what can be proved of the others is, whatever number of failures the site has agreed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from gates import criteria, verdict
from gates.validity import Breach
from tests.looking import breaches
from tests.synthetic import make_run
from tests.synthetic_host import CHUNK_BYTES
from tests.synthetic_truth import Change, Truth, only, put
from tests.test_validity import losing_two_chunks, rising
from workloads.evidence import Run

Json = dict[str, Any]
NAMED: Json = {"block_devices": {"fx100": ("nvme1n1",)}, "rdma_ports": {"fx100": ("mlx5_0/1",)}}
# What one of the two requests of wave 1 has, at concurrency 2; the engine books it as if it had succeeded.
TOKENS, EXTERNAL, L2, OUTPUT = 4096, 4095, 4096, 8
SOURCE = "vllm:prompt_tokens_by_source_total"


def failing(**where: object) -> Change:
    """The change by which such requests fail before they got anything."""
    none = dict.fromkeys(
        ("t_first_ns", "t_last_ns", "usage", "finish_reason", "first_logprobs", "output_token_ids", "clock")
    )
    return only(where, put(**none, status="failed", error="HTTP 503: busy", chunk_ns=[], chunk_tokens=[], text=""))


ONE: Json = {"request": failing(id="candidate-c2-b01-w1-0")}
BOTH: Json = {"request": failing(arm="candidate", step=2, block=1, wave=1)}


def after_wave_1(**change: int) -> Change:
    """A change that adds to fields of the candidate's snapshots, or to all their counters, after wave 1 and later."""
    started = {"on": False}

    def add(snapshot: Json) -> None:
        if snapshot["arm"] == "candidate":
            started["on"] = started["on"] or (snapshot["wave"], snapshot["when"]) == (1, "after")
            for key, by in change.items() if started["on"] else ():
                if isinstance(snapshot[key], dict):
                    snapshot[key] = {name: value + by for name, value in snapshot[key].items()}
                else:
                    snapshot[key] += by

    return add


def together(*changes: Change) -> Change:
    def change(record: Json) -> None:
        for one in changes:
            one(record)

    return change


def nothing_booked(share: float = 1.0) -> Change:
    """What the counters show where the engine never knew the one request that failed, or only a share of it."""
    by = -int(16 * CHUNK_BYTES * share)
    counts = [
        ("vllm:e2e_request_latency_seconds_count", 1.0),
        ("vllm:time_to_first_token_seconds_count", 1.0),
        ("vllm:e2e_request_latency_seconds_sum", 0.8),
        ("vllm:time_to_first_token_seconds_sum", 0.6),
    ]
    tokens = [
        ("vllm:prompt_tokens_total", TOKENS),
        ("vllm:generation_tokens_total", OUTPUT),
        ("lmcache_mp_lookup_hit_l2_tokens_total", L2),
    ]
    return together(
        *(rising(name, -value) for name, value in counts),
        *(rising(name, -int(value * share)) for name, value in tokens),
        rising(SOURCE, -int(EXTERNAL * share), "external_kv_transfer"),
        after_wave_1(tier_read_bytes=by, device_read_bytes=by, port_receive_bytes=int(by * 1.03)),
    )


def found(folder: Path, **truth: Any) -> list[Breach]:
    told = breaches(folder, **NAMED, **truth)
    assert [(b.whose, b.reason[-22:]) for b in told if b.check == "errors"] == [("candidate", "failed: HTTP 503: busy")]
    return [b for b in told if b.check != "errors"]


HONEST: dict[str, Change] = {
    "the engine booked all of it": lambda _s: None,
    "the engine knew nothing of it": nothing_booked(),
    "the engine had come half the way": nothing_booked(0.5),
}


@pytest.mark.parametrize("name", HONEST)
def test_whatever_the_engine_did_with_a_failed_request_the_trial_holds(tmp_path: Path, name: str) -> None:
    assert found(tmp_path, **ONE, snapshot=HONEST[name]) == []


BEYOND: dict[str, tuple[Change, str, str]] = {
    "device cache": (rising(SOURCE, 256, "local_cache_hit"), "cold", "256 tokens from device cache, 0 expected"),
    "DRAM": (rising("lmcache_mp_lookup_hit_l1_tokens_total", 256), "cold", "256 tokens from DRAM (L1), 0 expected"),
    "no DRAM counter": (lambda s: s.update(lmcache_metrics=(s["lmcache_metrics"] or "").replace("hit_l1", "x")), "cold", "tokens from DRAM (L1): no data"),
    "fewer external": (rising(SOURCE, -EXTERNAL - 1, "external_kv_transfer"), "cold", "4094 tokens from external tier, 4095 to 8190 expected"),
    "more external": (rising(SOURCE, 1, "external_kv_transfer"), "cold", "8191 tokens from external tier, 4095 to 8190 expected"),
    "fewer from L2": (rising("lmcache_mp_lookup_hit_l2_tokens_total", -L2 - 256), "cold", "3840 tokens from tier (L2), 4096 to 8192 expected"),
    "page cache": (after_wave_1(tier_read_bytes=-int(1.06 * 16 * CHUNK_BYTES)), "tier-bytes", "bytes read from storage, 16777216 to 33554432 expected"),
    "another's reads": (after_wave_1(tier_read_bytes=int(0.11 * 32 * CHUNK_BYTES)), "tier-bytes", "16777216 to 33554432 expected"),
    "bytes not told": (only({"arm": "candidate"}, put(tier_read_bytes=None)), "tier-bytes", "no data on the bytes"),
    "another device": (after_wave_1(device_read_bytes=-int(1.06 * 16 * CHUNK_BYTES)), "device-bytes", "less, so not all of it came from there"),
    "another path": (after_wave_1(port_receive_bytes=-int(1.2 * 16 * CHUNK_BYTES)), "port-bytes", "less, so not all of it came from there"),
    "requests of others": (rising("vllm:e2e_request_latency_seconds_count", 1), "books", "the engine booked 3 requests, the client 1 to 2"),
    "a request lost": (rising("vllm:time_to_first_token_seconds_count", -2), "books", "the engine booked 0 first tokens, the client 1 to 2"),
    "prompt tokens": (rising("vllm:prompt_tokens_total", 1), "books", "8193 prompt tokens, the client 4096 to 8192"),
    "output tokens": (rising("vllm:generation_tokens_total", -OUTPUT - 1), "books", "7 output tokens, the client 8 to 16"),
    "time that nobody waited": (rising("vllm:e2e_request_latency_seconds_sum", -1.2), "books", "s of requests, the client 0.8"),
    "more time than the wave has": (rising("vllm:time_to_first_token_seconds_sum", 70), "books", "s to first tokens, the client 0.6"),
    "no data": (only({"arm": "candidate", "wave": 1, "when": "after"}, put(engine_metrics=None)), "readable", "could not be scraped"),
}  # fmt: skip


@pytest.mark.parametrize("name", BEYOND)
def test_what_failures_do_not_explain_is_told(tmp_path: Path, name: str) -> None:
    change, check, told = BEYOND[name]
    seen = found(tmp_path, **ONE, snapshot=change)
    assert any(b.check == check and b.whose in ("host", "harness") and told in b.reason for b in seen), seen


def test_a_request_that_the_engine_did_not_book_explains_none_of_its_time(tmp_path: Path) -> None:
    longer = together(nothing_booked(), rising("vllm:e2e_request_latency_seconds_sum", 0.5))
    assert [b.check for b in found(tmp_path, **ONE, snapshot=longer)] == ["books"]


def test_chunks_lost_under_the_requests_that_succeeded_stay_the_tiers(tmp_path: Path) -> None:
    lost = together(nothing_booked(), losing_two_chunks())
    assert [(b.check, b.whose) for b in found(tmp_path, **ONE, snapshot=lost)] == [("chunks-lost", "candidate")]


def test_where_nothing_succeeded_only_what_is_known_is_held_against_the_wave(tmp_path: Path) -> None:
    gone = only(
        {"arm": "candidate", "wave": 5, "when": "after"},
        put(lmcache_metrics=None, tier_read_bytes=None, device_read_bytes={}),
    )
    last = {"request": failing(arm="candidate", step=2, block=1, wave=5)}
    assert found(tmp_path / "a", **last, snapshot=gone) == []
    warm = rising("lmcache_mp_lookup_hit_l1_tokens_total", 256)
    assert [b.check for b in found(tmp_path / "b", **BOTH, snapshot=warm)] == ["cold"]
    hung = only({"arm": "candidate", "wave": 5, "when": "after"}, put(engine_metrics=None))
    assert [b.check for b in found(tmp_path / "c", **last, snapshot=hung)] == ["readable"]


def agreed(folder: Path, failures: int) -> Path:
    """Criteria of a site that has agreed to some failures, without the guards on tails."""
    head, *rows = criteria.default_file("g3").read_text(encoding="utf-8").split("[[criterion]]")
    kept = [row for row in rows if "guard-ttft-p99" not in row and "guard-itl" not in row]
    count = 'limit = 0.0\nunit = "requests"'
    text = "[[criterion]]".join([head, *kept]).replace(count, count.replace("0.0", f"{failures}.0"))
    folder.mkdir(parents=True)
    (folder / "agreed.toml").write_text(text, encoding="utf-8")
    assert len(kept) == len(criteria.load(folder / "agreed.toml").criterion)
    return folder / "agreed.toml"


def judged_as_agreed(folder: Path, **truth: Any) -> Json:
    file = agreed(folder, 60)
    rows = len(criteria.load(file).criterion)
    with mock.patch.object(criteria, "default_file", lambda _gate: file):
        selection = {"collected": rows, "selected": rows}
        request = failing(arm="candidate", prompt_index=0)
        return verdict.judge(Run(make_run(folder, Truth(steps=(4,), request=request, selection=selection, **truth))))


def test_agreed_failures_do_not_hide_that_nothing_was_read_from_the_tier(tmp_path: Path) -> None:
    def warm(snapshot: Json) -> None:
        if snapshot["arm"] == "candidate":
            snapshot["engine_metrics"] = re.sub(r'(external_kv_transfer"}) \S+', r"\1 0.0", snapshot["engine_metrics"])
            snapshot["lmcache_metrics"] = re.sub(
                r"(hit_l2_tokens_total{.*}) \S+", r"\1 0.0", snapshot["lmcache_metrics"]
            )
            snapshot["tier_read_bytes"] = 0

    assert judged_as_agreed(tmp_path / "sound")["verdict"] == "PASS"
    result = judged_as_agreed(tmp_path / "warm", snapshot=warm)
    assert (result["verdict"], result["blocks"]["valid"]) == ("INVALID", [])
    assert "tokens from external tier, 12285 to 16380 expected" in result["reasons"][0]


@pytest.mark.parametrize("every", [1, 2], ids=["each wave", "each request"])
def test_failures_that_nobody_agreed_to_stay_a_fail(tmp_path: Path, every: int) -> None:
    where = {"arm": "candidate", "prompt_index": 0} if every == 1 else {"arm": "candidate"}
    result = verdict.judge(Run(make_run(tmp_path, Truth(request=failing(**where), **NAMED))))
    assert (result["verdict"], result["blocks"]["invalid"], result["reasons"]) == ("FAIL", [], [])


def test_failures_of_the_candidate_count_though_every_arm_of_the_block_failed_alike(tmp_path: Path) -> None:
    """Whoever can make the other arms fail later in a block must not be able to take the candidate's failures back."""
    failed = {f"{arm}/c{step}/b03": arm for arm in ("recompute", "baseline", "candidate") for step in (2, 4)}
    told = [{"trial": name, "check": "errors", "whose": arm, "reason": "busy"} for name, arm in failed.items()]
    block = only({"block": 3}, put(breaches=told))
    result = verdict.judge(Run(make_run(tmp_path, Truth(blocks=6, request=failing(block=3, wave=1), block=block))))
    assert (result["verdict"], result["blocks"]["valid"]) == ("FAIL", [1, 2, 4, 5, 6])
