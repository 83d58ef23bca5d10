"""The only place where PASS is decided.

A row per criterion and step. What makes the run untrustworthy as a whole makes every row INVALID first; then the
gate: FAIL > INVALID > INCONCLUSIVE > PASS, and an empty, partial or interrupted set never passes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from gates import metrics, rule, stats
from gates.arrival import judge as arrival
from gates.criteria import Case, Criteria, Criterion, cases, load
from gates.doubts import nothing_measured, slow_recompute, strange_baseline, suite_changed
from gates.facts import Facts, gather
from gates.imports import judge as imported
from gates.looks import at_looks, ended_by
from gates.nodata import NoData
from gates.stats import Estimate
from gates.validity import unfinished
from gates.validity.breach import MISSHAPEN, misshapen
from gates.validity.ledger import attempt
from scenarios.load import ConfigError
from scenarios.model import BASELINE, CANDIDATE, RECOMPUTE
from workloads.evidence import MANIFEST, SCHEMA, Run, Trial, sha256_of, verify
from workloads.provenance import suite

Json = dict[str, Any]

PASS, FAIL, INCONCLUSIVE, INVALID = "PASS", "FAIL", "INCONCLUSIVE", "INVALID"
WORST_FIRST = (FAIL, INVALID, INCONCLUSIVE, PASS)
EXIT_STATUS = {PASS: 0, FAIL: 1, INCONCLUSIVE: 10, INVALID: 11}

SIGNIFICANT_DIGITS = 9
JUDGED_KINDS = ("gate", "selfcheck")


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
        judge_it = imported.judge if kind == imported.KIND else arrival.judge if arrives else _judge
        judged = _finish(run, *judge_it(run, [f"evidence: {fault}" for fault in faults]))
        return judged | arrival.listed(run) if arrives else judged
    except (*MISSHAPEN, OSError) as error:
        # Evidence of another shape than the format says proves nothing, whatever else it holds.
        return _finish(run, Facts(run, [], {}, [], [*faults, f"evidence cannot be read: {_told(error)}"]), [])


def decide(run: Run, valid_blocks: int) -> str:
    """Return the gate's verdict on the blocks so far, while the run goes on; INVALID where they are not that many."""
    try:
        facts, rows = _judge(run, [])
    except (*MISSHAPEN, OSError):
        return INVALID
    return _aggregate([row["verdict"] for row in rows]) if len(facts.valid) == valid_blocks else INVALID


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
    against = [f"against the run: {reason}" for reason in verdict["reasons"][:3]]
    return [*lines, *against, f"{str(verdict['gate']).upper()} verdict: {verdict['verdict']}"]


def _at(verdict: Json, row: Json) -> str:
    return "" if verdict["gate"] == arrival.GATE else f" c{row['step'] or '?'}"


def _judge(run: Run, untrusted: list[str]) -> tuple[Facts, list[Json]]:
    """Return the facts and a row per criterion and step. Raises what is in MISSHAPEN, and OSError."""
    criteria = load(run.path / "criteria.toml")
    untrusted = [*untrusted, *_contradictions(run, criteria)]
    facts = gather(run, untrusted)
    rows: list[Json] = []
    for seen in at_looks(facts, criteria.looks.blocks):
        rows = _rows(seen, criteria)
        if _aggregate([row["verdict"] for row in rows]) != INCONCLUSIVE:
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
    elif RECOMPUTE in criterion.arms and (doubt := slow_recompute(facts.run, case.step, facts.valid)):
        verdict, reason = INVALID, doubt
    else:
        estimate, verdict, reason = _compare(facts, criteria, case)
        if verdict == PASS and estimate and criterion.band_high is not None and estimate.point > criterion.band_high:
            flags.append("explain")
            reason += f"; above {_share(criterion.band_high)}, to be explained"
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
    if criterion.metric == "failed_requests":
        found, what = failed, f"{failed} of {total} requests failed"
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


