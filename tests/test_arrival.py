"""When requests are sent: a wave at once, a closed loop one per user at a time, an open loop by the clock."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine

import pytest

from workloads import arrival

Sent = list[tuple[int, int, int]]  # order, intended, sent


def recording(sent: Sent, answer_s: float = 0.0) -> Callable[[int, int], Coroutine[None, None, None]]:
    async def send(order: int, t_intended_ns: int) -> None:
        sent.append((order, t_intended_ns, time.monotonic_ns()))
        await asyncio.sleep(answer_s)

    return send


def test_a_wave_has_one_intended_time() -> None:
    sent: Sent = []
    asyncio.run(arrival.wave(recording(sent), range(5)))
    assert [order for order, _, _ in sent] == list(range(5))
    assert len({intended for _, intended, _ in sent}) == 1


def test_a_closed_loop_keeps_as_many_in_flight_as_it_has_users() -> None:
    flying, most, done = 0, 0, []

    async def send(order: int, _t_intended_ns: int) -> None:
        nonlocal flying, most
        flying += 1
        most = max(most, flying)
        await asyncio.sleep(0.001)
        flying -= 1
        done.append(order)

    asyncio.run(arrival.closed_loop(send, range(7), users=3))
    assert sorted(done) == list(range(7))
    assert most == 3


def test_a_closed_loop_asks_for_no_order_before_its_turn() -> None:
    asked: list[int] = []

    def orders() -> object:
        for i in range(4):
            asked.append(i)
            yield i

    seen: list[int] = []

    async def send(order: int, _t_intended_ns: int) -> None:
        seen.append(len(asked))
        await asyncio.sleep(0)

    asyncio.run(arrival.closed_loop(send, orders(), users=1))  # type: ignore[arg-type]
    assert seen == [1, 2, 3, 4]


def test_an_open_loop_does_not_wait_for_answers() -> None:
    sent: Sent = []

    async def whole() -> int:
        start_ns = time.monotonic_ns()
        await arrival.open_loop(recording(sent, answer_s=0.3), [(0.02 * i, i) for i in range(5)], start_ns)
        return start_ns

    start_ns = asyncio.run(whole())
    assert [(order, intended - start_ns) for order, intended, _ in sent] == [(i, 20_000_000 * i) for i in range(5)]
    # Nobody is early; and the last went out long before the first answer came.
    assert all(t_ns >= intended for _, intended, t_ns in sent)
    assert sent[-1][2] - start_ns < 300_000_000


def test_an_order_whose_time_has_passed_keeps_its_intended_time() -> None:
    sent: Sent = []
    start_ns = time.monotonic_ns() - 10**9
    asyncio.run(arrival.open_loop(recording(sent), [(0.5, 1)], start_ns))
    assert sent[0][1] == start_ns + 500_000_000
    assert sent[0][2] - sent[0][1] >= 500_000_000


def test_sessions_think_between_their_turns_and_keep_their_order() -> None:
    sent: Sent = []
    users = [[(0.0, 10), (0.03, 11)], [(0.01, 20), (0.0, 21)]]
    asyncio.run(arrival.sessions(recording(sent, answer_s=0.02), users))
    at = {order: t_ns for order, _, t_ns in sent}
    assert len(at) == 4
    assert at[11] - at[10] >= 49_000_000  # the answer, then the thinking
    assert at[21] - at[20] >= 19_000_000
    assert all(t_ns >= intended for _, intended, t_ns in sent)


def test_a_fault_of_ours_is_not_swallowed() -> None:
    async def send(_order: int, _t_intended_ns: int) -> None:
        raise RuntimeError("ours")

    for whole in (
        arrival.wave(send, [1]),
        arrival.closed_loop(send, [1], 1),
        arrival.open_loop(send, [(0.0, 1)], 0),
        arrival.sessions(send, [[(0.0, 1)]]),
    ):
        with pytest.raises(ExceptionGroup, match="unhandled errors"):
            asyncio.run(whole)
