"""Every validity check: silent on a sound trial, and telling on the fault that it is for."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from gates import validity
from tests.looking import breaches
from tests.synthetic import make_run
from tests.synthetic_host import CHUNK_BYTES
from tests.synthetic_truth import Truth, only, put
from workloads.evidence import Run

Json = dict[str, Any]
FIRST = "candidate-c2-b01-w1-0"


@pytest.mark.parametrize("arm", ["recompute", "baseline", "candidate"])
def test_a_sound_trial_has_no_breach(tmp_path: Path, arm: str) -> None:
    assert breaches(tmp_path, arm) == []


def test_a_sound_run_has_no_breach(tmp_path: Path) -> None:
    assert validity.check_run(Run(make_run(tmp_path, Truth(blocks=2)))) == []


def rising(name: str, value: float, labels: str = "") -> Any:
    """A change that adds `value` to a counter in the snapshot after wave 1 of the candidate at step 2 and ever after."""
    started = {"on": False}

    def change(snapshot: Json) -> None:
        if snapshot["arm"] != "candidate":
            return
        started["on"] = started["on"] or (snapshot["wave"], snapshot["when"]) == (1, "after")
        if started["on"]:
            key = "lmcache_metrics" if name.startswith("lmcache") else "engine_metrics"
            snapshot[key] = re.sub(
                rf"({re.escape(name)}{{[^}}]*{labels}[^}}]*}}) (\S+)",
                lambda m: f"{m[1]} {float(m[2]) + value}",
                snapshot[key],
            )

    return change


def dropping(name: str) -> Any:
    def change(snapshot: Json) -> None:
        for key in ("engine_metrics", "lmcache_metrics"):
            if snapshot[key]:
                snapshot[key] = "\n".join(line for line in snapshot[key].splitlines() if name not in line) + "\n"

    return change


SNAPSHOT_FAULTS: dict[str, tuple[Any, str, str, str]] = {
    "device cache": (rising("vllm:prompt_tokens_by_source_total", 256, "local_cache_hit"), "cold", "host", "256 tokens from device cache, 0 expected"),
    "DRAM": (rising("lmcache_mp_lookup_hit_l1_tokens_total", 256), "cold", "host", "256 tokens from DRAM"),
    "silent recompute": (rising("vllm:prompt_tokens_by_source_total", -8190, "external_kv_transfer"), "cold", "host", "0 tokens from external tier, 8190 expected"),
    "too much from the tier": (rising("vllm:prompt_tokens_by_source_total", 512, "external_kv_transfer"), "cold", "host", "8702 tokens from external tier"),
    "L2": (rising("lmcache_mp_lookup_hit_l2_tokens_total", -512), "cold", "host", "tokens from tier (L2), 8192 expected"),
    "requests of somebody else": (rising("vllm:e2e_request_latency_seconds_count", 1), "books", "host", "the engine booked 3 requests, the client 2"),
    "time of the books": (rising("vllm:e2e_request_latency_seconds_sum", 0.5), "books", "host", "s of requests, the client"),
    "time to first token": (rising("vllm:time_to_first_token_seconds_sum", 0.5), "books", "host", "s to first tokens, the client"),
    "first tokens": (rising("vllm:time_to_first_token_seconds_count", 1), "books", "host", "the engine booked 3 first tokens, the client 2"),
    "no first tokens": (dropping("time_to_first"), "books", "host", "vllm:time_to_first_token_seconds_sum is not among the metrics"),
    "first tokens reset": (rising("vllm:time_to_first_token_seconds_sum", -9), "books", "host", "it was reset"),
    "prompt tokens": (rising("vllm:prompt_tokens_total", 5), "books", "host", "prompt tokens"),
    "output tokens": (rising("vllm:generation_tokens_total", 5), "books", "host", "output tokens"),
    "no source counter": (dropping("by_source"), "cold", "host", "is not among the metrics"),
    "no L1 counter": (dropping("hit_l1"), "cold", "host", "is not among the metrics"),
    "no books": (dropping("e2e_request"), "books", "host", "is not among the metrics"),
    "page cache": (only({"arm": "candidate"}, put(tier_read_bytes=77)), "tier-bytes", "host", "0 bytes read from storage"),
    "bytes not told": (only({"arm": "candidate"}, put(tier_read_bytes=None)), "tier-bytes", "host", "no data on the bytes"),
    "counters of another kind of wave": (only({"arm": "candidate", "wave": 2, "when": "before"}, put(measured=False)), "counters", "harness", "the counters of wave 2 are marked as of another kind of wave"),
    "pending": (put(lmcache_pending=2), "cold", "host", "stores still pending"),
    "pending not told": (put(lmcache_pending=None), "cold", "host", "stores still pending"),
    "restarted": (only({"arm": "candidate", "wave": 3}, put(engine_pid_started=9)), "identity", "host", "was restarted"),
    "another process": (only({"arm": "candidate"}, put(lmcache_pid=7)), "identity", "host", "the lmcache process is (7, 16), (1203, 16) was started"),
    "gone": (only({"arm": "candidate", "when": "after"}, put(engine_pid_started=None, engine_metrics=None)), "identity", "candidate", "the engine process 1202 is gone"),
    "gone, though it answers": (only({"arm": "candidate", "wave": 3, "when": "before"}, put(engine_pid_started=None)), "identity", "harness", "no data on when the engine process 1202 was started, though it answers"),
    "not asked": (only({"arm": "candidate", "wave": 3}, put(engine_pid_started="EMFILE", engine_metrics=None)), "identity", "harness", "process 1202 was started, which could not be asked (EMFILE)"),
    "server gone": (only({"arm": "candidate", "when": "after"}, put(lmcache_pid_started=None, lmcache_metrics=None)), "identity", "candidate", "the lmcache process 1203 is gone"),
    "scrape failed": (only({"arm": "candidate", "wave": 2}, put(engine_metrics=None)), "readable", "harness", "could not be scraped"),
    "foreign text": (only({"arm": "candidate", "wave": 2}, put(engine_metrics="<html>\x00 1 2 3 4")), "readable", "harness", "not a metrics exposition"),
    "snapshot lost": (only({"arm": "candidate", "wave": 2, "when": "after"}, put(when="later")), "counters", "harness", "1+0 counter snapshots"),
    "bytes unbounded": (only({"arm": "candidate"}, lambda s: s.update(tier_read_bytes=-s["tier_read_bytes"])), "tier-bytes", "host", "bytes read from storage"),
    "start not told": (lambda s: s.update(engine_pid_started=4), "identity", "host", "was restarted"),
    "counter reset": (rising("vllm:generation_tokens_total", -100), "books", "host", "it was reset"),
    "clock step": (only({"arm": "candidate", "wave": 4, "when": "after"}, lambda s: s.update(realtime_ns=s["realtime_ns"] + 10**9)), "clock", "host", "the clock was stepped by 1000.0 ms"),
}  # fmt: skip


@pytest.mark.parametrize("name", SNAPSHOT_FAULTS)
def test_faults_in_the_counters(tmp_path: Path, name: str) -> None:
    change, check, whose, told = SNAPSHOT_FAULTS[name]
    found = breaches(tmp_path, snapshot=change)
    assert any((b.check, b.whose) == (check, whose) and told in b.reason for b in found), found


REQUEST_FAULTS: dict[str, tuple[Any, str, str, str]] = {
    "prompt length": (put(usage={"prompt_tokens": 5325, "completion_tokens": 8}), "lengths", "harness", "5325 prompt tokens, 4096 ordered"),
    "output length": (put(usage={"prompt_tokens": 4096, "completion_tokens": 3}), "lengths", "harness", "3 output tokens, 8 ordered"),
    "late": (lambda r: r.update(t_intended_ns=r["t_intended_ns"] - 10**9), "client-lag", "harness", "sent 1001 ms late"),
    "backwards": (lambda r: r.update(t_first_ns=r["t_sent_ns"] - 1), "clock", "harness", "not in this order"),
    "clock step": (lambda r: r.update(clock_offset_ns=r["clock_offset_ns"] + 10**7), "clock", "host", "stepped by 10.0 ms"),
    "failed": (put(status="failed", error="HTTP 503"), "errors", "candidate", "1 of 2 requests failed: HTTP 503"),
    "twice": (put(id="candidate-c2-b01-w1-1"), "requests", "harness", "recorded twice"),
    "same prompt": (put(prompt_index=1), "requests", "harness", "of different prompts expected"),
    "one after the other": (lambda r: r.update({k: r[k] + 10**6 for k in ("t_intended_ns", "t_sent_ns", "t_first_ns", "t_last_ns")}), "requests", "harness", "wave 1 was to be sent at 2 different moments, at one expected"),
    "of another trial": (put(trial="candidate/c2/b02"), "requests", "harness", "a record of trial candidate/c2/b02"),
    "other set": (put(prompt_set=1), "requests", "harness", "another prompt set"),
    "warm-up as measured": (put(measured=False), "requests", "harness", "marked as another kind"),
    "no usage": (put(usage=None), "lengths", "harness", "no data on its tokens"),
    "no time": (put(t_first_ns=None), "clock", "harness", "without all of its times"),
    "no whole time": (put(t_last_ns=1e300), "clock", "harness", "without all of its times"),
    "before the wave": (put(t_intended_ns=1, t_sent_ns=2), "clock", "harness", "not in this order"),
    "finish": (put(finish_reason="abort"), "lengths", "harness", "finished with 'abort', length or stop expected"),
    "another block's": (put(block=2), "requests", "harness", "a record of candidate, concurrency 2, block 2"),
    "another arm's": (put(arm="baseline"), "requests", "harness", "a record of baseline"),
    "foreign prompt": (put(prompt_seed=1), "requests", "harness", "not the one that the run's seed makes"),
    "field lost": (lambda r: r.pop("clock_offset_ns"), "readable", "harness", "lacks the field 'clock_offset_ns'"),
    "wrong kind": (put(clock_offset_ns="x"), "readable", "harness", "wrong kind"),
    "chunks not from 0": (lambda r: r["chunk_ns"].__setitem__(0, 1), "tokens", "harness", "chunk_ns goes from 1"),
    "chunks falling": (lambda r: r["chunk_ns"].__setitem__(3, 1), "tokens", "harness", "without falling expected"),
    "chunks not to the end": (lambda r: r["chunk_ns"].__setitem__(-1, 10**9), "tokens", "harness", "chunk_ns goes from 0 to 1000000000, from 0 to "),
    "chunk sizes lost": (lambda r: r["chunk_tokens"].pop(), "tokens", "harness", "8 chunk times and 7 chunk sizes"),
    "no chunk": (put(chunk_ns=[], chunk_tokens=[]), "tokens", "harness", "0 chunk times and 0 chunk sizes"),
    "empty chunk": (lambda r: r["chunk_tokens"].__setitem__(1, 0), "tokens", "harness", "chunk_tokens is no list of whole numbers from 1 on"),
    "chunk times of another kind": (put(chunk_ns="0"), "tokens", "harness", "chunk_ns is no list"),
    "a truth value as id": (lambda r: r["output_token_ids"].__setitem__(0, True), "tokens", "harness", "output_token_ids is no list"),
    "ids lost": (lambda r: r["output_token_ids"].pop(), "tokens", "harness", "7 token ids and chunks of 8 tokens, 8 are in its usage"),
    "chunks of more tokens": (lambda r: r["chunk_tokens"].__setitem__(1, 2), "tokens", "harness", "8 token ids and chunks of 9 tokens"),
    "error in success": (put(error="reset"), "status", "harness", "succeeded, but with the error 'reset'"),
    "odd status": (put(status="OK"), "status", "harness", "its status is 'OK'"),
    "failed without error": (put(status="failed", error=None), "status", "harness", "failed, but no error is told"),
    "failed with a blank error": (put(status="failed", error=" "), "status", "harness", "failed, but no error is told"),
    "another clock": (put(clock="kernel"), "clock", "harness", "different clocks: kernel and user"),
    "unknown clock": (put(clock="sundial"), "clock", "harness", "stamped by the clock 'sundial'"),
    "no clock": (put(clock=None), "clock", "harness", "stamped by the clock None"),
    "shared read not told": (put(first_shared_read=None), "shared-read", "harness", "no data on whether"),
    "lost": (put(wave=9), "requests", "harness", "wave 1 has 1 requests"),
}  # fmt: skip


@pytest.mark.parametrize("name", REQUEST_FAULTS)
def test_faults_in_the_requests(tmp_path: Path, name: str) -> None:
    change, check, whose, told = REQUEST_FAULTS[name]
    found = breaches(tmp_path, request=only({"id": FIRST}, change))
    assert any((b.check, b.whose) == (check, whose) and told in b.reason for b in found), found


@pytest.mark.parametrize("ids", [[], [5] * 8], ids=["ids not told", "ids told"])
def test_chunks_of_several_tokens_are_sound_and_counted_only_where_ids_tell(tmp_path: Path, ids: list[int]) -> None:
    def merge(record: Json) -> None:
        record["output_token_ids"] = ids
        record["chunk_ns"] = [record["chunk_ns"][0], record["chunk_ns"][-1]]
        record["chunk_tokens"] = [1, 7] if ids else [1, 1]

    assert breaches(tmp_path, request=merge) == []


def test_a_client_that_tells_a_ttft_of_a_nanosecond_is_caught_by_the_engines_books(tmp_path: Path) -> None:
    def hurry(record: Json) -> None:
        record["t_first_ns"] = record["t_sent_ns"] + 1
        length_ns = record["t_last_ns"] - record["t_first_ns"]
        record["chunk_ns"] = [length_ns * i // 7 for i in range(8)]

    found = breaches(tmp_path, request=only({"arm": "candidate"}, hurry))
    assert {(b.check, b.whose) for b in found} == {("books", "host")}
    assert "s to first tokens, the client 0.000 s" in found[0].reason


def sharing(share: int, step: int = 2) -> Any:
    """A change by which the first `share` measured requests of the candidate at `step` shared the first token's read."""
    left = {"n": share}

    def change(record: Json) -> None:
        if (record["arm"], record["step"], record["measured"]) == ("candidate", step, True) and left["n"]:
            left["n"] -= 1
            record["first_shared_read"] = True

    return change


