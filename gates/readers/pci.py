"""`lspci -vv`, `-vvv`, with or without -nn, -k, -D, and its machine forms: functions, and how their links trained.

Formats: pciutils' ls-caps.c and lspci.c, 3.1 to 3.14.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field

from gates.readers.error import ReaderError, answer, shown
from workloads.bundle import Output

_ADDRESS = r"(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]"
_HEAD = re.compile(rf"({_ADDRESS}) (\S.*)")
_LINK = re.compile(r"\s+(Lnk(?:Cap|Sta)):\s+(?:Port #\d+, )?Speed (unknown|[\d.]+GT/s)[^,]*, Width x(\d+)(?=[\s,(])")
_IDS = re.compile(r"\[([0-9a-f]{4}):([0-9a-f]{4})\]")
_LINE_MOST = 4096
_CODED = re.compile(r"(.*?)\s*\[([0-9a-f]{4})\]$")


@dataclass(frozen=True)
class Link:
    """A PCIe link's speed and width, of what a function can do or what it trained to."""

    speed_gt_per_s: float | None  # GT/s of one lane; None: printed as unknown
    width: int  # lanes; 0: no link, as of a virtual function


@dataclass(frozen=True)
class Function:
    """One PCI function."""

    bus_id: str  # domain:bus:device.function
    kind: str | None  # the class's name
    name: str | None  # vendor and device
    class_id: int | None = None
    vendor_id: int | None = None
    device_id: int | None = None
    can: Link | None = None  # LnkCap
    runs: Link | None = None  # LnkSta
    driver: str | None = None
    numa_node: int | None = None
    denied: bool = False  # capabilities need root: no link can be seen
    gone: bool = False  # its registers read as all ones: it fell off the bus

    @property
    def degraded(self) -> bool | None:
        """Return whether the link runs slower or narrower than the function can; None where that cannot be seen.

        From the numbers, since pciutils says "(downgraded)" only from 3.6 on, and since 3.10 not of bridges.
        """
        can, runs = self.can, self.runs
        if can is None or runs is None or None in (can.speed_gt_per_s, runs.speed_gt_per_s) or not runs.width:
            return None
        return (runs.speed_gt_per_s or 0.0) < (can.speed_gt_per_s or 0.0) or runs.width < can.width


def bus_id(found: object) -> str | None:
    """Return a PCI address as domain:bus:device.function in lower case, the domain with 4 digits or more.

    "0A:00.0" and "00000000:0A:00.0" are "0000:0a:00.0". None for what is no address.
    """
    if not isinstance(found, str) or not re.fullmatch(_ADDRESS, found.strip()):
        return None
    *domain, bus, device = found.strip().lower().split(":")
    return f"{int(domain[0] if domain else '0', 16):04x}:{bus}:{device}"


def functions(output: Output) -> tuple[Function, ...]:
    """Return what `lspci` in any of its forms shows, in its order. Raises ReaderError: no function in it, one twice."""
    found = answer(output)
    lines = found.splitlines(keepends=True)
    first = next((line for line in lines if line.strip()), "")
    if re.match(r"(Slot|Device):\s", first):
        read = _blocks(found)
    elif re.match(rf'{_ADDRESS} "', first):
        read = [_quoted(line, output) for line in lines if line.strip()]
    else:
        read = _verbose(lines)
    if not read:
        raise ReaderError(f"{output.command}: printed no PCI function, but {shown(found)}")
    if len({function.bus_id for function in read}) < len(read):
        raise ReaderError(f"{output.command}: shows one PCI function twice")
    return tuple(read)


