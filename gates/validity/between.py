"""Between two waves nobody asks the engine anything: what it counted after one it counts before the next.

Requests of others would have warmed or loaded what is measured, and counters that fall belong to another process.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from gates.nodata import NoData
from gates.readers.prometheus import Exposition, ReadError, delta
from gates.validity.books import E2E, TTFT
from gates.validity.breach import HOST, Tell
from gates.validity.expected import Wave
from gates.validity.records import Sketch
from scenarios.model import PROBE, RECOMPUTE
from workloads.evidence import Run, read_json

Json = dict[str, Any]

CHECK = "between"
USAGE = "prompt_tokens", "completion_tokens"
COUNTED = {
    f"{E2E}_count": "requests",
    f"{TTFT}_count": "first tokens",
    "vllm:prompt_tokens_total": "prompt tokens",
    "vllm:generation_tokens_total": "output tokens",
}


def check_between_waves(earlier: Wave, later: Wave, tell: Tell) -> None:
    """Tell if the engine counted anything between two consecutive waves of a trial. Raises ReadError."""
    if later.number == earlier.number + 1:
        moved = _moved(earlier.engine_after(), later.engine_before())
        if moved:
            tell(CHECK, HOST, f"between the waves {earlier.number} and {later.number} {moved}")


def check_before_first(run: Run, trials: Sequence[Sketch], tell: Tell) -> None:
    """Tell if an engine had counted, when the first trial of a start began, anything but what is on record.

    That is the token that every start is asked for, and where the same start was used for it, what was stored, the
    needles and the control. Raises what is in MISSHAPEN.
    """
    firsts: dict[tuple[str, int], Sketch] = {}
    for trial in trials:
        if trial.begin_ns is not None:
            was = firsts.setdefault((trial.arm, trial.start), trial)
            if was.begin_ns is not None and trial.begin_ns < was.begin_ns:
                firsts[trial.arm, trial.start] = trial
    for (arm, start), trial in firsts.items():
        text = trial.edges[0]["engine_metrics"] if trial.edges is not None else None
        asked = _asked_before(run, arm, start)
        if not isinstance(text, str) or any(usage is None for usage in asked):
            continue  # told of the trial, or of what failed
        prompt, output = (sum(usage[key] for usage in asked if usage) for key in USAGE)
        wanted = dict(zip(COUNTED, (len(asked), len(asked), prompt, output), strict=True))
        try:
            engine = Exposition(text)
        except ReadError:
            continue
        for counter, what in COUNTED.items():
            counted = engine.total(counter)
            if isinstance(counted, NoData):
                tell(CHECK, HOST, f"before {trial.name} there is no data on the engine's {what}: {counted.reason}")
            elif counted != wanted[counter]:
                told = f"before {trial.name}, the first of its start, the engine counted {counted:g} {what}"
                tell(CHECK, HOST, f"{told}, {wanted[counter]} are on record: the others are nobody's")


def _asked_before(run: Run, arm: str, start: int) -> list[Json | None]:
    """Return the usage of each request on record that a start was sent before its first trial; None: it failed."""
    asked: list[Json | None] = [{"prompt_tokens": len(PROBE), "completion_tokens": 1}]
    records: list[Json] = []
    for line in run.populated(arm):
        records += line["requests"] if line["start"] == start else []
    for name, roles in (("control", ("requests",)), ("needles", ("computed", "read"))):
        file = run.path / "raw" / arm / f"{name}.json"
        # Recompute is asked for its needles after its first trial.
        if file.is_file() and not (name == "needles" and arm == RECOMPUTE):
            facts = read_json(file)
            records += [r for role in roles for r in facts[role] if facts["start"] == start]
    # Where a success tells no usage this raises: what cannot be counted must not leave the check out.
    return asked + [{key: int(r["usage"][key]) for key in USAGE} if r["status"] == "ok" else None for r in records]


def check_between_trials(run: Run, trials: Sequence[Sketch], tell: Tell) -> None:
    """Tell if an engine counted anything between two consecutive trials of one start.

    Recompute is asked for needles between its first two trials, which is recorded like a trial. What cannot be read
    is told of the trial itself. Raises what is in MISSHAPEN.
    """
    windows: dict[tuple[str, int], list[tuple[int, Json, Json, str]]] = {}
    for trial in trials:
        if trial.edges is not None and trial.begin_ns is not None:
            first, last = trial.edges
            windows.setdefault((trial.arm, trial.start), []).append((trial.begin_ns, first, last, trial.name))
    file = run.path / "raw" / RECOMPUTE / "needles.json"
    if file.is_file():
        facts = read_json(file)
        if facts["skipped"] is None:
            asked = (int(facts["before"]["t_ns"]), facts["before"], facts["after"], f"{RECOMPUTE}'s needles")
            windows.setdefault((RECOMPUTE, int(facts["start"])), []).append(asked)
    whole = {trial.name for trial in trials if trial.completed}
    for found in windows.values():
        for (_, _, last, one), (_, first, _, other) in pairwise(sorted(found, key=lambda window: window[0])):
            if one not in whole and "/" in one:
                continue  # broken off, so that its requests may have gone on
            texts = last["engine_metrics"], first["engine_metrics"]
            if not all(isinstance(text, str) for text in texts):
                if not ("/" in one and "/" in other):  # what a trial lacks is told of the trial itself
                    tell(CHECK, HOST, f"between {one} and {other}: no data on what the engine counted")
                continue
            try:
                moved = _moved(Exposition(texts[0]), Exposition(texts[1]))
            except ReadError:
                continue
            if moved:
                tell(CHECK, HOST, f"between {one} and {other} {moved}")


def _moved(before: Exposition, after: Exposition) -> str | None:
    """Return what the engine counted between two snapshots; None for nothing, and where the waves' books have told."""
    for counter, what in COUNTED.items():
        if isinstance(before.total(counter), NoData) and isinstance(after.total(counter), NoData):
            continue
        counted = delta(before, after, counter)
        if isinstance(counted, NoData):
            return f"there is no data on its {what}: {counted.reason}"
        if counted != 0:
            return f"the engine counted {counted:g} {what} of nobody's"
    return None
