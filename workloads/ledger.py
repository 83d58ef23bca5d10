"""The ledger of attempts as it reads: a chain of lines, and a run's extract of it. `attempts.py` writes it.

Each line holds the hash of the line before it, and of the one before it in its series (the attempts of one gate, site
and scenario): a run carries its own series alone, and that can be checked without the lines of anybody else.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workloads.plain import EvidenceError, open_plain, shown

Json = dict[str, Any]

LEDGER, EXTRACT = "LEDGER.jsonl", "LEDGER.extract.json"
SCHEMA = 1
START, RESUME, END = "start", "resume", "end"
COUNTED_KIND = "gate"  # a smoke run judges nothing, a self-check accepts nothing: neither is entered
_GENESIS = "0" * 64


class LedgerError(ValueError):
    """One line: where the ledger, or a run's extract of it, is not what it must be."""


@dataclass(frozen=True)
class Line:
    """One line of the ledger, as it stands there and as it reads."""

    number: int  # from 1
    text: str
    values: Json
    series: tuple[str, ...]

    @property
    def sha256(self) -> str:
        """Return the hash that the next line holds."""
        return _sha256(self.text)


def counted(facts: Json) -> bool:
    """Return whether a run is one of the attempts: a gate in a lab. A rehearsal is entered, and always its first."""
    return facts.get("kind") == COUNTED_KIND and facts.get("rehearsal") is not True


def claims(facts: Json) -> Json:
    """Return what the ledger says of a start, from its run.json. Raises LookupError, TypeError."""
    return {
        "utc": facts["created_utc"],
        "run": facts["run_id"],
        "gate": facts["gate"],
        "kind": facts["kind"],
        "rehearsal": facts["rehearsal"],
        "site": {"name": facts["site"]["name"], "sha256": canonical_sha256(facts["site"])},
        "scenario": {"name": facts["scenario"]["name"], "sha256": canonical_sha256(facts["scenario"])},
        "suite": facts["suite"],
        "criteria_sha256": facts["criteria_sha256"],
    }


def read(runs: Path) -> list[Line]:
    """Return the lines of the ledger in `runs`, each checked. Raises LedgerError naming the line; OSError."""
    file = runs / LEDGER
    try:
        with open_plain(file) as f:
            return lines_of(f.read(), str(file))
    except EvidenceError as error:
        raise LedgerError(str(error)) from None


def lines_of(content: bytes, where: str) -> list[Line]:
    """Return the lines of a whole ledger, each checked. Raises LedgerError naming the line as `where`:number."""
    rows = content.split(b"\n")
    if rows.pop():
        raise LedgerError(f"{where}:{len(rows) + 1}: cut off in the middle of a line")
    # What is written is ASCII; anything else no longer fits its hash.
    return _chain([row.decode("utf-8", "replace") for row in rows], where, whole=True)


def series_of(start: Json) -> tuple[str, ...]:
    """Return what a start is counted among: the runs of its gate, site and scenario, or itself alone."""
    if not counted(start):
        return ("run", start["run"])
    return (start["gate"], start["site"]["name"], start["scenario"]["name"])


def last_hash(lines: Sequence[Line]) -> str:
    """Return the hash that a line after these holds."""
    return lines[-1].sha256 if lines else _GENESIS


def unknown_runs(runs: Path, lines: Sequence[Line]) -> Iterator[tuple[Path, tuple[str, ...]]]:
    """Yield the runs in `runs` whose start the ledger does not hold, with their series: it was cut, or is another."""
    known = {line.text for line in lines}
    for file in sorted(runs.glob(f"*/{EXTRACT}")):
        try:
            with open_plain(file) as f:
                last = read_extract(json.loads(f.read()), str(file))[-1]
        except (LedgerError, EvidenceError, OSError, ValueError, RecursionError):
            continue  # of a run that proves nothing itself: `verify` tells it
        if last.text not in known:
            yield file.parent, last.series


def make_extract(texts: Sequence[str], ledger_lines: int) -> Json:
    """Return a run's extract: the lines of its series as they stand, its own start last, and what they come to."""
    return {
        "schema": SCHEMA,
        "ledger_lines": ledger_lines,
        "lines": list(texts),
        "attempts": attempts([json.loads(text) for text in texts]),
    }


