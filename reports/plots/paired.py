"""Candidate against baseline: each block, the interval that was judged, and the limit."""

from __future__ import annotations

import math
from collections.abc import Sequence

from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from reports.plots.style import COLOURS, GRID, INK, LIMIT_DASH, RELAXED_DASH, svg
from reports.view.model import Requirement


def paired(
    rows: Sequence[tuple[Requirement, Sequence[tuple[int, float]]]],
    *,
    name: str,
    title: str,
    x_label: str,
    scale: float,
    words: tuple[str, str, str, str],
) -> Markup | None:
    """Return each block's value as a point and, below, the interval and limit that were judged; None without rows.

    `scale` turns the unit of verdict.json into the axis's; `words` name block, interval, limit and limit with
    tolerance in the legend.
    """
    drawn = [(r, blocks) for r, blocks in rows if r.estimate is not None or blocks]
    if not drawn:
        return None

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        for row, (requirement, blocks) in enumerate(drawn):
            base = -float(row)
            heights = [base + 0.05 + 0.3 * (i + 0.5) / len(blocks) for i in range(len(blocks))]
            axes.plot(
                [value * scale for _, value in blocks], heights, linestyle="none", marker="o", markersize=4.5,
                markerfacecolor="none", markeredgecolor=INK, markeredgewidth=0.9,
            )  # fmt: skip
            interval(axes, requirement, base - 0.15, scale)
            for limit, dash in ((requirement.limit, LIMIT_DASH), (requirement.relaxed_limit, RELAXED_DASH)):
                if limit is not None:
                    axes.plot([limit * scale] * 2, [base - 0.38, base + 0.42], color=INK, linestyle=dash)
        axes.set_yticks([-float(i) for i in range(len(drawn))], [_row_name(r) for r, _ in drawn])
        axes.set_ylim(-len(drawn) + 0.5, 0.5)
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="x", color=GRID, linewidth=0.6)
        axes.margins(x=0.08)
        axes.set_xlabel(x_label)
        figure.legend(
            handles=_legend(words, any(r.relaxed_limit is not None for r, _ in drawn)),
            loc="outside upper left",
            ncols=4,
            fontsize=8.5,
        )

    return svg(name, draw, (8.6, 1.25 + 0.62 * len(drawn)), title)


def interval(axes: Axes, requirement: Requirement, height: float, scale: float) -> None:
    """Draw the estimate as a diamond on the bar of its interval, as verdict.json states both."""
    estimate = requirement.estimate
    if estimate is None:
        return
    colour = COLOURS["candidate"]
    ends = [end * scale for end in (estimate.low, estimate.high) if end is not None and math.isfinite(end)]
    if ends:
        axes.plot([*ends, estimate.point * scale], [height] * (len(ends) + 1), color=colour, linewidth=2.4)
    axes.plot([estimate.point * scale], [height], marker="D", color=colour, markersize=6, linestyle="none")


def _legend(words: tuple[str, str, str, str], relaxed: bool) -> list[Line2D]:
    block, judged, limit, relaxed_limit = words
    handles = [
        Line2D([], [], linestyle="none", marker="o", markerfacecolor="none", markeredgecolor=INK, label=block),
        Line2D([], [], color=COLOURS["candidate"], linewidth=2.4, marker="D", label=judged),
        Line2D([], [], color=INK, linestyle=LIMIT_DASH, label=limit),
    ]
    if relaxed:
        handles.append(Line2D([], [], color=INK, linestyle=RELAXED_DASH, label=relaxed_limit))
    return handles


def _row_name(requirement: Requirement) -> str:
    return "c = all" if requirement.step is None else f"c = {requirement.step}"
