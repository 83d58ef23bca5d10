"""Prometheus exposition text to samples. What is not there is NoData, never 0."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from itertools import count

from prometheus_client.parser import text_string_to_metric_families

from gates.nodata import NoData

Series = dict[str, list[tuple[dict[str, str], int]]]  # by name: labels, and the place of the value

# What is surely read as by `float`, and is no infinity by its length.
_NUMBER = re.compile(r"[+-]?[0-9]{1,40}(\.[0-9]{0,40})?([eE][+-]?[0-9]{1,2})?|NaN|[+-]?Inf")
NUMBERED_FROM = (0, 1_000_000)


class ReadError(ValueError):
    """One line: the text is no exposition."""


class Exposition:
    """The samples of one scrape."""

    def __init__(self, text: str) -> None:
        """Read the text. Raises ReadError."""
        self._series, self._values = _again(text) or _read(text)

    def total(self, name: str, labels: Mapping[str, str] | None = None) -> float | NoData:
        """Return the sum over all samples of that name that carry these labels; NoData if there is none.

        A NaN or an infinity is no count either.
        """
        wanted = labels or {}
        values = [
            self._values[place]
            for found, place in self._series.get(name, ())
            if all(found.get(key) == text for key, text in wanted.items())
        ]
        if not values:
            return NoData(f"{name}{_braces(wanted)} is not among the metrics")
        total = sum(values)
        if not abs(total) < float("inf"):
            return NoData(f"{name}{_braces(wanted)} is {total}")
        return total


def delta(before: Exposition, after: Exposition, name: str, labels: Mapping[str, str] | None = None) -> float | NoData:
    """Return how much a counter rose between two scrapes of one process.

    A counter that appears in between began at 0, as counters do. One that fell was reset: NoData.
    """
    end = after.total(name, labels)
    if isinstance(end, NoData):
        return end
    begin = before.total(name, labels)
    if isinstance(begin, NoData):
        begin = 0.0
    if end < begin:
        return NoData(f"{name}{_braces(labels or {})} fell from {begin:g} to {end:g}: it was reset")
    return end - begin


def _read(text: str) -> tuple[Series, list[float]]:
    """Return what the text holds. Raises ReadError."""
    series: Series = {}
    values: list[float] = []
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                series.setdefault(sample.name, []).append((dict(sample.labels), len(values)))
                values.append(float(sample.value))
    except Exception as error:  # noqa: BLE001  # the parser raises whatever its inside raises on foreign text
        raise ReadError(f"not a metrics exposition: {' '.join(str(error).split())[:120]}") from None
    return series, values


def _again(text: str) -> tuple[Series, list[float]] | None:
    """Return what `_read` would, of a text that differs from an earlier one in its values alone; None for any other.

    Thousands of scrapes of one process do, and reading each of them afresh takes longer than all else in judging.
    """
    heads: list[str] = []
    values: list[str] = []
    for line in text.split("\n"):
        head, _, value = line.rpartition(" ")
        if head and head[0] != "#":
            heads.append(head)
            values.append(value)
        else:
            heads.append(line)
    series = _series_of(tuple(heads))
    if series is None or len(values) != sum(map(len, series.values())) or not all(map(_NUMBER.fullmatch, values)):
        return None
    return series, list(map(float, values))


@lru_cache(maxsize=16)  # the processes of an arm, with a series more or less
def _series_of(heads: tuple[str, ...]) -> Series | None:
    """Return the series of a text whose lines begin so, each with the place of its value among them; None if unclear.

    The parser itself says so, of texts that have places for values. It is asked twice, since a time stamp would leave
    before it a value that never changes.
    """
    found: list[Series] = []
    for begin in NUMBERED_FROM:
        numbers = count(begin)
        lines = (head if not head or head[0] == "#" else f"{head} {next(numbers)}" for head in heads)
        try:
            series, values = _read("\n".join(lines))
        except ReadError:
            return None
        places = [value - begin for value in values]
        if sorted(places) != list(range(next(numbers) - begin)):
            return None
        found.append({name: [(labels, int(places[at])) for labels, at in each] for name, each in series.items()})
    return found[0] if all(each == found[0] for each in found) else None


def _braces(labels: Mapping[str, str]) -> str:
    return "{" + ",".join(f"{k}={v}" for k, v in labels.items()) + "}" if labels else ""
