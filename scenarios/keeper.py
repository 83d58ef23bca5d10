"""Keep one process and everything that it starts, and end all of it: `python -m scenarios.keeper ... -- ARGV`.

The harness holds the other end of this program's standard input. When that end closes, for whatever reason
(end of the run, Ctrl-C, SIGTERM, kill -9 of the harness), the whole tree is ended, its shared-memory segments and
its scratch folder are removed, and the keeper goes too. As a subreaper it stays the parent of processes whose own
parents have died, so none escapes.

It tells on standard output: `started PID`, then `ended STATUS` (negative: the signal that ended it).
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108  # where shm_open puts segments, not a scratch file of ours
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
TICK_S = 0.5
LOOK_AT_SEGMENTS_S = 1.0


def main(argv: list[str]) -> int:
    """Start the command after `--`, keep it until standard input closes or it ends, and end all of its tree."""
    parser = argparse.ArgumentParser(prog="keeper")
    parser.add_argument("--log", required=True, type=Path)
    parser.add_argument("--scratch", required=True, type=Path)
    parser.add_argument("--grace-s", required=True, type=float)
    parser.add_argument("command", nargs="+")
    args = parser.parse_args(argv)

    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    stopping: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda received, _frame: stopping.append(received))

    try:
        with args.log.open("ab") as log:
            child = subprocess.Popen(
                args.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # If the keeper itself is killed, nobody else would end this one.
                preexec_fn=lambda: libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0),
            )
    except OSError as error:
        print(f"refused {args.command[0]}: {error.strerror}", flush=True)
        shutil.rmtree(args.scratch, ignore_errors=True)
        return 1
    _say(f"started {child.pid}")

    segments: set[int] = set()
    looked_at_s = 0.0
    while child.poll() is None and not stopping:
        readable, _, _ = select.select([sys.stdin], [], [], TICK_S)
        if readable and not os.read(sys.stdin.fileno(), 4096):
            break
        if time.monotonic() - looked_at_s > LOOK_AT_SEGMENTS_S:
            segments |= mapped_segments(_tree())
            looked_at_s = time.monotonic()
    remove_unused(segments | _end(child, args.grace_s))
    shutil.rmtree(args.scratch, ignore_errors=True)
    _say(f"ended {child.returncode}")
    return 0


def mapped_segments(processes: list[psutil.Process]) -> set[int]:
    """Return the inodes of the /dev/shm files that these processes have mapped.

    Inodes, not names: the maker of a semaphore has it mapped under a temporary name that is gone by then.
    """
    inodes: set[int] = set()
    for process in processes:
        with contextlib.suppress(OSError):
            text = Path(f"/proc/{process.pid}/maps").read_text(encoding="utf-8", errors="replace")
            # address, permissions, offset, device, inode, path
            fields = (line.split(maxsplit=5) for line in text.splitlines() if f" {SHARED_MEMORY}/" in line)
            inodes.update(int(f[4]) for f in fields if len(f) == 6 and f[4].isdecimal())
    return inodes


def remove_unused(segments: set[int]) -> None:
    """Unlink those of these segments that are still there and that no living process has mapped."""
    there = {}
    with contextlib.suppress(OSError), os.scandir(SHARED_MEMORY) as entries:
        there = {entry.inode(): entry.path for entry in entries if entry.inode() in segments}
    if there:
        for inode in there.keys() - mapped_segments(list(psutil.process_iter())):
            with contextlib.suppress(OSError):
                os.unlink(there[inode])


def _tree() -> list[psutil.Process]:
    return psutil.Process().children(recursive=True)


def _end(child: subprocess.Popen[bytes], grace_s: float) -> set[int]:
    """Ask the child to end, wait, then kill whatever is left, until nothing is; return the segments seen meanwhile.

    An engine that was still starting goes on making segments while it is asked to end.
    """
    segments = mapped_segments(_tree())
    if child.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            child.terminate()
        end_s = time.monotonic() + grace_s
        while child.poll() is None and time.monotonic() < end_s:
            segments |= mapped_segments(_tree())
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(0.2)
    # What the child leaves behind has nobody to talk to any more.
    for _ in range(100):
        left = _tree()
        segments |= mapped_segments(left)
        if not left:
            break
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(0.1)
        psutil.wait_procs(left, timeout=1.0)
    return segments


def _say(line: str) -> None:
    # The harness may be gone: then there is nobody to tell.
    with contextlib.suppress(OSError):
        os.write(1, (line + "\n").encode())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
