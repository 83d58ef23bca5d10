"""What the run's own description says that a trial must show, and the trial's records sorted into waves."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from gates.columns import Columns
from gates.readers.prometheus import Exposition, ReadError
from gates.validity.breach import HARNESS, Tell
from scenarios.model import RECOMPUTE, stored_tokens
from workloads.evidence import Run, Trial

Json = dict[str, Any]


@dataclass(frozen=True)
class Expected:
    """The orders for one trial."""

    arm: str
    step: int
    block: int
    waves_discarded: int
    waves_measured: int
    prompt_set: int
    seed: int
    prompt_tokens: int
    output_tokens: int
    chunk_tokens: int
    kv_bytes_per_token: int
    lag_budget_s: float
    shared_read_budget: float
    has_tier: bool
    block_devices: tuple[str, ...]
    rdma_ports: tuple[str, ...]
    populated_files: int | None

    @property
    def name(self) -> str:
        """Return `<arm>/c<step>/b<nn>`."""
        return f"{self.arm}/c{self.step}/b{self.block:02d}"

    @property
    def external_tokens(self) -> int:
        """Tokens that the engine gets from the tier, per request."""
        return stored_tokens(self.prompt_tokens, self.chunk_tokens) if self.has_tier else 0

    @property
    def chunk_aligned_tokens(self) -> int:
        """Tokens in the whole chunks that are read for them, per request."""
        return self.prompt_tokens // self.chunk_tokens * self.chunk_tokens if self.has_tier else 0


@dataclass(frozen=True)
class Wave:
    """The requests of one wave and the counters around it."""

    number: int
    requests: list[Json]
    columns: Columns | None  # of the requests
    before: Json
    after: Json

    @property
    def answered(self) -> int:
        """Return how many of its requests succeeded."""
        return len(self.requests) if self.columns is not None else sum(r["status"] == "ok" for r in self.requests)

    def engine(self) -> tuple[Exposition, Exposition]:
        """Return the engine's counters before and after. Raises ReadError."""
        return self.engine_before(), self.engine_after()

    def engine_before(self) -> Exposition:
        """Return the engine's counters before. Raises ReadError."""
        return _exposition(self.before, "engine_metrics")

    def engine_after(self) -> Exposition:
        """Return the engine's counters after. Raises ReadError."""
        return _exposition(self.after, "engine_metrics")

    def lmcache(self) -> tuple[Exposition, Exposition]:
        """Return LMCache's counters before and after. Raises ReadError."""
        return _exposition(self.before, "lmcache_metrics"), _exposition(self.after, "lmcache_metrics")


def expected_of(run: Run, trial: Trial) -> Expected:
    """Return what was ordered for the trial. Raises what is in MISSHAPEN."""
    scenario, site, facts = run.facts["scenario"], run.facts["site"], trial.facts
    load, arm = scenario["workload"], str(facts["arm"])
    populated = [len(line["files"]) for line in run.populated(arm)]
    tiers = [site["tiers"][name] for name in scenario["arms"][arm]["tiers"]]
    return Expected(
        arm=arm,
        step=int(facts["step"]),
        block=int(facts["block"]),
        waves_discarded=int(load["waves_discarded"]),
        waves_measured=int(load["recompute_waves"] if arm == RECOMPUTE else load["waves_measured"]),
        prompt_set=int(facts["prompt_set"]),
        seed=int(run.facts["seed"]),
        prompt_tokens=int(load["prompt_tokens"]),
        output_tokens=int(load["output_tokens"]),
        chunk_tokens=int(site["lmcache"]["chunk_tokens"]),
        kv_bytes_per_token=int(site["models"][scenario["model"]]["kv_bytes_per_token"]),
        lag_budget_s=float(load["client_lag_budget_s"]),
        shared_read_budget=float(load["first_shared_read_budget"]),
        has_tier=bool(tiers),
        block_devices=tuple(name for tier in tiers for name in tier["block_devices"]),
        rdma_ports=tuple(name for tier in tiers for name in tier["rdma_ports"]),
        populated_files=sum(populated) if populated else None,
    )


class Waves:
    """Makes whole waves of a trial's records and counter snapshots, as the records come."""

    def __init__(self, expected: Expected, snapshots: list[Json], tell: Tell) -> None:
        self._expected, self._tell = expected, tell
        self._count = expected.waves_discarded + expected.waves_measured
        self._snapshots = snapshots
        self._around: dict[tuple[object, object], list[Json]] = {}
        for snapshot in snapshots:
            self._around.setdefault((snapshot["wave"], snapshot["when"]), []).append(snapshot)
        self._ids: set[object] = set()
        self._requests = 0
        self._seen: set[int] = set()

    def take(self, requests: list[Json], columns: Columns | None) -> Wave | None:
        """Return the wave that these records are, or None where it is not whole, which is told."""
        self._requests += len(requests)
        self._ids.update(columns.ids if columns is not None else (r["id"] for r in requests))
        number = requests[0]["wave"]
        if type(number) is not int or not 0 <= number < self._count:
            return None  # told by the number of requests
        self._seen.add(number)
        before, after = self._around.get((number, "before"), []), self._around.get((number, "after"), [])
        indices = columns.prompt_indices.tolist() if columns is not None else [r["prompt_index"] for r in requests]
        if len(indices) != self._expected.step or sorted(indices) != list(range(len(indices))):
            self._not_whole(number, len(requests))
        elif len(before) != 1 or len(after) != 1:
            told = f"wave {number} has {len(before)}+{len(after)} counter snapshots, 1+1 expected"
            self._tell("counters", HARNESS, told)
        else:
            return Wave(number, requests, columns, before[0], after[0])
        return None

    def end(self) -> None:
        """Tell what is missing, doubled or too much."""
        for number in range(self._count):
            if number not in self._seen:
                self._not_whole(number, 0)
        if len(self._ids) != self._requests:
            self._tell("requests", HARNESS, "a request is recorded twice")
        requests, snapshots = self._count * self._expected.step, 2 * self._count
        if self._requests != requests or len(self._snapshots) != snapshots:
            told = (
                f"{self._requests} requests and {len(self._snapshots)} snapshots, {requests} and {snapshots} expected"
            )
            self._tell("requests", HARNESS, told)

    def _not_whole(self, number: int, requests: int) -> None:
        told = f"wave {number} has {requests} requests, {self._expected.step} of different prompts expected"
        self._tell("requests", HARNESS, told)


def _exposition(snapshot: Json, key: str) -> Exposition:
    text = snapshot[key]
    if not isinstance(text, str):
        raise ReadError(f"{key} {snapshot['when']} wave {snapshot['wave']} could not be scraped")
    return _parsed(text)


@lru_cache(maxsize=8)
def _parsed(text: str) -> Exposition:
    """Parsing takes most of the time of judging, and one scrape is read by several checks."""
    return Exposition(text)
