"""Whose clock stamped the reads, and how many first tokens share their read with something later."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gates.metrics import NS
from gates.validity.breach import HARNESS, HOST, Tell
from gates.validity.records import Sketch
from gates.validity.requests import CLOCK_STEP_NS
from workloads.calibrate import FOLDER
from workloads.evidence import Run, read_jsonl

Json = dict[str, Any]

CLOCKS = ("kernel", "user")


def check_one_clock(requests: Sequence[Json], tell: Tell) -> None:
    """Tell if a trial's reads were stamped by an unknown clock, or by more than one.

    A failed request need not have a clock, and its times are not compared.
    """
    for r in requests:
        if r["clock"] not in CLOCKS and not (r["clock"] is None and r["status"] != "ok"):
            tell("clock", HARNESS, f"{r['id']}: stamped by the clock {r['clock']!r}, {' or '.join(CLOCKS)} expected")
            return
    clocks = sorted({r["clock"] for r in requests if r["status"] == "ok"})
    if len(clocks) > 1:
        tell("clock", HARNESS, f"its requests were stamped by different clocks: {' and '.join(clocks)}")


def check_shared_reads(requests: Sequence[Json], budget: float, tell: Tell) -> None:
    """Tell if too many first tokens came in one read with a later event, whose time they were then given.

    Judged over all measured requests of the trial. One may always be: with fewer than 1 / `budget` requests the share
    would allow none, and a single request does not carry the mean over waves of their medians.
    """
    for r in requests:
        if not isinstance(r["first_shared_read"], bool):
            tell("shared-read", HARNESS, f"{r['id']}: no data on whether its first token shared a read")
            return
    measured = [r for r in requests if r["measured"] is True]
    shared = sum(r["first_shared_read"] for r in measured)
    if shared > 1 and shared / len(measured) > budget:
        told = f"{shared} of {len(measured)} first tokens shared their read with a later event"
        tell("shared-read", HARNESS, f"{told}, {budget * 100:g} % allowed")


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
