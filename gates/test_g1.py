"""G1, the arrival check: is what stands here what was ordered, healthy, wired right, and fast enough raw?

`pytest --collect-only gates/test_g1.py` reads as the checklist: one test per declared thing. All tests share one run,
which is collected, sealed and judged before the first of them says its row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gates.arrival.check import Check


def test_criterion(criterion: Check, gate_session: Any, record_property: Callable[[str, object], None]) -> None:
    """What was declared is what was found, by the sealed evidence."""
    rows = [row for row in gate_session.verdict["criteria"] if row["id"] == criterion.id]
    assert len(rows) == 1, f"verdict.json has {len(rows)} rows for {criterion.id}"
    record_property("verdict", rows[0]["verdict"])
    record_property("run", str(gate_session.path))
    if rows[0]["verdict"] != "PASS":
        pytest.fail(f"{rows[0]['verdict']}: {rows[0]['reason']}", pytrace=False)
