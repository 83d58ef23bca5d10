"""The fonts of the PDF, and which characters they have. All come with packages; none of the system's is used."""

from __future__ import annotations

import functools
import importlib.util
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
from fontTools.ttLib import TTCollection, TTFont  # type: ignore[import-untyped]

FAMILY, MONO, FALLBACK = "Noto Sans CJK SC", "DejaVu Sans Mono", "DejaVu Sans"
PACKAGE, FILE = "manimgx_fonts_cjk", "NotoSansCJK-VF.otf.ttc"  # Noto Sans CJK, SIL Open Font License 1.1


def chinese() -> Path | None:
    """Return the file with the Chinese font, in all its weights; None where the package is not installed."""
    found = importlib.util.find_spec(PACKAGE)
    places = [] if found is None else list(found.submodule_search_locations or ())
    return next((Path(place) / FILE for place in places if (Path(place) / FILE).is_file()), None)


def folders() -> list[Path]:
    """Return where the PDF's fonts lie; the Chinese one is left out where it is not installed."""
    file = chinese()
    return [*([] if file is None else [file.parent]), Path(mpl.get_data_path()) / "fonts" / "ttf"]


def missing(texts: Iterable[str]) -> list[str]:
    """Return the characters of these texts that no font has, each as "U+1F9FF NAME", in the order of their code."""
    lacking = {ord(c) for text in texts for c in text} - _known() - {0x0A, 0x0D, 0x09}
    return [f"U+{code:04X} {unicodedata.name(chr(code), 'without a name')}" for code in sorted(lacking)]


@contextmanager
def opened() -> Iterator[Any]:
    """Open the Chinese font. Raises FileNotFoundError: it is not installed."""
    with TTCollection(str(chinese() or FILE), lazy=True) as collection:
        families = [{record.toUnicode() for record in font["name"].names} for font in collection.fonts]
        yield collection.fonts[next(i for i, names in enumerate(families) if FAMILY in names)]


@functools.cache
def _known() -> frozenset[int]:
    codes: set[int] = set()
    if chinese() is not None:
        with opened() as font:
            codes |= set(font.getBestCmap())
    for name in ("DejaVuSans.ttf",):
        with TTFont(str(Path(mpl.get_data_path()) / "fonts" / "ttf" / name), lazy=True) as font:
            codes |= set(font.getBestCmap())
    return frozenset(codes)
