"""NVMe-oF subsystems: the namespaces that were ordered, over every path that was ordered, all of them live."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from functools import partial

from gates.arrival import carried, topology
from gates.arrival.check import Collector, Finding, Plan, finding, same, unseen
from gates.arrival.host import Host, Seen
from gates.arrival.limits import Limits
from gates.arrival.topology import Unit
from gates.nodata import NoData
from gates.readers import nvme, sysfs
from scenarios.bom import Bom, Path, Subsystem

LIVE = "live"
OPTIMIZED = "optimized"
BLANK = "its SMART log is blank, which says nothing of the array's own drives"


def plan(bom: Bom, limits: Limits) -> Plan:
    """Return the checks of the declared subsystems."""
    gathered = Collector()
    for name, wanted in bom.subsystems.items():
        at = f"subsystems.{name}"
        gathered.add(at, "presence", wanted.nqn, partial(_there, wanted))
        for metric, declared, take in (
            ("serial", wanted.serial, _serial),
            ("model", wanted.model, _model),
            ("firmware", wanted.firmware, _firmware),
        ):
            gathered.add(at, metric, declared, partial(_identity, wanted, metric, declared, take))
        gathered.add(at, "product", wanted.product, partial(_product, wanted))
        gathered.add(at, "namespaces", wanted.namespaces, partial(_namespaces, wanted))
        gathered.add(at, "size_bytes", wanted.size_bytes, partial(_each, wanted, "size_bytes", wanted.size_bytes))
        gathered.add(
            at, "sector_bytes", wanted.sector_bytes, partial(_each, wanted, "sector_bytes", wanted.sector_bytes)
        )
        gathered.add(at, "transport", wanted.transport, partial(_transport, wanted))
        count = wanted.paths or len(wanted.path) or None
        gathered.add(at, "paths", f"{count or 'all'} live", partial(_paths, wanted, count))
        for path in wanted.path:
            gathered.add(f"{at}.path", way_id(path), _way_declared(path), partial(_way, wanted, path))
        gathered.add(at, "optimized", wanted.optimized_min, partial(_optimized, wanted))
        gathered.add(at, "io_policy", wanted.io_policy, partial(_io_policy, wanted))
        carry = "each path that the I/O policy uses carries bytes under load" if wanted.paths_carry else None
        gathered.add(at, "paths_carry", carry, partial(carried.judge, wanted.nqn, partial(mine, wanted)))
        for metric in ("ctrl_loss_tmo_s", "fast_io_fail_tmo_s", "reconnect_delay_s"):
            gathered.add(at, metric, getattr(wanted, metric), partial(_timeout, wanted, metric))
        if wanted.transport != "pcie":
            gathered.lacks(f"{at}.health", "health")  # what a target answers for is not the array's drives
    if not bom.subsystems:
        gathered.lacks("subsystems", "presence")
    return gathered.plan()


def way_id(path: Path) -> str:
    """Return a path's address as part of a row's id."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", path.traddr + (f"-{path.trsvcid}" if path.trsvcid else "")).strip("-")


def mine(wanted: Subsystem, host: Host) -> Seen[nvme.Subsystem | None]:
    """Return the subsystem of the declared NQN; None where the host has none of it."""
    return topology.of_nqn(host, wanted.nqn)


def _with(
    wanted: Subsystem, host: Host, judge: Callable[[nvme.Subsystem, tuple[str, ...]], Finding], *, gone: bool = False
) -> Finding:
    """Return what `judge` makes of the subsystem; `gone`: that it is not there is this check's fault to tell."""
    seen = mine(wanted, host)
    if isinstance(seen.value, NoData):
        return unseen(seen.value, seen.raw)
    if seen.value is None:
        told = f"subsystem {wanted.nqn} is not connected"
        return finding([told], "none", "", seen.raw) if gone else unseen(told, seen.raw)
    return judge(seen.value, seen.raw)


def _there(wanted: Subsystem, host: Host) -> Finding:
    def judge(found: nvme.Subsystem, raw: tuple[str, ...]) -> Finding:
        ways = ", ".join(_named(path) for path in found.paths)
        return finding([], f"{found.name}: {ways}", f"{found.name} is connected", raw)

    return _with(wanted, host, judge, gone=True)


def _unit(wanted: Subsystem, host: Host, judge: Callable[[Unit, tuple[str, ...]], Finding]) -> Finding:
    def of(found: nvme.Subsystem, raw: tuple[str, ...]) -> Finding:
        seen = topology.of_subsystem(host, found)
        return unseen(seen.value, seen.raw) if isinstance(seen.value, NoData) else judge(seen.value, seen.raw)

    return _with(wanted, host, of)


