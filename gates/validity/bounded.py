"""Numbers of run.json that a run's plans are made from: none that no run can have had, or judging would never end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gates.criteria import BLOCKS_MAX
from gates.metrics import TOKENS_MAX
from workloads.evidence import Run

Json = dict[str, Any]

USERS_MAX = 100_000
STEPS_MAX = 100
WAVES_MAX = 1_000_000
SETS_MAX = 3  # as the model of a workload has it
KV_BYTES_PER_TOKEN_MAX = 1 << 27  # the largest of dense models without grouped heads have 5 MB
# Of the workload: key, least and most.
WORKLOAD = (
    ("prompt_tokens", 1, TOKENS_MAX),
    ("output_tokens", 1, TOKENS_MAX),
    ("prompt_sets", 1, SETS_MAX),
    ("waves_discarded", 0, WAVES_MAX),
    ("waves_measured", 1, WAVES_MAX),
    ("recompute_waves", 1, WAVES_MAX),
    ("recompute_blocks", 1, BLOCKS_MAX),
)


def unbounded(run: Run) -> list[str]:
    """Return a line on each number that nothing may be derived from. Raises what is in MISSHAPEN."""
    return list(_lines(run.facts))


def _lines(facts: Json) -> Iterator[str]:
    blocks, scenario, site = facts["looks"]["blocks"], facts["scenario"], facts["site"]
    if type(blocks) is not list or not 0 < len(blocks) <= BLOCKS_MAX:
        yield f"run.json: looks.blocks: no list of 1 to {BLOCKS_MAX} looks"
    else:
        yield from (told for look in blocks for told in _beyond("looks.blocks", look, 1, BLOCKS_MAX))
    steps = scenario["steps"]
    if type(steps) is not list or not 0 < len(steps) <= STEPS_MAX:
        yield f"run.json: scenario.steps: no list of 1 to {STEPS_MAX} steps"
    else:
        yield from (told for step in steps for told in _beyond("scenario.steps", step, 1, USERS_MAX))
    for key, least, most in WORKLOAD:
        yield from _beyond(f"scenario.workload.{key}", scenario["workload"][key], least, most)
    yield from _beyond("site.lmcache.chunk_tokens", site["lmcache"]["chunk_tokens"], 1, TOKENS_MAX)
    for name, model in site["models"].items():
        place = f"site.models.{name}.kv_bytes_per_token"
        yield from _beyond(place, model["kv_bytes_per_token"], 1, KV_BYTES_PER_TOKEN_MAX)


def _beyond(place: str, value: object, least: int, most: int) -> Iterator[str]:
    if type(value) is not int or not least <= value <= most:
        yield f"run.json: {place}: {str(value)[:40]} is no whole number from {least} to {most}, which every run has"
