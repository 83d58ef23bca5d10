"""What fio 3.x tells as JSON, and whether a figure of it can be trusted.

Keys and units: fio's stat.c. From 3.0 latencies are nanoseconds and io_bytes are bytes; before, microseconds and KiB
under other keys, which are refused.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from gates.readers.error import ReaderError, decimal, documents_of, integer, shown, text, word
from workloads.bundle import Output
from workloads.fio import Asked

RUNTIME_SHARE_MIN = 0.98  # of what was asked for
FIGURES_APART = 0.02  # share by which bandwidth times time may differ from the bytes; times are whole milliseconds
EILSEQ = 84  # how fio says that what it read is not what was written
ALL_CLIENTS = "All clients"  # the sum over what stands before it


@dataclass(frozen=True)
class Latency:
    """Latencies of one direction: of whole I/Os (lat), or from submission on (clat)."""

    kind: str
    mean_ns: float | None
    max_ns: int | None
    samples: int | None
    percentiles_ns: Mapping[float, int]  # by percent, as 99.9


@dataclass(frozen=True)
class Direction:
    """What a job read, or wrote. None is not told."""

    moved_bytes: int | None
    bw_bytes_per_s: float | None
    iops: float | None
    runtime_s: float | None
    total_ios: int | None
    short_ios: int | None
    latency: Latency | None


@dataclass(frozen=True)
class FioJob:
    """One job, or one group of equal ones that are told together."""

    name: str
    error: int | None  # an errno
    read: Direction
    write: Direction
    job_runtime_s: float | None  # the sum over the group's jobs, without the ramp
    options: Mapping[str, str]  # the global ones, too
    hostname: str | None  # in client mode


@dataclass(frozen=True)
class FioRun:
    """One document of fio, how fio ended, and the lines that stood around the document."""

    version: str | None
    status: int | None
    jobs: tuple[FioJob, ...]
    said: tuple[str, ...]


def fio_run(output: Output) -> FioRun:
    """Return what one run of fio told. Raises ReaderError: as `document` does, and for a fio before 3.0."""
    found = text(output)
    documents = documents_of(found, output)
    if len(documents) > 1:
        raise ReaderError(
            f"{output.command}: printed {len(documents)} JSON documents, as with --status-interval: one is wanted"
        )
    if not documents or not isinstance(documents[0], dict):
        raise ReaderError(f"{output.command}: printed no JSON object, but {shown(found)}")
    told = documents[0]
    version = word(told.get("fio version"))
    jobs = told.get("jobs", told.get("client_stats"))
    if not isinstance(jobs, list) or not jobs or not all(isinstance(job, dict) for job in jobs):
        raise ReaderError(f"{output.command}: its JSON tells no jobs")
    common = _options(told.get("global options"))
    return FioRun(
        version,
        output.status,
        tuple(_job(job, common, output, version) for job in jobs if job.get("jobname") != ALL_CLIENTS),
        _said(found) + _said(output.stderr.decode("utf-8", "replace")),
    )


def sound(run: FioRun, asked: Asked) -> str | None:
    """Return why the figures of a run cannot be trusted, in one line; None: they can."""
    if reason := _badly_ended(run):
        return reason
    made = next((line for line in run.said if "Laying out IO file" in line), None)
    if made is not None and not asked.writes:
        return f"read files of its own making: fio said {shown(made)}"
    if len(run.jobs) not in (1, asked.threads):
        return f"tells {len(run.jobs)} jobs, {asked.threads} were asked for"
    share = asked
    if len(run.jobs) > 1:
        moved_bytes = None if asked.moved_bytes is None else asked.moved_bytes // len(run.jobs)
        share = replace(asked, threads=1, moved_bytes=moved_bytes)
    reasons = (_unsound(job, share) for job in run.jobs)
    return next((reason for reason in reasons if reason), None)


def asked_of(run: FioRun, earlier: Iterable[FioRun] = ()) -> Asked:
    """Return what a run was asked for by the options that it tells itself: for runs that somebody else started.

    `earlier` are the runs on the same host before it: they may have laid out what it reads. Raises ReaderError: jobs of
    several kinds in one run.
    """
    kinds = {job.options.get("rw", job.options.get("readwrite", "read")).split(":")[0] for job in run.jobs}
    if len(kinds) != 1:
        raise ReaderError(f"fio: tells jobs that {' and '.join(sorted(kinds)) or 'nothing'}: one kind is wanted")
    options, kind = run.jobs[0].options, kinds.pop()
    both = kind in ("rw", "readwrite", "randrw")
    verifies = "verify" in options and options.get("do_verify", "1") != "0"
    timed = _on(options, "time_based")
    total_bytes = size_bytes(options.get("size", options.get("filesize", "")))
    # Told by the group, or one by one; not every version tells which was asked for.
    threads = _count(options.get("numjobs")) if len(run.jobs) == 1 else len(run.jobs)
    unbound = both or timed or "runtime" in options or total_bytes is None
    return Asked(
        reads=(both or kind in ("read", "randread")) and not verifies,
        writes=(both or kind in ("write", "randwrite")) and not _on(options, "verify_only"),
        verifies=verifies,
        runtime_s=seconds(options.get("runtime", "")) if timed else None,
        moved_bytes=None if unbound else (total_bytes or 0) * threads,
        threads=threads,
        laid_out=any(_laid_out(options, before) for before in earlier),
    )


def _badly_ended(run: FioRun) -> str | None:
    for job in run.jobs:
        if job.error == EILSEQ:
            return f"{job.name}: what was read is not what was written (error {EILSEQ})"
        if job.error is None or job.error:
            told = "does not tell whether it failed" if job.error is None else f"failed: {os.strerror(job.error)}"
            return f"{job.name}: {told}" + (f" (error {job.error})" if job.error else "")
    for line in run.said:
        if re.search(r"terminating on signal|verify failed|bad magic header", line):
            return f"fio said {shown(line)}"
    if run.status != 0:
        said = next((f" and said {shown(line)}" for line in run.said), "")
        return "its status is not known" if run.status is None else f"fio ended with status {run.status}{said}"
    if not run.jobs:
        return "tells no jobs"
    return None


def _unsound(job: FioJob, asked: Asked) -> str | None:
    wanted = (("read", job.read, asked.reads or asked.verifies), ("write", job.write, asked.writes))
    for name, direction, wants in wanted:
        if wants and (reason := _short(direction, asked)):
            return f"{job.name}: {name}: {reason}"
        # A dry run of the writes is told as if they had been made.
        if not wants and not asked.verifies and direction.total_ios != 0:
            return f"{job.name}: {name}: was not asked for, and {direction.total_ios} I/Os are told"
    if asked.runtime_s is not None and not _lasted(job.job_runtime_s, asked.runtime_s * asked.threads):
        return f"{job.name}: one of {asked.threads} threads ended early: {job.job_runtime_s} s together"
    if asked.verifies and ("verify" not in job.options or job.options.get("do_verify") == "0"):
        return f"{job.name}: nothing was verified"
    if asked.verifies and asked.writes and (job.read.moved_bytes or 0) < (job.write.moved_bytes or 0):
        return f"{job.name}: read back {job.read.moved_bytes} of {job.write.moved_bytes} bytes"
    if not asked.writes and not (asked.laid_out or job.options.get("allow_file_create") == "0"):
        return f"{job.name}: may have read files of its own making: allow_file_create=0 is not set"
    return None


def _short(direction: Direction, asked: Asked) -> str | None:
    """Return what one direction of a job lacks of what was asked for."""
    if not direction.total_ios or not direction.moved_bytes or not direction.bw_bytes_per_s:
        return "no I/O was done"
    if direction.short_ios != 0:
        return "does not tell short I/Os" if direction.short_ios is None else f"{direction.short_ios} short I/Os"
    if asked.moved_bytes is not None and direction.moved_bytes < asked.moved_bytes:
        return f"{direction.moved_bytes} of {asked.moved_bytes} bytes"
    if asked.runtime_s is not None and not _lasted(direction.runtime_s, asked.runtime_s):
        return f"ended early, after {direction.runtime_s} of {asked.runtime_s:g} s"
    claimed_bytes = direction.bw_bytes_per_s * (direction.runtime_s or 0.0)
    apart_bytes = FIGURES_APART * direction.moved_bytes + direction.bw_bytes_per_s / 500
    if abs(claimed_bytes - direction.moved_bytes) > apart_bytes:
        return f"its own figures disagree: {direction.moved_bytes} bytes in {direction.runtime_s} s"
    return None


def _lasted(found_s: float | None, asked_s: float) -> bool:
    return found_s is not None and found_s >= RUNTIME_SHARE_MIN * asked_s


def _job(job: dict[str, Any], common: Mapping[str, str], output: Output, version: str | None) -> FioJob:
    error = job.get("error")
    runtime_ms = decimal(job.get("job_runtime"))
    return FioJob(
        word(job.get("jobname")) or "unnamed",
        error if isinstance(error, int) and not isinstance(error, bool) and 0 <= error < 4096 else None,
        _direction(job, "read", output, version),
        _direction(job, "write", output, version),
        None if runtime_ms is None else runtime_ms / 1000,
        {**common, **_options(job.get("job options"))},
        word(job.get("hostname")),
    )


def _direction(job: dict[str, Any], name: str, output: Output, version: str | None) -> Direction:
    told = job.get(name)
    if not isinstance(told, dict):
        raise ReaderError(f"{output.command}: its JSON tells no '{name}' of a job (unified_rw_reporting?)")
    if "io_kbytes" not in told or not any(key in told for key in ("lat_ns", "clat_ns")):
        raise ReaderError(f"{output.command}: {version or 'fio'} tells KiB and microseconds: use fio 3.0 or later")
    moved_bytes, runtime_ms = integer(told.get("io_bytes")), decimal(told.get("runtime"))
    bw = decimal(told.get("bw_bytes"))
    if bw is None and "bw_bytes" not in told and moved_bytes is not None and runtime_ms:  # before 3.2
        bw = moved_bytes * 1000 / runtime_ms
    return Direction(
        moved_bytes,
        bw,
        decimal(told.get("iops")),
        None if runtime_ms is None else runtime_ms / 1000,
        integer(told.get("total_ios")),
        integer(told.get("short_ios")),
        _latency(told),
    )


def _latency(told: dict[str, Any]) -> Latency | None:
    """Return the latencies that percentiles are told of: which ones, is an option of the job."""
    for kind in ("lat", "clat"):
        found = told.get(f"{kind}_ns")
        percentiles = found.get("percentile") if isinstance(found, dict) else None
        if isinstance(found, dict) and isinstance(percentiles, dict):
            known = {key: integer(value) for key, value in percentiles.items() if re.fullmatch(r"\d{1,3}\.\d+", key)}
            return Latency(
                kind,
                decimal(found.get("mean")),
                integer(found.get("max")),
                integer(found.get("N")),
                {float(key): value for key, value in known.items() if value is not None},
            )
    return None


def _options(told: object) -> dict[str, str]:
    return {key: value for key, value in told.items() if isinstance(value, str)} if isinstance(told, dict) else {}


def _said(found: str) -> tuple[str, ...]:
    """Return the lines of fio's own messages, of which it prints some on either stream."""
    marks = r"^(fio: |.*(verify failed|bad magic header|Laying out IO file))"
    return tuple(line for line in found.splitlines() if re.match(marks, line))[:50]


