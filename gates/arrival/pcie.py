"""PCIe links: trained to the speed and width that were ordered, and to what the device can do."""

from __future__ import annotations

from functools import partial

from gates.arrival.check import Collector, Finding, Plan, finding, unseen
from gates.arrival.host import Host, Seen
from gates.arrival.limits import Limits
from gates.nodata import NoData
from gates.readers import pci
from scenarios.bom import Bom, PcieLinks


def plan(bom: Bom, limits: Limits) -> Plan:
    """Return the checks of the declared links."""
    gathered = Collector()
    for name, links in bom.pcie.items():
        if links.device is not None:
            gathered.add(f"pcie.{name}", "count", links.count, partial(_count, links))
        gathered.add(f"pcie.{name}", "link", _declared(links), partial(_links, links))
    if not bom.pcie:
        gathered.lacks("pcie", "link")
    return gathered.plan()


def functions(host: Host) -> Seen[tuple[pci.Function, ...]]:
    """Return the host's PCI functions, from the output that tells most of them: ids and links."""
    return host.best(pci.functions, _told, "lspci")


def _told(found: tuple[pci.Function, ...]) -> int:
    return sum((f.runs is not None) + (f.device_id is not None) for f in found)


def _declared(links: PcieLinks) -> str:
    told = [f"{links.speed_gt_per_s:g} GT/s"] if links.speed_gt_per_s is not None else []
    told += [f"x{links.width}"] if links.width is not None else []
    return " ".join(told) or "what the device can do"


def _named(links: PcieLinks) -> str:
    return links.address or f"devices {links.device}"


def _mine(links: PcieLinks, found: tuple[pci.Function, ...]) -> list[pci.Function] | NoData:
    if links.address is not None:
        return [f for f in found if f.bus_id == pci.bus_id(links.address)]
    if any(f.vendor_id is None or f.device_id is None for f in found):
        return NoData("lspci was run without -nn, so that no function shows its vendor and device id")
    return [f for f in found if f"{f.vendor_id:04x}:{f.device_id:04x}" == links.device]


def _count(links: PcieLinks, host: Host) -> Finding:
    seen = functions(host)
    mine = seen.value if isinstance(seen.value, NoData) else _mine(links, seen.value)
    if isinstance(mine, NoData):
        return unseen(mine, seen.raw)
    told = f"{len(mine)} of {links.device}"
    faults = [] if len(mine) == links.count else [f"{told}, {links.count} were declared"]
    return finding(faults, told, f"{told}, as declared", seen.raw)


def _links(links: PcieLinks, host: Host) -> Finding:
    seen = functions(host)
    mine = seen.value if isinstance(seen.value, NoData) else _mine(links, seen.value)
    if isinstance(mine, NoData):
        return unseen(mine, seen.raw)
    if not mine:
        return finding([f"{_named(links)}: no such device"], "none", "", seen.raw)
    faults, unknown, told = [], [], set()
    for function in mine:
        if function.gone:
            faults.append(f"{function.bus_id}: it fell off the bus")
            continue
        runs, can = function.runs, function.can
        speed = links.speed_gt_per_s or (can.speed_gt_per_s if can else None)
        width = links.width or (can.width if can else None)
        if runs is None or runs.speed_gt_per_s is None or speed is None or width is None:
            why = "lspci was not run as root" if function.denied else "lspci shows no trained link (-vv)"
            unknown.append(f"{function.bus_id}: {why}")
            continue
        link = f"{runs.speed_gt_per_s:g} GT/s x{runs.width}"
        told.add(link)
        if runs.speed_gt_per_s < speed or runs.width < width:
            faults.append(f"{function.bus_id}: its link runs at {link}, it should at {speed:g} GT/s x{width}")
    return finding(faults, ", ".join(sorted(told)), f"{len(mine)} at {_declared(links)}", seen.raw, unknown)
