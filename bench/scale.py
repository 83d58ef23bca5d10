"""How much memory the client needs for how many requests: measured at two counts, the growth carried on to millions."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from bench.peers import PeerFailed
from workloads import calibrate

COUNTS = (50_000, 200_000)  # the backlog of answers to decode is full well before the first
USERS, OUTPUT_TOKENS, PROMPT_TOKENS = 64, 8, 64
WANTED, BAR_BYTES = 5_000_000, 500e6
TICK_S = 0.1
ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Memory:
    """Peak resident bytes of the client at each count of requests."""

    peak_bytes: dict[int, int]

    @property
    def at_wanted_bytes(self) -> float:
        """Return the peak at WANTED requests, by a straight line through the two that were measured."""
        (few, few_bytes), (many, many_bytes) = sorted(self.peak_bytes.items())
        return many_bytes + max(many_bytes - few_bytes, 0) / (many - few) * (WANTED - many)

    def lines(self) -> list[str]:
        """Return what was found in words."""
        told = ", ".join(f"{size / 1e6:.1f} MB after {count:,} requests" for count, size in self.peak_bytes.items())
        return [
            f"Peak resident memory of `python -m workloads send` with {USERS} users: {told};",
            f"carried on in a straight line: {self.at_wanted_bytes / 1e6:.0f} MB after {WANTED:,}.",
            "Records are written as they come, prompts made as they are needed; what is not yet decoded is bounded.",
            "",
            f"Our bar: below {BAR_BYTES / 1e6:.0f} MB after {WANTED:,}.",
            "Held." if self.held else "Missed.",
        ]

    @property
    def held(self) -> bool:
        """Return whether the peak carried on keeps to the bar."""
        return self.at_wanted_bytes < BAR_BYTES


def memory(work: Path) -> Memory:
    """Send both loads and return the peaks. Raises PeerFailed, CalibrationFailed."""
    return Memory({count: _peak_bytes(work, count) for count in COUNTS})


def _peak_bytes(work: Path, requests: int) -> int:
    folder = Path(tempfile.mkdtemp(prefix="memory-", dir=work))
    try:
        load = folder / "load.toml"
        load.write_text(
            f'schema = 1\ntitle = "many"\n[arrival.closed]\nusers = {USERS}\nrequests = {requests}\n'
            f"[prompts.unshared]\nprompt_tokens = {PROMPT_TOKENS}\noutput_tokens = {OUTPUT_TOKENS}\n",
            encoding="utf-8",
        )
        with calibrate.timing(folder, "server.jsonl", 0.01, 0.001, OUTPUT_TOKENS) as url:
            argv = [sys.executable, "-m", "workloads", "send", str(load), str(folder / "out"), "--url", url]
            child = subprocess.Popen([*argv, "--model", "timing"], cwd=ROOT, stdout=subprocess.DEVNULL)
            peak_bytes = 0
            try:
                while child.poll() is None:
                    # The peak that the kernel tells after the end would include ours, from before the exec.
                    with contextlib.suppress(psutil.Error):
                        peak_bytes = max(peak_bytes, psutil.Process(child.pid).memory_info().rss)
                    time.sleep(TICK_S)
            finally:
                child.kill()
                child.wait()
        if child.returncode:
            raise PeerFailed(f"sending {requests} requests ended with status {child.returncode}")
        return peak_bytes
    finally:
        shutil.rmtree(folder, ignore_errors=True)
