"""File systems: mounted where and from what was ordered, taking writes, with room for files and for their names."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial

from gates.arrival import nvme, paths, topology
from gates.arrival.check import Collector, Finding, Plan, finding, same, unseen
from gates.arrival.host import Host, Seen
from gates.arrival.limits import Limit, Limits
from gates.nodata import NoData
from gates.readers import block, writes
from gates.readers import nvme as nvme_cli
from gates.readers.block import FileSystem
from scenarios.bom import Bom, Mount

FINDMNT = ("findmnt", "-J")
FINDMNT_BYTES = ("findmnt", "-J", "-b", "-o", "TARGET,SOURCE,FSTYPE,OPTIONS,SIZE,USED,AVAIL,USE%,MAJ:MIN,UUID")
PROC_MOUNTS = ("cat", "/proc/mounts")
# What a write that succeeded shows, the strongest first. A full file system still takes names: see its use.
PROOFS = {"data": "a write reached the device", "cache": "a write was taken", "metadata": "a file could be made"}
DF = ("df", "-B1", "--output")
COUNTS = ("used_bytes", "avail_bytes", "inodes", "inodes_used", "inodes_free")


def plan(bom: Bom, limits: Limits) -> Plan:
    """Return the checks of the declared mounts."""
    gathered = Collector()
    for name, wanted in bom.mounts.items():
        at = f"mounts.{name}"
        gathered.add(at, "mounted", wanted.target, partial(_mounted, wanted))
        gathered.add(at, "fstype", wanted.fstype, partial(_fstype, wanted))
        gathered.add(at, "source", wanted.source, partial(_source, wanted, bom))
        gathered.add(at, "options", ", ".join(wanted.options) or None, partial(_options, wanted))
        gathered.add(at, "writable", "a write succeeds" if wanted.writable else None, partial(_writable, wanted))
        free = None if wanted.free_bytes_min is None else f"{wanted.free_bytes_min} bytes free"
        gathered.add(at, "free_bytes", free, partial(_free, wanted))
        for metric, part in (("filesystem_use", "bytes"), ("inode_use", "inodes")):
            limit = limits.of(metric)
            declared = f"{limit.operator} {limit.limit:g} of its {part} in use"
            gathered.add(at, metric, declared, partial(_use, wanted, limit, part), limit)
    if not bom.mounts:
        gathered.lacks("mounts", "mounted")
    return gathered.plan()


def mounted(host: Host) -> Seen[tuple[FileSystem, ...]]:
    """Return every mount."""
    by_findmnt = host.read(block.findmnt, FINDMNT_BYTES, FINDMNT)
    if not isinstance(by_findmnt.value, NoData):
        return by_findmnt
    by_kernel = host.read(block.mounts, PROC_MOUNTS)
    if not isinstance(by_kernel.value, NoData):
        return by_kernel
    return Seen(NoData(f"{by_findmnt.value.reason}; {by_kernel.value.reason}"), (*by_findmnt.raw, *by_kernel.raw))


def _mine(wanted: Mount, host: Host) -> tuple[FileSystem | NoData, tuple[str, ...]]:
    """Return the mount on top at the declared target, or NoData that says that nothing is mounted there, or why not."""
    seen = mounted(host)
    if isinstance(seen.value, NoData):
        return seen.value, seen.raw
    here = [each for each in seen.value if each.target == wanted.target]
    return (here[-1] if here else NoData(f"nothing is mounted at {wanted.target}")), seen.raw


def _mounted(wanted: Mount, host: Host) -> Finding:
    seen = mounted(host)
    if isinstance(seen.value, NoData):
        return unseen(seen.value, seen.raw)
    found, raw = _mine(wanted, host)
    if isinstance(found, NoData):
        return finding([found.reason], "nothing", "", raw)
    told = f"{found.source or 'an unnamed source'} at {wanted.target}"
    return finding([], told, told, raw)


def _fstype(wanted: Mount, host: Host) -> Finding:
    found, raw = _mine(wanted, host)
    if isinstance(found, NoData):
        return unseen(found, raw)
    return same(f"{wanted.target}: file system", wanted.fstype, found.fstype, raw)


def _options(wanted: Mount, host: Host) -> Finding:
    found, raw = _mine(wanted, host)
    if isinstance(found, NoData):
        return unseen(found, raw)
    if found.options is None:
        return unseen(f"{wanted.target}: its options are not told", raw)
    lacking = [option for option in wanted.options if option not in found.options]
    told = ",".join(found.options)
    faults = [f"{wanted.target}: mounted without {', '.join(lacking)} ({told})"] if lacking else []
    return finding(faults, told, "as declared", raw)


def _source(wanted: Mount, bom: Bom, host: Host) -> Finding:
    """Judge by serial number or subsystem what the mounted device is made of: its name may change with every boot."""
    found, raw = _mine(wanted, host)
    if isinstance(found, NoData):
        return unseen(found, raw)
    name = wanted.source or ""
    disks, serials, shown, files = _disks(found.source or "", host)
    raw = (*raw, *files)
    there: set[str] | NoData
    if name in bom.drives:
        drives = bom.drives[name]
        seen = nvme.mine(drives, host)
        raw = (*raw, *seen.raw)
        there = seen.value if isinstance(seen.value, NoData) else {d.device for u in seen.value for d in u.drives}
        declared = set(drives.serials)
    else:
        subsystem = bom.subsystems[name]
        connected = paths.mine(subsystem, host)
        raw = (*raw, *connected.raw)
        if connected.value is None:
            there = NoData(f"subsystem {subsystem.nqn} is not connected")
        elif isinstance(connected.value, NoData):
            there = connected.value
        else:
            # The kernel numbers a namespace's block device as its subsystem.
            number = connected.value.name.removeprefix("nvme-subsys")
            there = {disk for disk in disks if re.fullmatch(rf"nvme{number}n\d+", disk)}
        # As its own output tells it: whether that is the declared one, is another row's.
        told = _serial_of(connected.value, host) or subsystem.serial
        declared = {told} if told else set()
    made_of = f"{found.source} on {', '.join(f'{d} ({serials[d]})' if d in serials else d for d in disks) or 'no disk'}"
    verdicts = [_is_of(disk, serials.get(disk), there, declared, disk in shown) for disk in disks]
    if not disks or False in verdicts:
        return finding([f"{wanted.target}: made of {made_of}, {name} was declared"], made_of, "", raw)
    if None in verdicts:
        why = there.reason if isinstance(there, NoData) else "whose disk that is, is not told, or in two ways"
        return unseen(f"{wanted.target}: made of {made_of}: {why}", raw)
    return finding([], made_of, f"{made_of}, which is {name}", raw)


def _serial_of(found: nvme_cli.Subsystem | NoData | None, host: Host) -> str | None:
    if found is None or isinstance(found, NoData):
        return None
    seen = topology.of_subsystem(host, found)
    return None if isinstance(seen.value, NoData) else seen.value.serial or None


def _is_of(disk: str, serial: str | None, there: set[str] | NoData, declared: set[str], is_shown: bool) -> bool | None:
    """Return whether a disk belongs to what was declared; None: not told, or its name and its serial number disagree.

    A disk that lsblk does not show is gone: whose it was is not known by its name alone.
    """
    by_name = None if isinstance(there, NoData) else disk in there
    by_serial = serial in declared if serial is not None and declared else None
    if by_name is None or by_serial is None:
        known = by_serial if by_name is None else by_name
        return known or (False if known is False and is_shown else None)
    return by_name if by_name == by_serial else None


def _disks(source: str, host: Host) -> tuple[list[str], dict[str, str], frozenset[str], tuple[str, ...]]:
    """Return (disks that a mounted device lies on, their serial numbers, all that lsblk shows, the files)."""
    name = source.removeprefix("/dev/").removeprefix("mapper/")
    if not source.startswith("/dev/"):
        return [], {}, frozenset(), ()
    seen = host.best(block.block_devices, len, "lsblk", "-J")
    if isinstance(seen.value, NoData):
        return [re.sub(r"^(nvme\d+n\d+)p\d+$", r"\1", name)], {}, frozenset(), seen.raw
    devices = {device.name: device for device in seen.value}
    disks: list[str] = []
    waiting, looked = [name], set()
    while waiting:
        each = waiting.pop()
        if each in looked:
            continue
        looked.add(each)
        parents = devices[each].parents if each in devices else ()
        waiting += parents
        if not parents:
            disks.append(each)
    serials = {d: serial for d in disks if d in devices and (serial := devices[d].serial)}
    return sorted(disks), serials, frozenset(devices), seen.raw


def _writable(wanted: Mount, host: Host) -> Finding:
    """Judge by tries to write: mount options say `rw` of a file system whose every path is lost."""
    found, raw = _mine(wanted, host)
    files = list(raw)
    faults, proofs, refused = [], [], []
    if not isinstance(found, NoData) and found.options is not None and "ro" in found.options:
        faults.append(f"{wanted.target} is mounted read-only")
    tries = host.read_each(writes.write_probe, lambda o: any(_below(p, wanted, host) for p in writes.targets(o)))
    for output, seen in tries:
        files += seen.raw
        if isinstance(seen.value, NoData):
            refused.append(seen.value.reason)
        elif seen.value.outcome == writes.WRITTEN:
            proofs.append(PROOFS[seen.value.proves])
        else:
            faults.append(f"{wanted.target}: `{output.command}`: {seen.value.outcome}: {seen.value.reason}")
    if not faults and not proofs:
        told = "; ".join(refused) or "no write was tried (probes.py --path)"
        return unseen(f"{wanted.target}: {told}", files)
    best = next((proof for proof in PROOFS.values() if proof in proofs), "")
    return finding(faults, "refused" if faults else best, best, files)


def _below(path: str, wanted: Mount, host: Host) -> bool:
    seen = mounted(host)
    known = () if isinstance(seen.value, NoData) else seen.value
    held = block.holding(known, path)
    return held.target == wanted.target if held is not None else block.below(path, wanted.target)


def _sizes(wanted: Mount, host: Host) -> tuple[FileSystem | NoData, tuple[str, ...]]:
    """Return what df tells of the target: of all file systems at once, else of this one alone, its inodes apart."""
    found: FileSystem | None = None
    raw: list[str] = []
    outputs = host.read_all(block.df, "df")
    for output, seen in sorted(outputs, key=lambda each: each[0].argv != DF):
        here = [] if isinstance(seen.value, NoData) else [e for e in seen.value if e.target == wanted.target]
        if not here:
            continue
        raw += seen.raw
        if found is None:
            found = here[-1]
        elif output.argv != DF:
            changes = {key: getattr(here[-1], key) for key in COUNTS if getattr(found, key) is None}
            found = replace(found, **changes)
        if all(getattr(found, key) is not None for key in COUNTS):
            break
    if found is not None:
        return found, tuple(raw)
    reasons = dict.fromkeys(seen.value.reason for _, seen in outputs if isinstance(seen.value, NoData))
    told = f"df shows nothing of {wanted.target}" if outputs else "`df -B1 --output` was not collected"
    return NoData("; ".join((told, *reasons))), tuple(file for _, seen in outputs for file in seen.raw)


def _free(wanted: Mount, host: Host) -> Finding:
    found, raw = _sizes(wanted, host)
    if isinstance(found, NoData) or found.avail_bytes is None:
        return unseen(found if isinstance(found, NoData) else f"df does not tell the room on {wanted.target}", raw)
    told = f"{found.avail_bytes} bytes free"
    short = found.avail_bytes < (wanted.free_bytes_min or 0)
    faults = [f"{wanted.target}: {told}, {wanted.free_bytes_min} were declared"] if short else []
    return finding(faults, told, told, raw)


def _use(wanted: Mount, limit: Limit, part: str, host: Host) -> Finding:
    """Judge the used share of what may be used: blocks kept for root are no room for a tier."""
    found, raw = _sizes(wanted, host)
    if isinstance(found, NoData):
        return unseen(found, raw)
    if part == "inodes" and found.inodes == 0:
        return finding([], "no fixed number", f"{wanted.target}: its inodes are not limited", raw)
    used, left = (found.used_bytes, found.avail_bytes) if part == "bytes" else (found.inodes_used, found.inodes_free)
    if used is None or left is None or used + left <= 0:
        return unseen(f"df does not tell how many {part} of {wanted.target} are in use", raw)
    share = used / (used + left)
    told = f"{share * 100:.1f} % of its {part} in use, {left} left"
    judged = finding([] if limit.holds(share) else [f"{wanted.target}: {told}"], told, told, raw)
    return Finding(judged.verdict, judged.found, judged.reason, judged.raw, share)
