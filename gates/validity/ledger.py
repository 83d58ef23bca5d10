"""Which attempt a run is, and whether its extract of the ledger bears that out."""

from __future__ import annotations

from typing import Any

from gates.validity.breach import HARNESS, Tell
from workloads.evidence import EvidenceError, Run, read_json
from workloads.ledger import EXTRACT, LedgerError, Line, claims, counted, read_extract
from workloads.plain import shown

Json = dict[str, Any]


def check_ledger(run: Run, tell: Tell) -> None:
    """Tell if a lab run has no extract, if its chain is broken, or if it is not the attempt that run.json says.

    A rehearsal is always a first attempt and needs none; where it carries one, that must fit, too. Raises what is in
    MISSHAPEN.
    """
    if not (run.path / EXTRACT).exists():
        if counted(run.facts):
            tell("ledger", HARNESS, f"{EXTRACT}: missing: nobody can tell which attempt this is")
        number = 1
    else:
        try:
            start = read_extract(read_json(run.path / EXTRACT), EXTRACT)[-1]
        except LedgerError as error:
            tell("ledger", HARNESS, str(error))
            return
        _belongs(run, start, tell)
        number = start.values["attempt"]
    said = run.facts.get("attempt", None if counted(run.facts) else 1)
    if type(said) is not int or said != number:
        tell("ledger", HARNESS, f"run.json: attempt is {shown(repr(said))}, it is number {number} by {EXTRACT}")


def attempt(run: Run) -> int:
    """Return the k of this run: 1 for whatever is no attempt. Raises EvidenceError: none that can be counted from 1."""
    if not counted(run.facts):
        return 1
    number = run.facts.get("attempt")
    if type(number) is not int or number < 1:
        raise EvidenceError(f"{run.path / 'run.json'}: attempt is no number from 1")
    return number


def _belongs(run: Run, start: Line, tell: Tell) -> None:
    """The last line of the extract is the start of this very run: same site, scenario, criteria and suite."""
    for key, claimed in claims(run.facts).items():
        if start.values.get(key) != claimed:
            tell("ledger", HARNESS, f"{EXTRACT}: its {key} is not that of run.json")
