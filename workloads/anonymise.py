"""A customer's request log to a trace that tells nothing of its content: lengths, times, and which blocks repeat.

What leaves are small integers alone: block ids numbered by first appearance, lengths, and times counted from the
first request. No text, no token id and no hash of either is written, nor put into an error.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Any, Literal

import numpy as np

from workloads.traces import (
    BLOCK_TOKENS,
    LATEST_MS,
    TOKENS_MAX,
    Trace,
    TraceError,
    TraceRequest,
    read_objects,
    shown,
    write_trace,
)

TIME_FIELDS = ("timestamp", "time", "created", "created_at", "start_time")
OUTPUT_FIELDS = ("output_length", "output_tokens", "completion_tokens", "usage.completion_tokens")
INPUT_FIELDS = ("input_length", "input_tokens", "prompt_tokens", "usage.prompt_tokens")
CONTENT_FIELDS = ("prompt", "prompt_token_ids", "messages")
_MS_PER_UNIT = {"s": 1000.0, "ms": 1.0}

Encode = Callable[[str], list[int]]


@dataclass(frozen=True)
class Reading:
    """How a log is to be read. Nothing here is guessed from its content."""

    block_tokens: int = BLOCK_TOKENS
    time_unit: Literal["s", "ms"] | None = None  # of times that are numbers
    time_field: str | None = None  # None: the one of TIME_FIELDS that the first line has
    tokenizer: Path | None = None  # the model's folder; needed for text alone


def anonymise(log: Path, out: Path, reading: Reading) -> Trace:
    """Write the trace of a log to `out`, gzipped where that ends in .gz, and return it.

    Written whole or not at all. Raises TraceError: `LOG:LINE: what is wrong: what to do`; OSError: `out` cannot be
    written; ValueError: blocks of less than one token.
    """
    if reading.block_tokens < 1:
        raise ValueError(f"blocks of {reading.block_tokens} tokens: give at least 1")
    if out.exists() and log.exists() and out.samefile(log):
        raise TraceError(log, None, "would be overwritten by its own trace: give another place for it")
    if not out.parent.is_dir():
        raise TraceError(out, None, "its folder does not exist: make it first")
    requests = tuple(read_log(log, reading))
    write_trace(out, requests)
    return Trace(out, reading.block_tokens, requests)


def read_log(log: Path, reading: Reading) -> Iterator[TraceRequest]:
    """Yield what may leave of each request, in order of time. Raises TraceError."""
    lines = _Lines(log, reading)
    requests = sorted((lines.request(number, fields) for number, fields in read_objects(log)), key=lambda r: r[0])
    numbers: dict[int, int] = {}
    for time_ms, input_tokens, output_tokens, blocks in requests:
        # Numbered in the order of the trace: that of the log would tell how the log was sorted.
        ids = tuple(numbers.setdefault(block, len(numbers)) for block in blocks)
        yield TraceRequest(round(time_ms - requests[0][0]), input_tokens, output_tokens, ids)


@dataclass
class _Lines:
    """Turns the lines of one log into (time in ms, input tokens, output tokens, provisional block numbers)."""

    path: Path
    reading: Reading
    _time_field: str | None = None
    _time_is_number: bool | None = None
    _encode: Encode | None = None
    _seen: dict[bytes, int] = field(default_factory=dict)
    _next: Iterator[int] = field(default_factory=count)

    def request(self, line: int, fields: dict[str, Any]) -> tuple[float, int, int, list[int]]:
        time_ms = self._time_ms(line, fields)
        output_tokens = self._length(line, fields, OUTPUT_FIELDS)
        if output_tokens is None:
            raise self._refuse(line, f"no output length: give one of {', '.join(OUTPUT_FIELDS)}")
        ids = self._prompt_ids(line, fields)
        if ids is not None:
            return time_ms, len(ids), output_tokens, list(self._blocks(ids))
        input_tokens = self._length(line, fields, INPUT_FIELDS)
        if input_tokens is None:
            raise self._refuse(
                line, f"neither a prompt nor its length: give one of {', '.join(CONTENT_FIELDS + INPUT_FIELDS)}"
            )
        # Nothing is known of what was in it, so it shares with none.
        size = self.reading.block_tokens
        return time_ms, input_tokens, output_tokens, [next(self._next) for _ in range(-(-input_tokens // size))]

    def _blocks(self, ids: list[int]) -> Iterator[int]:
        """Yield a number for each block: the same one only where the prompt is the same from its beginning on."""
        tokens, size, chained = np.asarray(ids, dtype="<u8"), self.reading.block_tokens, b""
        for start in range(0, len(ids), size):
            chained = hashlib.sha256(chained + tokens[start : start + size].tobytes()).digest()
            if chained not in self._seen:
                self._seen[chained] = next(self._next)
            yield self._seen[chained]

    def _time_ms(self, line: int, fields: dict[str, Any]) -> float:
        if self._time_field is None:
            asked = self.reading.time_field
            found = [asked] if asked else [name for name in TIME_FIELDS if name in fields]
            if len(found) != 1:
                what = f"several times, {' and '.join(found)}" if found else f"no time of {', '.join(TIME_FIELDS)}"
                raise self._refuse(line, f"{what}: name the field with --time-field")
            self._time_field = found[0]
        name = self._time_field
        value = _at(fields, name)
        if isinstance(value, str):
            time_ms = self._iso_ms(line, name, value)
        elif type(value) in (int, float) and 0 <= value <= LATEST_MS:
            if self.reading.time_unit is None:
                raise self._refuse(line, f"{name} is a number of unknown unit: state it with --time-unit s or ms")
            time_ms = value * _MS_PER_UNIT[self.reading.time_unit]
        else:
            time_ms = math.inf
        if time_ms > LATEST_MS:
            raise self._refuse(line, f"{name} is no time: give a number from 0 on, or ISO 8601 with a zone")
        is_number = not isinstance(value, str)
        if self._time_is_number not in (None, is_number):
            raise self._refuse(line, f"{name} is of another kind than before: give all as numbers or all as ISO 8601")
        self._time_is_number = is_number
        return time_ms

    def _iso_ms(self, line: int, name: str, value: str) -> float:
        try:
            moment = datetime.fromisoformat(value)
            if moment.tzinfo is None:
                raise self._refuse(line, f"{name} has no zone: write it as in 2026-01-31T09:30:00+08:00")
            return moment.timestamp() * 1000
        except TraceError:
            raise
        except (ValueError, OverflowError):
            raise self._refuse(line, f"{name} is no ISO 8601 time: write it as in 2026-01-31T09:30:00Z") from None

    def _length(self, line: int, fields: dict[str, Any], names: tuple[str, ...]) -> int | None:
        found = {name: value for name in names if (value := _at(fields, name)) is not None}
        for name, value in found.items():
            if type(value) is not int or not 1 <= value <= TOKENS_MAX:
                told = f"{name} is no whole number of tokens, 1 to {TOKENS_MAX}: mend or drop the line"
                raise self._refuse(line, told)
        if len(set(found.values())) > 1:
            raise self._refuse(line, f"{' and '.join(found)} differ: keep the right one")
        return next(iter(found.values()), None)

    def _prompt_ids(self, line: int, fields: dict[str, Any]) -> list[int] | None:
        found = [name for name in CONTENT_FIELDS if fields.get(name) is not None]
        if not found:
            return None
        if len(found) > 1:
            raise self._refuse(line, f"{' and '.join(found)} in one request: keep the one that was sent")
        name, value = found[0], fields[found[0]]
        if name == "messages":
            ids = self._ids_of(line, self._chat_text(line, value))
        elif isinstance(value, str) and name == "prompt":
            ids = self._ids_of(line, value)
        elif isinstance(value, list) and all(type(i) is int and 0 <= i < 2**63 for i in value):
            ids = value
        else:
            raise self._refuse(line, f"{name} is neither text nor a list of token ids: give one prompt a line")
        if not ids:
            raise self._refuse(line, f"{name} holds no token: drop the line")
        return ids

    def _chat_text(self, line: int, messages: object) -> str:
        """Return the messages one after the other. The model's chat template would add a few tokens to each."""
        if not isinstance(messages, list) or not all(isinstance(m, dict) for m in messages):
            raise self._refuse(line, "messages is not a list of objects: give them as in a chat completion")
        text = []
        for message in messages:
            content = message.get("content")
            parts = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
            if not isinstance(parts, list) or not all(
                isinstance(p, dict) and p.get("type") == "text" and isinstance(p.get("text"), str) for p in parts
            ):
                raise self._refuse(line, "a message has content other than text: give such requests as lengths")
            calls = json.dumps(message["tool_calls"], sort_keys=True) if message.get("tool_calls") else ""
            text.append(f"{message.get('role')}\n{''.join(p['text'] for p in parts)}{calls}\n")
        return "".join(text)

    def _ids_of(self, line: int, text: str) -> list[int]:
        try:
            text.encode()
        except UnicodeEncodeError:
            raise self._refuse(line, "holds half a character (a lone surrogate): mend the text") from None
        if self._encode is None:
            if self.reading.tokenizer is None:
                raise self._refuse(line, "is text: name the model's folder with --tokenizer, or give token ids")
            self._encode = load_tokenizer(self.reading.tokenizer)
        return self._encode(text)

    def _refuse(self, line: int, reason: str) -> TraceError:
        return TraceError(self.path, line, reason)


def load_tokenizer(folder: Path) -> Encode:
    """Return the text -> token ids of a model's folder, the special tokens of a prompt included.

    Raises TraceError: no tokenizer.json there, or it cannot be read, or the package is missing.
    """
    file = folder / "tokenizer.json"
    if not file.is_file():
        raise TraceError(file, None, "no such file: name a model's folder that holds its tokenizer.json")
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise TraceError(
            file, None, "needs the package tokenizers: pip install tokenizers, or give token ids in the log"
        ) from None
    try:
        tokenizer = Tokenizer.from_file(str(file))
        # Both may be set in the file, and both would give wrong lengths.
        tokenizer.no_truncation()
        tokenizer.no_padding()
    except Exception as error:  # noqa: BLE001  # the package raises nothing narrower
        raise TraceError(file, None, f"is no tokenizer ({shown(str(error))}): copy the model's folder again") from None
    return lambda text: list(tokenizer.encode(text).ids)


def _at(fields: dict[str, Any], name: str) -> Any:
    """Return the value under that name, or None; `a.b` means b in the object a."""
    value: Any = fields
    if name in fields:
        return fields[name]
    for step in name.split("."):
        value = value.get(step) if isinstance(value, dict) else None
    return value
