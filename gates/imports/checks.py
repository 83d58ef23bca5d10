"""What in a result cannot be true, and in what the two results of a pair differ: one line each, naming file and key."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from gates.imports.vllm_bench import Floats, Result, shown
from scenarios.model import BASELINE, CANDIDATE

# Sums of the same floats in another order; the tool's own arithmetic is exact to this.
RELATIVE = 1e-6
ROUNDING_S = 1e-6
# A latency is the first chunk and the gaps after it, by the same clock, in these backends.
CHUNKED = ("openai", "openai-chat", "vllm")
SAME = ("model_id", "tokenizer_id", "endpoint_type", "backend", "num_prompts", "request_rate", "burstiness",
        "max_concurrency", "ramp_up_strategy", "ramp_up_start_rps", "ramp_up_end_rps")  # fmt: skip


def contradictions(result: Result) -> list[str]:
    """Return where a result contradicts itself, or holds what no clock and no counter can have shown."""
    try:
        found = [*_impossible(result), *_counts(result)]
        return [f"{result.where}: {line}" for line in found or [*_sums(result), *_durations(result), *_load(result)]]
    except OverflowError:
        return [f"{result.where}: a count that is larger than any"]


def differences(baseline: Result, candidate: Result) -> list[str]:
    """Return in what the two were not measured alike, the tier aside."""
    where = f"{candidate.where} against {baseline.where}"
    found = [
        f"other {key} in the arms: {shown(candidate.values.get(key))} against {shown(baseline.values.get(key))}"
        for key in SAME
        if not _same(candidate.values.get(key), baseline.values.get(key))
    ]
    for key in ("input_lens", "output_lens"):
        found += _other_lengths(key, baseline, candidate)
    if not baseline.lengths and not candidate.lengths and baseline.total_input_tokens != candidate.total_input_tokens:
        found.append(f"other total_input_tokens: {candidate.total_input_tokens} against {baseline.total_input_tokens}")
    return [f"{where}: {line}" for line in found]


def mixed_up(results: Sequence[Result]) -> list[str]:
    """Return what speaks for files in the wrong place: one result given twice, or one that names the other arm."""
    found: list[str] = []
    seen: dict[str, str] = {}
    for result in results:
        if result.sha256 in seen:
            found.append(f"{result.where}: the same result as {seen[result.sha256]}")
        seen.setdefault(result.sha256, result.where)
        other = CANDIDATE if result.arm == BASELINE else BASELINE
        found += [
            f"{result.where}: {shown(key)} says {shown(value)}, but it was given as the {result.arm}"
            for key, value in result.metadata.items()
            if value.casefold() == other
        ]
    return found


def of_two_kinds(results: Sequence[Result]) -> list[str]:
    """Return where the label or metadata of results of one arm differ: they may not be one and the same arm."""
    found: list[str] = []
    first: dict[tuple[str, str], tuple[str, str]] = {}
    for result in results:
        for key, value in result.metadata.items():
            told, where = first.setdefault((result.arm, key), (value, result.where))
            if told != value:
                found.append(f"{result.where}: {shown(key)} is {shown(value)}, but {shown(told)} in {where}")
    return found


def _impossible(result: Result) -> Iterator[str]:
    for key, value in (("duration", result.duration_s), *result.figures.items()):
        if not 0 <= value < math.inf:
            yield f"{key} is {value:g}"
    for key, times in (*result.times_s.items(), ("itls", result.gaps_s)):
        if times is None:
            continue
        wrong = np.flatnonzero(~(np.isfinite(times) & (times >= 0)))
        if wrong.size:
            yield f"{key}: {wrong.size} times that no clock shows, the first {times[wrong[0]]:g}"
    for key, tokens in result.lengths.items():
        if tokens and min(tokens) < 0:
            yield f"{key}: {min(tokens)} tokens"
    counted = ("num_prompts", "completed", "failed", "total_input_tokens", "total_output_tokens")
    for key in counted:
        if (result.values.get(key) or 0) < 0:
            yield f"{key} is {shown(result.values[key])}"
    if result.num_prompts == 0:
        yield "num_prompts is 0: nothing was sent"
    if result.max_concurrency is not None and result.max_concurrency < 1:
        yield f"max_concurrency is {shown(result.max_concurrency)}"
    if result.request_rate is not None and not result.request_rate > 0:
        yield f"request_rate is {result.request_rate:g}"
    if result.duration_s == 0:
        yield "duration is 0"


def _counts(result: Result) -> Iterator[str]:
    called = result.called_failed()
    sizes = result.array_lengths()
    if result.failed is not None and result.completed + result.failed != result.num_prompts:
        yield f"completed {result.completed} + failed {result.failed} is not num_prompts {result.num_prompts}"
    elif result.completed > result.num_prompts:
        yield f"completed {result.completed} of num_prompts {result.num_prompts}"
    for key, size in sizes.items():
        if size != result.num_prompts:
            yield f"{key} speaks of {size} requests, num_prompts is {result.num_prompts}"
    came = None if called is None or len(called) != result.num_prompts else len(called) - sum(called)
    if came is not None and came != result.completed:
        yield f"completed is {result.completed}, by errors and ttfts it is {came}"


def _sums(result: Result) -> Iterator[str]:
    called = result.called_failed()
    tokens, prompts = result.lengths.get("output_lens"), result.lengths.get("input_lens")
    if tokens is not None and sum(tokens) != result.total_output_tokens:
        yield f"total_output_tokens is {result.total_output_tokens}, the sum of output_lens {sum(tokens)}"
    if prompts is not None and called is not None and result.total_input_tokens is not None:
        read = sum(count for count, failed in zip(prompts, called, strict=True) if not failed)
        if read != result.total_input_tokens:
            yield f"total_input_tokens is {result.total_input_tokens}, the sum of input_lens that completed {read}"
    for key, amount in (
        ("request_throughput", result.completed),
        ("output_throughput", result.total_output_tokens),
        ("total_token_throughput", result.total_output_tokens + (result.total_input_tokens or 0)),
    ):
        if key == "total_token_throughput" and result.total_input_tokens is None:
            continue
        yield from _stated(result, key, amount / result.duration_s)
    ttfts = result.times_s.get("ttfts")
    if ttfts is not None and called is not None and not all(called):
        came = ttfts[~np.array(called)]
        yield from _stated(result, "mean_ttft_ms", float(came.mean()) * 1e3)
        yield from _stated(result, "median_ttft_ms", float(np.median(came)) * 1e3)


def _stated(result: Result, key: str, computed: float) -> Iterator[str]:
    value = result.figures.get(key)
    if value is not None and not math.isclose(value, computed, rel_tol=RELATIVE):
        yield f"{key} is {value:g}, by the rest of the file {computed:g}"


def _durations(result: Result) -> Iterator[str]:
    """Yield where the run is shorter than what is said to have happened in it, or a request's times disagree."""
    ttfts, gaps, latencies = result.times_s.get("ttfts"), result.gap_sums_s, result.times_s.get("latencies")
    spans = [] if latencies is None else [latencies]
    spans += [] if ttfts is None else [ttfts if gaps is None else ttfts + gaps]
    longest = max((float(span.max()) for span in spans), default=0.0)
    if longest > result.duration_s + ROUNDING_S:
        yield f"duration is {result.duration_s:g} s, its longest request takes {longest:g} s"
    called = result.called_failed()
    if called is None or ttfts is None or gaps is None or latencies is None:
        return
    apart: Floats = np.where(called, 0.0, np.abs(latencies - ttfts - gaps))
    if result.values.get("backend", result.values.get("endpoint_type")) in CHUNKED and apart.max() > ROUNDING_S:
        yield f"latencies[{apart.argmax()}] is {apart.max():g} s off its ttft and the sum of its itls"


