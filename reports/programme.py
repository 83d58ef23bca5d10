"""The report that ends a joint test: the gates G1 to G4, their runs and dates, and where the test stands."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from zoneinfo import ZoneInfo

from reports.document import Cell, Code, Document, Front, Heading, Notice, Para, Section, Table
from reports.html import to_html
from reports.loose import dig
from reports.pages import front as first
from reports.pages.cells import code, heads, text
from reports.pages.words import glossary
from reports.pdf import to_pdf
from reports.rows import span, utc
from reports.text import leaf
from reports.view import ReportView, load_view
from reports.words import ReportError, Words
from workloads.evidence import write_whole

GATES = ("g1", "g2", "g3", "g4")
MISSING = "MISSING"


@dataclass(frozen=True)
class Standing:
    """One gate of the programme: its runs in order of time, and what they come to."""

    gate: str
    runs: tuple[ReportView, ...]

    @property
    def failed_elsewhere(self) -> tuple[str, ...]:
        """Return the attempts that the runs' own ledgers call failed, and that are not among the runs."""
        given = {run.run_id for run in self.runs}
        listed = [attempt for run in self.runs if run.trusted for attempt in run.attempts or ()]
        failed = (leaf(one.get("run")) for one in listed if one.get("verdict") == "FAIL")
        return tuple(dict.fromkeys(run for run in failed if run not in given))

    @property
    def state(self) -> str:
        """Return the gate's state.

        A FAIL stays one, whatever came after it, also one that was left out; a run whose verdict does not fit its
        evidence may have been one; else it is that of the latest run.
        """
        if not self.runs:
            return MISSING
        shown = [run.shown for run in self.runs]
        if "FAIL" in shown or self.failed_elsewhere:
            return "FAIL"
        return "UNTRUSTED" if "UNTRUSTED" in shown else shown[-1]


def standings(views: Sequence[ReportView]) -> list[Standing]:
    """Return the four gates with their runs. Raises ReportError: a run of no gate, or one that is given twice."""
    ids = [view.run_id for view in views]
    twice = {run for run in ids if ids.count(run) > 1}
    strange = [view for view in views if view.gate not in GATES or view.imported]
    if twice:
        raise ReportError(f"run {sorted(twice)[0]} is named twice")
    if strange:
        raise ReportError(f"{strange[0].folder}: no run of one of the gates G1 to G4")
    ordered = sorted(views, key=lambda view: (utc(view.started_utc), view.run_id))
    return [Standing(gate, tuple(v for v in ordered if v.gate == gate)) for gate in GATES]


def write_programme(
    runs: Sequence[Path], langs: Sequence[str], forms: Sequence[str], out: Path | None, zone: ZoneInfo | None
) -> tuple[list[Path], list[str]]:
    """Write programme.<lang>.<form> into `out`, or beside the first run; return the paths, and why a PDF is missing.

    Raises ReportError as load_view and standings do.
    """
    words = [Words(language) for language in dict.fromkeys(langs)]
    found = standings([load_view(run) for run in runs])
    folder = out or runs[0].resolve().parent
    written: list[Path] = []
    problems: list[str] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for t in words:
            document = programme(found, t, zone)
            if "html" in forms:
                written.append(folder / f"programme.{t.language}.html")
                write_whole(written[-1], to_html(document).encode())
            if "pdf" in forms:
                try:
                    made = to_pdf(document, summary(found), t("programme.attached"), "programme.json")
                except ReportError as error:
                    problems.append(f"programme.{t.language}.pdf: {error}")
                    continue
                written.append(folder / f"programme.{t.language}.pdf")
                write_whole(written[-1], made)
    except OSError as error:
        raise ReportError(f"{folder}: {error.strerror or error}") from None
    return written, problems


