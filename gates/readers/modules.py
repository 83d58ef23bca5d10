"""What of Python's packages is installed: versions, hashes of files, native libraries, as workloads/probes.py tells it.

`packages-of PYTHON`, `module-hashes-of PYTHON`, `native-ops-of PYTHON`. The first two end with how many lines there
are, so that half a list is none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from gates.readers.error import ReaderError, answer, document, objects, shown, word
from workloads.bundle import Output

_HASH = re.compile(r"([0-9a-f]{64})  (\d{1,15})  (\S.*)")
_FOLDER = re.compile(r"# (\w+) is (/.*)")
_PACKAGE = re.compile(r"([A-Za-z0-9][\w.-]*)==(\S+)")


@dataclass(frozen=True)
class Modules:
    """The files of modules that are installed."""

    folders: Mapping[str, tuple[str, ...]]  # by module, as lmcache; one that is not among them is not installed
    sha256: Mapping[str, str]  # by file, as lmcache/v1/x.py


@dataclass(frozen=True)
class Library:
    """A native library of a package."""

    file: str
    built_for: frozenset[str]  # cuda, rocm, cann, xpu: what it is linked against; empty for none of them
    loads: bool
    error: str | None  # why not


@dataclass(frozen=True)
class Natives:
    """The native libraries of the modules that were asked for."""

    modules: tuple[str, ...]  # those that are installed
    libraries: tuple[Library, ...]


def packages(output: Output) -> dict[str, str]:
    """Return version by name, in lower case with '-'. Raises ReaderError: cut off, no package in a line, one twice."""
    found: dict[str, str] = {}
    for line in _counted(output, "packages"):
        match = _PACKAGE.fullmatch(line)
        name = re.sub(r"[-_.]+", "-", match[1]).lower() if match else ""
        if match is None or name in found:
            raise ReaderError(f"{output.command}: {'tells twice of' if match else 'is no package:'} {shown(line)}")
        found[name] = match[2]
    return found


def hashes(output: Output) -> Modules:
    """Return the SHA-256 of every file. Raises ReaderError: cut off, a line that is none, two hashes of one file."""
    folders: dict[str, tuple[str, ...]] = {}
    found: dict[str, str] = {}
    for line in _counted(output, "files"):
        if match := _FOLDER.fullmatch(line):
            folders[match[1]] = (*folders.get(match[1], ()), match[2])
        elif match := _HASH.fullmatch(line):
            if found.setdefault(match[3], match[1]) != match[1]:
                raise ReaderError(f"{output.command}: tells two hashes of {shown(match[3])}")
        else:
            raise ReaderError(f"{output.command}: is no hash of a file: {shown(line)}")
    return Modules(folders, found)


def natives(output: Output) -> Natives:
    """Return what the native libraries were built for, and whether they load. Raises ReaderError: another form."""
    if output.status:
        answer(output)
    told = document(output)
    names = told.get("modules") if isinstance(told, dict) else None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ReaderError(f"{output.command}: its JSON tells no modules: {shown(str(told))}")
    libraries = []
    for row in objects(told.get("libraries"), output):
        file, built_for, loads = word(row.get("file")), row.get("built_for"), row.get("loads")
        named = isinstance(built_for, list) and all(isinstance(each, str) for each in built_for)
        if file is None or not named or not isinstance(loads, bool):
            raise ReaderError(f"{output.command}: tells half of a library: {shown(str(row))}")
        libraries.append(Library(file, frozenset(built_for or ()), loads, word(row.get("error"))))
    return Natives(tuple(names), tuple(libraries))


def _counted(output: Output, what: str) -> list[str]:
    """Return the lines before the last, which says how many of them are no comments. Raises ReaderError."""
    lines = [line for line in answer(output).splitlines() if line.strip()]
    said = re.fullmatch(rf"# (\d{{1,9}}) {what}", lines[-1])
    count = sum(not line.startswith("# ") for line in lines)
    if said is None or int(said[1]) != count:
        raise ReaderError(f"{output.command}: is cut off: {count} {what}, and it ends with {shown(lines[-1])}")
    return lines[:-1]
