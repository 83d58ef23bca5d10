"""The whole gate, many times over: truths and noise in, shares of verdicts out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gates import rule, stats
from gates.criteria import Criteria, Criterion
from gates.oc.noise import Noise
from gates.rule import Ground
from gates.stats import Estimate
from scenarios.model import BASELINE, CANDIDATE

TTFT, THROUGHPUT = "ttft_p50_s", "output_tokens_per_s"
CHUNK = 10_000  # repetitions drawn at once
DEFAULT_PRECISION = 0.03
# Published R2 figures at three steps, candidate over baseline; the last gain is assumed.
R2_RATIOS, R2_GAINS = (0.74, 0.68, 0.7375), (1.29, 1.40, 1.33)


@dataclass(frozen=True)
class Requirement:
    """One criterion at one step, turned so that more is better: where it really stands, and how blocks scatter."""

    edge: float
    precision: float | None
    truth: float
    sd: float
    column: int  # of real noise: 0 TTFT and other times, 1 throughput
    step: int
    alpha: float | None = None  # of its own, whatever the look's
    min_blocks: int = 0  # before them nothing is decided


@dataclass(frozen=True)
class Outcome:
    """Shares of runs by verdict, with 95 % Wilson intervals, and the mean number of blocks with a 95 % interval."""

    pass_: Estimate
    fail: Estimate
    inconclusive: Estimate
    mean_blocks: Estimate


def compared(criteria: Criteria) -> list[Criterion]:
    """Return the criteria on TTFT p50 and throughput against the baseline: those whose truth is asked for."""
    return [c for c in criteria.criterion if _against_baseline(c) and c.metric in (TTFT, THROUGHPUT)]


def guards(criteria: Criteria) -> list[Criterion]:
    """Return the other comparisons with the baseline."""
    return [c for c in criteria.criterion if _against_baseline(c) and c.metric not in (TTFT, THROUGHPUT)]


def with_policy(criteria: Criteria, policy: str) -> Criteria:
    """Return the criteria with this policy for what `compared` returns; `measured` keeps or gets a precision."""
    changed = {c.id for c in compared(criteria)}

    def changed_to(criterion: Criterion) -> Criterion:
        precision = (criterion.precision or DEFAULT_PRECISION) if policy == "measured" else None
        update: dict[str, Any] = {"policy": policy, "precision": precision}
        return criterion.model_copy(update=update) if criterion.id in changed else criterion

    return criteria.model_copy(update={"criterion": tuple(map(changed_to, criteria.criterion))})


def requirements(
    criteria: Criteria,
    true_ttft_ratios: Sequence[float],
    true_gains: Sequence[float],
    sd_ttft: float,
    sd_throughput: float,
    guard_sd: float | None = None,
) -> list[Requirement]:
    """Return a requirement per criterion and step. Ratios are candidate over baseline: TTFT 0.75, throughput 1.29.

    Comparisons with recompute and counts are left out, as if they passed. So are the guards, unless `guard_sd` says
    how their blocks scatter: then their true increase is 0.

    Raises:
        ValueError: steps that do not pair, a ratio or sd that is not a positive number, or nothing to compare.
    """
    ratios, gains = list(true_ttft_ratios), list(true_gains)
    spreads = [sd_ttft, sd_throughput, *([] if guard_sd is None else [guard_sd])]
    if len(ratios) != len(gains) or not ratios:
        raise ValueError("each step needs one true TTFT ratio and one true throughput ratio")
    if not all(math.isfinite(v) and v > 0 for v in (*ratios, *gains)) or not all(0 <= sd < math.inf for sd in spreads):
        raise ValueError("true ratios are positive numbers, and an sd is not negative")
    found = [
        _requirement(c, step, *((ratio, sd_ttft) if c.metric == TTFT else (gain, sd_throughput)))
        for c in compared(criteria)
        for step, (ratio, gain) in enumerate(zip(ratios, gains, strict=True))
    ]
    if not found:
        raise ValueError("no criterion compares the candidate's TTFT p50 or throughput with the baseline's")
    if guard_sd is not None:
        found += [_requirement(c, step, 1.0, guard_sd) for c in guards(criteria) for step in range(len(ratios))]
    return found


def away_from_limit(rows: Sequence[Requirement], precisions: float) -> list[Requirement]:
    """Return the rows with their truth that many precisions inside (or, below 0, short of) the relaxed limit."""
    return [replace(row, truth=row.edge + precisions * (row.precision or DEFAULT_PRECISION)) for row in rows]


def p_pass(
    criteria: Criteria,
    true_ttft_ratios: Sequence[float],
    true_gains: Sequence[float],
    sd_ttft: float = 0.03,
    sd_throughput: float = 0.03,
    repetitions: int = 20_000,
    seed: int = 1,
    *,
    noise: Noise | None = None,
    attempt: int = 1,
) -> Outcome:
    """Return how often a gate run comes out as what, where the truth is this at each step.

    Both ratios are candidate over baseline (0.75 and 1.29); sd is of a block's log ratio. See `requirements` for what
    is left out and its errors.
    """
    rows = requirements(criteria, true_ttft_ratios, true_gains, sd_ttft, sd_throughput)
    return simulate(rows, criteria, noise or Noise(), repetitions, seed, attempt=attempt)


def simulate(
    rows: Sequence[Requirement], criteria: Criteria, noise: Noise, repetitions: int, seed: int, *, attempt: int = 1
) -> Outcome:
    """Return the outcome of the looks of `criteria` on `rows`: the same numbers for the same seed.

    Raises:
        ValueError: no row, or no repetition.
    """
    if not rows or repetitions < 1:
        raise ValueError("a simulation needs requirements and repetitions")
    rng = np.random.default_rng(seed)
    counts = dict.fromkeys((Ground.CLEARS, Ground.MISSES, Ground.OPEN), 0)
    at_look = np.zeros(len(criteria.looks.blocks), dtype=np.int64)
    for begin in range(0, repetitions, CHUNK):
        ends, last = _runs(rows, criteria, noise, min(CHUNK, repetitions - begin), rng, attempt)
        for end in counts:
            counts[end] += int(np.sum(ends == end))
        at_look += np.bincount(last, minlength=len(at_look))
    passed, failed, undecided = (stats.wilson(count, repetitions) for count in counts.values())
    return Outcome(passed, failed, undecided, _mean_blocks(np.array(criteria.looks.blocks), at_look))


def _runs(
    rows: Sequence[Requirement],
    criteria: Criteria,
    noise: Noise,
    repetitions: int,
    rng: np.random.Generator,
    attempt: int,
) -> tuple[rule.Codes, rule.Integers]:
    values = noise.draw(rng, repetitions, criteria.looks.blocks, rows) + np.array([row.truth for row in rows])
    looks: list[rule.Codes] = []
    for blocks, alpha in zip(criteria.looks.blocks, criteria.looks.alpha, strict=True):
        judged = values[:, : blocks * noise.per_block()]
        mean, sd = judged.mean(axis=1), judged.std(axis=1, ddof=1)
        found: list[rule.Codes] = []
        for i, row in enumerate(rows):
            own = rule.attempt_alpha(alpha if row.alpha is None else row.alpha, attempt)
            half = stats.half_width(sd[:, i], judged.shape[1], own)
            known = mean[:, i] if blocks >= row.min_blocks else np.full(repetitions, math.nan)
            found.append(rule.grounds(known, half, row.edge, row.precision))
        looks.append(np.stack(found, axis=-1))
    return rule.sequential(looks)


def _mean_blocks(blocks: rule.Integers, at_look: rule.Integers) -> Estimate:
    n = int(at_look.sum())
    mean = float((blocks * at_look).sum() / n)
    spread = math.sqrt(float((at_look * (blocks - mean) ** 2).sum()) / n)
    half = 1.96 * spread / math.sqrt(n)
    return Estimate(mean, mean - half, mean + half, 0.95, n, "normal interval of the mean number of blocks")


def _requirement(criterion: Criterion, step: int, ratio: float, sd: float) -> Requirement:
    limit = rule.relaxed_limit(criterion.operator, criterion.limit, criterion.tolerance)
    edge, truth = rule.edge_of(criterion.compare, limit), rule.turned(criterion.compare, math.log(ratio))
    column = int(criterion.compare == "gain")
    return Requirement(edge, criterion.precision, truth, sd, column, step, criterion.alpha, criterion.min_blocks or 0)


def _against_baseline(criterion: Criterion) -> bool:
    return criterion.arms == (CANDIDATE, BASELINE)
