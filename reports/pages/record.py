"""Attempts, deviations, bill of materials, provenance, files, and how to check all of it."""

from __future__ import annotations

import shlex

from reports import imported
from reports.document import Block, Cell, Code, Heading, Listing, Para, Section, Table
from reports.loose import Json, dig, mapping
from reports.pages.cells import code, heads, number, text
from reports.rows import requirement_name, si_bytes, utc
from reports.text import flatten, leaf
from reports.view.model import VERDICTS, ReportView
from reports.words import Words

FILES_SHOWN = 400


def attempts(view: ReportView, t: Words) -> Section:
    """Return every attempt at this scenario on this site, as the ledger's extract tells them."""
    title = t("attempts.title")
    if view.attempts is None:
        return Section("attempts", title, (Para(t("attempts.absent")),))
    head = heads(
        t("attempts.k"), t("attempts.begun"), t("front.run"), t("col.verdict"), t("front.manifest"), numbers=(0,)
    )
    rows = tuple(
        (
            number(leaf(attempt.get("attempt"))),
            text(utc(leaf(attempt.get("utc")))),
            code(leaf(attempt.get("run"))),
            _attempt_state(attempt, view, t),
            code(leaf(attempt.get("manifest_sha256"))[:16]),
        )
        for attempt in view.attempts
    )
    says = Para(t("attempts.count", n=len(view.attempts)))
    return Section("attempts", title, (says, Table("attempts", head, rows, (0.8, 2.6, 4, 2.6, 2.4))))


def _attempt_state(attempt: Json, view: ReportView, t: Words) -> Cell:
    verdict = attempt.get("verdict")
    if attempt.get("run") == view.run_id:
        return text(t("attempts.this"))
    return (
        Cell(t(f"verdict.{verdict}.word"), "state", state=verdict)
        if verdict in VERDICTS
        else text(t("attempts.no_end"))
    )


def deviations(view: ReportView, t: Words) -> Section:
    """Return what was done otherwise than agreed, and who signed for it."""
    title, found = t("deviations.title"), view.deviations
    if found.file is None:
        return Section("deviations", title, (Para(t("deviations.absent")),))
    where = t("deviations.sealed" if found.sealed else "deviations.named", file=found.file, sha256=found.sha256 or "")
    names = {r.id: requirement_name(r, t) for r in view.requirements}
    head = heads(t("deviations.kind"), t("deviations.what"), t("deviations.why"), t("deviations.signed"))
    rows = []
    for entry in found.entries:
        bears = "" if entry.criterion is None else names.get(entry.criterion, entry.criterion)
        bears += "" if entry.step is None else f" (c = {entry.step})"
        signed = "\n".join(entry.signed_by)
        kind = t("deviations.waiver") if entry.kind == "waiver" else t("deviations.deviation")
        rows.append((Cell(kind, more=bears), text(entry.what), text(entry.why), Cell(signed, more=str(entry.date))))
    table: list[Block] = (
        [Table("deviations", head, tuple(rows), (2.4, 4, 4, 3))] if rows else [Para(t("deviations.none"))]
    )
    return Section("deviations", title, (*table, Para(t("deviations.note")), Para(where, soft=True)))


def materials(view: ReportView, t: Words) -> Section | None:
    """Return what the measurement was made with: software, host, model, tiers."""
    facts = view.facts
    rows: list[tuple[Cell, ...]] = []
    for name, version in mapping(facts.get("software")).items():
        rows.append((text(t("materials.software")), code(name), text(leaf(version))))
    for name, value in flatten(mapping(facts.get("host"))).items():
        shown = si_bytes(float(value)) if name.endswith("_bytes") and value.isdigit() else value
        rows.append((text(t("materials.host")), code(name.removesuffix("_bytes")), text(shown)))
    model = mapping(facts.get("model"))
    if model.get("name"):
        rows.append((text(t("materials.model")), text(leaf(model["name"])), text(_model(view))))
    for name, tier in mapping(dig(facts, "site", "tiers")).items():
        rows.append(
            (text(t("materials.tier")), text(leaf(mapping(tier).get("title") or name)), text(_tier(mapping(tier))))
        )
    for name, value in flatten(mapping(dig(facts, "site", "bom"))).items():
        if name and value != "–":
            rows.append((text(t("materials.declared")), code(name), text(value)))
    if not rows:
        return None
    head = heads(t("materials.part"), t("materials.what"), t("materials.detail"))
    return Section("materials", t("materials.title"), (Table("materials", head, tuple(rows), (2, 4, 6)),))


def _model(view: ReportView) -> str:
    served = mapping(dig(view.facts, "site", "models", leaf(dig(view.facts, "scenario", "model"))))
    return "; ".join(f"{key} = {leaf(value)}" for key, value in served.items() if value is not None) or "–"


