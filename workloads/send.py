"""Send a load to any OpenAI-compatible server and record every request; derives nothing.

One process is enough for a thousand users. More of them split the users or, where a load has none, the requests; they
start at one moment, and their records are put together at the end.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import json
import multiprocessing
import os
import shutil
import signal
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from multiprocessing.sharedctypes import Synchronized
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any, TextIO

from pydantic_core import from_json

from scenarios.keeper import PR_SET_PDEATHSIG
from workloads import arrival, client, provenance
from workloads.client import Client, Endpoint, Order, Prepared
from workloads.evidence import write_whole
from workloads.load import read_load
from workloads.plan import Item, Plan, plan

Json = dict[str, Any]

READY_NS = 100_000_000  # for the first requests to be made
WAVE_DEADLINE_S = 24 * 3600.0


class SendError(RuntimeError):
    """One line: why a load could not be sent."""


@dataclass(frozen=True)
class Sending:
    """What is sent where. `out` is a folder that does not exist yet."""

    load: Path
    endpoint: Endpoint
    out: Path
    seed: int
    vocabulary_tokens: int
    max_context_tokens: int | None
    deadline_s: float
    processes: int

    def plan(self) -> Plan:
        """Return the plan, the same in every process. Raises ConfigError."""
        return plan(read_load(self.load), self.seed, self.vocabulary_tokens, self.max_context_tokens)


def send(sending: Sending) -> tuple[int, int, str | None]:
    """Send the load; return (records in `out`/requests.jsonl, failed ones, the first failure).

    Raises ConfigError before anything is sent, SendError when a process of ours failed. What had been recorded by
    then is kept, after an interruption, too.
    """
    sending.plan()
    try:
        sending.out.mkdir(parents=True)
    except OSError as error:
        raise SendError(f"{sending.out}: {error.strerror}: name a folder that is not there yet") from None
    shutil.copyfile(sending.load, sending.out / "load.toml")
    facts = {
        "schema": 1,
        "created_utc": datetime.now(UTC).isoformat(timespec="seconds"),
        "suite": provenance.suite(),
        "url": sending.endpoint.base_url,
        "model": sending.endpoint.model_name,
        "api": "chat" if sending.endpoint.chat else "completions",
        **{k: v for k, v in asdict(sending).items() if k not in ("load", "endpoint", "out")},
    }
    write_whole(sending.out / "send.json", (json.dumps(facts, indent=1) + "\n").encode())
    parts = [sending.out / f"requests-{number}.part" for number in range(sending.processes)]
    try:
        if sending.processes == 1:
            _shard(sending, 0, None, parts[0])
        else:
            _processes(sending, parts)
    finally:
        found = _put_together(parts, sending.out / "requests.jsonl")
    return found


def _processes(sending: Sending, parts: list[Path]) -> None:
    context = multiprocessing.get_context("spawn")
    together = Together(context.Barrier(sending.processes), context.Value("q", 0))
    children = [
        context.Process(target=_child, args=(os.getpid(), sending, number, together, part), daemon=True)
        for number, part in enumerate(parts)
    ]
    try:
        for child in children:
            child.start()
        while any(child.is_alive() for child in children):
            for child in children:
                child.join(0.2)
                if child.exitcode:
                    raise SendError(f"a sending process ended with status {child.exitcode}: its message is above")
    finally:
        for child in children:
            child.terminate()
            child.join()


@dataclass(frozen=True)
class Together:
    """What the processes of one load share, so that they act as one."""

    barrier: Barrier
    start_ns: Synchronized[int]

    def start(self) -> int:
        """Return the moment at which the load starts, the same in every process, once all are ready."""
        if self.barrier.wait(WAVE_DEADLINE_S) == 0:
            self.start_ns.value = time.monotonic_ns() + READY_NS
        self.barrier.wait(WAVE_DEADLINE_S)
        return self.start_ns.value


def _child(parent: int, sending: Sending, number: int, together: Together, part: Path) -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent, too, which ends us in order
    signal.signal(signal.SIGTERM, _interrupt)
    if os.getppid() == parent:  # else it has gone meanwhile, and so do we
        with contextlib.suppress(KeyboardInterrupt):
            _shard(sending, number, together, part)


def _interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


def _shard(sending: Sending, number: int, together: Together | None, part: Path) -> None:
    """Send this process's share of the load; None: it is the only one."""
    with part.open("w", encoding="utf-8") as out:
        sink = _Sink(out)
        share = _Share(sending, number, together)
        client.drive_load(sending.endpoint, sending.deadline_s, sink.take, share.drive)


