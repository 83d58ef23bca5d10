"""What the run as a whole needs of each trial's records, read in one pass."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from workloads.evidence import EvidenceError, Run, Trial

Json = dict[str, Any]


@dataclass(frozen=True)
class Sketch:
    """One trial, in what is compared with other trials."""

    name: str  # "<arm>/c<step>/b<nn>", as its folder says
    arm: str
    step: int
    block: int
    start: int
    position: int
    completed: bool
    begin_ns: int | None  # of its first counter snapshot; None where it has none
    end_ns: int | None  # of its last one
    request_ids: list[str]
    prompt_seeds: frozenset[int]
    clocks: frozenset[str]  # of its successful requests
    edges: tuple[Json, Json] | None  # its first and its last counter snapshot


def name_of(trial: Trial) -> str:
    """Return `<arm>/c<step>/b<nn>` as the trial's folder says."""
    return "/".join(trial.path.parts[-3:])


def sketches(run: Run) -> list[Sketch]:
    """Return a sketch of every trial that was begun, by block, arm and step. Raises what is in MISSHAPEN."""
    return [_sketch(trial) for trial in run.trials()]


def _sketch(trial: Trial) -> Sketch:
    facts = trial.facts
    requests = list(_quietly(trial.requests()))
    snapshots = list(_quietly(trial.counters()))
    moments = [s["t_ns"] for s in snapshots]
    if any(type(moment) is not int for moment in moments):
        raise TypeError("t_ns")
    return Sketch(
        name=name_of(trial),
        arm=str(facts["arm"]),
        step=int(facts["step"]),
        block=int(facts["block"]),
        start=int(facts["start"]),
        position=int(facts["position"]),
        completed=facts["completed"] is True,
        begin_ns=moments[0] if moments else None,
        end_ns=moments[-1] if moments else None,
        request_ids=[str(r["id"]) for r in requests],
        prompt_seeds=frozenset(int(r["prompt_seed"]) for r in requests),
        clocks=frozenset(str(r["clock"]) for r in requests if r["status"] == "ok"),
        edges=(snapshots[0], snapshots[-1]) if snapshots else None,
    )


def _quietly(records: Iterator[Json]) -> Iterator[Json]:
    """Yield what can be read; that the rest cannot is a breach of the trial itself."""
    try:
        yield from records
    except EvidenceError:
        return
