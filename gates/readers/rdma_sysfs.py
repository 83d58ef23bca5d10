"""RDMA ports as a walk of /sys/class/infiniband shows them: GIDs with their types, and all counters.

A line is an attribute: "mlx5_0/ports/1/state = 4: ACTIVE" or "/sys/.../mlx5_0/ports/1/state: '4: ACTIVE'".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from gates.readers.error import ReaderError, answer, integer, shown, whole_lines, word
from gates.readers.rdma import Gid, Port, gid_of, port_of_sysfs
from workloads.bundle import Output

_PORT = re.compile(r"(?:.*/)?([\w.-]+)/ports/(\d{1,5})/([\w/]+)(?: = |: )(.*)")
_DEVICE = re.compile(r"(?:.*/)?([\w.-]+)/(fw_ver|board_id)(?: = |: )(.*)")


@dataclass(frozen=True)
class SysfsPort:
    """One port with its counters; one that it does not have is not among them."""

    port: Port
    counters: Mapping[str, int]  # port_rcv_data counts 4 bytes each
    hw_counters: Mapping[str, int]


def ports(output: Output) -> tuple[SysfsPort, ...]:
    """Return the ports of a walk in its order. Raises ReaderError: none in it."""
    told: dict[tuple[str, int], dict[str, str]] = {}
    of_device: dict[str, dict[str, str]] = {}
    for line in whole_lines(answer(output), output):
        if "ERRNO" in line:  # the walk could not read it
            continue
        if match := _PORT.fullmatch(line):
            device, port, key, value = match.groups()
            told.setdefault((device, int(port)), {}).setdefault(key, value.strip().strip("'"))
        elif match := _DEVICE.fullmatch(line):
            of_device.setdefault(match[1], {}).setdefault(match[2], match[3].strip().strip("'"))
    if not told:
        raise ReaderError(f"{output.command}: shows no RDMA port, but {shown(answer(output))}")
    return tuple(
        SysfsPort(
            port_of_sysfs(device, port, {**of_device.get(device, {}), **said}, _gids(said)),
            _counters(said, "counters"),
            _counters(said, "hw_counters"),
        )
        for (device, port), said in told.items()
    )


def _gids(told: Mapping[str, str]) -> tuple[Gid, ...]:
    read = []
    for key, value in told.items():
        folder, _, index = key.partition("/")
        if folder == "gids" and re.fullmatch(r"[0-9]{1,5}", index):
            gid = gid_of(int(index), value, told.get(f"gid_attrs/types/{index}"))
            if gid is not None:
                read.append(replace(gid, netdev=word(told.get(f"gid_attrs/ndevs/{index}"))))
    return tuple(sorted(read, key=lambda gid: gid.index))


def _counters(told: Mapping[str, str], folder: str) -> dict[str, int]:
    found = {key.partition("/"): integer(value) for key, value in told.items()}
    return {name: count for (top, _, name), count in found.items() if top == folder and count is not None}
