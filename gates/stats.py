"""Pure functions: arrays in, estimates out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats


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
    half = float(stats.t.ppf(1 - alpha, n - 1)) * float(array.std(ddof=1)) / math.sqrt(n)
    return Estimate(mean, mean - half, mean + half, 1 - 2 * alpha, n, "t interval of the mean of block log ratios")


def quantile(values: Sequence[float], share: float) -> float:
    """Return the quantile by linear interpolation (Hyndman and Fan's type 7), with +infinity as a value.

    A failed request is +infinity: where the quantile rests on one, it is +infinity too, never NaN.

    Raises:
        ValueError: no value, or a NaN.
    """
    ordered = sorted(values)
    if not ordered or any(math.isnan(v) for v in ordered):
        raise ValueError("a quantile needs values, none of them NaN")
    place = (len(ordered) - 1) * share
    below, above = math.floor(place), math.ceil(place)
    if below == above or ordered[below] == ordered[above]:
        return ordered[below]
    if math.isinf(ordered[above]):
        return math.inf
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)
