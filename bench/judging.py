"""`make bench-judging`: how long judging takes, and how much memory, for evidence of millions of requests.

The run is made up (tests/synthetic.py), since no machine of ours measures as much in a day; it is judged by the command
that its user types. Reading every record once as JSON, and nothing else, is timed beside it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.synthetic import make_run
from tests.synthetic_truth import ROWS, Truth
from workloads.evidence import read_jsonl

ROOT = Path(__file__).resolve().parent.parent
STEPS, OUTPUT_TOKENS, ARMS, BLOCKS = (64, 256), 16, 2, 5  # recompute is measured for a few requests only
WANTED, BAR_S, BAR_BYTES = 5_000_000, 120.0, 1.5e9
TICK_S = 0.1


@dataclass(frozen=True)
class Judging:
    """What judging one run took."""

    requests: int
    wall_s: float
    peak_bytes: int  # of all of its processes together
    parse_s: float  # of every record once, in one process

    def lines(self) -> list[str]:
        """Return what was found in words."""
        each_us = self.wall_s / self.requests * 1e6
        told = [
            f"`python -m gates rejudge` of {self.requests:,} requests of {OUTPUT_TOKENS} tokens: {self.wall_s:.1f} s,",
            f"{each_us:.1f} us a request, {self.wall_s / self.parse_s:.2f} of the {self.parse_s:.1f} s that reading"
            " every record as JSON takes in one process;",
            f"peak of resident memory over all of its processes: {self.peak_bytes / 1e9:.2f} GB.",
            f"Bars, at {WANTED:,} requests: {BAR_S:.0f} s and {BAR_BYTES / 1e9:.1f} GB.",
        ]
        return [*told, ("Held." if self.held else "Missed.") if self.requests >= WANTED else "Not so many here."]

    @property
    def held(self) -> bool:
        """Return whether both bars are kept, as far as this run can tell."""
        return self.wall_s < BAR_S and self.peak_bytes < BAR_BYTES


def judging(folder: Path, requests: int) -> Judging:
    """Make up a run of at least so many requests below `folder`, judge it, and return what that took."""
    waves = -(-requests // (ARMS * BLOCKS * sum(STEPS)))
    path = make_run(
        folder,
        Truth(
            blocks=BLOCKS, steps=STEPS, load={"waves_measured": waves, "output_tokens": OUTPUT_TOKENS},
            ttft_s={"recompute": 0.03, "baseline": 0.012, "candidate": 0.006},
            selection={"collected": ROWS, "selected": ROWS},
        ),
    )  # fmt: skip
    files = sorted(path.glob("raw/*/c*/b*/requests.jsonl"))
    begin_s = time.monotonic()
    counted = sum(1 for file in files for _ in read_jsonl(file))
    parse_s = time.monotonic() - begin_s
    wall_s, peak_bytes = _judge(path)
    return Judging(counted, wall_s, peak_bytes, parse_s)


def _judge(path: Path) -> tuple[float, int]:
    """Return (wall s, peak bytes) of judging. Raises RuntimeError where the verdict is not the one that it must be."""
    begin_s, peak_bytes = time.monotonic(), 0
    child = subprocess.Popen([sys.executable, "-m", "gates", "rejudge", str(path)], cwd=ROOT, stdout=subprocess.DEVNULL)
    try:
        while child.poll() is None:
            peak_bytes = max(peak_bytes, sum(map(_resident_bytes, _tree(child.pid))))
            time.sleep(TICK_S)
    finally:
        child.kill()
        status = child.wait()
    if status != 0:
        raise RuntimeError(f"{path}: judged with status {status}, 0 expected: such figures are of something else")
    return time.monotonic() - begin_s, peak_bytes


def _tree(pid: int) -> list[psutil.Process]:
    try:
        return [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    except psutil.Error:
        return []


def _resident_bytes(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0


def main() -> int:
    """Print the lines; return 1 where a bar is missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.judging", description=__doc__)
    parser.add_argument("--requests", type=int, default=WANTED, help=f"5 GB and some 8 minutes at {WANTED:,}")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kvgate-judging-") as folder:
        found = judging(Path(folder), args.requests)
    print("\n".join(found.lines()))
    return 0 if found.held else 1


if __name__ == "__main__":
    sys.exit(main())
