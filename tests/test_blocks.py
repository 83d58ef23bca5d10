"""Order of blocks: balanced at every look, the same for the same seed."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from scenarios.load import load_scenario, load_site
from workloads.blocks import plan_blocks

SCENARIO = load_scenario("rehearsal", load_site("rehearsal")).value
LOOKS = (5, 8, 12)


@given(st.integers(0, 2**48))
def test_every_pair_is_balanced_at_every_look(seed: int) -> None:
    plans = plan_blocks(SCENARIO, LOOKS, seed)
    assert len(plans) == 12
    for look in LOOKS:
        for a, b in itertools.combinations(SCENARIO.arms, 2):
            together = [p.order for p in plans[:look] if a in p.order and b in p.order]
            first = sum(order.index(a) < order.index(b) for order in together)
            assert abs(2 * first - len(together)) <= 1


def test_recompute_joins_the_first_blocks_and_sets_rotate() -> None:
    plans = plan_blocks(SCENARIO, LOOKS, 1)
    assert [("recompute" in p.order) for p in plans] == [True] * 3 + [False] * 9
    assert [p.prompt_set for p in plans] == [0, 1] * 6
    assert all(sorted(p.steps) == [2, 4] for p in plans)


def test_the_seed_makes_the_order() -> None:
    assert plan_blocks(SCENARIO, LOOKS, 5) == plan_blocks(SCENARIO, LOOKS, 5)
    assert len({tuple(p.order for p in plan_blocks(SCENARIO, LOOKS, s)) for s in range(20)}) > 5
