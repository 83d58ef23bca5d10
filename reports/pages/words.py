"""Limits of the statement, and the glossary."""

from __future__ import annotations

from reports.document import Cell, Listing, Para, Section, Terms
from reports.view.model import ReportView
from reports.words import Words

GLOSSARY = ("gate", "arm", "step", "block", "ttft", "itl", "throughput", "interval", "cold", "verdicts", "evidence")


LIMITS = ("scope", "interval", "errors", "curves", "published", "vendor", "forgery", "baseline")
MEASURED_ALONE = {"interval", "errors", "curves", "published"}


def limits(view: ReportView, t: Words) -> Section:
    """Return what the verdict does not say."""
    measured = view.gate != "g1" and not view.imported
    left_out = {"vendor"} if measured else set(MEASURED_ALONE)
    left_out |= set() if view.one_local_drive() else {"baseline"}
    lines = tuple(Cell(t(f"limits.{key}")) for key in LIMITS if key not in left_out)
    return Section("limits", t("limits.title"), (Listing(lines),))


def glossary(t: Words) -> Section:
    """Return the words of the report and what they mean."""
    pairs = tuple((t(f"words.{term}.term"), t(f"words.{term}.says")) for term in GLOSSARY)
    return Section("words", t("words.title"), (Para(t("words.note"), soft=True), Terms(pairs)))