def _tier(tier: Json) -> str:
    return (
        "; ".join(f"{key} = {value}" for key, value in flatten(tier).items() if key != "title" and value != "–") or "–"
    )


def provenance(view: ReportView, t: Words) -> Section:
    """Return where the evidence comes from and with which settings."""
    rows = tuple((text(label), code(value)) for label, value in _provenance(view, t))
    blocks: list[Block] = [Table("provenance", heads(t("compared.setting"), t("col.value")), rows, (3, 7))]
    if not view.imported and view.settings:
        head = heads(t("compared.setting"), t("col.value"), t("settings.origin"))
        settings = tuple((code(s.key), code(s.value), code(s.origin)) for s in view.settings)
        blocks += [Heading("settings", t("settings.title")), Table("settings", head, settings, (4, 4, 3))]
    return Section("provenance", t("provenance.title"), tuple(blocks))


def _provenance(view: ReportView, t: Words) -> list[tuple[str, str]]:
    facts = view.facts
    suite, selection = mapping(facts.get("suite")), mapping(facts.get("selection"))
    tree = suite.get("dirty")
    dirty = t("provenance.yes") if tree is True else t("provenance.no") if tree is False else t("all.unknown")
    judged_by = view.judged.get("suite")
    asked = {key: leaf(selection.get(key)) for key in ("selected", "collected")}
    files = mapping(dig(facts, "model", "files"))
    return [
        (t("provenance.run"), leaf(facts.get("run_id"))),
        (t("provenance.folder"), view.folder),
        (t("provenance.kind"), leaf(facts.get("kind"))),
        (t("provenance.suite"), leaf(suite.get("version"))),
        (t("provenance.commit"), leaf(suite.get("commit"))),
        (t("provenance.dirty"), dirty),
        (t("provenance.judged_by"), _one_line(judged_by) if isinstance(judged_by, dict) else leaf(judged_by)),
        (t("provenance.seed"), leaf(facts.get("seed"))),
        (t("provenance.nonce"), leaf(facts.get("nonce"))),
        (t("provenance.overrides"), _one_line(mapping(facts.get("overrides"))) or t("all.none")),
        (t("provenance.selection"), t("provenance.selection_of", **asked)),
        (t("provenance.host"), _one_line(mapping(facts.get("host")))),
        *imported.provenance(facts),
        *((t("provenance.model_file", name=name), leaf(digest)) for name, digest in files.items()),
        (t("provenance.manifest"), view.manifest_sha256 or t("all.unknown")),
        (t("provenance.criteria"), view.criteria_sha256 or t("all.unknown")),
        (t("provenance.signatures"), ", ".join(view.signatures) or t("provenance.unsigned")),
    ]


def reproduce(view: ReportView, t: Words) -> Section:
    """Return the commands that check the evidence, judge it again and measure again."""
    run = shlex.quote(f"runs/{view.folder}")
    names = [leaf(dig(view.facts, part, "name")) for part in ("site", "scenario")]
    again = f"SITE={shlex.quote(names[0])}" + ("" if view.gate == "g1" else f" SCENARIO={shlex.quote(names[1])}")
    return Section(
        "reproduce",
        t("reproduce.title"),
        (
            Para(t("reproduce.verify")), Code(f"make verify RUN={run}"),
            Para(t("reproduce.plain")), Code(f"cd {run} && sha256sum -c MANIFEST.sha256"),
            Para(t("reproduce.rejudge")), Code(f"make rejudge RUN={run}"),
            Para(t("reproduce.again")),
            Code(f"make gate-{view.gate} {'SITE=… SCENARIO=…' if view.imported else again}"),
        ),
    )  # fmt: skip


def files(view: ReportView, t: Words) -> Section:
    """Return the sealed files with their hashes, as the manifest lists them."""
    if not view.files:
        return Section("files", t("files.title"), (Para(t("files.none")),))
    rows = tuple((code(name), code(digest)) for name, digest in view.files[:FILES_SHOWN])
    says = t("files.says", n=len(view.files), sha256=view.manifest_sha256 or t("all.unknown"))
    blocks: list[Block] = [Para(says), Table("files", heads(t("files.name"), "SHA-256"), rows, (5, 6))]
    rest = len(view.files) - FILES_SHOWN
    return Section("files", t("files.title"), (*blocks, *((Para(t("files.more", n=rest)),) if rest > 0 else ())))


def unread(view: ReportView, t: Words) -> list[Block]:
    """Return the parts of the evidence that could not be read; nothing where all could."""
    if not view.unreadable:
        return []
    lines = tuple(Cell(part.where, "code", more=part.reason, more_kind="quote") for part in view.unreadable)
    return [Para(t("pictures.unreadable")), Listing(lines)]


def _one_line(record: Json) -> str:
    return "  ".join(f"{key}={leaf(value)}" for key, value in record.items())
