"""A server whose log is the truth: it streams tokens on a fixed beat and writes down when it really sent each.

`python -m workloads.timing_server --port P --log FILE` speaks as much of the OpenAI protocol as a load generator needs
(`/v1/completions`, `/v1/chat/completions`, `/v1/models`, `/health`), and computes nothing. It exists to measure
clients. One thread, one epoll: a token costs it some twenty microseconds, so that it does not distort what it times.

Each finished request is one line of the log: `number` (from 0), `id` (X-Request-Id, or null), `prompt_tokens`,
`t_received_ns` (the kernel's receive time of the request's last segment) and `t_sent_ns` (one per token, taken just
before the call that sends it); all are CLOCK_REALTIME. The first token's text is the request's number, so that an
answer can be paired with its line whatever the client keeps.
"""

from __future__ import annotations

import argparse
import contextlib
import heapq
import json
import select
import signal
import socket
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from workloads import kernel_time

Json = dict[str, Any]
MODEL = "timing"
READ_BYTES = 1 << 18


@dataclass
class Beat:
    """When tokens are sent: `first_s` after the request has come in, then every `gap_s`."""

    first_s: float
    gap_s: float
    tokens: int  # where the request does not say


@dataclass
class _Stream:
    """One answer on its way."""

    number: int
    request_id: str | None
    prompt_tokens: int
    tokens: int
    chat: bool
    usage: bool
    t_received_ns: int
    t_sent_ns: list[int] = field(default_factory=list)


@dataclass
class _Connection:
    sock: socket.socket
    incoming: bytearray = field(default_factory=bytearray)
    needed: int = 0  # bytes of the whole request, once its head has been read
    outgoing: bytearray = field(default_factory=bytearray)
    stream: _Stream | None = None
    closing: bool = False


