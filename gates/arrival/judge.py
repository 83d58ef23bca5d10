"""The rows of a G1 verdict from what was collected: declared, found, and the file that shows it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any
from unicodedata import east_asian_width

from pydantic import ValidationError

from gates.arrival import limits as limit_files
from gates.arrival import machine
from gates.arrival.check import INVALID, Check, Finding, Plan
from gates.arrival.host import Host
from gates.arrival.plan import plan
from gates.facts import Facts
from gates.nodata import NoData
from gates.readers import versions
from gates.stats import Estimate
from gates.validity.breach import MISSHAPEN, misshapen
from gates.validity.places import foreign, of_arrival
from scenarios.bom import Bom
from workloads.arrival_run import AFTER, BEFORE, FIO, GATE
from workloads.bundle import Bundle, BundleError, open_bundle
from workloads.evidence import EvidenceError, Run
from workloads.plain import shown
from workloads.seal import unended

Json = dict[str, Any]

__all__ = ["GATE", "judge", "listed"]

DATE = ("date", "-u", "+%Y-%m-%dT%H:%M:%SZ")
NOTHING = "the site declares nothing that G1 could check: fill its [bom], see docs/g1.md"


def judge(run: Run, untrusted: Sequence[str]) -> tuple[Facts, list[Json]]:
    """Return facts and rows of a G1 run; `untrusted` is what is already held against it.

    Raises EvidenceError, ConfigError, OSError, and what reading a run.json of another shape raises.
    """
    limits = limit_files.load(run.path / "criteria.toml")
    planned = plan(_bom(run), limits)
    against = [*untrusted, *(f"evidence: {line}" for line in unended(run.path)), *_against(run)]
    against += [f"places: {line}" for line in foreign(run, of_arrival(run))]
    if not planned.checks:
        against.append(NOTHING)
    host = _host(run)
    if host.after is not None and None not in (host.boot_id, host.after.boot_id) and host.boot_id != host.after.boot_id:
        against.append(f"the host started anew during the check: boot {host.boot_id} became {host.after.boot_id}")
    rows = [_row(check, _found(check, host, against)) for check in planned.checks]
    return Facts(run, [], {}, [], against), rows


def listed(run: Run) -> Json:
    """Return what verdict.json of a G1 says besides its rows: what the site does not declare, and what was judged."""
    limits = limit_files.load(run.path / "criteria.toml")
    planned: Plan = plan(_bom(run), limits)
    return {
        "not_declared": [{"id": name, "metric": metric} for name, metric in planned.not_declared],
        "bundle": run.facts.get("bundle"),
        "collected": _collected(_host(run)),
    }


def _collected(host: Host) -> Json:
    """Return which host was looked at, in which boot and when, by its own word; null where it does not tell."""
    kernel = host.read(versions.kernel, machine.UNAME)
    date = host.bundle.find(*DATE)
    told = date.stdout.decode("utf-8", "replace").strip() if date is not None and date.status == 0 else ""
    return {
        "host": None if isinstance(kernel.value, NoData) or kernel.value.host is None else shown(kernel.value.host),
        "boot_id": host.boot_id,
        "utc": told if re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", told) else None,
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
        "reason": _line(found.reason),
        "flags": [],
        "declared": _line(check.declared),
        "found": None if found.found is None else _line(found.found),
        "raw": list(found.raw),
    }


def _line(text: str) -> str:
    """Return one printable line; letters that look like others, as a Cyrillic C, are shown by their number."""
    plain = shown(" ".join(text.split()))
    return "".join(
        c if c.isascii() or east_asian_width(c) == "W" else c.encode("unicode_escape").decode() for c in plain
    )
