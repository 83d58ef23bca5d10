"""Raw speed and integrity: by sound runs of fio alone; what it could not do is said, with the package's name."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gates.arrival import limits
from gates.arrival.check import Finding
from gates.arrival.host import BOOT_ID, Host
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
    dry = "--verify_only=1" in job.options  # fio tells of the writes that it leaves out
    options = dict(word.removeprefix("--").partition("=")[::2] for word in job.options)
    moved = asked.moved_bytes or int(bytes_per_s * (asked.runtime_s or 1))
    runtime_ms = round(1000 * (asked.runtime_s or moved / bytes_per_s))

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
                "write": side(asked.writes or dry),
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


BOOT = "00000000-0000-0000-0000-000000000001"
MOST = 10**12  # bytes, more than any of these runs moves


def looked(read: int, written: int, *more: Output) -> Bundle:
    """Return what the host tells of its block devices."""
    disk = f" 259 5 nvme1n1 0 0 {read // 512} 0 0 0 {written // 512} 0 0 0 0\n 259 6 nvme1n1p1 9 9 9 9 9 9 9 9 9 9 9\n"
    told = (
        Output("disks", ("cat", "/proc/diskstats"), disk.encode(), b"", 0),
        Output("boot", BOOT_ID, BOOT.encode(), b"", 0),
    )
    return Bundle((*told, *more))


def host_of(fio_told: Bundle | None, *more: Output, read: int = MOST, written: int = MOST) -> Host:
    """Return a host whose devices moved so much under fio."""
    after = Host(looked(read + 512, written + 512), "host/after")
    told = {"array": Host(fio_told, "raw/fio/array")} if fio_told is not None else {}
    return Host(looked(512, 512, *more), "host/before", after=after, fio=told)


def judged(bundle: Bundle | None, **moved: int) -> dict[str, Finding]:
    checks = plan(SITE_WITH_RAW.bom, limits.load(CRITERIA)).checks
    host = host_of(bundle, **moved)
    return {check.id.removeprefix("raw.array."): check.look(host) for check in checks if check.id.startswith("raw.")}


SOMEBODY = "fio --output-format=json --directory={folder} --name=x --ioengine=libaio --group_reporting --time_based"
OPTIONS = {
    "rw": "randread",
    "bs": "256k",
    "iodepth": "16",
    "numjobs": "2",
    "direct": "1",
    "filesize": "32m",
    "runtime": "10",
}


def of_somebody(folder: str = "/srv/array/scratch/mine", bytes_per_s: float = 8e9, **changes: str | None) -> Output:
    """Return a run of fio that is not the suite's own, as a bundle holds it."""
    options = {key: value for key, value in {**OPTIONS, **changes}.items() if value is not None}
    command = [*SOMEBODY.format(folder=folder).split(), "--allow_file_create=0"]
    command += [f"--{key}={value}" for key, value in options.items()]
    reads = options["rw"] in ("read", "randread") or "verify" in options
    document = told(
        fio.Job("x", (), fio.Asked(reads=reads, writes=not reads or "verify" in options, runtime_s=10.0, threads=2), 1),
        bytes_per_s,
    )
    document["jobs"][0]["job options"] = {**options, "directory": folder, "allow_file_create": "0"}
    return Output("theirs", tuple(command), json.dumps(document).encode(), b"", 0)


def judged_elsewhere(*outputs: Output) -> dict[str, Finding]:
    checks = plan(SITE_WITH_RAW.bom, limits.load(CRITERIA)).checks
    host = Host(Bundle(outputs), "host/before")
    return {check.id.removeprefix("raw.array."): check.look(host) for check in checks if check.id.startswith("raw.")}


def test_what_somebody_else_ran_of_the_same_kind_counts() -> None:
    found = judged_elsewhere(of_somebody())
    assert (found["random_read"].verdict, found["random_read_p99"].verdict) == ("PASS", "PASS")
    assert found["random_read"].raw == ("host/before/theirs.stdout",)
    assert {found[name].verdict for name in ("sequential_read", "chunk_read", "integrity")} == {"INVALID"}
    assert judged_elsewhere(of_somebody(bytes_per_s=7e9))["random_read"].verdict == "FAIL"
    slow = replace(of_somebody(bytes_per_s=7e9), name="slow")
    assert judged_elsewhere(slow, of_somebody())["random_read"].verdict == "FAIL"


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"bs": "4k"}, "bs=4k, 262144 is wanted"),
        ({"bs": "1m"}, "bs=1m"),
        ({"iodepth": "1"}, "iodepth=1"),
        ({"numjobs": None}, "numjobs=1"),
        ({"direct": "0"}, "direct=0"),
        ({"direct": None}, "direct=0"),
        ({"filesize": "1m"}, "files of 2097152 bytes"),
        ({"runtime": "2"}, "runtime=2 s"),
        ({"folder": "/srv/array"}, "holds no fio on"),
        ({"folder": "/srv/array/scratch2"}, "holds no fio on"),
        ({"rw": "read"}, "holds no randread"),
    ],
)
def test_another_job_of_somebody_else_is_no_figure_of_ours(changes: dict[str, str], word: str) -> None:
    found = judged_elsewhere(of_somebody(**changes))["random_read"]
    assert (found.verdict, word in found.reason) == ("INVALID", True), found.reason


