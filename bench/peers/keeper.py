"""Keep one process and all that it starts, and write what they used: `python keeper.py USAGE_FILE -- COMMAND ...`.

It is started as a file, by an isolated Python (`-I`) that finds nothing of this project: it imports none of it.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil

# What a generator leaves running after its own end has this long to go by itself; asked to end, it has this long.
LEFT_BEHIND_S = 20.0
END_S = 10.0

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def main(argv: list[str]) -> int:
    """Run the command after `--`, wait for all that it starts, and write what they used to the named file.

    As a subreaper this process inherits what its child leaves behind, so the children's resource usage, which the
    kernel adds up as processes are waited for, covers the whole tree, whoever forgot to wait for whom.
    """
    usage, dashes, *command = argv
    if dashes != "--" or not command:
        raise SystemExit("usage: keeper.py USAGE_FILE -- COMMAND ...")
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _leave)
    began_s = time.monotonic()
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    try:
        status = child.wait()
        wall_s = time.monotonic() - began_s
        _wait_for_all(LEFT_BEHIND_S)
    finally:
        _end_all()
    tree = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = {"status": status, "wall_s": wall_s, "cpu_s": tree.ru_utime + tree.ru_stime}
    Path(usage).write_text(json.dumps(spent), encoding="utf-8")
    return 0


def _leave(number: int, _frame: object) -> None:
    raise SystemExit(128 + number)


def _wait_for_all(limit_s: float) -> bool:
    """Reap children until none is left or the time is over; return whether none is left."""
    end_s = time.monotonic() + limit_s
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return True
        if pid == 0:
            if time.monotonic() >= end_s:
                return False
            time.sleep(0.01)


def _end_all() -> None:
    for number, limit_s in ((signal.SIGTERM, END_S / 2), (signal.SIGKILL, END_S / 2)):
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)
        if _wait_for_all(limit_s):
            return


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
