"""The host's NVMe devices as several outputs together show them. Device names hold within one collection only."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gates.arrival.host import Host, Seen
from gates.nodata import NoData
from gates.readers import nvme, smart, sysfs
from gates.readers.smart import Health

ANA_RANK = {"optimized": 0, "non-optimized": 1}  # anything else is worse
LOCAL = ("pcie", None)  # None: the flat form of `nvme list` does not tell


@dataclass(frozen=True)
class Unit:
    """One physical drive, or what one subsystem shows of itself: namespaces of one serial number."""

    serial: str
    model: str | None
    firmware: str | None
    drives: tuple[nvme.Drive, ...]
    controllers: tuple[str, ...]

    @property
    def devices(self) -> tuple[str, ...]:
        """Return the names under which tools ask it."""
        return (*self.controllers, *(drive.device for drive in self.drives))


def tree(host: Host) -> Seen[sysfs.Sysfs]:
    """Return what was collected of /sys."""
    return host.best(sysfs.sysfs, lambda found: len(found.values), "walk", "of")


def listing(host: Host) -> Seen[nvme.Listing]:
    """Return what `nvme list` shows, from the form that tells most."""
    return host.best(nvme.drives, lambda found: len(found.controllers or ()) + len(found.drives), "nvme", "list")


def units(host: Host) -> Seen[tuple[Unit, ...]]:
    """Return every local drive by serial number, in the order of `nvme list`."""
    seen = listing(host)
    if isinstance(seen.value, NoData):
        return Seen(seen.value, seen.raw)
    known = subsystems(host)
    remote = {
        path.controller
        for subsystem in (() if isinstance(known.value, NoData) else known.value)
        for path in subsystem.paths
        if path.transport not in LOCAL
    }
    found: dict[str, Unit] = {}
    for controller in seen.value.controllers or ():
        if controller.serial and controller.transport in LOCAL and controller.name not in remote:
            unit = found.get(controller.serial, Unit(controller.serial, controller.model, controller.firmware, (), ()))
            found[controller.serial] = replace(unit, controllers=(*unit.controllers, controller.name))
    for drive in seen.value.drives:
        if not drive.serial or drive.transport not in LOCAL or remote & set(_controllers_of(drive, known)):
            continue
        unit = found.get(
            drive.serial, Unit(drive.serial, drive.model, drive.firmware, (), _controllers_of(drive, known))
        )
        found[drive.serial] = replace(unit, drives=(*unit.drives, drive))
    return Seen(tuple(found.values()), seen.raw)


def _controllers_of(drive: nvme.Drive, known: Seen[tuple[nvme.Subsystem, ...]]) -> tuple[str, ...]:
    """Return the controllers of a drive; where the list is flat, those of the subsystem with the drive's number.

    The kernel numbers a namespace's block device as its subsystem: nvme3n1 belongs to nvme-subsys3.
    """
    if drive.controllers is not None or isinstance(known.value, NoData):
        return drive.controllers or ()
    name = f"nvme-subsys{drive.device.removeprefix('nvme').split('n')[0]}"
    return tuple(path.controller for s in known.value if s.name == name for path in s.paths)


def subsystems(host: Host) -> Seen[tuple[nvme.Subsystem, ...]]:
    """Return every subsystem with its paths, and the ANA state of each path where it was asked for.

    Only the call without a device shows every path; the calls with one add what that does not tell.
    """
    return host.once("subsystems", lambda: _subsystems(host))[0]


def states(host: Host) -> Seen[dict[str, str]]:
    """Return the state of each controller that tells one."""
    seen = subsystems(host)
    if isinstance(seen.value, NoData):
        return Seen(seen.value, seen.raw)
    return Seen({path.controller: path.state for s in seen.value for path in s.paths if path.state}, seen.raw)


def of_nqn(host: Host, nqn: str) -> Seen[nvme.Subsystem | None]:
    """Return one subsystem with the files that show it; None where the host has none of that NQN."""
    seen, files = host.once("subsystems", lambda: _subsystems(host))
    if isinstance(seen.value, NoData):
        return Seen(seen.value, seen.raw)
    return Seen(next((s for s in seen.value if s.nqn == nqn), None), files.get(nqn, seen.raw))


def _subsystems(host: Host) -> tuple[Seen[tuple[nvme.Subsystem, ...]], dict[str, tuple[str, ...]]]:
    """Return the subsystems, and the files that show each."""
    whole: list[Seen[tuple[nvme.Subsystem, ...]]] = []
    detail: list[Seen[tuple[nvme.Subsystem, ...]]] = []
    refused: list[Seen[tuple[nvme.Subsystem, ...]]] = []
    for output, seen in host.read_all(nvme.subsystems, "nvme", "list-subsys"):
        if isinstance(seen.value, NoData):
            refused.append(seen)
        else:
            (detail if any(word.startswith("/dev/") for word in output.argv) else whole).append(seen)
    if not whole and (by_kernel := _of_kernel(host)) is not None:
        whole.append(by_kernel)
    if not whole:
        asked = dict.fromkeys(seen.value.reason for seen in refused if isinstance(seen.value, NoData))
        told = "; ".join(asked) or "`nvme list-subsys -o json` was not collected"
        return Seen(NoData(told), tuple(file for seen in refused for file in seen.raw)), {}
    base = max(whole, key=lambda seen: sum(len(s.paths) for s in _value(seen)))
    merged = {subsystem.nqn: subsystem for subsystem in _value(base)}
    files = dict.fromkeys(merged, base.raw)
    by_kernel = _of_kernel(host)
    for seen in (*whole, *detail, *([by_kernel] if by_kernel is not None else [])):
        for subsystem in _value(seen):
            if subsystem.nqn in merged and (more := _merged(known := merged[subsystem.nqn], subsystem)) != known:
                merged[subsystem.nqn] = more
                files[subsystem.nqn] = (*files[subsystem.nqn], *seen.raw)
    return Seen(tuple(merged.values()), base.raw), files


def _of_kernel(host: Host) -> Seen[tuple[nvme.Subsystem, ...]] | None:
    """Return the subsystems as /sys shows them, where it was collected."""
    seen = tree(host)
    if isinstance(seen.value, NoData):
        return None
    controllers = {each.name: each for each in sysfs.nvme_controllers(seen.value)}
    found = []
    for each in sysfs.nvme_subsystems(seen.value):
        ways = [controllers[name] for name in each.controllers if name in controllers]
        told = tuple(
            nvme.Path(
                way.name, way.transport, way.traddr, way.trsvcid, way.host_traddr, way.src_addr, None, way.state,
                next((state for state in way.ana_states.values() if state), None),
            )
            for way in ways
        )  # fmt: skip
        if each.nqn is not None:
            found.append(
                nvme.Subsystem(each.name, each.nqn, told, each.io_policy, each.model, each.serial, each.firmware)
            )
    return Seen(tuple(found), seen.raw) if found else None


def _value(seen: Seen[tuple[nvme.Subsystem, ...]]) -> tuple[nvme.Subsystem, ...]:
    return () if isinstance(seen.value, NoData) else seen.value


def _merged(known: nvme.Subsystem, more: nvme.Subsystem) -> nvme.Subsystem:
    """Return the subsystem with what only the other output tells; a path's state is the worse of the two."""
    others = {path.controller: path for path in more.paths}
    paths = []
    for path in known.paths:
        other = others.get(path.controller, path)
        state = path.state if path.state != "live" else other.state or path.state
        paths.append(replace(path, state=state, ana_state=_worse(path.ana_state, other.ana_state)))
    return replace(
        known,
        paths=tuple(paths),
        io_policy=known.io_policy or more.io_policy,
        model=known.model or more.model,
        serial=known.serial or more.serial,
        firmware=known.firmware or more.firmware,
    )