def test_one_shared_first_read_may_be_and_two_in_ten_may_not(tmp_path: Path) -> None:
    assert breaches(tmp_path / "a", request=sharing(1)) == []
    (found,) = breaches(tmp_path / "b", request=sharing(2))
    assert (found.check, found.whose) == ("shared-read", "harness")
    assert "2 of 10 first tokens shared their read with a later event, 5 % allowed" in found.reason
    wider = lambda f: f["scenario"]["workload"].update(first_shared_read_budget=0.2)  # noqa: E731
    assert breaches(tmp_path / "c", request=sharing(2), run=wider) == []


def test_a_failed_request_needs_no_clock(tmp_path: Path) -> None:
    fail = put(
        status="failed", error="refused", t_sent_ns=None, t_first_ns=None, t_last_ns=None, usage=None, clock=None
    )
    found = breaches(tmp_path, request=only({"id": FIRST}, fail))
    assert {b.check for b in found} == {"errors"}


def losing_two_chunks() -> Any:
    """What a tier shows that lost two chunks before wave 1: fewer tokens, fewer bytes read, fewer files."""
    shorten = [
        rising("vllm:prompt_tokens_by_source_total", -512, "external_kv_transfer"),
        rising("lmcache_mp_lookup_hit_l2_tokens_total", -512),
    ]
    lost = {"on": False}

    def change(snapshot: Json) -> None:
        for one in shorten:
            one(snapshot)
        if snapshot["arm"] == "candidate":
            if (snapshot["wave"], snapshot["when"]) == (1, "before"):
                snapshot["tier_files"] -= 2
            lost["on"] = lost["on"] or (snapshot["wave"], snapshot["when"]) == (1, "after")
            if lost["on"]:
                snapshot["tier_read_bytes"] -= 2 * CHUNK_BYTES  # and the engine has stored them again by now

    return change


