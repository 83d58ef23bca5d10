"""What sealed evidence comes down to before any criterion is looked at: which blocks count, and what is against it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gates.recorded import broken_off
from gates.validity import Breach, calibration, check_outputs, check_run, check_trial
from gates.validity.breach import blame
from gates.validity.digest import digests
from gates.validity.records import name_of
from gates.validity.trial import book_floor_of
from scenarios.model import CANDIDATE, RECOMPUTE
from workloads.blocks import REPLACED_SHARE_MAX
from workloads.evidence import Run

Json = dict[str, Any]


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
    replaced: list[int] = field(default_factory=list)  # invalid blocks but those that the candidate itself broke off

    def as_judged(self, looks: Sequence[int]) -> Facts:
        """Return the facts of one of the `looks` with what its share of replaced blocks says against the run.

        Each look has its own: what was replaced before it no later block makes less, and what had to be replaced
        after it was not yet there. Before the first look all that were replaced count.
        """
        valid = len(self.valid)
        mine = [number for number in self.replaced if valid not in looks or number < self.valid[-1]]
        if len(mine) <= REPLACED_SHARE_MAX * max(valid, 1):
            return self
        share = f" ({len(mine) / valid * 100:.3g} %)" if valid else ""
        told = f"{_blocks(len(mine))} had to be replaced for {valid} valid {'one' if valid == 1 else 'ones'}{share}"
        told += f", {REPLACED_SHARE_MAX * 100:g} % allowed: {self.invalid[mine[0]][0]}"
        return replace(self, untrusted=[*self.untrusted, told])


def gather(run: Run, untrusted: Sequence[str]) -> Facts:
    """Return the facts of a run; `untrusted` is what is already held against it. Raises what is in MISSHAPEN.

    A block that the candidate itself broke off is listed and does not count, but was not replaced: the candidate's
    fault must not grow into one that makes its own failure INVALID.
    """
    digests(run)  # all records are read here, once
    breaches = check_run(run)
    against = [*untrusted, *_not_the_candidates(breaches)]
    stopped = {i["block"]: i["message"] for i in run.incidents() if blame(run, i) == CANDIDATE}
    valid: list[int] = []
    invalid: dict[int, list[str]] = {}
    checked: dict[str, list[Breach]] = {}
    replaced: list[int] = []
    floor_s = book_floor_of(run)
    for block in run.blocks():
        number = int(block["block"])
        found, reasons, gaps = _look_at(run, block, floor_s)
        checked |= found
        breaches += (told := [b for each in found.values() for b in each])
        if gaps and number in stopped:
            invalid[number] = [f"the candidate broke it off: {stopped[number]}", *reasons]
        elif reasons or gaps:
            invalid[number] = [*reasons, *gaps]
        else:
            valid.append(number)
            against += _not_found_again(block, told)
            continue
        if reasons or number not in stopped:
            replaced.append(number)
    unequal, outputs = check_outputs(run, checked)
    breaches += unequal
    against += _not_the_candidates(unequal)
    return Facts(run, valid, invalid, breaches, against, outputs, calibration.summary(run), replaced=replaced)


def _blocks(count: int) -> str:
    return f"{count} block" if count == 1 else f"{count} blocks"


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
            if broken_off(trial):
                gaps.append(f"{arm} at concurrency {step} was not carried through")
            if trial.facts["prompt_set"] != block["prompt_set"]:
                reasons.append(f"{arm} at concurrency {step} was sent prompt set {trial.facts['prompt_set']}")
            breaches[name_of(trial)] = found = check_trial(run, trial, floor_s)
            reasons += [f"{b.trial}: {b.check}: {b.reason}" for b in found if b.whose != CANDIDATE]
    return breaches, reasons, gaps
