"""The rows of the first page's table: requirements in words, numbers with the digits that their intervals support."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from reports.text import decimals, number, plain
from reports.view import Estimate, Requirement
from reports.words import Words

# Units of verdict.json: shares of one are shown in percent, numbers of things without a unit.
PERCENT = frozenset({"share"})
COUNTS = frozenset({"requests", "events"})
OPERATORS = {">=": "≥\u00a0", "<=": "≤\u00a0"}


@dataclass(frozen=True)
class Row:
    """One requirement at one step, in text."""

    name: str
    id: str
    step: str
    limit: str
    relaxed: str
    measured: str
    interval: str
    n: str
    verdict: str
    reason: str
    flags: tuple[str, ...]


def measured_rows(requirements: Iterable[Requirement], t: Words) -> list[Row]:
    """Return the table's rows in the order of verdict.json."""
    return [_row(requirement, t) for requirement in requirements]


def requirement_name(requirement: Requirement, t: Words) -> str:
    """Return the requirement in words, or its id where it is newer than the strings."""
    return t.either(f"criterion.{requirement.id}", requirement.id)


def utc(stamp: str) -> str:
    """Return an ISO time as "2026-11-30 05:30:12 UTC"; what is no time as it is."""
    try:
        moment = datetime.fromisoformat(stamp)
    except ValueError:
        return stamp
    if moment.tzinfo is None:
        return stamp
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def scale_of(unit: str) -> float:
    """Return what a value of verdict.json is multiplied by to be shown."""
    return 100.0 if unit in PERCENT else 1.0


def _row(requirement: Requirement, t: Words) -> Row:
    estimate = requirement.estimate
    return Row(
        name=requirement_name(requirement, t),
        id=requirement.id,
        step=t("all.steps") if requirement.step is None else str(requirement.step),
        limit=_limit(requirement, t),
        relaxed=_relaxed(requirement, t),
        measured=t("all.no_data") if estimate is None else _point(estimate, requirement),
        interval="" if estimate is None else _interval(estimate, requirement),
        n=t("all.none") if estimate is None or estimate.n is None else str(estimate.n),
        verdict=requirement.verdict,
        reason=requirement.reason,
        flags=tuple(t.either(f"flag.{flag}", flag) for flag in requirement.flags),
    )


def _limit(requirement: Requirement, t: Words) -> str:
    if requirement.limit is None:
        return t("all.none")
    text = plain(requirement.limit * scale_of(requirement.unit))
    return OPERATORS.get(requirement.operator, "") + with_unit(text, requirement.unit)


def _relaxed(requirement: Requirement, t: Words) -> str:
    limit = requirement.relaxed_limit
    if limit is None:
        return ""
    return t("all.relaxed", limit=with_unit(plain(limit * scale_of(requirement.unit)), requirement.unit))


def with_unit(text: str, unit: str) -> str:
    """Return the number with its unit after a no-break space."""
    return text if not unit or unit in COUNTS else f"{text}\u00a0{'%' if unit in PERCENT else unit}"


def _digits(estimate: Estimate, unit: str) -> int:
    if unit in COUNTS:
        return 0
    scale = scale_of(unit)
    half = None if estimate.low is None or estimate.high is None else (estimate.high - estimate.low) / 2 * scale
    return decimals(estimate.point * scale, half)


def _shown(value: float, estimate: Estimate, requirement: Requirement) -> str:
    unit = requirement.unit
    return number(value * scale_of(unit), _digits(estimate, unit), signed=requirement.compare == "gain")


def _point(estimate: Estimate, requirement: Requirement) -> str:
    return with_unit(_shown(estimate.point, estimate, requirement), requirement.unit)


def _interval(estimate: Estimate, requirement: Requirement) -> str:
    if (estimate.low is None and estimate.high is None) or requirement.unit in COUNTS:
        return ""
    low = _shown(-math.inf if estimate.low is None else estimate.low, estimate, requirement)
    high = _shown(math.inf if estimate.high is None else estimate.high, estimate, requirement)
    confidence = "" if estimate.confidence is None else f" ({plain(estimate.confidence * 100)}\u00a0%)"
    return f"[{low}, {high}]{confidence}"
