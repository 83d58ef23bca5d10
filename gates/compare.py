"""One comparison of the candidate with another arm: blocks to log ratios, interval, ground and verdict."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from gates import metrics, rule, stats
from gates.criteria import Case, Criteria, Criterion
from gates.doubts import nothing_measured, slow_recompute
from gates.facts import Facts
from gates.nodata import NoData
from gates.rule import FAIL, INCONCLUSIVE, INVALID, PASS
from gates.stats import Estimate
from gates.validity.ledger import attempt
from scenarios.model import CANDIDATE, RECOMPUTE
from workloads.evidence import Run, Trial


def judged(facts: Facts, criteria: Criteria, case: Case) -> tuple[Estimate | None, str, str, list[str]]:
    """Return (estimate, verdict, reason, flags) of a comparison. Raises what is in MISSHAPEN."""
    criterion = case.criterion
    if RECOMPUTE in criterion.arms and (doubt := slow_recompute(facts.run, case.step, facts.valid)):
        return None, INVALID, doubt, []
    estimate, verdict, reason = _compare(facts, criteria, case)
    if verdict == PASS and estimate and criterion.band_high is not None and estimate.point > criterion.band_high:
        return estimate, verdict, f"{reason}; above {_share(criterion.band_high)}, to be explained", ["explain"]
    return estimate, verdict, reason, []


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
        rule.Ground.OPEN: f"the interval holds {relaxed} and is too wide to decide",
        rule.Ground.SHORT: f"the point misses {relaxed}, measured precisely enough",
        rule.Ground.MISSES: f"the whole interval misses {relaxed}",
    }
    return rule.VERDICT_OF[ground], why[ground]


def _words(criterion: Criterion, estimate: Estimate) -> str:
    interval = f"[{_share(estimate.low)}, {_share(estimate.high)}]"
    return f"{criterion.compare} {_share(estimate.point)} {interval}, n = {estimate.n}"


def _share(value: float) -> str:
    return f"{value * 100:.1f} %"
