"""How command lines end: one line and the right status, and nobody is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from workloads.command import Parser, carry_out

ROOT = Path(__file__).resolve().parent.parent

# Reads two trials in two processes, which say who they are and then take long.
SLOW = """
import os, sys, time
from pathlib import Path
from gates import parallel
from workloads.command import carry_out

def read(folder):
    (folder / "pid.part").write_text(str(os.getpid()))
    (folder / "pid.part").rename(folder / "pid")
    time.sleep(600)

def step():
    list(parallel.read_in_processes(map(Path, sys.argv[1:]), read))
    return 0

if __name__ == "__main__":
    parallel.SHARED_FROM_BYTES = 0
    parallel.os.cpu_count = lambda: 2
    sys.exit(carry_out(step, (), "nothing was written"))
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_whoever_reads_in_processes_leaves_none_behind(tmp_path: Path, number: signal.Signals) -> None:
    program = tmp_path / "slow.py"
    program.write_text(SLOW)
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
        (folder / "requests.jsonl").write_text("{}\n")
    child = subprocess.Popen(
        [sys.executable, str(program), *map(str, folders)],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        until(lambda: all((folder / "pid").exists() for folder in folders))
        pids = [int((folder / "pid").read_text()) for folder in folders]
        if number is signal.SIGINT:
            os.killpg(child.pid, number)  # as a terminal's Ctrl-C
        else:
            child.send_signal(number)
        _, said = child.communicate(timeout=30.0)
        until(lambda: not any(map(psutil.pid_exists, pids)))
    finally:
        child.kill()
        child.wait()
    if number is signal.SIGINT:
        assert (child.returncode, said) == (130, "kvgate: interrupted; nothing was written\n")
    else:
        assert "Traceback" not in said


def until(holds: object, deadline_s: float = 30.0) -> None:
    assert callable(holds)
    end_s = time.monotonic() + deadline_s
    while not holds():
        assert time.monotonic() < end_s, "did not come about in time"
        time.sleep(0.05)


def test_a_reader_that_has_enough_gets_no_traceback_and_no_verdict() -> None:
    argv = [sys.executable, "-m", "gates", "oc", "--repetitions", "200"]
    child = subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout is not None and child.stderr is not None
    child.stdout.close()
    said = child.stderr.read()
    child.stderr.close()
    assert (child.wait(), said) == (141, "")


def test_what_is_told_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    def fails() -> int:
        raise ValueError("two\n  lines")

    assert carry_out(fails, (ValueError,), "") == 4
    assert capsys.readouterr().err == "kvgate: two lines\n"
    assert carry_out(fails, (KeyError,), "") == 3  # Python's own 1 would be a FAIL
    told = capsys.readouterr().err.splitlines()
    assert told[0].startswith("Traceback") and told[-1].startswith("kvgate: a fault of the suite")
    assert carry_out(lambda: 11, (), "") == 11


def test_a_wrong_argument_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    parser = Parser(prog="python -m gates")
    parser.add_argument("--number", type=int)
    with pytest.raises(SystemExit) as ended:
        parser.parse_args(["--number", "a\nb"])
    assert ended.value.code == 4
    assert capsys.readouterr().err.count("\n") == 1
