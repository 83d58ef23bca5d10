"""The whole report: its first page, and the sections of its gate in their order."""

from __future__ import annotations

from collections.abc import Callable
from zoneinfo import ZoneInfo

from reports.document import Document, Para, Section
from reports.pages import front as first
from reports.pages import record
from reports.pages.compared import compared
from reports.pages.pictures import pictures
from reports.pages.power import power
from reports.pages.published import published
from reports.pages.results import results, stated
from reports.pages.validity import faults, validity
from reports.pages.words import glossary, limits
from reports.view.model import ReportView
from reports.words import Words

Page = Callable[[ReportView, Words], Section | None]


def document(view: ReportView, t: Words, zone: ZoneInfo | None = None) -> Document:
    """Return the report of a run in one language; times also in `zone` where one is given.

    Raises ReportError where a string is missing.
    """
    return Document(
        lang=t("lang"),
        title=t("title", gate=view.gate.upper(), verdict=t(f"verdict.{view.shown}.word"), run=view.run_id),
        footer=t("footer", gate=view.gate.upper(), run=view.run_id, manifest=(view.manifest_sha256 or "–")[:16]),
        page=t("page"),
        acceptance=f"acceptance: {str(view.acceptance).lower()}",
        marks=tuple(first.marks(view, t)),
        date_utc=view.started_utc,
        front=first.front(view, t, zone),
        sections=tuple(s for page in SECTIONS.get(view.gate, MEASURED) if (s := page(view, t)) is not None),
    )


def _pictures(view: ReportView, t: Words) -> Section:
    drawn = pictures(view, t)
    none = [] if drawn else [Para(t("pictures.none"))]
    uncounted = [Para(t("pictures.uncounted"))] if drawn and not view.counted else []
    return Section("pictures", t("pictures.title"), (*uncounted, *none, *drawn, *record.unread(view, t)))


def _unread(view: ReportView, t: Words) -> Section | None:
    told = record.unread(view, t)
    return Section("unread", t("pictures.unread_title"), tuple(told)) if told else None


def _glossary(_view: ReportView, t: Words) -> Section:
    return glossary(t)


BEFORE: tuple[Page, ...] = (results, stated)
AFTER: tuple[Page, ...] = (
    faults, record.deviations, record.attempts, limits, record.materials, record.provenance, record.reproduce,
    _glossary, record.files,
)  # fmt: skip
MEASURED: tuple[Page, ...] = (*BEFORE, _pictures, published, compared, validity, power, *AFTER)
# What a gate shows between its results and the common rest. G2 and G4 bring pages of their own here.
SECTIONS: dict[str, tuple[Page, ...]] = {
    "g1": (*BEFORE, _unread, validity, *AFTER),
    "g2": MEASURED,
    "g3": MEASURED,
    "g4": MEASURED,
}
