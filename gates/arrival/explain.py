"""Why an arrival check got its verdict, in words."""

from __future__ import annotations

from typing import Any

from gates.rule import INVALID
from workloads.evidence import Run

Json = dict[str, Any]

WORST_FIRST = ("FAIL", "INVALID", "INCONCLUSIVE", "PASS")


def explain(run: Run, verdict: Json) -> list[str]:
    """Return lines: the verdict, what speaks against the run, every row with its file, and what is not declared."""
    lines = [f"{run.path.name}: G1 is {verdict['verdict']}."]
    if run.facts.get("rehearsal"):
        lines.append("It is a rehearsal: nothing it says is an acceptance.")
    what = "The run as a whole cannot be trusted" if verdict["verdict"] == INVALID else "Note"
    lines += [f"{what}: {reason}." for reason in verdict["reasons"]]
    rows = sorted(verdict["criteria"], key=lambda row: WORST_FIRST.index(row["verdict"]))
    lines += [_line(row) for row in rows if row["reason"] not in verdict["reasons"]]
    not_declared = [item["id"] for item in verdict.get("not_declared", [])]
    if not_declared:
        lines.append(f"Not declared, so not checked: {', '.join(not_declared)}.")
    return lines


def _line(row: Json) -> str:
    limit = f" (limit {row['operator']} {row['limit']:g} {row['unit']})" if row["limit"] is not None else ""
    files = f" See {', '.join(row['raw'])}." if row["raw"] else ""
    return f"{row['verdict']}: {row['id']}, declared {row['declared']}{limit}: {row['reason']}.{files}"
