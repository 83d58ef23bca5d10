"""What the pictures are drawn from: samples as gates.metrics defines them. Nothing is estimated here."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from gates import metrics
from gates.nodata import NoData
from workloads.evidence import EvidenceError, Run, Trial


@dataclass(frozen=True)
class ArmStep:
    """One arm at one step: first-token times of its measured requests, and a value per trial."""

    arm: str
    step: int
    ttft_s: tuple[float, ...]  # sorted, successful requests
    requests: int  # with the failed ones
    throughput: tuple[tuple[int, float], ...]  # (block, output tokens/s)
    ttft_p50: tuple[tuple[int, float], ...] = ()  # (block, s)


@dataclass(frozen=True)
class Unreadable:
    """A part of the evidence that could not be read, and why."""

    where: str
    reason: str


def arm_steps(
    run: Run, arms: Sequence[str], steps: Sequence[int], blocks: Sequence[int]
) -> tuple[list[ArmStep], list[Unreadable]]:
    """Return the samples of these blocks per arm and step, and the trials that could not be read."""
    drawn: list[ArmStep] = []
    unreadable: list[Unreadable] = []
    for arm in arms:
        for step in steps:
            ttft: list[float] = []
            values: dict[str, list[tuple[int, float]]] = {name: [] for name in metrics.PER_TRIAL}
            for block in blocks:
                try:
                    trial = run.trial(arm, step, block)
                    if trial is None:
                        continue
                    ttft += metrics.ttft_samples_s(trial)
                    for name, points in values.items():
                        value = _value(metrics.PER_TRIAL[name], trial)
                        points += [] if value is None else [(block, value)]
                except EvidenceError as error:
                    unreadable.append(Unreadable(f"{arm}/c{step}/b{block:02d}", str(error)))
                except (KeyError, TypeError, ValueError, AttributeError) as error:
                    unreadable.append(Unreadable(f"{arm}/c{step}/b{block:02d}", f"not as the format says: {error!r}"))
            arrived = tuple(sorted(time for time in ttft if math.isfinite(time)))
            drawn.append(
                ArmStep(
                    arm, step, arrived, len(ttft), tuple(values["output_tokens_per_s"]), tuple(values["ttft_p50_s"])
                )
            )
    return drawn, unreadable


def per_block(
    samples: Sequence[ArmStep], metric: str, arms: tuple[str, ...], step: int | None
) -> tuple[tuple[int, float], ...]:
    """Return (block, first arm's value over the second's) for every block that has both, as a signed share.

    The share is what verdict.json's estimate is stated in: a reduction for times, a gain for rates.
    """
    if len(arms) != 2:
        return ()
    first, second = (_points(samples, metric, arm, step) for arm in arms)
    both = [(block, first[block] / second[block]) for block in first if second.get(block)]
    return tuple((block, 1 - ratio if metric == "ttft_p50_s" else ratio - 1) for block, ratio in both)


def _points(samples: Sequence[ArmStep], metric: str, arm: str, step: int | None) -> Mapping[int, float]:
    for sample in samples:
        if (sample.arm, sample.step) == (arm, step):
            return dict(sample.ttft_p50 if metric == "ttft_p50_s" else sample.throughput)
    return {}


def _value(metric: Callable[[Trial], float | NoData], trial: Trial) -> float | None:
    value = metric(trial)
    return None if isinstance(value, NoData) or not math.isfinite(value) else value
