"""Bytes that the tier's own devices and ports counted around a wave: did the KV come from where the site says?

Checked where the site names them. What the serving process read says that the page cache gave nothing; only the
devices say which storage was behind it.
"""

from __future__ import annotations

from collections.abc import Sequence

from gates.nodata import NoData
from gates.validity.books import AGREEMENT, Span, no_data, shown
from gates.validity.breach import HOST, Tell
from gates.validity.expected import Expected, Wave

# From above a device may show what a file system reads besides the chunks: inodes, extents, the ends of its blocks.
# More is somebody else's load, under which nothing that was measured holds.
DEVICE_EXTRA = 0.05
# Port counters include headers: 64 to 90 bytes a packet, so 2 % at an MTU of 4096 and 8 % at 1024, and the target's
# answers and acknowledgements.
PORT_EXTRA = 0.10


def check_devices(wave: Wave, expected: Expected, wanted: Span, tell: Tell) -> None:
    """Compare the bytes that all of the tier's devices, and all of its ports, counted with the `wanted` of hit tokens.

    Fewer came out of a cache or over another path; a counter that is missing or fell proves nothing.
    """
    least, most = wanted
    for check, key, names, extra in (
        ("device-bytes", "device_read_bytes", expected.block_devices, DEVICE_EXTRA),
        ("port-bytes", "port_receive_bytes", expected.rdma_ports, PORT_EXTRA),
    ):
        if not names:
            continue
        counted = _counted(wave, key, names)
        if isinstance(counted, NoData):
            no_data(wave, check, counted.reason, tell)
        elif not (1 - AGREEMENT) * least <= counted <= (1 + AGREEMENT + extra) * most:
            where = "less, so not all of it came from there" if counted < least else "more, so others read there too"
            told = f"{' and '.join(names)} counted {counted} bytes, {shown(wanted, '.0f')} expected"
            tell(check, HOST, f"wave {wave.number}: {told}: {where}")


def _counted(wave: Wave, key: str, names: Sequence[str]) -> int | NoData:
    """Return how many bytes all the named counters rose by during the wave."""
    total = 0
    for name in names:
        begin, end = wave.before[key].get(name), wave.after[key].get(name)
        if type(begin) is not int or type(end) is not int:
            return NoData(f"no data on the bytes that {name} counted")
        if end < begin:
            return NoData(f"the counter of {name} fell from {begin} to {end}: it was reset, or it wrapped")
        total += end - begin
    return total
