"""Everything below raw/, blocks/ and calibration/ has the one name that it must have.

A folder of another name could hold a second measurement that is read beside the first, or one that nothing reads.
"""

from __future__ import annotations

import re
from pathlib import Path

from gates.validity.breach import HARNESS, Tell
from scenarios.model import BASELINE
from workloads.evidence import Run, read_json
from workloads.plain import SCRATCH, shown

CHECK = "places"
_NUMBER = r"(0[1-9]|[1-9]\d|[1-9]\d{2,})"  # from 1, with at least two digits, in one way only
TOLD_MAX = 5


def check_places(run: Run, tell: Tell) -> None:
    """Tell of files and folders that no run writes, and of a block under another number.

    Raises what is in MISSHAPEN.
    """
    arms = {name: bool(arm["tiers"]) for name, arm in run.facts["scenario"]["arms"].items()}
    patterns = _files(arms, [int(step) for step in run.facts["scenario"]["steps"]])
    files = re.compile("|".join(f"(?:{pattern})" for pattern in patterns))
    folders = re.compile("|".join(f"(?:{folder})" for folder in sorted({f for p in patterns for f in _above(p)})))
    told = 0
    for top in ("raw", "blocks", "calibration"):
        for path in sorted((run.path / top).rglob("*")):
            name = path.relative_to(run.path).as_posix()
            if path.is_dir() and not path.is_symlink():
                odd = not folders.fullmatch(name)
            else:
                # What is being written has such a name for a moment; one that was left behind is told when verifying.
                odd = not files.fullmatch(name) and not SCRATCH.fullmatch(path.name)
            if odd and told < TOLD_MAX:
                told += 1
                tell(CHECK, HARNESS, f"{shown(name)}: no part of a run has this name")
    for file in sorted(run.path.glob("blocks/b*.json")):
        _is_its_block(file, tell)


def _files(arms: dict[str, bool], steps: list[int]) -> list[str]:
    """Return the patterns of all files, from the run's folder; `arms`: whether each has a tier."""
    step = f"c({'|'.join(map(str, steps))})"
    found = [f"blocks/b{_NUMBER}\\.json", f"calibration/{step}/((requests|server)\\.jsonl|server\\.log)"]
    for arm, has_tier in arms.items():
        own = f"raw/{re.escape(arm)}"
        trial = r"((trial|chunks)\.json|(requests|counters)\.jsonl|engine\.log)"
        found += [f"{own}/start-{_NUMBER}/(start\\.json|engine\\.log)", f"{own}/needles\\.json"]
        found += [f"{own}/{step}/b{_NUMBER}/{trial}"]
        if has_tier:
            found += [f"{own}/start-{_NUMBER}/lmcache\\.log", f"{own}/populate\\.jsonl"]
        if arm == BASELINE:
            found += [f"{own}/control\\.json"]
    return found


def _above(pattern: str) -> list[str]:
    """Return the patterns of the folders that such a file lies in; no name in a pattern has a slash in it."""
    parts = pattern.split("/")
    return ["/".join(parts[:depth]) for depth in range(1, len(parts))]


def _is_its_block(file: Path, tell: Tell) -> None:
    number = read_json(file)["block"]
    if type(number) is not int or file.name != f"b{number:02d}.json":
        tell(CHECK, HARNESS, f"blocks/{shown(file.name)}: it says that it is block {number!r}")
