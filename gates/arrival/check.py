"""One thing that is checked on arrival: what was declared, and how to see what is there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from gates.arrival.host import Host
from gates.arrival.limits import Limit
from gates.nodata import NoData

PASS, FAIL, INVALID = "PASS", "FAIL", "INVALID"


@dataclass(frozen=True)
class Finding:
    """What was found, what that makes of the check, and the files that show it."""

    verdict: str
    found: str | None  # None: nothing could be seen
    reason: str
    raw: tuple[str, ...] = ()  # relative to the run
    value: float | None = None  # where it is a number, in the check's unit


@dataclass(frozen=True)
class Check:
    """One row of the verdict, known before anything is looked at."""

    id: str
    metric: str
    declared: str  # in words
    look: Callable[[Host], Finding] = field(repr=False)
    limit: Limit | None = None


@dataclass(frozen=True)
class Plan:
    """What of a bill of materials is checked, and what it does not declare."""

    checks: tuple[Check, ...]
    not_declared: tuple[tuple[str, str], ...] = ()  # (id, metric)


class Collector:
    """Gathers the checks of one family of declared things."""

    def __init__(self) -> None:
        self.checks: list[Check] = []
        self.not_declared: list[tuple[str, str]] = []

    def add(
        self, name: str, metric: str, declared: object, look: Callable[[Host], Finding], limit: Limit | None = None
    ) -> None:
        """Add a check; where nothing is declared (None), it is listed as that."""
        if declared is None:
            self.not_declared.append((f"{name}.{metric}", metric))
        else:
            self.checks.append(Check(f"{name}.{metric}", metric, str(declared), look, limit))

    def lacks(self, name: str, metric: str) -> None:
        """List something as not declared."""
        self.not_declared.append((name, metric))

    def plan(self) -> Plan:
        """Return what was gathered."""
        return Plan(tuple(self.checks), tuple(self.not_declared))


def unseen(reason: NoData | str, raw: Sequence[str] = ()) -> Finding:
    """Return the finding of what could not be seen: it proves nothing, either way."""
    told = reason.reason if isinstance(reason, NoData) else reason
    return Finding(INVALID, None, f"no data: {told}", tuple(dict.fromkeys(raw)))


def finding(faults: Sequence[str], found: str, fine: str, raw: Sequence[str], unknown: Sequence[str] = ()) -> Finding:
    """Return FAIL with the faults, else INVALID with what is not known, else PASS with `fine`."""
    files = tuple(dict.fromkeys(raw))
    if faults:
        return Finding(FAIL, found, "; ".join(faults), files)
    if unknown:
        return Finding(INVALID, found or None, "no data: " + "; ".join(unknown), files)
    return Finding(PASS, found, fine, files)


def same(what: str, declared: object, found: object, raw: Sequence[str]) -> Finding:
    """Return whether one value of `what` is the one declared; None is not known."""
    if found is None:
        return unseen(f"{what}: not told", raw)
    told = "as declared" if found == declared else f"{declared} was declared"
    return finding(
        [] if found == declared else [f"{what}: {found}, {told}"], str(found), f"{what}: {found}, {told}", raw
    )
