"""Evidence to named values with units. What cannot be computed is NoData with the reason, never 0."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from gates import stats
from gates.nodata import NoData
from workloads.evidence import EvidenceError, Trial

Json = dict[str, Any]
NS = 1e-9
TOKENS_MAX = 10_000_000


def ttft_s(request: Json) -> float:
    """Return t_first - t_sent in seconds; +infinity for a failed request."""
    if request["status"] != "ok" or request["t_first_ns"] is None or request["t_sent_ns"] is None:
        return math.inf
    return float(request["t_first_ns"] - request["t_sent_ns"]) * NS


def e2e_s(request: Json) -> float | NoData:
    """Return t_last - t_sent in seconds of a successful request."""
    if request["status"] != "ok":
        return NoData(f"request {request['id']} failed")
    return float(request["t_last_ns"] - request["t_sent_ns"]) * NS


def ttft_intended_s(request: Json) -> float:
    """Return t_first - t_intended in seconds; +infinity for a failed request.

    What a user waits in an open loop, where a late sending is part of the wait (coordinated omission).
    """
    if request["status"] != "ok" or request["t_first_ns"] is None:
        return math.inf
    return float(request["t_first_ns"] - request["t_intended_ns"]) * NS


def tpot_s(request: Json) -> float | NoData:
    """Return (t_last - t_first) / (n - 1) in seconds, n output tokens by usage; NoData where it failed or n < 2."""
    if request["status"] != "ok":
        return NoData(f"request {request['id']} failed")
    tokens = int(request["usage"]["completion_tokens"])
    if tokens < 2:
        return NoData(f"request {request['id']} has {tokens} output tokens, two needed")
    return float(request["t_last_ns"] - request["t_first_ns"]) * NS / (tokens - 1)


def itl_s(request: Json) -> list[float] | NoData:
    """Return the n - 1 gaps between output tokens in seconds; NoData where chunks and usage disagree on n.

    A chunk of k tokens counts as k: the gap before it is shared out over them, so that the mean is the TPOT. Further
    tokens of the first chunk came with the first one.
    """
    if request["status"] != "ok":
        return NoData(f"request {request['id']} failed")
    counts, stamps = request["chunk_tokens"], request["chunk_ns"]
    tokens = request["usage"]["completion_tokens"]
    if sum(counts) != tokens:
        return NoData(f"request {request['id']}: its chunks hold {sum(counts)} tokens, usage says {tokens}")
    if tokens > TOKENS_MAX:
        return NoData(f"request {request['id']}: {tokens} output tokens are more than any answer has")
    gaps = [0.0] * (counts[0] - 1)
    for count, before_ns, after_ns in zip(counts[1:], stamps, stamps[1:], strict=False):
        gaps += [(after_ns - before_ns) * NS / count] * count
    return gaps


Version = tuple[str, int, int]


def _version(trial: Trial) -> Version:
    """Return what tells this state of a trial's records from any other. Raises EvidenceError."""
    file = trial.path / "requests.jsonl"
    try:
        found = file.stat()
    except OSError as error:
        raise EvidenceError(f"{file}: {error.strerror or error}") from None
    return str(trial.path), found.st_mtime_ns, found.st_size


def _once_a_trial(measure: Callable[[Trial], float | NoData]) -> Callable[[Trial], float | NoData]:
    """Keep what a metric gave for a trial: each criterion and each look asks again, perhaps of millions of records."""
    known: dict[Version, float | NoData] = {}

    @functools.wraps(measure)
    def kept(trial: Trial) -> float | NoData:
        version = _version(trial)
        if version not in known:
            known[version] = measure(trial)
        return known[version]

    return kept


def measured_waves(trial: Trial) -> list[list[Json]]:
    """Return the requests of each measured wave, in order of waves. They are kept for a moment: do not change them."""
    return _measured_waves(_version(trial))


@functools.lru_cache(maxsize=2)  # the trial that is looked at, and the one that it is compared with
def _measured_waves(version: Version) -> list[list[Json]]:
    waves: dict[int, list[Json]] = {}
    for request in Trial(Path(version[0]), {}).requests():
        if request["measured"]:
            waves.setdefault(int(request["wave"]), []).append(request)
    return [waves[number] for number in sorted(waves)]


