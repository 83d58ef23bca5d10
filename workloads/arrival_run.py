"""One arrival check from beginning to end: describe it, collect what the host tells, run fio, seal. Judges nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from scenarios.bom import Bom, Raw
from scenarios.load import Loaded
from scenarios.model import Site
from workloads import attempts, bundle, fio, probes, provenance, signing
from workloads.bundle import MISSING, Output
from workloads.evidence import SCHEMA, RunDir, sha256_of
from workloads.plain import EvidenceError
from workloads.progress import Progress

Json = dict[str, Any]

GATE = "g1"
BEFORE, AFTER, FIO = "host/before", "host/after", "raw/fio"
NOT_RUN = 126
# By their names in probes.py: counters, states, and the kernel's log.
CHANGED_BY_A_LOAD = (
    "boot-id", "dmesg-x-iso", "rdma-statistic.json", "ethtool-S.*", "ip-link-s.json", "nvme-list-subsys.json",
    "nvme-smart-log.*", "sysfs.txt", "proc-diskstats",
)  # fmt: skip
COLLECT_DEADLINE_S = 1800.0  # every tool has its own; this one is for what none of them foresaw


@dataclass(frozen=True)
class Request:
    """What was asked for: everything that run.json says of it."""

    site: Loaded[Site]
    runs: Path
    criteria_file: Path
    bundle: Path | None  # collected elsewhere; None: on this host
    selection: Mapping[str, int]
    overrides: Mapping[str, str]


def carry_out(request: Request, progress: Progress, announce: Callable[[Path], None]) -> None:
    """Carry the check out and seal it; `announce` gets the run's folder as soon as it describes itself.

    Raises BundleError before anything is written, where the bundle given is none; LedgerError, OSError. Whatever a tool
    does or does not say is evidence, and no error of this.
    """
    files = bundle.read_files(request.bundle) if request.bundle is not None else None
    recorded = RunDir.create(request.runs, GATE)
    recorded.write_bytes("criteria.toml", request.criteria_file.read_bytes())
    facts = _facts(request, recorded)
    attempts.begin(recorded, facts, progress.line)
    recorded.write_json("run.json", facts)
    announce(recorded.path)
    progress.line(f"run {recorded.path}")
    try:
        _collect(request, recorded, files, progress)
    except KeyboardInterrupt:
        recorded.incident(whose="harness", kind="interrupted", message="stopped by a signal before the end")
        raise
    except BaseException as error:
        recorded.incident(whose="harness", kind="crashed", message=f"{type(error).__name__}: {error}")
        raise
    finally:
        recorded.write_json("run.json", facts | {"ended_utc": datetime.now(UTC).isoformat(timespec="seconds")})
        recorded.seal("end")
        if unsigned := signing.problem(recorded.path):
            progress.line(f"the manifest is not signed: {unsigned}")


def _collect(request: Request, recorded: RunDir, files: Mapping[str, bytes] | None, progress: Progress) -> None:
    site = request.site.value
    bom = site.bom or Bom()
    if files is not None:
        _keep(recorded, BEFORE, files)
        return
    work = Path(site.work_dir).absolute() / "arrival" / recorded.run_id
    work.mkdir(parents=True)
    paths = dict.fromkeys(mount.target for mount in bom.mounts.values() if mount.writable)
    options = [word for path in paths for word in ("--path", path)]
    declared = bom.software.python if bom.software is not None else None
    if (python := declared or engine_python(site)) is not None:
        options += ["--python", python]
    try:
        progress.phase("ask the host's tools", done=0, of=2 + len(bom.raw))
        _keep(recorded, BEFORE, _ask(recorded, work / "before.tar", options))
        for number, (name, raw) in enumerate(bom.raw.items(), start=1):
            progress.phase(f"fio on {name}", done=number, of=2 + len(bom.raw))
            _keep(recorded, f"{FIO}/{name}", _fio(site, raw))
        if bom.raw:
            progress.phase("ask what the load has changed", done=1 + len(bom.raw), of=2 + len(bom.raw))
            _keep(recorded, AFTER, _ask(recorded, work / "after.tar", ["--only", *CHANGED_BY_A_LOAD]))
    finally:
        shutil.rmtree(work, ignore_errors=True)


def raw_jobs(site: Site, raw: Raw) -> tuple[fio.Job, ...]:
    """Return the fio jobs of a raw check in their order: known from the site alone."""
    how = fio.How(runtime_s=raw.runtime_s, ramp_s=raw.ramp_s, direct=raw.direct_io)
    return fio.all_jobs(how, raw.size_bytes, raw.readers, _chunk_bytes(site, raw))


def _chunk_bytes(site: Site, raw: Raw) -> int | None:
    return site.lmcache.chunk_tokens * site.models[raw.model].kv_bytes_per_token if raw.model is not None else None


def _fio(site: Site, raw: Raw) -> Mapping[str, bytes]:
    """Return a bundle of what fio told of each job; where one could not be run, why, in its place."""
    jobs = raw_jobs(site, raw)
    chunk_bytes = _chunk_bytes(site, raw)
    folder = Path(raw.scratch)
    if not folder.is_absolute():  # below our own work folder, everything may be written
        folder = Path(os.path.realpath(site.work_dir)) / folder
        folder.mkdir(parents=True, exist_ok=True)
        (folder / fio.SENTINEL).touch()
    done: list[Output] = []
    try:
        files = raw.readers * 2 + (raw.size_bytes // chunk_bytes if chunk_bytes else 0)
        with fio.scratch(folder, fio.need_bytes(raw.size_bytes, raw.readers, chunk_bytes), files) as scratch:
            for job in jobs:
                done.append(scratch.run(job))
    except (fio.FioMissing, fio.ScratchRefused) as error:
        status = MISSING if isinstance(error, fio.FioMissing) else NOT_RUN
        for job in jobs[len(done) :]:
            done.append(Output(f"fio-{job.name}", ("fio", f"--name={job.name}"), b"", f"{error}\n".encode(), status))
    return bundle.files_of(done)


def _ask(recorded: RunDir, out: Path, options: Sequence[str]) -> Mapping[str, bytes]:
    """Return what the host's tools told. A program of its own: one that cannot be killed is left behind with it."""
    argv = [sys.executable, "-B", str(Path(probes.__file__)), str(out), *options]
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as child:
        try:
            _, said = child.communicate(timeout=COLLECT_DEADLINE_S)
        except subprocess.TimeoutExpired:
            child.kill()
            said = b"it did not end"
    told = [line for line in said.decode("utf-8", "replace").splitlines() if line.strip()]
    for line in told:
        recorded.incident(whose="host", kind="probe", message=line)
    if not out.exists():
        raise EvidenceError(f"the host's tools were not asked: {told[-1] if told else 'probes.py said nothing'}")
    return bundle.read_files(out)


