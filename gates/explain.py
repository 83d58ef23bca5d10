"""Why a run got its verdict, in words."""

from __future__ import annotations

from typing import Any

from workloads.evidence import Run

Json = dict[str, Any]


def explain(run: Run, verdict: Json) -> list[str]:
    """Return lines: the verdict, what decided it, what every row rests on, and what was thrown out."""
    rows = verdict["criteria"]
    # What is held against the run as a whole is told once, not again by every row.
    worst = [r for r in rows if r["verdict"] == verdict["verdict"] and r["reason"] not in verdict["reasons"]]
    lines = [f"{run.path.name}: {str(verdict['gate']).upper()} is {verdict['verdict']}."]
    if run.facts.get("rehearsal"):
        lines.append("It is a rehearsal: real software on emulated tiers. Nothing it says is an acceptance.")
    lines += [f"The run as a whole cannot be trusted: {reason}." for reason in verdict["reasons"]]
    if verdict["verdict"] != "PASS":
        lines += [f"Decided by {_row(row)}: {row['reason']}." for row in worst]
    lines += [
        f"{row['verdict']}: {_row(row)} (limit {row['operator']} {row['limit']:g} {row['unit']}): {row['reason']}."
        for row in rows
        if row["reason"] not in verdict["reasons"]
    ]
    blocks = verdict["blocks"]
    lines.append(f"It rests on {len(blocks['valid'])} valid blocks; {len(blocks['invalid'])} were thrown out.")
    lines += [f"Block {block['block']} was invalid: {block['reasons'][0]}." for block in blocks["invalid"]]
    return lines


def _row(row: Json) -> str:
    return f"{row['id']} at concurrency {row['step'] or 'unknown'}"
