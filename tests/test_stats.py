"""The statistics against published tables and SciPy's own intervals."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from gates import stats

# One-sided critical values of Student's t, as printed in every table: (tail, degrees of freedom) -> value.
PUBLISHED = {(0.01, 4): 3.747, (0.01, 2): 6.965, (0.025, 11): 2.201, (0.05, 9): 1.833, (0.005, 7): 3.499}


@pytest.mark.parametrize("case", PUBLISHED)
def test_half_width_equals_the_published_t_table(case: tuple[float, int]) -> None:
    alpha, freedom = case
    values = np.random.default_rng(freedom).normal(size=freedom + 1)
    values = (values - values.mean()) / values.std(ddof=1)  # mean 0, s = 1
    found = stats.mean_interval(list(values), alpha)
    assert found.high * math.sqrt(found.n) == pytest.approx(PUBLISHED[case], abs=1e-3)
    assert found.low == pytest.approx(-found.high)
    assert (found.n, found.confidence) == (freedom + 1, pytest.approx(1 - 2 * alpha))


@given(st.lists(st.floats(-2, 2), min_size=2, max_size=12), st.sampled_from([0.01, 0.015, 0.025]))
def test_interval_equals_scipys(values: list[float], alpha: float) -> None:
    if np.std(values) < 1e-6:
        return
    expected = scipy_stats.ttest_1samp(values, 0.0).confidence_interval(1 - 2 * alpha)
    found = stats.mean_interval(values, alpha)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), rel=1e-9, abs=1e-12)
    assert found.low <= found.point <= found.high


@pytest.mark.parametrize("values", [[], [1.0], [1.0, math.inf], [1.0, math.nan]])
def test_no_interval_without_two_finite_values(values: list[float]) -> None:
    with pytest.raises(ValueError, match="at least two finite"):
        stats.mean_interval(values, 0.01)


def test_the_interval_covers_as_often_as_it_says() -> None:
    draws = np.random.default_rng(7).normal(size=(4000, 5))
    missed = sum(stats.mean_interval(row, 0.025).low > 0 for row in draws)
    assert scipy_stats.binomtest(missed, 4000, 0.025).pvalue > 0.001


def test_quantiles_hold_infinity() -> None:
    assert stats.quantile([1.0, 2.0, 3.0, 4.0], 0.5) == 2.5
    assert stats.quantile([1.0, math.inf], 0.5) == math.inf
    assert stats.quantile([math.inf, math.inf], 0.5) == math.inf
    assert stats.quantile([1.0, 1.0, math.inf], 0.5) == 1.0
    assert stats.quantile([1.0, 2.0, math.inf], 0.0) == 1.0


@pytest.mark.parametrize("values", [[], [1.0, math.nan]])
def test_no_quantile_of_nothing_or_of_nan(values: list[float]) -> None:
    with pytest.raises(ValueError, match="none of them NaN"):
        stats.quantile(values, 0.5)


@given(st.lists(st.floats(0, 100), min_size=1, max_size=20), st.floats(0, 1))
def test_quantile_equals_numpys(values: list[float], share: float) -> None:
    assert stats.quantile(values, share) == pytest.approx(float(np.quantile(values, share)), abs=1e-9)


@given(st.lists(st.floats(0, 100) | st.just(math.inf), min_size=1, max_size=20), st.floats(0, 1))
def test_a_quantile_is_never_nan(values: list[float], share: float) -> None:
    assert not math.isnan(stats.quantile(values, share))
