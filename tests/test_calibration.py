"""The timing server's truth, the client against it, and what the judge makes of both."""

from __future__ import annotations

import itertools
import json
import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gates import validity, verdict
from gates.nodata import NoData
from gates.validity import calibration
from gates.validity.calibration import Bias, bias
from tests.scripted_server import prompt
from tests.synthetic import make_run
from tests.synthetic_truth import Truth, only, put
from workloads import calibrate, client, timing_server
from workloads.evidence import Run, RunDir, read_jsonl

Json = dict[str, Any]


@pytest.fixture
def base_url(tmp_path: Path) -> Iterator[str]:
    with calibrate.timing(tmp_path, "server.jsonl", first_s=0.1, gap_s=0.02, tokens=5) as url:
        yield url


def wave(base_url: str, count: int) -> list[Json]:
    orders = [client.Order(f"r{i}", prompt(i), 5, {}) for i in range(count)]
    return client.run_wave(base_url, timing_server.MODEL, orders, 20.0)


def test_what_the_server_did_lies_between_what_the_client_saw(tmp_path: Path) -> None:
    with calibrate.timing(tmp_path, "server.jsonl", first_s=0.1, gap_s=0.02, tokens=5) as url:
        records = {r["id"]: r for r in wave(url, 16)}
    lines = list(read_jsonl(tmp_path / "server.jsonl"))
    assert {line["id"] for line in lines} == set(records)
    for line in lines:
        record = records[line["id"]]
        assert record["status"] == "ok"
        assert record["usage"] == {"prompt_tokens": 40, "completion_tokens": 5}
        offset_ns = record["clock_offset_ns"]
        # Physics, with what two readings of two clocks differ by: sent, received, answered, seen.
        stamps = [
            record["t_sent_ns"] + offset_ns,
            line["t_received_ns"],
            line["t_sent_ns"][0],
            record["t_first_ns"] + offset_ns,
        ]
        assert all(later - earlier > -100_000 for earlier, later in itertools.pairwise(stamps)), stamps
        assert line["t_sent_ns"][0] - line["t_received_ns"] >= 100_000_000
        assert len(line["t_sent_ns"]) == 5
        assert all(b - a > 0 for a, b in itertools.pairwise(line["t_sent_ns"]))


def test_the_server_ends_with_whoever_started_it(base_url: str) -> None:
    port = int(base_url.rsplit(":", 1)[1])
    with socket.create_connection(("127.0.0.1", port), timeout=5.0):
        pass


def test_the_server_speaks_what_load_generators_ask_for(base_url: str) -> None:
    def ask(path: str, body: Json | None = None) -> Json:
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(urllib.request.Request(base_url + path, data), timeout=5.0) as answer:  # noqa: S310
            found: Json = json.load(answer)
            return found

    assert ask("/v1/models")["data"][0]["id"] == timing_server.MODEL
    whole = ask("/v1/chat/completions", {"messages": [{"role": "user", "content": "a b"}], "max_tokens": 3})
    assert whole["choices"][0]["message"]["content"].startswith("r0000000 ")
    assert whole["usage"]["completion_tokens"] == 3
    for path, body in (("/nothing", None), ("/v1/completions", {"prompt": "x", "max_tokens": "many"})):
        with pytest.raises(urllib.error.HTTPError, match="HTTP Error 40"):
            ask(path, body)


def test_several_requests_go_over_one_connection(base_url: str) -> None:
    port = int(base_url.rsplit(":", 1)[1])
    body = b'{"prompt":"a","stream":true,"max_tokens":2}'
    request = b"POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    with socket.create_connection(("127.0.0.1", port), timeout=5.0) as sock:
        sock.sendall(request + request)
        got = b""
        while got.count(b"[DONE]") < 2:
            got += sock.recv(1 << 16)
    assert got.count(b"HTTP/1.1 200") == 2


def test_a_client_that_hangs_up_does_not_disturb_the_others(base_url: str) -> None:
    port = int(base_url.rsplit(":", 1)[1])
    with socket.create_connection(("127.0.0.1", port), timeout=5.0) as sock:
        sock.sendall(b"POST /v1/completions HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}")
    assert [r["status"] for r in wave(base_url, 3)] == ["ok"] * 3


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = RunDir.create(tmp_path_factory.mktemp("runs"), "g3")
    calibrate.calibrate(run, [2, 8], [prompt(i) for i in range(8)])
    run.write_json("run.json", {"schema": 1})
    return run.path


def test_a_calibration_is_measured_at_every_step(calibrated: Path) -> None:
    for step in (2, 8):
        measured = bias(Run(calibrated), step)
        assert isinstance(measured, Bias)
        assert measured.n >= calibrate.REQUESTS_MIN
        assert measured.clock == "kernel"
        assert 0 <= measured.p50_s <= measured.p99_s


def spoil(folder: Path, name: str, change: Any) -> None:
    file = folder / "calibration" / "c2" / name
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    changed = [line for line in (change(i, line) for i, line in enumerate(lines)) if line is not None]
    file.write_text("".join(json.dumps(line) + "\n" for line in changed))


