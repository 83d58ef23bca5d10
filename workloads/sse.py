"""Timed reads of a server-sent-event stream to timed events, and events to what a request's record says.

Pure functions: reads are stamped while the stream runs, and everything here happens after it has ended.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, TypeGuard

from pydantic_core import from_json

from workloads.http1 import Read

DONE = b"[DONE]"
WORDS = ("text", "content", "reasoning", "reasoning_content")  # where a chunk may carry what was said
DIGITS_MAX = 15  # of a whole number in a record: below 2**53
FAILED_REASONS = frozenset({"error", "abort", "cancelled", "content_filter"})


class Event(NamedTuple):
    """One event's data, the time of the read that completed it, and whether more came after it in that read.

    The kernel stamps a read with the time of its last segment, so what is followed by more may have come earlier.
    """

    t_ns: int
    data: bytes
    followed: bool
    kind: bytes = b""  # of the `event` field, empty where there is none


class StreamError(ValueError):
    """One line: what of the stream is no server-sent event."""


def events(reads: Iterable[Read]) -> Iterator[Event]:
    """Yield the stream's events. An event is complete at its blank line; what follows the last one is dropped.

    Only the stream's end mark counts without its blank line. Raises StreamError for a line that is no field.
    """
    parts: list[bytes] = []  # of a line that is not whole yet
    lines: list[bytes] = []
    kind, t_ns, begin = b"", 0, True
    for read in reads:
        t_ns, data = read.t_ns, read.data
        if begin:
            data, begin = data.removeprefix(b"\xef\xbb\xbf"), False
        if (
            not parts and not lines and not kind
            and data.startswith(b"data: ") and data.endswith(b"\n\n") and data.find(b"\n") == len(data) - 2
        ):  # fmt: skip
            # Nearly every read is one whole event; the general way below costs several times as much.
            yield Event(t_ns, data[6:-2], False)
            continue
        *whole, rest = data.split(b"\n")
        if not whole:
            parts.append(rest)
            continue
        whole[0] = b"".join((*parts, whole[0]))
        parts = [rest] if rest else []
        complete: list[tuple[int, bytes, bytes]] = []  # (number of the line, data, kind)
        for number, raw in enumerate(whole):
            line = raw.removesuffix(b"\r")
            if not line:
                if lines:
                    complete.append((number, lines[0] if len(lines) == 1 else b"\n".join(lines), kind))
                lines, kind = [], b""
                continue
            name, _, value = line.partition(b":")
            if name == b"data":
                lines.append(value.removeprefix(b" "))
            elif name == b"event":
                kind = value.strip()
            elif name not in (b"", b"id", b"retry"):  # a comment has no name
                raise StreamError(f"the stream carries a line that is no event's: {_shown(line)}")
        for number, found, named in complete:
            # Anything later in the same read, a comment or a part of an event, may be what the stamp is of.
            yield Event(t_ns, found, number < len(whole) - 1 or bool(rest), named)
    tail = b"".join(parts)
    if tail.startswith(b"data:"):
        lines.append(tail[5:])
    if [line.strip() for line in lines] == [DONE]:
        yield Event(t_ns, DONE, False)


def outcome(stream: Iterable[Event]) -> dict[str, Any]:
    """Return the record's fields that come from the stream (names as in docs/evidence.md)."""
    taking = Outcome()
    try:
        for event in stream:
            taking.take(event)
    except StreamError as error:
        taking.fail(str(error))
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
        self._counted = 0  # output tokens up to the last chunk that carried something, where the server counts along
        self.events = 0

    @property
    def ended(self) -> bool:
        """Return whether the stream has said that it is at its end."""
        return self._ended

    def take(self, event: Event) -> None:
        """Take the next event; none counts after the end or an error."""
        self.events += 1
        if self._ended or self._error is not None:
            return
        if event.data.strip() == DONE:
            self._ended = True
            return
        try:
            chunk = from_json(event.data, allow_inf_nan=True)
        except ValueError:
            self._error = f"the stream carries something that is not JSON: {_shown(event.data)}"
            return
        if not isinstance(chunk, dict):
            self._error = f"the stream carries something that is no chunk: {_shown(event.data)}"
        elif chunk.get("error") or chunk.get("object") == "error" or event.kind == b"error":
            self._error = f"error inside the stream: {message(chunk)}"
        else:
            told = self._counted
            if chunk.get("usage") is not None and (usage := _usage(chunk["usage"])) is not None:
                self._fields["usage"], told = usage, usage["completion_tokens"]
            for choice in _list(chunk.get("choices")):
                if isinstance(choice, dict) and choice.get("index", 0) == 0:
                    # Half a character is held back: its tokens come with the next chunk that carries something.
                    if _take_choice(self._fields, self._text, choice, event, told - self._counted):
                        self._counted = told
                    break

    def fail(self, error: str) -> None:
        """Say that the stream failed, unless it has told an error of its own before."""
        self._error = self._error or error

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
    if fields["usage"]["completion_tokens"] < 1:
        return "the server says that it used no output token, though some came"
    return None


