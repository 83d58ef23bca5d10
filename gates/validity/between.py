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
from scenarios.model import RECOMPUTE
from workloads.evidence import Run, read_json

Json = dict[str, Any]

CHECK = "between"
COUNTED = {
    f"{E2E}_count": "requests",
    f"{TTFT}_count": "first tokens",
    "vllm:prompt_tokens_total": "prompt tokens",
    "vllm:generation_tokens_total": "output tokens",
}


def check_between_waves(earlier: Wave, later: Wave, tell: Tell) -> None:
    """Tell if the engine counted anything between two consecutive waves of a trial. Raises ReadError."""
    if later.number == earlier.number + 1:
        moved = _moved(earlier.engine()[1], later.engine()[0])
        if moved:
            tell(CHECK, HOST, f"between the waves {earlier.number} and {later.number} {moved}")


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