def _identity(wanted: Subsystem, metric: str, declared: object, take: Callable[[Unit], object], host: Host) -> Finding:
    return _unit(wanted, host, lambda unit, raw: same(f"{wanted.nqn}: {metric}", declared, take(unit), raw))


def _product(wanted: Subsystem, host: Host) -> Finding:
    def judge(unit: Unit, raw: tuple[str, ...]) -> Finding:
        if unit.model is None:
            return unseen(f"{wanted.nqn}: its model is not told", raw)
        names = re.search(rf"(?<![A-Za-z0-9]){re.escape(wanted.product or '')}(?![A-Za-z0-9])", unit.model) is not None
        faults = [] if names else [f"{wanted.nqn}: model {unit.model} does not name {wanted.product}"]
        return finding(faults, unit.model, f"model {unit.model} names it", raw)

    return _unit(wanted, host, judge)


def _namespaces(wanted: Subsystem, host: Host) -> Finding:
    def judge(unit: Unit, raw: tuple[str, ...]) -> Finding:
        names = ", ".join(drive.device for drive in unit.drives) or "none"
        there = f"{wanted.nqn}: {len(unit.drives)} namespaces can be reached ({names})"
        faults = [f"{there}, {wanted.namespaces} declared"] if len(unit.drives) != wanted.namespaces else []
        logs = topology.health(host, unit)
        told = () if isinstance(logs.value, NoData) else logs.value
        faults += [f"{log.device or names} warns: {', '.join(log.warnings)}" for log in told if log.critical_warning]
        note = f"; {BLANK}" if told and all(log.blank for log in told) else ""
        return finding(
            faults, names, f"{len(unit.drives)} as declared{note}", (*raw, *(logs.raw if faults or note else ()))
        )

    return _unit(wanted, host, judge)


def _each(wanted: Subsystem, metric: str, declared: object, host: Host) -> Finding:
    def judge(unit: Unit, raw: tuple[str, ...]) -> Finding:
        if not unit.drives:
            return unseen(f"{wanted.nqn}: no namespace can be reached", raw)
        told = {drive.device: getattr(drive, metric) for drive in unit.drives}
        faults = [
            f"{wanted.nqn}: {device} has {metric} {value}, {declared} was declared"
            for device, value in told.items()
            if value is not None and value != declared
        ]
        unknown = [f"{wanted.nqn}: {metric} of {device} is not told" for device, value in told.items() if value is None]
        found = ", ".join(dict.fromkeys(str(value) for value in told.values() if value is not None))
        return finding(faults, found, f"{len(told)} as declared", raw, unknown)

    return _unit(wanted, host, judge)


def _transport(wanted: Subsystem, host: Host) -> Finding:
    def judge(found: nvme.Subsystem, raw: tuple[str, ...]) -> Finding:
        faults = [
            f"path {_named(path)} is {path.transport}, {wanted.transport} was declared"
            for path in found.paths
            if path.transport is not None and path.transport != wanted.transport
        ]
        unknown = [f"transport of path {_named(path)} is not told" for path in found.paths if path.transport is None]
        unknown += [] if found.paths else [f"{wanted.nqn} has no path"]
        told = ", ".join(dict.fromkeys(path.transport for path in found.paths if path.transport))
        return finding(faults, told, f"{len(found.paths)} paths over {wanted.transport}", raw, unknown)

    return _with(wanted, host, judge)


def _paths(wanted: Subsystem, count: int | None, host: Host) -> Finding:
    def judge(found: nvme.Subsystem, raw: tuple[str, ...]) -> Finding:
        live = [path for path in found.paths if path.state == LIVE]
        faults = [f"path {_named(path)} is {path.state}" for path in found.paths if path.state not in (None, LIVE)]
        after = topology.of_nqn(host.after, wanted.nqn) if host.after is not None else Seen(found)
        if after.value is None:
            faults.append(f"{wanted.nqn} is not connected any more after the load")
        elif not isinstance(after.value, NoData):
            raw = (*raw, *after.raw)
            late = [path for path in after.value.paths if path.state not in (None, LIVE)]
            faults += [
                f"path {_named(path)} is {path.state} after the load" for path in late if path not in found.paths
            ]
            if len(after.value.paths) != len(found.paths):
                faults.append(f"{wanted.nqn} has {len(after.value.paths)} paths after the load")
        unknown = [f"state of path {_named(path)} is not told" for path in found.paths if path.state is None]
        if not found.paths:
            faults.append(f"{wanted.nqn} has no path")
        elif count is not None and len(found.paths) != count:
            faults.append(f"{wanted.nqn} has {len(found.paths)} paths, {count} were declared")
        return finding(faults, f"{len(live)} of {len(found.paths)} live", f"{len(live)} live", raw, unknown)

    return _with(wanted, host, judge, gone=True)


