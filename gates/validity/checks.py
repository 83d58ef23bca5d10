"""One trial, wave by wave: all that its records must show before its numbers are looked at."""

from __future__ import annotations

from typing import Any

from gates.columns import Columns
from gates.validity.between import check_between_waves
from gates.validity.books import TimeBook, check_books, check_cold
from gates.validity.breach import HARNESS, HOST, Tell, blame
from gates.validity.chunks import check_at_rest
from gates.validity.clocks import Stamps
from gates.validity.devices import check_devices
from gates.validity.expected import Expected, Wave, Waves, expected_of
from gates.validity.requests import check_requests
from gates.validity.timeline import check_wave
from workloads.evidence import Run, Trial

Json = dict[str, Any]


class Checks:
    """Looks at a trial as its records come; what is wrong is told at once. Methods raise what is in MISSHAPEN."""

    def __init__(self, run: Run, trial: Trial, name: str, snapshots: list[Json], tell: Tell) -> None:
        self._run, self._trial, self._name, self._snapshots, self._tell = run, trial, name, snapshots, tell
        self._begun = self._to_be_judged = False
        self._earlier: Wave | None = None
        self._times: list[TimeBook] = []

    def take(self, requests: list[Json], columns: Columns | None) -> None:
        """Take the records of a wave, and what `columns_of` says of them."""
        self._begin()
        if not self._to_be_judged:
            return
        self._stamps.take(requests, columns)
        wave = self._waves.take(requests, columns)
        if wave is None:
            return
        check_wave(self._earlier, wave, self._tell)
        # A wave with failures is held against what these may have caused.
        whole = check_requests(wave, self._expected, self._tell)
        if self._earlier is not None:
            check_between_waves(self._earlier, wave, self._tell)
        self._earlier = wave
        if whole:
            self._times += check_books(wave, self._expected, self._tell)
            bytes_wanted = check_cold(wave, self._expected, self._tell)
            if bytes_wanted is not None:
                check_devices(wave, self._expected, bytes_wanted, self._tell)

    def end(self) -> list[TimeBook]:
        """Tell what only the whole trial shows; return the books of its times."""
        self._begin()
        if self._to_be_judged:
            self._waves.end()
            self._stamps.take_offsets([s["realtime_ns"] - s["t_ns"] for s in self._snapshots])
            self._stamps.tell(self._tell)
        return self._times

    def _begin(self) -> None:
        if self._begun:
            return
        self._begun = True
        self._expected = expected = expected_of(self._run, self._trial)
        facts, tell = self._trial.facts, self._tell
        if facts["completed"] is not True:
            tell("complete", _broken_off_by(self._run, expected), f"not carried through: {facts['error']}")
            return
        if self._name != expected.name:
            tell("requests", HARNESS, f"its trial.json is of {expected.arm}, {expected.step}, block {expected.block}")
        told = (facts["waves_discarded"], facts["waves_measured"])
        ordered = (expected.waves_discarded, expected.waves_measured)
        if told != ordered:
            tell("complete", HARNESS, f"{told[0]}+{told[1]} waves, {ordered[0]}+{ordered[1]} ordered")
            return
        _identity(self._run, self._trial, self._snapshots, expected, tell)
        if expected.has_tier:
            ended_ns = self._snapshots[-1]["t_ns"] if self._snapshots else None
            check_at_rest(self._run, self._trial, expected.arm, ended_ns, tell)
        self._waves = Waves(expected, self._snapshots, tell)
        self._stamps = Stamps(expected.shared_read_budget)
        self._to_be_judged = True


def _broken_off_by(run: Run, expected: Expected) -> str:
    """Return whose incident ended the trial; the harness's, unless one says that it was the arm's own."""
    place = (expected.arm, expected.step, expected.block)
    mine = [i for i in run.incidents() if (i["arm"], i["step"], i["block"]) == place]
    return expected.arm if any(blame(run, incident) == expected.arm for incident in mine) else HARNESS


def _identity(run: Run, trial: Trial, snapshots: list[Json], expected: Expected, tell: Tell) -> None:
    """The processes are the ones that were started for this arm, in every snapshot."""
    starts = [s for s in run.starts(expected.arm) if s["start"] == trial.facts["start"]]
    if len(starts) != 1:
        tell("identity", HARNESS, f"start {trial.facts['start']} of the arm is recorded {len(starts)} times")
        return
    for key in ("engine", "lmcache"):
        start = starts[0][key] or {"pid": None, "pid_started": None}
        was = (start["pid"], start["pid_started"])
        if was[0] is not None and type(was[1]) is not int:
            tell("identity", HOST, f"no data on when the {key} process was started")
            continue
        untold = False
        for snapshot in snapshots:
            now = (snapshot[f"{key}_pid"], snapshot[f"{key}_pid_started"])
            if now == was:
                continue
            where = f"wave {snapshot['wave']}, {snapshot['when']}"
            answers = now[1] is None and snapshot[f"{key}_metrics"] is not None
            if now[0] == was[0] and (answers or isinstance(now[1], str)):
                # Whoever looked did not see, which says nothing of the process. Later it may be gone all the same.
                if not untold:
                    why = "though it answers" if answers else f"which could not be asked ({now[1]})"
                    told = f"no data on when the {key} process {was[0]} was started, {why}"
                    tell("identity", HARNESS, f"{where}: {told}")
                untold = True
                continue
            if now == (was[0], None):
                # Nobody but the arm itself ends its processes while it is measured.
                tell("identity", expected.arm, f"{where}: the {key} process {was[0]} is gone")
            else:
                tell("identity", HOST, f"{where}: the {key} process is {now}, {was} was started, or it was restarted")
            break
