"""Counter snapshots: both clocks of one moment, also where the process is put aside between reading them."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gates.validity.clocks import CLOCK_STEP_NS
from tests.looking import breaches
from tests.synthetic_truth import only, put
from workloads import counters, kernel_time

OFFSET_NS = 1_700_000_000_000_000_000
PAUSE_NS = 6_000_000


class Clocks:
    """Both clocks, 50 ns a reading; after the reading of that number this process is put aside."""

    def __init__(self, put_aside_after: int) -> None:
        self.now_ns, self.read, self.after = 10**9, 0, put_aside_after

    def _reading(self) -> int:
        value = self.now_ns
        self.now_ns += 50 + (PAUSE_NS if self.read == self.after else 0)
        self.read += 1
        return value

    def monotonic_ns(self) -> int:
        return self._reading()

    def time_ns(self) -> int:
        return OFFSET_NS + self._reading()


def snapshot() -> dict[str, Any]:
    live: Any = SimpleNamespace(
        base_url="http://127.0.0.1:9", cache=None, lmcache=None, tier=None, tier_folder=None,
        engine=SimpleNamespace(pid=os.getpid()),
    )  # fmt: skip
    return counters.snapshot(live, 0, True, "before")


@pytest.mark.parametrize("after", range(9))
def test_a_process_that_is_put_aside_makes_no_step_of_the_clock(monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    """One pause of 6 ms, where 5 make a run INVALID: wherever it comes, the two readings belong together."""
    monkeypatch.setattr(kernel_time, "time", Clocks(after))
    found = snapshot()
    assert abs(found["realtime_ns"] - found["t_ns"] - OFFSET_NS) < 1_000
    monkeypatch.setattr(kernel_time, "time", Clocks(after))
    assert abs(kernel_time.clock_offset_ns() - OFFSET_NS) < 1_000
    assert PAUSE_NS > CLOCK_STEP_NS


def test_a_clock_that_was_stepped_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    clocks = Clocks(99)
    monkeypatch.setattr(kernel_time, "time", clocks)
    before = snapshot()
    monkeypatch.setattr(clocks, "time_ns", lambda: OFFSET_NS + PAUSE_NS + clocks.monotonic_ns())
    after = snapshot()
    stepped_ns = (after["realtime_ns"] - after["t_ns"]) - (before["realtime_ns"] - before["t_ns"])
    assert stepped_ns == PAUSE_NS


def test_a_process_that_is_gone_is_told_from_one_that_could_not_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the first is anybody's fault: the judge takes it for the arm's, and the second for no data."""
    monkeypatch.setattr(counters, "started_ticks", lambda _pid: "EMFILE")
    assert snapshot()["engine_pid_started"] == "EMFILE"
    monkeypatch.setattr(counters, "started_ticks", lambda _pid: None)
    assert snapshot()["engine_pid_started"] is None


def test_not_to_have_been_able_to_ask_is_no_fault_of_the_arm(tmp_path: Path) -> None:
    change = only({"arm": "candidate", "wave": 3}, put(engine_pid_started="EMFILE"))
    assert {(b.check, b.whose) for b in breaches(tmp_path, snapshot=change)} == {("identity", "harness")}


def test_what_cannot_be_read_is_null() -> None:
    found = snapshot()
    assert found["engine_metrics"] is None and found["tier_read_bytes"] is None and found["tier_files"] is None
    assert found["engine_pid_started"] is not None