def _take_choice(
    result: dict[str, Any], words: list[str], choice: dict[str, Any], event: Event, counted_tokens: int
) -> bool:
    """Take a choice's content; return whether it carried any."""
    if choice.get("finish_reason"):
        result["finish_reason"] = str(choice["finish_reason"])
    text, ids, carries = _content(choice)
    if not carries:
        return False
    if result["t_first_ns"] is None:
        result["t_first_ns"] = event.t_ns
        result["first_shared_read"] = event.followed
        result["first_logprobs"] = _logprobs(choice)
    result["t_last_ns"] = event.t_ns
    result["chunk_ns"].append(event.t_ns - result["t_first_ns"])
    result["chunk_tokens"].append(len(ids) or max(counted_tokens, 1))
    result["output_token_ids"].extend(ids)
    words.append(text)
    return True


def _content(choice: dict[str, Any]) -> tuple[str, list[int], bool]:
    """Return (text, token ids, whether the chunk carries anything of the answer)."""
    delta = choice.get("delta")
    source = delta if isinstance(delta, dict) else choice
    text = "".join(word for key in WORDS if isinstance(word := source.get(key), str))
    ids = [i for i in _list(choice.get("token_ids")) if _countable(i)] if "token_ids" in choice else []
    if not ids and choice.get("logprobs"):
        # With return_tokens_as_token_ids vLLM names the tokens "token_id:123" in the log-probabilities.
        named = [
            t[9:]
            for t in _list(_dict(choice.get("logprobs")).get("tokens"))
            if isinstance(t, str) and t.startswith("token_id:")
        ]
        ids = [int(n) for n in named if n.isascii() and n.isdecimal() and len(n) <= DIGITS_MAX]
    return text, ids, bool(text or ids or source.get("tool_calls"))


def _logprobs(choice: dict[str, Any]) -> dict[str, float] | None:
    first = _dict(_first(_dict(choice.get("logprobs")).get("top_logprobs")))
    numbers = {str(k): v for k, v in first.items() if type(v) is float or _countable(v)}
    return {k: float(v) for k, v in numbers.items() if math.isfinite(v)} or None


def _countable(value: object) -> TypeGuard[int]:
    """Return whether the value is a whole number that every reader of JSON gives back as it is."""
    return type(value) is int and abs(value) < 10**DIGITS_MAX


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _first(value: object) -> object:
    return next(iter(_list(value)), None)


def _usage(usage: object) -> dict[str, int] | None:
    counts = {key: _dict(usage).get(key) for key in ("prompt_tokens", "completion_tokens")}
    whole = {key: count for key, count in counts.items() if _countable(count) and count >= 0}
    return whole if len(whole) == len(counts) else None


def message(value: object) -> str:
    """Return what an answer in JSON says of an error, however it is wrapped."""
    error = value.get("error", value) if isinstance(value, dict) else value
    return str(error.get("message", error)) if isinstance(error, dict) else str(error)
