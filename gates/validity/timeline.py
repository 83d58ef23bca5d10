"""One thing after the other: waves, trials and blocks in the recorded order, none at the same time, none told twice.

All times are CLOCK_MONOTONIC of one host since one boot: a run continued after a reboot does not hold together here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from gates.metrics import NS
from gates.validity.breach import HARNESS, Tell
from gates.validity.expected import Wave
from gates.validity.records import Sketch, named_as
from workloads.evidence import Run

_TRIALS_ID = re.compile(r".+-c[0-9]+-b[0-9]+-")


def check_wave(earlier: Wave | None, wave: Wave, tell: Tell) -> None:
    """Tell if a wave of a trial ends before it begins, or begins before the one before it has ended."""
    if not wave.before["t_ns"] <= wave.after["t_ns"]:
        tell("timeline", HARNESS, f"wave {wave.number} ended before it began")
    if earlier is not None and not earlier.after["t_ns"] <= wave.before["t_ns"]:
        tell("timeline", HARNESS, f"wave {wave.number} began before wave {earlier.number} had ended")


def check_timeline(run: Run, trials: Sequence[Sketch], tell: Tell) -> None:
    """Tell of trials at the same time and of trials out of the order that their blocks record.

    A trial's window runs from its first counter snapshot to its last. Arms share the machine, so that two trials at
    once would disturb each other; a copied trial or block shows here, too. Raises what is in MISSHAPEN.
    """
    for trial in trials:
        if trial.completed and trial.begin_ns is None:
            tell("timeline", HARNESS, f"{trial.name}: no data on when it was measured")
    windows = sorted(
        (trial.begin_ns, trial.end_ns, trial.name)
        for trial in trials
        if trial.begin_ns is not None and trial.end_ns is not None
    )
    latest_ns, latest = None, ""
    for begin_ns, end_ns, name in windows:
        if end_ns < begin_ns:
            tell("timeline", HARNESS, f"{name} ended before it began")
        if latest_ns is not None and begin_ns < latest_ns:
            early_s = (latest_ns - begin_ns) * NS
            tell("timeline", HARNESS, f"{name} began {early_s:.3f} s before {latest} had ended")
        if latest_ns is None or end_ns > latest_ns:
            latest_ns, latest = end_ns, name
    _check_order(run, trials, [name for _, _, name in windows], tell)


def check_request_ids(run: Run, trials: Sequence[Sketch], tell: Tell) -> None:
    """Tell of a request that stands in two places of the run. Raises what is in MISSHAPEN.

    A trial's own requests are named after it, and told by the trial itself where two have one id. So only those that
    are named otherwise can stand elsewhere, too.
    """
    places = [(trial.name, list(trial.foreign_ids)) for trial in trials]
    for arm in run.facts["scenario"]["arms"]:
        for line in run.populated(arm):
            ids = [str(request["id"]) for request in line["requests"]]
            places.append((f"{arm}, populating set {line['prompt_set']}", ids))
    seen: dict[str, str] = {}
    owners = {named_as(trial.name): trial.name for trial in trials}
    for place, ids in places:
        for request_id in ids:
            owner = _TRIALS_ID.match(request_id)
            other = seen.setdefault(request_id, owners.get(owner[0], place) if owner else place)
            if other != place:
                tell("requests", HARNESS, f"request {request_id} is recorded in {place}, and is of {other}")
                break


def _check_order(run: Run, trials: Sequence[Sketch], measured: Sequence[str], tell: Tell) -> None:
    """Tell of the first trial that was not measured where its block says; `measured` is in the order of time."""
    places: dict[str, int] = {}
    positions: dict[str, int] = {}
    for block in sorted(run.blocks(), key=lambda block: int(block["block"])):
        for position, arm in enumerate(block["order"]):
            for step in block["steps"]:
                name = f"{arm}/c{step}/b{int(block['block']):02d}"
                places.setdefault(name, len(places))
                positions[name] = position
    found = [name for name in measured if name in places]
    for was, wanted in zip(found, sorted(found, key=places.__getitem__), strict=True):
        if was != wanted:
            tell("timeline", HARNESS, f"{was} was measured where the recorded order has {wanted}")
            break
    for trial in trials:
        if trial.position != positions.get(trial.name, trial.position):
            told = f"{trial.name} says that it is number {trial.position} of its block"
            tell("timeline", HARNESS, f"{told}, {positions[trial.name]} by the recorded order")
