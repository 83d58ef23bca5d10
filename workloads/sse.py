"""Timed reads of a server-sent-event stream to timed events, and events to what a request's record says.

Pure functions: reads are stamped while the stream runs, and everything here happens after it has ended.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

DONE = "[DONE]"
FAILED_REASONS = frozenset({"error", "abort", "cancelled", "content_filter"})


@dataclass(frozen=True)
class Read:
    """One read from the socket: when it returned (ns, the record's clock) and what it brought."""

    t_ns: int
    data: bytes


@dataclass(frozen=True)
class Event:
    """One event's data, the time of the read that completed it, and how many events that read completed."""

    t_ns: int
    data: str
    in_read: int


def events(reads: Sequence[Read]) -> list[Event]:
    """Return the stream's events. An event is complete at its blank line; what follows the last one is dropped."""
    found: list[tuple[int, int, str]] = []  # (read number, time, data)
    pending = b""
    lines: list[str] = []
    for number, read in enumerate(reads):
        pending += read.data
        *whole, pending = pending.split(b"\n")
        for raw in whole:
            line = raw.removesuffix(b"\r").decode("utf-8", "replace")
            if line:
                if line.startswith("data:"):
                    lines.append(line[5:].removeprefix(" "))
            elif lines:
                found.append((number, read.t_ns, "\n".join(lines)))
                lines = []
    in_read: dict[int, int] = {}
    for number, _, _ in found:
        in_read[number] = in_read.get(number, 0) + 1
    return [Event(t_ns, data, in_read[number]) for number, t_ns, data in found]


def outcome(stream: Sequence[Event]) -> dict[str, Any]:
    """Return the record's fields that come from the stream (names as in docs/evidence.md).

    The first token is the first chunk that carries text, token ids, reasoning or a tool call. An error inside the
    stream, a stream without its end, without usage or without a token is a failure.
    """
    result: dict[str, Any] = {
        "t_first_ns": None, "t_last_ns": None, "chunk_ns": [], "chunk_tokens": [], "first_shared_read": False,
        "text": "", "first_logprobs": None, "output_token_ids": [], "usage": None, "finish_reason": None,
        "status": "failed", "error": None,
    }  # fmt: skip
    ended = False
    for event in stream:
        if event.data == DONE:
            ended = True
            break
        try:
            chunk = json.loads(event.data)
        except ValueError:
            return _failed(result, f"the stream carries something that is not JSON: {event.data[:80]!r}")
        if not isinstance(chunk, dict):
            return _failed(result, f"the stream carries something that is no chunk: {event.data[:80]!r}")
        if chunk.get("error"):
            return _failed(result, f"error inside the stream: {_message(chunk['error'])}")
        _take_usage(result, chunk.get("usage"))
        choice = _first(chunk.get("choices"))
        if isinstance(choice, dict):
            _take_choice(result, choice, event)
    if result["t_first_ns"] is None:
        return _failed(result, "answered without a single token")
    if not ended:
        return _failed(result, "the stream broke off without its end ([DONE])")
    if result["finish_reason"] in FAILED_REASONS:
        return _failed(result, f"finished with reason '{result['finish_reason']}'")
    if result["finish_reason"] is None:
        return _failed(result, "the stream ended without a finish reason")
    if result["usage"] is None:
        return _failed(result, "the server did not say how many tokens it used")
    result["status"] = "ok"
    return result


def _take_choice(result: dict[str, Any], choice: dict[str, Any], event: Event) -> None:
    if choice.get("finish_reason"):
        result["finish_reason"] = str(choice["finish_reason"])
    text, ids, carries = _content(choice)
    if not carries:
        return
    if result["t_first_ns"] is None:
        result["t_first_ns"] = event.t_ns
        result["first_shared_read"] = event.in_read > 1
        result["first_logprobs"] = _logprobs(choice)
    result["t_last_ns"] = event.t_ns
    result["chunk_ns"].append(event.t_ns - result["t_first_ns"])
    result["chunk_tokens"].append(max(len(ids), 1))
    result["output_token_ids"].extend(ids)
    result["text"] += text


def _content(choice: dict[str, Any]) -> tuple[str, list[int], bool]:
    """Return (text, token ids, whether the chunk carries anything of the answer)."""
    delta = choice.get("delta")
    source = delta if isinstance(delta, dict) else choice
    words = [source.get(key) for key in ("text", "content", "reasoning", "reasoning_content")]
    text = "".join(word for word in words if isinstance(word, str))
    ids = [i for i in _list(choice.get("token_ids")) if isinstance(i, int)]
    if not ids:
        # With return_tokens_as_token_ids vLLM names the tokens "token_id:123" in the log-probabilities.
        named = [
            t[9:]
            for t in _list(_dict(choice.get("logprobs")).get("tokens"))
            if isinstance(t, str) and t.startswith("token_id:")
        ]
        ids = [int(n) for n in named if n.isdecimal()]
    return text, ids, bool(text or ids or source.get("tool_calls"))


def _logprobs(choice: dict[str, Any]) -> dict[str, float] | None:
    first = _dict(_first(_dict(choice.get("logprobs")).get("top_logprobs")))
    return {str(k): float(v) for k, v in first.items() if isinstance(v, int | float)} or None


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _first(value: object) -> object:
    return next(iter(_list(value)), None)


def _take_usage(result: dict[str, Any], usage: object) -> None:
    if isinstance(usage, dict):
        counts = {key: usage.get(key) for key in ("prompt_tokens", "completion_tokens")}
        if all(isinstance(count, int) for count in counts.values()):
            result["usage"] = counts


def _failed(result: dict[str, Any], reason: str) -> dict[str, Any]:
    return {**result, "status": "failed", "error": " ".join(reason.split())[:500]}


def _message(error: object) -> str:
    return str(error.get("message", error)) if isinstance(error, dict) else str(error)
