"""The report's pictures: SVG text that is the same, byte for byte, whenever it is drawn from the same values.

Arms differ in colour, marker and line width; steps in line style: both are readable in grey. Estimates and limits are
drawn as verdict.json states them.
"""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import matplotlib as mpl
from markupsafe import Markup, escape
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, NullFormatter

from reports.samples import ArmStep
from reports.text import clean, plain
from reports.view import Requirement

INK, FAINT = "#1a1a1a", "#8a8a8a"
# Okabe and Ito's colours, of different lightness.
COLOURS = {"recompute": "#6b6b6b", "baseline": "#0072b2", "candidate": "#d55e00"}
MARKERS = {"recompute": "s", "baseline": "o", "candidate": "D"}
WIDTHS = {"recompute": 1.0, "baseline": 1.4, "candidate": 2.2}
OTHER_COLOURS, OTHER_MARKERS = ("#009e73", "#cc79a7", "#56b4e9"), ("^", "v", "P")
DASHES: tuple[Any, ...] = ("solid", (0, (5, 2)), (0, (1, 1.4)), (0, (5, 2, 1, 2)), (0, (9, 3)))
LIMIT_DASH, RELAXED_DASH = (0, (4, 2)), (0, (1, 1.6))

_BAND: dict[str, Any] = {
    "facecolor": "#efe3c8",
    "edgecolor": "#9a8450",
    "linewidth": 0.7,
    "hatch": "////",
    "alpha": 0.55,
}

_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",  # text stays text
    "text.parse_math": False,  # a name with $ in it is a name
    "font.family": "sans-serif",
    "font.size": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.7,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "legend.handlelength": 2.8,
}


def ttft_ecdf(samples: Sequence[ArmStep], *, title: str, x_label: str, y_label: str, failed: str) -> Markup | None:
    """Return the share of requests whose first token had come by a time, per arm and step; None without samples.

    Failed requests never reach it: they are in n, so their curve ends below 1. `failed` is the legend's word for them.
    """
    drawn = [s for s in samples if s.requests]
    if not any(s.ttft_s for s in drawn):
        return None
    steps = sorted({s.step for s in drawn})

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        for sample in drawn:
            times, n = sample.ttft_s, sample.requests
            label = f"{clean(sample.arm)}  c={sample.step}  n={n}" + (
                f"  {failed}={n - len(times)}" if n > len(times) else ""
            )
            colour, marker = _look(sample.arm)
            every = max(1, len(times) // 5)
            axes.step(
                [times[0], *times] if times else [],
                [0.0, *((i + 1) / n for i in range(len(times)))] if times else [],
                where="post",
                color=colour,
                linewidth=WIDTHS.get(sample.arm, 1.2),
                linestyle=DASHES[steps.index(sample.step) % len(DASHES)],
                marker=marker,
                markersize=4,
                markevery=(every // 2 + 1, every) if times else None,
                label=label,
            )
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: plain(value)))
        shown = [time for s in drawn for time in s.ttft_s]
        if max(shown) / min(shown) < 30:
            axes.xaxis.set_minor_formatter(FuncFormatter(lambda value, _: plain(value) if _leads(value) else ""))
        else:
            axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_ylim(0, 1.02)
        axes.grid(axis="both", which="major", color="#dddddd", linewidth=0.6)
        axes.set_xlabel(x_label)
        axes.set_ylabel(y_label)
        figure.legend(loc="outside right upper", fontsize=8.5)

    return _svg("ttft", draw, (8.6, 3.9), title)


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
            place, (colour, marker) = steps.index(sample.step), _look(sample.arm)
            middle = place + 0.26 * (arms.index(sample.arm) - (len(arms) - 1) / 2)
            values = [value for _, value in sample.throughput]
            spread = [0.12 * (i / max(1, len(values) - 1) - 0.5) for i in range(len(values))]
            highest = max(highest, *values)
            axes.plot(
                [middle + s for s in spread], values, linestyle="none", marker=marker, markersize=5,
                markerfacecolor="none", markeredgecolor=colour, markeredgewidth=1.2,
            )  # fmt: skip
            if sample.arm == "baseline" and band is not None:
                mean = math.fsum(values) / len(values)
                low, high = mean * (1 + band[0]), mean * (1 + band[1])
                highest = max(highest, high)
                axes.add_patch(Rectangle((place - 0.45, low), 0.9, high - low, zorder=0, **_BAND))
        axes.set_xticks(range(len(steps)), [str(step) for step in steps])
        axes.set_xlim(-0.55, len(steps) - 0.45)
        axes.set_ylim(0, highest * 1.08 or 1)
        axes.grid(axis="y", color="#dddddd", linewidth=0.6)
        axes.set_xlabel(x_label)
        axes.set_ylabel(y_label)
        handles: list[Any] = [
            Line2D([], [], linestyle="none", marker=_look(arm)[1], markerfacecolor="none",
                   markeredgecolor=_look(arm)[0], markeredgewidth=1.2, label=_counted(arm, drawn))
            for arm in arms
        ]  # fmt: skip
        if "baseline" in arms and band is not None:
            handles.append(Rectangle((0, 0), 1, 1, label=band_label, **_BAND))
        figure.legend(handles=handles, loc="outside right upper", fontsize=8.5)

    return _svg("throughput", draw, (8.6, 3.7), title)


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
            _interval(axes, requirement, base - 0.15, scale)
            for limit, dash in ((requirement.limit, LIMIT_DASH), (requirement.relaxed_limit, RELAXED_DASH)):
                if limit is not None:
                    axes.plot([limit * scale] * 2, [base - 0.38, base + 0.42], color=INK, linestyle=dash)
        axes.set_yticks([-float(i) for i in range(len(drawn))], [_row_name(r) for r, _ in drawn])
        axes.set_ylim(-len(drawn) + 0.5, 0.5)
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="x", color="#dddddd", linewidth=0.6)
        axes.margins(x=0.08)
        axes.set_xlabel(x_label)
        figure.legend(
            handles=_paired_legend(words, any(r.relaxed_limit is not None for r, _ in drawn)),
            loc="outside upper left",
            ncols=4,
            fontsize=8.5,
        )

    return _svg(name, draw, (8.6, 1.25 + 0.62 * len(drawn)), title)