def _on(options: Mapping[str, str], key: str) -> bool:
    return options.get(key, "0") not in ("0", "false")  # an option without a value is told as ""


def _count(told: str | None) -> int:
    return max(integer(told) or 1, 1)


def seconds(told: str) -> float | None:
    """Return the seconds of a time as fio takes it."""
    match = re.fullmatch(r"(\d{1,12})(us|ms|s|m|h|d)?", told.strip().lower())
    scale = {None: 1.0, "us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
    return int(match[1]) * scale[match[2]] if match else None


def size_bytes(told: str) -> int | None:
    """Return the bytes of a size as fio takes it with its usual base of 1024; None: a share, or another base."""
    match = re.fullmatch(r"(\d{1,18})([kmgtp])?b?", told.strip().lower())
    return int(match[1]) << 10 * (" kmgtp".index(match[2]) if match[2] else 0) if match else None


def _laid_out(options: Mapping[str, str], before: FioRun) -> bool:
    """Return whether a run wrote, and to its end, the files that these options read."""
    if before.status != 0:
        return False
    for job in before.jobs:
        theirs = job.options
        if job.error != 0 or not job.write.moved_bytes or theirs.get("directory") != options.get("directory"):
            continue
        named = options.get("filename")
        if named is not None and (
            named == theirs.get("filename") or re.fullmatch(re.escape(job.name) + r"\.\d+\.\d+", named)
        ):
            return True
        key = "filename_format" if "filename_format" in options else "name"
        if named is None and key in options and options[key] == theirs.get(key):
            return True
    return False
