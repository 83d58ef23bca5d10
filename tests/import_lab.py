"""Result files of `vllm bench serve` for tests: captured ones, read, and imported in pairs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings

from gates import verdict
from gates.imports import command, store
from gates.imports.documents import documents
from gates.imports.vllm_bench import Result, read
from workloads.evidence import Run

Json = dict[str, Any]
DATA = Path(__file__).resolve().parent / "data" / "vllm_bench"
LOOSE = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def values(name: str) -> Json:
    found: Json = json.loads((DATA / name).read_bytes())
    return found


def result(held: Json, arm: str = "candidate") -> Result:
    """Return a result as read from a file that holds it."""
    (document,) = documents(json.dumps(held).encode(), f"{arm}.json")
    return read(document, arm, f"{arm}.json", alone=True)


def imported(tmp_path: Path, baseline: object, candidate: object) -> tuple[Path, Json]:
    """Import a pair, each a fixture's name, a result or bytes; return the run and its verdict."""
    paths = []
    for arm, held in (("baseline", baseline), ("candidate", candidate)):
        path = DATA / held if isinstance(held, str) else tmp_path / f"{arm}.json"
        if not isinstance(held, str):
            path.write_bytes(held if isinstance(held, bytes) else json.dumps(held).encode())
        paths.append(path)
    runs = tmp_path / "runs"
    sources = [store.take(path, arm) for path, arm in zip(paths, ("baseline", "candidate"), strict=True)]
    run = command.settle(store.write(runs, sources))
    return run, verdict.judge(Run(run))


def rows(judged: Json) -> dict[str, Json]:
    return {row["id"]: row for row in judged["criteria"]}
