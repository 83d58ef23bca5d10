"""The report as a PDF by Typst: tagged (PDF/UA-1), with the verdict attached (PDF/A-3a), the same bytes every time.

What is in the evidence goes to Typst as JSON, never as markup. A character that none of the fonts has is an error that
names it: a box on paper would say nothing.
"""

from __future__ import annotations

import functools
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from reports import fonts
from reports.document import Document, texts
from reports.plots.style import standalone
from reports.shapes import COLOURS, STATES, coloured
from reports.text import clean
from reports.watermark import watermark
from reports.words import ReportError

if TYPE_CHECKING:
    import typst

TEMPLATE = Path(__file__).resolve().parent / "templates" / "report.typ"
STANDARDS: list[Any] = ["a-3a", "ua-1"]
# What a line of foreign text may cost on paper; the page has the whole of it, and so has the evidence.
TEXT_MAX = 12_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def to_pdf(found: Document, attachment: bytes | None = None, says: str = "", name: str = "verdict.json") -> bytes:
    """Return the document as a PDF; `attachment` is the JSON file that goes with it, by `name`, `says` what that is.

    Raises ReportError: Typst or the fonts are not installed, a character is in none of them, or Typst refuses.
    """
    attached = None if attachment is None else [name, attachment.decode("utf-8", "replace"), says]
    made = _compile(found, attached, "pdf")
    if not isinstance(made, bytes):
        raise ReportError("PDF: Typst made no file")
    return made


def to_png(found: Document, pixels_per_inch: float) -> list[bytes]:
    """Return the same pages as pictures. Raises ReportError as to_pdf does."""
    made = _compile(found, None, "png", pixels_per_inch)
    return [made] if isinstance(made, bytes) else list(made or [])


def _compile(
    found: Document, attached: list[str] | None, form: Literal["pdf", "png"], ppi: float | None = None
) -> bytes | list[bytes] | None:
    compiler = _typst()
    values = _cleaned(found.to_json())
    _refuse_missing(values)
    begun = _date(found.date_utc)
    values |= {
        "date": [begun.year, begun.month, begun.day, begun.hour, begun.minute, begun.second],
        "colours": COLOURS,
        "attached": attached,
        "watermark": watermark(" · ".join(values["marks"])) if values["marks"] else None,
    }
    given = {
        "document": json.dumps(values, ensure_ascii=True),
        "shapes": json.dumps({state: coloured(state) for state in STATES}),
    }
    try:
        made, warnings = compiler.compile_with_warnings(
            str(TEMPLATE),
            format=form,
            ppi=ppi,
            root=str(TEMPLATE.parent),
            font_paths=_fonts(compiler),
            ignore_system_fonts=True,
            sys_inputs=given,
            pdf_standards=STANDARDS if form == "pdf" else [],
            timestamp=int(begun.timestamp()),
        )
    except compiler.TypstError as error:
        raise ReportError(f"PDF: Typst: {_one_line(error)}") from None
    if warnings:
        raise ReportError(f"PDF: Typst: {_one_line(warnings[0])}")
    return made if isinstance(made, bytes | list) else None


def _typst() -> Any:
    """Return the compiler. Raises ReportError: it or the Chinese font is not installed."""
    try:
        import typst  # a page needs none of it
    except ImportError:
        raise ReportError("PDF: Typst is not installed: .venv/bin/python -m pip install -e .") from None
    if fonts.chinese() is None:
        raise ReportError("PDF: the package manimgx-fonts-cjk is not installed: .venv/bin/python -m pip install -e .")
    return typst


@functools.cache
def _fonts(compiler: Any) -> Any:
    """Return the fonts, read once: the Chinese one is tens of megabytes."""
    folders = [str(folder) for folder in fonts.folders()]
    return compiler.Fonts(include_system_fonts=False, include_embedded_fonts=False, font_paths=folders)


def _cleaned(value: Any, key: str = "") -> Any:
    """Make foreign text harmless to read, and pictures files of their own."""
    if isinstance(value, str):
        if key == "svg":
            return standalone(value)
        text = clean(value.expandtabs(1))
        return text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]}…"
    if isinstance(value, dict):
        return {name: _cleaned(inner, name) for name, inner in value.items()}
    return [_cleaned(inner, key) for inner in value] if isinstance(value, (list, tuple)) else value


def _refuse_missing(values: dict[str, Any]) -> None:
    lacking = fonts.missing(texts(values))
    if lacking:
        shown = ", ".join(lacking[:5]) + (f" and {len(lacking) - 5} more" if len(lacking) > 5 else "")
        raise ReportError(f"PDF: no font has {shown}; the HTML report shows it with the reader's own fonts")


def _date(stamp: str) -> datetime:
    """Return when the run began; of a run that does not tell, the epoch: no file is dated by when it was made."""
    try:
        found = datetime.fromisoformat(stamp)
    except ValueError:
        return EPOCH
    return EPOCH if found.tzinfo is None or found < EPOCH else found.astimezone(UTC)


def _one_line(error: typst.TypstError | typst.TypstWarning) -> str:
    return " ".join(str(getattr(error, "message", error)).split())[:400]
