"""The run as a whole: what went wrong, what was stored, and whether the arms were given the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gates.validity.arms import check_arms_equal
from gates.validity.breach import HARNESS, HOST, MISSHAPEN, Breach, Tell, blame, misshapen
from scenarios.model import CANDIDATE
from workloads.evidence import EvidenceError, Run, Trial

Json = dict[str, Any]


def check_run(run: Run) -> list[Breach]:
    """Return what makes the run as a whole untrustworthy, and what is held against the candidate for good."""
    found: list[Breach] = []

    def tell(check: str, whose: str, reason: str) -> None:
        found.append(Breach(check, whose, reason, "run"))

    for check in (_incidents, _populated, check_arms_equal, _in_blocks, _same_prompts):
        try:
            check(run, tell)
        except MISSHAPEN as error:
            tell("readable", HARNESS, misshapen(error))
    return found


def _incidents(run: Run, tell: Tell) -> None:
    for incident in run.incidents():
        tell(f"incident:{incident['kind']}", blame(run, incident), str(incident["message"]))


def _populated(run: Run, tell: Tell) -> None:
    """Every prompt set lies in every arm's tier, whole, before anything was measured."""
    scenario, site = run.facts["scenario"], run.facts["site"]
    load = scenario["workload"]
    chunk_tokens = site["lmcache"]["chunk_tokens"]
    chunk_bytes = chunk_tokens * site["models"][scenario["model"]]["kv_bytes_per_token"]
    wanted = load["prompt_tokens"] // chunk_tokens * max(scenario["steps"])
    # A candidate that broke the run off before its first block left sets unstored: that is no second fault.
    ended_early = any(blame(run, i) == CANDIDATE and i["block"] is None for i in run.incidents())
    for name, arm in scenario["arms"].items():
        if not arm["tiers"]:
            continue
        sets: dict[int, list[Json]] = {}
        for line in run.populated(name):
            sets.setdefault(line["prompt_set"], []).append(line)
        for number in range(load["prompt_sets"]):
            lines = sets.get(number, [])
            if len(lines) != 1:
                if lines or not ended_early:
                    told = "was never stored" if not lines else f"was stored {len(lines)} times, once expected"
                    tell("populate", HOST, f"arm '{name}': prompt set {number} {told}")
                continue
            line = lines[0]
            whole = sum(size == chunk_bytes for size in line["files"].values())
            if line["confirmed"] is not True or line["pending"] != 0 or whole < wanted:
                told = f"{whole} whole chunks stored, {wanted} expected; {line['pending']} pending"
                tell("populate", HOST, f"arm '{name}': prompt set {number}: {told}; confirmed: {line['confirmed']}")


def _in_blocks(run: Run, tell: Tell) -> None:
    """Every trial belongs to a block that is told of: none may be measured and left out."""
    order = {int(block["block"]): list(block["order"]) for block in run.blocks()}
    if len(order) != len(run.blocks()):
        tell("blocks", HARNESS, "two blocks have the same number")
    if sorted(order) != list(range(1, len(order) + 1)):
        tell("blocks", HARNESS, f"the blocks recorded are {sorted(order)}: one was left out")
    steps = {f"c{step}" for step in run.facts["scenario"]["steps"]}
    for trial in run.trials():
        name = "/".join(trial.path.parts[-3:])
        if trial.path.parts[-3] not in order.get(int(trial.path.name[1:]), ()):
            tell("blocks", HARNESS, f"{name} was measured, but belongs to no recorded block")
        if trial.path.parts[-2] not in steps:
            tell("blocks", HARNESS, f"{name} was measured, but its step is not the scenario's")


def _same_prompts(run: Run, tell: Tell) -> None:
    """Within a block every arm was sent the same prompts."""
    prompts: dict[tuple[int, int], set[frozenset[int]]] = {}
    for trial in run.trials():
        key = (int(trial.facts["block"]), int(trial.facts["step"]))
        seeds = frozenset(int(r["prompt_seed"]) for r in _quietly(trial))
        if seeds and trial.facts["completed"] is True:
            prompts.setdefault(key, set()).add(seeds)
    for (block, step), sets in prompts.items():
        if len(sets) > 1:
            tell("same-prompts", HARNESS, f"block {block}, concurrency {step}: the arms were sent different prompts")


def _quietly(trial: Trial) -> Iterator[Json]:
    """Yield what can be read; that the rest cannot is a breach of the trial itself."""
    try:
        yield from trial.requests()
    except EvidenceError:
        return
