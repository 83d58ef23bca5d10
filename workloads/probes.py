"""Run one host tool and keep its raw output: what the machine was like before and after."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

from workloads.evidence import RunDir

DEADLINE_S = 20.0

HOST_PROBES: dict[str, Sequence[str]] = {
    "uname": ("uname", "-a"),
    "lscpu": ("lscpu",),
    "memory": ("cat", "/proc/meminfo"),
    "load": ("cat", "/proc/loadavg"),
    "mounts": ("cat", "/proc/self/mountinfo"),
    "disks": ("df", "-B1"),
    "packages": (sys.executable, "-m", "pip", "list", "--format=freeze", "--disable-pip-version-check"),
}


def probe(argv: Sequence[str]) -> str:
    """Return the tool's command, output, error output and status as one text. A missing tool is said, not raised."""
    head = f"$ {' '.join(argv)}\n"
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=DEADLINE_S,
            env={**os.environ, "LC_ALL": "C"},
            check=False,
        )
    except FileNotFoundError:
        return f"{head}[missing: {argv[0]}]\n"
    except subprocess.TimeoutExpired:
        return f"{head}[no end within {DEADLINE_S:g} s]\n"
    out, err = done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")
    return f"{head}{out}" + (f"[stderr]\n{err}" if err else "") + f"[status {done.returncode}]\n"


def record_host(run: RunDir, when: str) -> None:
    """Write host/<when>/<probe>.txt for every host probe; of a resumed run host/<when>-2 and on."""
    for name, argv in HOST_PROBES.items():
        run.write_bytes(f"host/{run.of_session(when)}/{name}.txt", probe(argv).encode())
