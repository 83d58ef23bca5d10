"""What the run as a whole needs of each trial's records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gates.columns import Columns
from workloads.evidence import Trial

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
    foreign_ids: tuple[str, ...]  # of requests that are not named as this trial's
    foreign_run: tuple[int, object] | None  # (line, what it names) of the first record that is of another run
    prompt_seeds: frozenset[int]
    clocks: frozenset[str]  # of its successful requests
    edges: tuple[Json, Json] | None  # its first and its last counter snapshot


def name_of(trial: Trial) -> str:
    """Return `<arm>/c<step>/b<nn>` as the trial's folder says."""
    return "/".join(trial.path.parts[-3:])


def named_as(name: str) -> str:
    """Return what the ids of a trial's requests begin with; `name` as `name_of` returns it."""
    return f"{name.replace('/', '-')}-"


class Sketcher:
    """Takes a trial's records wave by wave."""

    def __init__(self, name: str, run_id: object) -> None:
        self._name, self._run_id, self._own = name, run_id, named_as(name)
        self._taken = 0
        self._foreign_run: tuple[int, object] | None = None
        self._foreign: list[str] = []
        self._seeds: set[int] = set()
        self._clocks: set[str] = set()

    def take(self, requests: Sequence[Json], columns: Columns | None) -> None:
        """Take the records of a wave. Raises what is in MISSHAPEN for one of another shape."""
        if columns is not None and columns.runs == {self._run_id}:
            self._taken += len(requests)
            self._foreign += [name for name in columns.ids if not name.startswith(self._own)]
            self._seeds.update(columns.prompt_seeds.tolist())
            self._clocks |= columns.clocks
            return
        if self._foreign_run is None:
            lines = enumerate((r.get("run") for r in requests), start=self._taken + 1)
            self._foreign_run = next(((line, run) for line, run in lines if run != self._run_id), None)
        self._taken += len(requests)
        self._foreign += [str(r["id"]) for r in requests if not str(r["id"]).startswith(self._own)]
        self._seeds.update(int(r["prompt_seed"]) for r in requests)
        self._clocks.update(str(r["clock"]) for r in requests if r["status"] == "ok")

    def sketch(self, facts: Json, snapshots: Sequence[Json]) -> Sketch:
        """Return what was taken. Raises what is in MISSHAPEN; `facts` are the trial's."""
        moments = [s["t_ns"] for s in snapshots]
        if any(type(moment) is not int for moment in moments):
            raise TypeError("t_ns")
        return Sketch(
            name=self._name,
            arm=str(facts["arm"]),
            step=int(facts["step"]),
            block=int(facts["block"]),
            start=int(facts["start"]),
            position=int(facts["position"]),
            completed=facts["completed"] is True,
            begin_ns=moments[0] if moments else None,
            end_ns=moments[-1] if moments else None,
            foreign_ids=tuple(self._foreign),
            foreign_run=self._foreign_run,
            prompt_seeds=frozenset(self._seeds),
            clocks=frozenset(self._clocks),
            edges=(snapshots[0], snapshots[-1]) if snapshots else None,
        )
