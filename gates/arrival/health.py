"""Health of what is declared: SMART of the drives, and what the kernel's log tells of every device and mount."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import partial

from gates.arrival import mounts, nvme, paths, topology
from gates.arrival.check import Collector, Finding, Plan, finding, unseen
from gates.arrival.host import Host, Seen
from gates.arrival.limits import Limit, Limits
from gates.nodata import NoData
from gates.readers import dmesg, ethtool, pci
from gates.readers.smart import Health
from scenarios.bom import Bom, Drives, Mount, RocePort, Subsystem
from scenarios.bom import Host as Machine

# A reader's value of one health log, in the unit of its limit; None where the log does not tell it.
SMART: dict[str, Callable[[Health], int | None]] = {
    "critical_warning": lambda log: log.critical_warning,
    "media_errors": lambda log: log.media_errors,
    "wear": lambda log: log.percentage_used,
    "temperature": lambda log: _hottest(log),
    "spare_margin": lambda log: _spare(log),
}
# What the log tells of a file system, and not of the device under it.
OF_FILESYSTEMS = ("fs-read-only", "fs-error")
# Trouble that stays one after the device is well again: data may be lost.
NEVER_OVER = (
    *OF_FILESYSTEMS,
    "io-error",
    "io-failed",
    "critical",
    "raid",
    "nic-health",
    "aer-uncorrected",
    "namespace",
)
TOLD_ONLY = ("aer-corrected",)
DMESG = (("dmesg", "-x", "--time-format=iso"), ("dmesg", "-J"), ("dmesg",), ("dmesg", "-T"))
Names = Callable[[Host], tuple[set[str], tuple[str, ...]] | NoData]


def plan(bom: Bom, limits: Limits) -> Plan:
    """Return the checks of the health of everything that is declared."""
    gathered = Collector()
    for name, drives in bom.drives.items():
        for metric in SMART:
            limit = limits.of(metric)
            declared = f"{limit.operator} {limit.limit:g} {limit.unit}"
            gathered.add(f"drives.{name}", metric, declared, partial(_smart, drives, limit), limit)
    if not (bom.host or Machine()).kernel_log:
        gathered.lacks("host.kernel_log", "kernel_log")
        return gathered.plan()
    limit = limits.of("kernel_log")
    of: list[tuple[str, str, Names]] = []
    of += [
        (f"drives.{name}", ", ".join(d.serials) or d.model or name, partial(_of_drives, d))
        for name, d in bom.drives.items()
    ]
    of += [(f"subsystems.{name}", s.nqn, partial(_of_subsystem, s)) for name, s in bom.subsystems.items()]
    of += [(f"ports.{name}", p.netdev or p.device or name, partial(_of_port, p)) for name, p in bom.ports.items()]
    of += [(f"mounts.{name}", m.target, partial(_of_mount, m)) for name, m in bom.mounts.items()]
    for at, told, names in of:
        gathered.add(at, "kernel_log", "no trouble in the kernel's log", partial(_log, at, told, names, limit), limit)
    return gathered.plan()


def _smart(drives: Drives, limit: Limit, host: Host) -> Finding:
    """Judge every drive of the group by its worst reading, of whichever tool."""
    seen = nvme.mine(drives, host)
    if isinstance(seen.value, NoData):
        return unseen(seen.value, seen.raw)
    faults, unknown = [], nvme.missing(drives, seen.value)
    raw: list[str] = []
    values: list[int] = []
    for unit in seen.value:
        logs = topology.health(host, unit)
        raw += logs.raw
        at = f"drive {unit.serial} ({', '.join(unit.devices)})"
        if isinstance(logs.value, NoData):
            unknown.append(f"{at}: {logs.value.reason}")
            continue
        told = [value for log in logs.value if (value := SMART[limit.metric](log)) is not None]
        if all(log.blank for log in logs.value):
            unknown.append(f"{at}: its health log is blank, which says nothing of it")
        elif not told:
            unknown.append(f"{at}: its health log tells no {limit.metric}")
        else:
            worst = max(told) if limit.operator == "<=" else min(told)
            values.append(worst)
            if not limit.holds(worst):
                faults.append(f"{at}: {limit.metric} {worst} {limit.unit}{_words(limit.metric, logs.value)}")
    worst_of_all = (max(values) if limit.operator == "<=" else min(values)) if values else None
    found = "" if worst_of_all is None else f"{worst_of_all} {limit.unit}"
    judged = finding(faults, found, f"{limit.metric} {found} at worst", (*raw, *seen.raw), unknown)
    return Finding(judged.verdict, judged.found, judged.reason, judged.raw, worst_of_all)


def _words(metric: str, logs: Iterable[Health]) -> str:
    warnings = dict.fromkeys(word for log in logs for word in log.warnings)
    return f" ({', '.join(warnings)})" if metric == "critical_warning" and warnings else ""


def _hottest(log: Health) -> int | None:
    told = [degrees for degrees in (log.temperature_c, *log.temperature_sensors_c) if degrees is not None]
    return max(told) if told else None


def _spare(log: Health) -> int | None:
    spare, least = log.available_spare_percent, log.available_spare_threshold_percent
    return None if spare is None or least is None else spare - least


def _log(at: str, told: str, names: Names, limit: Limit, host: Host) -> Finding:
    """Judge by the log before and, if there was one, after a load: the kernel keeps but a part, or it was cleared."""
    logs = [each.read(dmesg.kernel_log, *DMESG) for each in (host, host.after) if each is not None]
    unknown = [seen.value.reason for seen in logs if isinstance(seen.value, NoData)]
    known_logs = [seen.value for seen in logs if not isinstance(seen.value, NoData)]
    files = tuple(file for seen in logs for file in seen.raw)
    if not known_logs:
        return unseen("; ".join(dict.fromkeys(unknown)), files)
    # Whether a trouble is over is told by the last log that holds it.
    troubles = list({trouble.line: trouble for log in known_logs for trouble in log.troubles}.values())
    mine = names(host)
    if isinstance(mine, NoData):
        # Without the device's names of today a log can only be known to be free of trouble altogether.
        if any(trouble.kind not in TOLD_ONLY for trouble in troubles):
            return unseen(f"{told}: whether the log's troubles are its own is not known: {mine.reason}", files)
        mine = set(), ()
    known, raw = mine
    of_filesystem = at.startswith("mounts.")
    here = [
        trouble for trouble in troubles if (trouble.kind in OF_FILESYSTEMS) == of_filesystem and _is_of(trouble, known)
    ]
    counted = [t for t in here if t.kind not in TOLD_ONLY and not (t.over and t.kind not in NEVER_OVER)]
    said = (
        f"{len(here) - len(counted)} messages of troubles that are over or corrected"
        if len(here) > len(counted)
        else ""
    )
    found = f"{len(counted)} messages of trouble" if counted else said or "no trouble"
    faults = [] if limit.holds(len(counted)) else [f"{told}: {found}, the first: {counted[0].line}"]
    fine = f"{told}: {found} in {max(log.messages for log in known_logs)} messages"
    if not any(log.from_boot for log in known_logs):
        fine += "; the log does not begin with the boot, so it proves only what it holds"
    judged = finding(faults, found, fine, (*files, *raw), unknown)
    return Finding(judged.verdict, judged.found, judged.reason, judged.raw, float(len(counted)))


def _is_of(trouble: dmesg.Trouble, known: set[str]) -> bool:
    """Return whether a trouble is of a thing with these names.

    What the log itself says of a controller (its NQN, its PCI address) counts before the controller's name, which may
    belong to another one later.
    """
    told = [name for name in trouble.names if name.startswith("nqn.")]
    if told:
        return bool(known & set(told))
    subjects = {name for name in (trouble.subject, *trouble.names) if name}
    disks = {re.sub(r"^(nvme\d+n\d+)p\d+$", r"\1", name) for name in subjects}
    return bool(known & (subjects | disks))


def _of_drives(drives: Drives, host: Host) -> tuple[set[str], tuple[str, ...]] | NoData:
    seen = nvme.mine(drives, host)
    if isinstance(seen.value, NoData):
        return seen.value
    names = {device for unit in seen.value for device in unit.devices}
    known = topology.subsystems(host)
    if not isinstance(known.value, NoData):
        names |= {p.traddr for s in known.value for p in s.paths if p.controller in names and p.traddr}
    return names, seen.raw


def _of_subsystem(wanted: Subsystem, host: Host) -> tuple[set[str], tuple[str, ...]] | NoData:
    seen = paths.mine(wanted, host)
    if isinstance(seen.value, NoData):
        return seen.value
    names = {wanted.nqn}
    if seen.value is not None:
        number = seen.value.name.removeprefix("nvme-subsys")
        names |= {path.controller for path in seen.value.paths}
        names |= {f"nvme{number}n{nsid}" for nsid in range(1, 65)}  # the kernel numbers them as the subsystem
    return names, seen.raw


def _of_port(wanted: RocePort, host: Host) -> tuple[set[str], tuple[str, ...]] | NoData:
    names = {name for name in (wanted.netdev, wanted.device) if name}
    raw: tuple[str, ...] = ()
    if wanted.netdev is not None:
        driver: Seen[ethtool.Driver] = host.read(ethtool.driver, ("ethtool", "-i", wanted.netdev))
        if not isinstance(driver.value, NoData) and (address := pci.bus_id(driver.value.bus_id)):
            names.add(address)
            raw = driver.raw
    return names, raw


def _of_mount(wanted: Mount, host: Host) -> tuple[set[str], tuple[str, ...]] | NoData:
    seen = mounts.mounted(host)
    if isinstance(seen.value, NoData):
        return seen.value
    here = [each for each in seen.value if each.target == wanted.target]
    if not here or here[-1].source is None:
        return NoData(f"nothing is mounted at {wanted.target}")
    name = here[-1].source.removeprefix("/dev/").removeprefix("mapper/")
    return {name}, seen.raw
