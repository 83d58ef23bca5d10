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


# P(S >= s) of Kendall's S, as printed in every table (Kendall 1938; Hollander and Wolfe): (n, s) -> three decimals.
KENDALL = {
    (4, 6): 0.042,
    (5, 8): 0.042,
    (5, 6): 0.117,
    (8, 16): 0.031,
    (8, 18): 0.016,
    (10, 21): 0.036,
    (10, 23): 0.023,
}


@pytest.mark.parametrize("case", KENDALL)
def test_kendalls_tail_equals_the_published_table(case: tuple[int, int]) -> None:
    n, s = case
    assert round(float(stats.kendall_tail(n)[s]), 3) == KENDALL[case]


@pytest.mark.parametrize("n", [3, 6, 9, 12])
def test_kendalls_tail_equals_scipys_exact_p(n: int) -> None:
    order = np.random.default_rng(n).permutation(n)
    first, second = np.triu_indices(n, k=1)
    s = int(np.sign(order[second] - order[first]).sum())
    expected = scipy_stats.kendalltau(range(n), order, method="exact", alternative="greater").pvalue
    if s >= 0:
        assert stats.kendall_tail(n)[s] == pytest.approx(expected)
    else:
        assert stats.kendall_tail(n)[-s] == pytest.approx(1 - expected + _chance_of(n, s))


def _chance_of(n: int, s: int) -> float:
    tail = stats.kendall_tail(n)
    return float(tail[-s] - (tail[-s + 2] if -s + 2 < len(tail) else 0.0))


def test_theil_sen_on_a_published_example() -> None:
    """Hollander and Wolfe's cloud seeding: five yearly ratios; slopes worked out by hand."""
    found = stats.theil_sen([1, 2, 3, 4, 5], [1.26, 1.27, 1.12, 1.16, 1.03], 0.05)
    assert found.point == pytest.approx(-0.05625)
    assert (found.low, found.high) == pytest.approx((-0.13, 0.01))  # S >= 8 has 0.042: one slope outside on each side


@given(st.lists(st.floats(-5, 5), min_size=6, max_size=20, unique=True))
def test_theil_sen_agrees_with_scipy(values: list[float]) -> None:
    times = list(range(len(values)))
    expected = scipy_stats.theilslopes(values, times, 0.90)
    found = stats.theil_sen(times, values, 0.05)
    assert found.point == pytest.approx(expected.slope)
    # SciPy takes the normal approximation: one ordered slope more or less.
    slopes = sorted((values[j] - values[i]) / (j - i) for i in times for j in times if i < j)
    near = {abs(_rank(slopes, a) - _rank(slopes, b)) for a, b in ((found.low, expected[2]), (found.high, expected[3]))}
    assert max(near) <= 2


def _rank(slopes: list[float], value: float) -> int:
    return int(np.argmin(np.abs(np.array(slopes) - value)))


def test_theil_sen_misses_as_seldom_as_it_says() -> None:
    draws = np.random.default_rng(4).normal(size=(1500, 12)) + 0.1 * np.arange(12)
    missed = sum(stats.theil_sen(range(12), row, 0.05).low > 0.1 for row in draws)
    assert scipy_stats.binomtest(missed, 1500, 0.05, alternative="greater").pvalue > 0.001
    assert missed > 20


def test_too_few_values_bound_nothing() -> None:
    found = stats.theil_sen([1, 2, 3], [1.0, 2.0, 3.0], 0.05)
    assert (found.point, found.low, found.high) == (1.0, -math.inf, math.inf)


@pytest.mark.parametrize(
    ("times", "values"), [([1], [1]), ([1, 2], [1]), ([1, 1], [1, 2]), ([1, 2], [1, math.nan]), ([1, math.inf], [1, 2])]
)
def test_no_slope_without_times_and_values(times: list[float], values: list[float]) -> None:
    with pytest.raises(ValueError, match="a slope needs"):
        stats.theil_sen(times, values, 0.05)


# Flow of the Nile at Aswan, 1871 to 1970 (Cobb 1978): the level falls after 1898, from 1098 to 850 on average.
NILE = """1120 1160 963 1210 1160 1160 813 1230 1370 1140 995 935 1110 994 1020 960 1180 799 958 1140 1100 1210 1150 1250 1260
1220 1030 1100 774 840 874 694 940 833 701 916 692 1020 1050 969 831 726 456 824 702 1120 1100 832 764 821 768 845 864 862
698 845 744 796 1040 759 781 865 845 944 984 897 822 1010 771 676 649 846 812 742 801 1040 860 874 848 890 744 749 838 1050
918 986 797 923 975 815 1020 906 901 1170 912 746 919 718 714 740"""


