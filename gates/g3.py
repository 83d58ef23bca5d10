"""The rows of a G3 verdict: one per criterion and step, as of the look that decided."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from gates import compare, metrics
from gates.criteria import Case, Criteria, cases, load
from gates.doubts import strange_baseline
from gates.facts import Facts, gather
from gates.looks import at_looks, ended_by
from gates.rule import FAIL, INCONCLUSIVE, INVALID, PASS, worst
from gates.stats import Estimate
from gates.validity import unbounded
from gates.validity.breach import HOST
from gates.validity.records import name_of
from scenarios.model import BASELINE, CANDIDATE
from workloads.evidence import Run

Json = dict[str, Any]


def judge(run: Run, untrusted: list[str]) -> tuple[Facts, list[Json]]:
    """Return the facts and a row per criterion and step. Raises what is in MISSHAPEN, and OSError."""
    criteria = load(run.path / "criteria.toml")
    untrusted = [*untrusted, *_contradictions(run, criteria)]
    if told := unbounded(run):
        return Facts(run, [], {}, [], [*untrusted, *told]), []
    facts = gather(run, untrusted)
    rows: list[Json] = []
    for look in at_looks(facts, criteria.looks.blocks):
        seen = look.as_judged(criteria.looks.blocks)
        rows = _rows(seen, criteria)
        if worst([row["verdict"] for row in rows]) != INCONCLUSIVE:
            facts = replace(facts, untrusted=seen.untrusted)
            facts = replace(facts, notes=[*facts.notes, *ended_by(facts, seen)])
            break
    return facts, rows


def _rows(facts: Facts, criteria: Criteria) -> list[Json]:
    """Return a row per criterion and step, in the criteria's order, on the blocks that one look saw."""
    rows: list[Json] = []
    for step in facts.run.facts["scenario"]["steps"]:
        mine = [_row(facts, criteria, case) for case in cases(criteria, [int(step)])]
        _doubt_the_baseline(facts, mine, int(step))
        rows += mine
    order = [criterion.id for criterion in criteria.criterion]
    return sorted(rows, key=lambda row: order.index(row["id"]))


def _contradictions(run: Run, criteria: Criteria) -> list[str]:
    """Return where run.json is not of one piece with the sealed criteria or with its own site."""
    looks = {"blocks": list(criteria.looks.blocks), "alpha": list(criteria.looks.alpha)}
    return [
        f"run.json: {key} is {found!r}, {wanted!r} in {where}"
        for key, found, wanted, where in (
            ("gate", run.facts["gate"], criteria.gate, "criteria.toml"),
            ("looks", run.facts["looks"], looks, "criteria.toml"),
            ("rehearsal", run.facts["rehearsal"], run.facts["site"]["rehearsal"], "its site"),
        )
        if found != wanted
    ] + _stand_ins(run)


def _stand_ins(run: Run) -> list[str]:
    """Return what of the site is a stand-in though the run is not called a rehearsal."""
    site = run.facts["site"]
    if run.facts["rehearsal"] is True:
        return []
    emulated = [f"tier {name} is emulated" for name, tier in site["tiers"].items() if tier["kind"] == "emulated"]
    generated = [
        f"model {name} is generated" for name, model in site["models"].items() if model["source"] == "generated"
    ]
    return [f"run.json: not called a rehearsal, but {told}" for told in (*emulated, *generated)]


def _row(facts: Facts, criteria: Criteria, case: Case) -> Json:
    """Return one row of verdict.json."""
    criterion = case.criterion
    estimate: Estimate | None = None
    flags: list[str] = []
    if facts.untrusted:
        verdict, reason = INVALID, facts.untrusted[0]
    elif criterion.compare == "count":
        estimate, verdict, reason = _count(facts, case)
    else:
        estimate, verdict, reason, flags = compare.judged(facts, criteria, case)
    return {
        "id": criterion.id,
        "metric": criterion.metric,
        "arms": list(criterion.arms),
        "step": case.step,
        "operator": criterion.operator,
        "limit": criterion.limit,
        "tolerance": criterion.tolerance,
        "unit": criterion.unit,
        "policy": criterion.policy,
        "estimate": asdict(estimate) if estimate is not None else None,
        "verdict": verdict,
        "reason": reason,
        "flags": flags,
    }


def _count(facts: Facts, case: Case) -> tuple[Estimate | None, str, str]:
    """Judge a count of the candidate's own failures over everything measured: none is washed out by a rerun."""
    criterion, arm = case.criterion, case.criterion.arms[0]
    trials = [t for t in facts.run.trials() if (t.facts["arm"], t.facts["step"]) == (arm, case.step)]
    failed, total = metrics.failed_requests(trials)
    stepped = {b.trial for b in facts.breaches if (b.check, b.whose) == ("clock", HOST)}
    unclear, _ = metrics.failed_requests(trial for trial in trials if name_of(trial) in stepped)
    if criterion.metric == "failed_requests":
        found, what = failed - unclear, f"{failed - unclear} of {total} requests failed"
        if unclear and found <= criterion.limit:
            # The client takes an answer from before its request for none.
            told = f"{unclear} of {total} requests failed while the host's clock was stepped"
            return None, INVALID, f"{told}: nobody can say whether they did"
    else:
        mine = [b for b in facts.breaches if b.whose == arm and b.check != "errors"]
        mine = [b for b in mine if b.trial == "run" or f"/c{case.step}/" in b.trial]
        found = len(mine)
        what = f"{found} in {total} requests" + (f", the first: {mine[0].reason}" if mine else "")
        what += "".join(f"; {line}" for line in facts.outputs if not mine and line.startswith(f"{arm}: "))
    if found > criterion.limit:
        return Estimate(found, found, found, 1.0, total, "count"), FAIL, what
    if total == 0:
        return None, INVALID, "no request was measured"
    return Estimate(found, found, found, 1.0, total, "count"), PASS, what


def _doubt_the_baseline(facts: Facts, rows: list[Json], step: int) -> None:
    """Make the comparisons with the baseline at a step INVALID where the baseline is not to be believed."""
    mine = [row for row in rows if row["arms"] == [CANDIDATE, BASELINE]]
    above_band = any("explain" in row["flags"] for row in mine)
    told = None if facts.untrusted else strange_baseline(facts.run, step, facts.valid, above_band)
    for row in mine if told is not None else ():
        # What the candidate did itself, so that there is no estimate, stays its own.
        if row["estimate"] is not None:
            row.update(verdict=INVALID, reason=told, estimate=None)
