"""What the client sends to a server that answers as it should, and what it records of the answers."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from pathlib import Path
from typing import Any

import pytest

from tests import scripted_server
from tests.scripted_server import END, Json, Script, delta, event, orders, prompt, send, send_one, text
from workloads import client, kernel_time

server = scripted_server.server  # the fixture, which tests take by its name

CERTIFICATE = Path(__file__).with_name("data") / "localhost.pem"  # made for these tests, with its key


def test_a_wave_is_sent_at_once_and_timed(server: Script) -> None:
    server.steps = [0.2, text("a"), 0.1, text("b", "length"), *END]
    records = send(server, 4)
    assert [r["id"] for r in records] == ["r0", "r1", "r2", "r3"]
    assert len({r["t_intended_ns"] for r in records}) == 1
    for r in records:
        assert r["status"] == "ok"
        assert r["t_intended_ns"] <= r["t_sent_ns"] < r["t_first_ns"] < r["t_last_ns"]
        # Bounds that no noise can undercut: the server itself waits this long.
        assert r["t_first_ns"] - r["t_sent_ns"] > 0.19e9
        assert r["t_last_ns"] - r["t_first_ns"] > 0.09e9
    assert max(r["t_sent_ns"] for r in records) < min(r["t_first_ns"] for r in records)


def test_the_prompt_goes_as_ids_with_fixed_output(server: Script) -> None:
    server.steps = [text("a", "length"), *END]
    send(server)
    body = server.bodies[0]
    assert body["prompt"] == prompt().token_ids()
    assert (body["max_tokens"], body["temperature"], body["ignore_eos"], body["stream"]) == (2, 0, True, True)
    assert body["stream_options"] == {"include_usage": True}


def test_a_role_is_no_token_and_chat_is_asked_for_with_messages(server: Script) -> None:
    server.steps = [delta(role="assistant", content=""), 0.2, delta(content="x"), delta("stop"), *END]
    record = send_one(server.url, chat=True)
    assert record["status"] == "ok"
    assert record["t_first_ns"] - record["t_sent_ns"] > 0.19e9
    assert server.paths == ["/v1/chat/completions"]
    assert server.bodies[0]["messages"][0]["role"] == "user"
    assert "prompt" not in server.bodies[0]


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content", "tool_calls"])
def test_reasoning_and_tool_calls_are_the_first_token(server: Script, field: str) -> None:
    said: Any = [{"index": 0, "function": {"name": "f"}}] if field == "tool_calls" else "hm"
    server.steps = [delta(**{field: said}), 0.3, delta(content="x"), delta("stop"), *END]
    record = send_one(server.url, chat=True)
    assert record["t_last_ns"] - record["t_first_ns"] > 0.29e9


def test_a_chunk_of_several_tokens_counts_them_where_the_server_counts_along(server: Script) -> None:
    def counted(word: str, tokens: int) -> Json:
        return {**delta(content=word), "usage": {"prompt_tokens": 40, "completion_tokens": tokens}}

    server.steps = [counted("a", 1), 0.05, counted("bcd", 6), delta("stop"), *END[1:]]
    assert send_one(server.url, chat=True)["chunk_tokens"] == [1, 5]


def test_a_first_token_that_shares_its_read_is_marked(server: Script) -> None:
    server.steps = [0.1, [text("a"), text("b", "length")], *END]
    assert send(server)[0]["first_shared_read"] is True
    server.steps = [0.1, text("a"), 0.1, text("b", "length"), *END]
    assert send(server)[0]["first_shared_read"] is False


def test_a_role_before_the_token_in_the_same_read_does_not_move_its_stamp(server: Script) -> None:
    server.steps = [0.1, [delta(role="assistant"), delta(content="a")], 0.1, delta("stop"), *END]
    assert send_one(server.url, chat=True)["first_shared_read"] is False


def test_an_event_is_there_when_its_last_part_is(server: Script) -> None:
    whole = event(text("a"))
    server.steps = [whole[:20], 0.2, whole[20:], 0.1, text("b", "length"), *END]
    record = send(server)[0]
    assert record["status"] == "ok"
    assert record["t_first_ns"] - record["t_sent_ns"] > 0.19e9


def test_a_late_read_does_not_move_what_the_kernel_has_stamped(server: Script) -> None:
    server.steps = [0.1, text("a"), 2.0, text("b", "length"), *END]
    records: list[Json] = []
    endpoint = client.Endpoint(server.url, "m")

    async def drive(sender: client.Client) -> None:
        async def be_busy() -> None:
            await asyncio.sleep(0.05)
            time.sleep(1.0)  # as a busy process does

        await asyncio.gather(sender.send(client.prepare(endpoint, orders(1)[0]), time.monotonic_ns()), be_busy())

    client.drive_load(endpoint, 10.0, records.append, drive)
    assert records[0]["clock"] == "kernel"
    # Read a second late, stamped when it came in.
    assert 0.09e9 < records[0]["t_first_ns"] - records[0]["t_sent_ns"] < 0.9e9


def test_under_tls_the_clock_is_the_users_and_the_record_says_so(
    server: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.steps = [0.1, text("a"), 0.1, text("b", "length"), *END]
    url = server.url.replace("http:", "https:")
    assert "certificate" in send_one(url)["error"].lower()  # nobody vouches for it
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
    record = send_one(url)
    assert (record["status"], record["clock"]) == ("ok", "user")
    assert record["t_first_ns"] - record["t_sent_ns"] > 0.09e9
    assert record["t_last_ns"] - record["t_first_ns"] > 0.09e9


def test_a_host_of_several_addresses_is_reached_at_the_one_that_answers(
    server: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.steps = [text("a"), text("b", "length"), *END]
    here = socket.getaddrinfo("127.0.0.1", server.server_port, type=socket.SOCK_STREAM)
    nobody = socket.getaddrinfo("127.0.0.1", 9, type=socket.SOCK_STREAM)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_more: nobody + here)
    assert send_one(server.url.replace("127.0.0.1", "lab"))["status"] == "ok"


def test_the_clock_offset_is_constant() -> None:
    assert abs(kernel_time.clock_offset_ns() - kernel_time.clock_offset_ns()) < 5_000_000
