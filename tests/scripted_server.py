"""A server that answers each request by a script, and the requests that are sent to it, for tests."""

from __future__ import annotations

import http.server
import json
import socket
import struct
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from workloads import arrival, client
from workloads.prompts import PromptSpec

Json = dict[str, Any]
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
