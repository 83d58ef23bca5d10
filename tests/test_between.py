"""Between waves, between trials, before the first one: nothing may happen that is not recorded."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from gates import metrics, validity, verdict
from gates.validity import books, calibration
from gates.validity.trial import book_floor_of
from tests.looking import breaches_of
from tests.synthetic import make_run
from tests.synthetic_truth import Truth, only, put
from tests.test_validity import rising
from workloads.evidence import Run

Json = dict[str, Any]
COUNTERS = {
    "vllm:e2e_request_latency_seconds_count": "requests",
    "vllm:time_to_first_token_seconds_count": "first tokens",
    "vllm:prompt_tokens_total": "prompt tokens",
    "vllm:generation_tokens_total": "output tokens",
}


def of_run(path: Path, check: str) -> list[str]:
    return [b.reason for b in validity.check_run(Run(path)) if b.check == check]


def of_trial(path: Path, name: str, check: str) -> list[str]:
    return [b.reason for b in breaches_of(path, name) if b.check == check]


def once(number: int, change: Any) -> Any:
    """A change from the candidate's snapshot of that number (from 0) on, as counters that rose stay risen."""
    seen = {"n": -1}

    def limited(snapshot: Json) -> None:
        if snapshot["arm"] == "candidate":
            seen["n"] += 1
            if seen["n"] >= number:
                change(snapshot)

    return limited


def risen(name: str, by: float) -> Any:
    change = rising(name, by)

    def always(snapshot: Json) -> None:
        change({**snapshot, "wave": 1, "when": "after"})  # which switches it on
        change(snapshot)

    return always


@pytest.mark.parametrize("name", COUNTERS)
def test_somebody_elses_requests_between_two_waves_are_told(tmp_path: Path, name: str) -> None:
    path = make_run(tmp_path, Truth(blocks=1, snapshot=once(4, risen(name, 3))))
    found = of_trial(path, "candidate/c2/b01", "between")
    assert found == [f"between the waves 1 and 2 the engine counted 3 {COUNTERS[name]} of nobody's"]
    assert of_run(path, "between") == []


def test_counters_that_fell_between_two_waves_are_told(tmp_path: Path) -> None:
    path = make_run(tmp_path, Truth(blocks=1, snapshot=once(4, risen("vllm:generation_tokens_total", -3))))
    (found,) = of_trial(path, "candidate/c2/b01", "between")
    assert "it was reset" in found


def test_somebody_elses_requests_between_two_trials_are_told(tmp_path: Path) -> None:
    change = once(12, risen("vllm:e2e_request_latency_seconds_count", 1))  # 6 waves of 2 snapshots are one trial
    path = make_run(tmp_path, Truth(blocks=1, snapshot=change))
    told = ["between candidate/c2/b01 and candidate/c4/b01 the engine counted 1 requests of nobody's"]
    assert of_run(path, "between") == told
    assert all(of_trial(path, f"candidate/c{step}/b01", "between") == [] for step in (2, 4))


def test_requests_between_two_blocks_of_one_start_are_told(tmp_path: Path) -> None:
    change = once(24, risen("vllm:prompt_tokens_total", 4096))
    path = make_run(tmp_path, Truth(blocks=2, snapshot=change))
    assert of_run(path, "between") == [
        "between candidate/c4/b01 and candidate/c2/b02 the engine counted 4096 prompt tokens of nobody's"
    ]


def test_a_new_start_counts_anew_and_needles_are_counted_for_what_they_are(tmp_path: Path) -> None:
    """In a lab recompute is asked for needles between its first two trials, and every block has other processes."""
    path = make_run(tmp_path / "a", Truth(blocks=2, rehearsal=False))
    assert of_run(path, "between") == []

    def uncounted(facts: Json) -> None:
        facts["after"] = facts["before"]

    fewer = make_run(tmp_path / "b", Truth(blocks=1, rehearsal=False, needles=only({"arm": "recompute"}, uncounted)))
    (found,) = of_run(fewer, "between")
    untold = only({"arm": "recompute"}, lambda facts: facts["after"].update(engine_metrics=None))
    silent = make_run(tmp_path / "c", Truth(blocks=1, rehearsal=False, needles=untold))
    assert of_run(silent, "between") == [
        "between recompute's needles and recompute/c4/b01: no data on what the engine counted"
    ]
    assert found.startswith("between recompute's needles and recompute/c4/b01 the engine counted 4 requests")