def _compare(facts: Facts, criteria: Criteria, case: Case) -> tuple[Estimate | None, str, str]:
    """Judge candidate against another arm by the interval of their block log ratios."""
    criterion = case.criterion
    used, alpha = _look(facts, criteria, criterion)
    pairs = _pairs(facts.run, case, used)
    if isinstance(pairs, NoData):
        return None, INVALID, pairs.reason
    values = _log_ratios(pairs)
    needed = criterion.min_blocks or criteria.looks.blocks[0]
    if not values:
        return None, INVALID, "no data: no valid block holds both arms"
    if any(math.isinf(v) for v in values):
        return None, FAIL, f"too many requests of the candidate failed for its {criterion.metric} to be a finite value"
    if len(values) < needed:
        return None, INCONCLUSIVE, f"{len(values)} valid blocks, {needed} needed"
    log = stats.mean_interval(values, alpha)
    if told := nothing_measured(criterion, pairs, log):
        return None, INVALID, told
    estimate = _in_unit(criterion, log)
    verdict, why = _by_policy(criterion, log)
    return estimate, verdict, f"{_words(criterion, estimate)}: {why}"


def _look(facts: Facts, criteria: Criteria, criterion: Criterion) -> tuple[list[int], float]:
    """Return (blocks judged, one-sided error): those of the last look reached, so that nothing between looks counts."""
    reached = [n for n in criteria.looks.blocks if n <= len(facts.valid)]
    used = facts.valid[: reached[-1]] if reached else facts.valid
    alpha = criterion.alpha if criterion.alpha is not None else criteria.looks.alpha[len(reached) - 1 if reached else 0]
    return used, rule.attempt_alpha(alpha, attempt(facts.run))


def _pairs(run: Run, case: Case, blocks: Sequence[int]) -> list[tuple[float, float]] | NoData:
    """Return the values of (first, second arm) for each of `blocks` that holds both."""
    measure = metrics.PER_TRIAL[case.criterion.metric]
    pairs: list[tuple[float, float]] = []
    for number in blocks:
        trials = [run.trial(arm, case.step, number) for arm in case.criterion.arms]
        found: list[Trial] = [t for t in trials if t is not None]
        if len(found) < len(trials):
            continue
        mine, other = measure(found[0]), measure(found[1])
        for arm, value in zip(case.criterion.arms, (mine, other), strict=True):
            if isinstance(value, NoData):
                return NoData(f"block {number}: {arm}: {value.reason}")
            # The candidate's failures leave it an infinite time or a rate of 0; of any other arm these are no data.
            failed = math.isinf(value) or (value == 0 and case.criterion.compare == "gain")
            if math.isnan(value) or value < 0 or (failed and arm != CANDIDATE) or (value == 0 and not failed):
                return NoData(f"block {number}: {arm}: {case.criterion.metric} is {value:g}")
        assert not isinstance(mine, NoData) and not isinstance(other, NoData)  # noqa: S101  # just looked
        pairs.append((mine, other))
    return pairs


def _log_ratios(pairs: Sequence[tuple[float, float]]) -> list[float]:
    """Return ln(first / second arm) of each pair; infinite where the candidate failed."""
    return [math.log(mine / other) if 0 < mine < math.inf else math.inf for mine, other in pairs]


def _doubt_the_baseline(facts: Facts, rows: list[Json], step: int) -> None:
    """Make the comparisons with the baseline at a step INVALID where the baseline is not to be believed."""
    mine = [row for row in rows if row["arms"] == [CANDIDATE, BASELINE]]
    above_band = any("explain" in row["flags"] for row in mine)
    told = None if facts.untrusted else strange_baseline(facts.run, step, facts.valid, above_band)
    for row in mine if told is not None else ():
        # What the candidate did itself, so that there is no estimate, stays its own.
        if row["estimate"] is not None:
            row.update(verdict=INVALID, reason=told, estimate=None)


