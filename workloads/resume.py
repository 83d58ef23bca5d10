"""Where an interrupted run goes on: at the boundary of a block, with everything before it untouched.

What was under way when the run broke off is kept, told as a block that was not finished, and measured again whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scenarios.model import CANDIDATE, Scenario
from workloads.blocks import plan_blocks
from workloads.evidence import Run, RunDir

Json = dict[str, Any]


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


def position(recorded: RunDir, scenario: Scenario, looks: Sequence[int], seed: int) -> Position:
    """Return where the run stands; a block that was under way is written down as one that was not finished.

    Raises ResumeError: there is nothing to go on with, or nothing left to do. EvidenceError: a file is damaged.
    """
    run = Run(recorded.path)
    found = Position()
    for block in run.blocks():
        found.take(block)
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
        recorded.write_json(f"blocks/b{number:02d}.json", block)
        found.take(block)
    if not found.valid:
        raise ResumeError(f"{recorded.path}: no block was finished: start a new run instead")
    if found.valid >= looks[-1]:
        raise ResumeError(f"{recorded.path}: all {looks[-1]} blocks are there: there is nothing left to measure")
    return found


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
