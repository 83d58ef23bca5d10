"""The history of many runs: per criterion the interval over time, what changed between runs, and what became worse."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote

from reports import plots
from reports.document import Block, Cell, Document, Front, Heading, Listing, Notice, Para, Picture, Section, Table
from reports.html import to_html
from reports.loose import Json, dig
from reports.pages.cells import heads, text
from reports.rows import PERCENT, by_criterion, requirement_name, row, scale_of, utc, worst_of
from reports.text import leaf
from reports.view import VERDICTS, Requirement
from reports.view.load import incoherent
from reports.view.requirements import requirements
from reports.words import ReportError, Words
from workloads.evidence import MANIFEST, EvidenceError, read_json, sha256_of, write_whole

WATCHED = ("suite", "criteria", "software", "model", "site", "scenario", "host")


@dataclass(frozen=True)
class Past:
    """One judged run, as far as the history needs it."""

    folder: str
    facts: Json
    shown: str  # its verdict; UNTRUSTED where manifest or criteria are not those that were judged
    rows: tuple[Requirement, ...]

    @property
    def group(self) -> tuple[str, str, str, bool]:
        """Return what runs must share to be compared: gate, site, scenario, and whether it is a rehearsal."""
        names = [leaf(dig(self.facts, part, "name")) for part in ("site", "scenario")]
        return str(self.facts.get("gate", "")), names[0], names[1], self.facts.get("rehearsal") is not False


def write_history(runs: Path, langs: Sequence[str], out: Path | None = None) -> list[Path]:
    """Write history.<lang>.html into `out`, or into the folder of the runs; return the paths.

    Raises ReportError: no such folder, an unknown language, or a file that cannot be written.
    """
    words = [Words(language) for language in dict.fromkeys(langs)]
    if not words:
        raise ReportError("no language given")
    if not runs.is_dir():
        raise ReportError(f"{runs}: no such folder")
    folder = out or runs
    past, unread = collect(runs)
    links = _way(folder, runs)
    written: list[Path] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for t in words:
            written.append(folder / f"history.{t.language}.html")
            write_whole(written[-1], to_html(history(past, unread, t, links)).encode())
    except OSError as error:
        raise ReportError(f"{folder}: {error.strerror or error}") from None
    return written


def collect(runs: Path) -> tuple[list[Past], list[tuple[str, str]]]:
    """Return the judged runs in a folder in order of time, and (folder, reason) for those that cannot be read."""
    past: list[Past] = []
    unread: list[tuple[str, str]] = []
    for path in sorted(p.parent for p in runs.glob("*/verdict.json")):
        try:
            past.append(_past(path))
        except (EvidenceError, ReportError, OSError) as error:
            unread.append((path.name, str(error)))
    return sorted(past, key=lambda run: (str(run.facts.get("created_utc", "")), run.folder)), unread


def _past(path: Path) -> Past:
    facts, judged = read_json(path / "run.json"), read_json(path / "verdict.json")
    rows, _ = requirements(path, judged)
    fits = all(
        judged.get(key) == (sha256_of(path / file) if (path / file).is_file() else None)
        for key, file in (("manifest_sha256", MANIFEST), ("criteria_sha256", "criteria.toml"))
    )
    verdict = judged.get("verdict")
    fits = fits and verdict in VERDICTS and not list(incoherent(str(verdict), rows))
    return Past(path.name, facts, str(verdict) if fits else "UNTRUSTED", tuple(_trusted(row, fits) for row in rows))


def _trusted(row: Requirement, fits: bool) -> Requirement:
    """Return a row without its number where that cannot be trusted: it is neither drawn nor compared."""
    return row if fits and row.verdict != "INVALID" else replace(row, verdict="INVALID", estimate=None)


def changes(before: Past, after: Past) -> list[str]:
    """Return which of the watched things differ between two runs, as in WATCHED."""
    return [what for what in WATCHED if _part(before.facts, what) != _part(after.facts, what)]


def _part(facts: Json, what: str) -> object:
    if what == "criteria":
        return facts.get("criteria_sha256")
    if what == "suite":
        return dig(facts, "suite", "version"), dig(facts, "suite", "commit"), dig(facts, "suite", "dirty")
    return facts.get(what)


def is_worse(before: Requirement, after: Requirement) -> bool:
    """Return whether the whole interval lies on the worse side of the one before, both as they were judged."""
    first, last = before.estimate, after.estimate
    if first is None or last is None or None in (first.low, first.high, last.low, last.high):
        return False
    if after.operator == ">=":
        return bool(last.high < first.low)  # type: ignore[operator]  # None was looked for above
    return bool(last.low > first.high)  # type: ignore[operator]


def history(past: Sequence[Past], unread: Sequence[tuple[str, str]], t: Words, links: str) -> Document:
    """Return the history as a document; `links` is the way from it to the folder of the runs."""
    groups: dict[tuple[str, str, str, bool], list[Past]] = {}
    for run in past:
        groups.setdefault(run.group, []).append(run)
    notices = []
    if unread:
        lines = tuple(Cell(folder, "code", more=reason, more_kind="quote") for folder, reason in unread)
        notices.append(Notice(t("history.unreadable"), lines))
    return Document(
        lang=t("lang"),
        title=t("history.title"),
        footer=t("history.eyebrow"),
        page=t("page"),
        acceptance="",
        marks=(),
        date_utc=str(past[0].facts.get("created_utc", "")) if past else "",
        front=Front(
            eyebrow=t("history.eyebrow"), state="", word=t("history.title"), subtitle="",
            says=t("history.says", n=len(past)) if past else t("history.none"), key=None, statements=(),
            facts=tuple((_title(key, t), str(len(runs))) for key, runs in groups.items()), notices=tuple(notices),
            judged_title="", judged=None, judged_note="", signatures=(), signed_on="",
        ),
        sections=tuple(_group(i, key, runs, t, links) for i, (key, runs) in enumerate(groups.items())),
    )  # fmt: skip


def _title(key: tuple[str, str, str, bool], t: Words) -> str:
    gate, site, scenario, rehearsal = key
    title = t("history.group", gate=gate.upper(), site=site, scenario=scenario)
    return f"{title} · {t('history.rehearsal')}" if rehearsal else title


def _group(place: int, key: tuple[str, str, str, bool], runs: Sequence[Past], t: Words, links: str) -> Section:
    changed = [i for i in range(1, len(runs)) if changes(runs[i - 1], runs[i])]
    blocks: list[Block] = [_runs(place, runs, t, links), Heading(f"worse-{place}", t("history.regressions"))]
    found = tuple(Cell(line) for line in _regressions(runs, t))
    blocks.append(Listing(found) if found else Para(t("history.no_regression")))
    blocks.append(Para(t("history.caption"), soft=True))
    blocks += _pictures(place, runs, changed, t)
    return Section(f"group-{place}", _title(key, t), tuple(blocks))


def _runs(place: int, runs: Sequence[Past], t: Words, links: str) -> Table:
    rows = []
    for i, run in enumerate(runs):
        what = [t(f"history.what_{part}") for part in changes(runs[i - 1], run)] if i else [t("history.first")]
        href = f"./{links}{quote(run.folder)}/report.{t.language}.html"
        rows.append(
            (
                text(utc(str(run.facts.get("created_utc", "")))),
                Cell(run.folder, "code", href=href),
                Cell(t(f"verdict.{run.shown}.word"), "state", state=run.shown),
                text(", ".join(what) or t("all.none")),
            )
        )
    head = heads(t("attempts.begun"), t("front.run"), t("col.verdict"), t("history.changed"))
    return Table(f"group-{place}", head, tuple(reversed(rows)), (2.6, 4, 2.4, 4))


def _regressions(runs: Sequence[Past], t: Words) -> Iterator[str]:
    """Yield what became worse against the last run that measured it: an invalid run says nothing either way."""
    measured: dict[tuple[str, int | None], Requirement] = {}
    for run in runs:
        stamp = utc(str(run.facts.get("created_utc", "")))
        for requirement in run.rows if run.shown != "UNTRUSTED" else ():
            if requirement.verdict == "INVALID":
                continue
            earlier = measured.get((requirement.id, requirement.step))
            measured[requirement.id, requirement.step] = requirement
            if earlier is None:
                continue
            name, step = requirement_name(requirement, t), leaf(requirement.step)
            if is_worse(earlier, requirement):
                first, last = row(earlier, t), row(requirement, t)
                told = {"before": f"{first.measured} {first.interval}", "after": f"{last.measured} {last.interval}"}
                yield f"{stamp}: {t('history.regressed', name=name, step=step, **told)}"
            elif earlier.verdict == "PASS" and requirement.verdict != "PASS":
                after = t(f"verdict.{requirement.verdict}.word")
                yield f"{stamp}: {t('history.lost', name=name, step=step, after=after)}"


def _pictures(place: int, runs: Sequence[Past], changed: Sequence[int], t: Words) -> Iterator[Picture]:
    seen: dict[tuple[str, int | None], None] = {}
    for run in runs:
        seen |= dict.fromkeys((r.id, r.step) for group in by_criterion(run.rows) for r in group)
    for number, (id_, step) in enumerate(seen):
        points = [
            (utc(str(run.facts.get("created_utc", "")))[:10], requirement)
            for run in runs
            for requirement in run.rows
            if (requirement.id, requirement.step) == (id_, step)
        ]
        holders = [i for i, run in enumerate(runs) if any((r.id, r.step) == (id_, step) for r in run.rows)]
        worse = _worse([requirement for _, requirement in points])
        first = points[0][1]
        title = t("history.picture", name=requirement_name(first, t), step=leaf(step))
        unit = "%" if first.unit in PERCENT else first.unit or "1"
        drawn = plots.intervals(
            points,
            name=f"history-{place}-{number}",
            title=title,
            y_label=unit,
            scale=scale_of(first.unit),
            changed=[holders.index(i) for i in changed if i in holders],
            worse=worse,
            words=(t("history.limit"), t("history.change"), t("history.worse")),
        )
        if drawn is not None:
            told = "; ".join(f"{label}: {row(r, t).measured} {row(r, t).interval}" for label, r in points)
            caption = t(f"verdict.{worst_of([points[-1][1]])}.word")
            yield Picture(f"history-{place}-{number}", title, caption, str(drawn), f"{title}. {told}")


def _worse(rows: Sequence[Requirement]) -> list[int]:
    """Return the places of the rows that are worse than the last measured one before them."""
    found: list[int] = []
    earlier: Requirement | None = None
    for place, requirement in enumerate(rows):
        if requirement.verdict == "INVALID" or requirement.estimate is None:
            continue
        if earlier is not None and is_worse(earlier, requirement):
            found.append(place)
        earlier = requirement
    return found


def _way(out: Path, runs: Path) -> str:
    """Return the relative way from one folder to the other, as a part of an address."""
    way = os.path.relpath(runs.resolve(), out.resolve())
    return "" if way == "." else f"{quote(way)}/"
