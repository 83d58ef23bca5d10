"""Both forms of a run's report, in each language, written into the run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from reports.html import to_html
from reports.loose import dig
from reports.pages import document
from reports.pdf import to_pdf
from reports.view import ReportView, load_view
from reports.words import ReportError, Words
from workloads.evidence import write_whole

FORMS = ("html", "pdf")


def write_reports(
    run: Path,
    langs: Sequence[str],
    forms: Sequence[str] = FORMS,
    zone: ZoneInfo | None = None,
    waivers: Path | None = None,
) -> tuple[list[Path], list[str]]:
    """Write report.<lang>.<form> for each language and form; return the paths, and why a PDF is not among them.

    A page does not wait for its PDF: it is written first, and stays where the PDF cannot be made. Raises ReportError:
    unknown language or form, not a run, not judged yet, or a file that cannot be read or written.
    """
    words = [Words(language) for language in dict.fromkeys(langs)]
    unknown = [form for form in forms if form not in FORMS]
    if not words or not forms or unknown:
        raise ReportError(f"no language given, or no form of {', '.join(FORMS)}")
    view = load_view(run, waivers)
    zone = zone or _zone(view)
    written: list[Path] = []
    problems: list[str] = []
    for t in words:
        found = document(view, t, zone)
        if "html" in forms:
            written.append(_write(run / f"report.{t.language}.html", to_html(found).encode()))
        if "pdf" in forms:
            try:
                made = to_pdf(found, view.judged_bytes, t("attached"))
            except ReportError as error:
                problems.append(f"report.{t.language}.pdf: {error}")
                continue
            written.append(_write(run / f"report.{t.language}.pdf", made))
    return written, problems


def _zone(view: ReportView) -> ZoneInfo | None:
    """Return the time zone of the host that measured; None where it is not told or not known here."""
    name = dig(view.facts, "host", "zone")
    try:
        return ZoneInfo(name) if isinstance(name, str) and name else None
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


def _write(path: Path, content: bytes) -> Path:
    try:
        write_whole(path, content)
    except OSError as error:
        raise ReportError(f"{path}: {error.strerror or error}") from None
    return path
