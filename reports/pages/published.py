"""Published figures beside what was measured."""

from __future__ import annotations

from reports import published as figures
from reports.document import Cell, Para, Section, Table
from reports.pages.cells import heads, number, quote, text
from reports.rows import row
from reports.view.model import ReportView
from reports.words import Words


def published(view: ReportView, t: Words) -> Section | None:
    """Return the published figures with this run's beside them where both are of one scenario; None but for G3."""
    if view.gate != "g3" or view.imported:
        return None
    found = figures.load()
    rows = []
    for figure in found.figure:
        beside = [row(r, t) for r in figures.comparable(figure, view)]
        measured = "\n".join(f"c = {r.step}: {r.measured} {r.interval}" for r in beside) or t("published.other")
        rows.append(
            (
                text(figure.run),
                quote(figure.what),
                number(
                    figure.stated, f"{t(f'published.{figure.quality}')}{f' ({figure.note})' if figure.note else ''}"
                ),
                number(measured),
                Cell(figure.source),
            )
        )
    head = heads(
        t("published.run"), t("published.what"), t("published.figure"), t("published.measured"), t("published.source"),
        numbers=(2, 3),
    )  # fmt: skip
    table = Table("published", head, tuple(rows), (0.7, 4, 3, 3, 3))
    says = (Para(t("published.says")), table, Para(t("published.platform", platform=found.platform), soft=True))
    return Section("published", t("published.title"), says)
