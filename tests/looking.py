"""What the checks say of a trial, for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gates import validity
from tests.synthetic import make_run
from tests.synthetic_truth import Truth
from workloads.evidence import Run


def breaches(folder: Path, arm: str = "candidate", **truth: Any) -> list[validity.Breach]:
    """Return the breaches of the arm's first trial, at concurrency 2, in a run of one block that is made by `truth`."""
    return breaches_of(make_run(folder, Truth(blocks=1, **truth)), f"{arm}/c2/b01")


def breaches_of(path: Path, name: str) -> list[validity.Breach]:
    """Return the breaches of one trial of a recorded run, `<arm>/c<step>/b<nn>`."""
    arm, step, block = name.split("/")
    run = Run(path)
    trial = run.trial(arm, int(step[1:]), int(block[1:]))
    assert trial is not None
    return validity.check_trial(run, trial)
