"""A report as plain text in a tree: the one thing that HTML and PDF are made from, so that both say the same.

Every text may be foreign. The renderers escape it, and write out what would mislead a reader (reports/text.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

Json = dict[str, Any]
# text; a number, set to the right; code; the judge's own English; a verdict with its shape
CellKind = Literal["text", "number", "code", "quote", "state"]


@dataclass(frozen=True)
class Cell:
    """One value: `more` stands below it, smaller; `state` is the verdict whose shape goes with it."""

    text: str
    kind: CellKind = "text"
    more: str = ""
    more_kind: CellKind = "text"
    state: str = ""
    href: str = ""  # relative; pages alone follow it


@dataclass(frozen=True)
class Para:
    """A paragraph, with a label in bold before it where there is one."""

    text: str
    label: str = ""
    soft: bool = False
    kind: str = "para"


@dataclass(frozen=True)
class Heading:
    """A heading within a section."""

    id: str
    text: str
    kind: str = "heading"


@dataclass(frozen=True)
class Table:
    """A table. `id` is that of the heading which names it; `widths` are shares of the line, for the page."""

    id: str
    head: tuple[Cell, ...]
    rows: tuple[tuple[Cell, ...], ...]
    widths: tuple[float, ...] = ()
    kind: str = "table"


@dataclass(frozen=True)
class Listing:
    """A list of short lines."""

    items: tuple[Cell, ...]
    kind: str = "list"


@dataclass(frozen=True)
class Code:
    """A command to be pasted."""

    text: str
    kind: str = "code"


@dataclass(frozen=True)
class Terms:
    """Words and what they mean."""

    pairs: tuple[tuple[str, str], ...]
    kind: str = "terms"


@dataclass(frozen=True)
class Picture:
    """A picture as SVG, its title, its caption, and what it shows in words for who cannot see it."""

    name: str
    title: str
    caption: str
    svg: str
    alt: str
    kind: str = "picture"


Block = Para | Heading | Table | Listing | Code | Terms | Picture


@dataclass(frozen=True)
class Section:
    """A part of the report with a heading of its own."""

    id: str
    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Notice:
    """A boxed remark on the first page; `alarm` where nobody may overlook it."""

    title: str
    items: tuple[Cell, ...] = ()
    says: str = ""
    more: str = ""
    alarm: bool = False


@dataclass(frozen=True)
class KeyFigure:
    """The one figure of the first page."""

    label: str
    value: str
    interval: str
    note: str


@dataclass(frozen=True)
class Front:
    """The first page."""

    eyebrow: str
    state: str  # the verdict that is shown; empty where the document has none
    word: str
    subtitle: str
    says: str
    key: KeyFigure | None
    statements: tuple[Para, ...]
    facts: tuple[tuple[str, str], ...]
    notices: tuple[Notice, ...]
    judged_title: str
    judged: Table | None
    judged_note: str
    signatures: tuple[str, ...]  # whose hand goes on the lines
    signed_on: str  # name, date: what stands below a line


@dataclass(frozen=True)
class Document:
    """A whole report in one language."""

    lang: str
    title: str
    footer: str  # the run's id, on every page
    page: str  # "page {n} of {total}"
    acceptance: str  # "acceptance: true" or "acceptance: false"
    marks: tuple[str, ...]  # watermarks
    date_utc: str  # ISO, when the run began
    front: Front
    sections: tuple[Section, ...]

    def to_json(self) -> Json:
        """Return the document as JSON values."""
        return asdict(self)


def texts(value: object) -> Sequence[str]:
    """Return every text in a document's JSON."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for inner in value.values() for text in texts(inner)]
    if isinstance(value, (list, tuple)):
        return [text for inner in value for text in texts(inner)]
    return []