def _load(result: Result) -> Iterator[str]:
    """Yield where the answers that came do not fit into the duration, or more were under way than max_concurrency."""
    starts, latencies, called = (
        result.times_s.get("start_times"),
        result.times_s.get("latencies"),
        result.called_failed(),
    )
    if starts is None or latencies is None or called is None or all(called):
        return
    came = ~np.array(called)
    starts, ends = starts[came], (starts + latencies)[came]
    window_s = float(ends.max() - starts.min())
    if window_s > result.duration_s + ROUNDING_S:
        yield f"duration is {result.duration_s:g} s, its requests span {window_s:g} s"
    steps = np.repeat((1, -1), len(starts))
    # At the same instant an end comes before a start.
    under_way = np.cumsum(steps[np.lexsort((steps, np.r_[starts, ends]))])
    if result.max_concurrency is not None and under_way.max() > result.max_concurrency:
        yield f"{under_way.max()} requests were under way at once, max_concurrency is {result.max_concurrency}"


def _other_lengths(key: str, baseline: Result, candidate: Result) -> Iterator[str]:
    """Yield whether requests that both arms answered have other lengths: paired by their place in the data set."""
    mine, other = candidate.lengths.get(key), baseline.lengths.get(key)
    failed, other_failed = candidate.called_failed(), baseline.called_failed()
    if mine is None or other is None or failed is None or other_failed is None or len(mine) != len(other):
        return
    both = [(a, b) for a, b, x, y in zip(mine, other, failed, other_failed, strict=True) if not (x or y)]
    unlike = [(a, b) for a, b in both if a != b]
    if unlike:
        first = f"the first {unlike[0][0]} tokens against {unlike[0][1]}"
        yield f"other {key} in {len(unlike)} of {len(both)} requests that both answered, {first}"


def _same(one: object, other: object) -> bool:
    """Return whether two values of a key are alike: 16 and 16.0 are, and so are two NaN."""
    return one == other or repr(one) == repr(other)
