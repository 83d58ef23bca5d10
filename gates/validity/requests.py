"""What a trial's request records must show: the prompts, the lengths, the times, the client's lag."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gates.columns import Columns
from gates.metrics import NS
from gates.validity.breach import HARNESS, Tell
from gates.validity.expected import Expected, Wave
from gates.validity.tokens import check_status, check_tokens
from workloads.prompts import PromptSpec

Json = dict[str, Any]

FINISHED = ("length", "stop")


def check_requests(wave: Wave, expected: Expected, tell: Tell) -> bool:
    """Tell what is wrong with the wave's requests; return whether those that succeeded are whole, so that they count.

    A failed request is its arm's: the candidate's is judged by a criterion, any other makes the trial INVALID.
    """
    measured = wave.number >= expected.waves_discarded
    if wave.before["measured"] is not measured or wave.after["measured"] is not measured:
        tell("counters", HARNESS, f"the counters of wave {wave.number} are marked as of another kind of wave")
    if wave.columns is not None and _all_as_ordered(wave, wave.columns, expected):
        return True
    # One after the other the same medium answers each of them sooner, so that arms would not compare.
    if (moments := len({r["t_intended_ns"] for r in wave.requests})) > 1:
        told = f"wave {wave.number} was to be sent at {moments} different moments, at one expected"
        tell("requests", HARNESS, told)
    failed = [r for r in wave.requests if r["status"] != "ok"]
    if failed:
        told = f"{len(failed)} of {len(wave.requests)} requests failed: {failed[0]['error']}"
        tell("errors", expected.arm, f"wave {wave.number}: {told}")
    for r in wave.requests:
        _belongs(r, wave, expected, tell)
        check_status(r, tell)
    whole = [_is_whole(r, wave, expected, tell) for r in wave.requests if r["status"] == "ok"]
    return all(whole)


def _all_as_ordered(wave: Wave, found: Columns, expected: Expected) -> bool:
    """Return whether nothing is to be told of any of the wave's requests, nor of one alone."""
    begin, end = wave.before["t_ns"], wave.after["t_ns"]
    return bool(
        found.arms == {expected.arm}
        and found.trials == {expected.name}
        and found.steps == {expected.step}
        and found.blocks == {expected.block}
        and found.measured == {wave.number >= expected.waves_discarded}
        and found.prompt_sets == {expected.prompt_set}
        and found.finish_reasons <= {*FINISHED}
        and found.prompt_tokens_expected == {expected.prompt_tokens}
        and found.output_tokens_expected == {expected.output_tokens}
        and (found.prompt_tokens == expected.prompt_tokens).all()
        and (found.output_tokens == expected.output_tokens).all()
        and np.array_equal(found.prompt_seeds, _seeds(expected)[found.prompt_indices])
        and type(begin) is type(end) is int
        and begin <= found.intended_ns.min() == found.intended_ns.max() <= found.sent_ns.min()
        and (found.sent_ns <= found.first_ns).all()
        and (found.first_ns <= found.last_ns).all()
        and found.last_ns.max() <= end
        and ((found.sent_ns - found.intended_ns) * NS <= expected.lag_budget_s).all()
    )


@functools.lru_cache(maxsize=8)
def _seeds(expected: Expected) -> NDArray[np.int64]:
    """Return the seeds of the trial's prompts by their indices, of which a whole wave has each. (step,)"""
    return np.asarray(
        [_seed(expected.seed, expected.prompt_set, index, expected.prompt_tokens) for index in range(expected.step)],
        dtype=np.int64,
    )


def _is_whole(r: Json, wave: Wave, expected: Expected, tell: Tell) -> bool:
    whole = _lengths(r, expected, tell) & _times(r, wave, expected, tell)
    if whole:
        check_tokens(r, tell)
    return whole


def _belongs(r: Json, wave: Wave, expected: Expected, tell: Tell) -> None:
    """The record is of this trial, of this kind of wave, and of the prompt that the run's seed makes."""
    if (r["arm"], r["step"], r["block"]) != (expected.arm, expected.step, expected.block):
        tell("requests", HARNESS, f"{r['id']}: a record of {r['arm']}, concurrency {r['step']}, block {r['block']}")
    if r["trial"] != expected.name:
        tell("requests", HARNESS, f"{r['id']}: a record of trial {r['trial']}")
    if r["measured"] is not (wave.number >= expected.waves_discarded) or r["prompt_set"] != expected.prompt_set:
        tell("requests", HARNESS, f"{r['id']} is marked as another kind of wave, or is of another prompt set")
    if r["prompt_seed"] != _seed(expected.seed, expected.prompt_set, r["prompt_index"], expected.prompt_tokens):
        tell("requests", HARNESS, f"{r['id']}: its prompt is not the one that the run's seed makes")


@functools.lru_cache(maxsize=8192)  # a prompt is asked again and again
def _seed(seed: int, prompt_set: int, prompt_index: int, tokens: int) -> int:
    spec = PromptSpec(
        seed=seed,
        prompt_set=prompt_set,
        prompt_index=prompt_index,
        tokens=tokens,
        vocabulary_tokens=1,  # no part of the prompt's seed
    )
    return spec.prompt_seed()


def _lengths(r: Json, expected: Expected, tell: Tell) -> bool:
    usage = r["usage"]
    if not isinstance(usage, dict):
        tell("lengths", HARNESS, f"{r['id']}: succeeded without usage: no data on its tokens")
        return False
    for what, found, recorded, ordered in (
        ("prompt", usage["prompt_tokens"], r["prompt_tokens_expected"], expected.prompt_tokens),
        ("output", usage["completion_tokens"], r["output_tokens_expected"], expected.output_tokens),
    ):
        if found != ordered or recorded != ordered:
            tell("lengths", HARNESS, f"{r['id']}: {found} {what} tokens, {ordered} ordered")
    if r["finish_reason"] not in FINISHED:
        tell("lengths", HARNESS, f"{r['id']}: finished with {r['finish_reason']!r}, {' or '.join(FINISHED)} expected")
    return True


def _times(r: Json, wave: Wave, expected: Expected, tell: Tell) -> bool:
    # Inside the snapshots, too: counters from around another wave would prove nothing about this one.
    begin, end = wave.before["t_ns"], wave.after["t_ns"]
    intended, sent, first, last = r["t_intended_ns"], r["t_sent_ns"], r["t_first_ns"], r["t_last_ns"]
    if {type(begin), type(intended), type(sent), type(first), type(last), type(end)} != {int}:
        tell("clock", HARNESS, f"{r['id']}: succeeded without all of its times")
        return False
    if not begin <= intended <= sent <= first <= last <= end:
        told = "counters before, intended, sent, first, last and counters after are not in this order"
        tell("clock", HARNESS, f"{r['id']}: {told}")
    lag_s = (sent - intended) * NS
    if lag_s > expected.lag_budget_s:
        told = f"sent {lag_s * 1e3:.0f} ms late, {expected.lag_budget_s * 1e3:.0f} ms allowed"
        tell("client-lag", HARNESS, f"{r['id']}: {told}")
    return True
