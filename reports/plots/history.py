"""One criterion over many runs: the interval of each, with the limit."""

from __future__ import annotations

import math
from collections.abc import Sequence

from markupsafe import Markup
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from reports.plots.style import COLOURS, GRID, INK, LIMIT_DASH, svg
from reports.view.model import Requirement

MARKS = {"PASS": "D", "FAIL": "X", "INCONCLUSIVE": "s", "INVALID": "^"}


def intervals(
    points: Sequence[tuple[str, Requirement]],
    *,
    name: str,
    title: str,
    y_label: str,
    scale: float,
    changed: Sequence[int],
    worse: Sequence[int],
    words: tuple[str, str, str],
) -> Markup | None:
    """Return each run's estimate and interval in order, with the limit; None where no run has an estimate.

    `points` are (label below the axis, row); `changed` and `worse` are places in it that get a line or a ring; `words`
    name limit, change and regression in the legend. The marker's form is the verdict.
    """
    if not any(row.estimate is not None for _, row in points):
        return None

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        for place, (_, row) in enumerate(points):
            estimate = row.estimate
            if estimate is None:
                axes.annotate("–", (place, 0.02), xycoords=("data", "axes fraction"), ha="center")
                continue
            ends = [e * scale for e in (estimate.low, estimate.high) if e is not None and math.isfinite(e)]
            if ends:
                axes.plot([place] * len(ends), ends, color=COLOURS["candidate"], linewidth=2.2)
            axes.plot([place], [estimate.point * scale], linestyle="none", marker=MARKS.get(row.verdict, "o"),
                      markersize=6, color=COLOURS["candidate"], markeredgecolor=INK, markeredgewidth=0.6)  # fmt: skip
            if place in worse:
                axes.plot([place], [estimate.point * scale], linestyle="none", marker="o", markersize=14,
                          markerfacecolor="none", markeredgecolor=INK, markeredgewidth=1.2)  # fmt: skip
        limits = [(i, row.limit * scale) for i, (_, row) in enumerate(points) if row.limit is not None]
        axes.plot(
            [i for i, _ in limits], [v for _, v in limits], color=INK, linestyle=LIMIT_DASH, drawstyle="steps-mid"
        )
        for place in changed:
            axes.axvline(place - 0.5, color="#6b6b6b", linewidth=0.9, linestyle=(0, (1, 2)))
        axes.set_xticks(range(len(points)), [label for label, _ in points], rotation=40, ha="right", fontsize=7.5)
        axes.set_xlim(-0.6, len(points) - 0.4)
        axes.grid(axis="y", color=GRID, linewidth=0.6)
        axes.set_ylabel(y_label)
        limit, change, regression = words
        handles = [
            Line2D([], [], color=INK, linestyle=LIMIT_DASH, label=limit),
            Line2D([], [], color="#6b6b6b", linewidth=0.9, linestyle=(0, (1, 2)), label=change),
            Line2D([], [], linestyle="none", marker="o", markersize=9, markerfacecolor="none", markeredgecolor=INK,
                   label=regression),
            *(
                Line2D([], [], linestyle="none", marker=mark, color=COLOURS["candidate"], label=verdict)
                for verdict, mark in MARKS.items()
            ),
        ]  # fmt: skip
        figure.legend(handles=handles, loc="outside right upper", fontsize=8)

    return svg(name, draw, (8.6, 3.0), title)