def test_chunks_lost_after_a_confirmed_store_are_the_tiers_own_and_nobody_elses(tmp_path: Path) -> None:
    found = breaches(tmp_path, snapshot=losing_two_chunks())
    assert [(b.check, b.whose) for b in found] == [("chunks-lost", "candidate")], found
    assert "126 chunk files are left of 128" in found[0].reason


def test_a_trial_that_was_not_carried_through(tmp_path: Path) -> None:
    (found,) = breaches(tmp_path, trial=put(completed=False, error="engine died"))
    assert (found.check, found.whose) == ("complete", "harness")


@pytest.mark.parametrize("arm", ["candidate", "baseline"])
def test_a_trial_that_its_own_arm_broke_off(tmp_path: Path, arm: str) -> None:
    incident = {"whose": arm, "kind": "engine-died", "message": "killed", "arm": arm, "step": 2, "block": 1}
    (found,) = breaches(tmp_path, arm, trial=put(completed=False, error="engine died"), incidents=[incident])
    assert (found.check, found.whose) == ("complete", arm)


TRIAL_FAULTS: dict[str, tuple[Any, str, str]] = {
    "waves left out": (put(waves_measured=4), "complete", "1+4 waves, 1+5 ordered"),
    "warm-up left out": (put(waves_discarded=0), "complete", "0+5 waves, 1+5 ordered"),
    "of another block": (put(block=2), "requests", "its trial.json is of candidate, 2, block 2"),
    "unknown start": (put(start=2), "identity", "start 2 of the arm is recorded 0 times"),
    "unknown arm": (put(arm="x"), "readable", "lacks the field 'x'"),
    "no number": (put(step=[]), "readable", "wrong kind"),
}


