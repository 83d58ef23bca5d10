"""What was collected on a host, as it was printed: opened from a folder or a tar. Nothing in it is trusted."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import re
import shlex
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, cast

INDEX = "INDEX.tsv"
COLUMNS = ("name", "rc", "seconds", "command", "note")
MISSING, TIMED_OUT = 127, 124  # statuses that say so, as the shell and timeout(1) do
FILE_BYTES_MAX = 1 << 26
BUNDLE_BYTES_MAX = 1 << 29
FILES_MAX = 100_000
COMMANDS_MAX = 20_000

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+@:-]{0,199}")  # it becomes a file's name in a run
STATUS = re.compile(r"-?[0-9]{1,5}")
Reader = Callable[[int], bytes]
BAD_HEADER = (ValueError, OverflowError, IndexError, KeyError, RecursionError)  # what tarfile lets through of one
OPENERS: tuple[tuple[bytes, Callable[[Path], object]], ...] = (
    (b"\x1f\x8b", gzip.open),
    (b"\xfd7zXZ\x00", lzma.open),
    (b"BZh", bz2.open),
)


class BundleError(ValueError):
    """One line: which bundle or file, what is wrong, what to do."""


@dataclass(frozen=True)
class Output:
    """What one command printed, and how it ended."""

    name: str  # of its files in the bundle, without .stdout, .stderr, .rc
    argv: tuple[str, ...]
    stdout: bytes
    stderr: bytes
    status: int | None  # None: not known
    note: str = ""
    stdout_file: str = ""  # where it is not the name with .stdout

    @property
    def command(self) -> str:
        """Return the command as one would type it."""
        return " ".join(self.argv)

    @property
    def file(self) -> str:
        """Return the name of the file in the bundle that shows what was printed."""
        return self.stdout_file or f"{self.name}.stdout"


@dataclass(frozen=True)
class Bundle:
    """All outputs of one collection, in its order."""

    outputs: tuple[Output, ...]

    def find(self, *words: str) -> Output | None:
        """Return the last output of exactly this command, or None."""
        return next((found for found in reversed(self.outputs) if found.argv == words), None)

    def matching(self, *words: str) -> list[Output]:
        """Return the outputs of every command that begins with these words, in order."""
        return [found for found in self.outputs if found.argv[: len(words)] == words]


def open_bundle(path: Path) -> Bundle:
    """Return the bundle in the folder or tar (.gz, .xz, .bz2, too) at `path`. Raises BundleError."""
    return of_files(read_files(path), path)


def read_files(path: Path) -> dict[str, bytes]:
    """Return the bytes of each plain file by its name within the bundle. Raises BundleError.

    Links and devices are left out: nothing but what lies in the bundle itself is read.
    """
    try:
        if path.is_dir():
            if not (path / INDEX).is_file():  # so that a wrong folder is not walked
                raise _no_index(path)
            return _take(_of_folder(path), path)
        return _below_one_top(_take(_of_tar(path), path))
    except tarfile.TarError as error:
        raise BundleError(f"{path}: no whole tar ({error}): collect it again, or copy it again as binary") from None
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise BundleError(f"{path}: cut or broken ({error}): collect it again, or copy it again as binary") from None
    except OSError as error:
        told = error.strerror or error
        raise BundleError(f"{path}: {told}: give a bundle that `make probe OUT=...` made") from None


def of_files(files: Mapping[str, bytes], path: Path) -> Bundle:
    """Return the outputs that the files of a bundle tell. Raises BundleError: no index, or one that does not fit.

    Of two commands with one name the later one overwrote the files: the earlier is left out.
    """
    if INDEX not in files:
        raise _no_index(path)
    lines = [line.rstrip("\r") for line in files[INDEX].decode("utf-8", "replace").split("\n")]
    if tuple(lines[0].split("\t"))[:4] != COLUMNS[:4]:
        raise BundleError(f"{path}: {INDEX}:1: must be '{' '.join(COLUMNS)}', with tabs between")
    if len(lines) > COMMANDS_MAX:
        raise BundleError(f"{path}: {INDEX}: {len(lines)} lines, more than a host has commands: it is none of ours")
    rows: dict[str, tuple[int, list[str]]] = {}
    for number, line in enumerate(lines[1:], start=2):
        fields = line.split("\t")
        if not line.strip():
            continue
        if len(fields) < 4:
            raise BundleError(f"{path}: {INDEX}:{number}: has {len(fields)} columns of {len(COLUMNS)}")
        if not NAME.fullmatch(fields[0]):
            raise BundleError(f"{path}: {INDEX}:{number}: {fields[0][:80]!r} is no name of a file: it is none of ours")
        rows.pop(fields[0], None)
        rows[fields[0]] = number, fields
    return Bundle(tuple(_output(files, fields, f"{path}: {INDEX}:{number}") for number, fields in rows.values()))


def files_of(outputs: Iterable[Output]) -> dict[str, bytes]:
    """Return the files of a bundle that tells these outputs, by name. Raises ValueError: a name twice, or no file's."""
    index = ["\t".join(COLUMNS)]
    files: dict[str, bytes] = {}
    for output in outputs:
        if not NAME.fullmatch(output.name) or f"{output.name}.rc" in files:
            raise ValueError(f"{output.name[:80]!r}: must be a file's name, and no other output's")
        status = "" if output.status is None else str(output.status)
        row = (output.name, status, "", shlex.join(output.argv), output.note)
        index.append("\t".join(" ".join(field.split()) for field in row))
        files[f"{output.name}.stdout"], files[f"{output.name}.stderr"] = output.stdout, output.stderr
        files[f"{output.name}.rc"] = f"{status}\n".encode()
    return {INDEX: ("\n".join(index) + "\n").encode("utf-8", "replace"), **files}


