"""Faults of the server and of this machine: a failed record, sent once, or one line that says what is lacking here."""

from __future__ import annotations

import errno
import socket
from typing import Any

import pytest

from tests import scripted_server
from tests.scripted_server import END, Handler, Json, Script, orders, send, text
from workloads import arrival, client

server = scripted_server.server  # the fixture, which tests take by its name

FAULTS: dict[str, tuple[int, list[Any], str]] = {
    "503": (503, [{"error": {"message": "busy"}}], "HTTP 503"),
    "html": (404, [b"<html>no</html>"], "HTTP 404: <html>no</html>"),
    "closed": (200, [text("a"), "close"], "broke off"),
    "reset": (200, [text("a"), 0.1, "reset"], "ConnectionResetError: Connection reset by peer"),
    "nothing": (200, ["close"], "without a single token"),
    "usage alone": (200, END, "without a single token"),
    "in band": (200, [text("a"), {"error": {"message": "kv load failed"}}, "[DONE]"], "kv load failed"),
    "error as a reason": (200, [text("a", "error"), *END], "finished with reason 'error'"),
    "stall": (200, [text("a"), 30.0], "no end within the deadline of 1 s"),
    "no usage": (200, [text("a", "length"), "[DONE]"], "did not say how many tokens"),
    "no end": (200, [text("a", "length"), END[0]], "broke off"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_a_failed_record_sent_once(server: Script, name: str) -> None:
    server.status, server.steps, told = FAULTS[name]
    (record,) = send(server, deadline_s=1.0)
    assert record["status"] == "failed"
    assert told in record["error"]
    assert len(server.bodies) == 1  # no hidden retry


def test_a_server_that_has_thought_better_of_it_is_not_asked_again(server: Script) -> None:
    server.status, server.steps = 503, [{"error": "busy"}]
    (first,) = send(server)
    server.status, server.steps = 200, [text("a", "length"), *END]
    (second,) = send(server)
    assert [first["status"], second["status"]] == ["failed", "ok"]
    assert len(server.bodies) == 2


def test_one_fault_among_many_is_one(server: Script) -> None:
    server.steps = [0.1, text("a"), 0.05, text("b", "length"), *END]
    whole = server.RequestHandlerClass.do_POST  # type: ignore[attr-defined]
    calls = iter(range(8))

    def odd_one_out(handler: Handler) -> None:
        if next(calls) == 3:
            handler.connection.close()
            return
        whole(handler)

    server.RequestHandlerClass = type("Odd", (Handler,), {"do_POST": odd_one_out})
    records = send(server, 8)
    assert sorted(r["status"] for r in records) == ["failed"] + ["ok"] * 7
    assert [r["id"] for r in records] == [f"r{i}" for i in range(8)]


def test_a_server_that_is_not_there() -> None:
    (record,) = client.run_wave("http://127.0.0.1:9", "m", orders(1), 5.0)
    assert record["status"] == "failed"
    assert record["t_sent_ns"] is None
    assert record["clock_offset_ns"] > 10**18
    assert record["error"].count("\n") == 0


def test_this_machines_own_limits_are_not_the_servers_fault(server: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    async def no_more(*_args: object) -> socket.socket:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(client, "connect", no_more)
    with pytest.raises(client.ClientError, match=r"Too many open files.*ulimit -n"):
        send(server, 3)


def test_what_the_sink_raises_ends_the_load(server: Script) -> None:
    server.steps = [text("a"), text("b", "length"), *END]
    endpoint = client.Endpoint(server.url, "m")

    def full(_record: Json) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    async def drive(sender: client.Client) -> None:
        await arrival.closed_loop(sender.send, client.ahead(endpoint, orders(20)), 2)

    with pytest.raises(OSError, match="No space left"):
        client.drive_load(endpoint, 10.0, full, drive)
    assert len(server.bodies) < 20
