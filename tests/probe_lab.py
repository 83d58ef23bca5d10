"""What the collector is tried on: commands of this Python, one that cannot be killed among them."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

from workloads import probes
from workloads.probes import run_tool

FILE = Path(probes.__file__)
PYTHON = sys.executable


def python(code: str, *args: str) -> tuple[str, ...]:
    return (PYTHON, "-S", "-c", textwrap.dedent(code), *args)


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


UNKILLABLE = """
    # SIGKILL ends this process, but who traces it does not look: for its parent it goes on, as one that is blocked
    # in the kernel does. A real process, and a real wait that does not end.
    import ctypes, os, sys, time
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    libc.prctl(0x59616d61, ctypes.c_ulong(-1).value, 0, 0, 0)  # PR_SET_PTRACER, any
    ready_out, ready_in = os.pipe()
    tracer = os.fork()
    if tracer == 0:
        os.setsid()
        done = libc.ptrace(0x4206, os.getppid(), None, None)  # PTRACE_SEIZE
        os.write(ready_in, b'1' if done == 0 else b'0')
        os.close(1), os.close(2)
        time.sleep(30)
        os._exit(0)
    if os.read(ready_out, 1) != b'1':
        print('cannot trace', flush=True)
        sys.exit(0)
    print(tracer, flush=True)
    time.sleep(60)
"""


def unkillable_can_be_made() -> bool:
    ran = run_tool(python(UNKILLABLE.replace("time.sleep(60)", "os.kill(tracer, 9)")), 10)
    return ran.stdout != b"cannot trace\n"
