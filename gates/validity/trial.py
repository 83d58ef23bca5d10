"""Can a trial be trusted? What one pass over its records told, and what needs to know what the run must resolve."""

from __future__ import annotations

from gates.nodata import NoData
from gates.validity.books import book_floor_s, check_times
from gates.validity.breach import MISSHAPEN, Breach
from gates.validity.calibration import resolved_s
from gates.validity.digest import digest
from gates.validity.records import name_of
from workloads.evidence import Run, Trial


def book_floor_of(run: Run) -> float:
    """Return the `floor_s` of a run's trials, by what is recorded of it so far. Raises nothing for bad evidence."""
    try:
        smallest_s = resolved_s(run)
    except (*MISSHAPEN, OSError):
        return book_floor_s(None)  # told of the calibration, which has the same need
    return book_floor_s(None if isinstance(smallest_s, NoData) else smallest_s)


def check_trial(run: Run, trial: Trial, floor_s: float | None = None) -> list[Breach]:
    """Return every breach of one trial; an empty list means that it can be trusted. Raises nothing for bad evidence.

    `floor_s`: what `book_floor_of` returns, where it is known already.
    """
    name = name_of(trial)
    read = digest(run, trial)
    found = list(read.breaches)

    def tell(check: str, whose: str, reason: str) -> None:
        found.append(Breach(check, whose, reason, name))

    check_times(read.times, book_floor_of(run) if floor_s is None else floor_s, tell)
    return found
