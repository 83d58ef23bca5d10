"""Raw speed and integrity of the tiers by fio: as fast as ordered, and what is read back is what was written."""

from __future__ import annotations

import errno
from functools import partial

from gates.arrival import fio_runs, mounts
from gates.arrival.check import Check, Collector, Finding, Plan, finding, unseen
from gates.arrival.fio_runs import Ran
from gates.arrival.host import Host
from gates.arrival.limits import Limit, Limits
from gates.nodata import NoData
from gates.readers import block, versions
from gates.readers import fio as reader
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
# Errors that are the medium's own: nothing about the run explains them. A file system that is full or read-only takes
# no data that could be compared: rows of the mount tell of it.
OF_THE_TIER = (errno.EIO, errno.EILSEQ, errno.ENODATA, errno.EREMOTEIO, errno.ETIMEDOUT)
OVER_THE_LINE = 1.02  # of the line's rate: what is faster than this did not come over it


def plan(bom: Bom, limits: Limits) -> Plan:
    """Return the checks of the declared tiers."""
    gathered = Collector()
    for name, raw in bom.raw.items():
        at = f"raw.{name}"
        gathered.add(at, "integrity", "what is read back is what was written", partial(_integrity, name, raw, bom))
        speed = limits.of("raw_speed")
        for metric in SPEEDS:
            ordered = getattr(raw, f"{metric}_bytes_per_s")
            if ordered is None and metric == "sequential_read":
                ordered = raw.line_bytes_per_s
            if ordered is None:
                gathered.lacks(f"{at}.{metric}", "raw_speed")
                continue
            declared = f"{speed.operator} {speed.limit:g} of {ordered:g} bytes/s"
            look = partial(_speed, name, raw, metric, ordered, speed, bom)
            gathered.checks.append(Check(f"{at}.{metric}", "raw_speed", declared, look, speed))
        latency, p99_s = limits.of("raw_latency"), raw.random_read_p99_s
        if p99_s is None:
            gathered.lacks(f"{at}.random_read_p99", "raw_latency")
        else:
            declared = f"{latency.operator} {latency.limit:g} of {p99_s:g} s"
            look = partial(_latency, name, raw, p99_s, latency, bom)
            gathered.checks.append(Check(f"{at}.random_read_p99", "raw_latency", declared, look, latency))
    if not bom.raw:
        gathered.lacks("raw", "raw_speed")
    return gathered.plan()


def _runs(name: str, raw: Raw, job: fio.Job, bom: Bom, host: Host) -> tuple[Ran, ...] | NoData:
    if (elsewhere := _elsewhere(raw, bom, host)) is not None:
        return NoData(elsewhere)
    return fio_runs.of_job(name, raw, job, host)


def _elsewhere(raw: Raw, bom: Bom, host: Host) -> str | None:
    """Return why the scratch folder is not on the file system that is declared for it; None: it is, or none is."""
    above = [m.target for m in bom.mounts.values() if block.below(raw.scratch, m.target)]
    seen = mounts.mounted(host)
    if not above or isinstance(seen.value, NoData):
        return None
    declared, held = max(above, key=len), block.holding(seen.value, raw.scratch)
    found = held.target if held is not None else "nothing"
    return None if found == declared else f"{raw.scratch} lies on what is mounted at {found}, {declared} was declared"


def _unmoved(raw: Raw, host: Host) -> str | None:
    """Return why the block devices give fio the lie; None: they do not, or there are none below the scratch folder.

    A relative one is the suite's own: it may lie on anything.
    """
    if not raw.scratch.startswith("/"):
        return None
    seen = mounts.mounted(host)
    held = None if isinstance(seen.value, NoData) else block.holding(seen.value, raw.scratch)
    on_a_device = held is None or (held.source or "").startswith("/dev/")
    return fio_runs.unmoved(host) if on_a_device else None


def _jobs(raw: Raw) -> dict[str, fio.Job]:
    """Return the jobs by name; how large a chunk is makes no difference to whether one did what was asked."""
    how = fio.How(runtime_s=raw.runtime_s, ramp_s=raw.ramp_s, direct=raw.direct_io)
    return {job.name: job for job in fio.all_jobs(how, raw.size_bytes, raw.readers, fio.ALIGNMENT_BYTES)}


