"""The client against a scripted server: what it records, and that nothing a server does makes it raise or retry."""

from __future__ import annotations

import http.server
import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from workloads import client
from workloads.prompts import PromptSpec

Json = dict[str, Any]
END = [{"choices": [], "usage": {"prompt_tokens": 40, "completion_tokens": 2}}, "[DONE]"]


class Script(http.server.ThreadingHTTPServer):
    """Answers each POST by `steps`: seconds to wait, objects to send, "[DONE]", or "reset"."""

    steps: list[Any]
    status: int = 200
    bodies: list[Json]

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.bodies = []
        self.daemon_threads = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        server = self.server
        assert isinstance(server, Script)
        server.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(server.status)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        for step in server.steps:
            if isinstance(step, float):
                time.sleep(step)
            elif step == "reset":
                return
            else:
                text = step if isinstance(step, str) else json.dumps(step)
                try:
                    self.wfile.write(f"data: {text}\n\n".encode())
                    self.wfile.flush()
                except OSError:
                    return

    def log_message(self, *_args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Script]:
    script = Script()
    threading.Thread(target=script.serve_forever, daemon=True).start()
    yield script
    script.shutdown()
    script.server_close()


def text(word: str, reason: str | None = None) -> Json:
    return {"choices": [{"index": 0, "text": word, "finish_reason": reason}]}


def send(server: Script, count: int = 1, deadline_s: float = 10.0) -> list[Json]:
    orders = [
        client.Order(
            f"r{i}",
            PromptSpec(seed=1, prompt_set=0, prompt_index=i, tokens=40, vocabulary_tokens=1024),
            2,
            {"arm": "a"},
        )
        for i in range(count)
    ]
    return client.run_wave(server.url, "m", orders, deadline_s)


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
    assert (
        body["prompt"]
        == PromptSpec(seed=1, prompt_set=0, prompt_index=0, tokens=40, vocabulary_tokens=1024).token_ids()
    )
    assert (body["max_tokens"], body["temperature"], body["ignore_eos"], body["stream"]) == (2, 0, True, True)
    assert body["stream_options"] == {"include_usage": True}


FAULTS: dict[str, tuple[int, list[Any], str]] = {
    "503": (503, [{"error": "busy"}], "HTTP 503"),
    "reset": (200, [text("a"), "reset"], "broke off"),
    "nothing": (200, ["reset"], "without a single token"),
    "in band": (200, [text("a"), {"error": {"message": "kv load failed"}}, "[DONE]"], "kv load failed"),
    "stall": (200, [text("a"), 30.0], "no end within the deadline of 1 s"),
    "no usage": (200, [text("a", "length"), "[DONE]"], "did not say how many tokens"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_a_failed_record_sent_once(server: Script, name: str) -> None:
    server.status, server.steps, told = FAULTS[name]
    (record,) = send(server, deadline_s=1.0)
    assert record["status"] == "failed"
    assert told in record["error"]
    assert len(server.bodies) == 1  # no hidden retry


def test_a_server_that_is_not_there(server: Script) -> None:
    server.server_close()
    records = client.run_wave(
        "http://127.0.0.1:9",
        "m",
        [client.Order("r", PromptSpec(seed=1, prompt_set=0, prompt_index=0, tokens=4, vocabulary_tokens=9), 1, {})],
        5.0,
    )
    assert records[0]["status"] == "failed"
    assert records[0]["t_sent_ns"] is None


def test_the_clock_offset_is_constant() -> None:
    assert abs(client.clock_offset_ns() - client.clock_offset_ns()) < 5_000_000
