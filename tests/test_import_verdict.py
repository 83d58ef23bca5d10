"""The verdict on an imported pair: judged only as far as the files allow, and never a PASS."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from gates import verdict
from gates.imports.judge import FAIL, INVALID
from gates.imports.vllm_bench import FIGURES, FIGURES_MS
from reports.view import load_view
from tests.import_lab import DATA, imported, rows, values
from tests.reporting import pages
from workloads.evidence import Run, RunDir, verify

# What each captured file gives: as the candidate, against baseline.json.
CAPTURED = {
    "candidate.json": (INVALID, "n = 1 pairs, 5 needed"),
    "stopped.json": (FAIL, "8 of 12 requests failed"),
    "dead.json": (FAIL, "8 of 8 requests failed"),
    "plain.json": (INVALID, "measure again with --save-detailed"),
    "unlimited.json": (INVALID, "measure again with --max-concurrency"),
    "rate.json": (INVALID, "other request_rate in the arms: 20.0 against 'inf'"),
    "chat.json": (INVALID, "first chunk, which of a chat is the role alone"),
}


@pytest.mark.parametrize("name", CAPTURED)
def test_what_a_captured_file_gives(tmp_path: Path, name: str) -> None:
    run, judged = imported(tmp_path, "baseline.json", name)
    expected, told = CAPTURED[name]
    assert (judged["verdict"], judged["acceptance"], verify(run)) == (expected, False, [])
    assert {row["verdict"] for row in judged["criteria"]} <= {FAIL, INVALID}
    assert any(told in row["reason"] for row in judged["criteria"])
    # No figure of the tool comes out as a number; what counts failures is the one exception.
    assert all(row["estimate"] is None for row in judged["criteria"] if row["verdict"] == INVALID)
    assert not [b for b in judged["breaches"] if b["check"] == "contradiction"]
    assert (run / "raw/import/candidate-01.json").read_bytes() == (DATA / name).read_bytes()


def test_a_row_names_everything_that_is_lacking(tmp_path: Path) -> None:
    _, judged = imported(tmp_path, "baseline.json", "candidate.json")
    reason = rows(judged)["ttft-p50-reduction"]["reason"]
    for told in ("no counters", "cold", "n = 1 pairs", "first chunk", "took turns"):
        assert told in reason
    assert "in its stream" not in reason and "inside its stream" in rows(judged)["failed-requests"]["reason"]


def test_the_baselines_failures_are_not_the_candidates(tmp_path: Path) -> None:
    _, judged = imported(tmp_path, "stopped.json", "candidate.json")
    assert judged["verdict"] == INVALID
    assert "8 of the baseline's requests failed" in rows(judged)["throughput-gain"]["reason"]
    assert {b["whose"] for b in judged["breaches"] if b["check"] == "errors"} == {"baseline"}


TRACEBACK = (
    'Traceback (most recent call last):\n  File "x.py", line 210, in f\n    async with session.post(url=url) as r:\n'
)
CONNECT = "aiohttp.client_exceptions.ClientConnectorError: Cannot connect to host 192.0.2.1:8000 ssl:default "
ERRORS = {
    "files": (TRACEBACK + CONNECT + "[Too many open files]\n", False),
    "ports": (TRACEBACK + CONNECT + "[Cannot assign requested address]", False),
    "name": (TRACEBACK + CONNECT + "[Name or service not known]\n", False),
    "bare": ("OSError: [Errno 24] Too many open files", False),
    "refused": (TRACEBACK + CONNECT + "[Connect call failed ('192.0.2.1', 8000)]\n", True),
    "closed": (TRACEBACK + "aiohttp.client_exceptions.ServerDisconnectedError: Server disconnected\n", True),
    "said by the server": ("Internal Server Error: Too many open files", True),
    "said by the server in its reason": ("Too many open files", True),
}


@pytest.mark.parametrize("name", ERRORS)
def test_what_the_loads_own_machine_lacked_is_no_fault_of_the_candidate(tmp_path: Path, name: str) -> None:
    error, its_own = ERRORS[name]
    held = values("candidate.json")
    held["errors"][-1], held["ttfts"][-1], held["itls"][-1] = error, 0.0, []
    tokens, held["output_lens"][-1] = held["output_lens"][-1], 0
    held["completed"] -= 1
    held["failed"] += 1
    held["total_output_tokens"] -= tokens
    held["total_input_tokens"] -= held["input_lens"][-1]
    for key in (*FIGURES, *FIGURES_MS):
        held.pop(key, None)
    _, judged = imported(tmp_path, "baseline.json", held)
    assert not [b for b in judged["breaches"] if b["check"] == "contradiction"]
    row = rows(judged)["failed-requests"]
    assert judged["verdict"] == row["verdict"] == (FAIL if its_own else INVALID)
    assert ("1 of 12 requests failed" in row["reason"]) is its_own
    assert ("1 requests were never sent: the machine of the load could not connect" in row["reason"]) is not its_own
    assert ("were never sent" in rows(judged)["throughput-gain"]["reason"]) is not its_own


def test_failures_count_though_the_arms_differ(tmp_path: Path) -> None:
    """A candidate must not turn its own failures INVALID by having been measured otherwise than the baseline."""
    _, judged = imported(tmp_path, "chat.json", "stopped.json")
    assert rows(judged)["failed-requests"]["estimate"]["point"] == 8
    assert judged["verdict"] == FAIL


def test_appended_results_are_each_a_result(tmp_path: Path) -> None:
    run, judged = imported(tmp_path, "appended-baseline.json", "appended-candidate.json")
    assert "n = 2 pairs, 5 needed" in rows(judged)["throughput-gain"]["reason"]
    assert [b["block"] for b in judged["blocks"]["invalid"]] == [1, 2]
    facts = json.loads((run / "run.json").read_bytes())
    assert [file["results"] for file in facts["import"]["files"]] == [2, 2]
    assert [row[0] for row in load_and_judge(run).claims][:2] == [
        "baseline-01.json result 1",
        "baseline-01.json result 2",
    ]


def load_and_judge(run: Path) -> Any:
    (run / "verdict.json").write_bytes(verdict.to_bytes(verdict.judge(Run(run))))
    return load_view(run)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_report_says_that_it_is_no_acceptance(tmp_path: Path, language: str) -> None:
    run, _ = imported(tmp_path, "baseline.json", "stopped.json")
    view = load_and_judge(run)
    assert view.trusted and not view.acceptance and not view.rehearsal
    (path,) = pages(run, [language])
    page = path.read_text(encoding="utf-8")
    assert {"en": "Stated by the files, not verified", "zh": "文件自述，未经核实"}[language] in page
    assert "acceptance: false" in page and 'class="watermark"' not in page
    # 61.8 ms is the median of the third that came; without the others it is no figure.
    assert "61.8" not in page and "122.941" in page


def test_a_run_that_says_it_is_an_import_proves_nothing(tmp_path: Path) -> None:
    run = RunDir.create(tmp_path, "g3")
    run.write_json("run.json", {"schema": 1, "gate": "g3", "kind": "import", "rehearsal": False})
    run.seal("end")
    judged = verdict.judge(Run(run.path))
    assert (judged["verdict"], judged["acceptance"]) == (INVALID, False)
    assert (FAIL, INVALID) == (verdict.FAIL, verdict.INVALID)


def test_a_large_file_takes_seconds(tmp_path: Path) -> None:
    """200 000 requests, each of four gaps: read, checked and judged."""
    held, n = values("candidate.json"), 200_000
    gaps = [0.005] * 4
    ttfts = [0.0625 + (i % 7) * 2**-10 for i in range(n)]
    latencies = [ttft + sum(gaps) for ttft in ttfts]
    held |= {"num_prompts": n, "completed": n, "max_concurrency": n, "duration": 1000.0, "input_lens": [100] * n}
    held |= {"output_lens": [5] * n, "ttfts": ttfts, "itls": [gaps] * n, "latencies": latencies, "errors": [""] * n}
    held |= {"start_times": [i * 2**-10 for i in range(n)], "queue_times": [0.0] * n, "generated_texts": ["x"] * n}
    held |= {"total_input_tokens": 100 * n, "total_output_tokens": 5 * n}
    for key in [key for key in held if key.endswith(("_ms", "_throughput"))]:
        del held[key]
    began = time.monotonic()
    _, judged = imported(tmp_path, held, {**held, "rtfx": 1.0})
    assert time.monotonic() - began < 60
    assert not judged["breaches"]