def attempts(entries: Sequence[Json]) -> list[Json]:
    """Return one entry per start, in order: when, which run, and what came of it; null where no end was entered."""
    found: dict[str, Json] = {}
    for entry in entries:
        if entry["event"] == START:
            keys = ("attempt", "utc", "run")
            found[entry["run"]] = {**{k: entry[k] for k in keys}, "verdict": None, "manifest_sha256": None}
        elif entry["event"] == END:
            found[entry["run"]].update({key: entry[key] for key in ("verdict", "manifest_sha256")})
    return list(found.values())


def read_extract(extract: Json, where: str) -> list[Line]:
    """Return the lines of an extract, their series checked from its first attempt to the run's own start, the last.

    Raises LedgerError: anything else.
    """
    if not isinstance(extract, dict) or type(extract.get("schema")) is not int or extract["schema"] != SCHEMA:
        raise LedgerError(f"{where}: not an extract of schema {SCHEMA}")
    texts = extract.get("lines")
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
        raise LedgerError(f"{where}: holds no lines of a ledger")
    lines = _chain(texts, where, whole=False)
    if len({line.series for line in lines}) > 1 or lines[-1].values["event"] != START:
        raise LedgerError(f"{where}: its last line is not the start of a run of one series")
    if extract.get("attempts") != attempts([line.values for line in lines]):
        raise LedgerError(f"{where}: its attempts are not those of its lines")
    return lines


def canonical_sha256(value: object) -> str:
    """Return the SHA-256 of a JSON value, the same however it was laid out."""
    return _sha256(json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False))


def _chain(texts: Sequence[str], where: str, *, whole: bool) -> list[Line]:
    """Return the lines, each of the right shape and following those before it: all of them, or those of its series."""
    lines: list[Line] = []
    known: dict[str, tuple[str, ...]] = {}
    latest: dict[tuple[str, ...], Line] = {}
    starts: dict[tuple[str, ...], int] = {}
    for number, text in enumerate(texts, start=1):
        place = f"{where}:{number}" if whole else f"{where}: line {number}"
        values = _values(text, place)
        run, event = values["run"], values["event"]
        if event == START and run in known:
            raise LedgerError(f"{place}: {shown(run)} starts a second time")
        if event != START and run not in known:
            raise LedgerError(f"{place}: {shown(run)} has not started")
        series = known.setdefault(run, series_of(values)) if event == START else known[run]
        if whole and values["after"] != last_hash(lines):
            raise LedgerError(f"{place}: does not follow the line before it: one was changed, added or taken out")
        if values["series_after"] != last_hash([latest[series]] if series in latest else []):
            raise LedgerError(f"{place}: does not follow the attempt before it: one was changed, added or taken out")
        if event == START:
            starts[series] = starts.get(series, 0) + 1
            if values["attempt"] != starts[series]:
                raise LedgerError(f"{place}: says attempt {values['attempt']}, it is number {starts[series]}")
        lines.append(Line(number, text, values, series))
        latest[series] = lines[-1]
    return lines


def _values(text: str, place: str) -> Json:
    try:
        values = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise LedgerError(f"{place}: not JSON") from None
    if not isinstance(values, dict) or type(values.get("schema")) is not int or values["schema"] != SCHEMA:
        raise LedgerError(f"{place}: not an entry of schema {SCHEMA}")
    texts = {"event", "after", "series_after", "utc", "run"}
    if values.get("event") == START:
        texts |= {"gate", "kind", "criteria_sha256"}
        named = [values.get(key) for key in ("site", "scenario")]
        if not all(isinstance(n, dict) and isinstance(n.get("name"), str) for n in named):
            raise LedgerError(f"{place}: does not name site and scenario")
        if type(values.get("attempt")) is not int or type(values.get("rehearsal")) is not bool:
            raise LedgerError(f"{place}: attempt or rehearsal is missing")
    elif values.get("event") not in (RESUME, END) or (
        values["event"] == END and not {"verdict", "manifest_sha256"} <= set(values)
    ):
        raise LedgerError(f"{place}: not an entry of a ledger")
    for key in sorted(texts):
        if not isinstance(values.get(key), str):
            raise LedgerError(f"{place}: {key} is missing")
    return values


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()


def _no_constant(name: str) -> float:
    raise ValueError(name)
