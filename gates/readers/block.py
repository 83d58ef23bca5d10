"""Block devices and file systems: lsblk, findmnt, df, /proc/mounts of util-linux, coreutils and the kernel.

Sizes are exact bytes or unknown: what a tool rounds for people (63.9M) is no figure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from gates.readers.error import ReaderError, answer, document, integer, objects, shown, text, whole_lines, word
from gates.readers.smart import bare
from workloads.bundle import Output

Json = dict[str, Any]

NODES_MAX = 100_000
SECTOR_BYTES = 512  # of /proc/diskstats, whatever the device's own is
# What df calls the unit of its size column (--block-size): "1B-blocks", "1K-blocks", "1024-blocks", ...
_BLOCKS = re.compile(r"(\d+)([BKMG]?)-blocks")
_UNITS = {"": 1, "B": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_DF_COUNTS = {"Inodes": "inodes", "IUsed": "inodes_used", "IFree": "inodes_free"}
_DF_SIZES = {"Used": "used_bytes", "Avail": "avail_bytes", "Available": "avail_bytes"}


@dataclass(frozen=True)
class BlockDevice:
    """One disk, partition, volume or array."""

    name: str  # as nvme0n1, md0, vg-data
    type: str | None = None  # disk, part, lvm, raid1, loop, ...
    size_bytes: int | None = None
    mountpoints: tuple[str, ...] = ()
    fstype: str | None = None
    model: str | None = None
    serial: str | None = None
    transport: str | None = None
    logical_sector_bytes: int | None = None
    physical_sector_bytes: int | None = None
    scheduler: str | None = None
    rotational: bool | None = None
    read_only: bool | None = None
    parents: tuple[str, ...] = ()  # what it is made of: several for LVM and RAID


@dataclass(frozen=True)
class FileSystem:
    """One mount. Option 'rw' does not prove that a write succeeds: see gates/readers/writes.py."""

    target: str
    source: str | None = None
    root: str | None = None  # the part of the source that is mounted, where it is not all
    fstype: str | None = None
    options: tuple[str, ...] | None = None
    size_bytes: int | None = None
    used_bytes: int | None = None
    avail_bytes: int | None = None
    inodes: int | None = None
    inodes_used: int | None = None
    inodes_free: int | None = None


def block_devices(output: Output) -> tuple[BlockDevice, ...]:
    """Return every device that `lsblk -J -b` shows, each once, with what it lies on. Raises ReaderError."""
    answer(output)
    found: dict[str, BlockDevice] = {}
    for row, above in _walk(_listed(output, "blockdevices"), output):
        name = _device_name(row)
        if name is None:
            raise ReaderError(f"{output.command}: a device without name: {shown(str(row))}")
        parents = () if above is None else tuple(filter(None, (_device_name(above),)))
        device = _device(row, name, parents)
        known = found.get(name)
        if known is not None:  # shown below each of its parents
            device = replace(known, parents=tuple(dict.fromkeys(known.parents + parents)))
        found[name] = device
    return tuple(found.values())


def findmnt(output: Output) -> tuple[FileSystem, ...]:
    """Return the mounts that `findmnt -J [-b -o ...]` shows, in its order: of one target the last lies on top.

    Raises ReaderError.
    """
    answer(output)
    found = []
    for row, _ in _walk(_listed(output, "filesystems"), output):
        target, source = word(row.get("target")), word(row.get("source"))
        if target is None:
            raise ReaderError(f"{output.command}: a file system without target: {shown(str(row))}")
        # SOURCE[/ROOT] where only a part is mounted: bind mounts, subvolumes.
        part = re.fullmatch(r"(.+?)\[(/.*)\]", source) if source else None
        found.append(
            FileSystem(
                target,
                part[1] if part else source,
                part[2] if part else None,
                word(row.get("fstype")),
                _options(word(row.get("options"))),
                *(_bytes(row.get(key)) for key in ("size", "used", "avail")),
            )
        )
    return tuple(found)


def df(output: Output) -> tuple[FileSystem, ...]:
    """Return what `df`, best `df -B1 --output`, shows in English. Raises ReaderError.

    A file system that df could not ask is left out by it, with a word on stderr and status 1: it is not among them.
    """
    lines = [line for line in whole_lines(text(output), output) if line.strip()]
    header = lines[0].replace("Mounted on", "Mounted_on").split() if lines else []
    if not header or header[0] != "Filesystem" or header[-1] != "Mounted_on":
        raise ReaderError(
            f"{output.command}: its header is not df's in English (LC_ALL=C): {shown(lines[0] if lines else '')}"
        )
    found, carried = [], ""
    for line in lines[1:]:
        words = f"{carried} {line}".split()
        if len(words) == 1:  # older versions wrap after a long source
            carried = line
            continue
        carried = ""
        found.append(_df_row(header, words, output))
    return tuple(found)


def mounts(output: Output) -> tuple[FileSystem, ...]:
    """Return what /proc/mounts shows, in its order: of one target the last lies on top. Raises ReaderError."""
    found = []
    for line in whole_lines(answer(output), output):
        fields = line.split()
        if not fields:
            continue
        if len(fields) != 6 or not fields[1].startswith("/"):
            raise ReaderError(f"{output.command}: no line of /proc/mounts: {shown(line)}")
        source, target, fstype, options = map(_unescaped, fields[:4])
        found.append(FileSystem(target, source, None, fstype, _options(options)))
    return tuple(found)


def disk_counters(output: Output) -> dict[str, int]:
    """Return the bytes that all block devices of /proc/diskstats read and wrote since boot, as "read" and "written".

    Partitions are counted with their disk. Raises ReaderError: no line of it. Documentation/admin-guide/iostats.rst.
    """
    totals = {"read": 0, "written": 0}
    lines = [line.split() for line in whole_lines(answer(output), output) if line.strip()]
    for fields in lines:
        if len(fields) < 14 or not all(field.isascii() and field.isdecimal() for field in (*fields[:2], *fields[3:])):
            raise ReaderError(f"{output.command}: no line of /proc/diskstats: {shown(' '.join(fields))}")
        if not re.fullmatch(r"(?:sd|vd|hd|xvd)[a-z]+\d+|(?:nvme\d+n|mmcblk|md|nbd|loop)\d+p\d+", fields[2]):
            sectors = integer(fields[5]), integer(fields[9])
            totals["read"] += SECTOR_BYTES * (sectors[0] or 0)
            totals["written"] += SECTOR_BYTES * (sectors[1] or 0)
    return totals


def below(path: str, target: str) -> bool:
    """Return whether an absolute path is a mount's target or lies below it."""
    return path == target or path.startswith(target.rstrip("/") + "/")


