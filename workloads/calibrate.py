"""The client's own bias, measured before anything else: the same client against a server that logs the truth.

At each concurrency of the run the client sends waves of the run's own prompts to the timing server; what either side
wrote down goes into the evidence, side by side. Nothing is derived here.
"""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from scenarios.process import Kept, StartFailed, clean_environment
from workloads import client, timing_server
from workloads.evidence import RunDir
from workloads.prompts import PromptSpec

FIRST_S, GAP_S, TOKENS = 0.04, 0.01, 4
REQUESTS_MIN = 100  # at each concurrency: enough for a 99th percentile to have something behind it
LISTEN_DEADLINE_S = 30.0
REQUEST_DEADLINE_S = 30.0
FOLDER = "calibration"


class CalibrationFailed(RuntimeError):
    """One line: why the client's bias could not be measured."""


def calibrate(run: RunDir, steps: Sequence[int], prompts: Sequence[PromptSpec]) -> None:
    """Write calibration/c<step>/{requests,server}.jsonl for every step (docs/evidence.md).

    `prompts` must be at least as many as the largest step. Raises CalibrationFailed when the server does not start.
    """
    for step in steps:
        folder = f"{FOLDER}/c{step}"
        with timing(run.folder(folder), "server.jsonl", FIRST_S, GAP_S, TOKENS) as base_url:
            waves = [_orders(step, wave, prompts) for wave in range(math.ceil(REQUESTS_MIN / step))]
            records = client.run_waves(base_url, timing_server.MODEL, waves, REQUEST_DEADLINE_S)
            run.append_all(f"{folder}/requests.jsonl", records)


def _orders(step: int, wave: int, prompts: Sequence[PromptSpec]) -> list[client.Order]:
    return [
        client.Order(
            id=f"calibration-c{step}-w{wave}-{prompt.prompt_index}",
            prompt=prompt,
            output_tokens=TOKENS,
            facts={"step": step, "wave": wave},
        )
        for prompt in prompts[:step]
    ]


@contextlib.contextmanager
def timing(folder: Path, log: str, first_s: float, gap_s: float, tokens: int) -> Iterator[str]:
    """Run a timing server that logs to `folder`/`log`; yield its base URL. Raises CalibrationFailed."""
    told = folder / "server.log"
    told.unlink(missing_ok=True)  # an older one names another port
    argv = [
        sys.executable, "-m", "workloads.timing_server", "--log", str((folder / log).absolute()),
        "--first-s", str(first_s), "--gap-s", str(gap_s), "--tokens", str(tokens),
    ]  # fmt: skip
    try:
        server = Kept("timing server", argv, clean_environment(), told.absolute(), grace_s=10.0)
    except StartFailed as error:
        raise CalibrationFailed(f"the client's bias cannot be measured: {error.cause}") from None
    try:
        yield f"http://127.0.0.1:{_port(server, told)}"
    finally:
        server.stop()


def _port(server: Kept, told: Path) -> int:
    end_s = time.monotonic() + LISTEN_DEADLINE_S
    while time.monotonic() < end_s:
        text = told.read_text(encoding="utf-8", errors="replace")
        for line in text.splitlines():
            if line.startswith("listening ") and text.endswith("\n"):
                return int(line.split()[1])
        if server.exit_status() is not None:
            break
        time.sleep(0.02)
    lines = told.read_text(encoding="utf-8", errors="replace").split("\n")
    raise CalibrationFailed(f"the client's bias cannot be measured: the timing server did not come up: {lines[-2:]}")
