"""Which pictures a report has, with their titles, their captions, and what they show in words."""

from __future__ import annotations

from collections.abc import Callable

from markupsafe import Markup

from reports import plots
from reports.document import Picture
from reports.rows import row
from reports.samples import per_block
from reports.served import PLACES
from reports.text import plain
from reports.view.model import ReportView
from reports.words import Words
from scenarios.model import BASELINE, CANDIDATE

METRICS = {"ttft": "ttft_p50_s", "throughput": "output_tokens_per_s"}
HOURS_FROM_S = 2 * 3600.0


def pictures(view: ReportView, t: Words) -> list[Picture]:
    """Return the pictures that there are samples for, in the page's order."""
    drawn = (
        _ecdf(view, t),
        _paired(view, t, "ttft"),
        _throughput(view, t),
        _paired(view, t, "throughput"),
        _served(view, t),
        _order(view, t),
    )
    return [picture for picture in drawn if picture is not None]


def _picture(key: str, title: str, caption: str, svg: Markup | None, says: Callable[[], str]) -> Picture | None:
    return None if svg is None else Picture(key, title, caption, str(svg), f"{title}. {says()}")


def _ecdf(view: ReportView, t: Words) -> Picture | None:
    title = t("ecdf.title")
    svg = plots.ttft_ecdf(
        view.arm_steps, title=title, x_label=t("ecdf.x"), y_label=t("ecdf.y"), failed=t("ecdf.failed")
    )

    def says() -> str:
        drawn = [s for s in view.arm_steps if s.requests]
        return "; ".join(f"{s.arm} c={s.step}: n={s.requests}" for s in drawn)

    return _picture("ttft", title, t("ecdf.caption"), svg, says)


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

    def says() -> str:
        drawn = [s for s in view.arm_steps if s.throughput]
        return "; ".join(
            f"{s.arm} c={s.step}: {min(v for _, v in s.throughput):.3g} – {max(v for _, v in s.throughput):.3g}"
            for s in drawn
        )

    return _picture("throughput", title, caption, svg, says)


def _band(view: ReportView) -> tuple[float, float] | None:
    """Return the required band of gains over the baseline, from the sealed criteria; None where they state none."""
    for requirement in view.requirements:
        of_baseline = requirement.compare == "gain" and requirement.arms[-1:] == (BASELINE,)
        if of_baseline and requirement.limit is not None and requirement.band_high:
            return requirement.limit, requirement.band_high
    return None


def _paired(view: ReportView, t: Words, what: str) -> Picture | None:
    """Return the comparison with the baseline, block by block; the one with recompute is of another scale."""
    title = t(f"paired.{what}_title")
    rows = [r for r in view.requirements if r.metric == METRICS[what] and r.arms == (CANDIDATE, BASELINE)]
    svg = plots.paired(
        [(r, per_block(view.arm_steps, r.metric, r.arms, r.step)) for r in rows],
        name=f"paired-{what}",
        title=title,
        x_label=t(f"paired.{what}_x"),
        scale=100.0,
        words=(t("paired.block"), t("paired.interval"), t("paired.limit"), t("paired.relaxed")),
    )

    def says() -> str:
        shown = [row(r, t) for r in rows]
        return "; ".join(f"c={s.step}: {s.measured} {s.interval}, n={s.n}" for s in shown)

    return _picture(f"paired-{what}", title, t("paired.caption"), svg, says)


def _served(view: ReportView, t: Words) -> Picture | None:
    title = t("served.title")
    places = [t(f"served.{place}") for place in PLACES]
    svg = plots.served(view.served, title=title, x_label=t("served.x"), places=places)

    def says() -> str:
        return "; ".join(
            f"{s.arm} c={s.step}: "
            + ", ".join(
                f"{words} {100 * n / (sum(s.tokens) or 1):.1f}\u00a0%"
                for words, n in zip(places, s.tokens, strict=True)
            )
            for s in view.served
        )

    return _picture("served", title, t("served.caption"), svg, says)


def _order(view: ReportView, t: Words) -> Picture | None:
    title = t("order.title")
    hours = max((moment.start_s for moment in view.moments), default=0.0) >= HOURS_FROM_S
    svg = plots.order(
        view.moments,
        title=title,
        x_label=t("order.hours") if hours else t("order.minutes"),
        y_label=t("order.y"),
        block=t("validity.block"),
        hours=hours,
    )
    return _picture("order", title, t("order.caption"), svg, lambda: f"n={len(view.moments)}")
