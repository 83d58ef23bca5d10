"""As much of HTTP/1.1 as a measured request needs: a request to bytes, and timed reads back to a timed body.

Pure functions over what went over the wire. While an answer streams nothing is decoded: `may_end` only looks whether
it could be over, and `pieces` takes it apart afterwards, each piece with the time of the read that brought it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import SplitResult

HEAD_BYTES_MAX = 1 << 16
_LINE_BYTES_MAX = 1 << 10  # of a chunk's size line, its extensions included


class ProtocolError(ValueError):
    """One line: what of the answer is no HTTP/1.1."""


class Read(NamedTuple):
    """One read from the socket: when it came in (ns, the record's clock) and what it brought."""

    t_ns: int
    data: bytes


@dataclass(frozen=True)
class Head:
    """The head of an answer. `length` is None where the body is chunked or ends with the connection."""

    status: int
    chunked: bool
    length: int | None
    size_bytes: int  # of the head itself


def post(url: SplitResult, path: str, body: bytes, headers: Mapping[str, str]) -> bytes:
    """Return the bytes of a POST of JSON on a connection of its own.

    Raises ProtocolError for a header that would break the request apart.
    """
    fields = {
        "Host": url.netloc.rpartition("@")[2],
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        "Accept": "text/event-stream",
        "Accept-Encoding": "identity",
        "Connection": "close",
        **headers,
    }
    lines = [f"POST {url.path.rstrip('/')}{path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
    if any("\r" in line or "\n" in line for line in lines):
        raise ProtocolError("a line break inside a header of the request")
    return "\r\n".join(lines).encode("latin-1", "replace") + b"\r\n\r\n" + body


def head(data: bytes) -> Head | None:
    """Return the answer's head (the one after any 1xx), None while it is not whole. Raises ProtocolError."""
    begin = 0
    while True:
        start = data[begin : begin + 7]
        if not (start == b"HTTP/1." or b"HTTP/1.".startswith(start)):
            raise ProtocolError(f"the answer is no HTTP/1.1: {data[begin : begin + 40]!r}")
        end = data.find(b"\r\n\r\n", begin)
        if end < 0:
            if len(data) > HEAD_BYTES_MAX:
                raise ProtocolError(f"the answer's head is longer than {HEAD_BYTES_MAX} bytes")
            return None
        first, *rest = data[begin:end].decode("latin-1").split("\r\n")
        words = first.split(" ", 2)
        if len(words) < 2 or len(words[1]) != 3 or not (words[1].isascii() and words[1].isdecimal()):
            raise ProtocolError(f"the answer is no HTTP/1.1: {first[:40]!r}")
        begin = end + 4
        if not words[1].startswith("1"):
            return _head(int(words[1]), rest, begin)


def _head(status: int, lines: list[str], size_bytes: int) -> Head:
    fields = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    encoding = fields.get("content-encoding", "identity")
    if encoding.lower() != "identity":
        raise ProtocolError(f"the answer is encoded as {encoding[:40]!r}, which was not asked for")
    chunked = fields.get("transfer-encoding", "").lower().rpartition(",")[2].strip() == "chunked"
    length = fields.get("content-length")
    if length is not None and not (length.isascii() and length.isdecimal() and len(length) <= 15):
        raise ProtocolError(f"the answer's Content-Length is {length[:40]!r}")
    return Head(status, chunked, None if chunked or length is None else int(length), size_bytes)


class Body:
    """The framing of one answer's body, fed with what follows the head."""

    def __init__(self, found: Head) -> None:
        self.complete = found.length == 0
        self._until_close = not found.chunked and found.length is None
        self._left = found.length  # of the length, or of the present chunk; None: a size line is next
        self._chunked = found.chunked
        self._line = b""
        self._trailer = False

    def feed(self, data: bytes) -> bytes:
        """Return the payload in `data`; what follows the end is dropped. Raises ProtocolError for a broken framing."""
        if self._until_close:
            return data
        if not self._chunked:
            payload = data[: self._left]
            self._left = (self._left or 0) - len(payload)
            self.complete = self._left == 0
            return payload
        if self._left is None and not self._line and not self._trailer:
            # Nearly every read is one whole chunk; the general way below costs several times as much.
            end = data.find(b"\r\n")
            payload = data[end + 2 : -2]
            if payload and data.endswith(b"\r\n") and data[:end].lower() == b"%x" % len(payload):
                return payload
        payloads = []
        while data and not self.complete:
            if self._left is None:
                data = self._size_line(data)
            else:
                taken = data[: self._left]
                data = data[len(taken) :]
                self._left -= len(taken)
                payloads.append(taken)
                if self._left == 0:
                    self._left = None
        return payloads[0] if len(payloads) == 1 else b"".join(payloads)

    def close(self) -> None:
        """Say that the connection has ended: the end of a body without a framing of its own."""
        self.complete = self.complete or self._until_close

    def _size_line(self, data: bytes) -> bytes:
        """Take one line of the framing from `data`: the end of a chunk, a size, or a trailer."""
        line, found, rest = data.partition(b"\n")
        self._line += line
        if not found:
            if len(self._line) > _LINE_BYTES_MAX:
                raise ProtocolError(f"no size of a chunk: {self._line[:20]!r}")
            return b""
        whole, self._line = self._line.rstrip(b"\r"), b""
        if self._trailer:
            self.complete = not whole
        elif whole:  # empty: the end of the chunk before
            digits = whole.partition(b";")[0].strip()
            try:
                size = int(digits, 16) if digits.isalnum() else -1
            except ValueError:
                size = -1
            if size < 0:
                raise ProtocolError(f"no size of a chunk: {whole[:20]!r}")
            self._trailer = size == 0
            self._left = size or None
        return rest


def may_end(found: Head, received_bytes: int, last: bytes) -> bool:
    """Return whether an answer may be over with the read `last`: cheap, and for a look through all reads to confirm.

    A chunked body ends with an empty line, perhaps cut off from what is before it; a stream of events with its mark.
    """
    if b"[DONE]" in last:
        return True
    if found.chunked:
        return last.endswith(b"\r\n\r\n") or (len(last) < 8 and last.endswith(b"\n"))
    return found.length is not None and received_bytes >= found.size_bytes + found.length


def pieces(found: Head, body: Body, reads: Iterable[Read]) -> Iterator[Read]:
    """Yield the pieces of the body, each with the time of its read; then `body.complete` tells whether it is whole.

    Raises ProtocolError for a broken framing.
    """
    skip = found.size_bytes
    for read in reads:
        data = read.data[skip:] if skip else read.data
        skip -= len(read.data) - len(data)
        payload = body.feed(data) if data else b""
        if payload:
            yield Read(read.t_ns, payload)
