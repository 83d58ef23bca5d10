"""docs/right-answers.md on what is not there: whose fault it is, and what the verdict is then."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gates import verdict
from tests.synthetic import make_run
from tests.synthetic_truth import Truth, only, put
from workloads.evidence import Run

Json = dict[str, Any]


def lacking(arm: str) -> Any:
    return only({"arm": arm}, put(first_logprobs=None))


def null_hash(fault: str | None) -> Any:
    """Return the change that takes one hash from the candidate's files after its first block, for this reason."""

    def change(found: Json) -> None:
        if (found["arm"], found["block"]) == ("candidate", 1):
            file = next(iter(found["hashes"]))
            found["hashes"][file] = None
            if fault is not None:
                found["faults"][file] = fault

    return change


@pytest.mark.parametrize(
    ("truth", "expected"),
    [
        ({"request": lacking("candidate")}, "FAIL"),
        ({"request": lacking("baseline")}, "INVALID"),
        ({"request": lacking("recompute")}, "INVALID"),
        ({"request": put(first_logprobs=None)}, "INVALID"),
        ({"chunks": null_hash(None)}, "FAIL"),
        ({"chunks": null_hash("ENOENT")}, "FAIL"),
        ({"chunks": null_hash("EACCES")}, "INVALID"),
    ],
)
def test_what_is_not_there(tmp_path: Path, truth: Json, expected: str) -> None:
    result = verdict.judge(Run(make_run(tmp_path, Truth(**truth))))
    (faults,) = [r for r in result["criteria"] if (r["id"], r["step"]) == ("tier-faults", 2)]
    assert (faults["verdict"], result["verdict"]) == (expected, expected)
