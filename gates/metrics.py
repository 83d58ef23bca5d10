"""Evidence to named values with units. What cannot be computed is NoData with the reason, never 0."""

from __future__ import annotations

import itertools
import math
import operator
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gates import stats
from gates.columns import Columns, columns_of
from gates.nodata import NoData
from gates.recorded import broken_off, requests_of
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
    if tokens == len(counts):  # one each, as nearly always
        return [(after_ns - before_ns) * NS for before_ns, after_ns in itertools.pairwise(stamps)]
    gaps = [0.0] * (counts[0] - 1)
    for count, before_ns, after_ns in zip(counts[1:], stamps, stamps[1:], strict=False):
        gaps += [(after_ns - before_ns) * NS / count] * count
    return gaps


@dataclass(frozen=True)
class Values:
    """All that one pass over a trial's requests gave: the metrics by name, and what else is asked of them."""

    by_name: Mapping[str, float | NoData]
    ttft_s: array[float]  # of every measured request, failed ones as +infinity
    prefill_tokens_per_s: Sequence[float | NoData]  # of each measured wave
    failed: int  # requests, discarded waves included
    total: int


class Collector:
    """Gathers a trial's metrics wave by wave, so that no more than one wave of records is in memory.

    A wave is a subplot of the trial: its requests queue behind each other, so they are no independent samples.
    """

    def __init__(self) -> None:
        self._ttft_s, self._tpot_s, self._itl_s = array("d"), array("d"), array("d")
        self._medians_s: list[float] = []
        self._prefill: list[float | NoData] = []
        self._untold: dict[str, NoData] = {}  # metric -> the first reason why it has no value
        self._failed = self._total = self._tokens = self._window_ns = 0
        self._succeeded = False

    def take(self, requests: Sequence[Json], columns: Columns | None) -> None:
        """Take the records of one wave, and what `columns_of` says of them.

        Raises LookupError and TypeError for a record of another shape.
        """
        self._total += len(requests)
        if columns is not None and (columns.measured == {False} or self._take_columns(columns)):
            return
        self._failed += sum(request["status"] != "ok" for request in requests)
        wave = [request for request in requests if request["measured"]]
        if not wave:
            return
        ttft = [ttft_s(request) for request in wave]
        self._ttft_s.extend(ttft)
        self._medians_s.append(stats.quantile(ttft, 0.5))
        self._prefill.append(_prefill_rate(wave))
        self._take_window(wave)
        for request in wave:
            if request["status"] != "ok":
                self._tpot_s.append(math.inf)
                self._itl_s.append(math.inf)  # a failed request counts as one infinite gap
                continue
            self._succeeded = True
            self._tokens += request["usage"]["completion_tokens"]
            if isinstance(tpot := tpot_s(request), NoData):
                self._untold.setdefault("tpot_p50_s", tpot)
            else:
                self._tpot_s.append(tpot)
            if isinstance(gaps := itl_s(request), NoData):
                self._untold.setdefault("itl_p99_s", gaps)
            else:
                self._itl_s.extend(gaps)

    def _take_columns(self, wave: Columns) -> bool:
        """Take a measured wave as a whole; False, and nothing is taken, where a single record needs to be looked at."""
        if wave.measured != {True} or wave.output_tokens.min() < 2 or wave.output_tokens.max() > TOKENS_MAX:
            return False
        self._succeeded = True
        self._tokens += int(wave.output_tokens.sum())
        ttft = np.asarray((wave.first_ns - wave.sent_ns) * NS, dtype=np.float64)
        self._ttft_s.frombytes(ttft.tobytes())
        self._medians_s.append(stats.quantile(ttft, 0.5))
        first_sent_ns = int(wave.sent_ns.min())
        self._prefill.append(_prefill_rate_of(int(wave.prompt_tokens.sum()), int(wave.first_ns.max()) - first_sent_ns))
        self._window_ns += int(wave.last_ns.max()) - first_sent_ns
        tpot = (wave.last_ns - wave.first_ns) * NS / (wave.output_tokens - 1)
        self._tpot_s.frombytes(tpot.tobytes())
        gaps = np.repeat(wave.gaps_ns * NS / wave.gap_tokens, wave.gap_tokens)
        self._itl_s.frombytes(gaps.tobytes())
        self._itl_s.frombytes(bytes(self._itl_s.itemsize * int((wave.first_chunk_tokens - 1).sum())))  # zeros
        return True

    def _take_window(self, wave: Sequence[Json]) -> None:
        sent = [r["t_sent_ns"] for r in wave if r["t_sent_ns"] is not None]
        last = [r["t_last_ns"] for r in wave if r["t_last_ns"] is not None]
        if sent and last:
            self._window_ns += max(last) - min(sent)
        else:
            told = f"measured wave {len(self._medians_s) - 1} has no end: none of its requests got a token"
            self._untold.setdefault("output_tokens_per_s", NoData(told))

    def values(self) -> Values:
        """Return what was gathered.

        - `ttft_p50_s`: the mean over measured waves of the wave's median; +infinity where one rests on failures;
        - `ttft_p99_s`, `tpot_p50_s`: quantiles over all measured requests; a failure is +infinity;
        - `itl_p99_s`: over all gaps between tokens;
        - `output_tokens_per_s`: output tokens of successful requests over the summed windows of the measured waves. A
          window runs from the wave's first send to the last token that any of its requests got. A failed request adds
          no token, but its time counts as far as it is known. Where every request failed the rate is 0, whatever the
          time; otherwise a wave without an end has no length, so there is no rate.
        """
        none = NoData("no measured wave")
        by_name: dict[str, float | NoData] = {
            "ttft_p50_s": sum(self._medians_s) / len(self._medians_s) if self._medians_s else none,
            "ttft_p99_s": _quantile(self._ttft_s, 0.99, none),
            "itl_p99_s": _quantile(self._itl_s, 0.99, NoData("no gap between two tokens")),
            "tpot_p50_s": _quantile(self._tpot_s, 0.5, none),
            "output_tokens_per_s": self._rate(none),
        }
        for name, reason in self._untold.items():
            if name != "output_tokens_per_s" or self._succeeded:
                by_name[name] = reason
        return Values(by_name, self._ttft_s, self._prefill, self._failed, self._total)

    def _rate(self, none: NoData) -> float | NoData:
        if not self._medians_s:
            return none
        if not self._succeeded:
            return 0.0
        if self._tokens <= 0 or self._window_ns <= 0:
            return NoData(f"{self._tokens} tokens in {self._window_ns} ns")
        return float(self._tokens / (self._window_ns * NS))