def summary(found: Sequence[Standing]) -> bytes:
    """Return the runs with their verdicts and hashes as JSON: what the programme's report rests on."""
    entries = [
        {
            "gate": standing.gate, "run": view.run_id, "verdict": view.shown, "acceptance": view.acceptance,
            "created_utc": view.started_utc, "manifest_sha256": view.manifest_sha256,
            "criteria_sha256": view.criteria_sha256,
        }
        for standing in found for view in standing.runs
    ]  # fmt: skip
    return (json.dumps({"schema": 1, "runs": entries}, indent=1, ensure_ascii=False) + "\n").encode()


def programme(found: Sequence[Standing], t: Words, zone: ZoneInfo | None = None) -> Document:
    """Return the programme's report. Raises ReportError where a string is missing."""
    stopped = _stopped(found)
    accepted = stopped is None and all(standing.runs[-1].acceptance for standing in found) and not _doubts(found, t)
    state = "PASS" if stopped is None else "INCONCLUSIVE" if stopped.state == MISSING else stopped.state
    views = [view for standing in found for view in standing.runs]
    marks = dict.fromkeys(mark for view in views for mark in first.marks(view, t))
    return Document(
        lang=t("lang"),
        title=t("programme.title", verdict=t(f"verdict.{state}.word")),
        footer=t("programme.footer", runs=", ".join(view.run_id for view in views)),
        page=t("page"),
        acceptance=f"acceptance: {str(accepted).lower()}",
        marks=tuple(marks),
        date_utc=min((view.started_utc for view in views), key=utc, default=""),
        front=_front(found, views, state, stopped, accepted, t, zone),
        sections=(*(_gate(standing, t, zone) for standing in found if standing.runs), _check(views, t), glossary(t)),
    )


def _stopped(found: Sequence[Standing]) -> Standing | None:
    """Return the gate that the programme stands at: the first not passed, else the first not run; None for none."""
    open_gates = [standing for standing in found if standing.state != "PASS"]
    return next((standing for standing in open_gates if standing.runs), open_gates[0] if open_gates else None)


def _front(
    found: Sequence[Standing],
    views: Sequence[ReportView],
    state: str,
    stopped: Standing | None,
    accepted: bool,
    t: Words,
    zone: ZoneInfo | None,
) -> Front:
    if stopped is None:
        says = t("programme.passed") if accepted else t("programme.not_accepted")
    elif stopped.state == MISSING:
        says = t("programme.missing", gate=stopped.gate.upper())
    else:
        says = t(f"programme.at_{stopped.state}", gate=stopped.gate.upper())
    ends = [view.ended_utc for view in views if view.ended_utc]
    products = dict.fromkeys(leaf(dig(v.facts, "scenario", "arms", "candidate", "title") or "–") for v in views)
    sites = dict.fromkeys(leaf(dig(view.facts, "site", "title") or dig(view.facts, "site", "name")) for view in views)
    began = min((view.started_utc for view in views), key=utc, default="")
    facts = [
        (t("front.product"), ", ".join(p for p in products if p != "–") or t("all.unknown")),
        (t("front.site"), ", ".join(sites)),
        (t("front.dates"), span(began, max(ends, default=None), zone, t("all.unknown"))),
        (t("programme.runs"), str(len(views))),
    ]
    return Front(
        eyebrow=t("programme.eyebrow"),
        state=state,
        word=t(f"verdict.{state}.word"),
        subtitle=t("programme.subtitle"),
        says=says,
        key=None,
        statements=(Para(t("programme.rule"), soft=True),),
        facts=tuple(facts),
        notices=tuple(_notices(found, views, t)),
        judged_title=t("programme.gates"),
        judged=_table(found, t, zone),
        judged_note=t("programme.note"),
        signatures=first.signers(t) if state != "UNTRUSTED" else (),
        signed_on=t("sign.on"),
    )


def _notices(found: Sequence[Standing], views: Sequence[ReportView], t: Words) -> list[Notice]:
    lines = [Cell(text_) for text_ in _doubts(found, t)]
    lines += [
        Cell(t("programme.untrusted", run=view.run_id, n=len(view.misfits))) for view in views if not view.trusted
    ]
    notices = [Notice(t("programme.heed"), tuple(lines))] if lines else []
    if any(view.rehearsal for view in views):
        notices.append(Notice(t("rehearsal.label"), says=t("rehearsal.says")))
    return notices


