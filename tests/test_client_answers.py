"""Where the client sees the end of an answer, and which bytes it takes for no answer at all."""

from __future__ import annotations

import json
import socket
import threading
import time

import pytest

from tests import scripted_server
from tests.scripted_server import END, Json, Script, event, orders, prompt, send, text
from workloads import client

server = scripted_server.server  # the fixture, which tests take by its name


def test_a_server_that_keeps_the_connection_open_does_not_keep_the_answer(server: Script) -> None:
    server.chunked = True
    server.steps = [text("a"), text("b", "length"), *END]
    began_s = time.monotonic()
    assert send(server, deadline_s=8.0)[0]["status"] == "ok"
    assert time.monotonic() - began_s < 6.0


@pytest.mark.parametrize("ending", ["no last chunk", "no end of the framing, then a reset"])
def test_an_answer_that_said_its_end_is_whole_however_the_connection_ends(server: Script, ending: str) -> None:
    server.chunked = ending == "no last chunk"
    server.steps = [text("a"), text("b", "length"), *END, 5.0 if server.chunked else "reset"]
    began_s = time.monotonic()
    assert send(server, deadline_s=4.0)[0]["status"] == "ok"
    assert time.monotonic() - began_s < 3.0  # and nobody waits for the deadline


def raw(*parts: bytes) -> Json:
    """The record of a request that is answered by these bytes, a pause between each, on a connection left open."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        leaving = threading.Event()

        def reply() -> None:
            peer, _ = listener.accept()
            with peer:
                peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                peer.recv(1 << 16)
                for part in parts:
                    peer.sendall(part)
                    time.sleep(0.02)
                leaving.wait(8.0)

        thread = threading.Thread(target=reply)
        thread.start()
        began_s = time.monotonic()
        (record,) = client.run_wave(f"http://127.0.0.1:{listener.getsockname()[1]}", "m", orders(1), 6.0)
        assert time.monotonic() - began_s < 5.0
        leaving.set()
        thread.join()
    return record


def test_trailers_and_an_end_in_two_pieces_do_not_cost_the_deadline() -> None:
    for end in ([b"0\r\nX: y\r\n\r\n"], [b"0\r\n", b"\r\n"]):
        body = b"".join(map(event, (text("a"), text("b", "length"), END[0])))
        done = event("[DONE]")[:-2]  # without its blank line, so that only the framing tells of the end
        parts = [b"%x\r\n%b\r\n" % (len(body + done), body + done), *end]
        record = raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", *parts)
        assert record["status"] == "ok", record["error"]


def test_thousands_of_interim_answers_are_no_answer() -> None:
    record = raw(b"HTTP/1.1 100 Continue\r\n\r\n" * 3000)
    assert record["status"] == "failed"
    assert "head is longer" in record["error"]


def test_an_error_document_instead_of_a_stream_keeps_its_message() -> None:
    body = b'{"error": {"message": "model is loading"}}'
    record = raw(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    assert (record["status"], record["error"]) == ("failed", "no stream of events: model is loading")


def test_an_error_that_holds_half_a_character_pair_is_a_record_all_the_same() -> None:
    body = b'{"error": {"message": "bad \\ud800"}}'
    record = raw(b"HTTP/1.1 400 No\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    assert record["error"].startswith("HTTP 400: ")
    json.dumps(record).encode()


def test_an_answer_before_the_request_was_sent_is_none(server: Script) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)

        def reply() -> None:
            peer, _ = listener.accept()
            with peer:
                stream = b"".join(map(event, (text("a"), text("b", "length"), *END)))
                peer.sendall(b"HTTP/1.1 200 OK\r\n\r\n" + stream)
                time.sleep(0.3)

        thread = threading.Thread(target=reply)
        thread.start()
        big = [client.Order("r", prompt(0, 2_000_000), 2, {})]
        (record,) = client.run_wave(f"http://127.0.0.1:{listener.getsockname()[1]}", "m", big, 10.0)
        thread.join()
    assert record["status"] == "failed"


@pytest.mark.parametrize("answer", [b"SSH-2.0-x\r\n", b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n"])
def test_a_server_of_another_kind(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def reply() -> None:
            peer, _ = listener.accept()
            with peer:
                peer.sendall(answer)
                peer.recv(1 << 16)

        thread = threading.Thread(target=reply)
        thread.start()
        (record,) = client.run_wave(f"http://127.0.0.1:{listener.getsockname()[1]}", "m", orders(1), 5.0)
        thread.join()
    assert record["status"] == "failed"
    assert "the answer is" in record["error"]