def test_the_step_of_the_nile() -> None:
    found = stats.step_change([float(v) for v in NILE.split()], least=5)
    assert 1871 + found.place == 1899
    assert found.size == pytest.approx(849.97 - 1097.75, abs=0.01)
    assert (found.p, found.n) == (1 / 2000, 100)


def test_a_step_p_is_uniform_without_a_step() -> None:
    draws = np.random.default_rng(6).standard_t(5, size=(300, 20))
    found = [stats.step_change(row, draws=199, seed=i).p for i, row in enumerate(draws)]
    assert scipy_stats.kstest(found, "uniform").pvalue > 0.001


@given(st.lists(st.floats(-5, 5), min_size=4, max_size=15), st.floats(-100, 100))
def test_a_step_is_the_same_wherever_the_level_is(values: list[float], level: float) -> None:
    values = [round(v, 3) for v in values]
    found = stats.step_change(values, draws=50)
    assert 2 <= found.place <= len(values) - 2
    assert 0 < found.p <= 1
    turned = stats.step_change([-v for v in values], draws=50)
    assert turned.size == pytest.approx(-found.size) or turned.place != found.place


def test_equal_values_have_no_step() -> None:
    assert stats.step_change([3.0] * 8) == stats.Step(2, 0.0, 1.0, 8)


@pytest.mark.parametrize("values", [[1.0, 2.0, 3.0], [1.0, 2.0, math.nan, 3.0]])
def test_no_step_in_too_few_values(values: list[float]) -> None:
    with pytest.raises(ValueError, match="a step needs"):
        stats.step_change(values)


# Newcombe (1998), table I: 95 % intervals of shares by Wilson's score and by Clopper and Pearson.
NEWCOMBE = {
    (81, 263): (0.2553, 0.3662, 0.2527, 0.3676),
    (15, 148): (0.0624, 0.1605, 0.0578, 0.1617),
    (0, 20): (0.0, 0.1611, 0.0, 0.1684),
    (1, 29): (0.0061, 0.1718, 0.0009, 0.1776),
}


@pytest.mark.parametrize("case", NEWCOMBE)
def test_shares_equal_newcombes_table(case: tuple[int, int]) -> None:
    low, high, exact_low, exact_high = NEWCOMBE[case]
    found = stats.wilson(*case)
    assert (found.low, found.high) == pytest.approx((low, high), abs=6e-5)
    exact = stats.binomial_lower(*case, 0.025), stats.binomial_upper(*case, 0.025)
    assert exact == pytest.approx((exact_low, exact_high), abs=6e-5)


def test_459_without_a_failure_show_99_per_cent() -> None:
    """MLPerf's floor: 459 queries without one too slow bound the share by 1 % at 99 % confidence."""
    assert stats.binomial_upper(0, 459, 0.01) < 0.01 < stats.binomial_upper(0, 458, 0.01)
    assert stats.binomial_upper(0, 30_000, 0.05) < 1e-4


@given(st.integers(1, 200), st.data())
def test_bounds_of_shares_equal_scipys(n: int, data: st.DataObject) -> None:
    hits = data.draw(st.integers(0, n))
    expected = scipy_stats.binomtest(hits, n)
    exact, score = expected.proportion_ci(0.95, "exact"), expected.proportion_ci(0.95, "wilson")
    found = stats.wilson(hits, n)
    assert (found.low, found.high) == pytest.approx((score.low, score.high), abs=1e-9)
    bounds = stats.binomial_lower(hits, n, 0.025), stats.binomial_upper(hits, n, 0.025)
    assert bounds == pytest.approx((exact.low, exact.high), abs=1e-9)


@pytest.mark.parametrize(("hits", "n"), [(0, 0), (-1, 5), (6, 5)])
def test_counts_that_make_no_share_are_refused(hits: int, n: int) -> None:
    for bound in (
        stats.wilson,
        lambda h, m: stats.binomial_upper(h, m, 0.05),
        lambda h, m: stats.binomial_lower(h, m, 0.05),
    ):
        with pytest.raises(ValueError, match="is no share"):
            bound(hits, n)


def test_littles_law() -> None:
    assert stats.littles_law(8.0, 2.0, 16.0) == 1.0
    assert stats.littles_law(8.0, 1.0, 16.0) == 0.5
    for wrong in ((0.0, 1.0, 1.0), (1.0, math.nan, 1.0), (1.0, 1.0, -1.0), (math.inf, 1.0, 1.0)):
        with pytest.raises(ValueError, match="Little's law"):
            stats.littles_law(*wrong)


@pytest.mark.parametrize(("n", "alpha"), [(1, 0.01), (5, 0.0), (5, 0.5), (5, math.nan)])
def test_no_half_width_without_freedom_or_error(n: int, alpha: float) -> None:
    with pytest.raises(ValueError, match="at least two"):
        stats.half_width(1.0, n, alpha)
