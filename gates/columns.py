"""A wave of requests column by column, where nothing about any of them is out of the ordinary.

Arrays say of millions of records in one step what each of them would say alone. Where a single record is odd in the
least there are no columns: then those who look at the records one by one say what is wrong with it.
"""

from __future__ import annotations

import operator
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

Json = dict[str, Any]
Whole = NDArray[np.int64]

EXACT_BELOW = 2**53  # floats carry every whole number up to it
SUMS_BELOW = 2**63  # what an int64 holds

_fields = operator.itemgetter(
    "id", "run", "arm", "trial", "finish_reason", "clock", "status", "error", "measured", "first_shared_read",
    "step", "block", "prompt_set", "prompt_index", "prompt_seed", "prompt_tokens_expected", "output_tokens_expected",
    "t_intended_ns", "t_sent_ns", "t_first_ns", "t_last_ns", "clock_offset_ns",
    "usage", "chunk_ns", "chunk_tokens", "output_token_ids", "first_logprobs",
)  # fmt: skip
_usage = operator.itemgetter("prompt_tokens", "completion_tokens")


@dataclass(frozen=True)
class Columns:
    """n successful requests. Their chunks, token ids and usage are of one piece, as `check_tokens` wants them."""

    ids: tuple[str, ...]
    runs: frozenset[str]
    arms: frozenset[str]
    trials: frozenset[str]
    finish_reasons: frozenset[str]
    clocks: frozenset[str]
    measured: frozenset[bool]
    shared_reads: int  # first tokens that came in one read with a later event
    steps: frozenset[int]
    blocks: frozenset[int]
    prompt_sets: frozenset[int]
    prompt_indices: Whole  # (n,)
    prompt_seeds: Whole  # (n,)
    prompt_tokens_expected: frozenset[int]
    output_tokens_expected: frozenset[int]
    intended_ns: Whole  # (n,)
    sent_ns: Whole  # (n,)
    first_ns: Whole  # (n,)
    last_ns: Whole  # (n,)
    least_offset_ns: int
    most_offset_ns: int
    prompt_tokens: Whole  # (n,) by usage
    output_tokens: Whole  # (n,) by usage
    gaps_ns: Whole  # (m,) between two chunks of one answer
    gap_tokens: Whole  # (m,) of the chunk after the gap
    first_chunk_tokens: Whole  # (n,)
    first_token_ids: Whole  # (n,)
    first_logprobs: tuple[dict[str, float], ...]  # as recorded; may be empty, and name anything


def columns_of(requests: Sequence[Json]) -> Columns | None:
    """Return the columns of a wave's records; None where one of them failed, or is of another shape in any field."""
    try:
        return _columns(requests)
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


class _OddError(ValueError):
    pass


