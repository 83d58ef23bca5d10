"""A breach, and whose fault a recorded incident is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from gates.readers.prometheus import ReadError
from scenarios.model import BASELINE, CANDIDATE
from workloads.evidence import EvidenceError, Run

Json = dict[str, Any]

HOST, HARNESS = "host", "harness"
# Takes check, whose, reason.
Tell = Callable[[str, str, str], None]
# What reading evidence of another shape than the format says can raise; whatever it holds, it proves nothing.
MISSHAPEN = (
    EvidenceError,
    ReadError,
    LookupError,
    TypeError,
    ValueError,
    AttributeError,
    ArithmeticError,
    RecursionError,
)


@dataclass(frozen=True)
class Breach:
    """One reason not to trust a trial, or to hold something against the candidate."""

    check: str
    whose: str  # an arm's name, "host" or "harness"
    reason: str
    trial: str  # "<arm>/c<step>/b<nn>", or "run"

    def to_json(self) -> Json:
        """Return the breach as written to blocks/b<nn>.json."""
        return asdict(self)


def misshapen(error: Exception) -> str:
    """Return one line on an error of MISSHAPEN, in words that do not depend on Python's version."""
    if isinstance(error, EvidenceError | ReadError):
        return str(error)
    if isinstance(error, KeyError):
        return f"a record lacks the field {error.args[0]!r}"
    return f"a record holds a value of the wrong kind ({type(error).__name__})"


def blame(run: Run, incident: Json) -> str:
    """Return whose an incident is: as recorded, but for a candidate that did not start where the baseline did not.

    There the fault may lie in what the two share. Raises EvidenceError and what else is in MISSHAPEN.
    """
    whose = str(incident["whose"])
    if whose == CANDIDATE and incident["kind"] == "start-failed" and not run.starts(BASELINE):
        return HOST
    return whose