def engine_python(site: Site) -> str | None:
    """Return the Python that runs the site's engine: this one, or the one beside its command; None: not known."""
    command = site.engine.command[0]
    if command == "{python}":
        return sys.executable
    found = shutil.which(command)
    if found is None:
        return None
    if Path(command).name.startswith("python"):
        return found
    beside = Path(found).resolve().parent / "python3"
    return str(beside) if beside.exists() else None


def _keep(recorded: RunDir, folder: str, files: Mapping[str, bytes]) -> None:
    for name, content in files.items():
        recorded.write_bytes(f"{folder}/{name}", content)


def refuse_foreign(path: Path) -> None:
    """Raise BundleError where `path` is no bundle that could be judged."""
    bundle.open_bundle(path)


def _facts(request: Request, recorded: RunDir) -> Json:
    site = request.site
    return {
        "schema": SCHEMA,
        "run_id": recorded.run_id,
        "gate": GATE,
        "kind": "gate",
        "rehearsal": site.value.rehearsal,
        "created_utc": datetime.now(UTC).isoformat(timespec="seconds"),
        "site": site.value.model_dump(mode="json", by_alias=True),
        "scenario": {"name": "arrival", "title": "arrival check"},  # what the ledger counts attempts by
        "origins": {f"site.{key}": origin for key, origin in site.origins.items()},
        "overrides": dict(request.overrides),
        "selection": dict(request.selection),
        "tester": provenance.tester(),
        "bundle": _bundle(request.bundle),
        "criteria_sha256": sha256_of(recorded.path / "criteria.toml"),
        "suite": provenance.suite(),
        "software": provenance.software(),
        "host": provenance.host(),
    }


def _bundle(path: Path | None) -> Json | None:
    """Return which bundle was judged; None: this host."""
    if path is None:
        return None
    return {"name": path.name, "sha256": sha256_of(path) if path.is_file() else None}
