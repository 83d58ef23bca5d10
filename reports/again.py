"""Whether verdict.json is what the judge says of this evidence: hashes alone do not tell, since it cites them itself.

Nothing is judged here: the one judge is asked again, and his words are held against those on file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from gates.verdict import NotJudgedError, judge, to_bytes
from reports.loose import Json, objects
from workloads.evidence import EvidenceError, Run
from workloads.provenance import suite

# Judging takes some 15 s a gigabyte: of more, only what claims to be an acceptance is judged again.
SIZE_MAX_BYTES = 1_000_000_000
SHOWN = 10


@dataclass(frozen=True)
class Again:
    """What came of asking the judge again: where he differs, or why he was not asked (a key of the strings)."""

    differences: tuple[str, ...] = ()
    not_asked: str = ""


def judged_again(run: Run, on_file: Json) -> Again:
    """Return how the verdict on file differs from the judge's of the same evidence."""
    if on_file.get("suite") != suite()["version"]:
        return Again(not_asked="again.suite")
    if on_file.get("acceptance") is not True and _size_bytes(run) > SIZE_MAX_BYTES:
        return Again(not_asked="again.size")
    try:
        said: Json = json.loads(to_bytes(judge(run)))
    except (NotJudgedError, EvidenceError) as error:
        return Again((str(error),))
    found = list(_differences(on_file, said, ""))
    rest = len(found) - SHOWN
    return Again((*found[:SHOWN], *([f"… {rest} more"] if rest > 0 else ())))


def _size_bytes(run: Run) -> int:
    return sum(file.stat().st_size for file in run.path.glob("raw/*/*/*/requests.jsonl"))


def _differences(on_file: object, said: object, where: str) -> Iterator[str]:
    """Yield a line per value that differs: its place, what is on file, and what the judge says."""
    if isinstance(on_file, dict) and isinstance(said, dict):
        for key in dict.fromkeys((*said, *on_file)):
            yield from _differences(on_file.get(key, _ABSENT), said.get(key, _ABSENT), f"{where}.{key}".lstrip("."))
    elif isinstance(on_file, list) and isinstance(said, list) and len(on_file) == len(said):
        for place, (left, right) in enumerate(zip(on_file, said, strict=True)):
            yield from _differences(left, right, f"{where}{_named(said, place)}")
    elif type(on_file) is not type(said) or on_file != said:
        yield f"{where}: {_short(on_file)} on file, {_short(said)} when judged again"


_ABSENT = object()


def _named(rows: list[object], place: int) -> str:
    """Return a row's place, with its requirement and step where it has them."""
    row = objects([rows[place]])
    told = f" {row[0]['id']} {row[0].get('step') or ''}".rstrip() if row and "id" in row[0] else ""
    return f"[{place}{told}]"


def _short(value: object) -> str:
    if value is _ABSENT:
        return "nothing"
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 80 else f"{text[:79]}…"
