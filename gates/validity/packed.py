"""The beginnings of millions of answers, some eighty bytes each, and which of them lie near the believed ones.

What `answers.distance` says of two readings is said here of arrays of them, to the last bit.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gates.columns import Columns
from gates.validity.answers import Reading

Json = dict[str, Any]
Floats = NDArray[np.float64]
Whole = NDArray[np.int64]

NAMED_MAX = 64  # tokens that one record may name; the client asks for five
ROWS_A_STEP = 50_000  # so that what is in between stays small
_NUMBERS = frozenset((float, int))
NOBODY = -1  # stands where no token is named


@dataclass(frozen=True)
class Packed:
    """The readings of one trial, in the order of its records."""

    trial: str
    seeds: Whole  # (n,) of the prompts
    tokens: Whole  # (n,) the first one's id
    places: Whole  # (n,) of the records in requests.jsonl, from 0
    names: tuple[str, ...]  # of the tokens that are named anywhere
    named: NDArray[np.int32]  # (n, k) into `names`; NOBODY
    values: Floats  # (n, k) log-probability of each, nats; NaN where nobody is named
    without_ids: int  # successful requests whose tokens were not told
    first_without_ids: str | None

    def reading(self, row: int) -> Reading:
        """Return one of them."""
        pairs = zip(self.named[row].tolist(), self.values[row].tolist(), strict=True)
        likely = {self.names[name]: value for name, value in pairs if name != NOBODY}
        return Reading(self.trial, int(self.places[row]), int(self.seeds[row]), int(self.tokens[row]), likely)


def _log_probabilities(likely: Iterable[object]) -> Floats:
    """Return them as floats. Raises TypeError for what is no number, ValueError or OverflowError for no finite one."""
    told = list(likely)
    if not set(map(type, told)) <= _NUMBERS:
        raise TypeError("first_logprobs")
    values = np.array(told, dtype=np.float64)
    if not np.isfinite(values).all():
        raise ValueError("first_logprobs")
    return values


class _Numbers(dict[str, int]):
    """Numbers names as they are asked for."""

    def __missing__(self, name: str) -> int:
        self[name] = number = len(self)
        return number


class Packer:
    """Takes records one by one."""

    def __init__(self, trial: str) -> None:
        self._trial = trial
        self._seeds, self._tokens, self._places, self._ends = array("q"), array("q"), array("q"), array("q", [0])
        self._named, self._values = array("i"), array("d")
        self._names = _Numbers()
        self._taken = self._without_ids = 0
        self._first_without_ids: str | None = None

    def take(self, requests: Iterable[Json], columns: Columns | None) -> None:
        """Take the records of a wave. Raises what is in MISSHAPEN for one of another shape."""
        if columns is not None and self._take_columns(columns):
            return
        for r in requests:
            self._taken += 1
            if r["status"] != "ok":
                continue
            if not r["output_token_ids"]:
                self._without_ids += 1
                self._first_without_ids = self._first_without_ids or str(r["id"])
                continue
            likely = r["first_logprobs"] or {}
            if len(likely) > NAMED_MAX:
                raise ValueError(f"{len(likely)} log-probabilities")
            self._values.frombytes(_log_probabilities(likely.values()).tobytes())
            self._named.extend(map(self._names.__getitem__, likely))
            self._ends.append(len(self._values))
            self._seeds.append(int(r["prompt_seed"]))
            self._tokens.append(int(r["output_token_ids"][0]))
            self._places.append(self._taken - 1)

    def _take_columns(self, wave: Columns) -> bool:
        """Return whether nothing about them is odd; else none is taken, and the records say which one is."""
        lengths = list(map(len, wave.first_logprobs))
        if max(lengths) > NAMED_MAX:
            return False
        try:
            values = _log_probabilities(chain.from_iterable(map(dict.values, wave.first_logprobs)))
        except (TypeError, ValueError, OverflowError):
            return False
        self._named.extend(map(self._names.__getitem__, chain.from_iterable(wave.first_logprobs)))
        self._ends.frombytes((len(self._values) + np.cumsum(lengths)).tobytes())
        self._values.frombytes(values.tobytes())
        self._seeds.frombytes(wave.prompt_seeds.tobytes())
        self._tokens.frombytes(wave.first_token_ids.tobytes())
        self._places.extend(range(self._taken, self._taken + len(lengths)))
        self._taken += len(lengths)
        return True

    def packed(self) -> Packed:
        """Return what was taken."""
        ends = np.asarray(self._ends, dtype=np.int64)
        lengths = np.diff(ends)
        width = int(lengths.max(initial=0))
        there = np.arange(width) < lengths[:, None]
        named = np.full(there.shape, NOBODY, dtype=np.int32)
        values = np.full(there.shape, np.nan)
        named[there], values[there] = self._named, self._values
        seeds, tokens, places = (np.asarray(a, dtype=np.int64) for a in (self._seeds, self._tokens, self._places))
        return Packed(
            self._trial, seeds, tokens, places, tuple(self._names), named, values,
            self._without_ids, self._first_without_ids,
        )  # fmt: skip


class Reference:
    """The readings that are believed, by prompt."""

    def __init__(self, readings: Mapping[int, Sequence[Reading]]) -> None:
        self._seeds = np.asarray(sorted(readings), dtype=np.int64)
        # What a prompt's readings have in common need be looked at once.
        likely = [
            list({tuple(sorted(reading.likely.items())) for reading in readings[seed]}) for seed in self._seeds.tolist()
        ]
        self._names: dict[str, int] = {}
        depth = max(map(len, likely), default=0)
        width = max((len(one) for each in likely for one in each), default=0)
        self._named = np.full((len(likely), depth, width), NOBODY, dtype=np.int64)
        self._values = np.full((len(likely), depth, width), np.nan)
        self._counts = np.asarray([len(each) for each in likely], dtype=np.int64)
        for seed, each in enumerate(likely):
            for number, one in enumerate(each):
                for column, (name, value) in enumerate(one):
                    self._named[seed, number, column] = self._names.setdefault(name, len(self._names))
                    self._values[seed, number, column] = value

    def known(self, packed: Packed) -> NDArray[np.bool_]:
        """Return for each reading whether its prompt is among the believed ones. (n,)"""
        return np.isin(packed.seeds, self._seeds)

    def far(self, packed: Packed, rows: Whole, allowed: float) -> NDArray[np.bool_]:
        """Return for each of `rows`, whose prompts are known, whether no believed reading is `allowed` nats near."""
        # A name that no believed reading has gets a number of its own, which no believed one has either.
        lut = [self._names.get(name, len(self._names) + number) for number, name in enumerate(packed.names)]
        names = np.asarray([*lut, NOBODY], dtype=np.int64)  # the last is found by NOBODY, too
        far = np.ones(len(rows), dtype=bool)
        for begin, end in pairwise([*range(0, len(rows), ROWS_A_STEP), len(rows)]):
            mine = rows[begin:end]
            seeds = np.searchsorted(self._seeds, packed.seeds[mine])
            open_ = np.arange(len(mine))  # not yet found near one
            for number in range(self._named.shape[1]):
                open_ = open_[number < self._counts[seeds[open_]]]
                if not len(open_):
                    break
                distances = _distances(
                    names[packed.named[mine[open_]]], packed.values[mine[open_]],
                    self._named[seeds[open_], number], self._values[seeds[open_], number],
                )  # fmt: skip
                near = distances <= allowed
                far[begin + open_[near]] = False
                open_ = open_[~near]
        return far


def _distances(mine: Whole, mine_values: Floats, other: Whole, other_values: Floats) -> Floats:
    """Return `answers.distance` of each row of two arrays of readings, (n, k) and (n, j)."""
    far: Floats = np.zeros(len(mine))
    blank = np.zeros(len(mine), dtype=bool)
    for names, values, others, other_vals in (
        (mine, mine_values, other, other_values),
        (other, other_values, mine, mine_values),
    ):
        blank |= (names == NOBODY).all(axis=1)
        least_other = np.fmin.reduce(other_vals, axis=1, initial=np.inf)
        for column in range(names.shape[1]):
            named = names[:, column] != NOBODY
            equal = (others == names[:, column, None]) & named[:, None]
            matched = equal.any(axis=1)
            theirs = np.where(equal, other_vals, 0.0).sum(axis=1)
            value = values[:, column]
            apart = np.where(matched, np.abs(value - theirs), value - least_other)
            far = np.where(named, np.maximum(far, apart), far)
    return np.where(blank, np.inf, far)
