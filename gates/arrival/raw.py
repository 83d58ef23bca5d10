"""Raw speed and integrity of the tiers by fio: as fast as ordered, and what is read back is what was written."""

from __future__ import annotations

import errno
from functools import partial

from gates.arrival.check import Check, Collector, Finding, Plan, finding, unseen
from gates.arrival.host import Host
from gates.arrival.limits import Limit, Limits
from gates.nodata import NoData
from gates.readers import fio as reader
from gates.readers.error import ReaderError
from scenarios.bom import Bom, Raw
from workloads import fio

# What the jobs are called, by what the site declares of them.
SPEEDS = {
    "sequential_read": "stream-sequential-read",
    "random_read": "stream-random-read",
    "chunk_read": "chunks-chunk-read",
    "sequential_write": "stream-write",
}
VERIFIED = ("checked-verify", "checked-verify-again")
# Errors that are the medium's own: nothing about the run explains them.
OF_THE_TIER = (errno.EIO, errno.EILSEQ, errno.EROFS, errno.ENOSPC, errno.ENODATA, errno.EREMOTEIO, errno.ETIMEDOUT)
NOT_RUN = (126, 127)


def plan(bom: Bom, limits: Limits) -> Plan:
    """Return the checks of the declared tiers."""
    gathered = Collector()
    for name, raw in bom.raw.items():
        at = f"raw.{name}"
        gathered.add(at, "integrity", "what is read back is what was written", partial(_integrity, name, raw))
        speed = limits.of("raw_speed")
        for metric in SPEEDS:
            ordered = getattr(raw, f"{metric}_bytes_per_s")
            if ordered is None and metric == "sequential_read":
                ordered = raw.line_bytes_per_s
            if ordered is None:
                gathered.lacks(f"{at}.{metric}", "raw_speed")
                continue
            declared = f"{speed.operator} {speed.limit:g} of {ordered:g} bytes/s"
            look = partial(_speed, name, raw, metric, ordered, speed)
            gathered.checks.append(Check(f"{at}.{metric}", "raw_speed", declared, look, speed))
        latency, p99_s = limits.of("raw_latency"), raw.random_read_p99_s
        if p99_s is None:
            gathered.lacks(f"{at}.random_read_p99", "raw_latency")
        else:
            declared = f"{latency.operator} {latency.limit:g} of {p99_s:g} s"
            look = partial(_latency, name, raw, p99_s, latency)
            gathered.checks.append(Check(f"{at}.random_read_p99", "raw_latency", declared, look, latency))
    if not bom.raw:
        gathered.lacks("raw", "raw_speed")
    return gathered.plan()


def _run(name: str, raw: Raw, job: str, host: Host) -> tuple[reader.FioRun | NoData, str | None, tuple[str, ...]]:
    """Return (what fio told of a job, why its figures cannot be trusted, the file)."""
    told = host.fio.get(name)
    output = next((o for o in told.bundle.outputs if f"--name={job}" in o.argv), None) if told is not None else None
    if told is None or output is None:
        return NoData(f"fio was not run on {name}: it needs the host itself, and no bundle brings it"), None, ()
    files = (told.raw(output),)
    if output.status in NOT_RUN and not output.stdout.strip():
        return NoData(" ".join(output.stderr.decode("utf-8", "replace").split()) or "fio was not run"), None, files
    try:
        run = reader.fio_run(output)
    except ReaderError as error:
        return NoData(str(error)), None, files
    return run, reader.sound(run, _asked(raw)[job]), files


def _asked(raw: Raw) -> dict[str, fio.Asked]:
    """Return what each job had to do; how large a chunk is makes no difference to whether it did."""
    how = fio.How(runtime_s=raw.runtime_s, ramp_s=raw.ramp_s, direct=raw.direct_io)
    jobs = fio.all_jobs(how, raw.size_bytes, raw.readers, fio.ALIGNMENT_BYTES)
    return {job.name: job.asked for job in jobs}


def _integrity(name: str, raw: Raw, host: Host) -> Finding:
    faults: list[str] = []
    unknown: list[str] = []
    files: list[str] = []
    moved_bytes = 0
    for job in VERIFIED:
        run, doubt, shown = _run(name, raw, job, host)
        files += shown
        if isinstance(run, NoData):
            unknown.append(f"{name}: {run.reason}")
        elif doubt is not None:
            own = any(each.error in OF_THE_TIER for each in run.jobs) or "verify failed" in doubt
            (faults if own else unknown).append(f"{name}: {doubt}")
        else:
            moved_bytes += sum(each.read.moved_bytes or 0 for each in run.jobs)
    told = f"{moved_bytes} bytes read back and compared"
    return finding(faults, told, told, files, list(dict.fromkeys(unknown)))


def _speed(name: str, raw: Raw, metric: str, ordered: float, limit: Limit, host: Host) -> Finding:
    run, doubt, files = _run(name, raw, SPEEDS[metric], host)
    if isinstance(run, NoData) or doubt is not None:
        return unseen(f"{name}: {run.reason if isinstance(run, NoData) else doubt}", files)
    side = "write" if metric == "sequential_write" else "read"
    speeds = [getattr(job, side).bw_bytes_per_s for job in run.jobs]
    if not speeds or None in speeds:
        return unseen(f"{name}: fio tells no bandwidth", files)
    found = sum(speeds)
    share = found / ordered
    told = f"{found / 1e6:.1f} MB/s"
    said = f"{name}: {metric.replace('_', ' ')} {told}, {share * 100:.1f} % of {ordered / 1e6:.1f} MB/s"
    judged = finding([] if limit.holds(share) else [said], told, said, files)
    return Finding(judged.verdict, judged.found, judged.reason, judged.raw, share)


def _latency(name: str, raw: Raw, ordered_s: float, limit: Limit, host: Host) -> Finding:
    run, doubt, files = _run(name, raw, SPEEDS["random_read"], host)
    if isinstance(run, NoData) or doubt is not None:
        return unseen(f"{name}: {run.reason if isinstance(run, NoData) else doubt}", files)
    told_ns = [job.read.latency.percentiles_ns.get(99.0) if job.read.latency else None for job in run.jobs]
    known = [value for value in told_ns if value is not None]
    if not known or len(known) < len(told_ns):
        return unseen(f"{name}: fio tells no 99th percentile", files)
    p99_s = max(known) / 1e9
    share = p99_s / ordered_s
    said = f"{name}: random read p99 {p99_s * 1e3:.2f} ms, {share * 100:.0f} % of {ordered_s * 1e3:g} ms"
    judged = finding([] if limit.holds(share) else [said], f"{p99_s * 1e3:.2f} ms", said, files)
    return Finding(judged.verdict, judged.found, judged.reason, judged.raw, share)