NO_BIAS: dict[str, tuple[str, Any, str]] = {
    "a failure": ("requests.jsonl", lambda i, r: {**r, "status": "failed", "error": "reset"} if i == 3 else r, "failed: reset"),
    "not in the log": ("server.jsonl", lambda i, r: None if i == 3 else r, "not in the server's log"),
    "too few": ("requests.jsonl", lambda i, r: r if i < 50 else None, "50 requests in the calibration at concurrency 2, 100 needed"),
    "twice": ("requests.jsonl", lambda i, r: {**r, "id": "calibration-c2-w0-0"} if i == 3 else r, "not in the server's log"),
}  # fmt: skip


@pytest.mark.parametrize("name", NO_BIAS)
def test_a_calibration_that_is_not_whole_is_no_data(calibrated: Path, tmp_path: Path, name: str) -> None:
    file, change, told = NO_BIAS[name]
    copy = tmp_path / "run"
    for source in calibrated.rglob("*"):
        if source.is_file():
            target = copy / source.relative_to(calibrated)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(source.read_bytes())
    spoil(copy, file, change)
    measured = bias(Run(copy), 2)
    assert isinstance(measured, NoData)
    assert told in measured.reason


def test_no_calibration_is_no_data(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"schema": 1}')
    measured = bias(Run(tmp_path), 2)
    assert isinstance(measured, NoData)
    assert "was not measured" in measured.reason


def told_of(folder: Path, **truth: Any) -> list[str]:
    breaches = validity.check_run(Run(make_run(folder, Truth(blocks=1, **truth))))
    return [f"{b.check} ({b.whose}): {b.reason}" for b in breaches]


def later(by_ns: int) -> Any:
    """A change by which both times of an answer are later: its stamps still follow one another."""
    return lambda record: record.update({key: record[key] + by_ns for key in ("t_first_ns", "t_last_ns")})


def test_a_bias_within_its_budget_is_told_beside_it(tmp_path: Path) -> None:
    path = make_run(tmp_path, Truth(blocks=1, noise=0.0))
    assert validity.check_run(Run(path)) == []
    (small, large) = calibration.summary(Run(path))
    assert (small["step"], small["n"], large["step"]) == (2, 100, 4)
    assert small["p50_s"] == pytest.approx(20e-6)
    # A hundredth of the 25 % that the candidate must be below the baseline's 1.2 s at the shortest step.
    assert small["budget_s"] == pytest.approx(0.01 * 0.25 * 1.2)


@pytest.mark.parametrize("by_ns", [4_000_000, -4_000_000])
def test_a_bias_over_its_budget_is_the_harness_fault_whatever_its_sign(tmp_path: Path, by_ns: int) -> None:
    told = told_of(tmp_path, calibration=later(by_ns))[0]
    assert told.startswith("calibration (harness): the client's own bias at concurrency 2 is")
    assert "ms allowed by the differences to be resolved" in told


def test_a_few_late_requests_are_no_bias_of_the_median(tmp_path: Path) -> None:
    late = {"calibration-c2-w0-1", "calibration-c2-w0-2"}
    assert told_of(tmp_path, calibration=lambda r: later(2 * 10**7)(r) if r["id"] in late else None) == []


def test_a_client_that_is_late_for_nearly_half_of_its_requests_is_told_though_its_median_is_sound(
    tmp_path: Path,
) -> None:
    """2 of 5 late by 18 ms: 6 budgets at a tenth of the requests, nothing at the median."""

    def late(record: Json) -> None:
        if int(record["id"].rpartition("-w")[2].partition("-")[0]) % 5 < 2:
            later(18_000_000)(record)

    told = told_of(tmp_path, calibration=late)
    assert len(told) == 2
    assert "a tenth of the client's requests at concurrency 2 are 18.020 ms off or more, 15.0" in told[0]


CALIBRATION_FAULTS: dict[str, tuple[Any, str]] = {
    "failed": (put(status="failed", error="reset"), "of the calibration failed: reset"),
    "other ids": (lambda r: r.update(id="x" + r["id"]), "is not in the server's log"),
    "no time": (put(t_first_ns=None), "wrong kind"),
    "field lost": (lambda r: r.pop("clock"), "lacks the field 'clock'"),
}


@pytest.mark.parametrize("name", CALIBRATION_FAULTS)
def test_a_calibration_that_is_not_whole_makes_the_run_invalid(tmp_path: Path, name: str) -> None:
    change, told = CALIBRATION_FAULTS[name]
    path = make_run(tmp_path, Truth(calibration=only({"step": 4}, change)))
    judged = verdict.judge(Run(path))
    assert {row["verdict"] for row in judged["criteria"]} == {"INVALID"}
    assert any(told in reason for reason in judged["reasons"]), judged["reasons"]


def test_a_budget_that_lets_everything_pass_is_refused(tmp_path: Path) -> None:
    def generous(facts: Json) -> None:
        facts["scenario"]["workload"]["client_bias_budget_share"] = 5.0

    assert any("client_bias_budget_share" in line for line in told_of(tmp_path, run=generous))
