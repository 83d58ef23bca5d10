"""Why a run got its verdict, in words."""

from __future__ import annotations

import re
from typing import Any

from gates.imports import judge as imported
from workloads.evidence import Run

Json = dict[str, Any]

# A note among the reasons, by gates/looks.py; every other reason of an INVALID verdict is held against the run.
ENDED = re.compile(r"the look at (\d+) blocks decided: .*")
SHOWN_MAX = 20  # faults of one row; verdict.json holds them all
KINDS = {
    "rehearsal": "It is a rehearsal: real software on emulated tiers. Nothing it says is an acceptance.",
    "selfcheck": "It is a self-check: the gate itself under test, on a truth that is known. It is no acceptance.",
}


def explain(run: Run, verdict: Json) -> list[str]:
    """Return lines: the verdict, what decided it, what every row rests on, and what was thrown out."""
    rows, reasons = verdict["criteria"], verdict["reasons"]
    lines = [f"{run.path.name}: {str(verdict['gate']).upper()} is {verdict['verdict']}."]
    if run.facts.get("rehearsal"):
        lines.append(KINDS["rehearsal"])
    if run.facts.get("kind") == "selfcheck":
        lines.append(KINDS["selfcheck"])
    doubted = verdict["verdict"] == "INVALID" or run.facts.get("kind") == imported.KIND
    against = [reason for reason in reasons if doubted and not ENDED.fullmatch(reason)]
    lines += [f"The run as a whole cannot be trusted: {reason}." for reason in against]
    # What is held against the run as a whole is told once, not again by every row.
    told = [row for row in rows if row["reason"] not in against]
    decisive = [row for row in told if row["verdict"] == verdict["verdict"] != "PASS"]
    lines += [f"Decided by {_row(row)}: {row['reason']}." for row in decisive]
    only_passed = verdict["verdict"] == "INCONCLUSIVE" and not decisive
    lines += [f"{'Decided by' if only_passed else 'Note'}: {reason}." for reason in reasons if reason not in against]
    for row in told:
        limit = f"limit {row['operator']} {row['limit']:g} {row['unit']}"
        lines.append(f"{row['verdict']}: {_row(row)} ({limit}): {row['reason']}.")
        lines += _further(verdict, row)
    lines += _blocks(run, verdict)
    return lines


def _looks(run: Run) -> list[int]:
    """Return the numbers of blocks at which the run is judged; none where run.json does not tell them."""
    looks = run.facts.get("looks")
    blocks = looks.get("blocks") if isinstance(looks, dict) else None
    return [n for n in blocks if type(n) is int] if isinstance(blocks, list) else []


def _further(verdict: Json, row: Json) -> list[str]:
    """Return the faults that a count found, beyond the first, which its reason names."""
    if row["metric"] != "tier_faults" or row["verdict"] != "FAIL":
        return []
    at, arms = f"/c{row['step']}/", row["arms"]
    mine = [b for b in verdict["breaches"] if b["whose"] in arms and b["check"] != "errors"]
    others = [b for b in mine if b["trial"] == "run" or at in b["trial"]][1:]
    lines = [f"  and {b['trial']}: {b['check']}: {b['reason']}." for b in others[:SHOWN_MAX]]
    if len(others) > SHOWN_MAX:
        lines.append(f"  and {len(others) - SHOWN_MAX} more: all are in verdict.json, under breaches.")
    return lines


def _blocks(run: Run, verdict: Json) -> list[str]:
    """Return what the comparisons rest on: the blocks of the look that judged, which need not be all that are valid."""
    blocks = verdict["blocks"]
    valid, invalid = len(blocks["valid"]), blocks["invalid"]
    ended = [int(found[1]) for reason in verdict["reasons"] if (found := ENDED.fullmatch(reason))]
    judged = ended or [n for n in _looks(run) if n <= valid][-1:]
    rests = f"{judged[0]} of {valid} valid blocks" if judged and judged[0] < valid else f"{valid} valid blocks"
    lines = [f"It rests on {rests}; {len(invalid)} were thrown out."]
    undecided = any(row["verdict"] == "INCONCLUSIVE" for row in verdict["criteria"])
    if verdict["verdict"] == "INCONCLUSIVE" and undecided and (looks := _looks(run)):
        ahead = [n for n in looks if n > valid][:1]
        lines.append(f"The next look is at {ahead[0]} blocks." if ahead else "That was the last look: no more follows.")
    for block in invalid:
        first, *more = block["reasons"]
        lines.append(f"Block {block['block']} was invalid: {first}{f' (and {len(more)} more)' if more else ''}.")
    return lines


def _row(row: Json) -> str:
    return f"{row['id']} at concurrency {row['step'] or 'unknown'}"
