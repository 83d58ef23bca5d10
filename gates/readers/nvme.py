"""nvme-cli 1.x to 2.16: drives, NVMe-oF paths, health, identity. What a version does not print is None.

Formats by version: nvme-print.c and nvme-print-json.c of nvme-cli. `list` is flat, or nested by host, subsystem and
controller (`-v`; always in 2.11 and 2.12; without hosts in 1.x; `--output-format-version=2` turns it to namespaces with
paths); `list-subsys` tells ANA states for one device only, and the I/O policy in some versions and with `-v` only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gates.readers.error import ReaderError, document_of, integer, objects, shown, text, word
from gates.readers.smart import Health, bare, health
from workloads.bundle import Output

Json = dict[str, Any]

# A string, or a comma before a closing bracket: some versions leave one there.
_TRAILING = re.compile(r'"(?:[^"\\]|\\.)*+"|,(?=\s*[\]}])', re.DOTALL)
_PATH_DEVICE = re.compile(r"nvme\d+c(\d+)n\d+")  # nvme<subsystem>c<controller>n<namespace>
_SECTOR_BYTES_MIN = 512  # less is what 1.x prints of a device it could not open


@dataclass(frozen=True)
class Controller:
    """One way to a subsystem, as `list` tells it."""

    name: str  # as nvme0
    transport: str | None = None  # pcie, rdma, tcp, fc, loop
    address: str | None = None  # as printed: a PCI address, or traddr=...
    model: str | None = None
    serial: str | None = None
    firmware: str | None = None


@dataclass(frozen=True)
class Drive:
    """One namespace: what the kernel shows as a block device."""

    device: str  # as nvme0n1
    nsid: int | None = None
    model: str | None = None
    serial: str | None = None
    firmware: str | None = None
    size_bytes: int | None = None
    used_bytes: int | None = None
    sector_bytes: int | None = None
    subsystem_nqn: str | None = None  # told by the nested forms, as what follows
    controllers: tuple[str, ...] | None = None
    transport: str | None = None


@dataclass(frozen=True)
class Listing:
    """All that `nvme list` shows. A controller without any has none, or none that can be reached."""

    drives: tuple[Drive, ...]
    controllers: tuple[Controller, ...] | None = None  # None: the flat form does not tell


@dataclass(frozen=True)
class Path:
    """One controller of a subsystem and its state."""

    controller: str  # as nvme3
    transport: str | None = None
    traddr: str | None = None  # the PCI address, for pcie
    trsvcid: str | None = None
    host_traddr: str | None = None
    src_addr: str | None = None
    host_iface: str | None = None
    state: str | None = None  # live, connecting, resetting, deleting, ...
    ana_state: str | None = None  # optimized, non-optimized, inaccessible, ...


@dataclass(frozen=True)
class Subsystem:
    """An NVMe subsystem and the ways to it."""

    name: str  # as nvme-subsys3
    nqn: str
    paths: tuple[Path, ...]
    io_policy: str | None = None  # numa, round-robin, queue-depth
    model: str | None = None
    serial: str | None = None
    firmware: str | None = None


@dataclass(frozen=True)
class Identity:
    """What a controller says it is (Identify Controller)."""

    model: str | None
    serial: str | None
    firmware: str | None
    subsystem_nqn: str | None
    controller_id: int | None
    vendor_id: int | None
    version: str | None  # of the NVMe specification, as 1.4.0
    capacity_bytes: int | None  # None where it does not tell, as 0 says, too
    warning_temperature_c: int | None
    critical_temperature_c: int | None


@dataclass(frozen=True)
class AnaGroup:
    """Namespaces that share one ANA state on one controller."""

    group: int
    state: str | None
    namespaces: tuple[int, ...]


def version(output: Output) -> str:
    """Return the version that `nvme version` (or --version) tells, as 2.3. Raises ReaderError."""
    found = re.search(r"^nvme(?:-cli)?(?: version)? v?(\d+(?:\.\d+)*)\b", text(output), re.MULTILINE)
    if found is None:
        raise ReaderError(f"{output.command}: tells no version, but {shown(text(output))}")
    return found[1]


def drives(output: Output) -> Listing:
    """Return what `nvme list -o json` shows, in any form. Raises ReaderError, for a row without identity, too."""
    found = _object(output)
    if not found:  # 1.x, when there is no device
        return Listing(())
    if "Devices" not in found:
        raise ReaderError(f"{output.command}: its JSON has no Devices: {shown(str(found))}")
    rows = objects(found["Devices"], output)
    if not any("Subsystems" in row or "Subsystem" in row for row in rows):
        return Listing(_unique([_drive(row, row.get("DevicePath"), output) for row in rows], output))
    subsystems: list[Json] = []
    for row in rows:
        subsystems += [row] if "Subsystem" in row else objects(row.get("Subsystems"), output)
    return _nested(subsystems, output)


def subsystems(output: Output) -> tuple[Subsystem, ...]:
    """Return what `nvme list-subsys [-v] [DEVICE] -o json` shows. Raises ReaderError."""
    found = _json(output)
    rows: list[Json] = []
    if isinstance(found, dict) and found:
        if "Subsystems" not in found:
            raise ReaderError(f"{output.command}: its JSON has no Subsystems: {shown(str(found))}")
        rows = objects(found["Subsystems"], output)
    elif isinstance(found, list):
        for host in objects(found, output):
            rows += objects(host.get("Subsystems"), output)
    listed: list[Subsystem] = []
    for row in rows:
        paths = tuple(_path(each, output) for each in objects(row.get("Paths", []), output))
        if listed and set(row) == {"Paths"}:  # up to 1.8 the paths are an object of their own
            last = listed.pop()
            listed.append(Subsystem(last.name, last.nqn, last.paths + paths, last.io_policy))
            continue
        name, nqn = word(row.get("Name")), word(row.get("NQN"))
        if name is None or nqn is None:
            raise ReaderError(f"{output.command}: a subsystem without name or NQN: {shown(str(row))}")
        io_policy, model, serial, firmware = (word(row.get(k)) for k in ("IOPolicy", "Model", "Serial", "Firmware"))
        listed.append(Subsystem(name, nqn, paths, io_policy, model, serial, firmware))
    return tuple(listed)


def smart_log(output: Output) -> Health:
    """Return what `nvme smart-log DEVICE -o json` tells. Raises ReaderError."""
    device = next((word_ for word_ in output.argv if word_.startswith("/dev/")), None)
    return health(_object(output), output, kelvin=True, device=bare(device))


def identity(output: Output) -> Identity:
    """Return what `nvme id-ctrl DEVICE -o json` tells. Raises ReaderError."""
    found = _object(output)
    if "mn" not in found or "sn" not in found:
        raise ReaderError(f"{output.command}: printed JSON, but no identity: {shown(str(found))}")
    number, warm, hot = (integer(found.get(key)) for key in ("ver", "wctemp", "cctemp"))
    return Identity(
        word(found["mn"]),
        word(found["sn"]),
        word(found.get("fr")),
        word(found.get("subnqn")),
        integer(found.get("cntlid")),
        integer(found.get("vid")),
        f"{number >> 16}.{number >> 8 & 255}.{number & 255}" if number and number < 1 << 32 else None,
        integer(found.get("tnvmcap")) or None,
        warm - 273 if warm else None,
        hot - 273 if hot else None,
    )


def ana_groups(output: Output) -> tuple[AnaGroup, ...]:
    """Return what `nvme ana-log DEVICE -o json` tells. Raises ReaderError."""
    found = _object(output)
    key = next((key for key in found if key.strip() == "ANA DESC LIST"), None)
    if key is None:
        raise ReaderError(f"{output.command}: printed JSON, but no ANA log: {shown(str(found))}")
    groups = []
    for row in objects(found[key], output):
        group = integer(row.get("grpid"))
        ids = [integer(each.get("nsid")) for each in objects(row.get("NSIDS", []), output)]
        if group is None or None in ids:
            raise ReaderError(f"{output.command}: an ANA group without number: {shown(str(row))}")
        groups.append(AnaGroup(group, word(row.get("state")), tuple(each for each in ids if each is not None)))
    return tuple(groups)


def _nested(subsystems: list[Json], output: Output) -> Listing:
    """Return the drives of nested forms: below a subsystem, below its controllers, or with paths below themselves."""
    found: list[Drive] = []
    controllers: dict[str, Controller] = {}
    for subsystem in subsystems:
        nqn = word(subsystem.get("SubsystemNQN"))
        below = objects(subsystem.get("Controllers", []), output)
        if "Controllers" not in subsystem and "Namespaces" not in subsystem:
            raise ReaderError(f"{output.command}: a subsystem without controllers: {shown(str(subsystem))}")
        here = [(_controller(row, output), row) for row in below]
        rows = [(row, tuple(each for each, _ in here)) for row in _namespaces(subsystem, output)]
        rows += [(row, (each,)) for each, controller in here for row in _namespaces(controller, output)]
        for each, _ in here:
            controllers[each.name] = each
        for row, through in rows:
            if "Paths" in row:
                through = tuple(_controller(path, output) for path in objects(row["Paths"], output))
                controllers |= {each.name: each for each in through}
            found.append(_drive(row, row.get("NameSpace"), output, nqn, through))
    return Listing(_unique(found, output), tuple(controllers.values()))


def _namespaces(row: Mapping[str, Any], output: Output) -> list[Json]:
    return objects(row.get("Namespaces", []), output)


def _controller(row: Mapping[str, Any], output: Output) -> Controller:
    name = bare(row.get("Controller"))
    if name is None:
        raise ReaderError(f"{output.command}: a controller without name: {shown(str(row))}")
    keys = ("Transport", "Address", "ModelNumber", "SerialNumber", "Firmware")
    return Controller(name, *(word(row.get(key)) for key in keys))


def _drive(
    row: Mapping[str, Any],
    device: object,
    output: Output,
    nqn: str | None = None,
    through: tuple[Controller, ...] | None = None,
) -> Drive:
    name = bare(device)
    if name is None:
        raise ReaderError(f"{output.command}: a row without device: {shown(str(row))}")
    by = through[0] if through else Controller("")
    model, serial, firmware = (
        word(row.get(key)) or there
        for key, there in (("ModelNumber", by.model), ("SerialNumber", by.serial), ("Firmware", by.firmware))
    )
    if model is None and serial is None:
        raise ReaderError(
            f"{output.command}: {name} tells neither model nor serial: it could not be opened; run as root"
        )
    sector_bytes = integer(row.get("SectorSize")) or 0
    nsid = row.get("NSID", row.get("NameSpace"))
    return Drive(
        name,
        integer(nsid) or None,
        model,
        serial,
        firmware,
        integer(row.get("PhysicalSize")) or None,
        integer(row.get("UsedBytes")),
        sector_bytes if sector_bytes >= _SECTOR_BYTES_MIN else None,
        nqn,
        None if through is None else tuple(each.name for each in through),
        by.transport,
    )


def _unique(found: list[Drive], output: Output) -> tuple[Drive, ...]:
    by_device: dict[str, Drive] = {}
    for drive in found:
        if by_device.setdefault(drive.device, drive) != drive:
            raise ReaderError(f"{output.command}: tells two different things of {drive.device}")
    return tuple(by_device.values())


def _path(row: Mapping[str, Any], output: Output) -> Path:
    name = bare(row.get("Name"))
    if name is None:
        raise ReaderError(f"{output.command}: a path without controller: {shown(str(row))}")
    of_path = _PATH_DEVICE.fullmatch(name)
    address = address_of(word(row.get("Address")))
    return Path(
        f"nvme{of_path[1]}" if of_path else name,
        word(row.get("Transport")),
        address.get("traddr"),
        address.get("trsvcid"),
        address.get("host_traddr"),
        address.get("src_addr"),
        address.get("host_iface"),
        word(row.get("State")),
        word(row.get("ANAState")),
    )


def address_of(address: str | None) -> dict[str, str]:
    """Return the parts of an address: key=value with spaces (1.x) or commas between; without keys it is the traddr."""
    if not address:
        return {}
    if "=" not in address:
        return {"traddr": address}
    return dict(_parts(address))


def _parts(address: str) -> Iterator[tuple[str, str]]:
    for part in re.split(r"[,\s]+", address):
        key, equals, value = part.partition("=")
        if equals and value and value.lower() != "none":
            yield key, value


def _object(output: Output) -> Json:
    found = _json(output)
    if not isinstance(found, dict):
        raise ReaderError(f"{output.command}: its JSON is no object: {shown(str(found))}")
    return found


def _json(output: Output) -> Any:
    """Return the document. Raises ReaderError with the reason the tool gives, on whichever stream it gives it."""
    printed = text(output)
    if output.status and "{" not in printed:
        raise ReaderError(f"{output.command}: ended with status {output.status}: {_said(output)}")
    try:
        found = document_of(printed, output)
    except ReaderError:
        repaired = _TRAILING.sub(lambda match: "" if match[0] == "," else match[0], printed)
        if repaired == printed:
            raise
        found = document_of(repaired, output)
    for key, value in found.items() if isinstance(found, dict) else ():
        if key.lower().startswith(("error", "status:")):
            raise ReaderError(f"{output.command}: {shown(value if isinstance(value, str) else f'{key} {value}')}")
    if output.status:
        raise ReaderError(f"{output.command}: ended with status {output.status}: {_said(output)}")
    return found


def _said(output: Output) -> str:
    return shown(output.stderr.decode("utf-8", "replace").strip() or "nothing more was said")
