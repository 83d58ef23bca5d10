"""The streaming client: sends requests and records timestamps and tokens; derives nothing.

A request's send time is taken when its last byte has gone to the socket, so connecting is no part of TTFT. A read
carries the kernel's receive time (TLS: the user's, and the record says so) and is decoded after its stream has ended,
a few events at a time, so that decoding one answer does not keep another waiting. Why not the official client:
docs/bench.md.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import errno
import gc
import json
import resource
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import SplitResult, urlsplit

from pydantic_core import from_json

from workloads import arrival, http1, kernel_time, sse
from workloads.exchange import Address, Exchange, connect, exchange, fault
from workloads.prompts import Prompt

Json = dict[str, Any]
Sink = Callable[[Json], None]

# What this machine lacks, not the server: open files, ports, memory for a connection.
OURS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL})
HINT = "raise the limit of open files (ulimit -n), use fewer users, or mend the name"
TEXT_BYTES_MAX = 10_000
EVENTS_A_STEP = 16  # a third of a millisecond of decoding
EXCHANGES_A_COLLECTION = 5000
BACKLOG_BYTES_MAX = 1 << 25  # answers not yet decoded; beyond it nothing is started, and what is late shows its lag
EXCHANGE_BYTES, READ_BYTES = 1000, 200  # what keeping one takes besides its data, roughly
AHEAD = 16  # requests made ready before their turn
LOGPROBS = 5  # most that the API gives: how near the runners-up are tells rounding from wrong KV


class ClientError(RuntimeError):
    """One line: why this machine could not send what it had to; no fault of the server."""


@dataclass(frozen=True)
class Order:
    """One request to be sent, and the facts of the plan that its record repeats."""

    id: str
    prompt: Prompt
    output_tokens: int
    facts: Json


@dataclass(frozen=True)
class Endpoint:
    """An OpenAI-compatible server, the model that it is asked for, and which of the two APIs is used."""

    base_url: str  # scheme://host:port, without /v1
    model_name: str
    chat: bool = False
    api_key: str | None = None

    @property
    def url(self) -> SplitResult:
        """Return the base URL taken apart."""
        return urlsplit(self.base_url)


@dataclass(frozen=True)
class Prepared:
    """An order as the bytes that will be sent."""

    order: Order
    request: bytes


def prepare(endpoint: Endpoint, order: Order) -> Prepared:
    """Return the order's request. Completions carry the prompt as token ids, so that its length is exact."""
    asked: Json = {
        "model": endpoint.model_name,
        "max_tokens": order.output_tokens,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
        "ignore_eos": True,
    }
    if endpoint.chat:
        # A chat template adds tokens of its own, so the prompt's length is known from usage alone.
        words = " ".join(f"w{i}" for i in order.prompt.token_ids())
        asked["messages"] = [{"role": "user", "content": words}]
        # Chat answers name no token ids, so the server must say how many tokens a chunk carries.
        asked["stream_options"]["continuous_usage_stats"] = True
    else:
        asked |= {"prompt": order.prompt.token_ids(), "logprobs": LOGPROBS, "return_tokens_as_token_ids": True}
    headers = {"X-Request-Id": order.id}
    if endpoint.api_key:
        headers["Authorization"] = f"Bearer {endpoint.api_key}"
    path = "/v1/chat/completions" if endpoint.chat else "/v1/completions"
    body = json.dumps(asked, separators=(",", ":")).encode()
    return Prepared(order, http1.post(endpoint.url, path, body, headers))


def run_wave(base_url: str, model_name: str, orders: Sequence[Order], deadline_s: float) -> list[Json]:
    """Send all orders at once and return a record each (docs/evidence.md) in their order, failed ones included.

    Never raises for what a server does: that is in the records.
    """
    return run_waves(base_url, model_name, [orders], deadline_s)


def run_waves(base_url: str, model_name: str, waves: Sequence[Sequence[Order]], deadline_s: float) -> list[Json]:
    """Send waves one after the other; return the records of all. Ids must differ over all waves."""
    endpoint = Endpoint(base_url, model_name)
    # Prompts are made before the clock runs.
    prepared = [[prepare(endpoint, order) for order in orders] for orders in waves]
    records: dict[str, Json] = {}

    async def drive(client: Client) -> None:
        for wave in prepared:
            await client.connect_ahead(len(wave))
            await arrival.wave(client.send, wave)
            await client.settled()

    drive_load(endpoint, deadline_s, lambda record: records.__setitem__(record["id"], record), drive)
    return [records[order.id] for orders in waves for order in orders]


