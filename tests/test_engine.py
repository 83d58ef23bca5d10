"""The suite on the real vLLM and LMCache: one full G3, its controls, and what happens when the engine fails."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from controls import __main__ as controls
from controls.__main__ import CANDIDATE_SPEED, SHORT, changed

Json = dict[str, Any]
ROOT = Path(__file__).resolve().parent.parent
SITE = (ROOT / "scenarios/sites/rehearsal.toml").read_text(encoding="utf-8")
SCENARIO = (ROOT / "scenarios/catalog/rehearsal.toml").read_text(encoding="utf-8")
RUN_DEADLINE_S = 1500
# Five times as fast, for runs of two waves a block: what is tested here is not how near to a limit a busy machine decides.
GIVEN_BYTES_PER_S = {"baseline": 40e6, "candidate": 200e6}
CLEAR = (CANDIDATE_SPEED, "read_bytes_per_s = 200_000_000")


class Lab:
    """A site and a scenario of our own in a temporary folder, and gate runs on them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runs = folder / "runs"

    def command(
        self, site: tuple[tuple[str, str], ...] = (), scenario: tuple[tuple[str, str], ...] = SHORT
    ) -> list[str]:
        # One work folder for all tests: the compiled kernels and the model are made once.
        work = f'rehearsal = true\nwork_dir = "{ROOT / ".work"}"'
        (self.folder / "site.toml").write_text(
            changed(SITE, ("rehearsal = true", work), CLEAR, *site), encoding="utf-8"
        )
        (self.folder / "scenario.toml").write_text(changed(SCENARIO, *scenario), encoding="utf-8")
        return [
            sys.executable, "-m", "pytest", "gates/test_g3.py", "--site", str(self.folder / "site.toml"),
            "--scenario", str(self.folder / "scenario.toml"), "--runs", str(self.runs), "--langs", "en",
        ]  # fmt: skip

    def gate(self, *args: str, **changes: tuple[tuple[str, str], ...]) -> tuple[int, str]:
        done = subprocess.run(
            [*self.command(**changes), *args],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=RUN_DEADLINE_S,
            check=False,
        )
        print(done.stdout, done.stderr)
        return done.returncode, done.stdout + done.stderr

    def run(self) -> Path:
        (path,) = self.runs.glob("*-g3-*")
        return path

    def verdict(self) -> Json:
        content: Json = json.loads((self.run() / "verdict.json").read_bytes())
        return content


def ours() -> set[int]:
    """Return the processes that belong to some engine of ours."""
    found = set()
    for process in psutil.process_iter(["cmdline", "status"]):
        line = " ".join(process.info["cmdline"] or [])
        if process.info["status"] != psutil.STATUS_ZOMBIE and re.search(
            r"scenarios\.keeper|lmcache\.cli|api_server|VLLM::", line
        ):
            found.add(process.pid)
    return found


def segments() -> set[str]:
    return {p.name for p in Path("/dev/shm").iterdir()}


def eventually(holds: Callable[[], bool], deadline_s: float = 60.0) -> bool:
    end_s = time.monotonic() + deadline_s
    while time.monotonic() < end_s:
        if holds():
            return True
        time.sleep(0.5)
    return False


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    """A lab that must leave no process and no shared segment behind."""
    processes, shared = ours(), segments()
    yield Lab(tmp_path)
    assert eventually(lambda: ours() <= processes), "a process outlived its run"
    assert eventually(lambda: segments() <= shared), "a shared-memory segment outlived its run"


def requests(run: Path, arm: str) -> list[Json]:
    return [
        json.loads(line)
        for file in sorted(run.glob(f"raw/{arm}/c2/*/requests.jsonl"))
        for line in file.read_text("utf-8").splitlines()
    ]


