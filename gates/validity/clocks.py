"""Whose clock stamped the reads, and how many first tokens share their read with something later."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from gates.columns import Columns
from gates.metrics import NS
from gates.validity.breach import HARNESS, HOST, Tell
from gates.validity.records import Sketch
from workloads.calibrate import FOLDER
from workloads.evidence import Run, read_jsonl

Json = dict[str, Any]

CLOCKS = ("kernel", "user")
CLOCK_STEP_NS = 5_000_000  # more than the kernel slews in a trial, less than any step that matters


class Stamps:
    """Looks at a trial's time stamps wave by wave."""

    def __init__(self, shared_read_budget: float) -> None:
        self._budget = shared_read_budget
        self._clocks: set[object] = set()  # of successful requests
        self._unknown: str | None = None  # the first record of an unknown clock, and which
        self._untold: str | None = None  # the first record without a word on sharing its read
        self._shared = self._measured = 0
        self._least_ns, self._most_ns = math.inf, -math.inf

    def take(self, requests: Sequence[Json], columns: Columns | None) -> None:
        """Take the records of a wave. Raises what is in MISSHAPEN for one of another shape."""
        if columns is not None and columns.clocks <= {*CLOCKS} and len(columns.measured) == 1:
            self._clocks |= columns.clocks
            if columns.measured == {True}:
                self._measured += len(requests)
                self._shared += columns.shared_reads
            self.take_offsets([columns.least_offset_ns, columns.most_offset_ns])
            return
        for r in requests:
            clock, good = r["clock"], r["status"] == "ok"
            if good:
                self._clocks.add(clock)
            if clock not in CLOCKS and (good or clock is not None) and self._unknown is None:
                self._unknown = f"{r['id']}: stamped by the clock {clock!r}"
            if not isinstance(shared := r["first_shared_read"], bool):
                self._untold = self._untold or str(r["id"])
            elif r["measured"] is True:
                self._measured += 1
                self._shared += shared
        self.take_offsets([r["clock_offset_ns"] for r in requests])

    def take_offsets(self, offsets_ns: Sequence[int]) -> None:
        """Take CLOCK_REALTIME minus CLOCK_MONOTONIC of some moments of the trial."""
        self._least_ns = min(self._least_ns, *offsets_ns) if offsets_ns else self._least_ns
        self._most_ns = max(self._most_ns, *offsets_ns) if offsets_ns else self._most_ns

    def tell(self, tell: Tell) -> None:
        """Tell of an unknown clock, of more than one, of a step of the clock, and of too many shared reads.

        A failed request need not have a clock, and its times are not compared. First tokens that came in one read with
        a later event were given its time; their share is judged over all measured requests of the trial. One may
        always be: with fewer than 1 / budget requests the share would allow none, and a single request does not carry
        the mean over waves of their medians.
        """
        if (spread_ns := self._most_ns - self._least_ns) > CLOCK_STEP_NS:
            told = f"the clock was stepped by {spread_ns * NS * 1e3:.1f} ms within the trial"
            tell("clock", HOST, f"{told}, {CLOCK_STEP_NS * NS * 1e3:g} ms allowed")
        if self._unknown is not None:
            tell("clock", HARNESS, f"{self._unknown}, {' or '.join(CLOCKS)} expected")
        elif len(self._clocks) > 1:
            clocks = " and ".join(sorted(map(str, self._clocks)))
            tell("clock", HARNESS, f"its requests were stamped by different clocks: {clocks}")
        if self._untold is not None:
            tell("shared-read", HARNESS, f"{self._untold}: no data on whether its first token shared a read")
        elif self._shared > 1 and self._shared / self._measured > self._budget:
            told = f"{self._shared} of {self._measured} first tokens shared their read with a later event"
            tell("shared-read", HARNESS, f"{told}, {self._budget * 100:g} % allowed")


def check_same_clock(trials: Sequence[Sketch], tell: Tell) -> None:
    """Tell if at one step some trials were stamped by the kernel and others by the user: arms would not compare."""
    found: dict[int, dict[str, str]] = {}
    for trial in trials:
        if len(trial.clocks) == 1:  # more than one is told of the trial itself
            found.setdefault(trial.step, {}).setdefault(next(iter(trial.clocks)), trial.name)
    for step, by_clock in sorted(found.items()):
        if len(by_clock) > 1:
            told = ", but ".join(
                f"{name} was stamped by the clock '{clock}'" for clock, name in sorted(by_clock.items())
            )
            tell("clock", HARNESS, f"concurrency {step}: {told}: their times do not compare")


def check_one_offset(run: Run, trials: Sequence[Sketch], tell: Tell) -> None:
    """Tell if CLOCK_REALTIME minus CLOCK_MONOTONIC changed over the run by more than within one trial.

    Nothing is added for the hours in between: what slews the one clock, NTP's 500 ppm and adjtime included, slews the
    other just as much, so that their difference changes by steps alone (runs on a machine with NTP show 30 us). A
    calibration of another boot, and a host that slept, show here, too. Raises what is in MISSHAPEN.
    """
    found: list[tuple[int, str]] = []
    for trial in trials:
        found += [(s["realtime_ns"] - s["t_ns"], trial.name) for s in trial.edges or ()]
    for arm in run.facts["scenario"]["arms"]:
        for line in run.populated(arm):
            place = f"{arm}, populating set {line['prompt_set']}"
            found += [(r["clock_offset_ns"], place) for r in line["requests"] if r["status"] == "ok"]
    for file in sorted((run.path / FOLDER).glob("c*/requests.jsonl")):
        place = f"the calibration at concurrency {file.parent.name[1:]}"
        found += [(r["clock_offset_ns"], place) for r in read_jsonl(file) if r["status"] == "ok"]
    if not found:
        return
    (least, one), (most, other) = min(found), max(found)
    if not most - least <= CLOCK_STEP_NS:
        told = f"the clock was stepped by {(most - least) * NS * 1e3:.1f} ms between {one} and {other}"
        tell("clock", HOST, f"{told}, {CLOCK_STEP_NS * NS * 1e3:g} ms allowed")
