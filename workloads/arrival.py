"""When each request is meant to be sent.

Each driver takes `send`, which is called with an order and its intended time (CLOCK_MONOTONIC, ns) and returns when
the answer has ended. Orders may be made lazily: none is asked for before its turn.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, TypeVar

O = TypeVar("O")  # noqa: E741  # an order

Send = Callable[[O, int], Coroutine[Any, Any, None]]

# Timers of the event loop are rounded up to a millisecond; what is left is waited for awake.
_TIMER_NS = 1_500_000


async def wave(send: Send[O], orders: Sequence[O]) -> None:
    """Send all orders at once, the burst of a cold recovery; return when all have ended."""
    t_intended_ns = time.monotonic_ns()
    async with asyncio.TaskGroup() as tasks:
        for order in orders:
            tasks.create_task(send(order, t_intended_ns))


async def closed_loop(send: Send[O], orders: Iterable[O], users: int) -> None:
    """Let `users` users work through the orders, each sending its next one when its last has ended.

    A request is intended for the moment in which its user is free.
    """
    queue = iter(orders)

    async def user() -> None:
        for order in queue:
            await send(order, time.monotonic_ns())

    async with asyncio.TaskGroup() as tasks:
        for _ in range(users):
            tasks.create_task(user())


async def open_loop(send: Send[O], orders: Iterable[tuple[float, O]], t_start_ns: int) -> None:
    """Send each order at its offset (s) after `t_start_ns`, however many are still under way.

    Offsets must not fall. An order whose time has passed is sent at once: its lag is in its record.
    """
    async with asyncio.TaskGroup() as tasks:
        for offset_s, order in orders:
            t_intended_ns = t_start_ns + round(offset_s * 1e9)
            await until(t_intended_ns)
            tasks.create_task(send(order, t_intended_ns))


async def sessions(send: Send[O], users: Sequence[Iterable[tuple[float, O]]]) -> None:
    """Let each user take its turns in order, thinking (s) before each; the first turn's thinking spreads the users.

    A turn is intended for the moment in which its thinking ends.
    """

    async def user(turns: Iterable[tuple[float, O]]) -> None:
        for think_s, order in turns:
            t_intended_ns = time.monotonic_ns() + round(think_s * 1e9)
            await until(t_intended_ns)
            await send(order, t_intended_ns)

    async with asyncio.TaskGroup() as tasks:
        for turns in users:
            tasks.create_task(user(turns))


async def until(t_ns: int) -> None:
    """Return at `t_ns` (CLOCK_MONOTONIC), or at once where it has passed."""
    while (left_ns := t_ns - time.monotonic_ns()) > 0:
        await asyncio.sleep((left_ns - _TIMER_NS) * 1e-9 if left_ns > _TIMER_NS else 0)