def ttft_samples_s(trial: Trial) -> list[float]:
    """Return the TTFT of every measured request in seconds, failed ones as +infinity."""
    return [ttft_s(request) for wave in measured_waves(trial) for request in wave]


@_once_a_trial
def ttft_p50_s(trial: Trial) -> float | NoData:
    """Return the mean over measured waves of the wave's median TTFT, in seconds; +infinity where one rests on failures.

    A wave is a subplot of the trial: its requests queue behind each other, so they are no independent samples.
    """
    waves = measured_waves(trial)
    if not waves:
        return NoData("no measured wave")
    return float(sum(stats.quantile([ttft_s(r) for r in wave], 0.5) for wave in waves) / len(waves))


@_once_a_trial
def output_tokens_per_s(trial: Trial) -> float | NoData:
    """Return output tokens of successful requests over the summed windows of the measured waves, in tokens/s.

    A wave's window runs from its first send to the last token that any of its requests got. A failed request adds no
    token, but its time counts as far as it is known. Where every request failed the rate is 0, whatever the time;
    otherwise a wave without an end has no length, so there is no rate.
    """
    waves = measured_waves(trial)
    if not waves:
        return NoData("no measured wave")
    tokens = sum(r["usage"]["completion_tokens"] for wave in waves for r in wave if r["status"] == "ok")
    if tokens == 0 and all(r["status"] != "ok" for wave in waves for r in wave):
        return 0.0
    window_ns = 0
    for number, wave in enumerate(waves):
        sent = [r["t_sent_ns"] for r in wave if r["t_sent_ns"] is not None]
        last = [r["t_last_ns"] for r in wave if r["t_last_ns"] is not None]
        if not sent or not last:
            return NoData(f"measured wave {number} has no end: none of its requests got a token")
        window_ns += max(last) - min(sent)
    if tokens <= 0 or window_ns <= 0:
        return NoData(f"{tokens} tokens in {window_ns} ns")
    return float(tokens / (window_ns * NS))


@_once_a_trial
def ttft_p99_s(trial: Trial) -> float | NoData:
    """Return the 99th percentile of TTFT over all measured requests, in seconds; a failure is +infinity."""
    return _over_requests(trial, 0.99, ttft_s)


@_once_a_trial
def tpot_p50_s(trial: Trial) -> float | NoData:
    """Return the median TPOT over all measured requests, in seconds; a failure is +infinity."""
    return _over_requests(trial, 0.5, lambda request: tpot_s(request) if request["status"] == "ok" else math.inf)


@_once_a_trial
def itl_p99_s(trial: Trial) -> float | NoData:
    """Return the 99th percentile over all gaps between tokens of measured requests, in seconds.

    A failed request counts as one infinite gap.
    """
    gaps: list[float] = []
    for wave in measured_waves(trial):
        for request in wave:
            found = itl_s(request) if request["status"] == "ok" else [math.inf]
            if isinstance(found, NoData):
                return found
            gaps += found
    return float(stats.quantile(gaps, 0.99)) if gaps else NoData("no gap between two tokens")


def _over_requests(trial: Trial, share: float, value: Callable[[Json], float | NoData]) -> float | NoData:
    values: list[float] = []
    for wave in measured_waves(trial):
        for request in wave:
            found = value(request)
            if isinstance(found, NoData):
                return found
            values.append(found)
    return float(stats.quantile(values, share)) if values else NoData("no measured wave")


def failed_requests(trials: Iterable[Trial]) -> tuple[int, int]:
    """Return (failed, all) requests of these trials, discarded waves included."""
    failed = total = 0
    for trial in trials:
        for request in trial.requests():
            total += 1
            failed += request["status"] != "ok"
    return failed, total


PER_TRIAL = {
    "ttft_p50_s": ttft_p50_s,
    "ttft_p99_s": ttft_p99_s,
    "itl_p99_s": itl_p99_s,
    "tpot_p50_s": tpot_p50_s,
    "output_tokens_per_s": output_tokens_per_s,
}
