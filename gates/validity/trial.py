"""One trial: all that its records must show before its numbers are looked at."""

from __future__ import annotations

from typing import Any

from gates.nodata import NoData
from gates.validity.between import check_between_waves
from gates.validity.books import book_floor_s, check_books, check_cold
from gates.validity.breach import HARNESS, HOST, MISSHAPEN, Breach, Tell, blame, misshapen
from gates.validity.calibration import resolved_s
from gates.validity.chunks import check_at_rest
from gates.validity.clocks import check_one_clock, check_shared_reads
from gates.validity.devices import check_devices
from gates.validity.expected import Expected, expected_of, sort_into_waves
from gates.validity.records import name_of
from gates.validity.requests import check_clock, check_requests
from gates.validity.timeline import check_waves
from workloads.evidence import Run, Trial

Json = dict[str, Any]


def book_floor_of(run: Run) -> float:
    """Return the `floor_s` of a run's trials, by what is recorded of it so far. Raises nothing for bad evidence."""
    try:
        smallest_s = resolved_s(run)
    except (*MISSHAPEN, OSError):
        return book_floor_s(None)  # told of the calibration, which has the same need
    return book_floor_s(None if isinstance(smallest_s, NoData) else smallest_s)


def check_trial(run: Run, trial: Trial, floor_s: float | None = None) -> list[Breach]:
    """Return every breach of one trial; an empty list means that it can be trusted. Raises nothing for bad evidence.

    `floor_s`: what `book_floor_of` returns, where it is known already.
    """
    name = name_of(trial)
    found: list[Breach] = []

    def tell(check: str, whose: str, reason: str) -> None:
        found.append(Breach(check, whose, reason, name))

    try:
        _check(run, trial, name, book_floor_of(run) if floor_s is None else floor_s, tell)
    except MISSHAPEN as error:
        tell("readable", HARNESS, misshapen(error))
    return found


def _check(run: Run, trial: Trial, name: str, floor_s: float, tell: Tell) -> None:
    expected = expected_of(run, trial)
    if trial.facts["completed"] is not True:
        tell("complete", _broken_off_by(run, expected), f"not carried through: {trial.facts['error']}")
        return
    if name != f"{expected.arm}/c{expected.step}/b{expected.block:02d}":
        tell("requests", HARNESS, f"its trial.json is of {expected.arm}, {expected.step}, block {expected.block}")
    told = (trial.facts["waves_discarded"], trial.facts["waves_measured"])
    ordered = (expected.waves_discarded, expected.waves_measured)
    if told != ordered:
        tell("complete", HARNESS, f"{told[0]}+{told[1]} waves, {ordered[0]}+{ordered[1]} ordered")
        return
    requests, snapshots = list(trial.requests()), list(trial.counters())
    _identity(run, trial, snapshots, expected, tell)
    check_clock(requests, snapshots, tell)
    check_one_clock(requests, tell)
    check_shared_reads(requests, expected.shared_read_budget, tell)
    if expected.has_tier:
        check_at_rest(run, trial, expected.arm, snapshots[-1]["t_ns"] if snapshots else None, tell)
    waves = sort_into_waves(expected, requests, snapshots, tell)
    check_waves(waves, tell)
    for number, wave in enumerate(waves):
        if number:
            check_between_waves(waves[number - 1], wave, tell)
        # The books of a wave with failures cannot close; the failures have been told.
        if check_requests(wave, expected, tell):
            check_books(wave, floor_s, tell)
            bytes_wanted = check_cold(wave, expected, tell)
            if bytes_wanted is not None:
                check_devices(wave, expected, bytes_wanted, tell)


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
        if was[0] is not None and was[1] is None:
            tell("identity", HOST, f"no data on when the {key} process was started")
            continue
        for snapshot in snapshots:
            now = (snapshot[f"{key}_pid"], snapshot[f"{key}_pid_started"])
            if now == was:
                continue
            where = f"wave {snapshot['wave']}, {snapshot['when']}"
            if now == (was[0], None):
                # Nobody but the arm itself ends its processes while it is measured.
                tell("identity", expected.arm, f"{where}: the {key} process {was[0]} is gone")
            else:
                tell("identity", HOST, f"{where}: the {key} process is {now}, {was} was started, or it was restarted")
            break
