"""Which priorities a port pauses, and by what it knows a packet's priority: `mlnx_qos -i`, `dcb -j pfc|apptrust show`.

Formats: mlnx-tools; iproute2's dcb_pfc.c and dcb_apptrust.c.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from gates.readers.error import ReaderError, answer, document, shown
from workloads.bundle import Output

PRIORITIES = 8


@dataclass(frozen=True)
class Qos:
    """A port's quality of service. ECN is no part of it: sysfs tells that."""

    trust: str | None  # dscp or pcp
    pfc: tuple[bool, ...]  # by priority, 8 of them
    dscp_priority: Mapping[int, int]  # {} where the table is not printed, as under trust pcp
    firmware_controlled: bool | None  # DCBX by the firmware: the settings here may not be those in force
    cable_length_m: int | None


def qos(output: Output) -> Qos:
    """Return what `mlnx_qos -i` shows. Raises ReaderError: no PFC table of 8 priorities."""
    found = answer(output)
    head = re.search(r"^[ \t]*priority((?:[ \t]+\d)+)[ \t\r]*$", found, re.MULTILINE)
    row = re.search(r"^[ \t]*enabled((?:[ \t]+[01])+)[ \t\r]*$", found, re.MULTILINE)
    enabled = row[1].split() if row else []
    if head is None or head[1].split() != [str(p) for p in range(PRIORITIES)] or len(enabled) != PRIORITIES:
        raise ReaderError(f"{output.command}: shows no PFC of 8 priorities, but {shown(found)}")
    trust = re.search(r"^Priority trust state:\s*(\w+)", found, re.MULTILINE)
    control = re.search(r"^DCBX mode:\s*(OS|Firmware) controlled", found, re.MULTILINE)
    cable = re.search(r"^Cable len:\s*(\d{1,6})\s*$", found, re.MULTILINE)
    dscp: dict[int, int] = {}
    for priority, values in re.findall(r"^\s*prio:([0-7])\s+dscp:([\d,]*)", found, re.MULTILINE):
        for value in re.findall(r"\d{1,2}", values):
            if dscp.setdefault(int(value), int(priority)) != int(priority):
                raise ReaderError(f"{output.command}: maps dscp {value} to two priorities")
    return Qos(
        trust=trust[1].lower() if trust and trust[1].lower() in ("dscp", "pcp") else None,
        pfc=tuple(flag == "1" for flag in enabled),
        dscp_priority=dscp,
        firmware_controlled=control[1] == "Firmware" if control else None,
        cable_length_m=int(cable[1]) if cable else None,
    )


def dcb_pfc(output: Output) -> tuple[bool, ...]:
    """Return which of the 8 priorities `dcb -j pfc show dev X` tells to be paused. Raises ReaderError: not 8."""
    answer(output)
    found = document(output)
    told = found.get("prio_pfc") if isinstance(found, dict) else None
    if not isinstance(told, list) or len(told) != PRIORITIES or not all(isinstance(each, bool) for each in told):
        raise ReaderError(f"{output.command}: tells no PFC of 8 priorities, but {shown(str(found))}")
    return tuple(told)


def dcb_trust(output: Output) -> tuple[str, ...]:
    """Return by what `dcb -j apptrust show dev X` tells that a port goes, the first counting most, as ("dscp", "pcp").

    Raises ReaderError: no such list.
    """
    answer(output)
    found = document(output)
    order = found.get("order") if isinstance(found, dict) else None
    if not isinstance(order, list) or not all(isinstance(each, str) for each in order):
        raise ReaderError(f"{output.command}: tells no order of trust, but {shown(str(found))}")
    return tuple(each.strip() for each in order)
