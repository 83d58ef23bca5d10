"""Where an interrupted run goes on: at the boundary of a block, with everything before it untouched.

What was under way when the run broke off is kept, told as a block that was not finished, and measured again whole.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scenarios.model import CANDIDATE, Scenario
from workloads.blocks import REPLACED_SHARE_MAX, plan_blocks
from workloads.evidence import Run, RunDir

Json = dict[str, Any]

# The only incident that is forgiven once a run goes on; every other one that is not the candidate's stands against it.
INTERRUPTED = "interrupted"
# What a host is known by: its memory in bytes and the shell's time zone may differ from one session to the next.
HOST = ("hostname", "cpu", "cores", "kernel")
CLOCK_STEP_NS = 5_000_000  # over a whole run, as the judge allows it


class ResumeError(ValueError):
    """One line: why this run cannot go on."""


@dataclass
class Position:
    """How far a run has come. A fresh run stands at the beginning."""

    number: int = 0  # of the last block
    valid: int = 0
    replaced: int = 0
    replaces: int | None = None  # the invalid block that the next one replaces
    seen: dict[tuple[str, str], int] = field(default_factory=dict)  # (arm, check) -> blocks in which it was breached
    unfinished: list[Json] = field(default_factory=list)  # blocks that were under way, and are not recorded yet

    def is_past(self, look: int) -> bool:
        """Return whether the look at so many blocks was taken, and decided nothing: a block was begun after it."""
        return look < self.valid or (look == self.valid and self.replaces is not None)

    def has_replaced_too_many(self, look: int) -> bool:
        """Return whether the look at so many blocks can only be INVALID."""
        return self.replaced > math.floor(REPLACED_SHARE_MAX * look)

    def take(self, block: Json) -> list[Json]:
        """Count a block that has ended; return the breaches that make it invalid."""
        self.number = int(block["block"])
        invalid = [b for b in block["breaches"] if b["whose"] != CANDIDATE]
        if block["complete"] is True and not invalid:
            self.valid += 1
            self.replaces = None
            return []
        self.replaced += 1
        self.replaces = self.number
        for key in {(str(b["trial"]).split("/")[0], str(b["check"])) for b in invalid}:
            self.seen[key] = self.seen.get(key, 0) + 1
        return invalid


def position(run: Run, scenario: Scenario, looks: Sequence[int], seed: int) -> Position:
    """Return where the run stands; a block that was under way counts as one that was not finished.

    Raises ResumeError: there is nothing to go on with, nothing left to do, or nothing that could make the run valid
    again. EvidenceError: a file is damaged.
    """
    found = Position()
    for block in run.blocks():
        found.take(block)
    if found.valid >= looks[-1]:
        raise ResumeError(f"{run.path}: all {looks[-1]} blocks are there: there is nothing left to measure")
    begun = {int(trial.facts["block"]) for trial in run.trials()} - {int(b["block"]) for b in run.blocks()}
    for number in sorted(begun):
        plan = plan_blocks(scenario, looks, seed)[found.valid]
        block = {
            "block": number,
            "prompt_set": plan.prompt_set,
            "order": list(plan.order),
            "steps": list(plan.steps),
            "replaces": found.replaces,
            "complete": False,
            "breaches": [],
        }
        found.unfinished.append(block)
        found.take(block)
    if not found.valid:
        raise ResumeError(f"{run.path}: no block was finished: start a new run instead")
    _still_worth_it(run, found, looks)
    return found


def write_unfinished(recorded: RunDir, at: Position) -> None:
    """Record the blocks that were under way as such that were not finished."""
    for block in at.unfinished:
        recorded.write_json(f"blocks/b{int(block['block']):02d}.json", block)


def _still_worth_it(run: Run, at: Position, looks: Sequence[int]) -> None:
    """Raise ResumeError where the run stays INVALID whatever is measured from now on."""
    for incident in run.incidents():
        if incident["kind"] != INTERRUPTED and incident["whose"] != CANDIDATE:
            told = f"{incident['whose']}: {incident['kind']}: {' '.join(str(incident['message']).split())[:200]}"
            raise ResumeError(f"{run.path}: INVALID for good ({told}): start a new run instead")
    look = next(count for count in looks if not at.is_past(count))
    if at.has_replaced_too_many(look):
        told = f"{at.replaced} blocks had to be replaced, too many for the look at {look} blocks"
        raise ResumeError(f"{run.path}: INVALID for good ({told}): start a new run instead")


def check_unchanged(run: Run, now: Json, clock_offset_ns: int) -> None:
    """Raise ResumeError unless host, software and model are those that the run began with, in the same boot.

    `now`: host, software and model as in run.json. `clock_offset_ns`: CLOCK_REALTIME minus CLOCK_MONOTONIC; a host that
    was started anew, slept or had its clock set has another one. Raises EvidenceError: not a run, or a damaged file.
    """
    recorded = run.facts.get("host")
    host = {**recorded, **{key: now["host"][key] for key in HOST}} if isinstance(recorded, dict) else now["host"]
    if different := differences(run.path, {**now, "host": host}):
        raise ResumeError(f"{run.path}: {different[0]}: start a new run instead")
    begun = (trial for trial in run.trials() if (trial.path / "counters.jsonl").exists())
    then_ns = next((s["realtime_ns"] - s["t_ns"] for trial in begun for s in trial.counters()), None)
    if then_ns is not None and abs(clock_offset_ns - then_ns) > CLOCK_STEP_NS:
        moved_s = (clock_offset_ns - then_ns) / 1e9
        told = f"this host was started anew or slept, or its clock was set (by {moved_s:.3f} s)"
        raise ResumeError(f"{run.path}: {told}: a run lies within one boot: start a new run instead")


def starts_begun(path: Path, arm: str) -> int:
    """Return the number of the arm's latest start, be it one that was cut off; 0 where there is none."""
    names = (folder.name.removeprefix("start-") for folder in (path / "raw" / arm).glob("start-*"))
    return max((int(name) for name in names if name.isdecimal()), default=0)


def differences(path: Path, wanted: Json) -> list[str]:
    """Return what of run.json is not as `wanted` (key -> value) any more: a run goes on as it began or not at all.

    Raises EvidenceError: not a run.
    """
    facts = Run(path).facts
    found = []
    for key, value in wanted.items():
        if facts.get(key) == value:
            continue
        mine, theirs = _flat(facts.get(key)), _flat(value)
        places = sorted(place for place in mine.keys() | theirs.keys() if mine.get(place) != theirs.get(place))
        first = places[0] if places else ""
        told = f"{mine.get(first)!r} when the run began, {theirs.get(first)!r} now"
        found.append(f"{key}{'.' if first else ''}{first}: {told}")
    return found


def _flat(value: object, place: str = "") -> dict[str, object]:
    if not isinstance(value, dict):
        return {place: value}
    found: dict[str, object] = {}
    for key, inner in value.items():
        found |= _flat(inner, f"{place}.{key}" if place else str(key))
    return found
