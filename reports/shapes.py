"""One shape per verdict, as SVG: told apart by outline and by mark, not by colour."""

from __future__ import annotations

COLOURS = {
    "PASS": "#1b5e3f", "FAIL": "#9c1c1c", "INCONCLUSIVE": "#6a4a00", "INVALID": "#4a2f78", "UNTRUSTED": "#4a2f78",
}  # fmt: skip

_OPEN = (
    '<svg viewBox="0 0 24 24" aria-hidden="true" focusable="false" fill="none" stroke="currentColor" stroke-width="2" '
    'stroke-linecap="round" stroke-linejoin="round">'
)
_DRAWN = {
    "PASS": '<circle cx="12" cy="12" r="10" fill="currentColor"/>'
    '<path d="M7 12.5l3.4 3.4L17 8.8" stroke="#fff" stroke-width="2.6"/>',
    "FAIL": '<path d="M8 2h8l6 6v8l-6 6H8l-6-6V8z" fill="currentColor"/>'
    '<path d="M8.3 8.3l7.4 7.4M15.7 8.3l-7.4 7.4" stroke="#fff" stroke-width="2.6"/>',
    "INCONCLUSIVE": '<path d="M12 1.8L22.2 12 12 22.2 1.8 12z"/><path d="M8 12h8" stroke-width="2.4"/>',
    "INVALID": '<path d="M12 2.5L22.3 21H1.7z"/><path d="M12 9v5.6" stroke-width="2.4"/>'
    '<path d="M12 17.8v.1" stroke-width="2.6"/>',
    "UNTRUSTED": '<rect x="2" y="2" width="20" height="20" stroke-dasharray="3.4 2.6"/>'
    '<path d="M7 10h10M7 14.5h10M15 6.5l-6 11.5"/>',
}
STATES = tuple(_DRAWN)


def shape(state: str) -> str:
    """Return the shape of a verdict in the colour of the text around it; of what is no verdict, that of UNTRUSTED."""
    return f"{_OPEN}{_DRAWN.get(state, _DRAWN['UNTRUSTED'])}</svg>"


def coloured(state: str) -> str:
    """Return the same as an SVG file of its own, in its own colour."""
    drawn = shape(state).replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg" width="24" height="24"', 1)
    return drawn.replace("currentColor", COLOURS.get(state, COLOURS["UNTRUSTED"]))
