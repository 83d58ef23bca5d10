"""Figures with the command that gives them, held against their bars."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass, field

from gates.oc import command
from gates.oc.simulation import Outcome
from gates.stats import Estimate


@dataclass
class Document:
    """Figures as they are made, and every bar that was not held."""

    repetitions: int
    noises: list[str]
    bars: int = 0
    missed: list[str] = field(default_factory=list)
    known: dict[str, Outcome] = field(default_factory=dict)

    def outcome(self, options: str) -> Outcome:
        """Return what `oc` with these options comes to."""
        if options not in self.known:
            line = f"{options} --repetitions {self.repetitions}"
            self.known[options] = command.case(command.parse(shlex.split(line))).run()
        return self.known[options]

    def told(self, options: str) -> str:
        """Return the command that gives a figure."""
        return f"`oc {options} --repetitions {self.repetitions}`"

    def at_most(self, what: str, found: Estimate, bar: float, word: Callable[[float], str]) -> str:
        """Return whether a figure is within its bar, and keep it where it is not."""
        self.bars += 1
        if found.high <= bar:
            return "held"
        if found.point <= bar:
            self.missed.append(f"{what}: {word(found.point)} is within {word(bar)}, its interval is not")
            return "held by the point"
        by = word(found.point - bar).replace("%", "percentage points")
        self.missed.append(f"{what}: {word(found.point)}, the bar is {word(bar)}: missed by {by}")
        return f"**missed by {by}**"


def per_cent(value: float) -> str:
    """Return a share in per cent."""
    return f"{100 * value:.3g} %"


def number(value: float) -> str:
    """Return a number of blocks."""
    return f"{value:.2f}"