class Server:
    """The loop. `serve` runs until `stop` is set by a signal."""

    def __init__(self, port: int, beat: Beat, log: TextIO) -> None:
        """Listen on the loopback address. Raises OSError when the port is taken."""
        self._beat = beat
        self._log = log
        self._listener = socket.create_server(("127.0.0.1", port), backlog=4096)
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self._epoll = select.epoll()
        self._epoll.register(self._listener, select.EPOLLIN)
        self._connections: dict[int, _Connection] = {}
        self._due: list[tuple[int, int, _Connection, _Stream]] = []
        self._numbers = 0
        self.stopping = False

    def serve(self) -> None:
        """Answer until told to stop; then close everything."""
        while not self.stopping:
            wait_s = 0.5
            if self._due:
                wait_s = min(max((self._due[0][0] - time.time_ns()) * 1e-9, 0.0), wait_s)
            for handle, event in self._epoll.poll(wait_s):
                if handle == self._listener.fileno():
                    self._accept()
                elif (connection := self._connections.get(handle)) is not None:
                    self._serve(connection, event)
            self._send_due()
        for connection in list(self._connections.values()):
            self._close(connection)
        self._epoll.close()
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                sock, _ = self._listener.accept()
                sock.setblocking(False)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                kernel_time.switch_on(sock)
                self._connections[sock.fileno()] = _Connection(sock)
                self._epoll.register(sock, select.EPOLLIN)

    def _serve(self, connection: _Connection, event: int) -> None:
        if event & select.EPOLLOUT:
            self._flush(connection)
        if not event & (select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR):
            return
        try:
            data, t_ns = kernel_time.read(connection.sock, READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data, t_ns = b"", None
        if not data:
            self._close(connection)
            return
        connection.incoming += data
        if connection.stream is None:
            self._take_request(connection, t_ns or time.time_ns())

    def _take_request(self, connection: _Connection, t_ns: int) -> None:
        if not connection.needed:
            end = connection.incoming.find(b"\r\n\r\n")
            if end < 0:
                return
            length = _header(bytes(connection.incoming[: end + 2]), b"content-length") or b"0"
            if not length.isdigit() or len(bytes(connection.incoming[:end]).split(b" ", 2)) < 3:
                self._close(connection)  # no HTTP: there is nothing to say to it
                return
            connection.needed = end + 4 + int(length)
        if len(connection.incoming) < connection.needed:
            return
        request = bytes(connection.incoming[: connection.needed])
        del connection.incoming[: connection.needed]
        connection.needed = 0
        head, _, body = request.partition(b"\r\n\r\n")
        connection.closing = (_header(head + b"\r\n", b"connection") or b"").lower() == b"close"
        method, path = head.split(b" ", 2)[:2]
        if method == b"POST" and path in (b"/v1/completions", b"/v1/chat/completions"):
            self._begin(connection, path == b"/v1/chat/completions", head, body, t_ns)
        elif path == b"/v1/models":
            self._answer(connection, 200, {"object": "list", "data": [{"id": MODEL, "object": "model"}]})
        elif path in (b"/health", b"/"):
            self._answer(connection, 200, {})
        else:
            self._answer(connection, 404, {"error": {"message": f"no such path: {path.decode('latin-1')}"}})

    def _begin(self, connection: _Connection, chat: bool, head: bytes, body: bytes, t_ns: int) -> None:
        try:
            asked = json.loads(body)
            prompt = asked.get("messages") if chat else asked.get("prompt")
            wanted = asked.get("max_tokens") or asked.get("max_completion_tokens") or self._beat.tokens
            tokens = max(int(wanted), 1)
        except (ValueError, AttributeError, TypeError) as error:
            self._answer(connection, 400, {"error": {"message": f"not a request: {error}"}})
            return
        number, self._numbers = self._numbers, self._numbers + 1
        request_id = _header(head + b"\r\n", b"x-request-id")
        stream = _Stream(
            number=number,
            request_id=request_id.decode("latin-1") if request_id is not None else None,
            prompt_tokens=len(prompt) if isinstance(prompt, list) and not chat else len(str(prompt).split()),
            tokens=tokens,
            chat=chat,
            usage=bool((asked.get("stream_options") or {}).get("include_usage")),
            t_received_ns=t_ns,
        )
        if not asked.get("stream"):
            self._answer(connection, 200, _whole(stream))
            return
        connection.stream = stream
        self._write(
            connection,
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n",
        )
        heapq.heappush(self._due, (t_ns + int(self._beat.first_s * 1e9), number, connection, stream))

    def _send_due(self) -> None:
        gap_ns = int(self._beat.gap_s * 1e9)
        while self._due and self._due[0][0] <= time.time_ns():
            due_ns, number, connection, stream = heapq.heappop(self._due)
            if connection.stream is not stream:
                continue  # the client has gone
            sent = len(stream.t_sent_ns)
            event = _token(stream, sent)
            stream.t_sent_ns.append(time.time_ns())
            self._write(connection, event)
            if sent + 1 < stream.tokens:
                heapq.heappush(self._due, (due_ns + gap_ns, number, connection, stream))
            elif connection.stream is stream:
                self._write(connection, _end(stream))
                self._finish(connection, stream)

    def _finish(self, connection: _Connection, stream: _Stream) -> None:
        line = {
            "number": stream.number,
            "id": stream.request_id,
            "prompt_tokens": stream.prompt_tokens,
            "t_received_ns": stream.t_received_ns,
            "t_sent_ns": stream.t_sent_ns,
        }
        self._log.write(json.dumps(line, separators=(",", ":")) + "\n")
        self._done(connection)

    def _answer(self, connection: _Connection, status: int, value: Json) -> None:
        body = json.dumps(value).encode()
        head = f"HTTP/1.1 {status} -\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        self._write(connection, head.encode() + body)
        self._done(connection)

    def _done(self, connection: _Connection) -> None:
        connection.stream = None
        if connection.closing and not connection.outgoing:
            self._close(connection)
        elif connection.incoming:
            self._take_request(connection, time.time_ns())

    def _write(self, connection: _Connection, data: bytes) -> None:
        if connection.outgoing:
            connection.outgoing += data
            return
        try:
            sent = connection.sock.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._close(connection)
            return
        if sent < len(data):
            connection.outgoing += data[sent:]
            self._epoll.modify(connection.sock, select.EPOLLIN | select.EPOLLOUT)

    def _flush(self, connection: _Connection) -> None:
        data = bytes(connection.outgoing)
        connection.outgoing.clear()
        self._write(connection, data)
        if not connection.outgoing and connection.sock.fileno() >= 0:
            self._epoll.modify(connection.sock, select.EPOLLIN)
            if connection.closing and connection.stream is None:
                self._close(connection)

    def _close(self, connection: _Connection) -> None:
        connection.stream = None
        handle = connection.sock.fileno()
        if self._connections.pop(handle, None) is not None:
            self._epoll.unregister(handle)
            connection.sock.close()


def _header(head: bytes, name: bytes) -> bytes | None:
    """Return the value of a header; `head` ends with a line end."""
    at = head.lower().find(b"\r\n" + name + b":")
    if at < 0:
        return None
    begin = at + len(name) + 3
    return head[begin : head.index(b"\r\n", begin)].strip()


def _chunk(value: Json) -> bytes:
    data = b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n"
    return b"%x\r\n%b\r\n" % (len(data), data)


def _head(stream: _Stream) -> Json:
    kind = "chat.completion.chunk" if stream.chat else "text_completion"
    return {"id": f"cmpl-{stream.number}", "object": kind, "created": 0, "model": MODEL}


def _token(stream: _Stream, index: int) -> bytes:
    text = f"r{stream.number:07d} " if index == 0 else "token "
    reason = "length" if index + 1 == stream.tokens else None
    choice: Json = {"index": 0, "logprobs": None, "finish_reason": reason, "stop_reason": None}
    choice |= {"delta": {"content": text}} if stream.chat else {"text": text}
    return _chunk({**_head(stream), "choices": [choice], "usage": None})


def _usage(stream: _Stream) -> Json:
    total = stream.prompt_tokens + stream.tokens
    return {"prompt_tokens": stream.prompt_tokens, "completion_tokens": stream.tokens, "total_tokens": total}


def _end(stream: _Stream) -> bytes:
    usage = _chunk({**_head(stream), "choices": [], "usage": _usage(stream)}) if stream.usage else b""
    done = b"data: [DONE]\n\n"
    return usage + b"%x\r\n%b\r\n0\r\n\r\n" % (len(done), done)


def _whole(stream: _Stream) -> Json:
    text = f"r{stream.number:07d} " + "token " * (stream.tokens - 1)
    choice: Json = {"index": 0, "finish_reason": "length"}
    choice |= {"message": {"role": "assistant", "content": text}} if stream.chat else {"text": text}
    return {**_head(stream), "choices": [choice], "usage": _usage(stream)}


def main(argv: list[str]) -> int:
    """Serve until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(prog="timing_server", description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--log", type=Path, required=True, help="where each finished request is written, JSONL")
    parser.add_argument("--first-s", type=float, default=0.2)
    parser.add_argument("--gap-s", type=float, default=0.02)
    parser.add_argument("--tokens", type=int, default=100)
    args = parser.parse_args(argv)
    with args.log.open("a", encoding="utf-8") as log:
        try:
            server = Server(args.port, Beat(args.first_s, args.gap_s, args.tokens), log)
        except OSError as error:
            print(f"timing_server: port {args.port}: {error.strerror}", file=sys.stderr)  # noqa: T201
            return 1

        def stop(_number: int, _frame: object) -> None:
            server.stopping = True

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, stop)
        print(f"listening {server.port}", flush=True)  # noqa: T201
        server.serve()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
