"""Everything in a run has the one name that it must have: nothing lies beside what is judged.

A folder of another name could hold a second measurement that is read beside the first, or one that nothing reads.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from gates.validity.breach import HARNESS, Tell
from scenarios.model import BASELINE
from workloads.arrival_run import AFTER, BEFORE, FIO
from workloads.bundle import INDEX, NAME
from workloads.evidence import SESSION, Run, read_json
from workloads.ledger import EXTRACT
from workloads.plain import SCRATCH, shown
from workloads.seal import DERIVED

CHECK = "places"
_NUMBER = r"(0[1-9]|[1-9]\d|[1-9]\d{2,})"  # from 1, with at least two digits, in one way only
# Of every run. What the customer agreed to is sealed with the run where it is in there (docs/reports.md).
_COMMON = (r"run\.json", r"criteria\.toml", r"waivers\.toml")
_MEASURED = (rf"incidents{SESSION}\.jsonl", re.escape(EXTRACT))
_BUNDLE = rf"({re.escape(INDEX)}|{NAME.pattern}\.(stdout|stderr|rc))"
_ANY_DEPTH = "(/[^/]+)+"  # below a folder whose names are not ours
TOLD_MAX = 5


def check_places(run: Run, tell: Tell) -> None:
    """Tell of files and folders that no G3 run writes, and of a block under another number.

    Raises what is in MISSHAPEN.
    """
    for line in foreign(run, _of_g3(run)):
        tell(CHECK, HARNESS, line)
    for file in sorted(run.path.glob("blocks/b*.json")):
        _is_its_block(file, tell)


def foreign(run: Run, own: Iterable[str]) -> list[str]:
    """Return a line on each of the first files and folders in the run that none writes; `own`: patterns of its kind's.

    What is derived from the evidence is no matter of this, nor what is being written: it has such a name for a moment,
    and one that was left behind is told when verifying.
    """
    patterns = [*_COMMON, *own]
    files = re.compile("|".join(f"(?:{pattern})" for pattern in patterns))
    folders = re.compile("|".join(f"(?:{folder})" for folder in sorted({f for p in patterns for f in _above(p)})))
    found: list[str] = []
    for name, is_folder in _all(run.path):
        known = folders if is_folder else files
        if not known.fullmatch(name) and len(found) < TOLD_MAX:
            found.append(f"{shown(name)}: no part of a run has this name")
    return found


def of_arrival(run: Run) -> list[str]:
    """Return the patterns of a G1's own files: what was collected elsewhere is kept whole, whatever its names."""
    raw = (run.facts["site"].get("bom") or {}).get("raw") or {}
    before = f"{BEFORE}/{_BUNDLE}" if run.facts["bundle"] is None else f"{BEFORE}{_ANY_DEPTH}"
    jobs = [f"{FIO}/{re.escape(name)}/{_BUNDLE}" for name in raw]
    return [*_MEASURED, before, f"{AFTER}/{_BUNDLE}", *jobs]


def _all(path: Path) -> Iterator[tuple[str, bool]]:
    """Yield (name, whether it is a folder) of everything in the run; follows no link."""
    for place in sorted(path.rglob("*")):
        name = place.relative_to(path).as_posix()
        is_folder = place.is_dir() and not place.is_symlink()
        if is_folder or not (DERIVED.fullmatch(name) or SCRATCH.fullmatch(place.name)):
            yield name, is_folder


def _of_g3(run: Run) -> list[str]:
    """Return the patterns of its own files, from the run's folder."""
    scenario = run.facts["scenario"]
    step = f"c({'|'.join(str(int(step)) for step in scenario['steps'])})"
    found = [
        *_MEASURED, r"baseline\.json", f"blocks/b{_NUMBER}\\.json",
        rf"host/(before|after){SESSION}/[A-Za-z0-9_-]+\.txt",
        f"calibration/{step}/((requests|server)\\.jsonl|server\\.log)",
    ]  # fmt: skip
    for arm, described in scenario["arms"].items():
        own = f"raw/{re.escape(arm)}"
        trial = r"((trial|chunks)\.json|(requests|counters)\.jsonl|engine\.log)"
        found += [f"{own}/start-{_NUMBER}/(start\\.json|engine\\.log)", f"{own}/needles\\.json"]
        found += [f"{own}/{step}/b{_NUMBER}/{trial}"]
        if described["tiers"]:
            found += [f"{own}/start-{_NUMBER}/lmcache\\.log", f"{own}/populate\\.jsonl"]
        if arm == BASELINE:
            found += [f"{own}/control\\.json"]
    return found


def _above(pattern: str) -> list[str]:
    """Return the patterns of the folders that such a file lies in; where any depth will do, its own is theirs."""
    if pattern.endswith(_ANY_DEPTH):
        top = pattern.removesuffix(_ANY_DEPTH)
        return [*_above(f"{top}/x"), pattern]
    parts = pattern.split("/")
    return ["/".join(parts[:depth]) for depth in range(1, len(parts))]


def _is_its_block(file: Path, tell: Tell) -> None:
    number = read_json(file)["block"]
    if type(number) is not int or file.name != f"b{number:02d}.json":
        tell(CHECK, HARNESS, f"blocks/{shown(file.name)}: it says that it is block {number!r}")