@pytest.mark.parametrize("name", TRIAL_FAULTS)
def test_faults_in_trial_json(tmp_path: Path, name: str) -> None:
    change, check, told = TRIAL_FAULTS[name]
    found = breaches(tmp_path, trial=only({"arm": "candidate", "step": 2}, change))
    assert any((b.check, b.whose) == (check, "harness") and told in b.reason for b in found), found


RUN_FAULTS: dict[str, tuple[Json, str, str]] = {
    "engine argument": ({"start": only({"arm": "candidate"}, lambda f: f["engine"]["argv"].append("--fast"))}, "arms-equal", "engine of candidate"),
    "environment": ({"start": only({"arm": "baseline"}, lambda f: f["engine"]["env"].update(X="1"))}, "arms-equal", "in its env"),
    "cache size": ({"start": only({"arm": "candidate"}, put(engine_info={"block_size": "64"}))}, "arms-equal", "in its info"),
    "LMCache argument": ({"start": only({"arm": "candidate"}, lambda f: f["lmcache"]["argv"].append("--l1-size-gb=9"))}, "arms-equal", "LMCache of candidate"),
    "LMCache configuration": ({"start": only({"arm": "candidate"}, put(lmcache_config={"mp": {"port": 1, "chunk_size": 512}}))}, "arms-equal", "in its config"),
    "never stored": ({"populate": only({"arm": "candidate", "prompt_set": 1}, put(prompt_set=7))}, "populate", "prompt set 1 was never stored"),
    "half stored": ({"populate": only({"arm": "candidate"}, lambda p: p["files"].popitem())}, "populate", "63 whole chunks stored, 64 expected"),
    "short files": ({"populate": only({"arm": "baseline"}, lambda p: p["files"].update(dict.fromkeys(p["files"], 7)))}, "populate", "0 whole chunks stored"),
    "unconfirmed": ({"populate": put(confirmed=False)}, "populate", "whole chunks stored"),
    "other prompts": ({"request": only({"arm": "candidate", "prompt_index": 0}, put(prompt_seed=1))}, "same-prompts", "different prompts"),
    "stored twice": ({"populate": only({"arm": "candidate", "prompt_set": 1}, put(prompt_set=0))}, "populate", "prompt set 0 was stored 2 times"),
    "another tier": ({"start": only({"arm": "candidate"}, put(tier={"name": "local-nvme", "path": "/"}))}, "as-configured", "candidate, start 1 has the tier 'local-nvme', 'fx100' is the scenario's"),
    "a tier under recompute": ({"start": only({"arm": "recompute"}, put(tier={"name": "fx100", "path": "/"}))}, "as-configured", "None is the scenario's"),
    "connector": ({"start": only({"arm": "candidate"}, lambda f: f["engine"]["argv"].__setitem__(-1, '{"kv_connector": "Y"}'))}, "arms-equal", "in its connector"),
    "a block left out": ({"block": put(order=["baseline"])}, "blocks", "candidate/c2/b01 was measured, but belongs to no recorded block"),
    "populate of another shape": ({"populate": lambda p: p.pop("files")}, "readable", "lacks the field 'files'"),
    "mixed clocks": ({"request": only({"arm": "candidate", "step": 2}, put(clock="kernel"))}, "clock", "concurrency 2: candidate/c2/b01 was stamped by the clock 'kernel', but "),
    "a lag budget of text": ({"run": lambda f: f["scenario"]["workload"].update(client_lag_budget_s="0.2")}, "described", "run.json: scenario.workload.client_lag_budget_s: Input should be a valid number"),
    "a negative lag budget": ({"run": lambda f: f["scenario"]["workload"].update(client_lag_budget_s=-1.0)}, "described", "should be greater than 0"),
    "a lag budget without limit": ({"run": lambda f: f["scenario"]["workload"].update(client_lag_budget_s=1e9)}, "described", "less than or equal to 5"),
    "a mismatch budget without limit": ({"run": lambda f: f["scenario"]["workload"].update(first_token_mismatch_budget=1.0)}, "described", "first_token_mismatch_budget: Input should be less than or equal to 0.1"),
    "a budget left out": ({"run": lambda f: f["scenario"]["workload"].pop("client_lag_budget_s")}, "described", "client_lag_budget_s: Field required"),
    "a deadline without limit": ({"run": lambda f: f["scenario"]["workload"].update(request_deadline_s=1e6)}, "described", "less than or equal to 86400"),
    "a scenario of no schema": ({"run": lambda f: f["scenario"].update(schema=True)}, "described", "run.json: scenario.schema: Value error, input should be 1"),
    "two tiers in one folder": ({"run": lambda f: f["site"]["tiers"]["fx100"].update(path="./local-nvme")}, "described", "tiers.fx100.path: './local-nvme' is the path of 'local-nvme', too"),
    "a site of another shape": ({"run": lambda f: f.update(site={**f["site"], "engine": None})}, "described", "run.json: site.engine"),
    "a seed of text": ({"run": lambda f: f.update(seed="1")}, "described", "seed: '1' is no whole number"),
    "interrupted": ({"incidents": [{"whose": "harness", "kind": "interrupted", "message": "signal"}]}, "incident:interrupted", "signal"),
}  # fmt: skip


