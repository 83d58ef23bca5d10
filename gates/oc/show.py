"""Outcomes as a table."""

from __future__ import annotations

from collections.abc import Sequence

from gates.oc.simulation import Outcome
from gates.stats import Estimate


def share(estimate: Estimate) -> str:
    """Return a share with its interval, in per cent: small ones with more digits."""
    return f"{_per_cent(estimate.point)} % [{_per_cent(estimate.low)}, {_per_cent(estimate.high)}]"


def table(found: Sequence[tuple[str, Outcome]]) -> list[str]:
    """Return a Markdown table with a line per truth, shares with 95 % intervals."""
    head = ["| truth | PASS | FAIL | INCONCLUSIVE | blocks on average |", "|---|---|---|---|---|"]
    return head + [
        f"| {name} | {share(o.pass_)} | {share(o.fail)} | {share(o.inconclusive)} | {o.mean_blocks.point:.2f} |"
        for name, o in found
    ]


def _per_cent(value: float) -> str:
    percent = 100 * value
    if percent in (0, 100) or 10 <= percent <= 90:
        return f"{percent:.4g}"
    return f"{percent:.3f}" if percent < 0.1 or percent > 99.9 else f"{percent:.2f}"
