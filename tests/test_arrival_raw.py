"""Raw speed and integrity: by sound runs of fio alone; what it could not do is said, with the package's name."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gates.arrival import limits
from gates.arrival.check import Finding
from gates.arrival.host import Host
from gates.arrival.plan import plan
from scenarios.load import load_site
from scenarios.model import Site
from tests.arrival_lab import SITE
from workloads import arrival_run, fio
from workloads.bundle import Bundle, Output, of_files

ROOT = Path(__file__).resolve().parent.parent
CRITERIA = ROOT / "gates/criteria/g1.toml"
RAW = """
[bom.raw.array]
scratch = "/srv/array/scratch"
size_bytes = 67_108_864
runtime_s = 10.0
readers = 2
model = "any"
line_bytes_per_s = 12e9
random_read_bytes_per_s = 8e9
chunk_read_bytes_per_s = 10e9
random_read_p99_s = 0.002
"""
SITE_WITH_RAW = Site.model_validate(tomllib.loads(SITE + RAW))
JOBS = {job.name: job for job in arrival_run.raw_jobs(SITE_WITH_RAW, SITE_WITH_RAW.bom.raw["array"])}  # type: ignore[union-attr]
Change = Callable[[dict[str, Any]], object]


def told(job: fio.Job, bytes_per_s: float) -> dict[str, Any]:
    """Return what fio 3.33 prints of a job that did what was asked, the keys that count."""
    asked = job.asked
    options = dict(word.removeprefix("--").partition("=")[::2] for word in job.options)
    moved = asked.moved_bytes or int(bytes_per_s * (asked.runtime_s or 1))
    runtime_ms = int((asked.runtime_s or 1) * 1000)

    def side(does: bool) -> dict[str, Any]:
        latency = {"mean": 1e5, "max": 9, "N": 5, "percentile": {"99.000000": 1_000_000}} if does else {}
        return {
            "io_bytes": moved if does else 0, "io_kbytes": 1, "bw_bytes": int(bytes_per_s) if does else 0, "iops": 1.0,
            "runtime": runtime_ms if does else 0, "total_ios": 5 if does else 0, "short_ios": 0, "lat_ns": latency,
        }  # fmt: skip

    return {
        "fio version": "fio-3.33",
        "jobs": [
            {
                "jobname": job.name, "error": 0, "job options": {"name": job.name, **options},
                "job_runtime": runtime_ms * asked.threads, "read": side(asked.reads or asked.verifies),
                "write": side(asked.writes),
            }
        ],
    }  # fmt: skip


def ran(change: Change | None = None, of: str = "", status: int = 0, speed: float = 12e9) -> Bundle:
    outputs = []
    for name, job in JOBS.items():
        document = told(job, speed)
        if change is not None and name == of:
            change(document["jobs"][0])
        argv = ("fio", f"--name={name}", *job.options)
        outputs.append(Output(f"fio-{name}", argv, json.dumps(document).encode(), b"", status if name == of else 0))
    return Bundle(tuple(outputs))


def judged(bundle: Bundle | None) -> dict[str, Finding]:
    checks = plan(SITE_WITH_RAW.bom, limits.load(CRITERIA)).checks
    fio_told = {"array": Host(bundle, "raw/fio/array")} if bundle is not None else {}
    host = Host(Bundle(()), "host/before", fio=fio_told)
    return {check.id.removeprefix("raw.array."): check.look(host) for check in checks if check.id.startswith("raw.")}


ALL = {"integrity", "sequential_read", "random_read", "chunk_read", "random_read_p99"}


def test_as_fast_as_ordered_and_sound() -> None:
    found = judged(ran())
    assert set(found) == ALL
    assert {finding.verdict for finding in found.values()} == {"PASS"}
    assert found["sequential_read"].value == pytest.approx(1.0)
    assert found["chunk_read"].raw == ("raw/fio/array/fio-chunks-chunk-read.stdout",)


READ = "stream-sequential-read"
CASES: dict[str, tuple[Change, str, dict[str, str]]] = {
    "slow": (lambda job: job["read"].update(bw_bytes=11_000_000_000), READ, {"sequential_read": "FAIL"}),
    "slow chunks": (lambda job: job["read"].update(bw_bytes=9_000_000_000), "chunks-chunk-read", {"chunk_read": "FAIL"}),
    "late": (
        lambda job: job["read"]["lat_ns"].update(percentile={"99.000000": 2_100_000}),
        "stream-random-read",
        {"random_read_p99": "FAIL"},
    ),
    "no percentiles": (lambda job: job["read"].pop("lat_ns") and job["read"].update(clat_ns={}), "stream-random-read", {"random_read_p99": "INVALID"}),
    "other bytes": (lambda job: job.update(error=84), "checked-verify", {"integrity": "FAIL"}),
    "other bytes later": (lambda job: job.update(error=84), "checked-verify-again", {"integrity": "FAIL"}),
    "an I/O error": (lambda job: job.update(error=5), "checked-verify", {"integrity": "FAIL"}),
    "no memory": (lambda job: job.update(error=12), "checked-verify", {"integrity": "INVALID"}),
    "ended early": (lambda job: job["read"].update(runtime=1750), READ, {"sequential_read": "INVALID"}),
    "short I/Os": (lambda job: job["read"].update(short_ios=3), READ, {"sequential_read": "INVALID"}),
    "nothing read": (lambda job: job["read"].update(total_ios=0), READ, {"sequential_read": "INVALID"}),
    "nothing verified": (lambda job: job["job options"].pop("verify"), "checked-verify-again", {"integrity": "INVALID"}),
    "half read back": (lambda job: job["read"].update(io_bytes=9), "checked-verify", {"integrity": "INVALID"}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_run_that_is_slow_or_cannot_be_trusted(name: str) -> None:
    change, job, verdicts = CASES[name]
    found = judged(ran(change, job))
    assert {key: finding.verdict for key, finding in found.items() if finding.verdict != "PASS"} == verdicts
    assert found[next(iter(verdicts))].raw == (f"raw/fio/array/fio-{job}.stdout",) or "integrity" in verdicts


@pytest.mark.parametrize("status", [1, 124, 128])
def test_a_run_that_did_not_end_well_is_no_figure(status: int) -> None:
    found = judged(ran(lambda _job: None, READ, status))
    assert {key: finding.verdict for key, finding in found.items() if finding.verdict != "PASS"} == {
        "sequential_read": "INVALID"
    }


def test_without_fio_nothing_is_known(tmp_path: Path) -> None:
    assert {finding.verdict for finding in judged(None).values()} == {"INVALID"}
    assert judged(None).keys() == ALL


def test_where_fio_cannot_be_run_each_row_says_why_and_with_which_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = SITE_WITH_RAW
    raw = site.bom.raw["array"].model_copy(update={"scratch": str(tmp_path)})  # type: ignore[union-attr]
    refused = judged(of_files(dict(arrival_run._fio(site, raw)), tmp_path))
    assert {finding.verdict for finding in refused.values()} == {"INVALID"}
    assert all(fio.SENTINEL in finding.reason for finding in refused.values())
    (tmp_path / fio.SENTINEL).touch()
    monkeypatch.setattr(fio.Scratch, "run", missing)
    lacking = judged(of_files(dict(arrival_run._fio(site, raw)), tmp_path))
    assert {finding.verdict for finding in lacking.values()} == {"INVALID"}
    assert all("apt-get install fio" in finding.reason for finding in lacking.values())
    assert sorted(path.name for path in tmp_path.iterdir()) == [fio.SENTINEL]


def missing(_self: fio.Scratch, _job: fio.Job) -> Output:
    raise fio.FioMissing("fio is not installed: apt-get install fio")


def test_a_relative_scratch_folder_is_our_own_and_an_absolute_one_needs_its_sentinel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = load_site("rehearsal").value.model_copy(update={"work_dir": str(tmp_path)})
    assert loaded.bom is not None
    monkeypatch.setattr(fio.Scratch, "run", lambda self, job: Output(f"fio-{job.name}", ("fio",), b"", b"", 0))
    files = arrival_run._fio(loaded, loaded.bom.raw["scratch"])
    assert (tmp_path / "scratch" / fio.SENTINEL).is_file()
    assert b"fio-chunks-chunk-read\t0" in files["INDEX.tsv"]
