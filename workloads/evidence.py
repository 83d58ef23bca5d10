"""The run directory: append, seal, open, verify. The format is docs/evidence.md.

Nothing is judged here. Files appear whole (JSON) or line by line, flushed (JSONL), so a killed run keeps what it had.
"""

from __future__ import annotations

import functools
import json
import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from workloads import plain, seal, signing
from workloads.plain import EvidenceError, sha256_of, write_whole
from workloads.seal import MANIFEST, verify
from workloads.strict_json import read_json, read_jsonl

Json = dict[str, Any]

__all__ = [
    "MANIFEST", "RECORDS", "SCHEMA", "EvidenceError", "Run", "RunDir", "Trial", "read_json", "read_jsonl", "sha256_of",
    "verify", "write_whole",
]  # fmt: skip
SCHEMA = 1
# What the run itself records: each object tells in `run` whose it is, so that what was copied in from another run
# shows. Output of tools and servers is kept as it came, and what is brought along (criteria, G2's record) as it was.
RECORDS = re.compile(
    r"incidents(-\d+)?\.jsonl|blocks/b\d+\.json|calibration/c\d+/requests\.jsonl"
    r"|raw/[^/]+/(start-\d+/start\.json|populate\.jsonl|(control|needles)\.json)"
    r"|raw/[^/]+/c\d+/b\d+/((trial|chunks)\.json|(requests|counters)\.jsonl)"
)

# What the first session writes has no number in its name, what the later ones write ends in theirs.
SESSION = "(?:-(?:[2-9]|[1-9][0-9]{1,5}))?"
_OF_SESSION = re.compile(rf"(?:before|after)({SESSION})|incidents({SESSION})\.jsonl")


