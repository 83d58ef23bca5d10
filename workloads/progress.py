"""A line per phase with elapsed and remaining time; off a terminal, at most one each 30 s."""

from __future__ import annotations

import time
from collections.abc import Callable

QUIET_S = 30.0


class Progress:
    """Says where the run is. `write` gets whole lines; `terminal` says whether a person is looking."""

    def __init__(self, write: Callable[[str], None], terminal: bool, now: Callable[[], float] = time.monotonic) -> None:
        self._write = write
        self._terminal = terminal
        self._now = now
        self._began_s = now()
        self._said_s = float("-inf")
        self._blocks_began: tuple[float, float] | None = None

    def phase(self, what: str, done: float, of: float) -> None:
        """Say that a phase begins: `done` of `of` units of work are behind us (blocks, arms)."""
        now_s = self._now()
        if not self._terminal and now_s - self._said_s < QUIET_S:
            return
        self._said_s = now_s
        self._write(f"  {self._elapsed(now_s)} {what} ({done / of:.0%}{self._remaining(what, done, of, now_s)})")

    def line(self, text: str) -> None:
        """Say something that must not be lost, at once."""
        self._write(f"  {self._elapsed(self._now())} {text}")

    def _elapsed(self, now_s: float) -> str:
        return f"[{_clock(now_s - self._began_s)}]"

    def _remaining(self, what: str, done: float, of: float, now_s: float) -> str:
        """Guess from the pace since the first block began; populating has another pace."""
        if not what.startswith("block"):
            return ""
        if self._blocks_began is None:
            self._blocks_began = (now_s, done)
            return ""
        began_s, began_done = self._blocks_began
        if done <= began_done:
            return ""
        left_s = (now_s - began_s) / (done - began_done) * (of - done)
        return f", about {_clock(left_s)} to the next look"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
