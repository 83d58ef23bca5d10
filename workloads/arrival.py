"""When each request is meant to be sent."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

O = TypeVar("O")  # noqa: E741  # an order
R = TypeVar("R")

# Called with the order and its intended time (CLOCK_MONOTONIC, ns); returns the record of it.
Send = Callable[[O, int], Awaitable[R]]


async def wave(send: Send[O, R], orders: Sequence[O]) -> list[R]:
    """Send all orders at once, the burst of a cold recovery; return their records in the order of `orders`."""
    t_intended_ns = time.monotonic_ns()
    return list(await asyncio.gather(*(send(order, t_intended_ns) for order in orders)))


async def closed_loop(send: Send[O, R], orders: Sequence[O], users: int) -> list[R]:
    """Let `users` users work through the orders, each sending its next one when its last has ended.

    Returns the records in the order of `orders`. A request is intended for the moment in which its user is free.
    """
    records: dict[int, R] = {}
    queue = iter(enumerate(orders))

    async def user() -> None:
        for index, order in queue:
            records[index] = await send(order, time.monotonic_ns())

    await asyncio.gather(*(user() for _ in range(users)))
    return [records[i] for i in range(len(orders))]
