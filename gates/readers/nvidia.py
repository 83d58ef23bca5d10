"""`nvidia-smi --query-...=... --format=csv[,noheader][,nounits]` and `-L`. Format: the tool's --help-query-gpu."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from gates.readers.accelerator import Accelerator
from gates.readers.error import ReaderError, decimal, identity, integer, shown, text, whole_lines
from gates.readers.pci import bus_id
from workloads.bundle import Output

Row = Mapping[str, str | None]

MIB = 1 << 20
_FIELD = re.compile(r"[a-z][A-Za-z0-9_.]*(?: \[[^\]]*\])?")
_UNKNOWN = re.compile(r"\[.*\]|N/A|Not Supported|ERR!|", re.IGNORECASE)
_TROUBLE = re.compile(r"\[(GPU is lost|Unknown Error|.*[Rr]eset.*)\]")
# What a query may ask for, and what the header calls it then.
_ALIASES = {"gpu_name": "name", "gpu_bus_id": "pci.bus_id", "gpu_uuid": "uuid", "gpu_serial": "serial"}


@dataclass(frozen=True)
class Listed:
    """A GPU as `nvidia-smi -L` lists it."""

    index: int
    name: str
    uuid: str
    mig_profiles: tuple[str, ...]  # of its MIG devices, as "3g.40gb"; () without


def rows(output: Output) -> tuple[Row, ...]:
    """Return the rows of a query by the field's name, without its unit. None: not told.

    Raises ReaderError: no header, and the command names no fields; a row with another number of columns, as an error
    line among them is.
    """
    names, table = _table(output)
    return tuple(
        {name: None if _UNKNOWN.fullmatch(cell) else cell for name, cell in zip(names, cells, strict=True)}
        for cells in table
    )


def gpus(output: Output) -> tuple[Accelerator, ...]:
    """Return the GPUs that --query-gpu shows. Raises ReaderError: as `rows`, or fewer than their `count` says."""
    names, table = _table(output)
    read = [_gpu(row, cells) for row, cells in zip(rows(output), table, strict=True)]
    counts = {integer(cells[names.index("count")]) for cells in table} if "count" in names else set()
    some = any(word in ("-i", "--id") or word.startswith("--id=") for word in output.argv)
    if not some and any(count is not None and count != len(read) for count in counts):
        raise ReaderError(f"{output.command}: shows {len(read)} GPUs of {max(c for c in counts if c is not None)}")
    if len({gpu.index for gpu in read}) < len(read) and "index" in names:
        raise ReaderError(f"{output.command}: shows one index twice")
    warnings = [line for line in text(output).splitlines() if line.startswith("WARNING:")]
    return tuple(_warned(gpu, warnings) for gpu in read)


def listed(output: Output) -> tuple[Listed, ...]:
    """Return what `nvidia-smi -L` lists. Raises ReaderError: no GPU, or a line that is neither GPU nor MIG device."""
    found: list[tuple[int, str, str, list[str]]] = []
    for line in text(output).splitlines():
        if match := re.fullmatch(r"GPU (\d{1,4}): (.+) \(UUID: ([\w-]+)\)\s*", line):
            found.append((int(match[1]), match[2].strip(), match[3], []))
        elif found and (match := re.fullmatch(r"\s+MIG (\S+)\s+Device\s+\d+:\s+\(UUID: [\w/-]+\)\s*", line)):
            found[-1][3].append(match[1])
        elif line.strip() and not line.startswith("WARNING:"):
            raise ReaderError(f"{output.command}: lists no GPU, but {shown(line)}")
    if not found or len({index for index, *_ in found}) < len(found):
        raise ReaderError(f"{output.command}: lists no GPU, or one twice")
    return tuple(Listed(index, name, uuid, tuple(profiles)) for index, name, uuid, profiles in found)


def _table(output: Output) -> tuple[list[str], list[list[str]]]:
    lines = [line for line in whole_lines(text(output), output) if line.strip() and not line.startswith("WARNING:")]
    try:
        table = [[cell.strip() for cell in cells] for cells in csv.reader(lines, skipinitialspace=True, strict=True)]
    except csv.Error as error:
        raise ReaderError(f"{output.command}: its CSV is broken: {error}") from None
    query = next((word for word in output.argv if re.match(r"--query-[\w-]+=", word)), "")
    asked = [_ALIASES.get(name.strip(), name.strip()) for name in query.partition("=")[2].split(",") if name.strip()]
    names = asked
    if not any("noheader" in word for word in output.argv) and table and all(_FIELD.fullmatch(c) for c in table[0]):
        names = [cell.partition(" [")[0] for cell in table.pop(0)]
    if not table or not names:
        raise ReaderError(f"{output.command}: prints no row of a query, but {shown(text(output))}")
    for cells in table:
        if len(cells) != len(names):
            raise ReaderError(f"{output.command}: must have {len(names)} columns, but prints {shown(', '.join(cells))}")
    if len(set(names)) < len(names):
        raise ReaderError(f"{output.command}: has a column twice")
    return names, table


def _gpu(row: Row, cells: list[str]) -> Accelerator:
    device = identity(row.get("pci.device_id"))  # device and vendor in one word: 0x233010DE
    mib = _number(row.get("memory.total"), "MiB")
    return Accelerator(
        vendor="NVIDIA",
        index=integer(row.get("index")),
        name=row.get("name"),
        bus_id=bus_id(row.get("pci.bus_id")),
        vendor_id=None if device is None else device & 0xFFFF,
        device_id=None if device is None else device >> 16,
        uuid=row.get("uuid"),
        serial=row.get("serial"),
        memory_bytes=None if mib is None else int(mib * MIB),
        firmware=row.get("vbios_version"),
        driver=row.get("driver_version"),
        ecc=_enabled(row.get("ecc.mode.current")),
        corrected_errors=integer(row.get("ecc.errors.corrected.volatile.total")),
        uncorrected_errors=integer(row.get("ecc.errors.uncorrected.volatile.total")),
        lifetime_corrected_errors=integer(row.get("ecc.errors.corrected.aggregate.total")),
        lifetime_uncorrected_errors=integer(row.get("ecc.errors.uncorrected.aggregate.total")),
        mig=_enabled(row.get("mig.mode.current")),
        power_w=_number(row.get("power.draw"), "W"),
        temperature_c=_number(row.get("temperature.gpu"), ""),
        health=next((match[1] for cell in cells if (match := _TROUBLE.fullmatch(cell))), None),
    )


def _warned(gpu: Accelerator, warnings: list[str]) -> Accelerator:
    """Return the GPU with a warning that names it: "WARNING: infoROM is corrupted at gpu 0000:18:00.0"."""
    mine = [line for line in warnings if gpu.bus_id is not None and gpu.bus_id in line.lower()]
    if not mine or gpu.health is not None:
        return gpu
    return replace(gpu, health=mine[0].removeprefix("WARNING:").strip())


def _number(found: str | None, unit: str) -> float | None:
    return decimal((found or "").removesuffix(unit).strip())


def _enabled(found: str | None) -> bool | None:
    return {"Enabled": True, "Disabled": False}.get(found or "")
