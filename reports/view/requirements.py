"""verdict.json's criteria as typed rows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from gates import criteria as criteria_files
from reports.loose import Json, dig, items, mapping, numeric, whole
from reports.text import flatten, leaf
from reports.view.model import VERDICTS, Estimate, Requirement
from reports.words import ReportError
from scenarios.load import ConfigError

NOT_DECLARED = "not-declared"
Known = Mapping[str, criteria_files.Criterion]


def requirements(path: Path, judged: Json) -> tuple[tuple[Requirement, ...], tuple[Requirement, ...]]:
    """Return the judged rows and those of what the site does not declare. Raises ReportError: a row without a verdict.

    Something is not declared where verdict.json lists it under `not_declared`, or a row carries that flag.
    """
    known = known_criteria(path)
    rows: list[Requirement] = []
    apart: list[Requirement] = []
    for row in items(judged.get("criteria")):
        undeclared = isinstance(row, dict) and (
            NOT_DECLARED in items(row.get("flags")) or row.get("verdict") in ("NOT_DECLARED", "not declared")
        )
        if not undeclared and (not isinstance(row, dict) or row.get("verdict") not in VERDICTS):
            raise ReportError(f"{path / 'verdict.json'}: a criterion without one of {', '.join(VERDICTS)}")
        (apart if undeclared else rows).append(_requirement(row, known))
    for entry in items(judged.get("not_declared")):
        row = entry if isinstance(entry, dict) else {"id": leaf(entry)}
        apart.append(_requirement({"verdict": "", **row}, known))
    return tuple(rows), tuple(apart)


def known_criteria(path: Path) -> Known:
    """Return the sealed criteria by id; none where they cannot be read (the judge has said so in the verdict)."""
    try:
        return {criterion.id: criterion for criterion in criteria_files.load(path / "criteria.toml").criterion}
    except (ConfigError, AttributeError):
        return {}


def _requirement(row: Json, known: Known) -> Requirement:
    criterion = known.get(str(row.get("id")))
    return Requirement(
        id=str(row.get("id", "")),
        metric=str(row.get("metric") or ""),
        arms=tuple(str(arm) for arm in items(row.get("arms"))),
        step=whole(row.get("step")),
        limit=numeric(row.get("limit")),
        unit=str(row.get("unit") or ""),
        estimate=_estimate(row.get("estimate")),
        verdict=str(row.get("verdict") or ""),
        reason=str(row.get("reason") or ""),
        flags=tuple(str(flag) for flag in items(row.get("flags"))),
        operator=str(row.get("operator") or ""),
        tolerance=numeric(row.get("tolerance")) or 0.0,
        compare=str(getattr(criterion, "compare", "") or row.get("compare") or ""),
        band_high=numeric(getattr(criterion, "band_high", None)),
        declared=_told(row, "declared"),
        found=_told(row, "found"),
        raw=_raw(row.get("raw")),
    )


def _told(row: Json, key: str) -> str | None:
    """Return what stands under `key` in one line of text; None where it is absent or null."""
    value = row.get(key)
    if value is None:
        return None
    if isinstance(value, (dict, list)):
        parts = flatten(value)
        return "; ".join(f"{name}: {text}" if name else text for name, text in parts.items())
    return leaf(value)


def _raw(value: object) -> tuple[str, ...]:
    """Return the names of the raw outputs that a row rests on."""
    if isinstance(value, dict):
        return tuple(f"{key}: {text}" if key else text for key, text in flatten(value).items())
    if isinstance(value, list):
        return tuple(str(mapping(entry).get("file") or leaf(entry)) if entry else leaf(entry) for entry in value)
    return () if value is None else (leaf(value),)


def _estimate(value: object) -> Estimate | None:
    point = numeric(dig(value, "point"))
    if point is None:
        return None
    return Estimate(
        point=point,
        low=numeric(dig(value, "low")),
        high=numeric(dig(value, "high")),
        confidence=numeric(dig(value, "confidence")),
        n=whole(dig(value, "n")),
        method=str(dig(value, "method") or ""),
    )
