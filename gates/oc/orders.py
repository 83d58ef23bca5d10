"""Where in time each arm of each block is measured: the orders that a real run would be given."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from scenarios.load import CATALOG, load_toml
from scenarios.model import BASELINE, CANDIDATE, Scenario
from workloads.blocks import plan_blocks

Order = Literal["random", "candidate-first", "baseline-first"]
Slots = NDArray[np.int64]

# So many plans stand for all: each repetition is given one of them.
PLANS = 128


@lru_cache
def slots(looks: tuple[int, ...], order: Order) -> tuple[Slots, Slots]:
    """Return the slots of candidate and baseline: (plans, blocks) each, slots counted from the start of the run.

    An engine start is one slot, whatever its steps. `random` is `plan_blocks` itself, with recompute in the first
    blocks, so that a slot may lie between the two arms; the fixed orders, of two arms alone, are the counter-example.
    """
    blocks = looks[-1]
    if order != "random":
        first = 2 * np.arange(blocks)[np.newaxis]
        return (first, first + 1) if order == "candidate-first" else (first + 1, first)
    scenario = load_toml(CATALOG / "rehearsal.toml", Scenario).value
    found = np.empty((2, PLANS, blocks), dtype=np.int64)
    for number in range(PLANS):
        passed = 0
        for block, plan in enumerate(plan_blocks(scenario, looks, number)):
            for row, arm in enumerate((CANDIDATE, BASELINE)):
                found[row, number, block] = passed + plan.order.index(arm)
            passed += len(plan.order)
    return found[0], found[1]
