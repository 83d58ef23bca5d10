"""Socket reads that carry the kernel's receive time, so that a busy process does not move what it measures.

The kernel stamps a packet when it comes in, however late the process reads it. A read that spans several segments
carries the stamp of the last one: whoever reads must see whether more than the awaited came with it.
"""

from __future__ import annotations

import functools
import socket
import struct
import time

# Linux's asm-generic number, which Python's socket module does not name; the control message has the same one.
SO_TIMESTAMPNS = 35
_TIMESPEC = struct.Struct("@qq")
_ANCILLARY_BYTES = socket.CMSG_SPACE(_TIMESPEC.size)
_NS = 1_000_000_000
SETTLING_S = 0.05


def switch_on(sock: socket.socket) -> bool:
    """Ask the kernel to stamp what this socket receives; return whether it will."""
    try:
        _keep_on()
        sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    except OSError:
        return False
    return True


@functools.cache
def _keep_on() -> None:
    """Hold a socket that wants stamps for the rest of this process.

    The kernel begins and ceases to stamp with the first and the last such socket, a little after it was asked: the
    first packets would come without.
    """
    holder = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    holder.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    holder.detach()  # the handle stays open
    time.sleep(SETTLING_S)


def read(sock: socket.socket, size_bytes: int) -> tuple[bytes, int | None]:
    """Return (data, CLOCK_REALTIME ns at which the kernel got its last segment; None where it does not say).

    Empty data: the other side has closed. Raises BlockingIOError when there is nothing, OSError when it broke.
    """
    data, ancillary, _, _ = sock.recvmsg(size_bytes, _ANCILLARY_BYTES)
    for level, kind, content in ancillary:
        if kind == SO_TIMESTAMPNS and level == socket.SOL_SOCKET:
            seconds, ns = _TIMESPEC.unpack(content)
            return data, seconds * _NS + ns
    return data, None


def both_clocks_ns() -> tuple[int, int]:
    """Return (CLOCK_MONOTONIC, CLOCK_REALTIME) of one moment, ns.

    The narrowest of a few tries: a process that is put aside between two readings would see a step of the clock.
    """
    best_width_ns, best = 1 << 62, (0, 0)
    for _ in range(3):
        before_ns = time.monotonic_ns()
        realtime_ns = time.time_ns()
        after_ns = time.monotonic_ns()
        if after_ns - before_ns < best_width_ns:
            best_width_ns, best = after_ns - before_ns, ((before_ns + after_ns) // 2, realtime_ns)
    return best


def clock_offset_ns() -> int:
    """Return CLOCK_REALTIME minus CLOCK_MONOTONIC, ns: constant unless somebody steps the clock."""
    monotonic_ns, realtime_ns = both_clocks_ns()
    return realtime_ns - monotonic_ns
