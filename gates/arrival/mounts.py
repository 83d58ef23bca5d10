"""File systems: mounted where and from what was ordered, taking writes, with room for files and for their names."""

from __future__ import annotations

import re
from functools import partial

from gates.arrival import nvme, paths
from gates.arrival.check import Collector, Finding, Plan, finding, same, unseen
from gates.arrival.host import Host, Seen
from gates.arrival.limits import Limit, Limits
from gates.nodata import NoData
from gates.readers import block, writes
from gates.readers.block import FileSystem
from scenarios.bom import Bom, Mount

FINDMNT = ("findmnt", "-J")
FINDMNT_BYTES = ("findmnt", "-J", "-b", "-o", "TARGET,SOURCE,FSTYPE,OPTIONS,SIZE,USED,AVAIL,USE%,MAJ:MIN,UUID")
PROC_MOUNTS = ("cat", "/proc/mounts")
# What a write that succeeded shows, the strongest first. A full file system still takes names: see its use.
PROOFS = {"data": "a write reached the device", "cache": "a write was taken", "metadata": "a file could be made"}
DF = ("df", "-B1", "--output")


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
    return host.read(block.mounts, PROC_MOUNTS) if isinstance(by_findmnt.value, NoData) else by_findmnt


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
    disks, serials, files = _disks(found.source or "", host)
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
        if isinstance(connected.value, NoData):
            there = connected.value
        else:
            # The kernel numbers a namespace's block device as its subsystem.
            number = connected.value.name.removeprefix("nvme-subsys") if connected.value else None
            there = {disk for disk in disks if number is not None and re.fullmatch(rf"nvme{number}n\d+", disk)}
        declared = {subsystem.serial} if subsystem.serial else set()
    told = f"{found.source} on {', '.join(f'{d} ({serials[d]})' if d in serials else d for d in disks) or 'no disk'}"
    verdicts = [_is_of(disk, serials.get(disk), there, declared) for disk in disks]
    if not disks or False in verdicts:
        return finding([f"{wanted.target}: made of {told}, {name} was declared"], told, "", raw)
    if None in verdicts:
        why = there.reason if isinstance(there, NoData) else "no serial number of its disks is told"
        return unseen(f"{wanted.target}: made of {told}: {why}", raw)
    return finding([], told, f"{told}, which is {name}", raw)


def _is_of(disk: str, serial: str | None, there: set[str] | NoData, declared: set[str]) -> bool | None:
    """Return whether a disk belongs to what was declared; None where neither its name nor its serial number tells."""
    if not isinstance(there, NoData) and disk in there:
        return True
    if serial is not None and declared:
        return serial in declared
    return None if isinstance(there, NoData) else False


def _disks(source: str, host: Host) -> tuple[list[str], dict[str, str], tuple[str, ...]]:
    """Return (disks that a mounted device lies on, their serial numbers as lsblk tells them, the files)."""
    name = source.removeprefix("/dev/").removeprefix("mapper/")
    if not source.startswith("/dev/"):
        return [], {}, ()
    seen = host.best(block.block_devices, len, "lsblk", "-J")
    if isinstance(seen.value, NoData):
        return [re.sub(r"^(nvme\d+n\d+)p\d+$", r"\1", name)], {}, seen.raw
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
    return sorted(disks), serials, seen.raw


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
    if held is not None:
        return held.target == wanted.target
    return path.startswith(wanted.target.rstrip("/") + "/")


def _sizes(wanted: Mount, host: Host) -> tuple[FileSystem | NoData, tuple[str, ...]]:
    seen = host.read(block.df, DF)
    if isinstance(seen.value, NoData):
        single = host.best(block.df, len, "df", "-B1", "--output")
        seen = single
    if isinstance(seen.value, NoData):
        return seen.value, seen.raw
    here = [each for each in seen.value if each.target == wanted.target]
    return (here[-1] if here else NoData(f"df shows nothing of {wanted.target}")), seen.raw


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
