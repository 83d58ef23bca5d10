"""What sealed evidence comes down to before any criterion is looked at: which blocks count, and what is against it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from gates.validity import Breach, calibration, check_outputs, check_run, check_trial
from gates.validity.breach import blame
from gates.validity.digest import digests
from gates.validity.records import name_of
from gates.validity.trial import book_floor_of
from scenarios.model import CANDIDATE, RECOMPUTE
from workloads.evidence import Run

Json = dict[str, Any]

REPLACED_SHARE_MAX = 0.2


@dataclass(frozen=True)
class Facts:
    """The run, its blocks sorted, and every breach."""

    run: Run
    valid: list[int]  # block numbers
    invalid: dict[int, list[str]]  # block number -> reasons
    breaches: list[Breach]  # of trials and of the run
    untrusted: list[str]  # reasons against the run as a whole
    outputs: list[str] = field(default_factory=list)  # what was found when outputs were compared
    calibration: list[Json] = field(default_factory=list)  # the client's own bias at each concurrency
    notes: list[str] = field(default_factory=list)  # told with the verdict, which they do not change


def gather(run: Run, untrusted: Sequence[str]) -> Facts:
    """Return the facts of a run; `untrusted` is what is already held against it. Raises what is in MISSHAPEN.

    A block that the candidate itself broke off is listed and does not count, but was not replaced: the candidate's
    fault must not grow into one that makes its own failure INVALID.
    """
    digests(run)  # all records are read here, once
    breaches = check_run(run)
    against = [*untrusted, *_not_the_candidates(breaches)]
    broken_off = {i["block"]: i["message"] for i in run.incidents() if blame(run, i) == CANDIDATE}
    valid: list[int] = []
    invalid: dict[int, list[str]] = {}
    checked: dict[str, list[Breach]] = {}
    replaced = 0
    floor_s = book_floor_of(run)
    for block in run.blocks():
        number = int(block["block"])
        found, reasons, gaps = _look_at(run, block, floor_s)
        checked |= found
        breaches += (told := [b for each in found.values() for b in each])
        if gaps and number in broken_off:
            invalid[number] = [f"the candidate broke it off: {broken_off[number]}", *reasons]
        elif reasons or gaps:
            invalid[number] = [*reasons, *gaps]
        else:
            valid.append(number)
            against += _not_found_again(block, told)
            continue
        replaced += bool(reasons) or number not in broken_off
    unequal, outputs = check_outputs(run, checked)
    breaches += unequal
    against += _not_the_candidates(unequal)
    if replaced > REPLACED_SHARE_MAX * max(len(valid), 1):
        first = next(reasons[0] for number, reasons in invalid.items())
        against.append(f"{replaced} of {len(invalid) + len(valid)} blocks are invalid, more than one in five: {first}")
    return Facts(run, valid, invalid, breaches, against, outputs, calibration.summary(run))


def _not_the_candidates(breaches: Sequence[Breach]) -> list[str]:
    return [f"{b.check}: {b.reason}" for b in breaches if b.whose != CANDIDATE]


def _not_found_again(block: Json, found: Sequence[Breach]) -> list[str]:
    """Return what was told of a block while it ran and is not told by what was recorded: one of the two is not true."""
    known = {(b.trial, b.check, b.whose) for b in found}
    recorded = block["breaches"]
    if not isinstance(recorded, list):
        return [f"block {block['block']}: its recorded breaches are no list"]
    return [
        f"block {block['block']}: {b['trial']}: {b['check']}: told while it ran, but not found in what was recorded"
        for b in recorded
        if (b["trial"], b["check"], b["whose"]) not in known
    ]


def _look_at(run: Run, block: Json, floor_s: float) -> tuple[dict[str, list[Breach]], list[str], list[str]]:
    """Return (breaches of each of its trials, reasons why it cannot be trusted, what of it is not there)."""
    number, order = int(block["block"]), list(block["order"])
    arms, steps = list(run.facts["scenario"]["arms"]), [int(s) for s in run.facts["scenario"]["steps"]]
    breaches: dict[str, list[Breach]] = {}
    reasons: list[str] = []
    gaps = [] if block["complete"] is True else ["not finished"]
    needed = {arm for arm in arms if arm != RECOMPUTE}
    if not needed <= set(order) <= set(arms) or len(set(order)) != len(order) or sorted(block["steps"]) != steps:
        reasons.append("its arms or steps are not the scenario's")
    for arm in order:
        for step in steps:
            trial = run.trial(arm, step, number)
            if trial is None:
                gaps.append(f"{arm} at concurrency {step} was not measured")
                continue
            if trial.facts["prompt_set"] != block["prompt_set"]:
                reasons.append(f"{arm} at concurrency {step} was sent prompt set {trial.facts['prompt_set']}")
            breaches[name_of(trial)] = found = check_trial(run, trial, floor_s)
            reasons += [f"{b.trial}: {b.check}: {b.reason}" for b in found if b.whose != CANDIDATE]
    return breaches, reasons, gaps
