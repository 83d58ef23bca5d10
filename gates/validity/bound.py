"""Every record is of this run: what was copied in from another one is told, wherever it lies."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from gates.validity.breach import HARNESS, Tell
from gates.validity.digest import digests
from workloads.evidence import RECORDS, EvidenceError, Run, read_json, read_jsonl
from workloads.plain import shown


def check_bound(run: Run, tell: Tell) -> None:
    """Tell of the first record in each file that is of another run, or of none. Raises EvidenceError, OSError.

    What cannot be read is left to the checks that need it.
    """
    run_id = run.facts.get("run_id")
    if not isinstance(run_id, str) or not run_id:
        raise EvidenceError(f"{run.path / 'run.json'}: run_id is missing")
    seen = {trial.path / "requests.jsonl": read.sketch().foreign_run for trial, read in digests(run)}
    for file in sorted(run.path.rglob("*.json*")):
        name = file.relative_to(run.path).as_posix()
        if RECORDS.fullmatch(name) and file.is_file():
            known = seen.get(file)
            others = iter([known] if known is not None else ()) if file in seen else _others(file, run_id)
            for number, found in others:
                whose = f"run {shown(found)[:80]}" if isinstance(found, str) else "no run that it names"
                tell("bound", HARNESS, f"{name}:{number}: a record of {whose}, not of {shown(run_id)}")
                break


def _others(file: Path, run_id: str) -> Iterator[tuple[int, object]]:
    """Yield (line, run that it names) for each record that does not name `run_id`."""
    if file.suffix == ".json":
        value = read_json(file).get("run")
        if value != run_id:
            yield 1, value
        return
    try:
        for number, record in enumerate(read_jsonl(file), start=1):
            if record.get("run") != run_id:
                yield number, record.get("run")
    except EvidenceError:
        return