def early(by_s: float) -> Any:
    """A client that tells every first token of the candidate earlier than it was."""

    def change(record: Json) -> None:
        record["t_first_ns"] -= int(by_s * 1e9)
        length_ns = record["t_last_ns"] - record["t_first_ns"]
        record["chunk_ns"] = [length_ns * i // 7 for i in range(8)]

    return only({"arm": "candidate"}, change)


FAST = {"recompute": 0.09, "baseline": 0.03, "candidate": 0.03}


def test_the_books_are_as_fine_as_what_must_be_resolved(tmp_path: Path) -> None:
    """Both arms at 30 ms, and a client 18 ms early: within 20 ms a request, but 60 % of what is compared."""
    honest = make_run(tmp_path / "honest", Truth(ttft_s=FAST, decode_s=0.02))
    assert of_trial(honest, "candidate/c2/b01", "books") == []
    path = make_run(tmp_path / "early", Truth(ttft_s=FAST, decode_s=0.02, request=early(0.018)))
    assert book_floor_of(Run(path)) < 0.003
    found = of_trial(path, "candidate/c2/b01", "books")
    assert any("s to first tokens, the client" in line for line in found), found
    assert verdict.judge(Run(path))["verdict"] == "INVALID"


def test_the_floor_of_the_books_is_the_agreed_one_where_differences_are_large(tmp_path: Path) -> None:
    run = Run(make_run(tmp_path, Truth(blocks=1)))
    resolved = calibration.resolved_s(run)
    assert isinstance(resolved, float) and resolved > 0.2
    assert book_floor_of(run) == books.BOOK_FLOOR_S_PER_REQUEST == books.book_floor_s(None)
    assert books.book_floor_s(0.04) == pytest.approx(0.01)
    trial = run.trial("candidate", 2, 1)
    assert trial is not None and isinstance(metrics.ttft_p50_s(trial), float)


POPULATE_FAULTS: dict[str, tuple[Any, str]] = {
    "no requests": (put(requests=[]), "0 requests of 4 prompts, 4 expected"),
    "one too few": (lambda p: p["requests"].pop(), "3 requests of 4 prompts, 4 expected"),
    "one prompt": (put(prompts=1), "4 requests of 1 prompts, 4 expected"),
    "another arm's": (lambda p: p["requests"][2].update(arm="baseline"), "request 2: arm 'baseline', not 'candidate'"),
    "another prompt": (lambda p: p["requests"][1].update(prompt_seed=5), "request 1: prompt_seed 5, not "),
    "another id": (lambda p: p["requests"][1].update(id="x"), "request 1: id 'x', not 'candidate-populate-s"),
    "failed": (lambda p: p["requests"][0].update(status="failed", error="reset"), "request 0: status 'failed', not 'ok'"),
    "shorter": (lambda p: p["requests"][0]["usage"].update(prompt_tokens=16), "request 0: usage "),
    "without a time": (lambda p: p["requests"][0].update(t_last_ns=None), "request 0 was not sent and answered before the first trial"),
    "after the first trial": (lambda p: p["requests"][3].update(t_last_ns=10**15), "request 3 was not sent and answered before the first trial"),
    "fewer chunks": (put(expected_chunks=1), "1 chunks expected, 64 is right"),
    "of no start": (put(start=4), "a record of arm 'candidate', start 4"),
    "the same files": (lambda p: p.update(files={f"m@0@{i:04d}.data": size for i, size in enumerate(p["files"].values())}), "64 chunk files belong to both prompt sets 0 and 1"),
}  # fmt: skip


@pytest.mark.parametrize("name", POPULATE_FAULTS)
def test_faults_in_what_was_stored_are_told(tmp_path: Path, name: str) -> None:
    change, reason = POPULATE_FAULTS[name]
    path = make_run(tmp_path, Truth(blocks=1, populate=only({"arm": "candidate"}, change)))
    found = of_run(path, "populate")
    assert any(reason in line and line.startswith("arm 'candidate': ") for line in found), found


def stepped(from_block: int, by_ns: int) -> Any:
    def change(record: Json) -> None:
        if record.get("block", 0) >= from_block:
            record["clock_offset_ns"] += by_ns

    return change


def test_a_clock_that_was_stepped_between_two_blocks_is_told(tmp_path: Path) -> None:
    later = {"on": False}

    def snapshot(record: Json) -> None:
        record["realtime_ns"] += 8_000_000 if later["on"] else 0

    def block(facts: Json) -> None:
        later["on"] = facts["block"] >= 1

    path = make_run(tmp_path, Truth(blocks=2, snapshot=snapshot, block=block, request=stepped(2, 8_000_000)))
    (found,) = of_run(path, "clock")
    assert found.startswith("the clock was stepped by 8.0 ms between ")
    assert all(of_trial(path, f"candidate/c2/b0{number}", "clock") == [] for number in (1, 2))


def test_steps_that_add_up_are_told(tmp_path: Path) -> None:
    seen = {"block": 0}

    def snapshot(record: Json) -> None:
        record["realtime_ns"] += 3_000_000 * seen["block"]

    def block(facts: Json) -> None:
        seen["block"] = facts["block"]

    path = make_run(tmp_path, Truth(blocks=3, snapshot=snapshot, block=block))
    (found,) = of_run(path, "clock")
    assert "stepped by 6.0 ms" in found


DESCRIBED = {
    "software": "run.json: software: says nothing",
    "host": "run.json: host: says nothing",
    "model": "run.json: model.files: empty, though the model is generated",
}


@pytest.mark.parametrize("key", DESCRIBED)
def test_a_run_that_does_not_say_what_was_measured_is_told(tmp_path: Path, key: str) -> None:
    empty: Json = {"name": "kvgate-toy", "files": {}} if key == "model" else {}
    path = make_run(tmp_path, Truth(blocks=1, run=lambda facts: facts.update({key: empty})))
    assert any(DESCRIBED[key] in line for line in of_run(path, "described"))


def test_blocks_that_do_not_vary_were_not_measured(tmp_path: Path) -> None:
    result = verdict.judge(Run(make_run(tmp_path, Truth(noise=0.0))))
    assert result["verdict"] == "INVALID"
    (reason,) = {row["reason"] for row in result["criteria"] if row["id"] == "ttft-p50-reduction" and row["step"] == 2}
    assert reason == "candidate: ttft_p50_s is the same in 5 blocks to the last digit: that was not measured"


def test_ratios_that_do_not_vary_were_not_measured(tmp_path: Path) -> None:
    """Each arm's times differ from block to block, but by the very same factor."""
    values = (1.2, 1.21, 1.19, 1.23, 1.18)
    ttft = {("baseline", block): value for block, value in enumerate(values, start=1)}
    ttft |= {("candidate", block): value / 2 for block, value in enumerate(values, start=1)}
    result = verdict.judge(Run(make_run(tmp_path, Truth(noise=0.0, ttft_in_s=ttft))))
    (row,) = [row for row in result["criteria"] if (row["id"], row["step"]) == ("ttft-p50-reduction", 2)]
    assert (row["verdict"], row["estimate"]) == ("INVALID", None)
    assert row["reason"].startswith("the blocks' ratios agree to ")


def already(name: str, value: float, arm: str = "candidate") -> Any:
    """A change by which every start of an arm has counted so much more before its first wave, and ever after."""

    def change(snapshot: Json) -> None:
        if snapshot["arm"] == arm:
            snapshot["engine_metrics"] = re.sub(
                rf"(?m)^({re.escape(name)}{{[^}}]*}}) (\S+)$",
                lambda found: f"{found[1]} {float(found[2]) + value}",
                snapshot["engine_metrics"],
            )

    return change


@pytest.mark.parametrize("lab", [True, False], ids=["exclusive", "resident"])
@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("vllm:e2e_request_latency_seconds_count", "requests"),
        ("vllm:time_to_first_token_seconds_count", "first tokens"),
        ("vllm:prompt_tokens_total", "prompt tokens"),
        ("vllm:generation_tokens_total", "output tokens"),
    ],
)
def test_what_a_start_was_asked_before_its_first_wave_is_told(tmp_path: Path, lab: bool, name: str, told: str) -> None:
    path = make_run(tmp_path, Truth(blocks=5, rehearsal=not lab, snapshot=already(name, 500)))
    assert verdict.judge(Run(path))["verdict"] == "INVALID"
    found = [line for line in of_run(path, "between") if "the first of its start" in line]
    assert len(found) == (5 if lab else 1)
    assert all(f"{told}, " in line and "are on record: the others are nobody's" in line for line in found)


def test_a_stored_prompt_without_usage_does_not_leave_the_check_out(tmp_path: Path) -> None:
    def untold(line: Json) -> None:
        if line["arm"] == "candidate":
            line["requests"][0]["usage"] = None

    path = make_run(tmp_path, Truth(snapshot=already("vllm:prompt_tokens_total", 500), populate=untold))
    assert verdict.judge(Run(path))["verdict"] == "INVALID"
    assert any("wrong kind" in line for line in of_run(path, "readable"))


def test_counters_that_are_not_there_before_the_first_wave_are_told(tmp_path: Path) -> None:
    def gone(snapshot: Json) -> None:
        if (snapshot["arm"], snapshot["wave"], snapshot["when"]) == ("candidate", 0, "before"):
            lines = snapshot["engine_metrics"].splitlines(keepends=True)
            snapshot["engine_metrics"] = "".join(line for line in lines if "generation_tokens_total" not in line)

    path = make_run(tmp_path, Truth(blocks=1, snapshot=gone))
    assert any(line.startswith("before candidate/c") and "there is no data" in line for line in of_run(path, "between"))
