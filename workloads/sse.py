"""Timed reads of a server-sent-event stream to timed events, and events to what a request's record says.

Pure functions: reads are stamped while the stream runs, and everything here happens after it has ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from pydantic_core import from_json

from workloads.http1 import Read

DONE = b"[DONE]"
WORDS = ("text", "content", "reasoning", "reasoning_content")  # where a chunk may carry what was said
FAILED_REASONS = frozenset({"error", "abort", "cancelled", "content_filter"})


class Event(NamedTuple):
    """One event's data, the time of the read that completed it, and whether more came after it in that read.

    The kernel stamps a read with the time of its last segment, so what is followed by more may have come earlier.
    """

    t_ns: int
    data: bytes
    followed: bool


def events(reads: Iterable[Read]) -> Iterator[Event]:
    """Yield the stream's events. An event is complete at its blank line; what follows the last one is dropped."""
    pending = b""
    lines: list[bytes] = []
    for read in reads:
        if (
            not pending
            and not lines
            and read.data.startswith(b"data: ")
            and read.data.endswith(b"\n\n")
            and read.data.find(b"\n") == len(read.data) - 2
        ):
            # Nearly every read is one whole event; the general way below costs several times as much.
            yield Event(read.t_ns, read.data[6:-2], False)
            continue
        *whole, pending = (pending + read.data if pending else read.data).split(b"\n")
        complete: list[bytes] = []
        for raw in whole:
            line = raw.removesuffix(b"\r")
            if line.startswith(b"data:"):
                lines.append(line[5:].removeprefix(b" "))
            elif not line and lines:
                complete.append(lines[0] if len(lines) == 1 else b"\n".join(lines))
                lines = []
        last = len(complete) - 1
        for place, data in enumerate(complete):
            # A part of a later event in the same read came after this one, too.
            yield Event(read.t_ns, data, place < last or bool(pending or lines))


def outcome(stream: Iterable[Event]) -> dict[str, Any]:
    """Return the record's fields that come from the stream (names as in docs/evidence.md)."""
    taking = Outcome()
    for event in stream:
        taking.take(event)
    return taking.result()


class Outcome:
    """What a record says of a stream, taken event by event.

    The first token is the first chunk that carries text, token ids, reasoning or a tool call. An error inside the
    stream, a stream without its end, without usage or without a token is a failure.
    """

    def __init__(self) -> None:
        self._fields: dict[str, Any] = {
            "t_first_ns": None, "t_last_ns": None, "chunk_ns": [], "chunk_tokens": [], "first_shared_read": False,
            "text": "", "first_logprobs": None, "output_token_ids": [], "usage": None, "finish_reason": None,
        }  # fmt: skip
        self._text: list[str] = []
        self._error: str | None = None
        self._ended = False
        self._told = 0  # output tokens so far, where the server counts along

    def take(self, event: Event) -> None:
        """Take the next event; none counts after the end or an error."""
        if self._ended or self._error is not None:
            return
        if event.data == DONE:
            self._ended = True
            return
        try:
            chunk = from_json(event.data)
        except ValueError:
            self._error = f"the stream carries something that is not JSON: {_shown(event.data)}"
            return
        if not isinstance(chunk, dict):
            self._error = f"the stream carries something that is no chunk: {_shown(event.data)}"
        elif chunk.get("error"):
            self._error = f"error inside the stream: {_message(chunk['error'])}"
        else:
            before = self._told
            if chunk.get("usage") is not None and (usage := _usage(chunk["usage"])) is not None:
                self._fields["usage"], self._told = usage, usage["completion_tokens"]
            choice = _first(chunk.get("choices"))
            if isinstance(choice, dict):
                _take_choice(self._fields, self._text, choice, event, self._told - before)

    def result(self) -> dict[str, Any]:
        """Return the record's fields, `status` and `error` among them."""
        fields = {**self._fields, "text": "".join(self._text)}
        error = self._error or _shortfall(fields, self._ended)
        if error is None:
            return {**fields, "status": "ok", "error": None}
        return {**fields, "status": "failed", "error": one_line(error)}


def one_line(text: str) -> str:
    """Return the text on one line, cut to a length that a record can bear."""
    return " ".join(text.split())[:500]


def _shown(data: bytes) -> str:
    return repr(data[:80].decode("utf-8", "replace"))


def _shortfall(fields: dict[str, Any], ended: bool) -> str | None:
    """Return what a stream without an error of its own lacks; None when it is whole."""
    if fields["t_first_ns"] is None:
        return "answered without a single token"
    if not ended:
        return "the stream broke off without its end ([DONE])"
    if fields["finish_reason"] in FAILED_REASONS:
        return f"finished with reason '{fields['finish_reason']}'"
    if fields["finish_reason"] is None:
        return "the stream ended without a finish reason"
    if fields["usage"] is None:
        return "the server did not say how many tokens it used"
    return None


def _take_choice(
    result: dict[str, Any], words: list[str], choice: dict[str, Any], event: Event, counted_tokens: int
) -> None:
    if choice.get("finish_reason"):
        result["finish_reason"] = str(choice["finish_reason"])
    text, ids, carries = _content(choice)
    if not carries:
        return
    if result["t_first_ns"] is None:
        result["t_first_ns"] = event.t_ns
        result["first_shared_read"] = event.followed
        result["first_logprobs"] = _logprobs(choice)
    result["t_last_ns"] = event.t_ns
    result["chunk_ns"].append(event.t_ns - result["t_first_ns"])
    result["chunk_tokens"].append(len(ids) or max(counted_tokens, 1))
    result["output_token_ids"].extend(ids)
    words.append(text)


def _content(choice: dict[str, Any]) -> tuple[str, list[int], bool]:
    """Return (text, token ids, whether the chunk carries anything of the answer)."""
    delta = choice.get("delta")
    source = delta if isinstance(delta, dict) else choice
    text = "".join(word for key in WORDS if isinstance(word := source.get(key), str))
    ids = [i for i in _list(choice.get("token_ids")) if type(i) is int] if "token_ids" in choice else []
    if not ids and choice.get("logprobs"):
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


def _usage(usage: object) -> dict[str, int] | None:
    counts = {key: _dict(usage).get(key) for key in ("prompt_tokens", "completion_tokens")}
    whole = {key: count for key, count in counts.items() if type(count) is int and count >= 0}
    return whole if len(whole) == len(counts) else None


def _message(error: object) -> str:
    return str(error.get("message", error)) if isinstance(error, dict) else str(error)
