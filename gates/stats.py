"""Pure functions: arrays in, estimates out.

Every bound has its error stated one-sided. What cannot be bounded from so few values is bounded by infinity, never
by a guess; what is not a finite number is refused.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Estimate:
    """A point, its interval, and how it came about. `confidence` is two-sided; n is the number of blocks."""

    point: float
    low: float
    high: float
    confidence: float
    n: int
    method: str


def mean_interval(values: Sequence[float], alpha: float) -> Estimate:
    """Return mean and two-sided t interval of `values`, each bound with a one-sided error of `alpha`.

    mean ± t(1-alpha, n-1) · s/√n, s with n-1 in the denominator (Student 1908). Needs at least two finite values.

    Raises:
        ValueError: fewer than two values, or one that is not finite.
    """
    array = np.asarray(values, dtype=float)
    if array.size < 2 or not np.all(np.isfinite(array)):
        raise ValueError("an interval needs at least two finite values")
    n = int(array.size)
    mean = float(array.mean())
    half = float(half_width(float(array.std(ddof=1)), n, alpha))
    return Estimate(mean, mean - half, mean + half, 1 - 2 * alpha, n, "t interval of the mean of block log ratios")


def half_width(sd: ArrayLike, n: int, alpha: float) -> Floats:
    """Return t(1-alpha, n-1) · s/√n for one or many sample deviations `sd`, in the unit of `sd`.

    The judge and its simulation both take it from here, so that they cannot come to differ.

    Raises:
        ValueError: n below 2, or an alpha outside (0, 0.5).
    """
    if n < 2 or not 0 < alpha < 0.5:
        raise ValueError("an interval needs at least two values and a one-sided error in (0, 0.5)")
    half: Floats = float(special.stdtrit(n - 1, 1 - alpha)) * np.asarray(sd, dtype=float) / math.sqrt(n)
    return half


def quantile(values: Sequence[float] | NDArray[np.float64], share: float) -> float:
    """Return the quantile by linear interpolation (Hyndman and Fan's type 7), with +infinity as a value.

    A failed request is +infinity: where the quantile rests on one, it is +infinity too, never NaN.

    Raises:
        ValueError: no value, or a NaN.
    """
    found = np.asarray(values, dtype=float)
    if not found.size or np.isnan(found).any():
        raise ValueError("a quantile needs values, none of them NaN")
    place = (found.size - 1) * share
    below, above = math.floor(place), math.ceil(place)
    ordered = np.partition(found, (below, above))
    low, high = float(ordered[below]), float(ordered[above])
    if low == high or math.isinf(high):
        return high
    return low + (high - low) * (place - below)


def theil_sen(times: Sequence[float], values: Sequence[float], alpha: float) -> Estimate:
    """Return the drift of `values` per unit of `times`: the median slope of all pairs, with an exact interval.

    Theil (1950), Sen (1968): the interval lies between two of the ordered slopes, chosen by the exact null
    distribution of Kendall's S, so each bound misses with at most `alpha` (ties only make it wider). An outlier moves
    it little. It takes the values to be independent: give it medians of stretches long against the memory of the
    noise, not raw samples. Infinite bounds where so few values allow none (fewer than 5 at alpha = 0.05).

    Raises:
        ValueError: fewer than two values, unequal lengths, a repeated time, or a number that is not finite.
    """
    t, y = np.asarray(times, dtype=float), np.asarray(values, dtype=float)
    if t.shape != y.shape or t.ndim != 1 or t.size < 2 or not (np.isfinite(t).all() and np.isfinite(y).all()):
        raise ValueError("a slope needs two or more finite values, each with its time")
    first, second = np.triu_indices(t.size, k=1)
    if np.any(t[first] == t[second]):
        raise ValueError("a slope needs times that differ")
    slopes = np.sort((y[second] - y[first]) / (t[second] - t[first]))
    tail = kendall_tail(int(t.size))
    pairs = slopes.size
    allowed = [s for s in range(pairs + 1) if (pairs - s) % 2 == 0 and tail[s] <= alpha]
    low, high = -math.inf, math.inf
    if allowed:
        # The smallest S that is rare enough leaves this many slopes outside on either side.
        outside = (pairs - min(allowed)) // 2
        low, high = float(slopes[outside]), float(slopes[pairs - 1 - outside])
    method = "Theil-Sen slope, exact interval by Kendall's S"
    return Estimate(float(np.median(slopes)), low, high, 1 - 2 * alpha, int(t.size), method)


def kendall_tail(n: int) -> Floats:
    """Return P(S >= s) of Kendall's S = concordant - discordant pairs, for s = 0 … n(n-1)/2, all orders equally likely.

    From the recurrence for the number of orders with k inversions (Kendall 1938).
    """
    chance = np.ones(1)
    for size in range(2, n + 1):
        chance = np.convolve(chance, np.full(size, 1 / size))
    pairs = n * (n - 1) // 2
    # k inversions make S = pairs - 2k; the chance of at most k of them is that of S or more.
    at_most = np.minimum(np.cumsum(chance), 1.0)
    return np.array([at_most[(pairs - s) // 2] for s in range(pairs + 1)])


@dataclass(frozen=True)
class Step:
    """The likeliest single change of level: `place` is the index of the first value after it, `size` after - before."""

    place: int
    size: float
    p: float
    n: int


def step_change(values: Sequence[float], *, least: int = 2, draws: int = 1999, seed: int = 1) -> Step:
    """Return the best place of one step in `values`, its size in their unit, and how often chance alone does as well.

    The statistic is the CUSUM of the deviations from the mean, weighted to be equally sensitive at every place:
    max over k of |S_k| / √(k(n-k)/n), each side at least `least` values long (Page 1955; James, James and Siegmund
    1987). p = (1 + reordered series that reach it) / (1 + draws): exact for values that could come in any order. Noise
    with memory makes it too small, so give it medians of stretches, and let a step be looked at, not judged by p alone.

    Raises:
        ValueError: fewer than 2 x `least` values, or one that is not finite.
    """
    array = np.asarray(values, dtype=float)
    n = int(array.size)
    if least < 1 or n < 2 * least or not np.all(np.isfinite(array)):
        raise ValueError(f"a step needs {2 * max(least, 1)} or more finite values")
    orders = np.random.default_rng(seed).permuted(np.tile(array - array.mean(), (draws, 1)), axis=1)
    after = np.arange(least, n - least + 1)
    weights = np.sqrt(after * (n - after) / n)

    def weighted(series: Floats) -> Floats:
        found: Floats = np.abs(np.cumsum(series, axis=-1)[..., after - 1]) / weights
        return found

    mine = weighted(array - array.mean())
    place = int(after[int(np.argmax(mine))])
    # Sums of the same numbers in another order differ by rounding; that must not hide a tie.
    reached = int(np.sum(weighted(orders).max(axis=1) >= mine.max() * (1 - 1e-12)))
    return Step(place, float(array[place:].mean() - array[:place].mean()), (1 + reached) / (1 + draws), n)


def binomial_upper(failures: int, n: int, alpha: float) -> float:
    """Return the upper bound of an error share, exceeded with at most `alpha` (Clopper and Pearson 1934).

    0 of n: 1 - alpha^(1/n), nearly -ln(alpha)/n. Raises ValueError for counts that make no share.
    """
    _counted(failures, n)
    return 1.0 if failures == n else float(special.betaincinv(failures + 1, n - failures, 1 - alpha))


def binomial_lower(failures: int, n: int, alpha: float) -> float:
    """Return the lower bound of an error share, undercut with at most `alpha` (Clopper and Pearson 1934).

    Raises ValueError for counts that make no share.
    """
    _counted(failures, n)
    return 0.0 if failures == 0 else float(special.betaincinv(failures, n - failures + 1, alpha))


def wilson(hits: int, n: int, confidence: float = 0.95) -> Estimate:
    """Return a share with its two-sided score interval (Wilson 1927): sound for shares near 0 and 1, too.

    Raises ValueError for counts that make no share.
    """
    _counted(hits, n)
    z = float(special.ndtri((1 + confidence) / 2))
    share = hits / n
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    low = 0.0 if hits == 0 else max(0.0, middle - half)
    high = 1.0 if hits == n else min(1.0, middle + half)
    return Estimate(share, low, high, confidence, n, "Wilson interval of a share")


def littles_law(throughput_per_s: float, mean_latency_s: float, concurrency: float) -> float:
    """Return throughput x mean latency / concurrency: 1 where a closed loop was really kept full (Little 1961).

    Requests per second, seconds, requests; over one steady window. Raises ValueError unless finite and positive.
    """
    given = (throughput_per_s, mean_latency_s, concurrency)
    if not all(math.isfinite(value) and value > 0 for value in given):
        raise ValueError("Little's law needs a positive throughput, latency and concurrency")
    return throughput_per_s * mean_latency_s / concurrency


def _counted(hits: int, n: int) -> None:
    if n < 1 or not 0 <= hits <= n:
        raise ValueError(f"{hits} of {n} is no share")
