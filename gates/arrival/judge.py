"""The rows of a G1 verdict from what was collected: declared, found, and the file that shows it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from pydantic import ValidationError

from gates.arrival import limits as limit_files
from gates.arrival.check import INVALID, Check, Finding, Plan
from gates.arrival.host import Host
from gates.arrival.plan import plan
from gates.facts import Facts
from gates.stats import Estimate
from gates.validity.breach import MISSHAPEN, misshapen
from scenarios.bom import Bom
from workloads.arrival_run import AFTER, BEFORE, FIO, GATE
from workloads.bundle import Bundle, BundleError, open_bundle
from workloads.evidence import EvidenceError, Run
from workloads.plain import shown
from workloads.seal import unended

Json = dict[str, Any]

__all__ = ["GATE", "judge", "listed"]

NOTHING = "the site declares nothing that G1 could check: fill its [bom], see docs/g1.md"


def judge(run: Run, untrusted: Sequence[str]) -> tuple[Facts, list[Json]]:
    """Return facts and rows of a G1 run; `untrusted` is what is already held against it.

    Raises EvidenceError, ConfigError, OSError, and what reading a run.json of another shape raises.
    """
    limits = limit_files.load(run.path / "criteria.toml")
    planned = plan(_bom(run), limits)
    against = [*untrusted, *(f"evidence: {line}" for line in unended(run.path)), *_against(run)]
    if not planned.checks:
        against.append(NOTHING)
    host = _host(run)
    rows = [_row(check, _found(check, host, against)) for check in planned.checks]
    return Facts(run, [], {}, [], against), rows


def listed(run: Run) -> Json:
    """Return what verdict.json of a G1 says besides its rows: what the site does not declare, and what was judged."""
    limits = limit_files.load(run.path / "criteria.toml")
    planned: Plan = plan(_bom(run), limits)
    return {
        "not_declared": [{"id": name, "metric": metric} for name, metric in planned.not_declared],
        "bundle": run.facts.get("bundle"),
    }


def _bom(run: Run) -> Bom | None:
    found = run.facts["site"].get("bom")
    try:
        return Bom.model_validate(found) if found is not None else None
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in ("site", "bom", *fault["loc"]))
        raise EvidenceError(f"run.json: {place}: {' '.join(fault['msg'].split())}") from None


def _against(run: Run) -> list[str]:
    """Return what speaks against the run as a whole."""
    site = run.facts["site"]
    told = [
        f"run.json: {key} is {found!r}, {wanted!r} {where}"
        for key, found, wanted, where in (
            ("gate", run.facts["gate"], GATE, "is judged here"),
            ("rehearsal", run.facts["rehearsal"], site["rehearsal"], "in its site"),
        )
        if found != wanted
    ]
    return told + [f"{i['kind']}: {i['message']}" for i in run.incidents() if i["whose"] == "harness"]


def _host(run: Run) -> Host:
    """Return what was collected, after a load too where that was done, and what fio printed."""
    after = _opened(run, AFTER)
    named = sorted(file.parent.name for file in (run.path / FIO).glob("*/INDEX.tsv"))
    fio = {name: Host(found, f"{FIO}/{name}") for name in named if (found := _opened(run, f"{FIO}/{name}")) is not None}
    return Host(
        _opened(run, BEFORE) or Bundle(()),  # nothing collected: every check says so
        BEFORE,
        after=Host(after, AFTER) if after is not None else None,
        fio=fio,
    )


def _opened(run: Run, folder: str) -> Bundle | None:
    try:
        return open_bundle(run.path / folder) if (run.path / folder / "INDEX.tsv").exists() else None
    except BundleError as error:
        raise EvidenceError(str(error)) from None


def _found(check: Check, host: Host, against: Sequence[str]) -> Finding:
    if against:
        return Finding(INVALID, None, against[0])
    try:
        return check.look(host)
    except MISSHAPEN as error:  # a fault of ours in one check leaves the others their verdict
        return Finding(INVALID, None, f"no data: the check could not be carried out: {misshapen(error)}")


def _row(check: Check, found: Finding) -> Json:
    """Return one row of verdict.json: what the contract asks of every gate's, then declared, found and raw."""
    limit, value = check.limit, found.value
    estimate = None if value is None else asdict(Estimate(value, value, value, 1.0, 1, "read"))
    return {
        "id": check.id,
        "metric": check.metric,
        "arms": [],
        "step": None,
        "operator": limit.operator if limit is not None else "==",
        "limit": limit.limit if limit is not None else None,
        "tolerance": 0.0,
        "unit": limit.unit if limit is not None else "",
        "policy": "exact",
        "estimate": estimate,
        "verdict": found.verdict,
        "reason": shown(" ".join(found.reason.split())),
        "flags": [],
        "declared": check.declared,
        "found": None if found.found is None else shown(" ".join(found.found.split())),
        "raw": list(found.raw),
    }
