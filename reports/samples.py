"""What the pictures are drawn from: samples as gates.metrics defines them. Nothing is estimated here."""

from __future__ import annotations

import gc
import itertools
import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gates import metrics
from gates.nodata import NoData
from gates.parallel import read_in_processes
from reports.records import records
from workloads.evidence import EvidenceError, Run, Trial

# The metrics that pictures are drawn from: of millions of requests no others are worked out.
DRAWN = ("ttft_p50_s", "output_tokens_per_s")


@dataclass(frozen=True)
class ArmStep:
    """One arm at one step: first-token times of its measured requests, and a value per trial."""

    arm: str
    step: int
    ttft_s: Sequence[float]  # sorted, successful requests
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
    folders = [
        run.path / "raw" / arm / f"c{step}" / f"b{block:02d}"
        for arm, step, block in itertools.product(arms, steps, blocks)
    ]
    read = dict(read_in_processes([folder for folder in folders if not _known(folder)], _drawn_at))
    for arm, step in itertools.product(arms, steps):
        ttft = array("d")
        points: dict[str, list[tuple[int, float]]] = {name: [] for name in DRAWN}
        for block in blocks:
            try:
                trial = run.trial(arm, step, block)
                if trial is None:
                    continue
                values = read.get(trial.path) or metrics.values_of(trial)
                ttft.extend(values.ttft_s)
                for name, found in points.items():
                    value = values.by_name[name]
                    found += [] if isinstance(value, NoData) or not math.isfinite(value) else [(block, value)]
            except EvidenceError as error:
                unreadable.append(Unreadable(f"{arm}/c{step}/b{block:02d}", str(error)))
            except (LookupError, TypeError, ValueError, AttributeError) as error:
                unreadable.append(Unreadable(f"{arm}/c{step}/b{block:02d}", f"not as the format says: {error!r}"))
        times = np.sort(np.asarray(ttft))
        arrived = array("d", times[np.isfinite(times)].tobytes())
        rates, medians = tuple(points["output_tokens_per_s"]), tuple(points["ttft_p50_s"])
        drawn.append(ArmStep(arm, step, arrived, len(ttft), rates, medians))
    return drawn, unreadable


def _known(folder: Path) -> bool:
    """Return whether the judge has just read the trial."""
    try:
        return metrics.known(Trial(folder, {}))
    except EvidenceError:
        return False


def _drawn_at(folder: Path) -> metrics.Values | None:
    """Return what pictures are drawn from, as gates.metrics finds it, without the gaps between tokens."""
    collector = metrics.Collector()
    gc.disable()  # records hold no cycles, and looking for some among thousands takes a third of the time
    try:
        for _, wave in metrics.waves(records(Trial(folder, {}))):
            collector.take(wave, None)  # records without chunks have no columns
        return collector.values()
    except (EvidenceError, LookupError, TypeError, ValueError, AttributeError):
        return None
    finally:
        gc.enable()


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
