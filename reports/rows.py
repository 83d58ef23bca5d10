"""Requirements in words, and numbers with the digits that their intervals support."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from reports.text import decimals, number, plain
from reports.view.model import Estimate, Requirement, worst
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


def measured_rows(requirements: Sequence[Requirement], t: Words) -> list[Row]:
    """Return the table's rows in the order of verdict.json."""
    return [row(requirement, t) for requirement in requirements]


def by_criterion(requirements: Sequence[Requirement]) -> list[list[Requirement]]:
    """Return the requirements grouped by id, each group with its steps in rising order."""
    groups: dict[str, list[Requirement]] = {}
    for requirement in requirements:
        groups.setdefault(requirement.id, []).append(requirement)
    return [sorted(group, key=lambda r: (r.step is None, r.step or 0)) for group in groups.values()]


def worst_of(group: Sequence[Requirement]) -> str:
    """Return the worst verdict of some rows."""
    return worst([requirement.verdict for requirement in group])


def requirement_name(requirement: Requirement, t: Words) -> str:
    """Return the requirement in words, or its id where it is newer than the strings.

    A fact of the bill of materials is named by the thing that it is of, as the site names it, and by what it is.
    """
    known = t.either(f"criterion.{requirement.id}", "")
    if known:
        return known
    thing, way, address = requirement.id.partition(".path.")
    if way:
        return t("fact_of", of=thing.partition(".")[2] or thing, fact=f"{t('fact.path')} {address}")
    of, _, last = requirement.id.rpartition(".")
    fact = t.either(f"fact.{requirement.metric}", t.either(f"fact.{last}", ""))
    if not fact or not of:
        return requirement.id
    return t("fact_of", of=of.partition(".")[2] or of, fact=fact)


def utc(stamp: str) -> str:
    """Return an ISO time as "2026-11-30 05:30:12 UTC"; what is no time as it is."""
    moment = _moment(stamp)
    return stamp if moment is None else moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def span(start: str, end: str | None, zone: ZoneInfo | None, unknown: str) -> str:
    """Return "2026-11-30 13:30:12 – 14:02:45 +08:00 (Asia/Shanghai)", in UTC without a zone; no times as they are."""
    first, last = _moment(start), _moment(end or "")
    if first is None:
        return f"{start or unknown} – {end or unknown}"
    first = first.astimezone(zone or UTC)
    name = "UTC" if zone is None else f"{first.strftime('%z')[:3]}:{first.strftime('%z')[3:5]} ({zone.key})"
    if last is None:
        return f"{first:%Y-%m-%d %H:%M:%S} – {unknown} {name}"
    last = last.astimezone(zone or UTC)
    form = "%H:%M:%S" if first.date() == last.date() else "%Y-%m-%d %H:%M:%S"
    return f"{first:%Y-%m-%d %H:%M:%S} – {last.strftime(form)} {name}"


def scale_of(unit: str) -> float:
    """Return what a value of verdict.json is multiplied by to be shown."""
    return 100.0 if unit in PERCENT else 1.0


def row(requirement: Requirement, t: Words) -> Row:
    """Return one requirement at one step as a report shows it."""
    # A number that cannot be trusted is none: whoever wants to see it has verdict.json.
    estimate = None if requirement.verdict == "INVALID" else requirement.estimate
    return Row(
        name=requirement_name(requirement, t),
        id=requirement.id,
        step=t("all.steps") if requirement.step is None else str(requirement.step),
        limit=limit_of(requirement, t),
        relaxed=_relaxed(requirement, t),
        measured=t("all.no_data") if estimate is None else _point(estimate, requirement),
        interval="" if estimate is None else _interval(estimate, requirement),
        n=t("all.none") if estimate is None or estimate.n is None else str(estimate.n),
        verdict=requirement.verdict,
        reason=requirement.reason,
        flags=tuple(t.either(f"flag.{flag}", flag) for flag in requirement.flags),
    )


def limit_of(requirement: Requirement, t: Words) -> str:
    """Return the limit with its operator and unit."""
    if requirement.limit is None:
        return t("all.none")
    text = plain(requirement.limit * scale_of(requirement.unit))
    return OPERATORS.get(requirement.operator, "") + with_unit(text, requirement.unit)


def with_unit(text: str, unit: str) -> str:
    """Return the number with its unit after a no-break space."""
    return text if not unit or unit in COUNTS else f"{text}\u00a0{'%' if unit in PERCENT else unit}"


def si_bytes(value: float) -> str:
    """Return a size with an SI prefix and at most three significant digits: 450000000000 -> "450 GB"."""
    for prefix in ("", "k", "M", "G", "T", "P"):
        if abs(value) < 1000 or prefix == "P":
            return f"{plain(float(f'{value:.3g}'))}\u00a0{prefix}B"
        value /= 1000
    return plain(value)


def _moment(stamp: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(stamp)
    except ValueError:
        return None
    return None if moment.tzinfo is None else moment


def _relaxed(requirement: Requirement, t: Words) -> str:
    limit = requirement.relaxed_limit
    if limit is None:
        return ""
    return t("all.relaxed", limit=with_unit(plain(limit * scale_of(requirement.unit)), requirement.unit))


def _digits(estimate: Estimate, unit: str) -> int:
    if unit in COUNTS:
        return 0
    scale = scale_of(unit)
    half = None if estimate.low is None or estimate.high is None else (estimate.high - estimate.low) / 2 * scale
    return decimals(estimate.point * scale, half)


def _shown(value: float, estimate: Estimate, requirement: Requirement) -> str:
    unit = requirement.unit
    signed = requirement.compare in ("gain", "increase")
    return number(value * scale_of(unit), _digits(estimate, unit), signed=signed)


def _point(estimate: Estimate, requirement: Requirement) -> str:
    return with_unit(_shown(estimate.point, estimate, requirement), requirement.unit)


def _interval(estimate: Estimate, requirement: Requirement) -> str:
    if (estimate.low is None and estimate.high is None) or requirement.unit in COUNTS:
        return ""
    low = _shown(-math.inf if estimate.low is None else estimate.low, estimate, requirement)
    high = _shown(math.inf if estimate.high is None else estimate.high, estimate, requirement)
    confidence = "" if estimate.confidence is None else f" ({estimate.confidence * 100:.4g}\u00a0%)"
    return f"[{low}, {high}]{confidence}"