def drive_load(endpoint: Endpoint, deadline_s: float, sink: Sink, drive: Callable[[Client], Any]) -> None:
    """Run the coroutine that `drive` makes from a client; `sink` has got every record when this returns.

    Raises ClientError where this machine, not the server, is at fault, and what `sink` raises; the load ends with it.
    """

    async def whole() -> None:
        client = Client(endpoint, deadline_s, sink)
        try:
            await drive(client)
            await client.settled()
        except BaseExceptionGroup as group:
            # The requests under way are told by their records; what ended the load is one thing.
            raise (client.fault or group.exceptions[0]) from None
        finally:
            client.close()

    _allow_open_files()

    # No collection of garbage falls into the measurement by itself; the client asks for it now and then.
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        asyncio.run(whole())
    finally:
        gc.enable()
        gc.unfreeze()


def _allow_open_files() -> None:
    """Raise the soft limit on open files to the hard one: a connection each is what a thousand users need."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class Client:
    """Sends prepared requests and gives their records to `sink`, in the order in which they were decoded."""

    def __init__(self, endpoint: Endpoint, deadline_s: float, sink: Sink) -> None:
        self._endpoint = endpoint
        self._deadline_s = deadline_s
        self._sink = sink
        self._address: Address | None = None
        self._connected: collections.deque[socket.socket] = collections.deque()
        self._waiting: collections.deque[asyncio.Future[None]] = collections.deque()
        self._undecoded: collections.deque[tuple[int, Iterator[Json | None]]] = collections.deque()
        self._undecoded_bytes = 0
        self._pumping = False
        self._settled = asyncio.Event()
        self._settled.set()
        self._exchanges = 0
        self.fault: BaseException | None = None  # what ended the load

    async def connect_ahead(self, count: int) -> None:
        """Open connections for the next `count` requests. What fails now will fail, and be told, when it is sent."""
        for _ in range(count):
            with contextlib.suppress(OSError):
                self._connected.append(await self._connect())

    async def send(self, prepared: Prepared, t_intended_ns: int) -> None:
        """Send one request; return when its answer has ended. Its record follows once it is decoded.

        Raises ClientError where this machine is at fault, and whatever ended the load.
        """
        if self.fault is not None:
            raise self.fault
        end_s = asyncio.get_running_loop().time() + self._deadline_s
        try:
            sock = self._connected.popleft() if self._connected else await self._connect()
        except TimeoutError:
            found = _unconnected(f"no connection within the deadline of {self._deadline_s:g} s")
        except OSError as error:
            if error.errno in OURS or isinstance(error, socket.gaierror):
                self._end(
                    ClientError(f"the client cannot connect to {self._endpoint.base_url}: {fault(error)}: {HINT}")
                )
                raise self.fault from None  # type: ignore[misc]  # just set
            found = _unconnected(fault(error))
        else:
            try:
                await self._turn()
            except BaseException:
                sock.close()
                raise
            left_s = max(end_s - asyncio.get_running_loop().time(), 0.001)
            found = await exchange(sock, prepared.request, left_s)
            if found.timed_out:
                found.error = f"no end within the deadline of {self._deadline_s:g} s"
        kept_bytes = EXCHANGE_BYTES + sum(READ_BYTES + len(read.data) for read in found.reads)
        self._undecoded.append((kept_bytes, _decode(prepared.order, t_intended_ns, found)))
        self._undecoded_bytes += kept_bytes
        self._settled.clear()
        self._start_pump()

    async def settled(self) -> None:
        """Return when every answer has been decoded and its record given away. Raises what ended the load."""
        await self._settled.wait()
        if self.fault is not None:
            raise self.fault

    def _end(self, fault: BaseException) -> None:
        """End the load: nothing more is sent or decoded, and whoever waits is told."""
        self.fault = self.fault or fault
        self._undecoded.clear()
        self._undecoded_bytes = 0
        while self._waiting:
            if not (turn := self._waiting.popleft()).done():
                turn.set_exception(self.fault)
                turn.exception()  # taken note of, should its waiter be gone
        self._settled.set()

    def close(self) -> None:
        """Close the connections that were not used."""
        while self._connected:
            self._connected.popleft().close()

    async def _connect(self) -> socket.socket:
        if self._address is None:
            self._address = Address.of(self._endpoint.url)
        await self._turn()
        async with asyncio.timeout(self._deadline_s):
            return await connect(self._address)

    async def _turn(self) -> None:
        """Wait for the next round of the loop that has nothing else to start.

        Hundreds of users that are free at the same moment would otherwise keep all sockets waiting meanwhile, and
        what is read too late may be stamped with the next token's time.
        """
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        self._start_pump()
        await turn

    def _start_pump(self) -> None:
        if not self._pumping:
            self._pumping = True
            asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        """Do one small piece of work, then let the sockets have their turn.

        Starting goes before decoding, until a load that never pauses has filled the backlog.
        """
        if self._waiting and self._undecoded_bytes < BACKLOG_BYTES_MAX:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
        elif self._undecoded:
            try:
                kept_bytes, decoding = self._undecoded[0]
                record = next(decoding)
                if record is not None:
                    self._undecoded.popleft()
                    self._undecoded_bytes -= kept_bytes
                    self._sink(record)
                    self._exchanges += 1
            except BaseException as error:  # noqa: BLE001  # a callback's exception would be logged, and all would wait
                self._end(error)
        if self._exchanges >= EXCHANGES_A_COLLECTION:
            self._exchanges = 0
            gc.collect()
        if not self._undecoded:
            self._settled.set()
        self._pumping = bool(self._undecoded or self._waiting)
        if self._pumping:
            asyncio.get_running_loop().call_soon(self._pump)


def ahead(endpoint: Endpoint, orders: Iterable[Order]) -> Iterator[Prepared]:
    """Yield the orders prepared, some before their turn, so that making a long prompt does not delay its sending."""
    source = iter(orders)
    ready: collections.deque[Prepared] = collections.deque()
    filling = False

    def fill() -> None:
        nonlocal filling
        filling = False
        order = next(source, None)
        if order is not None:
            ready.append(prepare(endpoint, order))
            refill()

    def refill() -> None:
        nonlocal filling
        if not filling and len(ready) < AHEAD:
            filling = True
            asyncio.get_running_loop().call_soon(fill)

    while True:
        if not ready:
            order = next(source, None)
            if order is None:
                return
            ready.append(prepare(endpoint, order))
        yield ready.popleft()
        refill()


def _unconnected(error: str) -> Exchange:
    return Exchange([], "kernel", clock_offset_ns=kernel_time.clock_offset_ns(), error=error)


def _decode(order: Order, t_intended_ns: int, found: Exchange) -> Iterator[Json | None]:
    """Yield None after every few events, and at last the record."""
    taking = sse.Outcome()
    error = found.error
    head = found.head
    body = http1.Body(head) if head is not None else None
    try:
        if head is None or body is None:
            error = error or "the connection was closed without an answer"
        elif head.status != 200:
            error = f"HTTP {head.status}: {_message(_text(head, found.reads))}"
        else:
            for number, event in enumerate(sse.events(http1.pieces(head, body, found.reads)), start=1):
                taking.take(event)
                if number % EVENTS_A_STEP == 0:
                    yield None
            if body.complete or taking.ended:
                error = None  # what came after the whole answer is nothing to it
            if not taking.events and error is None and (text := _text(head, found.reads)):
                error = f"no stream of events: {_message(text)}"
    except (http1.ProtocolError, sse.StreamError) as broken:
        error = str(broken)
    outcome = taking.result()
    if error is not None:
        outcome |= {"status": "failed", "error": sse.one_line(error)}
    for stamp in ("t_first_ns", "t_last_ns"):
        if outcome[stamp] is not None:
            outcome[stamp] -= found.clock_offset_ns
    early = found.t_sent_ns is None or (outcome["t_first_ns"] or found.t_sent_ns) < found.t_sent_ns
    if outcome["status"] == "ok" and early:
        outcome |= {"status": "failed", "error": "answered before the whole request was sent"}
    found.reads.clear()
    yield {
        "id": order.id,
        **order.facts,
        "prompt_seed": order.prompt.prompt_seed(),
        "prompt_tokens_expected": order.prompt.tokens,
        "output_tokens_expected": order.output_tokens,
        "t_intended_ns": t_intended_ns,
        "t_sent_ns": found.t_sent_ns,
        "clock": found.clock,
        "clock_offset_ns": found.clock_offset_ns,
        **outcome,
    }


def _text(head: http1.Head, reads: Sequence[http1.Read]) -> bytes:
    """Return the beginning of a body that is no stream. Raises ProtocolError."""
    return b"".join(read.data for read in http1.pieces(head, http1.Body(head), reads))[:TEXT_BYTES_MAX]


def _message(body: bytes) -> str:
    try:
        return sse.message(from_json(body))
    except ValueError:
        return body.decode("utf-8", "replace")
