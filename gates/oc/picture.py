"""Outcomes as a picture."""

from __future__ import annotations

import io
from collections.abc import Sequence

import matplotlib as mpl
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from gates.oc.simulation import Outcome

# Okabe and Ito's colours, of different lightness; hatched, too, so that they can be told apart in grey.
BANDS = (("FAIL", "#d55e00", "\\\\\\"), ("INCONCLUSIVE", "#e6e6e6", ""), ("PASS", "#0072b2", "///"))


def picture(curves: Sequence[tuple[str, Sequence[tuple[float, Outcome]]]]) -> str:
    """Return an SVG, the same for the same outcomes: shares of verdicts against the distance of the truth."""
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "oc", "font.size": 9.5, "hatch.linewidth": 0.4}):
        figure = Figure(figsize=(5.2 * len(curves), 3.6), layout="constrained")
        FigureCanvasSVG(figure)
        panels = figure.subplots(1, len(curves), sharey=True, squeeze=False)[0]
        for axes, (title, points) in zip(panels, curves, strict=True):
            x = [distance for distance, _ in points]
            shares = [[o.fail.point, o.inconclusive.point, o.pass_.point] for _, o in points]
            areas = axes.stackplot(x, list(zip(*shares, strict=True)), colors=[colour for _, colour, _ in BANDS])
            for area, (_, _, hatch) in zip(areas, BANDS, strict=True):
                area.set_hatch(hatch)
                area.set_edgecolor("white")
            axes.axvline(0, color="#1a1a1a", linewidth=0.8, linestyle=(0, (4, 2)))
            axes.set(title=title, xlabel="truth: precisions inside the limit", xlim=(x[0], x[-1]), ylim=(0, 1))
        panels[0].set_ylabel("share of runs")
        figure.legend(handles=areas, labels=[name for name, _, _ in BANDS], loc="outside lower center", ncols=3)
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    return out.getvalue()
