"""The only place where a gate's PASS is decided: its rows aggregated, completed, and written the same anywhere.

What makes the run untrustworthy as a whole makes every row INVALID first; then the gate: FAIL > INVALID >
INCONCLUSIVE > PASS, and an empty, partial or interrupted set never passes.
"""

from __future__ import annotations

import json
import math
from typing import Any

from gates import g3
from gates.arrival import judge as arrival
from gates.criteria import lacking, load
from gates.doubts import suite_changed
from gates.facts import Facts
from gates.imports import judge as imported
from gates.rule import FAIL as FAIL
from gates.rule import INCONCLUSIVE as INCONCLUSIVE
from gates.rule import INVALID as INVALID
from gates.rule import PASS as PASS
from gates.rule import WORST_FIRST, worst
from gates.validity import unfinished
from gates.validity.breach import MISSHAPEN, misshapen
from scenarios.load import ConfigError
from workloads.evidence import MANIFEST, SCHEMA, Run, sha256_of, verify
from workloads.provenance import suite

Json = dict[str, Any]

EXIT_STATUS = {PASS: 0, FAIL: 1, INCONCLUSIVE: 10, INVALID: 11}

SIGNIFICANT_DIGITS = 9
JUDGED_KINDS = ("gate", "selfcheck")
_AROUND_PATHS = (" ", "'", '"', "=", "(")


class NotJudgedError(ValueError):
    """One line: this run has no verdict by its nature."""


def judge(run: Run) -> Json:
    """Return the content of verdict.json for a sealed run.

    Raises NotJudgedError for a smoke run. Anything wrong with the evidence is a reason inside an INVALID verdict.
    """
    kind, arrives = run.facts.get("kind"), run.facts.get("gate") == arrival.GATE
    if kind not in (*JUDGED_KINDS, imported.KIND):
        raise NotJudgedError(f"{run.path}: a {run.facts.get('kind')} run has no verdict")
    faults: list[str] = []
    try:
        faults += [*verify(run.path), *([] if kind == imported.KIND or arrives else unfinished(run))]
        if sha256_of(run.path / "criteria.toml") != run.facts.get("criteria_sha256"):
            faults.append("criteria.toml: not the criteria that the run began with")
        judge_it = imported.judge if kind == imported.KIND else arrival.judge if arrives else g3.judge
        judged = _finish(run, *judge_it(run, [f"evidence: {fault}" for fault in faults]))
        return judged | arrival.listed(run) if arrives else judged
    except (*MISSHAPEN, OSError) as error:
        # Evidence of another shape than the format says proves nothing, whatever else it holds.
        return _finish(run, Facts(run, [], {}, [], [*faults, f"evidence cannot be read: {_told(error)}"]), [])


def decide(run: Run, valid_blocks: int) -> str:
    """Return the gate's verdict on the blocks so far, while the run goes on; INVALID where they are not that many."""
    try:
        facts, rows = g3.judge(run, [])
    except (*MISSHAPEN, OSError):
        return INVALID
    return worst([row["verdict"] for row in rows]) if len(facts.valid) == valid_blocks else INVALID