def test_what_somebody_else_verified_counts_for_integrity_alone() -> None:
    checked = {"rw": "write", "verify": "crc32c", "bs": "128k", "numjobs": None, "filesize": "64m"}
    found = judged_elsewhere(of_somebody(**checked))
    assert found["integrity"].verdict == "PASS"
    assert {finding.verdict for name, finding in found.items() if name != "integrity"} == {"INVALID"}
    assert judged_elsewhere(of_somebody(**{**checked, "filesize": "1m"}))["integrity"].verdict == "INVALID"
    assert judged_elsewhere(of_somebody(**{**checked, "verify": "none"}))["integrity"].verdict == "INVALID"
    document = json.loads(of_somebody(**checked).stdout)
    document["jobs"][0]["error"] = 84
    other = replace(of_somebody(**checked), stdout=json.dumps(document).encode(), status=1)
    assert judged_elsewhere(other)["integrity"].verdict == "FAIL"
    full = json.dumps(document).replace('"error": 84', '"error": 28').encode()
    assert judged_elsewhere(replace(other, stdout=full))["integrity"].verdict == "INVALID"


def test_a_fio_whose_bytes_no_device_moved_is_not_believed() -> None:
    jobs = [json.loads(output.stdout)["jobs"][0] for output in ran().outputs]
    read = sum(job["read"]["io_bytes"] for job in jobs)
    written = sum(job["write"]["io_bytes"] for job in jobs if "verify_only" not in job["job options"])
    assert {finding.verdict for finding in judged(ran(), read=read, written=written).values()} == {"PASS"}
    for moved in ({"read": read // 2}, {"written": written // 2}, {"read": 0, "written": 0}):
        found = judged(ran(), **moved)
        assert {finding.verdict for finding in found.values()} == {"INVALID"}
        assert "all block devices together" in found["random_read"].reason
    assert judged(ran(lambda job: job.update(error=84), "checked-verify"), read=0)["integrity"].verdict == "FAIL"
    host = host_of(ran())
    host.after = None
    check = next(c for c in plan(SITE_WITH_RAW.bom, limits.load(CRITERIA)).checks if c.id == "raw.array.random_read")
    assert check.look(host).verdict == "INVALID"


def test_an_io_error_of_any_job_is_the_tiers(tmp_path: Path) -> None:
    found = judged(ran(lambda job: job.update(error=5), READ, 1))
    assert {name: each.verdict for name, each in found.items() if each.verdict != "PASS"} == {
        "integrity": "FAIL", "sequential_read": "INVALID",
    }  # fmt: skip


def test_without_direct_io_the_hosts_memory_may_have_been_read() -> None:
    site = Site.model_validate(tomllib.loads(SITE + RAW + "direct_io = false\n"))
    jobs = {job.name: job for job in arrival_run.raw_jobs(site, site.bom.raw["array"])}  # type: ignore[union-attr]
    outputs = [
        Output(f"fio-{n}", ("fio", f"--name={n}"), json.dumps(told(j, 12e9)).encode(), b"", 0) for n, j in jobs.items()
    ]
    check = next(c for c in plan(site.bom, limits.load(CRITERIA)).checks if c.id == "raw.array.random_read")
    for memory, verdict in (("MemTotal: 9 kB\n", "PASS"), ("MemTotal: 16000000 kB\n", "INVALID"), ("", "INVALID")):
        meminfo = Output("meminfo", ("cat", "/proc/meminfo"), memory.encode(), b"", 0)
        assert check.look(host_of(Bundle(tuple(outputs)), meminfo)).verdict == verdict


def test_a_scratch_folder_on_another_file_system_is_not_the_tier() -> None:
    mounts = [{"target": "/", "source": "/dev/vda", "fstype": "ext4", "options": "rw"}]

    def judged_on(*more: str) -> Finding:
        rows = [*mounts, *({"target": target, "source": "/dev/x", "options": "rw"} for target in more)]
        findmnt = Output("findmnt", ("findmnt", "-J"), json.dumps({"filesystems": rows}).encode(), b"", 0)
        host = host_of(ran(), findmnt)
        check = next(c for c in plan(SITE_WITH_RAW.bom, limits.load(CRITERIA)).checks if c.id == "raw.array.integrity")
        return check.look(host)

    assert judged_on("/srv/array").verdict == "PASS"
    assert "/srv/array was declared" in judged_on().reason and judged_on().verdict == "INVALID"
    assert judged_on("/srv/array", "/srv/array/scratch").verdict == "INVALID"


ALL = {"integrity", "sequential_read", "random_read", "chunk_read", "random_read_p99"}


def test_as_fast_as_ordered_and_sound() -> None:
    found = judged(ran())
    assert set(found) == ALL
    assert {finding.verdict for finding in found.values()} == {"PASS"}
    assert found["sequential_read"].value == pytest.approx(1.0)
    assert found["chunk_read"].raw == ("raw/fio/array/fio-chunks-chunk-read.stdout",)


READ = "stream-sequential-read"
CASES: dict[str, tuple[Change, str, dict[str, str]]] = {
    "slow": (lambda job: job["read"].update(bw_bytes=11_000_000_000, io_bytes=110_000_000_000), READ, {"sequential_read": "FAIL"}),
    "slow chunks": (lambda job: job["read"].update(bw_bytes=9_000_000_000, io_bytes=90_000_000_000), "chunks-chunk-read", {"chunk_read": "FAIL"}),
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
    "faster than the line": (lambda job: job["read"].update(bw_bytes=13_000_000_000, io_bytes=130_000_000_000), READ, {"sequential_read": "INVALID"}),
    "figures of its own": (lambda job: job["read"].update(bw_bytes=12_000_000_000, io_bytes=1_000_000), READ, {"sequential_read": "INVALID"}),
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
