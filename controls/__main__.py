"""`make selfcheck`: the gate itself under test, on the real engine, against tiers of known truth.

Each control is a whole gate run in a process of its own, on the rehearsal site with one thing changed. What the gate
must say is fixed beforehand; the table shows it beside what the gate said.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from workloads.evidence import write_whole

ROOT = Path(__file__).resolve().parent.parent
SITE = ROOT / "scenarios/sites/rehearsal.toml"
SCENARIO = ROOT / "scenarios/catalog/rehearsal.toml"
DEADLINE_S = 1800.0
BASELINE_SPEED, CANDIDATE_SPEED = "read_bytes_per_s = 40_000_000", "read_bytes_per_s = 100_000_000"

Change = tuple[str, str]
# One step and two measured waves are enough for an effect that is either plain or absent.
SHORT: tuple[Change, ...] = (
    ("steps = [2, 4]", "steps = [2]"),
    ("waves_measured = 5", "waves_measured = 2"),
    ("recompute_blocks = 3", "recompute_blocks = 5"),
)


@dataclass(frozen=True)
class Control:
    """One thing that is changed, and the verdict that it must give."""

    name: str
    what: str
    expected: str
    because: str  # must stand in one of the verdict's reasons; empty: anywhere
    site: tuple[Change, ...] = ()
    meanwhile: Callable[[Path], None] | None = None  # done while the gate runs; gets the folder of runs


@dataclass(frozen=True)
class Outcome:
    """What a control gave."""

    control: Control
    given: str
    reason: str
    wall_s: float

    @property
    def holds(self) -> bool:
        """Return whether the gate said what it had to, for the reason that it had to."""
        return self.given == self.control.expected and self.control.because in self.reason


def kill_candidate(runs: Path) -> None:
    """Kill the candidate's engine in the second block."""
    _until(lambda: any(runs.glob("*/raw/candidate/c2/b02/counters.jsonl")))
    (start,) = runs.glob("*/raw/candidate/start-01/start.json")
    with contextlib.suppress(psutil.NoSuchProcess):
        engine = psutil.Process(json.loads(start.read_bytes())["engine"]["pid"])
        for process in (*engine.children(recursive=True), engine):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()


def _speed(bytes_per_s: str) -> Change:
    return CANDIDATE_SPEED, f"read_bytes_per_s = {bytes_per_s}"


def _faulty(fault: str) -> Change:
    return CANDIDATE_SPEED, f'{CANDIDATE_SPEED}, fault = "{fault}"'


CONTROLS = (
    Control("equal", "both tiers 40 MB/s", "FAIL", "misses", (_speed("40_000_000"),)),
    Control("ten-percent", "the candidate 10 % faster", "FAIL", "misses", (_speed("44_000_000"),)),
    Control("good", "the candidate 2.5 times as fast", "PASS", ""),
    Control("wrong-kv", "the candidate serves wrong bytes", "FAIL", "first tokens", (_faulty("wrong-kv"),)),
    Control(
        "silent-recompute",
        "the candidate stores nothing and says that it did",
        "INVALID",
        "does not keep what the engine computes",
        (_faulty("stores-nothing"),),
    ),
    Control("killed", "the candidate's engine is killed in block 2", "FAIL", "ended with status", (), kill_candidate),
)


def run(control: Control, folder: Path) -> Outcome:
    """Run one control; what it recorded stays in `folder`. Raises TimeoutExpired."""
    work = f'rehearsal = true\nwork_dir = "{ROOT / ".work"}"'
    site, scenario, runs = folder / "site.toml", folder / "scenario.toml", folder / "runs"
    site.write_text(changed(SITE.read_text("utf-8"), ("rehearsal = true", work), *control.site), encoding="utf-8")
    scenario.write_text(changed(SCENARIO.read_text("utf-8"), *SHORT), encoding="utf-8")
    argv = [
        sys.executable, "-m", "pytest", "gates/test_g3.py", "--site", str(site), "--scenario", str(scenario),
        "--runs", str(runs), "--langs", "en", "--selfcheck",
    ]  # fmt: skip
    began_s = time.monotonic()
    with (folder / "said.txt").open("wb") as said:
        gate = subprocess.Popen(argv, cwd=ROOT, stdout=said, stderr=subprocess.STDOUT)
        try:
            if control.meanwhile is not None:
                control.meanwhile(runs)
            gate.wait(DEADLINE_S)
        finally:
            if gate.poll() is None:
                gate.terminate()  # it ends its engines, and then itself
                gate.wait()
    wall_s = time.monotonic() - began_s
    for file in runs.glob("*/verdict.json"):
        verdict = json.loads(file.read_bytes())
        rows = [row["reason"] for row in verdict["criteria"] if row["verdict"] == verdict["verdict"]]
        reasons = verdict["reasons"] if verdict["verdict"] == "INVALID" else rows
        fitting = [reason for reason in reasons if control.because in reason] or reasons
        return Outcome(control, verdict["verdict"], fitting[0] if fitting else "", wall_s)
    lines = (folder / "said.txt").read_text("utf-8", "replace").strip().splitlines()
    return Outcome(control, "no verdict", lines[-1] if lines else "", wall_s)


def changed(text: str, *changes: Change) -> str:
    """Return the text with each change made once. Raises ValueError where one has nothing to change."""
    for old, new in changes:
        if old not in text:
            raise ValueError(f"nothing to change: {old!r} is not in the text")
        text = text.replace(old, new, 1)
    return text


def table(outcomes: Sequence[Outcome]) -> list[str]:
    """Return the outcomes as a table in Markdown."""
    lines = ["| control | what is true | expected | given | minutes | because |", "|---|---|---|---|---|---|"]
    for one in outcomes:
        given = one.given if one.holds else f"**{one.given}**"
        cells = (one.control.name, one.control.what, one.control.expected, given, f"{one.wall_s / 60:.1f}", one.reason)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return lines


def _until(holds: Callable[[], bool]) -> None:
    end_s = time.monotonic() + DEADLINE_S
    while not holds() and time.monotonic() < end_s:
        time.sleep(0.2)


def main(argv: list[str]) -> int:
    """Run the controls; return 0 where each gave its verdict, 1 where one did not."""
    parser = argparse.ArgumentParser(prog="python -m controls", description="the gate against tiers of known truth")
    parser.add_argument("--only", action="append", choices=[control.name for control in CONTROLS])
    parser.add_argument("--keep", type=Path, help="folder for what the controls record; default: a temporary one")
    parser.add_argument("--out", type=Path, help="where the table is written, too")
    args = parser.parse_args(argv)
    outcomes = []
    with contextlib.ExitStack() as stack:
        keep = args.keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kvgate-selfcheck-")))
        for control in CONTROLS:
            if args.only and control.name not in args.only:
                continue
            folder = keep / control.name
            folder.mkdir(parents=True)
            print(f"{control.name}: {control.what}; expected {control.expected}", flush=True)
            outcomes.append(run(control, folder))
            print(f"  given {outcomes[-1].given} after {outcomes[-1].wall_s / 60:.1f} minutes", flush=True)
    lines = table(outcomes)
    print("\n".join(lines))
    if args.out:
        write_whole(args.out, ("\n".join(lines) + "\n").encode())
    return 0 if all(outcome.holds for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