def to_bytes(verdict: Json) -> bytes:
    """Return verdict.json's bytes: the same for the same verdict on every machine."""
    return (json.dumps(verdict, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode(
        "utf-8", "backslashreplace"
    )


def summary_lines(verdict: Json) -> list[str]:
    """Return a line per criterion, what does not pass first, then the gate's verdict and what is against the run."""
    rows = sorted(verdict["criteria"], key=lambda row: WORST_FIRST.index(row["verdict"]))
    if len({row["reason"] for row in rows}) == 1:
        # What is wrong with the run as a whole is told once, below.
        lines = [f"{rows[0]['verdict']:<12} all {len(rows)} rows"]
    else:
        lines = [f"{row['verdict']:<12} {row['id']}{_at(verdict, row)}: {row['reason']}" for row in rows]
    # What is against the run makes every row INVALID; beside any other verdict it is a note.
    what = "against the run" if verdict["verdict"] == INVALID else "note"
    told = [f"{what}: {reason}" for reason in verdict["reasons"][:3]]
    return [*lines, *told, f"{str(verdict['gate']).upper()} verdict: {verdict['verdict']}"]


def _at(verdict: Json, row: Json) -> str:
    return "" if verdict["gate"] == arrival.GATE else f" c{row['step'] or '?'}"


def _finish(run: Run, facts: Facts, rows: list[Json]) -> Json:
    """Return verdict.json from its rows: aggregated, completed, rounded."""
    verdict = worst([row["verdict"] for row in rows])
    reasons = [*facts.untrusted, *facts.notes]
    selection = run.facts.get("selection")
    collected, selected = (
        (selection.get(k) for k in ("collected", "selected")) if isinstance(selection, dict) else (0, 0)
    )
    whole = type(collected) is int and type(selected) is int and 0 < collected == len(rows) == selected
    if verdict == PASS and not whole:
        verdict = INCONCLUSIVE
        reasons.append(f"only {selected} of {collected} tests of the gate were asked for")
    accepted = run.facts.get("rehearsal") is False and run.facts.get("kind") == "gate" and verdict == PASS
    if accepted and (changed := suite_changed(run)):
        accepted = False
        reasons.append(changed)
    if accepted and run.facts.get("gate") != arrival.GATE and (missing := lacking(load(run.path / "criteria.toml"))):
        accepted = False
        reasons += [f"no acceptance: {told}" for told in missing]
    manifest = run.path / MANIFEST
    result: Json = _portable(
        {
            "schema": SCHEMA,
            "gate": _scalar(run.facts.get("gate")),
            "verdict": verdict,
            "rehearsal": _scalar(run.facts.get("rehearsal")),
            "attempt": number if type(number := run.facts.get("attempt")) is int else None,
            "acceptance": accepted,
            "reasons": reasons,
            "criteria": rows,
            "blocks": {
                "valid": facts.valid,
                "invalid": [{"block": number, "reasons": told} for number, told in facts.invalid.items()],
            },
            "breaches": [b.to_json() for b in facts.breaches],
            "outputs": facts.outputs,
            "calibration": facts.calibration,
            "manifest_sha256": sha256_of(manifest) if manifest.is_file() else None,
            "criteria_sha256": _scalar(run.facts.get("criteria_sha256")),
            "suite": suite()["version"],
        },
        _OwnPath(run),
    )
    return result


class _OwnPath:
    """Takes out of a text where the run lies, and where it lay when the text was recorded: its folder had its id."""

    def __init__(self, run: Run) -> None:
        run_id = run.facts.get("run_id")
        self._lies = f"{run.path}/"
        self._lay = f"/{run_id}/" if isinstance(run_id, str) and run_id else None

    def out_of(self, text: str) -> str:
        text = text.replace(self._lies, "")
        if self._lay is None or self._lay not in text:
            return text
        *before, last = text.split(self._lay)
        return "".join([*(part[: 1 + max(map(part.rfind, _AROUND_PATHS))] for part in before), last])


def _scalar(value: object) -> object:
    """Return what run.json says in one word; None for anything deeper, which is no such word."""
    return value if isinstance(value, str | int | float | None) else None


def _portable(value: Any, root: _OwnPath) -> Any:
    """Return the value with floats cut to 9 significant digits and without the run's own path: the same anywhere."""
    if isinstance(value, float):
        return float(f"{value:.{SIGNIFICANT_DIGITS}g}") if math.isfinite(value) else None
    if isinstance(value, str):
        return root.out_of(value)
    if isinstance(value, dict):
        return {key: _portable(inner, root) for key, inner in value.items()}
    return [_portable(inner, root) for inner in value] if isinstance(value, list) else value


def _told(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}"
    return str(error) if isinstance(error, ConfigError) else misshapen(error)
