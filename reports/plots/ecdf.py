"""Time to first token: the share of requests whose first token had come."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from markupsafe import Markup
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from reports.plots.style import DASHES, GRID, WIDTHS, look, svg
from reports.samples import ArmStep
from reports.text import clean, plain

POINTS_MAX = 300  # of a curve: its steps are then lower than the line is thick
TAIL = 40  # at either end all are drawn


def ttft_ecdf(samples: Sequence[ArmStep], *, title: str, x_label: str, y_label: str, failed: str) -> Markup | None:
    """Return the share of requests whose first token had come by a time, per arm and step; None without samples.

    Failed requests never reach it: they are in n, so their curve ends below 1. `failed` is the legend's word for them.
    """
    drawn = [s for s in samples if s.requests]
    shown = [time for s in drawn if len(s.ttft_s) for time in (s.ttft_s[0], s.ttft_s[-1])]
    if not shown:
        return None
    steps = sorted({s.step for s in drawn})

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        for sample in drawn:
            times, n = sample.ttft_s, sample.requests
            ranks = thinned(len(times))
            label = f"{clean(sample.arm)}  c={sample.step}  n={n}" + (
                f"  {failed}={n - len(times)}" if n > len(times) else ""
            )
            colour, marker = look(sample.arm)
            every = max(1, len(ranks) // 5)
            axes.step(
                [times[0], *(times[i] for i in ranks)] if len(times) else [],
                [0.0, *((i + 1) / n for i in ranks)] if len(times) else [],
                where="post",
                color=colour,
                linewidth=WIDTHS.get(sample.arm, 1.2),
                linestyle=DASHES[steps.index(sample.step) % len(DASHES)],
                marker=marker,
                markersize=4,
                markevery=(every // 2 + 1, every) if len(times) else None,
                label=label,
            )
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: plain(value)))
        if max(shown) / min(shown) < 30:
            axes.xaxis.set_minor_formatter(FuncFormatter(lambda value, _: plain(value) if _leads(value) else ""))
        else:
            axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_ylim(0, 1.02)
        axes.grid(axis="both", which="major", color=GRID, linewidth=0.6)
        axes.set_xlabel(x_label)
        axes.set_ylabel(y_label)
        figure.legend(loc="outside right upper", fontsize=8.5)

    return svg("ttft", draw, (8.6, 3.9), title)


def thinned(n: int) -> list[int]:
    """Return which of n sorted values are drawn: all of few; of many both tails, and equal shares between them.

    Each drawn point is one of the curve, so that nothing is smoothed; between two of them it rises by less than
    1 / POINTS_MAX.
    """
    if n <= POINTS_MAX + 2 * TAIL:
        return list(range(n))
    inner = np.linspace(TAIL, n - TAIL - 1, POINTS_MAX).round().astype(int)
    return sorted({*range(TAIL), *(int(i) for i in inner), *range(n - TAIL, n)})


def _leads(value: float) -> bool:
    """Return whether a minor tick's leading digit is one of those that are labelled."""
    return f"{value:.0e}"[0] in "235" if value > 0 else False
