"""Every trial in the order in which it ran, so that a drift of the machine shows."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from markupsafe import Markup
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from reports.plots.style import GRID, INK, look, svg
from reports.served import Moment
from reports.text import clean


def order(
    trials: Sequence[Moment], *, title: str, x_label: str, y_label: str, block: str, hours: bool
) -> Markup | None:
    """Return each trial's TTFT p50 over its arm's and step's median, by its time; None for fewer than two trials.

    Time is in hours, or in minutes where the run was short. `block` is the word above the blocks' numbers.
    """
    if len(trials) < 2:
        return None
    groups: dict[tuple[str, int], list[float]] = {}
    for trial in trials:
        groups.setdefault((trial.arm, trial.step), []).append(trial.ttft_p50_s)
    middle = {key: statistics.median(values) for key, values in groups.items()}
    arms = list(dict.fromkeys(trial.arm for trial in trials))
    steps = sorted({trial.step for trial in trials})
    unit_s = 3600.0 if hours else 60.0

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        for trial in trials:
            if not middle[trial.arm, trial.step] > 0:
                continue
            colour, marker = look(trial.arm)
            axes.plot(
                [trial.start_s / unit_s], [100 * trial.ttft_p50_s / middle[trial.arm, trial.step]], linestyle="none",
                marker=marker, markersize=4 + 1.6 * steps.index(trial.step), markerfacecolor="none",
                markeredgecolor=colour, markeredgewidth=1.1,
            )  # fmt: skip
        axes.axhline(100, color=INK, linewidth=0.7)
        starts: dict[int, float] = {}
        for trial in trials:
            starts[trial.block] = min(trial.start_s, starts.get(trial.block, trial.start_s))
        for number, start in starts.items():
            axes.axvline(start / unit_s, color=GRID, linewidth=0.8, zorder=0)
            axes.annotate(str(number), (start / unit_s, 1.0), xycoords=("data", "axes fraction"),
                          textcoords="offset points", xytext=(2, 2), fontsize=7.5, color="#555555")  # fmt: skip
        axes.annotate(block, (0.0, 1.0), xycoords="axes fraction", textcoords="offset points", xytext=(-4, 2),
                      fontsize=7.5, color="#555555", ha="right")  # fmt: skip
        axes.grid(axis="y", color=GRID, linewidth=0.6)
        axes.margins(x=0.03, y=0.15)
        axes.set_xlabel(x_label)
        axes.set_ylabel(y_label)
        handles = [
            Line2D([], [], linestyle="none", marker=look(arm)[1], markerfacecolor="none", markersize=4 + 1.6 * i,
                   markeredgecolor=look(arm)[0], markeredgewidth=1.1, label=f"{clean(arm)}  c={step}")
            for arm in arms for i, step in enumerate(steps) if (arm, step) in groups
        ]  # fmt: skip
        figure.legend(handles=handles, loc="outside right upper", fontsize=8.5)

    return svg("order", draw, (8.6, 3.1), title)
