"""Enter every start of a gate in the ledger before anything is measured, and what came of it.

Running again until it passes is best-of-n, so every start counts, also that of a run that was killed.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from workloads.evidence import RunDir
from workloads.ledger import (
    COUNTED_KIND,
    END,
    EXTRACT,
    LEDGER,
    RESUME,
    SCHEMA,
    START,
    LedgerError,
    Line,
    claims,
    counted,
    last_hash,
    lines_of,
    make_extract,
    series_of,
    unknown_runs,
)  # fmt: skip

Json = dict[str, Any]


def begin(recorded: RunDir, facts: Json, say: Callable[[str], None]) -> None:
    """Enter the start of a run, keep its extract in it, and put its attempt number into `facts`.

    A rehearsal whose start cannot be entered goes on and says so: nothing hangs on it. A lab run does not begin; what
    was written of it is removed. Raises LedgerError.
    """
    facts["attempt"] = 1
    if facts["kind"] != COUNTED_KIND:
        return
    try:
        extract = enter(recorded.path.parent, facts)
    except (LedgerError, OSError) as error:
        if not counted(facts):
            say(f"not entered in the ledger: {error}")
            return
        shutil.rmtree(recorded.path)
        raise LedgerError(
            f"{error}; a lab run is not begun without its place in the ledger: see docs/evidence.md"
        ) from None
    recorded.write_json(EXTRACT, extract)
    facts["attempt"] = extract["attempts"][-1]["attempt"]


def resume(recorded: RunDir, facts: Json, say: Callable[[str], None]) -> None:
    """Enter that a run goes on. Raises LedgerError for a lab run that cannot be entered; a rehearsal only says so."""
    _told(facts, say, lambda: enter_resume(recorded.path.parent, recorded.run_id), must=counted(facts))


def end(path: Path, facts: Json, judged: Json, say: Callable[[str], None]) -> None:
    """Enter what came of a run; where that cannot be done, say so: the verdict stands without it."""
    run, verdict, manifest = str(facts["run_id"]), str(judged["verdict"]), judged["manifest_sha256"]
    _told(facts, say, lambda: enter_end(path.parent, run, verdict, manifest), must=False)


def enter(runs: Path, facts: Json) -> Json:
    """Enter the start of a run; return its extract, with the attempt number in the last line.

    Raises LedgerError: damaged, or a run of this series lies in `runs` that the ledger does not know; OSError.
    """
    said = claims(facts)
    with _locked(runs, create=True) as (handle, lines):
        entry = {"schema": SCHEMA, "event": START, "after": last_hash(lines), **said}
        series = series_of(entry)
        if counted(said):
            _none_is_missing(runs, lines, series)
        mine = [line for line in lines if line.series == series]
        entry |= {"series_after": last_hash(mine), "attempt": 1 + sum(line.values["event"] == START for line in mine)}
        lines.append(_append(handle, len(lines) + 1, entry, series))
        return make_extract([line.text for line in (*mine, lines[-1])], len(lines))


def enter_resume(runs: Path, run: str) -> None:
    """Enter that a run is taken up again: the same attempt. Raises LedgerError, OSError."""
    _enter_more(runs, {"event": RESUME, "utc": _now(), "run": run})


def enter_end(runs: Path, run: str, verdict: str, manifest_sha256: str | None) -> None:
    """Enter what came of a run; a killed one has no such line. Raises LedgerError, OSError."""
    entry = {"event": END, "utc": _now(), "run": run, "verdict": verdict, "manifest_sha256": manifest_sha256}
    _enter_more(runs, entry)


def _told(facts: Json, say: Callable[[str], None], act: Callable[[], None], *, must: bool) -> None:
    if facts["kind"] != COUNTED_KIND:
        return
    try:
        act()
    except (LedgerError, OSError) as error:
        if must:
            raise LedgerError(str(error)) from None
        say(f"not entered in the ledger: {error}")


def _enter_more(runs: Path, said: Json) -> None:
    with _locked(runs, create=False) as (handle, lines):
        mine = [line for line in lines if line.values["event"] == START and line.values["run"] == said["run"]]
        if not mine:
            raise LedgerError(f"{runs / LEDGER}: the start of {said['run']} is not in there")
        series = mine[0].series
        before = [line for line in lines if line.series == series]
        entry = {
            "schema": SCHEMA,
            "event": said["event"],
            "after": last_hash(lines),
            "series_after": last_hash(before),
            **said,
        }
        _append(handle, len(lines) + 1, entry, series)


@contextmanager
def _locked(runs: Path, *, create: bool) -> Iterator[tuple[int, list[Line]]]:
    """Open the ledger for one entry, nobody else's meanwhile. Raises LedgerError, OSError."""
    file = runs / LEDGER
    runs.mkdir(parents=True, exist_ok=True)
    flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        handle = os.open(file, flags | (os.O_CREAT if create else 0), 0o644)
    except OSError as error:
        raise LedgerError(f"{file}: cannot be written: {error.strerror}") from None
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise LedgerError(f"{file}: not a plain file")
        fcntl.flock(handle, fcntl.LOCK_EX)
        with open(os.dup(handle), "rb") as f:
            f.seek(0)
            content = f.read()
        yield handle, lines_of(content, str(file))
        folder = os.open(runs, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    finally:
        os.close(handle)


def _append(handle: int, number: int, entry: Json, series: tuple[str, ...]) -> Line:
    text = json.dumps(entry, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    size = os.fstat(handle).st_size
    content = (text + "\n").encode()
    try:
        if os.write(handle, content) != len(content):
            raise OSError("the line could not be written whole")
        os.fsync(handle)
    except OSError:
        os.ftruncate(handle, size)  # a start that was not entered has not begun
        raise
    return Line(number, text, entry, series)


def _none_is_missing(runs: Path, lines: Sequence[Line], series: tuple[str, ...]) -> None:
    for path, of in unknown_runs(runs, lines):
        if of == series:
            raise LedgerError(f"{runs / LEDGER}: the start of {path.name} is not in there: it was cut, or is another")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
