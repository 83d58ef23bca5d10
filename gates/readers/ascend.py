"""`npu-smi info`: its table, two lines per chip, and `npu-smi info -t board|health|common|memory|ecc -i N`.

Formats: npu-smi 22 to 25 for 310, 310P, 910, 910B, 910_93 (two dies a card) and 950. It prints MB and means MiB.
"""

from __future__ import annotations

import re

from gates.readers.accelerator import Accelerator
from gates.readers.error import ReaderError, answer, decimal, identity, integer, shown, word
from gates.readers.pci import bus_id
from workloads.bundle import Output

MIB = 1 << 20
HEALTHS = ("OK", "Warning", "Alarm", "Critical", "UNKNOWN", "Offline")  # the tool's own words


def chips(output: Output) -> tuple[Accelerator, ...]:
    """Return the chips of the table, in its order.

    Raises ReaderError: no table or no chip in it, a chip without its second line, a health that is no word of the
    tool's, one chip twice.
    """
    found = answer(output)
    version = re.search(r"Version:\s*([\w.+-]+)", found)
    read: list[Accelerator] = []
    pending: list[str] | None = None
    inside = False
    for line in found.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if "Process" in line or "No running process" in line:
            break
        if not line.strip().startswith("|") or len(cells) < 3:
            continue
        if re.match(r"NPU(?: ID)?\b|Chip\b", cells[0]) or (not cells[0] and "Bus-Id" in line):
            inside = True
        elif inside and pending is None:
            pending = _cells(cells, line, output)
        elif inside and pending is not None:
            read.append(_chip(pending, _cells(cells, line, output), version[1] if version else None, output))
            pending = None
    if pending is not None or not read:
        what = "is cut off within a chip" if pending is not None else f"shows no chip, but {shown(found)}"
        raise ReaderError(f"{output.command}: {what}")
    if len({(chip.index, chip.chip) for chip in read}) < len(read):
        raise ReaderError(f"{output.command}: shows one chip twice")
    return tuple(read)


def card(output: Output) -> Accelerator:
    """Return what `npu-smi info -t ... -i N` tells of one card, or with -c of one chip.

    Raises ReaderError: nothing told, as "This device does not support querying"; two chips in one (add -c).
    """
    found = answer(output)
    told: dict[str, str] = {}
    for line in found.splitlines():
        key, colon, value = line.partition(":")
        name = " ".join(key.split()).lower()
        if colon and name and told.setdefault(name, value.strip()) != value.strip():
            raise ReaderError(f"{output.command}: tells '{key.strip()}' twice: ask for one chip with -c")
    index = integer(told.get("npu id", _after(output, "-i")))
    if index is None or not told:
        raise ReaderError(f"{output.command}: tells nothing of a card, but {shown(found)}")
    memory = integer(told.get("hbm capacity(mb)")) or integer(told.get("ddr capacity(mb)"))
    health = word(told.get("health status", told.get("health")))
    return Accelerator(
        vendor="Ascend",
        index=index,
        chip=integer(told.get("chip id", _after(output, "-c"))),
        name=_told(told.get("chip name")) or _told(told.get("product name")),
        bus_id=bus_id(told.get("pcie bus info")),
        vendor_id=identity(told.get("pci vendor id")),
        device_id=identity(told.get("pci device id")),
        serial=_told(told.get("serial number")),
        memory_bytes=memory * MIB if memory else None,
        firmware=_told(told.get("firmware version")),
        driver=_told(told.get("software version")),
        corrected_errors=integer(told.get("hbm single bit error count")),
        uncorrected_errors=integer(told.get("hbm double bit error count")),
        lifetime_corrected_errors=integer(told.get("hbm single bit aggregate total err cnt")),
        lifetime_uncorrected_errors=integer(told.get("hbm double bit aggregate total err cnt")),
        power_w=decimal(told.get("npu real-time power(w)", told.get("power dissipation(w)"))),
        temperature_c=decimal(told.get("temperature(c)", told.get("temperature (c)"))),
        health=health if health in HEALTHS else None,
    )


def _cells(cells: list[str], line: str, output: Output) -> list[str]:
    """Return the three cells of a chip's line; the 950's first cell is two. Raises ReaderError."""
    if len(cells) == 4:
        cells = [" ".join(cells[:2]).strip(), *cells[2:]]
    if len(cells) != 3:
        raise ReaderError(f"{output.command}: not the line of a chip: {shown(line)}")
    return cells


def _chip(first: list[str], second: list[str], driver: str | None, output: Output) -> Accelerator:
    card_name = re.fullmatch(r"([0-9]{1,4})\s+(\S.*)", first[0])
    chip = re.fullmatch(r"(?:([0-9]{1,4})(?:\s+[0-9]{1,4})?)?", second[0])
    if card_name is None or chip is None or first[1] not in HEALTHS:
        raise ReaderError(f"{output.command}: not the two lines of a chip: {shown(' | '.join(first + second))}")
    power, warmth = (*first[2].split(), "", "")[:2]
    usages = re.findall(r"(\d{1,9})\s*/\s*(\d{1,9})(?!\d)", second[2])
    mib = int(usages[-1][1]) if usages else 0  # HBM comes after the DDR, which newer chips do not have
    return Accelerator(
        vendor="Ascend",
        index=int(card_name[1]),
        chip=int(chip[1]) if chip[1] else None,
        name=card_name[2].strip(),
        bus_id=bus_id(second[1]),
        memory_bytes=mib * MIB or None,
        driver=driver,
        power_w=decimal(power),
        temperature_c=decimal(warmth),
        health=first[1],
    )


def _told(found: str | None) -> str | None:
    return None if found is None or found.upper() == "NA" else word(found)


def _after(output: Output, option: str) -> str | None:
    at = output.argv.index(option) + 1 if option in output.argv else len(output.argv)
    return output.argv[at] if at < len(output.argv) else None
