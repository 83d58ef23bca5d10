"""Seal a run with a manifest of its files, and tell everything that is not as it was sealed.

The manifest is a list that `sha256sum -c` reads, in segments: each begins with the hash of all that stands before it,
so that none can be left out, exchanged or put elsewhere. Nothing is opened but plain files that lie in the run.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from workloads.plain import SCRATCH, being_written, is_normal, open_plain, sha256_of, shown, write_whole

MANIFEST = "MANIFEST.sha256"
# Made from the evidence, or about it: not part of it. Whatever has such a name is neither followed nor opened here, and
# told only where it is a folder, which could hold anything.
DERIVED = re.compile(
    r"verdict\.json|report\.[a-z]{2}\.(html|pdf)|MANIFEST\.sha256|MANIFEST\.sha256(\.witness)?\.sig"
    r"|MANIFEST\.sha256\.sig\.error"
)
LAST = "end"  # label of the segment that closes a run
_GENESIS = "0" * 64
_HEADER = re.compile(r"# segment ([^\s]+) after ([0-9a-f]{64})")
_ENTRY = re.compile(r"([0-9a-f]{64})  ([^\0\r\n]+)")
_EMPTY = re.compile(r"# empty ([^\0\r\n]+)")
_ADDED = "added since the run was sealed"


@dataclass
class Manifest:
    """What a manifest says, and what is wrong with it as such."""

    digests: dict[str, str] = field(default_factory=dict)  # file -> SHA-256
    empty: set[str] = field(default_factory=set)  # folders
    segments: list[tuple[str, int]] = field(default_factory=list)  # (label, bytes of the manifest up to its end)
    faults: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Found:
    files: dict[str, os.stat_result]
    empty: list[str]
    odd: dict[str, str]  # name -> what it is


def seal(path: Path, label: str, growing: frozenset[str] = frozenset()) -> str:
    """Append a segment over every plain file not yet sealed; return the manifest's SHA-256.

    `growing` names files that are still being written; a later segment takes them. What cannot be sealed (a link, a
    name with a line feed) is left out, and `verify` tells it: a running measurement does not end on it.
    Raises OSError, and EvidenceError where a manifest that is no plain file lies there already.
    """
    manifest = path / MANIFEST
    before = b""
    if os.path.lexists(manifest):
        with open_plain(manifest) as f:
            before = f.read()
    known = parse(before)
    found = _walk(path)
    previous = hashlib.sha256(before).hexdigest() if before else _GENESIS
    lines = [f"# segment {label} after {previous}"]
    for name in found.files:
        if name not in known.digests and name not in growing and _fits_a_line(name):
            lines.append(f"{sha256_of(path / name)}  {name}")
    lines += [f"# empty {name}" for name in found.empty if name not in known.empty and _fits_a_line(name)]
    content = before + ("\n".join(lines) + "\n").encode()
    write_whole(manifest, content)
    return hashlib.sha256(content).hexdigest()


def verify(path: Path) -> list[str]:
    """Return a line per file that is changed, missing, added or not plain, and per fault of the manifest.

    An empty list means that the evidence is what was sealed. The verdict, reports and signatures are no evidence.
    """
    try:
        if (path / MANIFEST).is_symlink():
            return [f"{MANIFEST}: not a plain file"]
        with open_plain(path / MANIFEST) as f:
            manifest = parse(f.read())
        found = _walk(path)
    except (OSError, ValueError) as error:
        if (path / MANIFEST).exists():
            return [f"evidence cannot be read: {shown(str(error)).replace(f'{path}/', '')}"]
        return [f"{MANIFEST}: missing: nothing seals this run"]
    faults = list(manifest.faults)
    there = [name for name in manifest.digests if name in found.files]
    with ThreadPoolExecutor() as pool:  # hashing lets go of the interpreter's lock
        compared = pool.map(lambda name: list(_compared(path, name, manifest.digests[name], found.files[name])), there)
        told = dict(zip(there, compared, strict=True))
    for name in manifest.digests:
        if name in found.files:
            faults += told[name]
        elif name not in found.odd:
            faults.append(f"{shown(name)}: missing")
    faults += [f"{shown(name)}: {what}" for name, what in sorted(found.odd.items())]
    added = [
        *(n for n in found.files if n not in manifest.digests),
        *(n for n in found.empty if n not in manifest.empty),
    ]
    faults += [f"{shown(name)}: {_kind(name, found)}{_ADDED}" for name in sorted(added)]
    faults += [
        f"{shown(name)}: its name is not in Unicode normal form C"
        for name in sorted({*found.files, *found.empty, *manifest.digests})
        if not is_normal(name)
    ]
    return faults


def unended(path: Path) -> list[str]:
    """Return a line if the last segment is not the one that closes a run: it was killed, or the rest was cut off."""
    try:
        with open_plain(path / MANIFEST) as f:
            segments = parse(f.read()).segments
    except (OSError, ValueError):
        return []  # told by `verify`
    if segments and segments[-1][0] == LAST:
        return []
    last = f"ends with segment '{shown(segments[-1][0])}'" if segments else "has no segment"
    return [f"{MANIFEST}: {last}, not with '{LAST}': the run did not come to its end"]


def parse(content: bytes) -> Manifest:
    """Return what the bytes of a manifest say. Never raises: what is wrong is among the faults."""
    found = Manifest()
    position = 0
    for number, line in enumerate(content.split(b"\n"), start=1):
        end = position + len(line) + 1
        if end > len(content):
            if line:
                found.faults.append(f"{MANIFEST}:{number}: cut off in the middle of a line")
            break
        _take(found, number, line.decode("utf-8", "replace"), content[:position])
        if found.segments:
            found.segments[-1] = (found.segments[-1][0], end)
        position = end
    if not found.digests:
        found.faults.append(f"{MANIFEST}: lists nothing")
    return found


def _take(found: Manifest, number: int, line: str, before: bytes) -> None:
    place = f"{MANIFEST}:{number}"
    if header := _HEADER.fullmatch(line):
        expected = hashlib.sha256(before).hexdigest() if before else _GENESIS
        if header[2] != expected:
            found.faults.append(f"{place}: this segment does not follow what stands before it")
        found.segments.append((header[1], 0))
    elif entry := _ENTRY.fullmatch(line):
        if not found.segments:
            found.faults.append(f"{place}: a file before the first segment")
        if entry[2] in found.digests:
            found.faults.append(f"{place}: {shown(entry[2])} is listed twice")
        elif entry[2].startswith("/") or {"", ".", ".."} & set(entry[2].split("/")):
            found.faults.append(f"{place}: {shown(entry[2])} is not a plain file of this run")
        else:
            found.digests[entry[2]] = entry[1]
    elif empty := _EMPTY.fullmatch(line):
        found.empty.add(empty[1])
    else:
        ending = ": it ends in CR LF" if line.endswith("\r") else ""
        found.faults.append(f"{place}: not a line of a manifest{ending}")


def _compared(path: Path, name: str, digest: str, status: os.stat_result) -> Iterator[str]:
    if status.st_nlink > 1:
        # Whoever holds the other name can change the evidence from elsewhere.
        yield f"{shown(name)}: a hard link: the file has {status.st_nlink} names"
    try:
        if sha256_of(path / name) != digest:
            yield f"{shown(name)}: changed since it was sealed"
    except (OSError, ValueError):
        yield f"{shown(name)}: cannot be read"


def _walk(path: Path) -> _Found:
    """Return everything in the run but what is derived from it. Follows no link, opens nothing. Raises OSError."""
    found = _Found({}, [], {})
    folders = [""]
    while folders:
        folder = folders.pop()
        entries = sorted(os.scandir(path / folder), key=lambda e: e.name)
        if folder and not entries:
            found.empty.append(folder)
        for entry in entries:
            name = f"{folder}/{entry.name}" if folder else entry.name
            status = entry.stat(follow_symlinks=False)
            if stat.S_ISDIR(status.st_mode):
                if DERIVED.fullmatch(name):
                    found.odd[name] = f"a folder, where a file would be no evidence: {_ADDED}"
                else:
                    folders.append(name)
            elif DERIVED.fullmatch(name):
                continue
            elif not stat.S_ISREG(status.st_mode):
                kind = "a symbolic link" if stat.S_ISLNK(status.st_mode) else "a pipe, socket or device"
                found.odd[name] = f"{kind}, not a plain file of this run"
            elif SCRATCH.fullmatch(entry.name):
                if not being_written(path / name):
                    found.odd[name] = f"left behind by a write that was cut off: {_ADDED}"
            else:
                found.files[name] = status
    return _Found(dict(sorted(found.files.items())), sorted(found.empty), found.odd)


def _fits_a_line(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return not {"\0", "\r", "\n"} & set(name)


def _kind(name: str, found: _Found) -> str:
    if name in found.files:
        return "" if _fits_a_line(name) else "no manifest can hold its name: "
    return "an empty folder: "
