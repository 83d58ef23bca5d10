"""The reports of other load generators, as they wrote them, read back; and the keeper that counts what they take."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from bench.peers import (
    PEERS,
    TORCH,
    GuideLLM,
    Load,
    PeerFailed,
    VllmBenchServe,
    environment,
    explain,
    keep,
    last_line,
    server_number,
)

# Of `vllm bench serve` 0.32.0, four requests in turn: answered, refused with 500, cut after the first token, answered.
# The tokens of an answer came at once, so the gaps are those between the chunks of one read.
VLLM: dict[str, Any] = {
    "generated_texts": ["r0000001 t1 t2 ", "", "", "r0000004 t1 t2 "],
    "ttfts": [0.0022172600001795217, 0.0, 0.001240576000782312, 0.0020597669990820577],
    "itls": [[8.249999154941179e-06, 5.529000191017985e-06], [], [], [6.691001544822939e-06, 5.335999958333559e-06]],
    "start_times": [13698.835233504, 13698.837542544, 13698.838716396, 13698.841317929],
    "errors": [
        "",
        "Internal Server Error",
        "Traceback (most recent call last):\n"
        '  File "aiohttp/streams.py", line 365, in _wait\n'
        "    await waiter\n"
        "aiohttp.client_exceptions.ClientPayloadError: Response payload is not completed: "
        "<TransferEncodingError: 400, message='Not enough data to satisfy transfer length header.'>\n",
        "",
    ],
}


def guidellm_request(
    output: str | None, start: float, first: float | None, last: float | None, tokens: int, error: str | None = None
) -> dict[str, Any]:
    return {
        "type_": "generative_request_stats",
        "output": output,
        "info": {
            "error": error,
            "timings": {
                "request_start": start,
                "first_token_iteration": first,
                "last_token_iteration": last,
                "token_iterations": tokens,
            },
        },
    }


# Of GuideLLM 0.8.1: two answers of three tokens (first after 200 ms, then one each 20 ms), and the same two failures.
GUIDELLM: dict[str, Any] = {
    "benchmarks": [
        {
            "requests": {
                "successful": [
                    guidellm_request("r0000003 t1 t2 ", 1796026288.1303914, 1796026288.3342183, 1796026288.374276, 3),
                    guidellm_request("r0000004 t1 t2 ", 1796026288.3865466, 1796026288.5885613, 1796026288.6283739, 3),
                ],
                "errored": [
                    guidellm_request(
                        None, 1796026315.5189075, None, None, 0, "HTTPStatusError(\"Server error '500'\")"
                    ),
                    guidellm_request(
                        None,
                        1796026315.5321863,
                        1796026315.5336852,
                        1796026315.5336852,
                        1,
                        "RemoteProtocolError('peer closed connection')",
                    ),
                ],
                "incomplete": [],
                "total": None,
            }
        }
    ]
}


def test_vllm_report_is_read_in_its_order_with_gaps_and_failures_apart() -> None:
    found = VllmBenchServe.read(VLLM)
    assert [one.ok for one in found] == [True, False, False, True]
    assert [server_number(one.text) for one in found] == [1, None, None, 4]
    # 0.0 is how it writes that there was no first token; a failed request may have had one.
    assert [one.ttft_s for one in found] == [0.0022172600001795217, None, 0.001240576000782312, 0.0020597669990820577]
    assert found[0].itl_s == (8.249999154941179e-06, 5.529000191017985e-06)
    assert found[0].mean_gap_s == pytest.approx(6.8895e-06, rel=1e-4)
    assert found[1].mean_gap_s is None
    assert found[1].error == "Internal Server Error"
    assert found[2].error.startswith("aiohttp.client_exceptions.ClientPayloadError: ")
    assert found[0].error == ""


def test_vllm_success_without_a_first_token_is_a_failure() -> None:
    report = {
        "generated_texts": [""],
        "ttfts": [0.0],
        "itls": [[]],
        "start_times": [1.0],
        "errors": [""],
    }
    (one,) = VllmBenchServe.read(report)
    assert not one.ok
    assert one.error == "no first token"


def test_vllm_report_with_arrays_of_unequal_length_is_refused() -> None:
    with pytest.raises(ValueError, match="shorter"):
        VllmBenchServe.read({**VLLM, "ttfts": VLLM["ttfts"][:3]})


def test_guidellm_report_has_first_and_last_token_but_no_gaps() -> None:
    found = GuideLLM.read(GUIDELLM)
    assert [one.ok for one in found] == [True, True, False, False]
    assert [server_number(one.text) for one in found] == [3, 4, None, None]
    assert found[0].ttft_s == pytest.approx(0.2038269, abs=1e-6)
    assert found[0].mean_gap_s == pytest.approx((0.374276 - 0.3342183) / 2, abs=1e-6)
    assert {one.itl_s for one in found} == {None}
    assert found[2].ttft_s is None
    assert found[3].ttft_s == pytest.approx(0.0014989, abs=1e-6)
    assert found[3].mean_gap_s is None
    assert found[3].error == "RemoteProtocolError('peer closed connection')"


def test_guidellm_report_of_a_clock_that_went_back_is_refused() -> None:
    report = json.loads(json.dumps(GUIDELLM))
    report["benchmarks"][0]["requests"]["successful"][0]["info"]["timings"]["request_start"] += 10.0
    with pytest.raises(ValueError, match="not a duration"):
        GuideLLM.read(report)


def test_guidellm_report_of_several_benchmarks_is_refused() -> None:
    with pytest.raises(ValueError, match="too many"):
        GuideLLM.read({"benchmarks": GUIDELLM["benchmarks"] * 2})


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("r0000001 t1", 1),
        (" r0000042 t1", 42),
        ("r0000007", 7),
        ("r00000012 t1", None),
        ("r123 t1", None),
        ("t1 r0000001", None),
        ("", None),
    ],
)
def test_only_a_text_that_begins_with_the_servers_first_token_has_a_number(text: str, number: int | None) -> None:
    assert server_number(text) == number


def test_guidellm_is_asked_for_the_load_by_a_file(tmp_path: Path) -> None:
    load = Load("http://127.0.0.1:8000", "timing", 16, 64, 100, 128, 7)
    spec = GuideLLM.config(load, tmp_path / "a,b=c", tmp_path / "report.json")["spec"]
    assert spec["profile"] == {"kind": "concurrent", "streams": [16]}
    assert spec["constraints"] == [{"kind": "max_requests", "count": 64}]
    assert spec["data"] == [{"kind": "synthetic_text", "prompt_tokens": 128, "output_tokens": 100}]
    assert spec["tokenizer"]["model"] == str(tmp_path / "a,b=c")


def test_every_peer_is_pinned() -> None:
    for peer in PEERS:
        assert all("==" in requirement for requirement in peer.requirements)
    assert TORCH in GuideLLM.requirements


def test_environment_keeps_out_what_could_change_a_peer(tmp_path: Path) -> None:
    ours = {"PATH": "/bin", "http_proxy": "x", "HTTPS_PROXY": "x", "GUIDELLM__MAX_WORKER_PROCESSES": "1",
            "PYTHONPATH": "x", "HF_HOME": "x", "VLLM_LOGGING_LEVEL": "x", "HOME": "x"}  # fmt: skip
    found = environment(ours, tmp_path)
    assert found["PATH"] == "/bin"
    assert found["HOME"] == str(tmp_path)
    assert found["HF_HUB_OFFLINE"] == "1"
    assert "x" not in found.values()
    assert "GUIDELLM__MAX_WORKER_PROCESSES" not in found


@pytest.mark.parametrize(
    ("log", "said"),
    [
        ("OSError: [Errno 28] No space left on device", "disk is full"),
        ("NewConnectionError(...)\nERROR: No matching distribution found for torch==2.13.0+cpu", "no package index"),
        ("ERROR: No matching distribution found for torch==2.13.0+cpu", "PIP_EXTRA_INDEX_URL"),
        ("The virtual environment was not created successfully because ensurepip is not available", "python3-venv"),
        ("ERROR: one\nERROR: two\nother", "two"),
        ("one\nlast\n\n", "last"),
        ("", "the installation failed"),
    ],
)
def test_a_failed_installation_is_one_line_with_the_remedy(log: str, said: str) -> None:
    assert said in explain(log)
    assert "\n" not in explain(log)


def test_last_line_skips_blanks() -> None:
    assert last_line("a\n b \n\n  \n") == "b"
    assert last_line("\n") == ""


def test_a_peer_that_is_not_installed_says_so(tmp_path: Path) -> None:
    for peer in PEERS:
        with pytest.raises(PeerFailed, match="not installed"):
            peer().run("http://127.0.0.1:1", "timing", 1, 1, 1, 1, tmp_path)


BURN = "import time\nwhile time.process_time() < 0.4: pass\n"


def test_keeper_counts_what_nobody_waited_for(tmp_path: Path) -> None:
    # The child starts a grandchild in a session of its own and ends without waiting for it.
    child = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {BURN!r}], start_new_session=True)"
    usage = keep("peer", [sys.executable, "-c", child], os.environ, tmp_path, tmp_path / "output.log", 20.0)
    assert usage.status == 0
    assert usage.cpu_s >= 0.4
    assert usage.wall_s < 20.0


def test_keeper_tells_the_status(tmp_path: Path) -> None:
    code = f"import os; os.kill(os.getpid(), {signal.SIGKILL.value})"
    usage = keep("peer", [sys.executable, "-c", code], os.environ, tmp_path, tmp_path / "output.log", 20.0)
    assert usage.status == -signal.SIGKILL


def test_keeper_says_in_one_line_that_a_command_is_missing(tmp_path: Path) -> None:
    with pytest.raises(PeerFailed, match=r"peer: .*No such file") as caught:
        keep("peer", [str(tmp_path / "none")], os.environ, tmp_path, tmp_path / "output.log", 20.0)
    assert "\n" not in str(caught.value)


def test_a_peer_that_takes_too_long_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    told = tmp_path / "pid"
    child = (
        "import subprocess, sys, time, pathlib\n"
        "p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'], start_new_session=True)\n"
        f"pathlib.Path({str(told)!r}).write_text(str(p.pid))\n"
        "time.sleep(60)\n"
    )
    with pytest.raises(PeerFailed, match="peer: not done within 2 s"):
        keep("peer", [sys.executable, "-c", child], os.environ, tmp_path, tmp_path / "output.log", 2.0)
    pid = int(told.read_text())
    end_s = time.monotonic() + 5.0
    while psutil.pid_exists(pid) and time.monotonic() < end_s:
        time.sleep(0.05)
    assert not psutil.pid_exists(pid)
