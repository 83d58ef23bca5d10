"""What the machine was like before and after a run: a few tools, each one's output as a text of its own."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from workloads.evidence import RunDir
from workloads.probes import run_tool

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
    """Return the tool's command, output, error output and status as one text. What went wrong is said, not raised."""
    ran = run_tool(argv, DEADLINE_S)
    out, err = ran.stdout.decode("utf-8", "replace"), ran.stderr.decode("utf-8", "replace")
    told = f"$ {' '.join(argv)}\n{out}" + (f"[stderr]\n{err}" if err else "")
    return told + f"[status {ran.status}]\n" + (f"[{ran.note}]\n" if ran.note else "")


def record_host(run: RunDir, when: str) -> None:
    """Write host/<when>/<probe>.txt for every host probe; of a resumed run host/<when>-2 and on."""
    for name, argv in HOST_PROBES.items():
        run.write_bytes(f"host/{run.of_session(when)}/{name}.txt", probe(argv).encode())