def _prefill_rate(wave: Sequence[Json]) -> float | NoData:
    """Return a wave's prompt tokens over the time from the first sending to the last first token, in tokens/s."""
    if any(r["status"] != "ok" for r in wave):
        return NoData("a request failed")
    length_ns = max(r["t_first_ns"] for r in wave) - min(r["t_sent_ns"] for r in wave)
    return _prefill_rate_of(sum(r["usage"]["prompt_tokens"] for r in wave), length_ns)


def _prefill_rate_of(prompt_tokens: int, length_ns: int) -> float | NoData:
    return float(prompt_tokens / (length_ns * NS)) if length_ns > 0 else NoData(f"a wave of {length_ns} ns")


def _quantile(values: array[float], share: float, none: NoData) -> float | NoData:
    return float(stats.quantile(values, share)) if values else none


def waves(requests: Iterable[Json]) -> Iterator[tuple[object, list[Json]]]:
    """Yield (number, records) of each wave, as they stand one after the other. Raises KeyError."""
    for number, wave in itertools.groupby(requests, key=operator.itemgetter("wave")):
        yield number, list(wave)


Version = tuple[str, int, int, bool]
_known: dict[Version, Values] = {}


def version_of(trial: Trial) -> Version:
    """Return what tells this state of a trial's records from any other. Raises EvidenceError where none are."""
    file = trial.path / "requests.jsonl"
    try:
        found = file.stat()
    except FileNotFoundError:
        if broken_off(trial):
            return no_records(trial)
        raise EvidenceError(f"{file}: missing") from None
    except OSError as error:
        raise EvidenceError(f"{file}: {error.strerror or error}") from None
    return str(trial.path), found.st_mtime_ns, found.st_size, broken_off(trial)


def no_records(trial: Trial) -> Version:
    """Return the version of a trial that has none."""
    return str(trial.path), -1, -1, broken_off(trial)


def remember(version: Version, values: Values) -> None:
    """Keep what a pass over a trial gave: each criterion and each look asks again, perhaps of millions of records."""
    _known[version] = values


def known(trial: Trial) -> bool:
    """Return whether the trial's values are in memory. Raises EvidenceError."""
    return version_of(trial) in _known


def values_of(trial: Trial) -> Values:
    """Return a trial's values, from memory where they are known. Raises EvidenceError, and as `Collector.take`."""
    version = version_of(trial)
    if version not in _known:
        found = Collector()
        for _, wave in waves(requests_of(trial)):
            found.take(wave, columns_of(wave))
        remember(version, found.values())
    return _known[version]


def ttft_samples_s(trial: Trial) -> list[float]:
    """Return the TTFT of every measured request in seconds, failed ones as +infinity."""
    return values_of(trial).ttft_s.tolist()


def failed_requests(trials: Iterable[Trial]) -> tuple[int, int]:
    """Return (failed, all) requests of these trials, discarded waves included."""
    found = [values_of(trial) for trial in trials]
    return sum(values.failed for values in found), sum(values.total for values in found)


def per_trial(name: str) -> Callable[[Trial], float | NoData]:
    """Return the function of a trial that gives its metric of that name, in the unit that the name ends with."""

    def metric(trial: Trial) -> float | NoData:
        return values_of(trial).by_name[name]

    return metric


ttft_p50_s, ttft_p99_s, itl_p99_s, tpot_p50_s, output_tokens_per_s = map(
    per_trial, ("ttft_p50_s", "ttft_p99_s", "itl_p99_s", "tpot_p50_s", "output_tokens_per_s")
)

PER_TRIAL = {
    "ttft_p50_s": ttft_p50_s,
    "ttft_p99_s": ttft_p99_s,
    "itl_p99_s": itl_p99_s,
    "tpot_p50_s": tpot_p50_s,
    "output_tokens_per_s": output_tokens_per_s,
}
