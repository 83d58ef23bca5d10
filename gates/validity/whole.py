"""The run as a whole: what went wrong, what was stored, and whether the arms were given the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gates.validity.arms import check_arms_equal
from gates.validity.between import check_before_first, check_between_trials
from gates.validity.bound import check_bound
from gates.validity.breach import HARNESS, HOST, MISSHAPEN, Breach, Tell, blame, misshapen
from gates.validity.calibrated import check_calibrated
from gates.validity.calibration import check_calibration
from gates.validity.chunks import check_outside, check_stored
from gates.validity.clocks import check_one_offset, check_same_clock
from gates.validity.digest import digests
from gates.validity.kept import check_described, check_kept
from gates.validity.ledger import check_ledger
from gates.validity.order import check_order
from gates.validity.places import check_places
from gates.validity.policy import check_policy
from gates.validity.records import Sketch, name_of
from gates.validity.starts import check_apart, check_starts
from gates.validity.stored import check_stored_prompts
from gates.validity.timeline import check_request_ids, check_timeline
from scenarios.model import CANDIDATE
from workloads.evidence import Run

Json = dict[str, Any]


def check_run(run: Run) -> list[Breach]:
    """Return what makes the run as a whole untrustworthy, and what is held against the candidate for good."""
    found: list[Breach] = []

    def tell(check: str, whose: str, reason: str) -> None:
        found.append(Breach(check, whose, reason, "run"))

    for check in (
        _incidents, check_described, check_kept, check_calibration, _populated, check_stored, check_arms_equal,
        check_starts, check_places, _in_blocks, check_order, _trials_together, check_bound, check_ledger,
    ):  # fmt: skip
        try:
            check(run, tell)
        except MISSHAPEN as error:
            tell("readable", HARNESS, misshapen(error))
    return found


def _trials_together(run: Run, tell: Tell) -> None:
    """What the trials must show beside each other."""
    trials = [read.sketch() for _, read in digests(run)]
    _same_prompts(trials, tell)
    check_same_clock(trials, tell)
    check_timeline(run, trials, tell)
    check_outside(run, trials, tell)
    check_request_ids(run, trials, tell)
    for check in (
        check_apart, check_policy, check_before_first, check_between_trials, check_stored_prompts, check_calibrated,
        check_one_offset,
    ):  # fmt: skip
        try:
            check(run, trials, tell)
        except MISSHAPEN as error:
            tell("readable", HARNESS, misshapen(error))


def _incidents(run: Run, tell: Tell) -> None:
    for incident in run.incidents():
        if incident["kind"] == "interrupted" and incident["session"] < run.sessions():
            continue  # the run was taken up again; what was under way then is a block that was not finished
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
        name = name_of(trial)
        if trial.path.parts[-3] not in order.get(int(trial.path.name[1:]), ()):
            tell("blocks", HARNESS, f"{name} was measured, but belongs to no recorded block")
        if trial.path.parts[-2] not in steps:
            tell("blocks", HARNESS, f"{name} was measured, but its step is not the scenario's")


def _same_prompts(trials: Sequence[Sketch], tell: Tell) -> None:
    """Within a block every arm was sent the same prompts."""
    prompts: dict[tuple[int, int], set[frozenset[int]]] = {}
    for trial in trials:
        if trial.prompt_seeds and trial.completed:
            prompts.setdefault((trial.block, trial.step), set()).add(trial.prompt_seeds)
    for (block, step), sets in prompts.items():
        if len(sets) > 1:
            tell("same-prompts", HARNESS, f"block {block}, concurrency {step}: the arms were sent different prompts")
