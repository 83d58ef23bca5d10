"""Run a command to its end under the keeper, with all that it starts, and tell what they used."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.peers import keeper as program
from bench.peers.failed import PeerFailed, last_line, tail


@dataclass(frozen=True)
class Usage:
    """What a kept process tree took: exit status (negative: the signal), wall and CPU seconds."""

    status: int
    wall_s: float
    cpu_s: float


def keep(name: str, argv: Sequence[str], env: Mapping[str, str], cwd: Path, log: Path, timeout_s: float) -> Usage:
    """Run `argv` to its end, with all that it starts, and return what the tree used; none of it outlives the call.

    Raises:
        PeerFailed: it took longer than `timeout_s` seconds or cannot be started.
    """
    usage = log.with_suffix(".usage.json")
    usage.unlink(missing_ok=True)
    with log.open("wb") as out:
        keeper = subprocess.Popen(
            [sys.executable, "-I", str(Path(program.__file__).resolve()), str(usage), "--", *argv],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            cwd=cwd,
            env=dict(env),
            start_new_session=True,  # Ctrl-C reaches us, not the generator: we end it
        )
    try:
        keeper.wait(timeout_s)
    except subprocess.TimeoutExpired:
        raise PeerFailed(f"{name}: not done within {timeout_s:.0f} s (log: {log})") from None
    finally:
        if keeper.poll() is None:
            keeper.terminate()
            try:
                keeper.wait(2 * program.END_S)
            except subprocess.TimeoutExpired:
                os.killpg(keeper.pid, signal.SIGKILL)
                keeper.wait()
    try:
        return Usage(**json.loads(usage.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        raise PeerFailed(f"{name}: {last_line(tail(log)) or 'its keeper was ended'} (log: {log})") from None
