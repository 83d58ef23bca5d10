"""Does a file system take a write? What `touch`, `dd` and the like told, whatever shell words stand around them.

Mount options do not say: a file system that lost its paths, or is full, is still mounted 'rw'.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal

from gates.readers.error import ReaderError, document, integer, shown
from workloads.bundle import MISSING, TIMED_OUT, Output

WRITTEN, REFUSED, NO_ANSWER = "written", "refused", "no answer"
# Statuses of a command that was killed as it did not end: timeout(1), and a shell's or a library's word for SIGKILL
# and SIGTERM.
KILLED = (TIMED_OUT, 137, 143, -9, -15)
NOT_RUN = (125, 126, MISSING)

_ANDS = "&&"
_SEPARATORS = re.compile(r"(&&|\|\||[;|])")
_REDIRECT = re.compile(r"(\d?)>>?(.*)")
_SYNCED = re.compile(r"conv=\S*\bf(?:data)?sync\b|oflag=\S*\b(?:d?sync|direct)\b")


@dataclass(frozen=True)
class WriteProbe:
    """One try to write, and how it went."""

    path: str
    outcome: Literal["written", "refused", "no answer"]
    reason: str | None  # why not
    # What success shows: bytes on the device, bytes in the page cache only, or only that a name could be made.
    # A full file system still lets names be made.
    proves: Literal["data", "cache", "metadata"]
    bytes: int | None = None  # as dd counted


@dataclass(frozen=True)
class _Writer:
    tool: str
    words: tuple[str, ...]
    paths: tuple[str, ...]


def targets(output: Output) -> tuple[str, ...]:
    """Return the absolute paths that a command tries to write to, () for one that writes nowhere. Never raises."""
    return tuple(path for writer in _writers(_words(output)) for path in writer.paths)


def write_probe(output: Output) -> WriteProbe:
    """Return how the write to the first of `targets` went. Raises ReaderError: none, not run, or not known."""
    words = _words(output)
    writer = next((each for each in _writers(words) if each.paths), None)
    if writer is None:
        raise ReaderError(f"{output.command}: writes to no file that it names by its whole path")
    if output.status is None or output.status in NOT_RUN:
        raise ReaderError(f"{output.command}: did not run: its status is {output.status}")
    errors = output.stderr.decode("utf-8", "replace")
    counted = _counted(errors) if writer.tool == "dd" else None

    def told(outcome: Literal["written", "refused", "no answer"], reason: str | None = None) -> WriteProbe:
        return WriteProbe(writer.paths[0], outcome, reason, _proves(writer), counted)

    if output.status in KILLED:
        return told("no answer", output.note or "it did not end within its deadline")
    complaint = _complaint(errors)
    if writer.tool == "write-probe":
        counted, same = _read_back(output)
        complaint = complaint or (None if same else "what was read back is not what was written")
    if output.status:
        return told("refused", complaint or f"status {output.status}, and nothing was said")
    if complaint:  # as in `touch X; rm -f X`, whose status is that of rm
        return told("refused", complaint)
    if counted == 0:
        return told("refused", "0 bytes were written")
    alone = not {word for word in words if _SEPARATORS.fullmatch(word)} - {_ANDS}
    if not alone and (_is_hidden(words) or (writer.tool == "dd" and counted is None)):
        raise ReaderError(f"{output.command}: its status is another command's, and its errors are not shown")
    return told("written")


def _words(output: Output) -> list[str]:
    """Return the words of a command, those of `sh -c '...'` too, and separators as words of their own."""
    words: list[str] = []
    for before, word in zip(("", *output.argv), output.argv, strict=False):
        if re.fullmatch(r"-\w*c", before) and " " in word:
            try:
                inner = shlex.split(word)
            except ValueError:  # an unclosed quote
                inner = word.split()
        else:
            inner = [word]
        for each in inner:
            words += [part for part in _SEPARATORS.split(each) if part]
    return words


def _writers(words: list[str]) -> Iterator[_Writer]:
    part: list[str] = []
    for word in [*words, ";"]:
        if not _SEPARATORS.fullmatch(word):
            part.append(word)
            continue
        if part:
            yield from _of_part(part)
        part = []


def _of_part(part: list[str]) -> Iterator[_Writer]:
    arguments, into = _redirected(part)
    names = [PurePosixPath(word).name for word in arguments]
    for tool in ("write-probe", "dd", "touch", "tee", "cp", "truncate", "fallocate"):
        if tool in names:
            rest = arguments[names.index(tool) + 1 :]
            paths = [word for word in rest if not word.startswith("-")]
            if tool == "dd":
                paths = [word.removeprefix("of=") for word in rest if word.startswith("of=")]
            elif tool == "cp":
                paths = paths[-1:]
            yield _Writer(tool, tuple(rest), _absolute(paths))
            return
    if into:
        yield _Writer(names[0] if names else "", tuple(arguments), _absolute(into))


def _redirected(part: list[str]) -> tuple[list[str], list[str]]:
    """Return the words without redirections, and the files that what is printed goes to."""
    arguments, into = [], []
    rest = iter(part)
    for word in rest:
        found = _REDIRECT.fullmatch(word)
        if found is None:
            arguments.append(word)
            continue
        to = found[2] or next(rest, "")
        if found[1] in ("", "1") and to != "/dev/null":
            into.append(to)
    return arguments, into


def _absolute(paths: list[str]) -> tuple[str, ...]:
    return tuple(path for path in paths if path.startswith("/"))


def _is_hidden(words: list[str]) -> bool:
    return any(re.match(r"(2|&)>", word) for word in words)


def _proves(writer: _Writer) -> Literal["data", "cache", "metadata"]:
    if writer.tool in ("touch", "truncate", "fallocate"):
        return "metadata"
    if writer.tool == "write-probe":
        return "data"
    return "data" if writer.tool == "dd" and any(_SYNCED.fullmatch(word) for word in writer.words) else "cache"


def _counted(errors: str) -> int | None:
    """Return the bytes of dd's last line, in any language: it begins with them; "1+0 records" counts blocks."""
    found = re.findall(r"^(\d{1,20})(?![\d+])", errors, re.MULTILINE)
    return int(found[-1]) if found else None


def _read_back(output: Output) -> tuple[int | None, bool | None]:
    """Return what workloads/probes.py tells of its own write: (bytes, whether they were read back as written)."""
    if output.status and not output.stdout.strip():  # it ended before that
        return None, None
    found = document(output)
    same = found.get("same") if isinstance(found, dict) else None
    if not isinstance(same, bool):
        raise ReaderError(f"{output.command}: does not tell whether the bytes were read back: {shown(str(found))}")
    return integer(found["bytes"]) if "bytes" in found else None, same


def _complaint(errors: str) -> str | None:
    """Return the reason in the first error message, "tool: what: reason"; None where there is none."""
    for line in errors.splitlines():
        if python := re.search(r"\[Errno \d+\] ([^:]+)", line):
            return shown(python[1]).strip("'\"")
        if re.match(r"(?:[\w./-]*/)?[\w.-]+: ", line):
            return shown(line.rsplit(": ", 1)[1]).strip("'\"")
    return None
