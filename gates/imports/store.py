"""The run folder of an import: the files byte for byte, sealed, with what they were given as."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gates import criteria
from gates.imports import vllm_bench
from gates.imports.documents import documents
from gates.imports.vllm_bench import Result
from scenarios.model import BASELINE, CANDIDATE
from workloads.evidence import SCHEMA, EvidenceError, Run, RunDir, sha256_of
from workloads.plain import open_plain
from workloads.provenance import suite

Json = dict[str, Any]

KIND = "import"
GATE = "g3"
TOOL = "vllm-bench"
FOLDER = "raw/import"
# A file is read whole, and its numbers take several times its size in memory.
BYTES_MAX = 1 << 30


@dataclass(frozen=True)
class Source:
    """A file as it was given."""

    arm: str
    path: Path
    content: bytes
    results: int


def take(path: Path, arm: str) -> Source:
    """Read a file and look whether it can be imported. Raises EvidenceError in one line with the remedy, OSError."""
    if not path.is_file():
        raise EvidenceError(f"{path}: no such file: give a result of `vllm bench serve --save-result`")
    content = _read(path, str(path))
    return Source(arm, path, content, len(_results(content, arm, str(path))))


def write(runs: Path, sources: Sequence[Source]) -> Path:
    """Make the run's folder in `runs`, sealed but not judged, and return it in a place of its own under `runs`.

    The caller moves it with `settle` once it is judged, or removes its parent. Raises OSError.
    """
    runs.mkdir(parents=True, exist_ok=True)
    stage = Path(tempfile.mkdtemp(prefix=".import-", dir=runs))
    try:
        run = RunDir.create(stage, KIND)
        files: list[Json] = []
        for source in sources:
            place = 1 + sum(file["arm"] == source.arm for file in files)
            name = f"{source.arm}-{place:02d}.json"
            run.write_bytes(f"{FOLDER}/{name}", source.content)
            files.append(
                {
                    "arm": source.arm,
                    "path": f"{FOLDER}/{name}",
                    "name": os.fsencode(source.path.name).decode("utf-8", "backslashreplace"),
                    "bytes": len(source.content),
                    "sha256": hashlib.sha256(source.content).hexdigest(),
                    "results": source.results,
                }
            )
        default = criteria.default_file(GATE)
        run.write_bytes("criteria.toml", default.read_bytes())
        run.write_json("run.json", _facts(run, files))
        run.seal("import")
        return run.path
    except BaseException:
        shutil.rmtree(stage, ignore_errors=True)
        raise


def settle(staged: Path) -> Path:
    """Move a staged run to its place among the others, in one step, and return its path."""
    target = staged.parent.parent / staged.name
    os.rename(staged, target)
    os.rmdir(staged.parent)
    return target


def stored(run: Run) -> Mapping[str, list[Result]]:
    """Return the results of an imported run by arm, in the order given.

    Raises EvidenceError, OSError, and LookupError or TypeError for a run.json of another shape.
    """
    found: dict[str, list[Result]] = {BASELINE: [], CANDIDATE: []}
    for file in run.facts["import"]["files"]:
        path = run.path / FOLDER / Path(file["path"]).name
        content = _read(path, file["path"])
        if hashlib.sha256(content).hexdigest() != file["sha256"]:
            raise EvidenceError(f"{file['path']}: not the file that was imported")
        results = _results(content, file["arm"], path.name)
        if len(results) != file["results"]:
            raise EvidenceError(f"{file['path']}: {len(results)} results, {file['results']} by run.json")
        found[file["arm"]] += results
    return found


def files_of(run: Run) -> list[str]:
    """Return the patterns of an imported run's own files. Raises LookupError or TypeError, as `stored` does."""
    return [re.escape(f"{FOLDER}/{Path(file['path']).name}") for file in run.facts["import"]["files"]]


def _read(path: Path, name: str) -> bytes:
    """Return what the file holds. Raises OSError, EvidenceError: no plain file, or too large."""
    try:
        with open_plain(path) as f:
            content = f.read(BYTES_MAX + 1)
    except EvidenceError:
        raise EvidenceError(f"{name}: not a plain file") from None
    if len(content) > BYTES_MAX:
        raise EvidenceError(f"{name}: larger than {BYTES_MAX >> 20} MiB: measure with fewer --num-prompts a file")
    return content


def _results(content: bytes, arm: str, name: str) -> list[Result]:
    held = list(documents(content, name))
    return [vllm_bench.read(document, arm, name, alone=len(held) == 1) for document in held]


def _facts(run: RunDir, files: Sequence[Json]) -> Json:
    """Return run.json. Whether the others' site has stand-ins nobody knows: `rehearsal` is null."""
    return {
        "schema": SCHEMA,
        "run_id": run.run_id,
        "gate": GATE,
        "kind": KIND,
        "rehearsal": None,
        "created_utc": datetime.now(UTC).isoformat(timespec="seconds"),
        "import": {"tool": TOOL, "files": list(files)},
        "criteria_sha256": sha256_of(run.path / "criteria.toml"),
        "suite": suite(),
    }
