"""Accelerators: as many as ordered, of the kind that was ordered, and well."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial

from gates.arrival.check import Collector, Finding, Plan, finding, unseen
from gates.arrival.host import Host, Seen
from gates.arrival.limits import Limits
from gates.nodata import NoData
from gates.readers import amd, ascend, nvidia
from gates.readers.accelerator import Accelerator
from scenarios.bom import Accelerators, Bom
from workloads.bundle import Output

Reader = Callable[[Output], tuple[Accelerator, ...]]
READERS: dict[str, tuple[tuple[Reader, tuple[str, ...]], ...]] = {
    "amd": ((amd.gpus, ("amd-smi",)), (amd.rocm_smi, ("rocm-smi",))),
    "nvidia": ((nvidia.gpus, ("nvidia-smi",)),),
    "ascend": ((ascend.chips, ("npu-smi", "info")),),
}
WELL = "OK"


def plan(bom: Bom, limits: Limits) -> Plan:
    """Return the checks of the declared accelerators."""
    gathered = Collector()
    for name, wanted in bom.accelerators.items():
        at = f"accelerators.{name}"
        gathered.add(at, "count", wanted.count, partial(_count, wanted))
        least = None if wanted.memory_bytes_min is None else f"at least {wanted.memory_bytes_min}"
        for metric, declared, fault in (
            ("model", wanted.model, _model),
            ("pci_device", wanted.pci_device, _pci_device),
            ("memory_bytes", least, _memory),
            ("firmware", wanted.firmware, _firmware),
            ("driver", wanted.driver, _driver),
            ("ecc", _on(wanted.ecc), _ecc),
            ("mig", _on(wanted.mig), _mig),
            ("health", "well" if wanted.health else None, _health),
        ):
            gathered.add(at, metric, declared, partial(_each, wanted, metric, declared, fault))
    if not bom.accelerators:
        gathered.lacks("accelerators", "count")
    return gathered.plan()


def mine(wanted: Accelerators, host: Host) -> Seen[tuple[Accelerator, ...]]:
    """Return the host's accelerators of a vendor, what several outputs tell of one of them put together."""
    found: dict[tuple[int | None, int | None], Accelerator] = {}
    raw: list[str] = []
    refused: list[str] = []
    refused_raw: list[str] = []
    for reader, words in READERS[wanted.vendor]:
        for _, seen in host.read_all(reader, *words):
            if isinstance(seen.value, NoData):
                refused.append(seen.value.reason)
                refused_raw += seen.raw
                continue
            raw += seen.raw
            for each in seen.value:
                key = each.index, each.chip
                found[key] = _merged(found[key], each) if key in found else each
        if found:
            break  # rocm-smi is asked where amd-smi told nothing
    if found:
        # A partition of a GPU is none of its own.
        return Seen(tuple(each for each in found.values() if not each.partition), tuple(raw))
    told = "; ".join(dict.fromkeys(refused)) or f"no output of {READERS[wanted.vendor][0][1][0]} was collected"
    return Seen(NoData(told), tuple(refused_raw))


def _merged(known: Accelerator, more: Accelerator) -> Accelerator:
    """Return what both tell: the first that tells something, but trouble before no trouble."""
    changes = {
        field.name: getattr(more, field.name)
        for field in fields(known)
        if getattr(known, field.name) is None and getattr(more, field.name) is not None
    }
    if known.health in (None, WELL) and more.health not in (None, WELL):
        changes["health"] = more.health
    return replace(known, **changes)


def _count(wanted: Accelerators, host: Host) -> Finding:
    seen = mine(wanted, host)
    if isinstance(seen.value, NoData):
        return unseen(seen.value, seen.raw)
    told = f"{len(seen.value)} ({', '.join(_named(each) for each in seen.value)})"
    faults = [] if len(seen.value) == wanted.count else [f"{told}, {wanted.count} were declared"]
    return finding(faults, told, f"{len(seen.value)}, as declared", seen.raw)


def _each(
    wanted: Accelerators,
    metric: str,
    declared: object,
    fault: Callable[[Accelerators, Accelerator], tuple[bool | None, object]],
    host: Host,
) -> Finding:
    seen = mine(wanted, host)
    if isinstance(seen.value, NoData):
        return unseen(seen.value, seen.raw)
    faults, unknown, told = [], [], []
    for each in seen.value:
        holds, found = fault(wanted, each)
        if holds is None:
            unknown.append(f"{_named(each)}: its {metric} is not told")
            continue
        told.append(str(found))
        if not holds:
            faults.append(f"{_named(each)}: {metric} {found}, {declared} was declared")
    shown = ", ".join(dict.fromkeys(told))
    return finding(faults, shown, f"{len(told)} of {len(seen.value)}: {shown}", seen.raw, unknown)


def _model(wanted: Accelerators, each: Accelerator) -> tuple[bool | None, object]:
    return (None if each.name is None else (wanted.model or "").lower() in each.name.lower()), each.name


def _pci_device(wanted: Accelerators, each: Accelerator) -> tuple[bool | None, object]:
    found = pci_id(each)
    return (None if found is None else found == wanted.pci_device), found


def pci_id(each: Accelerator) -> str | None:
    """Return vendor and device as a site declares them, 1002:74a2; None where they are not told."""
    if each.device_id is None or each.vendor_id is None:
        return None
    return f"{each.vendor_id:04x}:{each.device_id:04x}"


def _memory(wanted: Accelerators, each: Accelerator) -> tuple[bool | None, object]:
    return (
        None if each.memory_bytes is None else each.memory_bytes >= (wanted.memory_bytes_min or 0)
    ), each.memory_bytes


def _firmware(wanted: Accelerators, each: Accelerator) -> tuple[bool | None, object]:
    return (None if each.firmware is None else each.firmware == wanted.firmware), each.firmware


def _driver(wanted: Accelerators, each: Accelerator) -> tuple[bool | None, object]:
    return (None if each.driver is None else each.driver == wanted.driver), each.driver


def _ecc(wanted: Accelerators, each: Accelerator) -> tuple[bool | None, object]:
    return (None if each.ecc is None else each.ecc == wanted.ecc), _on(each.ecc)


def _mig(wanted: Accelerators, each: Accelerator) -> tuple[bool | None, object]:
    return (None if each.mig is None else each.mig == wanted.mig), _on(each.mig)


def _health(wanted: Accelerators, each: Accelerator) -> tuple[bool | None, object]:
    """Judge by the tool's own word and by errors that were not corrected; neither told is not known."""
    if each.health is not None and each.health != WELL:
        return False, each.health
    errors = [n for n in (each.uncorrected_errors, each.lifetime_uncorrected_errors) if n is not None]
    if any(errors):
        return False, f"{max(errors)} uncorrected errors"
    if each.health is None and not errors:
        return None, None
    return True, each.health or "no uncorrected errors"


def _on(value: bool | None) -> str | None:
    return None if value is None else "on" if value else "off"


def _named(each: Accelerator) -> str:
    number = f"{each.vendor} {each.index if each.index is not None else '?'}"
    return number + (f".{each.chip}" if each.chip is not None else "") + (f" {each.bus_id}" if each.bus_id else "")