def _output(files: Mapping[str, bytes], fields: list[str], where: str) -> Output:
    name, status, _seconds, command, *note = fields
    # What is no command's, as a walk of /sys, may be one file.
    file = next((file for file in (f"{name}.stdout", name) if file in files), None)
    if file is None:
        raise BundleError(f"{where}: '{name}.stdout' is not in the bundle: collect it again")
    told = files.get(f"{name}.rc")
    if told is not None and told.decode("utf-8", "replace").strip() != status.strip():
        raise BundleError(f"{where}: status {status[:20]!r}, but '{name}.rc' says {told[:20]!r}: collect it again")
    # What the collector and timeout(1) say of a command that did not end, or was none.
    if status.strip() == "0" and re.match(r"(?:killed|abandoned) after |not run: |no such tool: ", " ".join(note)):
        raise BundleError(f"{where}: status 0, but its note says {note[0][:60]!r}: collect it again")
    return Output(
        name,
        _words(command),
        files[file],
        files.get(f"{name}.stderr", b""),
        int(status) if STATUS.fullmatch(status.strip()) else None,
        " ".join(note),
        file,
    )


def _no_index(path: Path) -> BundleError:
    return BundleError(f"{path}: holds no {INDEX}: give a bundle that `make probe OUT=...` made")


def _words(command: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(command))
    except ValueError:  # an unclosed quote
        return tuple(command.split())


def _of_folder(path: Path) -> Iterator[tuple[str, int, Reader]]:
    for file in sorted(path.rglob("*")):
        if file.is_file() and not file.is_symlink():
            with file.open("rb") as opened:
                yield str(file.relative_to(path)), file.stat().st_size, opened.read


def _of_tar(path: Path) -> Iterator[tuple[str, int, Reader]]:
    data = io.BytesIO(_unpacked(path))
    try:
        opened = tarfile.open(fileobj=data, mode="r:")  # noqa: SIM115  # the next line closes it
    except BAD_HEADER as error:
        raise tarfile.ReadError(f"bad header: {error}") from None
    with opened as tar:
        for member in _members(tar):
            if member.issparse():
                raise BundleError(f"{path}: {member.name[:80]!r} is a sparse file: it is none of ours")
            if member.isfile() and (handle := tar.extractfile(member)) is not None:
                with handle:
                    yield member.name, member.size, handle.read


def _members(tar: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    try:
        yield from tar
    except BAD_HEADER as error:
        raise tarfile.ReadError(f"bad header: {error}") from None


def _unpacked(path: Path) -> bytes:
    """Return the tar's bytes, not compressed, as far as an honest one goes: a small file may unpack to anything."""
    with path.open("rb") as file:
        begin = file.read(8)
    opener = next((opener for magic, opener in OPENERS if begin.startswith(magic)), lambda name: name.open("rb"))
    with cast("IO[bytes]", opener(path)) as opened:
        data = opened.read(BUNDLE_BYTES_MAX + 1)
    if len(data) > BUNDLE_BYTES_MAX:
        raise BundleError(f"{path}: more than {BUNDLE_BYTES_MAX} bytes, which no host tells: it is none of ours")
    return data


def _take(files: Iterable[tuple[str, int, Reader]], path: Path) -> dict[str, bytes]:
    """Return the files' bytes by name. Raises BundleError for what no honest collection holds."""
    found: dict[str, bytes] = {}
    total_bytes = 0
    for told, size_bytes, read in files:
        name = str(PurePosixPath(told))
        if told.startswith("/") or name == "." or ".." in PurePosixPath(told).parts or "\0" in told:
            raise BundleError(f"{path}: {told[:80]!r} would lie outside the bundle: it is none of ours")
        if name in found:
            raise BundleError(f"{path}: {name[:80]!r} is in it twice: it is none of ours")
        total_bytes += size_bytes
        if size_bytes > FILE_BYTES_MAX or total_bytes > BUNDLE_BYTES_MAX or len(found) >= FILES_MAX:
            raise BundleError(f"{path}: {name[:80]!r}: more or larger files than a host tells: it is none of ours")
        found[name] = read(FILE_BYTES_MAX)
    return found


def _below_one_top(found: dict[str, bytes]) -> dict[str, bytes]:
    """Return the files without the folder that all of them lie in, as in a tar of a folder."""
    tops = {PurePosixPath(name).parts[0] for name in found}
    if INDEX in found or len(tops) != 1:
        return found
    return {name.removeprefix(f"{next(iter(tops))}/"): data for name, data in found.items()}