def _doubts(found: Sequence[Standing], t: Words) -> list[str]:
    """Return why the runs are no one programme: each of these makes an acceptance of the whole impossible."""
    views = [view for standing in found for view in standing.runs]
    lines = [
        t("programme.left_out", gate=standing.gate.upper(), runs=", ".join(standing.failed_elsewhere))
        for standing in found
        if standing.failed_elsewhere
    ]
    lines += _order_faults(found, t)
    sites = {leaf(dig(view.facts, "site", "name")) for view in views}
    lines += [t("programme.sites", sites=", ".join(sorted(sites)))] if len(sites) > 1 else []
    # G1 measures no model.
    models = {leaf(dig(view.facts, "model", "name")) for view in views if view.gate != "g1"}
    return lines + ([t("programme.models", models=", ".join(sorted(models)))] if len(models) > 1 else [])


def _order_faults(found: Sequence[Standing], t: Words) -> list[str]:
    """Return which gates were begun before the one before them had passed."""
    faults = []
    for before, after in pairwise(found):
        passed = [utc(view.started_utc) for view in before.runs if view.shown == "PASS"]
        early = [view for view in after.runs if not passed or utc(view.started_utc) < min(passed)]
        if early:
            faults.append(t("programme.early", gate=after.gate.upper(), before=before.gate.upper()))
    return faults


def _table(found: Sequence[Standing], t: Words, zone: ZoneInfo | None) -> Table:
    rows = []
    for standing in found:
        name = Cell(f"{standing.gate.upper()} {t(f'gate.{standing.gate}')}")
        if not standing.runs:
            rows.append(
                (name, text(t("all.none")), text(t("all.none")), text(t("all.none")), text(t("programme.not_run")))
            )
        for view in standing.runs:
            key = first.key_figure(view, t)
            rows.append(
                (
                    name,
                    text(span(view.started_utc, view.ended_utc, zone, t("all.unknown"))),
                    Cell(view.run_id, "code", more=(view.manifest_sha256 or "–")[:16], more_kind="code"),
                    text(t("all.none")) if key is None else Cell(f"{key.value} {key.interval}".strip(), more=key.label),
                    Cell(t(f"verdict.{view.shown}.word"), "state", state=view.shown),
                )
            )
    head = heads(t("col.gate"), t("front.dates"), t("front.run"), t("col.key"), t("col.verdict"))
    return Table("judged", head, tuple(rows), (3, 3.4, 3.4, 3, 2.2))


def _gate(standing: Standing, t: Words, zone: ZoneInfo | None) -> Section:
    blocks: list[Para | Heading | Table] = []
    for view in standing.runs:
        page = first.front(view, t, zone)
        blocks.append(Heading(f"run-{standing.gate}-{len(blocks)}", view.run_id))
        blocks.append(Para(first.stop_loss(view, t), t("stop_loss.label")))
        blocks += [Para(notice.says, notice.title) for notice in page.notices if notice.says]
        blocks += [Para(cell.text, notice.title) for notice in page.notices for cell in notice.items]
        if page.judged is not None:
            blocks.append(Table(blocks[-1].id if isinstance(blocks[-1], Heading) else standing.gate,
                                page.judged.head, page.judged.rows, page.judged.widths))  # fmt: skip
    return Section(standing.gate, f"{standing.gate.upper()} {t(f'gate.{standing.gate}')}", tuple(blocks))


def _check(views: Sequence[ReportView], t: Words) -> Section:
    rows = tuple(
        (code(view.run_id), code(view.manifest_sha256 or "–"), code(leaf(dig(view.facts, "suite", "version"))))
        for view in views
    )
    head = heads(t("front.run"), t("provenance.manifest"), t("provenance.suite"))
    says = Para(t("programme.check"))
    return Section(
        "check", t("reproduce.title"), (says, Code("make verify RUN=…"), Table("check", head, rows, (4, 6, 1.4)))
    )
