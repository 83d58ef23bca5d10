"""Which pictures a report has, with their titles and captions."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from reports import plots
from reports.samples import per_block
from reports.text import plain
from reports.view import ReportView
from reports.words import Words
from scenarios.model import BASELINE, CANDIDATE

METRICS = {"ttft": "ttft_p50_s", "throughput": "output_tokens_per_s"}


@dataclass(frozen=True)
class Picture:
    """One picture of the page."""

    title: str
    caption: str
    svg: Markup


def figures(view: ReportView, t: Words) -> list[Picture]:
    """Return the pictures that there are samples for, in the page's order."""
    drawn = [_ecdf(view, t), _throughput(view, t), _paired(view, t, "ttft"), _paired(view, t, "throughput")]
    return [picture for picture in drawn if picture is not None]


def _ecdf(view: ReportView, t: Words) -> Picture | None:
    title = t("ecdf.title")
    svg = plots.ttft_ecdf(
        view.arm_steps, title=title, x_label=t("ecdf.x"), y_label=t("ecdf.y"), failed=t("ecdf.failed")
    )
    return None if svg is None else Picture(title, t("ecdf.caption"), svg)


def _throughput(view: ReportView, t: Words) -> Picture | None:
    title, caption, label = t("throughput.title"), t("throughput.caption"), ""
    band = _band(view)
    if band is not None:
        low, high = (f"+{plain(gain * 100)}\u00a0%" for gain in band)
        caption = " ".join((caption, t("throughput.band_caption", low=low, high=high)))
        label = t("throughput.band", low=low, high=high)
    svg = plots.throughput(
        view.arm_steps, title=title, x_label=t("throughput.x"), y_label=t("throughput.y"), band=band, band_label=label
    )
    return None if svg is None else Picture(title, caption, svg)


def _band(view: ReportView) -> tuple[float, float] | None:
    """Return the required band of gains over the baseline, from the sealed criteria; None where they state none."""
    for row in view.requirements:
        if row.compare == "gain" and row.arms[-1:] == (BASELINE,) and row.limit is not None and row.band_high:
            return row.limit, row.band_high
    return None


def _paired(view: ReportView, t: Words, what: str) -> Picture | None:
    """Return the comparison with the baseline, block by block; the one with recompute is of another scale."""
    title = t(f"paired.{what}_title")
    rows = [row for row in view.requirements if row.metric == METRICS[what] and row.arms == (CANDIDATE, BASELINE)]
    svg = plots.paired(
        [(row, per_block(view.arm_steps, row.metric, row.arms, row.step)) for row in rows],
        name=f"paired-{what}",
        title=title,
        x_label=t(f"paired.{what}_x"),
        scale=100.0,
        words=(t("paired.block"), t("paired.interval"), t("paired.limit"), t("paired.relaxed")),
    )
    return None if svg is None else Picture(title, t("paired.caption"), svg)