def _integrity(name: str, raw: Raw, bom: Bom, host: Host) -> Finding:
    """Judge by what was read back, and by errors of the medium in any job."""
    faults: list[str] = []
    unknown: list[str] = []
    files: list[str] = []
    moved_bytes = 0
    # Who reads back once more is this suite alone.
    verifying = VERIFIED if name in host.fio else VERIFIED[:1]
    for job in _jobs(raw).values():
        runs = _runs(name, raw, job, bom, host)
        if isinstance(runs, NoData):
            unknown += [f"{name}: {runs.reason}"] if job.name in verifying else []
            continue
        for ran in runs:
            own = not isinstance(ran.run, NoData) and ran.doubt is not None and _of_the_tier(ran.run, ran.doubt)
            if job.name not in verifying and not own:
                continue
            files += ran.files
            if ran.why_not is not None:
                (faults if own else unknown).append(f"{name}: {ran.why_not}")
            elif not isinstance(ran.run, NoData):
                moved_bytes += sum(each.read.moved_bytes or 0 for each in ran.run.jobs)
    if name in host.fio and (unmoved := _unmoved(raw, host)) is not None:
        unknown.append(f"{name}: {unmoved}")
    told = f"{moved_bytes} bytes read back and compared"
    return finding(list(dict.fromkeys(faults)), told, told, files, list(dict.fromkeys(unknown)))


def _of_the_tier(run: reader.FioRun, doubt: str) -> bool:
    return any(each.error in OF_THE_TIER for each in run.jobs) or "verify failed" in doubt


def _sound(
    name: str, raw: Raw, metric: str, bom: Bom, host: Host
) -> tuple[list[reader.FioRun], tuple[str, ...]] | Finding:
    """Return the runs of a kind whose figures can be trusted, all of them, with their files; or why there are none."""
    job = _jobs(raw)[SPEEDS[metric]]
    if metric == "chunk_read" and name not in host.fio:
        return unseen(f"{name}: reads of chunk files need the host itself: no bundle tells how large its chunks were")
    runs = _runs(name, raw, job, bom, host)
    if isinstance(runs, NoData):
        return unseen(f"{name}: {runs.reason}")
    files = tuple(file for ran in runs for file in ran.files)
    if doubt := next((ran.why_not for ran in runs if ran.why_not is not None), None):
        return unseen(f"{name}: {doubt}", files)
    if name in host.fio and (unmoved := _unmoved(raw, host)) is not None:
        return unseen(f"{name}: {unmoved}", files)
    if not raw.direct_io and (why := _cached(raw, host)) is not None:
        return unseen(f"{name}: {why}", files)
    return [ran.run for ran in runs if not isinstance(ran.run, NoData)], files


def _cached(raw: Raw, host: Host) -> str | None:
    """Return why reads without direct I/O may have come from the host's memory; None: their files do not fit in."""
    seen = host.read(versions.memory, ("cat", "/proc/meminfo"))
    if isinstance(seen.value, NoData):
        return f"direct_io is off, and how much the host's memory holds is not known: {seen.value.reason}"
    total_bytes = seen.value.total_bytes
    if raw.size_bytes > total_bytes:
        return None
    return (
        f"direct_io is off, and {raw.size_bytes} bytes fit into the host's memory of {total_bytes}: its cache was read"
    )


def _speed(name: str, raw: Raw, metric: str, ordered: float, limit: Limit, bom: Bom, host: Host) -> Finding:
    """Judge by the slowest run of the kind."""
    sound = _sound(name, raw, metric, bom, host)
    if isinstance(sound, Finding):
        return sound
    runs, files = sound
    side = "write" if metric == "sequential_write" else "read"
    speeds = [[getattr(job, side).bw_bytes_per_s for job in run.jobs] for run in runs]
    if not speeds or any(not each or None in each for each in speeds):
        return unseen(f"{name}: fio tells no bandwidth", files)
    totals = [sum(each) for each in speeds]
    found = min(totals)
    share = found / ordered
    told = f"{found / 1e6:.1f} MB/s"
    said = f"{name}: {metric.replace('_', ' ')} {told}, {share * 100:.1f} % of {ordered / 1e6:.1f} MB/s"
    line = raw.line_bytes_per_s
    if side == "read" and line is not None and max(totals) > OVER_THE_LINE * line:
        return unseen(f"{said}: faster than the line ({line / 1e6:.1f} MB/s), so it did not come over it", files)
    judged = finding([] if limit.holds(share) else [said], told, said, files)
    return Finding(judged.verdict, judged.found, judged.reason, judged.raw, share)


def _latency(name: str, raw: Raw, ordered_s: float, limit: Limit, bom: Bom, host: Host) -> Finding:
    sound = _sound(name, raw, "random_read", bom, host)
    if isinstance(sound, Finding):
        return sound
    runs, files = sound
    jobs = [job for run in runs for job in run.jobs]
    told_ns = [job.read.latency.percentiles_ns.get(99.0) if job.read.latency else None for job in jobs]
    known = [value for value in told_ns if value is not None]
    if not known or len(known) < len(told_ns):
        return unseen(f"{name}: fio tells no 99th percentile", files)
    p99_s = max(known) / 1e9
    share = p99_s / ordered_s
    said = f"{name}: random read p99 {p99_s * 1e3:.2f} ms, {share * 100:.0f} % of {ordered_s * 1e3:g} ms"
    judged = finding([] if limit.holds(share) else [said], f"{p99_s * 1e3:.2f} ms", said, files)
    return Finding(judged.verdict, judged.found, judged.reason, judged.raw, share)
