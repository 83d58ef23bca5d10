"""The figures that are published for the product, as data with their sources. They are shown beside what was measured
and judge nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from reports.loose import dig
from reports.text import leaf
from reports.view.model import ReportView, Requirement
from scenarios.load import load_toml
from scenarios.model import PositiveInt, Strict

FILE = Path(__file__).resolve().parent / "published.toml"


class Figure(Strict):
    """One published figure: a share or a time, at one step or as a range over several."""

    id: str
    run: str  # the publisher's own name for it
    what: str
    stated: str  # as printed
    criterion: str | None = None  # of ours that measures the same
    model: str | None = None  # a word of the model's name
    step: PositiveInt | None = None  # None: the source does not name it, or it is a range over several
    low: float | None = None  # the figure in the criterion's unit
    high: float | None = None
    quality: Literal["stated", "derived", "inferred"]
    source: str
    note: str = ""


class Published(Strict):
    """published.toml."""

    schema_: Annotated[Literal[1], Field(alias="schema")]
    platform: str
    figure: Annotated[tuple[Figure, ...], Field(strict=False)]


def load() -> Published:
    """Return the published figures. Raises ConfigError."""
    return load_toml(FILE, Published).value


def comparable(figure: Figure, view: ReportView) -> list[Requirement]:
    """Return the rows of this run that measure what the figure states; none where scenario or step do not fit.

    A rehearsal fits nothing: its tiers and its model are stand-ins.
    """
    if figure.criterion is None or view.rehearsal or view.imported or not view.trusted:
        return []
    model = leaf(dig(view.facts, "model", "name"))
    if figure.model is None or figure.model.lower() not in model.lower():
        return []
    rows = [r for r in view.requirements if r.id == figure.criterion and r.estimate is not None]
    return [r for r in rows if figure.step is None or r.step == figure.step]
