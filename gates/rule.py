"""The rule of one criterion at one look, and of one gate over its looks: numbers or arrays in, verdicts out.

The judge and the simulation of its error rates (`python -m gates oc`) both come here, so that the rates are those of
the very rule that judges. Everything is on the log scale and turned so that more is better.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import IntEnum

import numpy as np
from numpy.typing import ArrayLike, NDArray

PASS, FAIL, INCONCLUSIVE = "PASS", "FAIL", "INCONCLUSIVE"
INVALID = "INVALID"  # no ground gives it: the measurement itself cannot be trusted
WORST_FIRST = (FAIL, INVALID, INCONCLUSIVE, PASS)

Codes = NDArray[np.int8]
Integers = NDArray[np.int64]


class Ground(IntEnum):
    """Why one criterion came out as it did, from the best to the worst."""

    CLEARS = 0  # the whole interval is at the edge or beyond it
    REACHES = 1  # the point is, and the interval is narrow enough to go by the point
    OPEN = 2  # the interval holds the edge and is too wide
    SHORT = 3  # the point is short of the edge, and the interval is narrow enough
    MISSES = 4  # the whole interval is short of the edge


VERDICT_OF = {
    Ground.CLEARS: PASS,
    Ground.REACHES: PASS,
    Ground.OPEN: INCONCLUSIVE,
    Ground.SHORT: FAIL,
    Ground.MISSES: FAIL,
}


def turned(compare: str, log_ratio: float) -> float:
    """Return ln(first / second arm) so that more is better: of a time, less is."""
    return log_ratio if compare == "gain" else -log_ratio


def relaxed_limit(operator: str, limit: float, tolerance: float) -> float:
    """Return the limit, relaxed by the agreed tolerance; both are shares of the second arm."""
    return limit + tolerance if operator == "<=" else limit - tolerance


def edge_of(compare: str, relaxed: float) -> float:
    """Return the relaxed limit on the turned log scale.

    Raises:
        ValueError: `compare` is no comparison of two arms.
    """
    if compare not in ("reduction", "increase", "gain"):
        raise ValueError(f"'{compare}' is no comparison of two arms")
    return turned(compare, math.log1p(-relaxed if compare == "reduction" else relaxed))


def grounds(mean: ArrayLike, half_width: ArrayLike, edge: ArrayLike, precision: float | None) -> Codes:
    """Return the Ground of each turned mean with its half width against its edge.

    With a `precision` (policy `measured`) the point decides once the half width is no larger; without one (`proven`)
    the whole interval has to be on one side. A number that is missing decides nothing: the ground is OPEN.
    """
    middle, half, at = (np.asarray(value, dtype=float) for value in (mean, half_width, edge))
    known = np.isfinite(middle) & np.isfinite(half) & (half >= 0) & np.isfinite(at)
    found = np.full(np.broadcast_shapes(middle.shape, half.shape, at.shape), Ground.OPEN, dtype=np.int8)
    if precision is not None:
        precise = known & (half <= precision)
        found[np.broadcast_to(precise & (middle >= at), found.shape)] = Ground.REACHES
        found[np.broadcast_to(precise & (middle < at), found.shape)] = Ground.SHORT
    found[np.broadcast_to(known & (middle - half >= at), found.shape)] = Ground.CLEARS
    found[np.broadcast_to(known & (middle + half < at), found.shape)] = Ground.MISSES
    return found


def ground(mean: float, half_width: float, edge: float, precision: float | None) -> Ground:
    """Return the Ground of one criterion at one look; see `grounds`."""
    return Ground(int(grounds(mean, half_width, edge, precision)))


def outcome(mean: float, half_width: float, edge: float, precision: float | None) -> str:
    """Return PASS, FAIL or INCONCLUSIVE of one criterion at one look; see `grounds`."""
    return VERDICT_OF[ground(mean, half_width, edge, precision)]


def gate(found: Codes) -> Codes:
    """Return what all criteria (the last axis of grounds) come to: any FAIL fails, PASS needs all.

    The result is CLEARS for PASS, OPEN for INCONCLUSIVE, MISSES for FAIL.

    Raises:
        ValueError: no criterion; an empty set never passes.
    """
    if found.ndim == 0 or found.shape[-1] == 0:
        raise ValueError("a gate needs at least one criterion")
    worst = found.max(axis=-1)
    result = np.full(worst.shape, Ground.OPEN, dtype=np.int8)
    result[worst <= Ground.REACHES] = Ground.CLEARS
    result[worst >= Ground.SHORT] = Ground.MISSES
    return result


def sequential(looks: Sequence[Codes]) -> tuple[Codes, Integers]:
    """Return (the run's end, index of the look that ended it) from the grounds at each look.

    Every look has judged all criteria on all blocks so far. The first look that passes or fails the gate ends the run;
    a run that none of them ended is INCONCLUSIVE at the last.

    Raises:
        ValueError: no look, or looks of different shapes.
    """
    if not looks or any(look.shape != looks[0].shape for look in looks):
        raise ValueError("a run needs looks, all of the same criteria")
    ends = np.stack([gate(look) for look in looks])
    decided = ends != Ground.OPEN
    last = np.where(decided.any(axis=0), decided.argmax(axis=0), len(looks) - 1)
    end: Codes = np.take_along_axis(ends, last[np.newaxis], axis=0)[0]
    return end, last


def attempt_alpha(alpha: float, attempt: int) -> float:
    """Return the one-sided error of a look in the k-th attempt: alpha / k, so that intervals grow with each attempt.

    Raises:
        ValueError: an attempt below 1.
    """
    if attempt < 1:
        raise ValueError("attempts are counted from 1")
    return alpha / attempt


def worst(verdicts: Sequence[str]) -> str:
    """Return the worst of several verdicts; an empty set is INVALID."""
    return next((verdict for verdict in WORST_FIRST if verdict in verdicts), INVALID)
