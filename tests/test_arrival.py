"""When requests are sent: a wave at once, a closed loop one per user at a time."""

from __future__ import annotations

import asyncio

from workloads import arrival


def test_a_closed_loop_keeps_as_many_in_flight_as_it_has_users() -> None:
    flying, most = 0, 0

    async def send(order: int, _t_intended_ns: int) -> int:
        nonlocal flying, most
        flying += 1
        most = max(most, flying)
        await asyncio.sleep(0.001)
        flying -= 1
        return order * 10

    assert asyncio.run(arrival.closed_loop(send, range(7), users=3)) == [i * 10 for i in range(7)]
    assert most == 3


def test_a_wave_has_one_intended_time() -> None:
    async def send(_order: int, t_intended_ns: int) -> int:
        return t_intended_ns

    assert len(set(asyncio.run(arrival.wave(send, range(5))))) == 1