def _worse(state: str | None, other: str | None) -> str | None:
    told = [each for each in (state, other) if each is not None]
    return max(told, key=lambda each: ANA_RANK.get(each, len(ANA_RANK))) if told else None


def of_subsystem(host: Host, subsystem: nvme.Subsystem) -> Seen[Unit]:
    """Return the namespaces and the identity of an NVMe-oF subsystem, as `nvme list` shows them."""
    seen = listing(host)
    if isinstance(seen.value, NoData):
        return Seen(seen.value, seen.raw)
    names = {path.controller for path in subsystem.paths}
    known = subsystems(host)
    drives = [
        drive
        for drive in seen.value.drives
        if drive.subsystem_nqn == subsystem.nqn
        or (drive.subsystem_nqn is None and names & set(_controllers_of(drive, known)))
    ]
    controllers = [c for c in seen.value.controllers or () if c.name in names]
    told = [*controllers, *drives]
    serial, model, firmware = (
        next((value for each in told if (value := getattr(each, key))), None) or getattr(subsystem, key)
        for key in ("serial", "model", "firmware")
    )
    return Seen(Unit(serial or "", model, firmware, tuple(drives), tuple(sorted(names))), seen.raw)


def health(host: Host, unit: Unit) -> Seen[tuple[Health, ...]]:
    """Return every reading of the unit's health log, by nvme-cli and by smartctl, after a load, too.

    NoData where none can be read.
    """
    found: list[Health] = []
    raw: list[str] = []
    refused: list[str] = []
    for reader, words in ((nvme.smart_log, ("nvme", "smart-log")), (smart.smartctl, ("smartctl",))):
        looks = [each.read_all(reader, *words) for each in (host, host.after) if each is not None]
        for output, seen in (told for look in looks for told in look):
            if not any(smart.bare(word) in unit.devices for word in output.argv[1:] if word.startswith("/dev/")):
                continue
            raw += seen.raw
            if isinstance(seen.value, NoData):
                refused.append(seen.value.reason)
            elif seen.value.serial in (None, unit.serial):
                found.append(seen.value)
    if found:
        return Seen(tuple(found), tuple(raw))
    told = (
        "; ".join(dict.fromkeys(refused)) or f"no health log of {unit.serial} was collected (nvme smart-log, smartctl)"
    )
    return Seen(NoData(told), tuple(raw))
