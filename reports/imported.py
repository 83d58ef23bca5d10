"""What a report says of a run that is no run: result files of others, imported to be judged."""

from __future__ import annotations

import math
from typing import Any

from gates.imports.store import KIND, stored
from reports.text import leaf, plain
from reports.words import Words
from workloads.evidence import EvidenceError, Run

Json = dict[str, Any]

# Keys of a result, as the tool names them. Its times leave out failed requests, and are 0 where all failed.
STATED = ("date", "model_id", "endpoint_type", "max_concurrency", "request_rate", "num_prompts", "completed", "failed",
          "duration", "median_ttft_ms", "p99_ttft_ms", "output_throughput")  # fmt: skip
TIMES = ("median_ttft_ms", "p99_ttft_ms", "output_throughput")


def is_import(facts: Json) -> bool:
    """Return whether run.json is of imported files."""
    return facts.get("kind") == KIND


def claims(run: Run) -> list[tuple[str, ...]]:
    """Return a row per result, in text: where it is, its arm, and what it states under STATED. Nothing is verified.

    Raises EvidenceError: the files cannot be read.
    """
    try:
        found = [result for results in stored(run).values() for result in results]
    except (LookupError, TypeError, AttributeError) as error:
        raise EvidenceError(f"run.json: not of imported files ({type(error).__name__})") from None
    except OSError as error:
        raise EvidenceError(f"{error.filename}: {error.strerror or error}") from None
    return [(r.where, r.arm, *(_cell(r.values, key) for key in STATED)) for r in found]


def files(facts: Json) -> list[Json]:
    """Return the files as run.json lists them; none where it does not."""
    listed = facts.get("import")
    listed = listed.get("files") if isinstance(listed, dict) else None
    return [file for file in listed if isinstance(file, dict)] if isinstance(listed, list) else []


def front(facts: Json, t: Words) -> list[tuple[str, str]]:
    """Return what stands for the product and its tier on the first page: the files, by the names they came with."""
    return [(t("imported.file", arm=leaf(file.get("arm"))), leaf(file.get("name"))) for file in files(facts)[:6]]


def provenance(facts: Json) -> list[tuple[str, str]]:
    """Return each file's place in the run and its hash."""
    return [(leaf(file.get("path")), f"{leaf(file.get('name'))}  {leaf(file.get('sha256'))}") for file in files(facts)]


def _cell(values: Json, key: str) -> str:
    value = values.get(key)
    if value is None or (key in TIMES and values.get("completed") != values.get("num_prompts")):
        return "–"
    if isinstance(value, float):
        return plain(value) if math.isfinite(value) else repr(value)
    text = leaf(value)
    return text if len(text) <= 80 else f"{text[:80]}…"
