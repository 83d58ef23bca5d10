"""Request records with no more than what pictures need, several times faster than reading them whole.

The suite writes a record's fields in one order and without spaces (workloads/evidence.py). A line that looks so is read
by that; any other is read as JSON. Within a string every quotation mark is escaped, so that text which looks like a
field is none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from pydantic_core import from_json

from reports.loose import Json
from workloads.evidence import EvidenceError, Trial, read_jsonl

_HEAD = re.compile(
    rb'\{"id":"[^"\\]*","arm":"[^"\\]*","step":\d+,"block":\d+,"trial":"[^"\\]*","wave":(\d+),"measured":(true|false),'
    rb'"prompt_set":\d+,"prompt_index":\d+,"prompt_seed":\d+,"prompt_tokens_expected":\d+,"output_tokens_expected":\d+,'
    rb'"t_intended_ns":\d+,"t_sent_ns":(\d+),"t_first_ns":(\d+),"t_last_ns":(\d+),"clock":"'
)
_TAIL = re.compile(
    rb'"usage":\{"prompt_tokens":(\d+),"completion_tokens":(\d+)\},"finish_reason":"[^"\\]*","status":"ok","error":null,'
    rb'"run":"[^"\\]*"\}\n'
)


def records(trial: Trial) -> Iterator[Json]:
    """Yield each request as gates.metrics.Collector takes it, but without its chunks, which no picture shows.

    Raises EvidenceError on a bad line.
    """
    try:
        with (trial.path / "requests.jsonl").open("rb") as f:
            for line in f:
                head = _HEAD.match(line)
                tail = _TAIL.fullmatch(line, line.rfind(b'"usage":')) if head else None
                if head is None or tail is None:
                    yield {**_whole(trial, line), "chunk_tokens": ()}
                    continue
                wave, measured, sent, first, last = head.groups()
                yield {
                    "id": "", "wave": int(wave), "measured": measured == b"true", "status": "ok",
                    "t_sent_ns": int(sent), "t_first_ns": int(first), "t_last_ns": int(last), "chunk_ns": (),
                    "chunk_tokens": (), "usage": {"prompt_tokens": int(tail[1]), "completion_tokens": int(tail[2])},
                }  # fmt: skip
    except OSError as error:
        raise EvidenceError(f"{trial.path / 'requests.jsonl'}: {error.strerror or error}") from None


def _whole(trial: Trial, line: bytes) -> Json:
    try:
        value = from_json(line, allow_inf_nan=False) if line.endswith(b"\n") else None
    except ValueError:
        value = None
    if isinstance(value, dict):
        return value
    for _ in read_jsonl(trial.path / "requests.jsonl"):  # it says where and what
        pass
    raise EvidenceError(f"{trial.path / 'requests.jsonl'}: changed while it was read")