@pytest.mark.engine
def test_a_whole_gate_passes_and_shows_the_effect_that_it_was_given(lab: Lab) -> None:
    status, said = lab.gate()
    verdict = lab.verdict()
    assert (status, verdict["verdict"]) == (0, "PASS"), verdict
    assert "G3 verdict: PASS" in said
    assert verdict["rehearsal"] is True
    assert verdict["acceptance"] is False
    run = lab.run()
    assert (run / "report.en.html").stat().st_size > 10_000
    # No wave can be faster than its tier: two prompts of 16 chunks of 1 MiB through what it was given.
    for arm, bytes_per_s in GIVEN_BYTES_PER_S.items():
        waves: dict[tuple[int, int], list[float]] = {}
        for r in requests(run, arm):
            waves.setdefault((r["block"], r["wave"]), []).append((r["t_first_ns"] - r["t_intended_ns"]) / 1e9)
        transfer_s = 2 * 16 * 2**20 / bytes_per_s
        slowest = [max(values) for values in waves.values()]
        assert min(slowest) >= transfer_s
        assert sorted(slowest)[len(slowest) // 2] < 3 * transfer_s + 0.5
    for command, expected in (("verify", 0), ("rejudge", 0)):
        before = (run / "verdict.json").read_bytes()
        done = subprocess.run(
            [sys.executable, "-m", "gates", command, str(run)], cwd=ROOT, capture_output=True, check=False
        )
        assert done.returncode == expected
        assert (run / "verdict.json").read_bytes() == before


@pytest.mark.engine
def test_an_engine_that_hangs_in_start_up_is_named_within_the_deadline(lab: Lab) -> None:
    began_s = time.monotonic()
    status, said = lab.gate(
        site=(
            ('"--supported-transfer-mode", "auto"', '"--supported-transfer-mode", "lmcache_driven"'),
            ("stall_s = 45.0", "stall_s = 20.0"),
        ),
    )
    assert status == 11
    assert time.monotonic() - began_s < 180 + 60
    assert "hangs in start-up" in said
    assert "LMCache server" in said
    assert "Traceback" not in said
    assert lab.verdict()["verdict"] == "INVALID"


@pytest.mark.engine
def test_a_harness_killed_by_kill_9_leaves_nothing_and_never_a_pass(lab: Lab) -> None:
    harness = subprocess.Popen(lab.command(), cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        assert eventually(lambda: any(lab.runs.glob("*/raw/baseline/start-01/start.json")), 300)
        children = {p.pid for p in psutil.Process(harness.pid).children(recursive=True)}
        assert len(children) > 6
    finally:
        harness.kill()
        harness.wait()
    assert eventually(lambda: not any(psutil.pid_exists(pid) for pid in children))
    done = subprocess.run(
        [sys.executable, "-m", "gates", "rejudge", str(lab.run())],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 11
    assert "nothing seals this run" in done.stdout


def kill_engine(lab: Lab, arm: str, block: int) -> None:
    """Kill the engine of an arm while it is in that block."""
    (start,) = lab.runs.glob(f"*/raw/{arm}/start-01/start.json")
    assert eventually(lambda: any(lab.runs.glob(f"*/raw/{arm}/c2/b{block:02d}/counters.jsonl")), 600)
    engine = psutil.Process(json.loads(start.read_bytes())["engine"]["pid"])
    for child in (*engine.children(recursive=True), engine):
        child.kill()


@pytest.mark.engine_long
def test_an_engine_that_dies_is_held_against_its_own_arm(lab: Lab) -> None:
    """The candidate's is a control of its own."""
    harness = subprocess.Popen(lab.command(), cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert eventually(lambda: any(lab.runs.glob("*/raw/baseline/start-01/start.json")), 300)
    kill_engine(lab, "baseline", 2)
    assert harness.wait(300) == 11
    assert lab.verdict()["verdict"] == "INVALID"


@pytest.mark.engine_long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_run_is_sealed_and_never_a_pass(lab: Lab, number: int) -> None:
    harness = subprocess.Popen(lab.command(), cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert eventually(lambda: any(lab.runs.glob("*/raw/candidate/c2/b01/requests.jsonl")), 400)
    os.kill(harness.pid, number)
    assert harness.wait(120) == 2
    assert lab.verdict()["verdict"] == "INVALID"
    assert "interrupted" in " ".join(lab.verdict()["reasons"])


@pytest.mark.engine_long
def test_an_interrupted_run_goes_on_at_its_next_block_and_passes(lab: Lab) -> None:
    harness = subprocess.Popen(lab.command(), cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert eventually(lambda: any(lab.runs.glob("*/raw/candidate/c2/b03/requests.jsonl")), 600)
    os.kill(harness.pid, signal.SIGINT)
    assert harness.wait(120) == 2
    before = {file: file.read_bytes() for file in lab.run().glob("blocks/*.json")}
    status, said = lab.gate("--resume", str(lab.run()))
    assert (status, lab.verdict()["verdict"]) == (0, "PASS"), said
    assert all(file.read_bytes() == content for file, content in before.items())
    assert len(list(lab.run().glob("host/before*"))) == 2
    done = subprocess.run([sys.executable, "-m", "gates", "verify", str(lab.run())], cwd=ROOT, check=False)
    assert done.returncode == 0


@pytest.mark.engine_long
@pytest.mark.parametrize("name", [control.name for control in controls.CONTROLS])
def test_every_control_gives_its_verdict(tmp_path: Path, name: str) -> None:
    (control,) = [control for control in controls.CONTROLS if control.name == name]
    outcome = controls.run(control, tmp_path)
    assert outcome.holds, controls.table([outcome])


@pytest.mark.engine_long
def test_arms_one_at_a_time(lab: Lab) -> None:
    status, _ = lab.gate(site=(('policy = "resident"', 'policy = "exclusive"'),))
    assert status == 0
    assert len(list(lab.run().glob("raw/candidate/start-*/start.json"))) == 6  # populate and five blocks


@pytest.mark.engine_long
def test_a_tier_that_stores_nothing_is_never_measured(lab: Lab) -> None:
    """An adapter over a folder that cannot be written: the engine would recompute in silence."""
    status, said = lab.gate(
        site=(('path = "fx100"', 'path = "/proc/fx100"'),),
    )
    assert status in (4, 11)
    assert "fx100" in said


@pytest.mark.engine_long
def test_smoke_says_that_every_check_holds(lab: Lab) -> None:
    status, said = lab.gate("--smoke")
    assert status == 0
    assert "3 passed" in said
    assert not (lab.run() / "verdict.json").exists()
