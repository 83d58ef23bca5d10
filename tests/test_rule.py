"""The rule, on cases made by hand and on properties that it must have; and that the judge comes to the same."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gates import compare, criteria, rule, stats, verdict
from gates.rule import Ground
from tests.synthetic import make_run
from tests.synthetic_truth import Truth
from workloads.evidence import Run

EDGE, PRECISION = 0.25, 0.03
ORDER = {"FAIL": 0, "INCONCLUSIVE": 1, "PASS": 2}

BY_HAND = [  # mean, half width, with precision, without
    (0.30, 0.04, Ground.CLEARS, Ground.CLEARS),
    (0.3125, 0.0625, Ground.CLEARS, Ground.CLEARS),  # the bound exactly on the edge
    (0.26, 0.03, Ground.REACHES, Ground.OPEN),  # exactly the precision
    (0.25, 0.02, Ground.REACHES, Ground.OPEN),  # exactly on the edge
    (0.26, 0.0301, Ground.OPEN, Ground.OPEN),
    (0.24, 0.0301, Ground.OPEN, Ground.OPEN),
    (0.24, 0.03, Ground.SHORT, Ground.OPEN),
    (0.20, 0.04, Ground.MISSES, Ground.MISSES),
    (0.25, 0.0, Ground.CLEARS, Ground.CLEARS),
    (0.2499, 0.0, Ground.MISSES, Ground.MISSES),
    (0.25, math.inf, Ground.OPEN, Ground.OPEN),
    (math.nan, 0.01, Ground.OPEN, Ground.OPEN),
    (0.9, math.nan, Ground.OPEN, Ground.OPEN),
    (math.inf, 0.01, Ground.OPEN, Ground.OPEN),
    (-math.inf, 0.01, Ground.OPEN, Ground.OPEN),
    (0.9, -0.01, Ground.OPEN, Ground.OPEN),
]


@pytest.mark.parametrize(("mean", "half", "measured", "proven"), BY_HAND)
def test_cases_made_by_hand(mean: float, half: float, measured: Ground, proven: Ground) -> None:
    assert rule.ground(mean, half, EDGE, PRECISION) == measured
    assert rule.ground(mean, half, EDGE, None) == proven
    assert rule.outcome(mean, half, EDGE, None) == rule.VERDICT_OF[proven]


def test_many_at_once_are_judged_as_one_by_one() -> None:
    means, halves = np.array([case[0] for case in BY_HAND]), np.array([case[1] for case in BY_HAND])
    for precision in (PRECISION, None):
        one_by_one = [rule.ground(m, h, EDGE, precision) for m, h in zip(means, halves, strict=True)]
        assert rule.grounds(means, halves, EDGE, precision).tolist() == one_by_one


def test_the_words_are_the_judges() -> None:
    assert (rule.PASS, rule.FAIL, rule.INCONCLUSIVE) == (verdict.PASS, verdict.FAIL, verdict.INCONCLUSIVE)
    assert set(rule.VERDICT_OF) == set(Ground)


numbers = st.floats(-2, 2)
halves = st.floats(0, 1)
precisions = st.none() | st.floats(0.001, 0.5)


@given(numbers, numbers, halves, numbers, precisions)
def test_a_better_effect_is_never_judged_worse(a: float, b: float, half: float, edge: float, p: float | None) -> None:
    worse, better = sorted((a, b))
    assert ORDER[rule.outcome(worse, half, edge, p)] <= ORDER[rule.outcome(better, half, edge, p)]


@given(numbers, halves, numbers, numbers, precisions)
def test_a_higher_limit_is_never_easier(mean: float, half: float, a: float, b: float, p: float | None) -> None:
    lower, higher = sorted((a, b))
    assert ORDER[rule.outcome(mean, half, higher, p)] <= ORDER[rule.outcome(mean, half, lower, p)]


@given(numbers, halves, numbers, precisions)
def test_both_sides_are_treated_alike(mean: float, half: float, edge: float, p: float | None) -> None:
    if mean == edge or mean - half == edge or mean + half == edge:
        return  # exactly on the limit is a PASS, by the requirement's own ">="
    mirrored = rule.outcome(-mean, half, -edge, p)
    assert rule.outcome(mean, half, edge, p) == {"PASS": "FAIL", "FAIL": "PASS"}.get(mirrored, mirrored)


@given(
    st.integers(-64, 64), st.integers(0, 64), st.integers(-64, 64), st.none() | st.integers(1, 16), st.integers(-4, 4)
)
def test_the_unit_does_not_matter(mean: int, half: int, edge: int, p: int | None, power: int) -> None:
    by = 2.0**power  # exact in floating point
    scaled = rule.outcome(mean * by, half * by, edge * by, None if p is None else p * by)
    assert scaled == rule.outcome(mean, half, edge, p)


@given(numbers, halves, numbers, st.floats(0.001, 0.5))
def test_proven_never_decides_what_measured_decides_otherwise(mean: float, half: float, edge: float, p: float) -> None:
    proven = rule.outcome(mean, half, edge, None)
    assert proven in ("INCONCLUSIVE", rule.outcome(mean, half, edge, p))


@given(numbers, halves, halves, numbers)
def test_proven_never_turns_over_by_precision_alone(mean: float, a: float, b: float, edge: float) -> None:
    narrow, wide = sorted((a, b))
    found = rule.outcome(mean, wide, edge, None)
    assert found in ("INCONCLUSIVE", rule.outcome(mean, narrow, edge, None))


@pytest.mark.parametrize(
    ("compare", "operator", "limit", "tolerance", "ratio"),
    [("reduction", ">=", 0.25, 0.0, 0.75), ("gain", ">=", 0.29, 0.02, 1.27), ("increase", "<=", 0.105, 0.01, 1.115)],
)
def test_the_edge_is_the_relaxed_limit(
    compare: str, operator: str, limit: float, tolerance: float, ratio: float
) -> None:
    edge = rule.edge_of(compare, rule.relaxed_limit(operator, limit, tolerance))
    assert edge == pytest.approx(rule.turned(compare, math.log(ratio)), abs=1e-12)
    better = 1.01 * ratio if compare == "gain" else 0.99 * ratio
    assert rule.turned(compare, math.log(better)) > edge


def test_a_count_has_no_edge() -> None:
    with pytest.raises(ValueError, match="no comparison"):
        rule.edge_of("count", 0.1)


C, R, O, S, M = Ground.CLEARS, Ground.REACHES, Ground.OPEN, Ground.SHORT, Ground.MISSES  # noqa: E741


@pytest.mark.parametrize(
    ("rows", "end"),
    [([C, R], C), ([C, O], O), ([C, S], M), ([O, M], M), ([S], M), ([R], C), ([O], O), ([M, M], M)],
)
def test_any_fail_fails_and_pass_needs_all(rows: list[Ground], end: Ground) -> None:
    assert int(rule.gate(np.array(rows, dtype=np.int8))) == end


@pytest.mark.parametrize(
    ("looks", "end", "last"),
    [
        ([[C, C], [M, M], [M, M]], C, 0),  # ended at the first look: what comes later does not count
        ([[C, S], [C, C], [C, C]], M, 0),
        ([[C, O], [C, R], [M, M]], C, 1),
        ([[C, O], [S, C], [C, C]], M, 1),  # a row that had passed is judged again
        ([[O, O], [O, C], [C, C]], C, 2),
        ([[O, O], [O, O], [C, O]], O, 2),
    ],
)
def test_the_first_look_that_decides_ends_the_run(looks: list[list[Ground]], end: Ground, last: int) -> None:
    found = rule.sequential([np.array(look, dtype=np.int8) for look in looks])
    assert (int(found[0]), int(found[1])) == (end, last)


def test_nothing_never_passes() -> None:
    with pytest.raises(ValueError, match="at least one criterion"):
        rule.gate(np.zeros((3, 0), dtype=np.int8))
    with pytest.raises(ValueError, match="needs looks"):
        rule.sequential([])
    with pytest.raises(ValueError, match="same criteria"):
        rule.sequential([np.zeros((3, 2), dtype=np.int8), np.zeros((3, 1), dtype=np.int8)])


def test_later_attempts_have_smaller_errors() -> None:
    assert [rule.attempt_alpha(0.012, k) for k in (1, 2, 3)] == pytest.approx([0.012, 0.006, 0.004])
    with pytest.raises(ValueError, match="counted from 1"):
        rule.attempt_alpha(0.01, 0)


@pytest.mark.parametrize(
    ("candidate_s", "noise", "blocks"),
    [(0.6, 0.01, 5), (0.9, 0.02, 5), (0.88, 0.05, 8), (1.1, 0.01, 5), (0.85, 0.2, 12)],
)
def test_the_judge_comes_to_what_the_rule_says(tmp_path: Path, candidate_s: float, noise: float, blocks: int) -> None:
    """From the log ratios of the blocks on, by hand: mean, half width, edge, and nothing else."""
    ttft = {"recompute": 3.0, "baseline": 1.2, "candidate": candidate_s}
    run = Run(make_run(tmp_path, Truth(ttft_s=ttft, noise=noise, blocks=blocks)))
    loaded = criteria.load(criteria.default_file("g3"))
    rows: dict[Any, Any] = {(r["id"], r["step"]): r for r in verdict.judge(run)["criteria"]}
    expected: dict[Any, str] = {}
    for count, alpha in zip(loaded.looks.blocks, loaded.looks.alpha, strict=True):
        if count > blocks:
            break
        expected = {}
        for case in criteria.cases(loaded, (2, 4)):
            one = case.criterion
            if one.compare == "count":
                continue
            pairs = compare._pairs(run, case, range(1, count + 1))
            assert isinstance(pairs, list)
            log = stats.mean_interval([math.log(mine / other) for mine, other in pairs], one.alpha or alpha)
            limit = one.limit + one.tolerance * (1 if one.operator == "<=" else -1)
            down = one.compare != "gain"
            edge = -math.log(1 - limit if one.compare == "reduction" else 1 + limit) if down else math.log(1 + limit)
            point = -log.point if down else log.point
            expected[one.id, case.step] = rule.outcome(point, log.high - log.point, edge, one.precision)
        if "FAIL" in expected.values() or set(expected.values()) == {"PASS"}:
            break  # the look that decides
    assert len(expected) == 14
    assert {key: rows[key]["verdict"] for key in expected} == expected