def _in_unit(criterion: Criterion, log: Estimate) -> Estimate:
    """Return the estimate as a share: reduction 1 - exp(d), gain and increase exp(x) - 1."""
    if criterion.compare == "reduction":
        return replace(log, point=-math.expm1(log.point), low=-math.expm1(log.high), high=-math.expm1(log.low))
    return replace(log, point=math.expm1(log.point), low=math.expm1(log.low), high=math.expm1(log.high))


def _by_policy(criterion: Criterion, log: Estimate) -> tuple[str, str]:
    """Return (verdict, why) of an interval in log ratio against the relaxed limit."""
    limit = rule.relaxed_limit(criterion.operator, criterion.limit, criterion.tolerance)
    edge, point = rule.edge_of(criterion.compare, limit), rule.turned(criterion.compare, log.point)
    ground = rule.ground(point, (log.high - log.low) / 2, edge, criterion.precision)
    relaxed = _share(limit) + (" (with tolerance)" if criterion.tolerance else "")
    why = {
        rule.Ground.CLEARS: f"the whole interval clears {relaxed}",
        rule.Ground.REACHES: f"the point reaches {relaxed}, measured precisely enough",
        rule.Ground.OPEN: f"the interval holds {relaxed} and is too wide: more blocks needed",
        rule.Ground.SHORT: f"the point misses {relaxed}, measured precisely enough",
        rule.Ground.MISSES: f"the whole interval misses {relaxed}",
    }
    return rule.VERDICT_OF[ground], why[ground]


def _finish(run: Run, facts: Facts, rows: list[Json]) -> Json:
    """Return verdict.json from its rows: aggregated, completed, rounded."""
    verdict = _aggregate([row["verdict"] for row in rows])
    reasons = [*facts.untrusted, *facts.notes]
    selection = run.facts.get("selection")
    collected, selected = (
        (selection.get(k) for k in ("collected", "selected")) if isinstance(selection, dict) else (0, 0)
    )
    whole = type(collected) is int and type(selected) is int and 0 < collected == len(rows) <= selected
    if verdict == PASS and not whole:
        verdict = INCONCLUSIVE
        reasons.append(f"only {selected} of {collected} tests of the gate were asked for")
    accepted = run.facts.get("rehearsal") is False and run.facts.get("kind") == "gate" and verdict == PASS
    if accepted and (changed := suite_changed(run)):
        accepted = False
        reasons.append(changed)
    manifest = run.path / MANIFEST
    result: Json = _portable(
        {
            "schema": SCHEMA,
            "gate": run.facts.get("gate"),
            "verdict": verdict,
            "rehearsal": run.facts.get("rehearsal"),
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
            "criteria_sha256": run.facts.get("criteria_sha256"),
            "suite": suite()["version"],
        },
        f"{run.path}/",
    )
    return result


def _aggregate(verdicts: Sequence[str]) -> str:
    """Return the worst; an empty set is INVALID."""
    return next((v for v in WORST_FIRST if v in verdicts), INVALID)


def _portable(value: Any, root: str) -> Any:
    """Return the value with floats cut to 9 significant digits and without the run's own path: the same anywhere."""
    if isinstance(value, float):
        return float(f"{value:.{SIGNIFICANT_DIGITS}g}") if math.isfinite(value) else None
    if isinstance(value, str):
        return value.replace(root, "")
    if isinstance(value, dict):
        return {key: _portable(inner, root) for key, inner in value.items()}
    return [_portable(inner, root) for inner in value] if isinstance(value, list) else value


def _told(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}"
    return str(error) if isinstance(error, ConfigError) else misshapen(error)


def _words(criterion: Criterion, estimate: Estimate) -> str:
    interval = f"[{_share(estimate.low)}, {_share(estimate.high)}]"
    return f"{criterion.compare} {_share(estimate.point)} {interval}, n = {estimate.n}"


def _share(value: float) -> str:
    return f"{value * 100:.1f} %"
