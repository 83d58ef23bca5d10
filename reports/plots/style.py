"""What all pictures share: colours, markers, type, and how a figure becomes SVG that a page can hold."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable
from typing import Any

import matplotlib as mpl
from markupsafe import Markup, escape
from matplotlib import font_manager
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from reports import fonts
from reports.text import clean

INK, GRID = "#1a1a1a", "#dddddd"
# Okabe and Ito's colours, of different lightness.
COLOURS = {"recompute": "#6b6b6b", "baseline": "#0072b2", "candidate": "#d55e00"}
MARKERS = {"recompute": "s", "baseline": "o", "candidate": "D"}
WIDTHS = {"recompute": 1.0, "baseline": 1.4, "candidate": 2.2}
OTHER_COLOURS, OTHER_MARKERS = ("#009e73", "#cc79a7", "#56b4e9"), ("^", "v", "P")
DASHES: tuple[Any, ...] = ("solid", (0, (5, 2)), (0, (1, 1.4)), (0, (5, 2, 1, 2)), (0, (9, 3)))
LIMIT_DASH, RELAXED_DASH = (0, (4, 2)), (0, (1, 1.6))
# The reader's fonts draw the page, the suite's own the PDF: the first that is there is taken.
FAMILIES = f"'{fonts.FAMILY}', 'Noto Sans SC', 'PingFang SC', 'Microsoft YaHei', 'Helvetica Neue', Arial, sans-serif"
MEASURING = "KVGate Chinese"  # our name for a font that matplotlib knows by its thinnest weight alone
SVG_NAMESPACE = ' xmlns="http://www.w3.org/2000/svg"'

_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",  # text stays text
    "text.parse_math": False,  # a name with $ in it is a name
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
    "hatch.linewidth": 0.6,
}


def look(arm: str) -> tuple[str, str]:
    """Return an arm's colour and marker."""
    other = sum(arm.encode("utf-8", "replace")) % len(OTHER_COLOURS)
    return COLOURS.get(arm, OTHER_COLOURS[other]), MARKERS.get(arm, OTHER_MARKERS[other])


def svg(name: str, draw: Callable[[Figure], None], size: tuple[float, float], title: str) -> Markup:
    """Return what `draw` puts on a figure as SVG to be set into a page; `size` is in inches."""
    out = io.StringIO()
    style = {**_STYLE, "font.family": _families(), "svg.hashsalt": f"kvgate-{name}"}
    with mpl.rc_context(style), warnings.catch_warnings():
        # Text is only measured here, never drawn: a PDF says itself which character it lacks, and a reader has fonts.
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from font")
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasSVG(figure)
        draw(figure)
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return _inline(name, out.getvalue(), title)


def standalone(picture: str) -> str:
    """Return a page's picture as a file of its own.

    Its text is given a weight: without one it is set in a variable font's first, which is its thinnest.
    """
    return picture.replace("<svg", f"<svg{SVG_NAMESPACE} style=\"font-variation-settings: 'wght' 400\"", 1)


def _families() -> list[str]:
    """Return the fonts that text is measured with: matplotlib's own, and the suite's Chinese one for what it lacks."""
    file = fonts.chinese()
    if file is None:
        return ["DejaVu Sans"]
    known = font_manager.fontManager.ttflist
    if all(entry.name != MEASURING for entry in known):
        known.append(font_manager.FontEntry(fname=str(file), name=MEASURING, weight=400, size="scalable"))
    return ["DejaVu Sans", MEASURING]


def _inline(name: str, drawn: str, title: str) -> Markup:
    """Make a whole SVG file a part of a page: no prolog, no global style, no foreign address, ids of its own."""
    body = drawn[drawn.index("<svg") :]
    body = re.sub(r"\s*<metadata>.*?</metadata>", "", body, flags=re.S)
    body = re.sub(r"\s*<defs>\s*<style[^>]*>[^<]*</style>\s*</defs>", "", body, flags=re.S)
    body = re.sub(r'\bid="', f'id="{name}-', body)
    body = re.sub(r'(xlink:href="#|url\(#)', rf"\g<1>{name}-", body).replace("xlink:href=", "href=")
    body = re.sub(r"'DejaVu Sans'[^;\"]*", FAMILIES, body)
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