class RunDir:
    """A run being recorded. Only one process writes to it."""

    def __init__(self, path: Path, session: int = 1) -> None:
        self.path = path
        self.session = session  # a run that is resumed goes on in another one

    @classmethod
    def reopen(cls, path: Path) -> Self:
        """Return a recorded run to go on with: what was sealed stays as it is, so its next session has files apart.

        What a write that was cut off left behind is removed. Raises OSError.
        """
        plain.sweep(path)
        # One may have ended before it asked the host, and left its incidents alone.
        return cls(path, 1 + max(_sessions(path, "host/before*", "host/after*", "incidents*.jsonl"), default=0))

    def of_session(self, name: str) -> str:
        """Return the name that a file or folder has in this session: as given in the first, then `name-2` and on."""
        stem, dot, suffix = name.partition(".")
        return name if self.session == 1 else f"{stem}-{self.session}{dot}{suffix}"

    @classmethod
    def create(cls, runs: Path, gate: str) -> Self:
        """Make `runs`/<utc>-<gate>-<id> and return it. Raises OSError."""
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        path = runs / f"{stamp}-{gate}-{secrets.token_hex(3)}"
        path.mkdir(parents=True)
        return cls(path)

    @functools.cached_property
    def run_id(self) -> str:
        """Return the folder's name as it was given: run.json keeps it, whatever the folder is called now."""
        file = self.path / "run.json"
        return str(read_json(file).get("run_id", self.path.name)) if file.exists() else self.path.name

    def folder(self, relative: str) -> Path:
        """Return the folder of that relative name, made if need be."""
        folder = self.path / relative
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def write_json(self, relative: str, value: object) -> None:
        """Write a JSON file whole or not at all."""
        if isinstance(value, dict):
            value = self._bound(relative, value)
        self.write_bytes(relative, (json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode())

    def write_bytes(self, relative: str, content: bytes) -> None:
        """Write a file whole or not at all."""
        target = self.path / relative
        target.parent.mkdir(parents=True, exist_ok=True)
        write_whole(target, content)

    def append(self, relative: str, value: Json) -> None:
        """Append one line to a JSONL file and hand it to the kernel, so that a killed run keeps it."""
        self.append_all(relative, [value])

    def append_all(self, relative: str, values: list[Json]) -> None:
        """Append lines to a JSONL file in one write."""
        target = self.path / relative
        target.parent.mkdir(parents=True, exist_ok=True)
        bound = (self._bound(relative, value) for value in values)
        lines = [json.dumps(v, ensure_ascii=False, allow_nan=False, separators=(",", ":")) for v in bound]
        with target.open("ab") as f:
            f.write("".join(line + "\n" for line in lines).encode())

    def _bound(self, relative: str, value: Json) -> Json:
        return {**value, "run": self.run_id} if RECORDS.fullmatch(relative) else value

    def incident(
        self,
        *,
        whose: str,
        kind: str,
        message: str,
        arm: str | None = None,
        step: int | None = None,
        block: int | None = None,
    ) -> None:
        """Record what went wrong and whose it was."""
        self.append(
            self.of_session("incidents.jsonl"),
            {
                "t_utc": datetime.now(UTC).isoformat(timespec="milliseconds"),
                "whose": whose,
                "kind": kind,
                "arm": arm,
                "step": step,
                "block": block,
                # A run may be moved: what it says of itself must not tell where it lay.
                "message": " ".join(
                    message.replace(f"{self.path.absolute()}/", "").replace(f"{self.path}/", "").split()
                ),
            },
        )

    def seal(self, label: str, growing: frozenset[str] = frozenset()) -> str:
        """Append a manifest segment over every file not yet sealed, sign it where a key is named; return its SHA-256.

        `growing` names files that are still being written (logs of live processes); a later segment takes them.
        A signature that cannot be made is told in a file beside it and stops nothing. Raises OSError.
        """
        digest = seal.seal(self.path, label, growing)
        signing.sign_seal(self.path)
        return digest


@dataclass(frozen=True)
class Trial:
    """Where one trial lies, and its trial.json."""

    path: Path
    facts: Json

    def requests(self) -> Iterator[Json]:
        """Yield the request records in the order in which they ended. Raises EvidenceError on a bad line."""
        return read_jsonl(self.path / "requests.jsonl")

    def counters(self) -> Iterator[Json]:
        """Yield the counter snapshots in order. Raises EvidenceError on a bad line."""
        return read_jsonl(self.path / "counters.jsonl")


class Run:
    """A recorded run, read only."""

    def __init__(self, path: Path) -> None:
        """Open a run. Raises EvidenceError: not a run, or of a newer schema."""
        self.path = path.absolute()  # a relative one may stand in any text, as `.` does
        self.facts = read_json(path / "run.json")
        if type(self.facts.get("schema")) is not int or self.facts["schema"] != SCHEMA:
            raise EvidenceError(
                f"{path / 'run.json'}: schema {self.facts.get('schema')!r}, this version reads {SCHEMA}: "
                "use the suite version that recorded it"
            )

    def trials(self) -> Iterator[Trial]:
        """Yield every trial that has begun to be written, ordered by block, arm, step."""
        found = self.path.glob("raw/*/c*/b*/trial.json")
        for file in sorted(found, key=lambda p: (_number(p.parent.name), p.parts[-4], _number(p.parts[-3]))):
            yield Trial(path=file.parent, facts=read_json(file))

    def trial(self, arm: str, step: int, block: int) -> Trial | None:
        """Return one trial, or None where it was never recorded."""
        folder = self.path / "raw" / arm / f"c{step}" / f"b{block:02d}"
        file = folder / "trial.json"
        return Trial(path=folder, facts=read_json(file)) if file.exists() else None

    def blocks(self) -> list[Json]:
        """Return blocks/*.json in order."""
        return [read_json(p) for p in sorted(self.path.glob("blocks/b*.json"), key=lambda p: _number(p.stem))]

    def starts(self, arm: str) -> list[Json]:
        """Return the arm's start.json files in order."""
        found = (self.path / "raw" / arm).glob("start-*/start.json")
        return [read_json(p) for p in sorted(found, key=lambda p: _number(p.parent.name))]

    def populated(self, arm: str) -> list[Json]:
        """Return the arm's populate.jsonl, empty where there is none."""
        file = self.path / "raw" / arm / "populate.jsonl"
        return list(read_jsonl(file)) if file.exists() else []

    def sessions(self) -> int:
        """Return in how many sessions the run was recorded: more than one where it was resumed."""
        return max(_sessions(self.path, "host/before*"), default=1)

    def incidents(self) -> list[Json]:
        """Return the incidents of all sessions, each with its `session`; empty where there is none.

        Raises EvidenceError: a bad line, or a file of incidents that is no session's.
        """
        found: list[Json] = []
        for session, file in sorted((_session_of(file), file) for file in self.path.glob("incidents*.jsonl")):
            if not session:
                raise EvidenceError(f"{file}: no session of a run writes its incidents there")
            found += [{**incident, "session": session} for incident in read_jsonl(file)]
        return found


def _number(name: str) -> tuple[int, str]:
    """Return what sorts b100 behind b11, and what has no number by its name."""
    digits = re.search(r"[0-9]{1,9}$", name)
    return int(digits[0]) if digits else 0, name


def _sessions(path: Path, *patterns: str) -> set[int]:
    """Return the numbers of the sessions that left something of such a name."""
    return {_session_of(file) for pattern in patterns for file in path.glob(pattern)} - {0}


def _session_of(file: Path) -> int:
    """Return the session that the name is of; 0 where no session gives such a name."""
    found = _OF_SESSION.fullmatch(file.name)
    return 0 if found is None else int((found[1] or found[2] or "-1").removeprefix("-"))
