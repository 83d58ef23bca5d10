"""What a trial's request records must show: the prompts, the lengths, the times, the client's lag."""

from __future__ import annotations

from typing import Any

from gates.metrics import NS
from gates.validity.breach import HARNESS, HOST, Tell
from gates.validity.expected import Expected, Wave
from gates.validity.tokens import check_status, check_tokens
from workloads.prompts import PromptSpec

Json = dict[str, Any]

CLOCK_STEP_NS = 5_000_000  # more than the kernel slews in a trial, less than any step that matters
FINISHED = ("length", "stop")
STAMPS = ("t_intended_ns", "t_sent_ns", "t_first_ns", "t_last_ns")


def check_requests(wave: Wave, expected: Expected, tell: Tell) -> bool:
    """Tell what is wrong with the wave's requests; return whether all succeeded and are whole, so that books close.

    A failed request is its arm's: the candidate's is judged by a criterion, any other makes the trial INVALID.
    """
    failed = [r for r in wave.requests if r["status"] != "ok"]
    if failed:
        told = f"{len(failed)} of {len(wave.requests)} requests failed: {failed[0]['error']}"
        tell("errors", expected.arm, f"wave {wave.number}: {told}")
    for r in wave.requests:
        _belongs(r, wave, expected, tell)
        check_status(r, tell)
    whole = [_is_whole(r, wave, expected, tell) for r in wave.requests if r["status"] == "ok"]
    return not failed and all(whole)


def _is_whole(r: Json, wave: Wave, expected: Expected, tell: Tell) -> bool:
    whole = _lengths(r, expected, tell) & _times(r, wave, expected, tell)
    if whole:
        check_tokens(r, tell)
    return whole


def check_clock(requests: list[Json], snapshots: list[Json], tell: Tell) -> None:
    """Tell if CLOCK_REALTIME minus CLOCK_MONOTONIC changed within the trial: somebody stepped the clock."""
    offsets = [r["clock_offset_ns"] for r in requests] + [s["realtime_ns"] - s["t_ns"] for s in snapshots]
    spread = max(offsets, default=0) - min(offsets, default=0)
    if not spread <= CLOCK_STEP_NS:
        told = f"the clock was stepped by {spread * NS * 1e3:.1f} ms within the trial, {CLOCK_STEP_NS * NS * 1e3:g} ms"
        tell("clock", HOST, f"{told} allowed")


def _belongs(r: Json, wave: Wave, expected: Expected, tell: Tell) -> None:
    """The record is of this trial, of this kind of wave, and of the prompt that the run's seed makes."""
    if (r["arm"], r["step"], r["block"]) != (expected.arm, expected.step, expected.block):
        tell("requests", HARNESS, f"{r['id']}: a record of {r['arm']}, concurrency {r['step']}, block {r['block']}")
    if r["measured"] is not (wave.number >= expected.waves_discarded) or r["prompt_set"] != expected.prompt_set:
        tell("requests", HARNESS, f"{r['id']} is marked as another kind of wave, or is of another prompt set")
    spec = PromptSpec(
        seed=expected.seed,
        prompt_set=expected.prompt_set,
        prompt_index=r["prompt_index"],
        tokens=expected.prompt_tokens,
        vocabulary_tokens=1,  # no part of the prompt's seed
    )
    if r["prompt_seed"] != spec.prompt_seed():
        tell("requests", HARNESS, f"{r['id']}: its prompt is not the one that the run's seed makes")


def _lengths(r: Json, expected: Expected, tell: Tell) -> bool:
    usage = r["usage"]
    if not isinstance(usage, dict):
        tell("lengths", HARNESS, f"{r['id']}: succeeded without usage: no data on its tokens")
        return False
    for what, found, recorded, ordered in (
        ("prompt", usage["prompt_tokens"], r["prompt_tokens_expected"], expected.prompt_tokens),
        ("output", usage["completion_tokens"], r["output_tokens_expected"], expected.output_tokens),
    ):
        if (found, recorded) != (ordered, ordered):
            tell("lengths", HARNESS, f"{r['id']}: {found} {what} tokens, {ordered} ordered")
    if r["finish_reason"] not in FINISHED:
        tell("lengths", HARNESS, f"{r['id']}: finished with {r['finish_reason']!r}, {' or '.join(FINISHED)} expected")
    return True


def _times(r: Json, wave: Wave, expected: Expected, tell: Tell) -> bool:
    # Inside the snapshots, too: counters from around another wave would prove nothing about this one.
    stamps = [wave.before["t_ns"], *(r[name] for name in STAMPS), wave.after["t_ns"]]
    if any(type(stamp) is not int for stamp in stamps):
        tell("clock", HARNESS, f"{r['id']}: succeeded without all of its times")
        return False
    if sorted(stamps) != stamps:
        told = "counters before, intended, sent, first, last and counters after are not in this order"
        tell("clock", HARNESS, f"{r['id']}: {told}")
    lag_s = (r["t_sent_ns"] - r["t_intended_ns"]) * NS
    if lag_s > expected.lag_budget_s:
        told = f"sent {lag_s * 1e3:.0f} ms late, {expected.lag_budget_s * 1e3:.0f} ms allowed"
        tell("client-lag", HARNESS, f"{r['id']}: {told}")
    return True
