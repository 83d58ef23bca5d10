"""Foreign text and measured numbers, as a reader may see them."""

from __future__ import annotations

import math
import unicodedata

MINUS = "\u2212"
# Characters that would change what a reader sees around them: shown by name instead of being obeyed.
_MISLEADING = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_KEPT = frozenset("\n\t")


def clean(text: str) -> str:
    """Return the text with every control, bidi and unpaired character written out as <U+XXXX>."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        f"<U+{ord(c):04X}>" if unicodedata.category(c) in _MISLEADING and c not in _KEPT else c for c in text
    )


def number(value: float, decimals: int, *, signed: bool = False) -> str:
    """Return the number with so many decimals and a real minus sign; infinite and absent values as such."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("+∞" if value > 0 else f"{MINUS}∞")
    text = f"{value:+.{decimals}f}" if signed else f"{value:.{decimals}f}"
    if float(text) == 0:
        text = text.lstrip("+-")
    return text.replace("-", MINUS)


def decimals(value: float, half_width: float | None) -> int:
    """Return how many decimals the interval supports: two significant digits of its half-width.

    Without an interval: three significant digits of the value itself.
    """
    if half_width is not None and math.isfinite(half_width) and half_width > 0:
        scale, digits = half_width, 2
    else:
        scale, digits = abs(value), 3
    if not math.isfinite(scale) or scale == 0:
        return 0
    return max(0, min(6, digits - 1 - math.floor(math.log10(scale))))


def plain(value: float) -> str:
    """Return a given (not measured) number without padding: 0.25 -> "0.25", 5.0 -> "5"."""
    return f"{value:.6g}".replace("-", MINUS) if math.isfinite(value) else number(value, 0)


def flatten(value: object, prefix: str = "") -> dict[str, str]:
    """Return the leaves of nested JSON as dotted key -> text. Lists of plain values stay in one piece."""
    if isinstance(value, dict) and value:
        found: dict[str, str] = {}
        for key, inner in value.items():
            found |= flatten(inner, f"{prefix}.{key}" if prefix else str(key))
        return found
    if isinstance(value, list) and any(isinstance(v, dict) for v in value):
        found = {}
        for index, inner in enumerate(value):
            found |= flatten(inner, f"{prefix}[{index}]")
        return found
    return {prefix: leaf(value)}


def leaf(value: object) -> str:
    """Return one configuration value as text, in TOML's spelling of booleans; null as a dash."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, (list, tuple)):
        return " ".join(leaf(v) for v in value) or "–"
    if isinstance(value, dict):
        return "–"
    return str(value)
