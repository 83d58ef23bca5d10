"""The report as one HTML page per language: no script, no network, nothing beside it."""

from __future__ import annotations

import functools
from pathlib import Path

import jinja2
from markupsafe import Markup

from reports.document import Document
from reports.shapes import shape
from reports.text import clean
from reports.words import ReportError


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
