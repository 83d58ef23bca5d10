"""Results of `vllm bench serve --save-result [--save-detailed]`, read strictly and believed in nothing.

Read is what the file says, in its own units (seconds, tokens). What is of the wrong kind is refused with its key; what
is of the right kind and cannot be true is for gates.imports.checks. The arrays hold a value per request, in the order
of the data set; a failed one has 0.0 where it never got, or, if it broke off, the times of a part of an answer.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gates.imports.documents import AGAIN, Document
from workloads.evidence import EvidenceError

Json = dict[str, Any]
Floats = NDArray[np.float64]

# In every version's results, whatever the options; a result without them is something else.
NEEDED = ("model_id", "num_prompts", "completed", "duration", "total_output_tokens")
TEXTS = ("date", "endpoint_type", "backend", "label", "model_id", "tokenizer_id", "ramp_up_strategy")
COUNTS = ("num_prompts", "completed", "failed", "total_input_tokens", "total_output_tokens", "max_concurrency")
TIMES = ("ttfts", "latencies", "start_times", "queue_times")
LENGTHS = ("input_lens", "output_lens")
DETAILS = (*LENGTHS, "ttfts", "itls", "errors")  # of --save-detailed, those that are used here
# What the tool computed itself: rates per second, times in ms.
FIGURES = ("request_throughput", "output_throughput", "total_token_throughput")
FIGURES_MS = ("mean_ttft_ms", "median_ttft_ms", "p99_ttft_ms")
SHOWN_CHARACTERS = 60
# The last line of the tool's own traceback where its machine could not connect: no files, ports, memory or name, as
# workloads/client.py tells its own. A server that lacks them says so in an answer, which leaves no such line.
_LACKS = (
    "Too many open files|Too many open files in system|No buffer space available|Cannot allocate memory"
    "|Cannot assign requested address|Temporary failure in name resolution|Name or service not known"
    "|No address associated with hostname|nodename nor servname provided, or not known"
)
_NEVER_SENT = re.compile(rf"(\S*: )?(Cannot connect to host .*\[({_LACKS})\]|\[Errno -?\d+\] ({_LACKS})(: .*)?)")


@dataclass(frozen=True)
class Result:
    """One result. None stands for what the file does not have."""

    where: str  # names it in a reason: the file in the run, and which of its results
    arm: str
    sha256: str
    values: Json  # as read
    num_prompts: int
    completed: int
    failed: int | None
    total_input_tokens: int | None
    total_output_tokens: int
    duration_s: float
    max_concurrency: int | None  # also None where it says null: no limit
    request_rate: float | None  # requests/s, infinite: all at once
    lengths: dict[str, list[int]]  # of LENGTHS, tokens
    times_s: dict[str, Floats]  # of TIMES
    gaps_s: Floats | None  # itls, one request after the other
    gap_sums_s: Floats | None  # the sum of each request's
    errors: list[str] | None
    figures: dict[str, float]  # of FIGURES and FIGURES_MS

    @property
    def missing(self) -> list[str]:
        """Return the keys of --save-detailed that are used and not there."""
        return [key for key in DETAILS if key not in self.values]

    @property
    def metadata(self) -> dict[str, str]:
        """Return the label and what `--metadata` gave, which stands among the other keys and is always text."""
        known = {*TEXTS, "request_rate"} - {"label"}
        return {key: value for key, value in self.values.items() if isinstance(value, str) and key not in known}

    def array_lengths(self) -> dict[str, int]:
        """Return how many requests each array that is there speaks of."""
        found = {key: len(value) for key, value in self.lengths.items()}
        found |= {key: len(value) for key, value in self.times_s.items()}
        found |= {} if self.gap_sums_s is None else {"itls": len(self.gap_sums_s)}
        return found | ({} if self.errors is None else {"errors": len(self.errors)})

    def called_failed(self) -> list[bool] | None:
        """Return per request whether the tool's own arrays call it failed; None without them.

        The tool keeps no such flag: a request has failed where it has an error or no first chunk (an HTTP error
        without a reason phrase leaves no error).
        """
        ttfts = self.times_s.get("ttfts")
        if ttfts is None or self.errors is None or len(ttfts) != len(self.errors):
            return None
        return [bool(error) or ttft == 0.0 for error, ttft in zip(self.errors, ttfts.tolist(), strict=True)]

    def broke(self) -> list[bool] | None:
        """Return per request whether it failed: those, and what the tool calls a success without a single token."""
        called, tokens = self.called_failed(), self.lengths.get("output_lens")
        if called is None or tokens is None or len(called) != len(tokens):
            return None
        return [failed or count == 0 for failed, count in zip(called, tokens, strict=True)]

    def never_sent(self) -> int:
        """Return how many requests failed since the machine of the load could not connect: nothing of the server's."""
        last = (error.strip().rpartition("\n")[2].strip() for error in self.errors or ())
        return sum(_NEVER_SENT.fullmatch(line) is not None for line in last)


