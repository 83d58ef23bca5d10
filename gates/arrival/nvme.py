"""Local NVMe drives: are those there that were ordered, by serial number, with the firmware and size of the order?"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from gates.arrival import topology
from gates.arrival.check import Collector, Finding, Plan, finding, unseen
from gates.arrival.host import Host, Seen
from gates.arrival.limits import Limits
from gates.arrival.topology import Unit
from gates.nodata import NoData
from scenarios.bom import Bom, Drives

LIVE = "live"
Take = Callable[[Unit], object]


def plan(bom: Bom, limits: Limits) -> Plan:
    """Return the checks of the declared drives."""
    gathered = Collector()
    for name, drives in bom.drives.items():
        at = f"drives.{name}"
        gathered.add(
            at, "presence", ", ".join(drives.serials) or f"{drives.count} of {drives.model}", partial(_there, drives)
        )
        for metric, declared, take in (
            ("model", drives.model, _model),
            ("firmware", drives.firmware, _firmware),
            ("size_bytes", drives.size_bytes, _size),
            ("sector_bytes", drives.sector_bytes, _sector),
            ("controllers", drives.controllers, _controllers),
        ):
            gathered.add(at, metric, declared, partial(_each, drives, metric, declared, take))
    if not bom.drives:
        gathered.lacks("drives", "presence")
    return gathered.plan()


def mine(drives: Drives, host: Host) -> Seen[tuple[Unit, ...]]:
    """Return the drives of the group that are there."""
    seen = topology.units(host)
    if isinstance(seen.value, NoData):
        return seen
    if drives.serials:
        return Seen(tuple(u for u in seen.value if u.serial in drives.serials), seen.raw)
    return Seen(tuple(u for u in seen.value if u.model == drives.model), seen.raw)


def missing(drives: Drives, units: tuple[Unit, ...]) -> list[str]:
    """Return a line per declared drive that is not there."""
    there = {unit.serial for unit in units}
    lost = [f"drive {serial} is not there" for serial in drives.serials if serial not in there]
    if not drives.serials and drives.count is not None and len(units) < drives.count:
        lost.append(f"{len(units)} drives of model {drives.model} are there, {drives.count} were declared")
    return lost


def _there(drives: Drives, host: Host) -> Finding:
    seen = mine(drives, host)
    if isinstance(seen.value, NoData):
        return unseen(seen.value, seen.raw)
    faults = missing(drives, seen.value)
    if not drives.serials and drives.count is not None and len(seen.value) > drives.count:
        faults.append(f"{len(seen.value)} drives of model {drives.model} are there, {drives.count} were declared")
    faults += [f"drive {unit.serial} shows no namespace" for unit in seen.value if not unit.drives]
    states = topology.states(host)
    raw = seen.raw
    for unit in seen.value:
        for controller in unit.controllers:
            state = states.value.get(controller, LIVE) if not isinstance(states.value, NoData) else LIVE
            if state != LIVE:
                faults.append(f"drive {unit.serial}: controller {controller} is {state}")
                raw = (*raw, *states.raw)
    return finding(faults, ", ".join(_named(unit) for unit in seen.value) or "none", "all there", raw)


def _each(drives: Drives, metric: str, declared: object, take: Take, host: Host) -> Finding:
    seen = mine(drives, host)
    if isinstance(seen.value, NoData):
        return unseen(seen.value, seen.raw)
    faults, unknown, told = [], missing(drives, seen.value), []
    for unit in seen.value:
        found = take(unit)
        if found is None:
            unknown.append(f"drive {_named(unit)}: its {metric} is not told")
            continue
        told.append(str(found))
        if found != declared:
            faults.append(f"drive {_named(unit)}: {metric} {found}, {declared} was declared")
    return finding(faults, ", ".join(dict.fromkeys(told)), f"{len(told)} as declared", seen.raw, unknown)


def _named(unit: Unit) -> str:
    devices = ", ".join(drive.device for drive in unit.drives) or ", ".join(unit.controllers)
    return f"{unit.serial} ({devices})" if devices else unit.serial


def _model(unit: Unit) -> object:
    return unit.model


def _firmware(unit: Unit) -> object:
    return unit.firmware


def _size(unit: Unit) -> object:
    sizes = [drive.size_bytes for drive in unit.drives]
    known = [size for size in sizes if size is not None]
    return sum(known) if known and len(known) == len(sizes) else None


def _sector(unit: Unit) -> object:
    found = {drive.sector_bytes for drive in unit.drives}
    return found.pop() if len(found) == 1 else ", ".join(map(str, sorted(map(str, found)))) or None


def _controllers(unit: Unit) -> object:
    return len(unit.controllers) or None
