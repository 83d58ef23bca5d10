"""One measured request on a connection of its own: when its last byte went out, and every read that came back.

A connection each: a server that drops an idle one cannot fail a request, and nothing waits behind something else.
Nothing is decoded while the answer streams.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import SplitResult

from workloads import http1, kernel_time, sse

READ_BYTES = 1 << 14
ANSWER_BYTES_MAX = 1 << 26  # no answer of a language model is longer: it would only fill the memory
CLOSE_S = 0.05  # what a server gets to close a connection after its answer


@dataclass
class Exchange:
    """What went over the wire. Times of reads are CLOCK_REALTIME ns, `t_sent_ns` is CLOCK_MONOTONIC."""

    reads: list[http1.Read]
    clock: str  # "kernel", or "user" where a read carries no stamp of the kernel
    t_sent_ns: int | None = None
    clock_offset_ns: int = 0
    head: http1.Head | None = None
    closed: bool = False  # by the server
    error: str | None = None
    timed_out: bool = False


@dataclass(frozen=True)
class Address:
    """Where to connect: resolved once, before anything is timed."""

    places: tuple[tuple[socket.AddressFamily, tuple[Any, ...]], ...]  # tried in this order
    host: str
    tls: ssl.SSLContext | None

    @staticmethod
    def of(url: SplitResult) -> Address:
        """Return the address of a URL. Raises OSError when its name cannot be resolved."""
        host, tls = url.hostname or "", url.scheme == "https"
        found = socket.getaddrinfo(host, url.port or (443 if tls else 80), type=socket.SOCK_STREAM)
        context = ssl.create_default_context() if tls else None
        return Address(tuple((family, tuple(sockaddr)) for family, _, _, _, sockaddr in found), host, context)


async def connect(address: Address) -> socket.socket:
    """Return a connected, non-blocking socket that the kernel stamps: of the first place that takes it.

    Raises OSError (ssl.SSLError is one).
    """
    for number, place in enumerate(address.places):
        try:
            return await _connect(address, *place)
        except ConnectionRefusedError:
            if number == len(address.places) - 1:
                raise
    raise OSError(f"{address.host} has no address")


async def _connect(address: Address, family: socket.AddressFamily, sockaddr: tuple[Any, ...]) -> socket.socket:
    loop = asyncio.get_running_loop()
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await loop.sock_connect(sock, sockaddr)
        if address.tls is None:
            kernel_time.switch_on(sock)
            return sock
        sock = address.tls.wrap_socket(sock, server_hostname=address.host, do_handshake_on_connect=False)
        while True:
            try:
                sock.do_handshake()
                return sock
            except ssl.SSLWantReadError:
                await _ready(sock, loop.add_reader, loop.remove_reader)
            except ssl.SSLWantWriteError:
                await _ready(sock, loop.add_writer, loop.remove_writer)
    except BaseException:
        sock.close()
        raise


async def exchange(sock: socket.socket, request: bytes, deadline_s: float) -> Exchange:
    """Send `request` and return what came back until the answer's end, its deadline or a fault. Closes the socket."""
    answer = _Answer(sock, request, deadline_s)
    try:
        return await answer.ended
    finally:
        answer.close()


class _Answer:
    """The callbacks of one exchange."""

    def __init__(self, sock: socket.socket, request: bytes, deadline_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._sock = sock
        self._handle = sock.fileno()
        self._unsent = memoryview(request)
        self._tls = isinstance(sock, ssl.SSLSocket)
        self._received_bytes = 0
        self._begin = b""  # what came before the head was whole
        self._found = Exchange([], "user" if self._tls else "kernel", clock_offset_ns=kernel_time.clock_offset_ns())
        self.ended: asyncio.Future[Exchange] = self._loop.create_future()
        self._timer = self._loop.call_later(deadline_s, self._time_out)
        self._loop.add_reader(self._handle, self._readable)
        self._send()

    def close(self) -> None:
        self._timer.cancel()
        self._loop.remove_reader(self._handle)
        self._loop.remove_writer(self._handle)
        self._sock.close()

    def _time_out(self) -> None:
        self._found.timed_out = True
        self._end("no end within the deadline")

    def _end(self, error: str | None) -> None:
        if not self.ended.done():
            self._found.error = error
            self.ended.set_result(self._found)
            self._loop.remove_reader(self._handle)

    def _send(self) -> None:
        """Send what the socket takes; the call that takes the last byte is when the request was sent.

        The time is read just before that call: it wakes the server, which may have the core by the time it returns.
        """
        t_ns = 0
        try:
            while self._unsent:
                t_ns = time.monotonic_ns()
                self._unsent = self._unsent[self._sock.send(self._unsent) :]
        except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
            self._loop.add_writer(self._handle, self._send)
            return
        except OSError as error:
            # The server may have refused and closed before it read everything: its answer tells why.
            self._loop.remove_writer(self._handle)
            self._found.error = fault(error)
            return
        self._found.t_sent_ns = t_ns
        self._loop.remove_writer(self._handle)

    def _readable(self) -> None:
        try:
            if self._tls:
                data, t_ns = self._sock.recv(READ_BYTES), None
            else:
                data, t_ns = kernel_time.read(self._sock, READ_BYTES)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return
        except OSError as error:
            self._end(fault(error))
            return
        if not data:
            self._found.closed = True
            self._end(self._found.error)
            return
        if t_ns is None:
            t_ns, self._found.clock = time.time_ns(), "user"
        self._found.reads.append(http1.Read(t_ns, data))
        self._received_bytes += len(data)
        if self._received_bytes > ANSWER_BYTES_MAX:
            self._end(f"the answer is longer than {ANSWER_BYTES_MAX} bytes")
            return
        head = self._found.head
        if head is None:
            self._begin += data
            try:
                head = self._found.head = http1.head(self._begin)
            except http1.ProtocolError as error:
                self._end(str(error))
                return
        if head is not None and http1.may_end(head, self._received_bytes, data):
            # The server was asked to close and nearly always does so at once, which saves a look through all reads.
            self._loop.call_later(CLOSE_S, self._end_if_whole, head, len(self._found.reads))
        elif self._tls and self._sock.pending():  # type: ignore[attr-defined]  # an SSLSocket
            self._loop.call_soon(self._readable_again)

    def _readable_again(self) -> None:
        # What the TLS layer holds already makes no socket readable.
        if not self.ended.done():
            self._readable()

    def _end_if_whole(self, head: http1.Head, reads: int) -> None:
        """End an answer that is complete though the server has not closed."""
        if self.ended.done() or len(self._found.reads) != reads:
            return
        body = http1.Body(head)
        with contextlib.suppress(http1.ProtocolError, sse.StreamError):
            pieces = list(http1.pieces(head, body, self._found.reads))
            if body.complete or any(event.data.strip() == sse.DONE for event in sse.events(pieces)):
                self._end(None)


def fault(error: OSError) -> str:
    """Return one line on what the network or TLS did."""
    told = error.strerror or getattr(error, "reason", None) or str(error)
    return f"{type(error).__name__}: {told}"


async def _ready(sock: socket.socket, add: object, remove: object) -> None:
    ready = asyncio.get_running_loop().create_future()
    add(sock.fileno(), lambda: None if ready.done() else ready.set_result(None))  # type: ignore[operator]
    try:
        await ready
    finally:
        remove(sock.fileno())  # type: ignore[operator]
