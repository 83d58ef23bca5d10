"""The run directory: append, seal, open, verify. The format is docs/evidence.md.

Nothing is judged here. Files appear whole (JSON) or line by line, flushed (JSONL), so a killed run keeps what it had.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

Json = dict[str, Any]

MANIFEST = "MANIFEST.sha256"
# Made from the evidence, or about it: not part of it.
DERIVED = re.compile(
    r"verdict\.json|smoke\.json|report\.[^/]*|MANIFEST\.sha256(\.sig.*)?|LEDGER\.extract\.json|[^/]*\.sig"
)
SCHEMA = 1
_GENESIS = "0" * 64


class EvidenceError(ValueError):
    """One line that names the file (and line) of the run that is wrong, and how."""


class RunDir:
    """A run being recorded. Only one process writes to it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, runs: Path, gate: str) -> Self:
        """Make `runs`/<utc>-<gate>-<id> and return it. Raises OSError."""
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        path = runs / f"{stamp}-{gate}-{secrets.token_hex(3)}"
        path.mkdir(parents=True)
        return cls(path)

    @property
    def run_id(self) -> str:
        """Return the folder's name as it was given."""
        return self.path.name

    def folder(self, relative: str) -> Path:
        """Return the folder of that relative name, made if need be."""
        folder = self.path / relative
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def write_json(self, relative: str, value: object) -> None:
        """Write a JSON file whole or not at all."""
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
        text = "".join(json.dumps(v, ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n" for v in values)
        with target.open("ab") as f:
            f.write(text.encode())

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
            "incidents.jsonl",
            {
                "t_utc": datetime.now(UTC).isoformat(timespec="milliseconds"),
                "whose": whose,
                "kind": kind,
                "arm": arm,
                "step": step,
                "block": block,
                "message": " ".join(message.split()),
            },
        )

    def seal(self, label: str, growing: frozenset[str] = frozenset()) -> str:
        """Append a manifest segment over every file not yet sealed and return the manifest's SHA-256.

        `growing` names files that are still being written (logs of live processes); a later segment takes them.
        Each segment's header carries the hash of the manifest before it, so that none can be left out or exchanged.
        """
        manifest = self.path / MANIFEST
        before = manifest.read_bytes() if manifest.exists() else b""
        sealed = {name for name, _ in _manifest_entries(before.decode())}
        previous = hashlib.sha256(before).hexdigest() if before else _GENESIS
        lines = [f"# segment {label} after {previous}"]
        for name in _evidence_files(self.path):
            if name not in sealed and name not in growing:
                lines.append(f"{sha256_of(self.path / name)}  {name}")
        content = before + ("\n".join(lines) + "\n").encode()
        write_whole(manifest, content)
        return hashlib.sha256(content).hexdigest()


def write_whole(target: Path, content: bytes) -> None:
    """Replace `target` by `content` in one step: readers see the old file or the new one, never a part."""
    handle, scratch = tempfile.mkstemp(prefix=".", suffix=".part", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as f:
            f.write(content)
            f.flush()
            os.fsync(f.fileno())
        os.chmod(scratch, 0o644)
        os.replace(scratch, target)
    except BaseException:
        os.unlink(scratch)
        raise


def sha256_of(path: Path) -> str:
    """Return the file's SHA-256 in hex."""
    with path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def verify(path: Path) -> list[str]:
    """Return one line per file that is changed, missing or added against the manifest, or per broken segment.

    An empty list means that the evidence is what was sealed. The verdict, reports and signatures are no evidence.
    """
    manifest = path / MANIFEST
    try:
        text = manifest.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return [f"{MANIFEST}: missing or unreadable: the run was never sealed"]
    faults: list[str] = []
    seen: set[str] = set()
    position = 0
    for number, line in enumerate(text.splitlines(keepends=True), start=1):
        body = line.rstrip("\n")
        if body.startswith("# segment "):
            before = text[:position].encode()
            expected = hashlib.sha256(before).hexdigest() if before else _GENESIS
            if not body.endswith(f" after {expected}"):
                faults.append(f"{MANIFEST}:{number}: this segment does not follow what stands before it")
        else:
            entry = re.fullmatch(r"([0-9a-f]{64})  ([^\0]+)", body)
            if entry is None or not line.endswith("\n"):
                faults.append(f"{MANIFEST}:{number}: not a line of a manifest")
            elif entry[2] in seen:
                faults.append(f"{MANIFEST}:{number}: {entry[2]} is listed twice")
            else:
                seen.add(entry[2])
                target = path / entry[2]
                if not _stays_inside(path, entry[2]) or target.is_symlink():
                    faults.append(f"{MANIFEST}:{number}: {entry[2]} is not a plain file of this run")
                elif not target.is_file():
                    faults.append(f"{entry[2]}: missing")
                elif sha256_of(target) != entry[1]:
                    faults.append(f"{entry[2]}: changed since it was sealed")
        position += len(line)
    if not seen:
        faults.append(f"{MANIFEST}: lists nothing")
    faults += [f"{name}: added since the run was sealed" for name in _evidence_files(path) if name not in seen]
    return faults


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
        self.path = path
        self.facts = read_json(path / "run.json")
        if type(self.facts.get("schema")) is not int or self.facts["schema"] != SCHEMA:
            raise EvidenceError(
                f"{path / 'run.json'}: schema {self.facts.get('schema')!r}, this version reads {SCHEMA}: "
                "use the suite version that recorded it"
            )

    def trials(self) -> Iterator[Trial]:
        """Yield every trial that has begun to be written, ordered by block, arm, step."""
        found = sorted(
            self.path.glob("raw/*/c*/b*/trial.json"),
            key=lambda p: (p.parent.name, p.parts[-4], int(p.parts[-3][1:])),
        )
        for file in found:
            yield Trial(path=file.parent, facts=read_json(file))

    def trial(self, arm: str, step: int, block: int) -> Trial | None:
        """Return one trial, or None where it was never recorded."""
        folder = self.path / "raw" / arm / f"c{step}" / f"b{block:02d}"
        file = folder / "trial.json"
        return Trial(path=folder, facts=read_json(file)) if file.exists() else None

    def blocks(self) -> list[Json]:
        """Return blocks/*.json in order."""
        return [read_json(p) for p in sorted(self.path.glob("blocks/b*.json"))]

    def starts(self, arm: str) -> list[Json]:
        """Return the arm's start.json files in order."""
        return [read_json(p) for p in sorted((self.path / "raw" / arm).glob("start-*/start.json"))]

    def populated(self, arm: str) -> list[Json]:
        """Return the arm's populate.jsonl, empty where there is none."""
        file = self.path / "raw" / arm / "populate.jsonl"
        return list(read_jsonl(file)) if file.exists() else []

    def incidents(self) -> list[Json]:
        """Return incidents.jsonl, empty where there is none."""
        file = self.path / "incidents.jsonl"
        return list(read_jsonl(file)) if file.exists() else []


def read_json(path: Path) -> Json:
    """Return the JSON object in `path`. Raises EvidenceError naming the file."""
    try:
        value = json.loads(path.read_bytes(), parse_constant=_no_constant)
    except FileNotFoundError:
        raise EvidenceError(f"{path}: missing") from None
    except (OSError, ValueError, RecursionError) as error:
        raise EvidenceError(f"{path}: not JSON: {error}") from None
    if not isinstance(value, dict):
        raise EvidenceError(f"{path}: not a JSON object")
    return value


def read_jsonl(path: Path) -> Iterator[Json]:
    """Yield the objects of a JSONL file. Raises EvidenceError naming file and line."""
    try:
        with path.open("rb") as f:
            for number, line in enumerate(f, start=1):
                if not line.endswith(b"\n"):
                    raise EvidenceError(f"{path}:{number}: cut off in the middle of a line")
                try:
                    value = json.loads(line, parse_constant=_no_constant)
                except (ValueError, RecursionError) as error:
                    raise EvidenceError(f"{path}:{number}: not JSON: {error}") from None
                if not isinstance(value, dict):
                    raise EvidenceError(f"{path}:{number}: not a JSON object")
                yield value
    except OSError as error:
        raise EvidenceError(f"{path}: {error.strerror or error}") from None


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no measured value")


def _evidence_files(path: Path) -> list[str]:
    names = (p.relative_to(path).as_posix() for p in path.rglob("*") if p.is_file() or p.is_symlink())
    return sorted(n for n in names if not DERIVED.fullmatch(n) and not n.endswith(".part"))


def _manifest_entries(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        if not line.startswith("#"):
            digest, _, name = line.partition("  ")
            yield name, digest


def _stays_inside(path: Path, name: str) -> bool:
    return (path / name).resolve().is_relative_to(path.resolve())
