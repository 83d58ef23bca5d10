"""The report as one HTML page per language: no script, no network, nothing beside it."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from zoneinfo import ZoneInfo

import jinja2
from markupsafe import Markup

from reports.document import Document
from reports.pages import document
from reports.shapes import shape
from reports.text import clean
from reports.view import ReportView, load_view
from reports.words import ReportError, Words
from workloads.evidence import write_whole


def write_reports(run: Path, langs: Sequence[str]) -> list[Path]:
    """Write report.<lang>.html into the run for each language, whole, and return the paths.

    Raises ReportError: unknown language, not a run, not judged yet, or a file that cannot be read or written.
    """
    words = [Words(language) for language in dict.fromkeys(langs)]
    if not words:
        raise ReportError("no language given")
    view = load_view(run)
    pages = [(run / f"report.{w.language}.html", render(view, w).encode()) for w in words]
    try:
        for path, page in pages:
            write_whole(path, page)
    except OSError as error:
        raise ReportError(f"{run}: {error.strerror or error}") from None
    return [path for path, _ in pages]


def render(view: ReportView, t: Words, zone: ZoneInfo | None = None) -> str:
    """Return the whole page of a run. Raises ReportError where a string is missing."""
    return to_html(document(view, t, zone))


def to_html(found: Document) -> str:
    """Return a document as a page. Raises ReportError: the template does not fit."""
    try:
        return _environment().get_template("report.html.j2").render(doc=found, front=found.front)
    except jinja2.TemplateError as error:
        # The verdict stands, whatever is wrong with its picture.
        raise ReportError(f"the report's template does not fit: {error}") from None


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).resolve().parent / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["shape"] = lambda state: Markup(shape(state))  # noqa: S704  our own drawing
    environment.filters["svg"] = lambda drawn: Markup(drawn)  # noqa: S704  reports.plots has escaped what is in it
    return environment


def _finalize(value: object) -> object:
    """Make foreign text harmless to read; escaping it is autoescape's part."""
    return clean(value) if isinstance(value, str) and not isinstance(value, Markup) else value
