"""What each look saw: a run is judged look by look in their order, and the first one that decides has decided."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gates.facts import Facts


def at_looks(facts: Facts, looks: Sequence[int]) -> list[Facts]:
    """Return the facts as each look that was reached saw them, in their order; as they are where none was.

    A look sees the valid blocks up to its own number. What is held against the run or against the candidate for good
    is not cut: no later block washes it out, and no earlier look escapes it.
    """
    reached = [count for count in looks if count <= len(facts.valid)]
    return [replace(facts, valid=facts.valid[:count]) for count in reached] or [facts]


def ended_by(facts: Facts, seen: Facts) -> list[str]:
    """Return a line where blocks were measured after the look that decided; `seen` is what that look saw."""
    if facts.untrusted or len(seen.valid) == len(facts.valid):
        return []
    later = len(facts.valid) - len(seen.valid)
    return [f"the look at {len(seen.valid)} blocks decided: {later} valid blocks that came after it do not count"]
