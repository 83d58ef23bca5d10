"""A trial's records as far as they go: one that was broken off may have none yet, or a last line that was cut.

Records are written when a wave has ended. Of a trial that was carried through every line must be there, and whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from workloads.evidence import EvidenceError, Trial

Json = dict[str, Any]


def broken_off(trial: Trial) -> bool:
    """Return whether the trial's own record says that it was not carried through; no block with such a one counts."""
    return trial.facts.get("completed") is False


def requests_of(trial: Trial) -> Iterator[Json]:
    """Yield the request records in the order in which they ended. Raises EvidenceError on a bad line."""
    return _as_far_as_they_go(trial, trial.path / "requests.jsonl", trial.requests())


def counters_of(trial: Trial) -> Iterator[Json]:
    """Yield the counter snapshots in order. Raises EvidenceError on a bad line."""
    return _as_far_as_they_go(trial, trial.path / "counters.jsonl", trial.counters())


def _as_far_as_they_go(trial: Trial, file: Path, records: Iterator[Json]) -> Iterator[Json]:
    if not broken_off(trial):
        yield from records
        return
    if not file.exists():
        return
    read = 0
    try:
        for record in records:
            yield record
            read += 1
    except EvidenceError:
        # Whole lines that are wrong were not cut off by anybody.
        if read < _whole_lines(file):
            raise


def _whole_lines(file: Path) -> int:
    try:
        with file.open("rb") as f:
            return sum(line.endswith(b"\n") for line in f)
    except OSError as error:
        raise EvidenceError(f"{file}: {error.strerror or error}") from None
