"""Arms, steps and prompts in the order that the run's seed drew, so that nobody chose it.

A drift within a block favours the arm that comes at the right moment: the order is balanced because it was drawn, and
drawn orders can be drawn again.
"""

from __future__ import annotations

from functools import lru_cache

from gates.validity.breach import HARNESS, Tell
from scenarios.model import Scenario
from workloads.blocks import BlockPlan, plan_blocks
from workloads.evidence import Run
from workloads.resume import Position

CHECK = "order"


def check_order(run: Run, tell: Tell) -> None:
    """Compare each block with the plan that was its turn; an invalid one is followed by the same plan again.

    Whether a block was invalid is what its own record says, as the loop that measured went by it; what the judge finds
    besides does not change whose turn it was. Raises what is in MISSHAPEN.
    """
    plans = _plans(
        Scenario.model_validate(run.facts["scenario"]).model_dump_json(by_alias=True),
        tuple(int(count) for count in run.facts["looks"]["blocks"]),
        int(run.facts["seed"]),
    )
    at = Position()
    for block in run.blocks():
        place = f"block {block['block']}"
        if at.valid >= len(plans):
            tell(CHECK, HARNESS, f"{place}: the plan ends with {len(plans)} valid blocks")
            return
        plan = plans[at.valid]
        for what, found, wanted in (
            ("order", tuple(block["order"]), plan.order),
            ("steps", tuple(block["steps"]), plan.steps),
            ("prompt_set", block["prompt_set"], plan.prompt_set),
            ("replaces", block["replaces"], at.replaces),
        ):
            if found != wanted:
                tell(CHECK, HARNESS, f"{place}: its {what} is {_shown(found)}, {_shown(wanted)} by the run's seed")
        at.take(block)


@lru_cache(maxsize=8)
def _plans(scenario: str, looks: tuple[int, ...], seed: int) -> list[BlockPlan]:
    """Drawing the plans takes longer than comparing with them, and a run that goes on is looked at often."""
    return plan_blocks(Scenario.model_validate_json(scenario), looks, seed)


def _shown(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
