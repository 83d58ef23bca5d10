"""The machine itself: architecture, processor, memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from gates.arrival.check import Collector, Finding, Plan, finding, same, unseen
from gates.arrival.host import Host, Seen
from gates.arrival.limits import Limits
from gates.nodata import NoData
from gates.readers import versions
from scenarios.bom import Bom
from scenarios.bom import Host as Declared

LSCPU = (("lscpu", "-J"), ("lscpu",))
UNAME = ("uname", "-a")
MEMINFO = ("cat", "/proc/meminfo")


def plan(bom: Bom, limits: Limits) -> Plan:
    """Return the checks of the declared machine."""
    gathered = Collector()
    wanted = bom.host or Declared()
    gathered.add("host", "name", wanted.name, partial(_name, wanted.name or ""))
    gathered.add("host", "architecture", wanted.architecture, partial(_architecture, wanted.architecture))
    gathered.add("host", "cpu_model", wanted.cpu_model, partial(_model, wanted.cpu_model or ""))
    for metric, least, take in (
        ("cores", wanted.cores_min, _cores),
        ("memory_bytes", wanted.memory_bytes_min, _memory),
    ):
        declared = None if least is None else f"at least {least}"
        gathered.add("host", metric, declared, partial(_at_least, metric, least or 0, take))
    return gathered.plan()


def _processor(host: Host) -> Seen[versions.Processor]:
    return host.read(versions.processor, *LSCPU)


def _name(declared: str, host: Host) -> Finding:
    """Judge by the host's own word; a name with its domain is that of the host, too."""
    seen = host.read(versions.kernel, UNAME)
    if isinstance(seen.value, NoData):
        return unseen(seen.value, seen.raw)
    found = seen.value.host
    if found is not None and found.split(".")[0] == declared.split(".")[0] and (found in declared or declared in found):
        found = declared
    return same("host", declared, found, seen.raw)


def _architecture(declared: str | None, host: Host) -> Finding:
    """Judge by the kernel, else by lscpu."""
    kernel = host.read(versions.kernel, UNAME)
    processor = _processor(host)
    told = None if isinstance(kernel.value, NoData) else kernel.value.machine
    raw = kernel.raw
    if told is None and not isinstance(processor.value, NoData):
        told, raw = processor.value.architecture, processor.raw
    if told is None:
        reasons = [seen.value.reason for seen in (kernel, processor) if isinstance(seen.value, NoData)]
        return unseen("; ".join(reasons) or "the architecture is not told", (*kernel.raw, *processor.raw))
    faults = [] if told == declared else [f"architecture {told}, {declared} was declared"]
    return finding(faults, told, f"{told}, as declared", raw)


def _model(declared: str, host: Host) -> Finding:
    seen = _processor(host)
    if isinstance(seen.value, NoData) or seen.value.model is None:
        return unseen(seen.value if isinstance(seen.value, NoData) else "lscpu tells no model", seen.raw)
    named = declared.lower() in seen.value.model.lower()
    faults = [] if named else [f"processor {seen.value.model}, {declared} was declared"]
    return finding(faults, seen.value.model, f"{seen.value.model}, as declared", seen.raw)


def _at_least(
    metric: str, least: int, take: Callable[[Host], tuple[int | NoData, tuple[str, ...]]], host: Host
) -> Finding:
    found, raw = take(host)
    if isinstance(found, NoData):
        return unseen(found, raw)
    faults = [] if found >= least else [f"{metric}: {found}, at least {least} were declared"]
    return finding(faults, str(found), f"{metric}: {found}", raw)


def _cores(host: Host) -> tuple[int | NoData, tuple[str, ...]]:
    seen = _processor(host)
    if isinstance(seen.value, NoData):
        return seen.value, seen.raw
    return (NoData("lscpu tells no CPU(s)") if seen.value.cpus is None else seen.value.cpus), seen.raw


def _memory(host: Host) -> tuple[int | NoData, tuple[str, ...]]:
    seen = host.read(versions.memory, MEMINFO)
    return (seen.value if isinstance(seen.value, NoData) else seen.value.total_bytes), seen.raw
