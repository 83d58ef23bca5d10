"""Prometheus exposition text to samples. What is not there is NoData, never 0."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client.parser import text_string_to_metric_families

from gates.nodata import NoData


class ReadError(ValueError):
    """One line: the text is no exposition."""


class Exposition:
    """The samples of one scrape."""

    def __init__(self, text: str) -> None:
        """Read the text. Raises ReadError."""
        self._samples: dict[str, list[tuple[dict[str, str], float]]] = {}
        try:
            for family in text_string_to_metric_families(text):
                for sample in family.samples:
                    self._samples.setdefault(sample.name, []).append((dict(sample.labels), float(sample.value)))
        except Exception as error:  # noqa: BLE001  # the parser raises whatever its inside raises on foreign text
            raise ReadError(f"not a metrics exposition: {' '.join(str(error).split())[:120]}") from None

    def total(self, name: str, labels: Mapping[str, str] | None = None) -> float | NoData:
        """Return the sum over all samples of that name that carry these labels; NoData if there is none.

        A NaN or an infinity is no count either.
        """
        wanted = labels or {}
        values = [
            value
            for found, value in self._samples.get(name, [])
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


def _braces(labels: Mapping[str, str]) -> str:
    return "{" + ",".join(f"{k}={v}" for k, v in labels.items()) + "}" if labels else ""
