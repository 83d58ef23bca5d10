"""Cells that most pages need."""

from __future__ import annotations

from collections.abc import Iterable

from reports.document import Cell
from reports.words import Words


def text(value: str) -> Cell:
    """Return plain text."""
    return Cell(value)


def code(value: str) -> Cell:
    """Return text in the type of code."""
    return Cell(value, "code")


def number(value: str, more: str = "") -> Cell:
    """Return a number, set to the right, with a smaller line below it."""
    return Cell(value, "number", more)


def quote(value: str) -> Cell:
    """Return the suite's own English."""
    return Cell(value, "quote")


def state(verdict: str, t: Words, *, trusted: bool = True) -> Cell:
    """Return a verdict in word and shape; where it does not belong to the evidence, as what is on file."""
    word = t(f"verdict.{verdict}.word")
    if trusted:
        return Cell(word, "state", state=verdict)
    return Cell(t("untrusted.on_file", verdict=word), "state", state="UNTRUSTED")


def heads(*labels: str, numbers: Iterable[int] = ()) -> tuple[Cell, ...]:
    """Return a table's head; the columns in `numbers` are set to the right."""
    right = set(numbers)
    return tuple(Cell(label, "number" if place in right else "text") for place, label in enumerate(labels))
