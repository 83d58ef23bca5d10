"""Output throughput: every trial as a point, and the band that was asked for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from markupsafe import Markup
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from reports.plots.style import GRID, look, svg
from reports.samples import ArmStep
from reports.text import clean
from scenarios.model import BASELINE

_BAND: dict[str, Any] = {
    "facecolor": "#efe3c8",
    "edgecolor": "#9a8450",
    "linewidth": 0.7,
    "hatch": "////",
    "alpha": 0.55,
}


def throughput(
    samples: Sequence[ArmStep],
    *,
    title: str,
    x_label: str,
    y_label: str,
    band: tuple[float, float] | None,
    band_label: str,
) -> Markup | None:
    """Return every trial's output throughput as a point, by step, with the required band; None without trials."""
    drawn = [s for s in samples if s.throughput]
    if not drawn:
        return None
    steps = sorted({s.step for s in drawn})
    arms = list(dict.fromkeys(s.arm for s in drawn))

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        highest = 0.0
        for sample in drawn:
            place, (colour, marker) = steps.index(sample.step), look(sample.arm)
            middle = place + 0.26 * (arms.index(sample.arm) - (len(arms) - 1) / 2)
            values = [value for _, value in sample.throughput]
            spread = [0.12 * (i / max(1, len(values) - 1) - 0.5) for i in range(len(values))]
            highest = max(highest, *values)
            axes.plot(
                [middle + s for s in spread], values, linestyle="none", marker=marker, markersize=5,
                markerfacecolor="none", markeredgecolor=colour, markeredgewidth=1.2,
            )  # fmt: skip
            if sample.arm == BASELINE and band is not None:
                mean = math.fsum(values) / len(values)
                low, high = mean * (1 + band[0]), mean * (1 + band[1])
                highest = max(highest, high)
                axes.add_patch(Rectangle((place - 0.45, low), 0.9, high - low, zorder=0, **_BAND))
        axes.set_xticks(range(len(steps)), [str(step) for step in steps])
        axes.set_xlim(-0.55, len(steps) - 0.45)
        axes.set_ylim(0, highest * 1.08 or 1)
        axes.grid(axis="y", color=GRID, linewidth=0.6)
        axes.set_xlabel(x_label)
        axes.set_ylabel(y_label)
        handles: list[Any] = [
            Line2D([], [], linestyle="none", marker=look(arm)[1], markerfacecolor="none",
                   markeredgecolor=look(arm)[0], markeredgewidth=1.2, label=_counted(arm, drawn))
            for arm in arms
        ]  # fmt: skip
        if BASELINE in arms and band is not None:
            handles.append(Rectangle((0, 0), 1, 1, label=band_label, **_BAND))
        figure.legend(handles=handles, loc="outside right upper", fontsize=8.5)

    return svg("throughput", draw, (8.6, 3.7), title)


def _counted(arm: str, samples: Sequence[ArmStep]) -> str:
    """Return the arm with its number of trials at each step."""
    counts = [f"c={s.step} n={len(s.throughput)}" for s in samples if s.arm == arm]
    return f"{clean(arm)}  ({', '.join(counts)})"
