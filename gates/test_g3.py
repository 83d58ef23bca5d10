"""G3, the main gate: TTFT and throughput of the candidate against local NVMe, and against recompute.

`pytest --collect-only gates/test_g3.py` reads as the plan: one test per criterion and step. All tests share one run,
which is measured, sealed and judged before the first of them says its row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gates import validity
from gates.criteria import Case
from workloads.evidence import Run


def test_criterion(criterion: Case, gate_session: Any, record_property: Callable[[str, object], None]) -> None:
    """The criterion holds at its step, by the sealed evidence."""
    rows = [
        row
        for row in gate_session.verdict["criteria"]
        if (row["id"], row["step"]) == (criterion.criterion.id, criterion.step)
    ]
    assert len(rows) == 1, f"verdict.json has {len(rows)} rows for {criterion.id}"
    record_property("verdict", rows[0]["verdict"])
    record_property("run", str(gate_session.path))
    if rows[0]["verdict"] != "PASS":
        pytest.fail(f"{rows[0]['verdict']}: {rows[0]['reason']}", pytrace=False)


def test_smoke(trial: tuple[str, int], gate_session: Any, record_property: Callable[[str, object], None]) -> None:
    """One wave of this arm at this step could be trusted, and so could the run."""
    arm, step = trial
    if gate_session.problem:
        pytest.fail(gate_session.problem.splitlines()[0], pytrace=False)
    run = Run(gate_session.path)
    found = run.trial(arm, step, 1)
    if found is None:
        pytest.fail(f"{arm} at concurrency {step} was not measured", pytrace=False)
    breaches = [*validity.check_run(run), *validity.check_trial(run, found)]
    record_property("verdict", "INVALID" if breaches else "PASS")
    if breaches:
        pytest.fail("; ".join(f"{b.check}: {b.reason}" for b in breaches), pytrace=False)
