"""What was collected on a host, as the checks look at it: a reader applied to a command's output, once."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from gates.nodata import NoData
from gates.readers.error import ReaderError
from workloads.bundle import Bundle, Output

T = TypeVar("T")
Command = Sequence[str]
BOOT_ID = ("cat", "/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class Seen(Generic[T]):
    """What a reader made of an output, and the files that show it."""

    value: T | NoData
    raw: tuple[str, ...] = ()


class Host:
    """A collection, and what readers made of it so far."""

    def __init__(
        self, bundle: Bundle, folder: str, after: Host | None = None, fio: Mapping[str, Host] | None = None
    ) -> None:
        self.bundle = bundle
        self.folder = folder  # of the run, where the files of the collection lie
        self.after = after  # the same host once more, after a load
        self.fio = fio or {}  # what fio printed under that load, by what the site calls the tier
        self._kept: dict[Hashable, Any] = {}
        # Commands that the collection holds more than once, telling different things.
        told: dict[tuple[str, ...], set[tuple[bytes, int | None]]] = {}
        for output in bundle.outputs:
            told.setdefault(output.argv, set()).add((output.stdout, output.status))
        self._doubtful = {argv for argv, answers in told.items() if len(answers) > 1}

    @property
    def boot_id(self) -> str | None:
        """Return which boot of the host was looked at; None: not known."""
        output = self.bundle.find(*BOOT_ID)
        told = output.stdout.decode("utf-8", "replace").strip() if output is not None and output.status == 0 else ""
        return told if re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", told) else None

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return what `make` returns, made the first time only."""
        if key not in self._kept:
            self._kept[key] = make()
        found: T = self._kept[key]
        return found

    def raw(self, output: Output) -> str:
        """Return the file of the run that shows an output: what was printed, else the errors, else the status."""
        if output.stdout or not output.stderr:
            return f"{self.folder}/{output.file}"
        return f"{self.folder}/{output.name}.stderr"

    def read(self, reader: Callable[[Output], T], *commands: Command) -> Seen[T]:
        """Return what `reader` makes of the first of these commands that it can read; else why it can read none."""
        return self.once((reader, tuple(map(tuple, commands))), lambda: self._read(reader, commands))

    def _read(self, reader: Callable[[Output], T], commands: Sequence[Command]) -> Seen[T]:
        refused: list[str] = []
        raw: list[str] = []
        for command in commands:
            output = self.bundle.find(*command)
            if output is None:
                continue
            raw.append(self.raw(output))
            if output.argv in self._doubtful:
                return Seen(NoData(_twice(output)), (raw[-1],))
            try:
                return Seen(reader(output), (raw[-1],))
            except ReaderError as error:
                refused.append(str(error))
        if not refused:
            told = " or ".join(f"`{' '.join(command)}`" for command in commands)
            return Seen(NoData(f"{told} was not collected"))
        return Seen(NoData("; ".join(dict.fromkeys(refused))), tuple(raw))

    def read_all(self, reader: Callable[[Output], T], *words: str) -> list[tuple[Output, Seen[T]]]:
        """Return what `reader` makes of each output of a command that begins with these words."""
        return self.once(
            (reader, "all", words), lambda: [(o, self._one(reader, o)) for o in self.bundle.matching(*words)]
        )

    def read_each(
        self, reader: Callable[[Output], T], chosen: Callable[[Output], bool]
    ) -> list[tuple[Output, Seen[T]]]:
        """Return what `reader` makes of each output that `chosen` takes."""
        return [
            (output, self.once((reader, output.name), lambda output=output: self._one(reader, output)))  # type: ignore[misc]
            for output in self.bundle.outputs
            if chosen(output)
        ]

    def best(self, reader: Callable[[Output], T], told: Callable[[T], int], *words: str) -> Seen[T]:
        """Return the reading that tells most among the outputs of commands beginning with these words; else why not."""
        found = self.read_all(reader, *words)
        if doubtful := next((output for output, _ in found if output.argv in self._doubtful), None):
            return Seen(NoData(_twice(doubtful)), (self.raw(doubtful),))
        readable = [seen for _, seen in found if not isinstance(seen.value, NoData)]
        if readable:
            return max(readable, key=lambda seen: 0 if isinstance(seen.value, NoData) else told(seen.value))
        if not found:
            return Seen(NoData(f"`{' '.join(words)}` was not collected"))
        reasons = dict.fromkeys(seen.value.reason for _, seen in found if isinstance(seen.value, NoData))
        return Seen(NoData("; ".join(reasons)), tuple(file for _, seen in found for file in seen.raw))

    def _one(self, reader: Callable[[Output], T], output: Output) -> Seen[T]:
        try:
            return Seen(reader(output), (self.raw(output),))
        except ReaderError as error:
            return Seen(NoData(str(error)), (self.raw(output),))


def _twice(output: Output) -> str:
    return f"{output.command}: is in the collection twice and tells two things: are two hosts in it, or two times?"