def read(document: Document, arm: str, file: str, *, alone: bool) -> Result:
    """Return the result in a document of `file`; `alone` where the file has no other.

    Raises EvidenceError: not a result of this tool, or a key of the wrong kind. One line with file, line and key.
    """
    values, place = document.value, f"{file}:{document.line}"
    _refuse_foreign(values, place)
    for key in TEXTS:
        if not isinstance(values.get(key), str | None):
            raise _wrong(place, key, values[key], "a text")
    counts = {key: _count(values, key, place) for key in COUNTS}
    rate, gaps = values.get("request_rate"), _list(values, "itls", place)
    return Result(
        where=file if alone else f"{file} result {document.number}",
        arm=arm,
        sha256=document.sha256,
        values=values,
        num_prompts=counts["num_prompts"] or 0,
        completed=counts["completed"] or 0,
        failed=counts["failed"],
        total_input_tokens=counts["total_input_tokens"],
        total_output_tokens=counts["total_output_tokens"] or 0,
        duration_s=number(values["duration"], place, "duration"),
        max_concurrency=counts["max_concurrency"],
        request_rate=None if rate is None else math.inf if rate == "inf" else number(rate, place, "request_rate"),
        lengths={
            key: found for key in LENGTHS if (found := _all_of(values, key, place, int, "a whole number")) is not None
        },
        times_s={key: _floats(found, place, key) for key in TIMES if (found := _list(values, key, place)) is not None},
        gaps_s=None if gaps is None else _floats(itertools.chain.from_iterable(_nested(gaps, place)), place, "itls"),
        gap_sums_s=None if gaps is None else np.array([float(sum(each)) for each in gaps]),
        errors=_all_of(values, "errors", place, str, "a text"),
        figures={
            key: number(values[key], place, key) for key in (*FIGURES, *FIGURES_MS) if values.get(key) is not None
        },
    )


def number(value: object, place: str, key: str) -> float:
    """Return a number as a float, NaN and infinity included. Raises EvidenceError naming the key."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong(place, key, value, "a number")
    try:
        return float(value)
    except OverflowError:
        raise _wrong(place, key, value, "a number that fits") from None


def shown(value: object) -> str:
    """Return a foreign value so that it breaks neither a line nor a terminal."""
    try:
        text = repr(value)
    except ValueError:  # an integer of more digits than Python prints
        text = "an integer of thousands of digits"
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…"


def _refuse_foreign(values: Json, place: str) -> None:
    if "total_input_sequences" in values:
        raise EvidenceError(
            f"{place}: the result of a run that generates nothing (embeddings, pooling): no gate for it"
        )
    lacking = [key for key in NEEDED if values.get(key) is None]
    if lacking:
        hint = " (it looks like GuideLLM's report)" if "benchmarks" in values else ""
        raise EvidenceError(
            f"{place}: not a result of `vllm bench serve`{hint}: it has no {', '.join(lacking)}: {AGAIN}"
        )


def _count(values: Json, key: str, place: str) -> int | None:
    value = values.get(key)
    if value is not None and type(value) is not int:
        raise _wrong(place, key, value, "a whole number")
    return value


def _list(values: Json, key: str, place: str) -> list[Any] | None:
    value = values.get(key)
    if key in values and not isinstance(value, list):
        raise _wrong(place, key, value, "a list")
    return value


def _all_of(values: Json, key: str, place: str, kind: type, words: str) -> list[Any] | None:
    value = _list(values, key, place)
    if value is not None and not set(map(type, value)) <= {kind}:
        at = next(index for index, each in enumerate(value) if type(each) is not kind)
        raise _wrong(place, f"{key}[{at}]", value[at], words)
    return value


def _nested(value: list[Any], place: str) -> list[list[Any]]:
    for index, each in enumerate(value):
        if not isinstance(each, list):
            raise _wrong(place, f"itls[{index}]", each, "a list")
    return value


def _floats(found: Iterable[Any], place: str, key: str) -> Floats:
    """Return the numbers as an array. Raises EvidenceError naming the first that is none."""
    value = list(found)
    if not set(map(type, value)) <= {int, float}:
        at = next(index for index, each in enumerate(value) if type(each) not in (int, float))
        raise _wrong(place, f"{key}[{at}]" if key != "itls" else key, value[at], "a number of seconds")
    try:
        return np.array(value, dtype=np.float64)
    except OverflowError:
        raise EvidenceError(f"{place}: key {key}: a number that fits into no clock: {AGAIN}") from None


def _wrong(place: str, key: str, value: object, wanted: str) -> EvidenceError:
    twist = " (--metadata can overwrite it)" if isinstance(value, str) and key in COUNTS else ""
    return EvidenceError(f"{place}: key {key}: {shown(value)} is not {wanted}{twist}: {AGAIN}")