def _columns(requests: Sequence[Json]) -> Columns:
    (
        ids, runs, arms, trials, finish_reasons, clocks, statuses, errors, measured, shared_reads,
        steps, blocks, prompt_sets, indices, seeds, prompt_expected, output_expected,
        intended, sent, first, last, offsets,
        usage, chunk_ns, chunk_tokens, token_ids, likely,
    ) = zip(*map(_fields, requests), strict=True)  # fmt: skip
    _all_of(str, ids, runs, arms, trials, finish_reasons, clocks)
    _all_of(bool, measured, shared_reads)
    _all_of(dict, usage, likely)
    _all_of(list, chunk_ns, chunk_tokens, token_ids)
    _require(set(statuses) == {"ok"} and set(errors) == {None})
    prompt_tokens, output_tokens = zip(*map(_usage, usage), strict=True)
    whole = (
        steps, blocks, prompt_sets, indices, seeds, prompt_expected, output_expected,
        intended, sent, first, last, prompt_tokens, output_tokens,
    )  # fmt: skip
    _all_of(int, offsets, *whole)
    table = np.array(whole, dtype=np.int64)
    most = max(-int(table.min()), int(table.max()))
    _require(most < EXACT_BELOW and most * len(requests) < SUMS_BELOW)
    *_, intended_ns, sent_ns, first_ns, last_ns, prompts, outputs = table
    gaps_ns, gap_tokens, first_chunks, first_ids = _tokens(
        chunk_ns, chunk_tokens, token_ids, last_ns - first_ns, outputs
    )
    return Columns(
        ids=ids,
        runs=frozenset(runs),
        arms=frozenset(arms),
        trials=frozenset(trials),
        finish_reasons=frozenset(finish_reasons),
        clocks=frozenset(clocks),
        measured=frozenset(measured),
        shared_reads=sum(shared_reads),
        steps=frozenset(steps),
        blocks=frozenset(blocks),
        prompt_sets=frozenset(prompt_sets),
        prompt_indices=table[3],
        prompt_seeds=table[4],
        prompt_tokens_expected=frozenset(prompt_expected),
        output_tokens_expected=frozenset(output_expected),
        intended_ns=intended_ns,
        sent_ns=sent_ns,
        first_ns=first_ns,
        last_ns=last_ns,
        least_offset_ns=min(offsets),
        most_offset_ns=max(offsets),
        prompt_tokens=prompts,
        output_tokens=outputs,
        gaps_ns=gaps_ns,
        gap_tokens=gap_tokens,
        first_chunk_tokens=first_chunks,
        first_token_ids=first_ids,
        first_logprobs=likely,
    )


def _tokens(
    chunk_ns: Sequence[list[int]], chunk_tokens: Sequence[list[int]], token_ids: Sequence[list[int]],
    lengths_ns: Whole, outputs: Whole,
) -> tuple[Whole, Whole, Whole, Whole]:  # fmt: skip
    """Return gaps, the tokens after each, the first chunks' tokens and first ids, if all are of one piece."""
    lengths = np.array(list(map(len, chunk_ns)), dtype=np.int64)
    _require(lengths.min() > 0 and lengths.tolist() == list(map(len, chunk_tokens)))
    times, counts, ids = (_joined(lists) for lists in (chunk_ns, chunk_tokens, token_ids))
    # As many tokens of at least one each as there are ids: then no count, and no sum of them, is out of bounds.
    _require(counts.min() >= 1 and counts.max() <= len(ids) and ids.min() >= 0)
    ends: Whole = np.cumsum(lengths)
    begins = ends - lengths
    _require(np.array_equal(np.add.reduceat(counts, begins), outputs))
    _require(list(map(len, token_ids)) == outputs.tolist())
    _require(not times[begins].any() and np.array_equal(times[ends - 1], lengths_ns))
    gaps = np.diff(times)
    within = np.ones(len(gaps), dtype=bool)
    within[begins[1:] - 1] = False
    gaps_ns: Whole = gaps[within]
    _require(not gaps_ns.size or gaps_ns.min() >= 0)
    first_ids = ids[np.cumsum(outputs) - outputs]
    return gaps_ns, counts[1:][within], counts[begins], first_ids


def _joined(lists: Sequence[list[int]]) -> Whole:
    """Return the lists' values one after the other. Raises TypeError where one of them is no whole number."""
    flat = list(chain.from_iterable(lists))
    joined: Whole = np.frombuffer(array("q", flat), dtype=np.int64)
    # An array takes a truth value for a number, but nothing else; only a 0 or a 1 can be one.
    small = np.flatnonzero((joined == 0) | (joined == 1))
    suspects = flat if len(small) == len(flat) else map(flat.__getitem__, small.tolist())
    _require(set(map(type, suspects)) <= {int})
    return joined


def _all_of(kind: type, *columns: Sequence[Any]) -> None:
    """Raise unless all values are of this very type: a truth value is a whole number elsewhere, not here."""
    for column in columns:
        _require(set(map(type, column)) == {kind})


def _require(sound: bool | np.bool_) -> None:
    if not sound:
        raise _OddError
