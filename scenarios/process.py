"""One process of an arm, held by a keeper that ends it when we end, however we end."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parent.parent


class StartFailed(RuntimeError):
    """An arm's process could not be brought up: the cause in one sentence, and the log's telling lines."""

    def __init__(
        self, cause: str, lines: Sequence[str] = (), log: Path | None = None, whose: str | None = None
    ) -> None:
        """`whose`: "host" where the arm has no part in it."""
        super().__init__(cause)
        self.whose = whose
        self.cause = cause
        self.lines = tuple(lines)
        self.log = log
        self.arm: str | None = None  # whose start it was, where several arms come up together


class Kept:
    """A running process and its tree. Make it with `start`, end it with `stop`."""

    def __init__(self, name: str, argv: Sequence[str], env: Mapping[str, str], log: Path, grace_s: float) -> None:
        """Start `argv` (never a shell string) with exactly `env`. Raises StartFailed when it cannot be executed.

        The process gets a scratch folder of its own as TMPDIR: sockets that it leaves there go with it.
        """
        self.name = name
        self.log = log
        self.argv = list(argv)
        self._grace_s = grace_s
        log.parent.mkdir(parents=True, exist_ok=True)
        # Unix socket paths are limited to about a hundred characters, so this must be short.
        scratch = self._scratch = tempfile.mkdtemp(prefix="kvgate-")
        self._keeper = subprocess.Popen(
            [
                sys.executable, "-m", "scenarios.keeper", "--log", str(log), "--scratch", scratch,
                "--grace-s", str(grace_s), "--", *argv,
            ],
            cwd=ROOT,
            env={**env, "TMPDIR": scratch, "VLLM_RPC_BASE_PATH": scratch, "KVGATE_KEEPER": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C reaches us, not the engine: we end it in order
        )  # fmt: skip
        assert self._keeper.stdout is not None  # noqa: S101  # for the type checker: PIPE was asked for
        first = self._keeper.stdout.readline().decode("utf-8", "replace").split(maxsplit=1)
        if not first or first[0] != "started":
            self.stop()
            raise StartFailed(f"{name}: cannot be started: {first[1].strip() if len(first) > 1 else argv[0]}", log=log)
        self.pid = int(first[1])

    def exit_status(self) -> int | None:
        """Return None while the process lives, else its status (negative: the signal that ended it)."""
        if self._keeper.poll() is None:
            # The keeper needs a moment to clear up; the process itself may be gone already.
            with contextlib.suppress(psutil.NoSuchProcess):
                if psutil.Process(self.pid).status() != psutil.STATUS_ZOMBIE:
                    return None
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._keeper.wait(self._grace_s + 15.0)
        assert self._keeper.stdout is not None  # noqa: S101
        for line in self._keeper.stdout.read().decode("utf-8", "replace").splitlines():
            if line.startswith("ended "):
                self._ended = int(line.split()[1])
        return getattr(self, "_ended", -9)

    def tree(self) -> list[psutil.Process]:
        """Return the process and all its descendants that are alive."""
        try:
            return psutil.Process(self._keeper.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []

    def stop(self) -> None:
        """End the process and its tree; returns when none of it is left."""
        assert self._keeper.stdin is not None  # noqa: S101
        with contextlib.suppress(OSError):
            self._keeper.stdin.close()
        try:
            self._keeper.wait(self._grace_s + 30.0)
        except subprocess.TimeoutExpired:
            for process in self.tree():
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            self._keeper.kill()
            self._keeper.wait()
        finally:
            if self._keeper.stdout is not None:
                self._keeper.stdout.close()
            shutil.rmtree(self._scratch, ignore_errors=True)  # the keeper's work, unless it was killed


class Activity:
    """What a process tree has done so far: CPU seconds, storage bytes, log bytes other than heartbeats."""

    def __init__(self, stall_s: float, now_s: float | None = None) -> None:
        self._stall_s = stall_s
        self._last: tuple[float, int, int] | None = None
        self._since_s = time.monotonic() if now_s is None else now_s

    def stalled(self, cpu_s: float, io_bytes: int, log_lines: int, now_s: float) -> bool:
        """Return whether nothing has moved for the stall time.

        A hung start still polls and prints a heartbeat a minute, so a little CPU (a twentieth of a core) and some
        bytes do not count as progress; a new line other than a heartbeat does.
        """
        if self._last is not None:
            cpu_before_s, io_before_bytes, lines_before = self._last
            idle = (
                cpu_s - cpu_before_s < 0.05 * max(now_s - self._since_s, 1.0)
                and io_bytes - io_before_bytes < 1_000_000
                and log_lines <= lines_before
            )
            if idle:
                return now_s - self._since_s >= self._stall_s
        self._last = (cpu_s, io_bytes, log_lines)
        self._since_s = now_s
        return False


def tree_usage(processes: Sequence[psutil.Process]) -> tuple[float, int]:
    """Return (CPU seconds, bytes read from and written to storage) of these processes together."""
    cpu_s, io_bytes = 0.0, 0
    for process in processes:
        with contextlib.suppress(psutil.Error, OSError):
            times = process.cpu_times()
            cpu_s += times.user + times.system
            io = process.io_counters()
            io_bytes += io.read_bytes + io.write_bytes
    return cpu_s, io_bytes


def free_ports(count: int) -> list[int]:
    """Return that many different TCP ports that are free now on the loopback address."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM)) for _ in range(count)]
        for s in sockets:
            s.bind(("127.0.0.1", 0))
        return [int(s.getsockname()[1]) for s in sockets]


def port_is_free(port: int) -> bool:
    """Return whether a server could listen on that TCP port of the loopback address now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            s.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def started_ticks(pid: int) -> int | str | None:
    """Return when the process started, in clock ticks since boot (field 22 of /proc/<pid>/stat).

    None: there is no such process. Why it could not be read (the errno's name) says nothing about the process.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, "unknown")
    return int(text.rsplit(")", 1)[1].split()[19])


def clean_environment() -> dict[str, str]:
    """Return this process's environment without what belongs to the harness alone."""
    ours = ("PYTEST_", "KVGATE_", "COV_")
    return {
        k: v
        for k, v in os.environ.items()
        if not k.startswith(ours) and k not in ("PYTHONPATH", "MAKEFLAGS", "MAKELEVEL", "MFLAGS")
    }