class _Sink:
    """Writes records as they come, so that a killed run keeps what it had."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def take(self, record: Json) -> None:
        self._out.write(json.dumps(record, ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n")
        self._out.flush()


class _Share:
    """One process's part of a load, driven as its arrival says."""

    def __init__(self, sending: Sending, number: int, together: Together | None) -> None:
        self._sending = sending
        self._number = number
        self._together = together
        self._plan = sending.plan()

    async def drive(self, sender: Client) -> None:
        kind = self._plan.arrival.kind
        start_ns = time.monotonic_ns() + READY_NS if self._together is None else self._together.start()
        await arrival.until(start_ns)
        if kind == "waves":
            await self._waves(sender)
        elif kind == "closed":
            closed = self._plan.arrival.closed
            assert closed is not None  # noqa: S101  # its kind
            users = len(range(self._number, closed.users, self._sending.processes))
            await arrival.closed_loop(sender.send, self._prepared(self._mine()), users)
        elif kind == "sessions":
            await self._sessions(sender)
        else:
            mine = self._mine()
            offsets, items = itertools.tee(mine)
            times = (item.t_offset_s or 0.0 for item in offsets)
            await arrival.open_loop(sender.send, zip(times, self._prepared(items), strict=True), start_ns)

    async def _waves(self, sender: Client) -> None:
        waves = self._plan.arrival.waves
        assert waves is not None  # noqa: S101  # its kind
        mine = {number: list(items) for number, items in itertools.groupby(self._mine(), key=lambda item: item.turn)}
        for number in range(waves.waves):
            # A process without a user of its own waits with the others all the same.
            orders = [client.prepare(self._sending.endpoint, self._order(item)) for item in mine.get(number, ())]
            await sender.connect_ahead(len(orders))
            if self._together is not None:
                # Nothing is under way between waves, so this process may wait for the others.
                self._together.barrier.wait(WAVE_DEADLINE_S)
            await arrival.wave(sender.send, orders)

    async def _sessions(self, sender: Client) -> None:
        users: dict[int, list[Item]] = {}
        for item in self._mine():
            users.setdefault(item.user or 0, []).append(item)

        def turns(items: list[Item]) -> Iterator[tuple[float, Prepared]]:
            for item in items:
                yield item.think_s, client.prepare(self._sending.endpoint, self._order(item))

        await arrival.sessions(sender.send, [turns(items) for items in users.values()])

    def _mine(self) -> Iterator[Item]:
        for item in self._plan:
            if (item.index if item.user is None else item.user) % self._sending.processes == self._number:
                yield item

    def _prepared(self, items: Iterator[Item]) -> Iterator[Prepared]:
        return client.ahead(self._sending.endpoint, map(self._order, items))

    def _order(self, item: Item) -> Order:
        facts: Json = {"index": item.index, "user": item.user, "turn": item.turn, "process": self._number}
        return Order(f"r{item.index}", item.prompt, item.output_tokens, facts)


def _put_together(parts: list[Path], target: Path) -> tuple[int, int, str | None]:
    """Write the parts as one file and remove them; return (lines, failed ones, the first failure).

    A line that was cut off by a kill is left out.
    """
    count, failed, first = 0, 0, None
    scratch = target.with_suffix(".part")
    with scratch.open("wb") as out:
        for part in parts:
            if part.exists():
                with part.open("rb") as lines:
                    for line in lines:
                        if not line.endswith(b"\n"):
                            continue
                        out.write(line)
                        count += 1
                        record = from_json(line)
                        if record["status"] != "ok":
                            failed, first = failed + 1, first or str(record["error"])
    scratch.replace(target)
    for part in parts:
        part.unlink(missing_ok=True)
    return count, failed, first
