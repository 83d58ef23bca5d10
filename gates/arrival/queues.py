"""How the kernel queues I/O for a drive or for a namespace of an array: its scheduler, and when it gives up waiting."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from gates.arrival import nvme, paths, topology
from gates.arrival.check import Collector, Finding, Plan, finding, unseen
from gates.arrival.host import Host, Seen
from gates.arrival.limits import Limits
from gates.nodata import NoData
from gates.readers import block, sysfs
from scenarios.bom import Bom, Drives, Subsystem

Devices = Callable[[Host], Seen[tuple[str, ...]]]


def plan(bom: Bom, limits: Limits) -> Plan:
    """Return the checks of the declared queues."""
    gathered = Collector()
    of: list[tuple[str, Drives | Subsystem, Devices]] = [
        *((f"drives.{name}", drives, partial(_of_drives, drives)) for name, drives in bom.drives.items()),
        *((f"subsystems.{name}", each, partial(_of_subsystem, each)) for name, each in bom.subsystems.items()),
    ]
    for at, wanted, devices in of:
        gathered.add(at, "scheduler", wanted.scheduler, partial(_scheduler, wanted.scheduler or "", devices))
        timeout = None if wanted.io_timeout_s is None else f"{wanted.io_timeout_s:g} s"
        gathered.add(at, "io_timeout", timeout, partial(_io_timeout, wanted.io_timeout_s or 0.0, devices))
    return gathered.plan()


def _of_drives(drives: Drives, host: Host) -> Seen[tuple[str, ...]]:
    seen = nvme.mine(drives, host)
    if isinstance(seen.value, NoData):
        return Seen(seen.value, seen.raw)
    if lost := nvme.missing(drives, seen.value):
        return Seen(NoData("; ".join(lost)), seen.raw)
    return Seen(tuple(drive.device for unit in seen.value for drive in unit.drives), seen.raw)


def _of_subsystem(wanted: Subsystem, host: Host) -> Seen[tuple[str, ...]]:
    found = paths.mine(wanted, host)
    if found.value is None:
        return Seen(NoData(f"subsystem {wanted.nqn} is not connected"), found.raw)
    if isinstance(found.value, NoData):
        return Seen(found.value, found.raw)
    seen = topology.of_subsystem(host, found.value)
    if isinstance(seen.value, NoData):
        return Seen(seen.value, seen.raw)
    return Seen(tuple(drive.device for drive in seen.value.drives), seen.raw)


def _scheduler(declared: str, devices: Devices, host: Host) -> Finding:
    tree = topology.tree(host)
    told = {} if isinstance(tree.value, NoData) else {q.name: q.scheduler for q in sysfs.block_queues(tree.value)}
    listed = host.best(block.block_devices, len, "lsblk", "-J")
    by_lsblk = {} if isinstance(listed.value, NoData) else {each.name: each.scheduler for each in listed.value}
    known = {name: told.get(name) or by_lsblk.get(name) for name in {*told, *by_lsblk}}
    return _each("scheduler", declared, known, devices(host), (*tree.raw, *listed.raw))


def _io_timeout(declared_s: float, devices: Devices, host: Host) -> Finding:
    tree = topology.tree(host)
    queues = () if isinstance(tree.value, NoData) else sysfs.block_queues(tree.value)
    known = {q.name: None if q.io_timeout_ms is None else q.io_timeout_ms / 1000 for q in queues}
    return _each("I/O timeout in seconds", declared_s, known, devices(host), tree.raw)


def _each(
    what: str, declared: object, known: dict[str, str | None] | dict[str, float | None], mine: Seen[tuple[str, ...]],
    raw: tuple[str, ...],
) -> Finding:  # fmt: skip
    if isinstance(mine.value, NoData):
        return unseen(mine.value, (*mine.raw, *raw))
    if not mine.value:
        return unseen("no namespace can be reached", (*mine.raw, *raw))
    found = {device: known.get(device) for device in mine.value}
    faults = [
        f"{device}: {what} {value}, {declared} was declared"
        for device, value in found.items()
        if value is not None and value != declared
    ]
    unknown = [f"{device}: its {what} is not told" for device, value in found.items() if value is None]
    told = ", ".join(dict.fromkeys(str(value) for value in found.values() if value is not None))
    return finding(faults, told, f"{len(found)} as declared", (*raw, *mine.raw), unknown)
