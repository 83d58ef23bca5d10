"""Where the prompt tokens came from: device cache, DRAM, tier, or computed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from markupsafe import Markup
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from reports.plots.style import svg
from reports.served import PLACES, Served
from reports.text import clean, number

LABELLED_FROM = 0.06  # of the bar: a narrower part has no room for its number
# Lightness and hatching differ, so that they can be told apart in grey.
_FILL: dict[str, dict[str, Any]] = {
    "device": {"facecolor": "#f7f7f7", "hatch": "...", "edgecolor": "#555555"},
    "dram": {"facecolor": "#cfe3f2", "hatch": "\\\\\\", "edgecolor": "#33658a"},
    "tier": {"facecolor": "#f3b07a", "hatch": "", "edgecolor": "#7a3300"},
    "computed": {"facecolor": "#dddddd", "hatch": "////", "edgecolor": "#555555"},
}


def served(shares: Sequence[Served], *, title: str, x_label: str, places: Sequence[str]) -> Markup | None:
    """Return the split of each arm's prompt tokens at each step; None where no counter told. `places` are in words."""
    drawn = [s for s in shares if sum(s.tokens) > 0]
    if not drawn:
        return None

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        for row, sample in enumerate(drawn):
            whole, left = sum(sample.tokens), 0.0
            for place, tokens in zip(PLACES, sample.tokens, strict=True):
                part = 100 * tokens / whole
                if part > 0:
                    axes.add_patch(Rectangle((left, -row - 0.34), part, 0.68, linewidth=0.7, **_FILL[place]))
                if part >= 100 * LABELLED_FROM:
                    box = {"facecolor": "white", "edgecolor": "none", "pad": 1.2}
                    axes.text(left + part / 2, -row, number(part, 1), ha="center", va="center", fontsize=8, bbox=box)
                left += part
        axes.set_yticks([-i for i in range(len(drawn))], [f"{clean(s.arm)}  c={s.step}" for s in drawn])
        axes.set_ylim(-len(drawn) + 0.4, 0.6)
        axes.set_xlim(0, 100)
        axes.tick_params(axis="y", length=0)
        axes.set_xlabel(x_label)
        handles = [
            Rectangle((0, 0), 1, 1, linewidth=0.7, label=words, **_FILL[place])
            for place, words in zip(PLACES, places, strict=True)
        ]
        figure.legend(handles=handles, loc="outside upper left", ncols=4, fontsize=8.5)

    return svg("served", draw, (8.6, 1.1 + 0.36 * len(drawn)), title)