@dataclass
class _Draft:
    address: str
    head: str
    lines: list[str] = field(default_factory=list)

    def read(self) -> Function:
        kind, _, name = self.head.partition(": ")
        coded = _CODED.match(kind)
        ids = _IDS.findall(name) or re.findall(r"^([0-9a-f]{4}):([0-9a-f]{4})(?=\s|$)", name)
        numeric = re.fullmatch(r"[0-9a-f]{4}", kind)
        links: dict[str, Link] = {}
        told: dict[str, str] = {}
        for line in self.lines:
            if match := _LINK.match(line):
                which, speed, width = match.groups()
                known = re.fullmatch(r"(\d{1,4}(?:\.\d{1,4})?)GT/s", speed)
                links.setdefault(which, Link(float(known[1]) if known else None, int(width[:4])))
            key, colon, value = line.strip().partition(": ")
            if colon:
                told.setdefault(key, value.strip())
        body = "".join(self.lines)
        gone = bool(re.search(r"!!! Unknown header type (ff|7f)", body)) or "(rev ff)" in name
        node = told.get("NUMA node", "")
        return Function(
            bus_id=bus_id(self.address) or self.address,
            kind=coded[1] if coded else kind,
            name=re.split(r" \[[0-9a-f]{4}:|\s\((?:rev|prog-if) ", name)[0].strip() or None,
            class_id=int(coded[2], 16) if coded else int(kind, 16) if numeric else None,
            vendor_id=int(ids[-1][0], 16) if ids else None,
            device_id=int(ids[-1][1], 16) if ids else None,
            can=None if gone else links.get("LnkCap"),
            runs=None if gone else links.get("LnkSta"),
            driver=told.get("Kernel driver in use"),
            numa_node=int(node) if re.fullmatch(r"[0-9]{1,4}", node) else None,
            denied="<access denied" in body,
            gone=gone,
        )


def _verbose(lines: list[str]) -> list[Function]:
    drafts: list[_Draft] = []
    for line in lines:
        if match := _HEAD.match(line):
            drafts.append(_Draft(match[1], match[2].strip()))
        elif drafts and line[:1].isspace():
            drafts[-1].lines.append(line)
    return [draft.read() for draft in drafts]


def _blocks(found: str) -> list[Function]:
    """Read -vmm, -vmmk: blocks of 'Tag: value'. The form before -mm calls slot and device both Device."""
    read = []
    for block in re.split(r"\n\s*\n", found.replace("\r", "")):
        told: dict[str, str] = {}
        for line in block.strip().splitlines():
            tag, _, value = line.partition(":")
            value = value.strip()
            tag = "Slot" if tag == "Device" and not told and bus_id(value) else tag
            told.setdefault(tag, value)
        if (slot := bus_id(told.get("Slot"))) is not None:
            read.append(_coded(slot, told))
    return read


def _quoted(line: str, output: Output) -> Function:
    """Read -mm without -v: one line of quoted words."""
    try:
        slot, *words = shlex.split(line[:_LINE_MOST])
    except ValueError:
        raise ReaderError(f"{output.command}: a line of it is cut off: {shown(line)}") from None
    plain = [word for word in words if not re.fullmatch(r"-[rp][0-9a-f]{2}", word)]
    address = bus_id(slot)
    if address is None or len(plain) < 3:
        raise ReaderError(f"{output.command}: no PCI function, but {shown(line)}")
    return _coded(address, dict(zip(("Class", "Vendor", "Device"), plain, strict=False)))


def _coded(slot: str, told: dict[str, str]) -> Function:
    names: dict[str, str | None] = {}
    ids: dict[str, int | None] = {}
    for tag in ("Class", "Vendor", "Device"):
        value = told.get(tag, "")
        match = _CODED.match(value)
        bare = re.fullmatch(r"[0-9a-f]{4}", value)
        names[tag] = match[1] if match else None if bare else value or None
        ids[tag] = int(match[2], 16) if match else int(value, 16) if bare else None
    node = told.get("NUMANode", "")
    return Function(
        bus_id=slot,
        kind=names["Class"],
        name=" ".join(name for name in (names["Vendor"], names["Device"]) if name) or None,
        class_id=ids["Class"],
        vendor_id=ids["Vendor"],
        device_id=ids["Device"],
        driver=told.get("Driver"),
        numa_node=int(node) if re.fullmatch(r"[0-9]{1,4}", node) else None,
        gone=told.get("Rev") == "ff",
    )