def _way_declared(path: Path) -> str:
    at = path.traddr + (f" port {path.trsvcid}" if path.trsvcid else "")
    return f"{at}, live" + (f", {path.ana}" if path.ana else "")


def _way(wanted: Subsystem, way: Path, host: Host) -> Finding:
    def judge(found: nvme.Subsystem, raw: tuple[str, ...]) -> Finding:
        here = [p for p in found.paths if _same_address(p.traddr, way.traddr) and way.trsvcid in (None, p.trsvcid)]
        at = f"{wanted.nqn}: path {_way_declared(Path(traddr=way.traddr, trsvcid=way.trsvcid)).removesuffix(', live')}"
        if not here:
            return finding([f"{at} is not there"], "none", "", raw)
        faults, unknown = [], []
        for path in here:
            if path.state is None:
                unknown.append(f"{at} ({path.controller}): its state is not told")
            elif path.state != LIVE:
                faults.append(f"{at} ({path.controller}) is {path.state}")
            elif way.ana is not None and path.ana_state is None:
                unknown.append(f"{at} ({path.controller}): its ANA state is not told")
            elif way.ana is not None and path.ana_state != way.ana:
                faults.append(f"{at} ({path.controller}) is {path.ana_state}, {way.ana} was declared")
        states = ", ".join(" ".join(filter(None, (p.controller, p.state, p.ana_state))) for p in here)
        return finding(faults, states, states, raw, unknown)

    return _with(wanted, host, judge, gone=True)


def _optimized(wanted: Subsystem, host: Host) -> Finding:
    def judge(found: nvme.Subsystem, raw: tuple[str, ...]) -> Finding:
        live = [path for path in found.paths if path.state == LIVE]
        best = [path for path in live if path.ana_state == OPTIMIZED]
        told = f"{len(best)} live and optimized"
        if len(best) >= (wanted.optimized_min or 0):
            return finding([], told, told, raw)
        if any(path.ana_state is None for path in live):
            return unseen(f"{wanted.nqn}: the ANA state of a live path is not told (nvme list-subsys DEVICE)", raw)
        others = ", ".join(f"{_named(path)} {path.state} {path.ana_state or ''}".strip() for path in found.paths)
        return finding([f"{wanted.nqn}: {told}, {wanted.optimized_min} declared ({others})"], told, "", raw)

    return _with(wanted, host, judge, gone=True)


def _io_policy(wanted: Subsystem, host: Host) -> Finding:
    return _with(
        wanted, host, lambda found, raw: same(f"{wanted.nqn}: I/O policy", wanted.io_policy, found.io_policy, raw)
    )


def _timeout(wanted: Subsystem, metric: str, host: Host) -> Finding:
    """Judge every path's timeout as the kernel tells it; declared -1 is never."""
    seen = topology.tree(host)
    if isinstance(seen.value, NoData):
        return unseen(seen.value, seen.raw)
    mine = [c for c in sysfs.nvme_controllers(seen.value) if c.subsystem_nqn == wanted.nqn]
    declared = float(getattr(wanted, metric))
    declared = sysfs.OFF if declared < 0 else declared
    faults, unknown, told = [], [] if mine else [f"{wanted.nqn}: /sys shows no path"], []
    for each in mine:
        at, found = f"{wanted.nqn}: path {each.traddr} ({each.name})", getattr(each, metric)
        if found is None:
            unknown.append(f"{at}: {metric} is not told")
            continue
        told.append("off" if found == sysfs.OFF else f"{found:g} s")
        if found != declared:
            faults.append(
                f"{at}: {metric} is {told[-1]}, {'off' if declared == sysfs.OFF else f'{declared:g} s'} was declared"
            )
    return finding(faults, ", ".join(dict.fromkeys(told)), "as declared", seen.raw, unknown)


def _same_address(found: str | None, declared: str) -> bool:
    """Return whether two addresses are one: an IPv6 address has many spellings."""
    try:
        return ipaddress.ip_address(found or "") == ipaddress.ip_address(declared)
    except ValueError:
        return found == declared


def _named(path: nvme.Path) -> str:
    return f"{path.traddr or 'unknown'}{f' port {path.trsvcid}' if path.trsvcid else ''} ({path.controller})"


def _serial(unit: Unit) -> object:
    return unit.serial or None


def _model(unit: Unit) -> object:
    return unit.model


def _firmware(unit: Unit) -> object:
    return unit.firmware
