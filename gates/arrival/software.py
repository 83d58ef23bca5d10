"""Versions of what runs: one that is not known never passes."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from gates.arrival.check import Collector, Finding, Plan, finding, unseen
from gates.arrival.host import Host, Seen
from gates.arrival.limits import Limits
from gates.nodata import NoData
from gates.readers import modules, versions
from scenarios.bom import Bom, Software
from workloads.bundle import Output

T = TypeVar("T")

ROCM = ("cat", "/opt/rocm/.info/version")
CUDA = (("cat", "/usr/local/cuda/version.json"), ("nvidia-smi",))
CANN = ("cat", "/usr/local/Ascend/ascend-toolkit/latest/version.cfg")
PIP = ("-m", "pip", "list", "--format=freeze", "--disable-pip-version-check")
OF_PYTHON = ("packages-of", "module-hashes-of", "native-ops-of")
# What a library is linked against, by what a site declares.
LINKED = {"cuda": "cuda", "rocm": "rocm", "ascend": "cann", "cpu": None}
NATIVE_OPS = "LMCache's native ops"
PRE_RELEASE = re.compile(r"(?:^|[.~-])(?:dev|rc|alpha|beta|pre)\d*(?:$|[.~-])")


def plan(bom: Bom, limits: Limits) -> Plan:
    """Return the checks of the declared versions."""
    gathered = Collector()
    wanted = bom.software or Software()
    gathered.add("software", "kernel", wanted.kernel, partial(_kernel, wanted.kernel or ""))
    for name in ("rocm", "cuda", "cann"):
        declared = getattr(wanted, name)
        gathered.add("software", name, declared, partial(_version, name, declared))
    for package, declared in wanted.packages.items():
        gathered.add("software.packages", package, declared, partial(_package, wanted, package, declared))
    if not wanted.packages:
        gathered.lacks("software.packages", "packages")
    for file, declared in wanted.modules.items():
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", file)
        gathered.add("software.modules", name, declared, partial(_module, wanted, file, declared))
    if not wanted.modules:
        gathered.lacks("software.modules", "modules")
    native = None if wanted.native_ops is None else f"built for {wanted.native_ops}"
    gathered.add("software", "native_ops", native, partial(_native_ops, wanted))
    return gathered.plan()


def _fits(declared: str, found: str) -> bool:
    """Return whether a version is the one declared, or one of its: 6.1 takes 6.1.0-57, not 6.10, and not 6.1.0-rc2."""
    rest = found.removeprefix(declared)
    if rest == found or PRE_RELEASE.search(rest.split("+")[0]):
        return False
    return rest == "" or rest[0] in ".+~-"


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


def _python_of(output: Output) -> str | None:
    """Return the Python that an output is about; None: about none."""
    if output.argv[:1] and output.argv[0] in OF_PYTHON:
        return " ".join(output.argv[1:])
    return output.argv[0] if output.argv[1:] == PIP else None


def python(declared: str | None, host: Host) -> str | NoData:
    """Return the Python that runs the engine: the declared one, else the only one that software was collected of."""
    found = dict.fromkeys(name for output in host.bundle.outputs if (name := _python_of(output)) is not None)
    if declared is not None:
        return (
            declared if declared in found else NoData(f"no software of {declared} was collected (probes.py --python)")
        )
    if len(found) > 1:
        return NoData(f"software of {len(found)} Pythons was collected ({', '.join(found)}): declare software.python")
    return next(iter(found), NoData("no software of a Python was collected (probes.py --python)"))


def _of_python(declared: str | None, host: Host, reader: Callable[[Output], T], word: str) -> Seen[T]:
    name = python(declared, host)
    return Seen(name) if isinstance(name, NoData) else host.read(reader, (word, name))


def packages(declared: str | None, host: Host) -> Seen[dict[str, str | None]]:
    """Return what is installed for the Python that runs the engine; pip's list counts where nothing else tells."""
    seen = _of_python(declared, host, modules.packages, OF_PYTHON[0])
    if not isinstance(seen.value, NoData):
        return Seen(dict(seen.value), seen.raw)
    name = python(declared, host)
    listed = (
        Seen[dict[str, str | None]](name) if isinstance(name, NoData) else host.read(versions.packages, (name, *PIP))
    )
    return Seen(seen.value, seen.raw) if isinstance(listed.value, NoData) else listed


def _package(wanted: Software, package: str, declared: str, host: Host) -> Finding:
    seen = packages(wanted.python, host)
    if isinstance(seen.value, NoData):
        return unseen(seen.value, seen.raw)
    name = re.sub(r"[-_.]+", "-", package).lower()
    if name not in seen.value:
        return finding([f"{package} is not installed, {declared} was declared"], "not installed", "", seen.raw)
    return _judged(package, declared, seen.value[name], seen.raw)


def _module(wanted: Software, file: str, declared: str, host: Host) -> Finding:
    """Judge a file by its hash: whether a patch is in, no version tells."""
    seen = _of_python(wanted.python, host, modules.hashes, OF_PYTHON[1])
    if isinstance(seen.value, NoData):
        return unseen(seen.value, seen.raw)
    found, module = seen.value.sha256.get(file), file.split("/", 1)[0]
    if found is None:
        where = seen.value.folders.get(module)
        told = f"{module} has no such file ({', '.join(where)})" if where else f"{module} is not installed"
        return finding([f"{file}: {told}"], "none", "", seen.raw)
    told = "as declared" if found == declared else f"{declared} was declared"
    faults = [] if found == declared else [f"{file}: its SHA-256 is {found}, {told}"]
    return finding(faults, found, f"{file}: {told}", seen.raw)


def _native_ops(wanted: Software, host: Host) -> Finding:
    """Judge by what the libraries are linked against, all of them, and by whether those that are load."""
    seen = _of_python(wanted.python, host, modules.natives, OF_PYTHON[2])
    if isinstance(seen.value, NoData):
        return unseen(seen.value, seen.raw)
    if not seen.value.modules:
        return finding([f"{NATIVE_OPS}: LMCache is not installed"], "none", "", seen.raw)
    linked = LINKED[wanted.native_ops or "cpu"]
    own = [each for each in seen.value.libraries if linked in each.built_for]
    faults = [
        f"{each.file} is built for {', '.join(sorted(each.built_for))}, {wanted.native_ops} was declared"
        for each in seen.value.libraries
        if each.built_for - {linked}
    ]
    if linked is not None and not own:
        faults.append(f"{NATIVE_OPS}: no library is built for {wanted.native_ops}")
    needed = own if linked is not None else seen.value.libraries
    faults += [f"{each.file} does not load: {each.error or 'no reason is told'}" for each in needed if not each.loads]
    told = ", ".join(sorted({kind for each in seen.value.libraries for kind in each.built_for})) or "no accelerator"
    return finding(faults, f"built for {told}", f"{NATIVE_OPS} are built for {told}, and load", seen.raw)
