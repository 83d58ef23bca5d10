"""Sending a load to a server and looking at what came of it, as a user does both."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gates.figures import figures
from tests import scripted_server
from tests.scripted_server import Script, prompt
from workloads import calibrate
from workloads.evidence import EvidenceError, read_jsonl
from workloads.prompts import seed_of_nonce

Json = dict[str, Any]
ROOT = Path(__file__).resolve().parent.parent
server = scripted_server.server  # the fixture, which tests take by its name

LOADS = {
    "waves": "[arrival.waves]\nusers = 4\nwaves = 3\n[prompts.unshared]\nprompt_tokens = 40\noutput_tokens = 3\n",
    "closed": "[arrival.closed]\nusers = 3\nrequests = 10\n[prompts.shared_prefix]\ngroups = 2\nprefix_tokens = 20\nsuffix_tokens = 5\noutput_tokens = 3\n",
    "poisson": '[arrival.open]\nrate_per_s = 200.0\nspacing = "poisson"\nrequests = 20\n[prompts.long_document]\ndocuments = 4\ndocument_tokens = 30\nquestion_tokens = 5\noutput_tokens = 3\n',
    "constant": '[arrival.open]\nrate_per_s = 100.0\nspacing = "constant"\nrequests = 10\n[prompts.unshared]\nprompt_tokens = 40\noutput_tokens = 3\n',
    "sessions": "[arrival.sessions]\nusers = 3\nturns = 3\nthink_s = 0.05\n[prompts.sessions]\nfirst_tokens = 30\nturn_tokens = 5\noutput_tokens = 3\n",
    "trace": '[arrival.trace]\nspeed = 10.0\n[prompts.trace]\nfile = "t.jsonl"\nblock_tokens = 16\n',
}  # fmt: skip
TRACE = [
    {"timestamp": 0, "input_length": 40, "output_length": 2, "hash_ids": [1, 2, 3]},
    {"timestamp": 500, "input_length": 33, "output_length": 4, "hash_ids": [1, 2, 9]},
]


@pytest.fixture(scope="module")
def base_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with calibrate.timing(tmp_path_factory.mktemp("timing"), "server.jsonl", 0.02, 0.005, 3) as url:
        yield url


def write_load(folder: Path, kind: str) -> Path:
    (folder / "t.jsonl").write_text("".join(json.dumps(line) + "\n" for line in TRACE))
    load = folder / "load.toml"
    load.write_text(f'schema = 1\ntitle = "{kind}"\n{LOADS[kind]}')
    return load


def command(*args: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *map(str, args)], cwd=ROOT, capture_output=True, text=True, timeout=120
    )


def send(folder: Path, load: Path, url: str, *options: str, model: str = "timing") -> subprocess.CompletedProcess[str]:
    return command("workloads", "send", load, folder / "out", "--url", url, "--model", model, "--seed", "7", *options)


@pytest.mark.parametrize("processes", ["1", "2"])
@pytest.mark.parametrize("kind", LOADS)
def test_every_kind_of_load_is_sent_whole(tmp_path: Path, base_url: str, kind: str, processes: str) -> None:
    done = send(tmp_path, write_load(tmp_path, kind), base_url, "--processes", processes)
    assert (done.returncode, done.stderr) == (0, "")
    records = sorted(read_jsonl(tmp_path / "out" / "requests.jsonl"), key=lambda r: r["index"])
    count = {"waves": 12, "closed": 10, "poisson": 20, "constant": 10, "sessions": 9, "trace": 2}[kind]
    assert [r["index"] for r in records] == list(range(count))
    assert {r["status"] for r in records} == {"ok"}
    assert {r["process"] for r in records} == set(range(int(processes)))
    assert all(r["usage"]["prompt_tokens"] == r["prompt_tokens_expected"] for r in records)
    assert all(r["t_sent_ns"] >= r["t_intended_ns"] for r in records)
    begin_ns = min(r["t_intended_ns"] for r in records)
    offsets = [r["t_intended_ns"] - begin_ns for r in records]
    if kind == "constant":
        assert offsets == [10_000_000 * i for i in range(10)]
    if kind == "trace":
        assert offsets == [0, 50_000_000]
        assert [r["usage"]["completion_tokens"] for r in records] == [2, 4]
    if kind == "sessions":
        for user in range(3):
            mine = [r for r in records if r["user"] == user]
            for before, after in itertools.pairwise(mine):
                assert after["t_intended_ns"] - before["t_last_ns"] >= 49_000_000
    if kind == "waves":
        waves = [[r for r in records if r["turn"] == wave] for wave in range(3)]
        for before, after in itertools.pairwise(waves):
            assert min(r["t_sent_ns"] for r in after) > max(r["t_last_ns"] for r in before)
    assert not list((tmp_path / "out").glob("*.part"))
    shown = command("gates", "figures", tmp_path / "out")
    assert shown.returncode == 0
    assert f"{count}, 0 of them failed" in shown.stdout
    assert "0 had other prompt or output tokens" in shown.stdout


def test_the_seed_is_recorded_and_a_nonce_makes_it(tmp_path: Path, base_url: str) -> None:
    load = write_load(tmp_path, "closed")
    done = command(
        "workloads", "send", load, tmp_path / "out", "--url", base_url, "--model", "timing", "--nonce", "late"
    )
    assert done.returncode == 0
    assert json.loads((tmp_path / "out" / "send.json").read_text())["seed"] == seed_of_nonce("late")


def test_more_processes_than_users_send_every_wave(tmp_path: Path, base_url: str) -> None:
    load = tmp_path / "load.toml"
    load.write_text(
        'schema = 1\ntitle = "few"\n[arrival.waves]\nusers = 2\nwaves = 2\n'
        "[prompts.unshared]\nprompt_tokens = 10\noutput_tokens = 2\n"
    )
    done = send(tmp_path, load, base_url, "--processes", "3")
    assert (done.returncode, done.stderr) == (0, "")
    assert len(list(read_jsonl(tmp_path / "out" / "requests.jsonl"))) == 4


def test_failures_are_told_and_nothing_but_failures_is_an_error(tmp_path: Path, server: Script) -> None:
    server.models = ["m"]
    server.status, server.steps = 503, [{"error": {"message": "busy"}}]
    done = send(tmp_path, write_load(tmp_path, "closed"), server.url, model="m")
    assert done.returncode == 1
    assert "10 requests, 10 of them failed (the first: HTTP 503: " in done.stdout


def test_a_disk_that_is_full_ends_the_load_in_one_line(tmp_path: Path, base_url: str) -> None:
    argv = [sys.executable, "-m", "workloads", "send", str(write_load(tmp_path, "poisson")), str(tmp_path / "out")]
    done = subprocess.run(
        ["bash", "-c", 'ulimit -f 4; exec "$@"', "send", *argv, "--url", base_url, "--model", "timing"],
        cwd=ROOT, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 4
    assert "File too large" in done.stderr
    assert done.stderr.count("\n") == 1


REFUSALS: dict[str, tuple[list[str], str]] = {
    "another model": (["--model", "llama"], "serves timing, not 'llama': mend --model"),
    "nobody": (["--url", "http://127.0.0.1:9"], "http://127.0.0.1:9/v1/models: nobody answers"),
    "no URL": (["--url", "localhost"], "not a URL of a server"),
    "half an address": (["--url", "http://[::1"], "not a URL of a server"),
    "no port": (["--url", "http://h:abc"], "not a URL of a server"),
    "a path": (["--url", "http://127.0.0.1:9/v1/chat/completions"], "more than a server's address"),
    "a password": (["--url", "http://me:secret@127.0.0.1:9"], "set KVGATE_API_KEY instead"),
    "no vocabulary": (["--vocabulary-tokens", "1"], "is no vocabulary"),
    "too large a vocabulary": (["--vocabulary-tokens", "9" * 26], "is no whole number"),
    "both": (["--nonce", "x"], "--seed, --nonce: give one of them"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_cannot_be_measured_is_refused_in_one_line(tmp_path: Path, base_url: str, name: str) -> None:
    options, told = REFUSALS[name]
    done = send(tmp_path, write_load(tmp_path, "closed"), base_url, *options)
    assert done.returncode == 4
    assert told in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_server_of_another_kind_is_refused(tmp_path: Path, server: Script) -> None:
    done = send(tmp_path, write_load(tmp_path, "closed"), server.url)
    assert done.returncode == 4
    assert "no OpenAI-compatible server" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda t: t.replace('"output_length": 4', '"output_length": 0'), "t.jsonl:2"),
        (lambda t: t.replace("500", "-500"), "t.jsonl:2"),
        (lambda t: t[:-30], "t.jsonl:2"),
        (lambda t: t + "<html>\n", "t.jsonl:3"),
    ],
)
def test_a_bad_trace_is_refused_before_anything_is_sent(tmp_path: Path, base_url: str, change: Any, told: str) -> None:
    load = write_load(tmp_path, "trace")
    (tmp_path / "t.jsonl").write_text(change((tmp_path / "t.jsonl").read_text()))
    done = send(tmp_path, load, base_url)
    assert done.returncode == 4
    assert told in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_folder_that_is_there_is_not_written_into(tmp_path: Path, base_url: str) -> None:
    (tmp_path / "out").mkdir()
    done = send(tmp_path, write_load(tmp_path, "closed"), base_url)
    assert (done.returncode, done.stderr.count("\n")) == (4, 1)
    assert "name a folder that is not there yet" in done.stderr


@pytest.mark.parametrize("processes", ["1", "2"])
def test_an_interrupted_load_keeps_what_it_had(tmp_path: Path, base_url: str, processes: str) -> None:
    load = tmp_path / "load.toml"
    load.write_text(
        'schema = 1\ntitle = "long"\n[arrival.open]\nrate_per_s = 50.0\nspacing = "constant"\nrequests = 5000\n'
        "[prompts.unshared]\nprompt_tokens = 10\noutput_tokens = 2\n"
    )
    argv = [sys.executable, "-m", "workloads", "send", str(load), str(tmp_path / "out"), "--url", base_url]
    child = subprocess.Popen(
        [*argv, "--model", "timing", "--processes", processes],
        cwd=ROOT, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        end_s = time.monotonic() + 60.0
        while time.monotonic() < end_s and not any(p.stat().st_size for p in (tmp_path / "out").glob("*.part")):
            time.sleep(0.1)
        os.killpg(child.pid, signal.SIGINT)
        _, said = child.communicate(timeout=30.0)
    finally:
        child.kill()
        child.wait()
    assert child.returncode == 130, said
    assert said.count("\n") <= 1, said
    records = list(read_jsonl(tmp_path / "out" / "requests.jsonl"))
    assert 0 < len(records) < 5000
    assert not list((tmp_path / "out").glob("*.part"))


def test_figures_of_something_else_are_refused(tmp_path: Path) -> None:
    (tmp_path / "requests.jsonl").write_text('{"id": 1}\n')
    with pytest.raises(EvidenceError, match=r"requests.jsonl:1: not a request's record"):
        figures(tmp_path)
    (tmp_path / "requests.jsonl").write_text("")
    with pytest.raises(EvidenceError, match="holds no request"):
        figures(tmp_path)
    done = command("gates", "figures", tmp_path / "nothing")
    assert (done.returncode, done.stderr.count("\n")) == (4, 1)


def test_where_every_request_failed_there_is_no_number(tmp_path: Path, server: Script) -> None:
    from workloads import client

    server.status, server.steps = 500, [{"error": "no"}]
    orders = [client.Order(f"r{i}", prompt(i), 2, {}) for i in range(3)]
    records = client.run_wave(server.url, "m", orders, 5.0)
    (tmp_path / "requests.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    lines = figures(tmp_path)
    assert lines[0].endswith("3, 3 of them failed")
    assert lines[2].endswith("no data")
    (ttft,) = [line for line in lines if line.startswith("TTFT  ")]
    assert ttft.split() == ["TTFT", "3", "failed", "failed", "failed"]