def _counted(arm: str, samples: Sequence[ArmStep]) -> str:
    """Return the arm with its number of trials at each step."""
    counts = [f"c={s.step} n={len(s.throughput)}" for s in samples if s.arm == arm]
    return f"{clean(arm)}  ({', '.join(counts)})"


def _interval(axes: Axes, requirement: Requirement, height: float, scale: float) -> None:
    estimate = requirement.estimate
    if estimate is None:
        return
    colour = COLOURS["candidate"]
    ends = [end * scale for end in (estimate.low, estimate.high) if end is not None and math.isfinite(end)]
    if ends:
        axes.plot([*ends, estimate.point * scale], [height] * (len(ends) + 1), color=colour, linewidth=2.4)
    axes.plot([estimate.point * scale], [height], marker="D", color=colour, markersize=6, linestyle="none")


def _paired_legend(words: tuple[str, str, str, str], relaxed: bool) -> list[Line2D]:
    block, interval, limit, relaxed_limit = words
    handles = [
        Line2D([], [], linestyle="none", marker="o", markerfacecolor="none", markeredgecolor=INK, label=block),
        Line2D([], [], color=COLOURS["candidate"], linewidth=2.4, marker="D", label=interval),
        Line2D([], [], color=INK, linestyle=LIMIT_DASH, label=limit),
    ]
    if relaxed:
        handles.append(Line2D([], [], color=INK, linestyle=RELAXED_DASH, label=relaxed_limit))
    return handles


def _row_name(requirement: Requirement) -> str:
    return clean(requirement.id if requirement.step is None else f"{requirement.id}  c={requirement.step}")


def _look(arm: str) -> tuple[str, str]:
    other = sum(arm.encode()) % len(OTHER_COLOURS)
    return COLOURS.get(arm, OTHER_COLOURS[other]), MARKERS.get(arm, OTHER_MARKERS[other])


def _leads(value: float) -> bool:
    """Return whether a minor tick's leading digit is one of those that are labelled."""
    return f"{value:.0e}"[0] in "235" if value > 0 else False


def _svg(name: str, draw: Callable[[Figure], None], size: tuple[float, float], title: str) -> Markup:
    out = io.StringIO()
    with mpl.rc_context({**_STYLE, "svg.hashsalt": f"kvgate-{name}"}), warnings.catch_warnings():
        # Text is only measured here, never drawn: the reader's fonts have the characters that ours lack.
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from font")
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasSVG(figure)
        draw(figure)
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return _inline(name, out.getvalue(), title)


def _inline(name: str, svg: str, title: str) -> Markup:
    """Make a whole SVG file a part of a page: no prolog, no global style, no foreign address, ids of its own."""
    body = svg[svg.index("<svg") :]
    body = re.sub(r"\s*<metadata>.*?</metadata>", "", body, flags=re.S)
    body = re.sub(r"\s*<defs>\s*<style[^>]*>[^<]*</style>\s*</defs>", "", body, flags=re.S)
    body = re.sub(r'\bid="', f'id="{name}-', body)
    body = re.sub(r'(xlink:href="#|url\(#)', rf"\g<1>{name}-", body).replace("xlink:href=", "href=")
    body = body.replace("font-family: sans-serif", "font-family: inherit")
    body = re.sub(r"'?DejaVu Sans'?[^;\"]*sans-serif", "sans-serif", body)
    opening, rest = body.split(">", 1)
    width, height = re.search(r'width="([\d.]+)pt"', opening), re.search(r'height="([\d.]+)pt"', opening)
    if width is None or height is None:
        raise RuntimeError("matplotlib's SVG has no size")
    head = (
        f'<svg viewBox="0 0 {width[1]} {height[1]}" role="img" aria-labelledby="{name}-title" '
        'stroke-linejoin="round" stroke-linecap="butt">'
        f'<title id="{name}-title">{escape(clean(title))}</title>'
    )
    return Markup(head + rest.strip())  # noqa: S704  matplotlib escapes text; the title is escaped above