@pytest.mark.parametrize("name", RUN_FAULTS)
def test_faults_of_the_run(tmp_path: Path, name: str) -> None:
    truth, check, told = RUN_FAULTS[name]
    found = validity.check_run(Run(make_run(tmp_path, Truth(blocks=1, **truth))))
    assert any(b.check == check and told in b.reason for b in found), found
    assert all(b.whose != "candidate" for b in found)


def test_a_candidate_that_does_not_start_is_to_blame_only_where_the_baseline_did(tmp_path: Path) -> None:
    failed = [{"whose": "candidate", "kind": "start-failed", "message": "hang"}]
    path = make_run(tmp_path, Truth(blocks=1, incidents=failed))
    assert [b.whose for b in validity.check_run(Run(path))] == ["candidate"]
    (path / "raw/baseline/start-01/start.json").unlink()
    assert [b.whose for b in validity.check_run(Run(path)) if b.check == "incident:start-failed"] == ["host"]


def test_a_process_that_is_gone_after_it_was_once_not_told_is_gone(tmp_path: Path) -> None:
    def snapshot(record: Json) -> None:
        if record["arm"] == "candidate" and record["wave"] >= 3:
            record.update(
                engine_pid_started=None, engine_metrics=record["engine_metrics"] if record["wave"] == 3 else None
            )

    told = [(b.whose, b.reason) for b in breaches(tmp_path, snapshot=snapshot) if b.check == "identity"]
    assert told == [
        ("harness", "wave 3, before: no data on when the engine process 1202 was started, though it answers"),
        ("candidate", "wave 4, before: the engine process 1202 is gone"),
    ]
