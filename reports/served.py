"""Where the prompt tokens of each arm came from, and when each trial ran: for the pictures. Nothing is judged here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gates.nodata import NoData
from gates.readers.prometheus import Exposition, ReadError, delta
from reports.loose import Json
from reports.samples import ArmStep
from workloads.evidence import EvidenceError, Run, Trial

BY_SOURCE = "vllm:prompt_tokens_by_source_total"
DRAM_HITS = "lmcache_mp_lookup_hit_l1_tokens_total"
# In the order in which a token is looked for.
PLACES = ("device", "dram", "tier", "computed")


@dataclass(frozen=True)
class Served:
    """The prompt tokens of one arm at one step, by the place that they came from."""

    arm: str
    step: int
    tokens: tuple[float, ...]  # one per place, in the order of PLACES


@dataclass(frozen=True)
class Moment:
    """When one trial began, and its TTFT p50."""

    arm: str
    step: int
    block: int
    start_s: float  # since the first trial of all
    ttft_p50_s: float


def served(run: Run, arms: Sequence[str], steps: Sequence[int], blocks: Sequence[int]) -> list[Served]:
    """Return the tokens by place over the measured waves of these blocks; without what the counters do not tell."""
    found: list[Served] = []
    for arm in arms:
        for step in steps:
            each = [tokens for block in blocks if (tokens := _of(run, arm, step, block)) is not None]
            if each:
                found.append(Served(arm, step, tuple(sum(place) for place in zip(*each, strict=True))))
    return found


def moments(run: Run, samples: Sequence[ArmStep]) -> list[Moment]:
    """Return when each of the drawn trials began; without those whose counters do not tell."""
    begun: list[tuple[int, str, int, int, float]] = []
    for sample in samples:
        for block, ttft in sample.ttft_p50:
            try:
                trial = run.trial(sample.arm, sample.step, block)
                first = next(trial.counters(), None) if trial is not None else None
            except EvidenceError:
                continue
            t_ns = None if first is None else first.get("t_ns")
            if isinstance(t_ns, int):
                begun.append((t_ns, sample.arm, sample.step, block, ttft))
    zero = min((t_ns for t_ns, *_ in begun), default=0)
    return [Moment(arm, step, block, (t_ns - zero) * 1e-9, ttft) for t_ns, arm, step, block, ttft in sorted(begun)]


def _of(run: Run, arm: str, step: int, block: int) -> tuple[float, ...] | None:
    try:
        trial = run.trial(arm, step, block)
        return None if trial is None else _tokens(trial)
    except (EvidenceError, ReadError):
        return None


def _tokens(trial: Trial) -> tuple[float, ...] | None:
    """Return the trial's tokens by place, from the counters around its measured waves; None where they do not tell.

    Raises EvidenceError, ReadError.
    """
    measured = [snapshot for snapshot in trial.counters() if snapshot.get("measured") is True]
    if len(measured) < 2:
        return None
    before, after = measured[0], measured[-1]
    device, external, computed = (
        _rise(before, after, "engine_metrics", BY_SOURCE, {"source": source})
        for source in ("local_cache_hit", "external_kv_transfer", "local_compute")
    )
    if device is None or external is None or computed is None:
        return None
    dram = _rise(before, after, "lmcache_metrics", DRAM_HITS, {}) or 0.0
    dram = min(dram, external)
    return device, dram, external - dram, computed


def _rise(before: Json, after: Json, key: str, name: str, labels: dict[str, str]) -> float | None:
    first, last = before.get(key), after.get(key)
    if not isinstance(first, str) or not isinstance(last, str):
        return None
    risen = delta(Exposition(first), Exposition(last), name, labels)
    return None if isinstance(risen, NoData) else risen
