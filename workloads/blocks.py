"""The order of blocks: random, and balanced at every look. Pure functions."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass

from scenarios.model import RECOMPUTE, Scenario

# Draws per stretch between two looks; the most balanced one is taken.
DRAWS = 400
# A run in which more than one block in five had to be replaced is INVALID.
REPLACED_SHARE_MAX = 0.2


@dataclass(frozen=True)
class BlockPlan:
    """Arms in order and steps in order of one block; every arm of a block gets the same prompts and steps."""

    order: tuple[str, ...]
    steps: tuple[int, ...]
    prompt_set: int


def plan_blocks(scenario: Scenario, looks: Sequence[int], seed: int) -> list[BlockPlan]:
    """Return a plan for each block up to the last look.

    Recompute, whose effect is large and whose waves are slow, joins the first blocks only. Up to every look each pair
    of arms has each of its two orders as often as the other, give or take one, so that a drift within blocks cannot
    favour an arm.
    """
    draw = random.Random(f"kvgate/order/{seed}")  # noqa: S311  # reproducible on purpose
    measured = [name for name in scenario.arms if name != RECOMPUTE]
    plans: list[BlockPlan] = []
    balance = dict.fromkeys(itertools.combinations(sorted(scenario.arms), 2), 0)
    done = 0
    for look in looks:
        length = look - done
        members = [
            [*measured, RECOMPUTE] if done + i < scenario.workload.recompute_blocks else measured for i in range(length)
        ]
        best = min(
            ([tuple(draw.sample(arms, len(arms))) for arms in members] for _ in range(DRAWS)),
            key=lambda orders: _imbalance(balance, orders),
        )
        balance = _after(balance, best)
        for order in best:
            steps = tuple(draw.sample(scenario.steps, len(scenario.steps)))
            plans.append(BlockPlan(order, steps, len(plans) % scenario.workload.prompt_sets))
        done = look
    return plans


Balance = dict[tuple[str, str], int]


def _after(balance: Balance, orders: Sequence[tuple[str, ...]]) -> Balance:
    result = dict(balance)
    for order in orders:
        for first, second in itertools.combinations(order, 2):
            if first < second:
                result[first, second] += 1
            else:
                result[second, first] -= 1
    return result


def _imbalance(balance: Balance, orders: Sequence[tuple[str, ...]]) -> tuple[int, int]:
    """Return (worst, sum) of how far pairs are from being first equally often; the smaller the better."""
    sizes = [abs(count) for count in _after(balance, orders).values()]
    return max(sizes), sum(sizes)
