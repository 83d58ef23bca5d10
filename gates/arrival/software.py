"""Versions of what runs: one that is not known never passes."""

from __future__ import annotations

import re
from functools import partial

from gates.arrival.check import Collector, Finding, Plan, finding, unseen
from gates.arrival.host import Host, Seen
from gates.arrival.limits import Limits
from gates.nodata import NoData
from gates.readers import versions
from scenarios.bom import Bom, Software

ROCM = ("cat", "/opt/rocm/.info/version")
CUDA = (("cat", "/usr/local/cuda/version.json"), ("nvidia-smi",))
CANN = ("cat", "/usr/local/Ascend/ascend-toolkit/latest/version.cfg")
PIP = ("-m", "pip", "list", "--format=freeze", "--disable-pip-version-check")


def plan(bom: Bom, limits: Limits) -> Plan:
    """Return the checks of the declared versions."""
    gathered = Collector()
    wanted = bom.software or Software()
    gathered.add("software", "kernel", wanted.kernel, partial(_kernel, wanted.kernel or ""))
    for name in ("rocm", "cuda", "cann"):
        declared = getattr(wanted, name)
        gathered.add("software", name, declared, partial(_version, name, declared))
    for package, declared in wanted.packages.items():
        gathered.add("software.packages", package, declared, partial(_package, package, declared))
    if not wanted.packages:
        gathered.lacks("software.packages", "packages")
    for file, declared in wanted.modules.items():
        gathered.add(
            "software.modules", re.sub(r"[^A-Za-z0-9._-]+", "-", file), declared, partial(_unread, f"hash of {file}")
        )
    if not wanted.modules:
        gathered.lacks("software.modules", "modules")
    gathered.add(
        "software", "native_ops", wanted.native_ops, partial(_unread, "what LMCache's native ops are built for")
    )
    return gathered.plan()


def _unread(what: str, host: Host) -> Finding:
    return unseen(f"{what}: no reader tells it yet")


def _fits(declared: str, found: str) -> bool:
    """Return whether a version is the one declared, or one of its: 6.1 takes 6.1.0-57, and not 6.10."""
    return found == declared or re.match(rf"{re.escape(declared)}[.+~-]", found) is not None


def _judged(what: str, declared: str, found: str | None, raw: tuple[str, ...]) -> Finding:
    if found is None:
        return unseen(f"{what}: its version is not told", raw)
    faults = [] if _fits(declared, found) else [f"{what} {found}, {declared} was declared"]
    return finding(faults, found, f"{what} {found}", raw)


def _kernel(declared: str, host: Host) -> Finding:
    seen = host.read(versions.kernel, ("uname", "-a"), ("uname", "-r"))
    return (
        unseen(seen.value, seen.raw)
        if isinstance(seen.value, NoData)
        else _judged("kernel", declared, seen.value.release, seen.raw)
    )


def _version(name: str, declared: str, host: Host) -> Finding:
    seen: Seen[str] = {
        "rocm": lambda: host.read(versions.version, ROCM),
        "cuda": lambda: host.read(versions.version, *CUDA),
        "cann": lambda: host.read(versions.version, CANN),
    }[name]()
    return (
        unseen(seen.value, seen.raw)
        if isinstance(seen.value, NoData)
        else _judged(name, declared, seen.value, seen.raw)
    )


def packages(host: Host) -> Seen[dict[str, str | None]]:
    """Return what is installed for the Python that runs the engine: by what tells most."""
    found = host.read_each(
        versions.packages, lambda output: output.argv[:1] == ("packages-of",) or output.argv[1:] == PIP
    )
    readable = [seen for _, seen in found if not isinstance(seen.value, NoData)]
    if readable:
        return max(readable, key=lambda seen: 0 if isinstance(seen.value, NoData) else len(seen.value))
    reasons = [seen.value.reason for _, seen in found if isinstance(seen.value, NoData)]
    told = "; ".join(dict.fromkeys(reasons)) or "no packages of a Python were collected (probes.py --python)"
    return Seen(NoData(told), tuple(file for _, seen in found for file in seen.raw))


def _package(package: str, declared: str, host: Host) -> Finding:
    seen = packages(host)
    if isinstance(seen.value, NoData):
        return unseen(seen.value, seen.raw)
    name = re.sub(r"[-_.]+", "-", package).lower()
    if name not in seen.value:
        return finding([f"{package} is not installed, {declared} was declared"], "not installed", "", seen.raw)
    return _judged(package, declared, seen.value[name], seen.raw)