def holding(mounted: Iterable[FileSystem], path: str) -> FileSystem | None:
    """Return the file system that holds an absolute path: the longest target above it, the last of equals."""
    best: FileSystem | None = None
    for each in mounted:
        if below(path, each.target) and (best is None or len(each.target) >= len(best.target)):
            best = each
    return best


def _listed(output: Output, key: str) -> list[Json]:
    found = document(output)
    if not isinstance(found, dict) or key not in found:
        raise ReaderError(f"{output.command}: its JSON has no {key}: {shown(str(found))}")
    return objects(found[key], output)


def _walk(rows: list[Json], output: Output) -> Iterable[tuple[Json, Json | None]]:
    """Yield each row with the one it is a child of, in the order of the tool."""
    waiting: list[tuple[Json, Json | None]] = [(row, None) for row in reversed(rows)]
    count = 0
    while waiting:
        row, above = waiting.pop()
        count += 1
        if count > NODES_MAX:
            raise ReaderError(f"{output.command}: shows more than {NODES_MAX} devices, which no host has")
        yield row, above
        if row.get("children") is not None:
            waiting += [(child, row) for child in reversed(objects(row["children"], output))]


def _device_name(row: Json) -> str | None:
    name = bare(row.get("name"))
    return name.removeprefix("mapper/") if name else None


def _device(row: Json, name: str, parents: tuple[str, ...]) -> BlockDevice:
    points = row.get("mountpoints")  # from 2.37 on; `mountpoint` before, and for one column
    points = points if isinstance(points, list) else [row.get("mountpoint")]
    return BlockDevice(
        name,
        word(row.get("type")),
        _bytes(row.get("size")),
        tuple(point for point in points if isinstance(point, str) and point.startswith("/")),
        word(row.get("fstype")),
        word(row.get("model")),
        word(row.get("serial")),
        word(row.get("tran")),
        integer(row.get("log-sec")),
        integer(row.get("phy-sec")),
        word(row.get("sched")),
        _flag(row.get("rota")),
        _flag(row.get("ro")),
        parents,
    )


def _bytes(value: object) -> int | None:
    """Return a size: a number, or digits in quotes (before 2.33). One for people, as "63.9M", is not exact."""
    return None if isinstance(value, str) and not value.strip().isdecimal() else integer(value)


def _flag(value: object) -> bool | None:
    """Return what is true, false, 1, 0, "1" or "0" by version."""
    number = int(value) if isinstance(value, bool) else integer(value)
    return {0: False, 1: True}.get(number) if number is not None else None


def _options(options: str | None) -> tuple[str, ...] | None:
    return None if options is None else tuple(part for part in options.split(",") if part)


def _df_row(header: list[str], words: list[str], output: Output) -> FileSystem:
    """Return a row of df. Source and target may hold blanks: the columns between say where they end."""
    between = len(header) - 2
    for at in range(1, len(words) - between):
        row = dict(zip(header[1:-1], words[at : at + between], strict=True))
        if words[at + between].startswith("/") and all(_fits(column, value) for column, value in row.items()):
            return _of_df(row, " ".join(words[:at]), " ".join(words[at + between :]))
    raise ReaderError(f"{output.command}: a row that does not fit its header: {shown(' '.join(words))}")


def _fits(column: str, value: str) -> bool:
    return column in ("Type", "File") or re.fullmatch(r"-|-?\d[\d.,]*[KMGTPE]?i?B?|\d+%", value) is not None


def _of_df(row: dict[str, str], source: str, target: str) -> FileSystem:
    unit = None
    numbers: dict[str, int | None] = {}
    for column, value in row.items():  # the size comes first, and its name tells the unit of all
        if blocks := _BLOCKS.fullmatch(column):
            unit = int(blocks[1]) * _UNITS[blocks[2]]
            numbers["size_bytes"] = _scaled(value, unit)
        elif column in _DF_COUNTS:
            numbers[_DF_COUNTS[column]] = integer(value)
        elif column in _DF_SIZES:
            numbers[_DF_SIZES[column]] = _scaled(value, unit)
    return FileSystem(target, source, None, row.get("Type"), None, **numbers)


def _scaled(value: str, unit: int | None) -> int | None:
    count = integer(value)
    return None if count is None or unit is None else count * unit


def _unescaped(field: str) -> str:
    r"""Return a field of /proc/mounts with its blanks: \040 is a space, \011 a tab, \134 a backslash."""
    return re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), field)
