"""The noise of a block's log ratio: what is drawn for each repetition of a run.

Everything is in log ratio and turned so that more is better. A row is one criterion at one step. By default rows are
independent of one another; `common` gives all rows of a block a share of the same noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from gates.oc.orders import Order, Slots, slots
from gates.oc.residuals import Residuals
from gates.stats import Floats

T5_SCALE = math.sqrt(3 / 5)  # Student's t with 5 degrees of freedom has the variance 5/3


class Row(Protocol):
    """What the noise has to know of a row: which column of real noise (0 TTFT, 1 throughput), which step, how much."""

    @property
    def column(self) -> int: ...
    @property
    def step(self) -> int: ...
    @property
    def sd(self) -> float: ...


@dataclass(frozen=True, eq=False)
class Noise:
    """How blocks scatter around the truth.

    `residuals` are drawn row by row with replacement, rescaled to the rows' sd; without them the law is Student's t
    with 5 degrees of freedom. `in_time`: each repetition starts at a random place of the residuals and each arm takes
    the value of its slot, so that a block's log ratio is the difference of two real neighbours.
    `common` is the share of a block's variance that all its rows have in common, 0 to 1.
    `drift_per_slot` is by how much times grow and rates fall from one engine start to the next (0.02 = 2 %).
    `between` is the sd between engine starts over that between waves of a start; the start is common to all rows.
    `count_waves` takes each wave for a block, as nobody should.
    """

    residuals: Residuals | None = None
    in_time: bool = False
    common: float = 0.0
    drift_per_slot: float = 0.0
    order: Order = "random"
    between: float | None = None
    waves: int = 5
    count_waves: bool = False

    def per_block(self) -> int:
        """Return how many values a block contributes: one, unless waves are counted."""
        return self.waves if self.count_waves else 1

    def draw(self, rng: np.random.Generator, repetitions: int, looks: tuple[int, ...], rows: Sequence[Row]) -> Floats:
        """Return the noise as (repetitions, blocks x per_block, rows)."""
        shape, sd = (repetitions, looks[-1]), np.array([row.sd for row in rows])
        found: Floats
        if self.drift_per_slot or self.in_time:
            every = slots(looks, self.order)
            plan = rng.integers(len(every[0]), size=repetitions)
            candidate, baseline = every[0][plan], every[1][plan]
        else:
            candidate = baseline = np.zeros((1, 1), dtype=np.int64)
        if self.in_time:
            found = self._neighbours(rng, candidate, baseline, rows) * sd
        elif self.between is not None:
            # The block's sd stays the stated one: start² + wave² / waves = sd², start = between · wave.
            wave = 1 / math.sqrt(self.between**2 + 1 / self.waves)
            start = self._law(rng, shape, rows, shared=True) * (self.between * wave)
            each = [start + wave * self._law(rng, shape, rows) for _ in range(self.waves)]
            stacked = np.stack(each, axis=2) * sd
            found = stacked.reshape(repetitions, -1, len(rows)) if self.count_waves else stacked.mean(axis=2)
        else:
            found = self._law(rng, shape, rows)
            if self.common:
                together = self._law(rng, shape, rows, shared=True)
                found = math.sqrt(self.common) * together + math.sqrt(1 - self.common) * found
            found = found * sd
        if self.drift_per_slot:
            later = np.repeat(candidate - baseline, self.per_block(), axis=1)
            found = found - math.log1p(self.drift_per_slot) * later[..., np.newaxis]
        return found

    def _law(
        self, rng: np.random.Generator, shape: tuple[int, int], rows: Sequence[Row], *, shared: bool = False
    ) -> Floats:
        """Return draws of unit sd as (repetitions, blocks, rows); the same for all rows where `shared`."""
        if self.residuals is None:
            width = 1 if shared else len(rows)
            drawn: Floats = np.asarray(rng.standard_t(5, (*shape, width))) * T5_SCALE
            return np.broadcast_to(drawn, (*shape, len(rows)))
        unit = self.residuals.values / self.residuals.sd()
        steps = 1 if shared else 1 + max(row.step for row in rows)
        place = rng.integers(len(unit), size=(*shape, steps))
        return np.stack([unit[place[..., 0 if shared else row.step], row.column] for row in rows], axis=-1)

    def _neighbours(self, rng: np.random.Generator, candidate: Slots, baseline: Slots, rows: Sequence[Row]) -> Floats:
        """Return differences of real values in their own order of time, with unit sd over all starts and plans."""
        if self.residuals is None:
            raise ValueError("noise in time needs a series of residuals")
        series = self.residuals.values
        starts = np.arange(len(series))[:, np.newaxis, np.newaxis]
        every = series[(starts + candidate[:200]) % len(series)] - series[(starts + baseline[:200]) % len(series)]
        unit = np.sqrt((every**2).mean(axis=(0, 1, 2)))
        begin = rng.integers(len(series), size=(len(candidate), 1 + max(row.step for row in rows)))
        columns: list[Floats] = []
        for row in rows:
            at = begin[:, row.step, np.newaxis]
            values = series[:, row.column] / unit[row.column]
            columns.append(values[(at + candidate) % len(series)] - values[(at + baseline) % len(series)])
        return np.stack(columns, axis=-1)
