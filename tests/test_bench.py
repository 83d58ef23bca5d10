"""The bench's table and its bars; the clients themselves run in `make bench`."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from bench.__main__ import LOADS, Load, Row, measure, misses, page
from bench.peers import Usage
from bench.scale import Memory

OURS = Row("kvgate", 1536, (0.1, 0.2, 0.3), (0.0, 0.0, 0.1), 0.05, 100.0)
VLLM = Row("vllm 0.32.0", 1536, (100.0, 200.0, 250.0), None, 0.1, 90.0)
GUIDELLM = Row("guidellm 0.8.1", 1536, (30.0, 60.0, 120.0), None, 0.3, 90.0)
MIDDLE = LOADS[1]


def test_a_client_within_every_bar_misses_none() -> None:
    assert misses(MIDDLE, [OURS, VLLM, GUIDELLM]) == []


MISSES: dict[str, tuple[dict[str, object], str]] = {
    "lost requests": ({"ok": 1535}, "1535 of 1536 requests succeeded"),
    "p50": ({"ttft_ms": (2.6, 2.7, 2.8)}, "TTFT bias p50 is 2.600 ms, 2.5 ms allowed"),
    "early": ({"ttft_ms": (-2.6, 0.0, 0.0)}, "TTFT bias p50 is -2.600 ms"),
    "p99": ({"ttft_ms": (0.1, 0.1, 8.1)}, "TTFT bias p99 is 8.100 ms, 8 ms allowed"),
    "CPU": ({"cpu_s_per_1000_tokens": 0.1}, "more CPU a token than vllm"),
    "NaN": ({"ttft_ms": (float("nan"),) * 3}, "TTFT bias p50 is nan ms"),
}


@pytest.mark.parametrize("name", MISSES)
def test_each_bar_can_be_missed(name: str) -> None:
    change, told = MISSES[name]
    found = misses(MIDDLE, [dataclasses.replace(OURS, **change), VLLM, GUIDELLM])  # type: ignore[arg-type]
    assert any(line.startswith(told) for line in found), found


def test_a_peer_that_is_close_behind_is_told() -> None:
    close = dataclasses.replace(VLLM, ttft_ms=(0.9, 1.0, 1.1))
    assert misses(MIDDLE, [OURS, close, GUIDELLM]) == ["TTFT bias p50 is more than 1/10 of vllm's"]


def test_the_page_shows_every_row_and_every_miss() -> None:
    late = dataclasses.replace(OURS, ttft_ms=(9.0, 9.0, 9.0))
    text = page([(MIDDLE, [late, VLLM])], Memory({10: 10**8, 20: 10**8 + 10}), "openai 1", "make bench")
    assert "| vllm 0.32.0 | 1536 | +100.000 / +200.000 / +250.000 | not reported | 0.1000 | 90.0 |" in text
    assert "Missed: TTFT bias p50 is 9.000 ms, 2.5 ms allowed" in text
    assert "105 MB after 5,000,000" in text


def test_a_client_is_held_against_the_server_that_it_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that is 5 ms late by construction comes out as 5 ms late."""
    from tests.scripted_server import prompt
    from workloads import client, timing_server

    monkeypatch.setattr("bench.__main__.WORK", tmp_path)
    records = []

    def late(url: str, load: Load, work: Path) -> tuple[list[object], Usage]:
        from bench.__main__ import Seen
        from bench.peers import server_number

        orders = [client.Order(f"r{i}", prompt(i), load.requests, {}) for i in range(load.users)]
        records.extend(client.run_wave(url, timing_server.MODEL, orders, 20.0))
        seen: list[object] = []
        for r in records:
            number = server_number(r["text"])
            assert number is not None
            seen.append(Seen(number, (r["t_first_ns"] - r["t_sent_ns"]) * 1e-9 + 0.005, None))
        return seen, Usage(0, 1.0, 2.0)

    row = measure("late", late, Load(4, 5, 0.01, (1.0, 1.0), peers=False))  # type: ignore[arg-type]
    assert row.ok == 4
    assert row.ttft_ms[0] == pytest.approx(5.0, abs=2.0)
    assert row.itl_ms is None
    assert row.cpu_s_per_1000_tokens == pytest.approx(2.0 / 400 * 1000)
    assert not list(tmp_path.iterdir())


def test_memory_is_carried_on_and_held_against_its_bar() -> None:
    flat, leaking = Memory({50_000: 139 * 10**6, 200_000: 140 * 10**6}), Memory({50_000: 10**8, 200_000: 2 * 10**8})
    assert flat.held and flat.lines()[-1] == "Held."
    assert leaking.at_wanted_bytes == pytest.approx(3.4e9) and leaking.lines()[-1] == "Missed."
