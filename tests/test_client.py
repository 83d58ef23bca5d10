"""The client against a scripted server: what it records, and that nothing a server does makes it raise or retry."""

from __future__ import annotations

import asyncio
import errno
import http.server
import json
import socket
import ssl
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from workloads import arrival, client, kernel_time
from workloads.prompts import PromptSpec

Json = dict[str, Any]
CERTIFICATE = Path(__file__).with_name("data") / "localhost.pem"  # made for these tests, with its key
END: list[Any] = [{"choices": [], "usage": {"prompt_tokens": 40, "completion_tokens": 2}}, "[DONE]"]


class Script(http.server.ThreadingHTTPServer):
    """Answers each POST by `steps`: seconds to wait, objects to send as events, bytes to send as they are, or "reset".

    A list of objects goes out in one segment.
    """

    steps: list[Any]
    status: int = 200
    chunked: bool = False
    bodies: list[Json]
    paths: list[str]
    models: list[str] | None = None  # of /v1/models; None: it has none

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.bodies, self.paths = [], []
        self.daemon_threads = True
        self.leaving = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, *_args: object) -> None:
        pass  # a client that hangs up is part of the script


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        served = getattr(self.server, "models", None)
        data = [{"id": name, "object": "model"} for name in served or ()]
        body = json.dumps({"object": "list", "data": data}).encode()
        self.send_response(200 if served else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        server = self.server
        assert isinstance(server, Script)
        server.paths.append(self.path)
        server.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.send_response(server.status)
        self.send_header("Content-Type", "text/event-stream")
        if server.chunked:
            self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.close_connection = not server.chunked  # else it stays open, whatever the client asked for
        for step in server.steps:
            if isinstance(step, float):
                server.leaving.wait(step)
            elif step == "close":
                self.close_connection = True
                return
            elif step == "reset":
                linger = struct.pack("ii", 1, 0)
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                self.connection.close()
                return
            else:
                self._write(step if isinstance(step, bytes) else b"".join(map(event, as_list(step))))
        if server.chunked:
            self.wfile.write(b"0\r\n\r\n")

    def _write(self, data: bytes) -> None:
        if self.server.chunked:  # type: ignore[attr-defined]
            data = b"%x\r\n%b\r\n" % (len(data), data)
        self.wfile.write(data)

    def log_message(self, *_args: object) -> None:
        pass


def as_list(step: Any) -> list[Any]:
    return step if isinstance(step, list) else [step]


def event(step: Any) -> bytes:
    return f"data: {step if isinstance(step, str) else json.dumps(step)}\n\n".encode()


@pytest.fixture
def server() -> Iterator[Script]:
    script = Script()
    threading.Thread(target=script.serve_forever, daemon=True).start()
    yield script
    script.leaving.set()
    script.shutdown()
    script.server_close()


def text(word: str, reason: str | None = None) -> Json:
    return {"choices": [{"index": 0, "text": word, "finish_reason": reason}]}


def delta(reason: str | None = None, **fields: Any) -> Json:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": reason}]}


def prompt(index: int = 0, tokens: int = 40) -> PromptSpec:
    return PromptSpec(seed=1, prompt_set=0, prompt_index=index, tokens=tokens, vocabulary_tokens=1024)


def orders(count: int) -> list[client.Order]:
    return [client.Order(f"r{i}", prompt(i), 2, {"arm": "a"}) for i in range(count)]


def send(server: Script, count: int = 1, deadline_s: float = 10.0) -> list[Json]:
    return client.run_wave(server.url, "m", orders(count), deadline_s)


def send_one(url: str, chat: bool = False, deadline_s: float = 10.0) -> Json:
    """One request through the client as a load sends it."""
    records: list[Json] = []
    endpoint = client.Endpoint(url, "m", chat)

    async def drive(sender: client.Client) -> None:
        await arrival.closed_loop(sender.send, client.ahead(endpoint, orders(1)), 1)

    client.drive_load(endpoint, deadline_s, records.append, drive)
    (record,) = records
    return record


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


def test_a_server_that_keeps_the_connection_open_does_not_keep_the_answer(server: Script) -> None:
    server.chunked = True
    server.steps = [text("a"), text("b", "length"), *END]
    began_s = time.monotonic()
    assert send(server, deadline_s=8.0)[0]["status"] == "ok"
    assert time.monotonic() - began_s < 6.0


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


@pytest.mark.parametrize("ending", ["no last chunk", "no end of the framing, then a reset"])
def test_an_answer_that_said_its_end_is_whole_however_the_connection_ends(server: Script, ending: str) -> None:
    server.chunked = ending == "no last chunk"
    server.steps = [text("a"), text("b", "length"), *END, 5.0 if server.chunked else "reset"]
    began_s = time.monotonic()
    assert send(server, deadline_s=4.0)[0]["status"] == "ok"
    assert time.monotonic() - began_s < 3.0  # and nobody waits for the deadline


def test_trailers_and_an_end_in_two_pieces_do_not_cost_the_deadline() -> None:
    for end in ([b"0\r\nX: y\r\n\r\n"], [b"0\r\n", b"\r\n"]):
        body = b"".join(map(event, (text("a"), text("b", "length"), END[0])))
        done = event("[DONE]")[:-2]  # without its blank line, so that only the framing tells of the end
        parts = [b"%x\r\n%b\r\n" % (len(body + done), body + done), *end]
        record = raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", *parts)
        assert record["status"] == "ok", record["error"]


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


def test_a_host_of_several_addresses_is_reached_at_the_one_that_answers(
    server: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.steps = [text("a"), text("b", "length"), *END]
    here = socket.getaddrinfo("127.0.0.1", server.server_port, type=socket.SOCK_STREAM)
    nobody = socket.getaddrinfo("127.0.0.1", 9, type=socket.SOCK_STREAM)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_more: nobody + here)
    assert send_one(server.url.replace("127.0.0.1", "lab"))["status"] == "ok"


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


def test_the_clock_offset_is_constant() -> None:
    assert abs(kernel_time.clock_offset_ns() - kernel_time.clock_offset_ns()) < 5_000_000
