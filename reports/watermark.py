"""The mark across the pages of a PDF, as outlines: to be seen, but never to be found between the words of a page."""

from __future__ import annotations

import functools

from fontTools.pens.svgPathPen import SVGPathPen  # type: ignore[import-untyped]
from fontTools.pens.transformPen import TransformPen  # type: ignore[import-untyped]

from reports import fonts

WEIGHT = 700
COLOUR = "#9b2d2d"
OPACITY = 0.11


@functools.cache
def watermark(text: str) -> str:
    """Return one line of text as an SVG of paths, in the PDF's Chinese font; what it lacks is left out."""
    with fonts.opened() as font:
        glyphs, cmap = font.getGlyphSet(location={"wght": WEIGHT}), font.getBestCmap()
        height = font["head"].unitsPerEm
        pen, x = SVGPathPen(glyphs, ntos=lambda value: f"{value:.0f}"), 0.0
        for name in (cmap[ord(c)] for c in text if ord(c) in cmap):
            glyphs[name].draw(TransformPen(pen, (1, 0, 0, -1, x, 0.88 * height)))
            x += glyphs[name].width
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {x:.0f} {height}" width="{x:.0f}" height="{height}">'
            f'<path d="{pen.getCommands()}" fill="{COLOUR}" fill-opacity="{OPACITY}"/></svg>'
        )
