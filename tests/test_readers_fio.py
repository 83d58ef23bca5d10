"""fio's JSON: what is told, and which figures cannot be trusted."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gates.readers.error import ReaderError
from gates.readers.fio import FioRun, asked_of, fio_run, sound
from tests.reader_samples import SAMPLES, said, sample
from workloads.bundle import Output, open_bundle
from workloads.fio import Asked

ARGV = ("fio", "--output-format=json", "jobs.fio")


def printed(stdout: bytes, status: int | None = 0, stderr: bytes = b"") -> Output:
    return said(stdout, *ARGV, status=status, stderr=stderr)


def of_fio(name: str) -> Output:
    return sample(f"fio/{name}", *ARGV)


def direction(**changes: Any) -> dict[str, Any]:
    latency = {"min": 1000, "max": 9000, "mean": 2000.5, "stddev": 1.0, "N": 100}
    return {
        "io_bytes": 300 << 20, "io_kbytes": 300 << 10, "bw_bytes": 10 << 20, "bw": 10 << 10, "iops": 10.0,
        "runtime": 30000, "total_ios": 300, "short_ios": 0, "drop_ios": 0, "slat_ns": latency, "clat_ns": latency,
        "lat_ns": {**latency, "percentile": {"50.000000": 1500, "99.900000": 8500}}, **changes,
    }  # fmt: skip


IDLE = direction(io_bytes=0, io_kbytes=0, bw_bytes=0, bw=0, iops=0.0, runtime=0, total_ios=0)
READ = Asked(reads=True, runtime_s=30, laid_out=True)


def told(job: dict[str, Any] | None = None, **whole: Any) -> bytes:
    """A run of one job that read for 30 s, with changes."""
    first = {
        "jobname": "r", "groupid": 0, "error": 0, "job options": {"name": "r", "rw": "read", "runtime": "30"},
        "read": direction(), "write": IDLE, "trim": IDLE, "job_runtime": 30000, **(job or {}),
    }  # fmt: skip
    return json.dumps({"fio version": "fio-3.36", "jobs": [first], **whole}).encode()


def reason(stdout: bytes, asked: Asked = READ, status: int | None = 0, stderr: bytes = b"") -> str | None:
    return sound(fio_run(printed(stdout, status, stderr)), asked)


def test_values_come_with_their_units() -> None:
    (job,) = fio_run(printed(told())).jobs
    assert (job.name, job.error, job.job_runtime_s) == ("r", 0, 30.0)
    assert (job.read.bw_bytes_per_s, job.read.iops, job.read.runtime_s, job.read.total_ios) == (
        10 << 20,
        10.0,
        30.0,
        300,
    )
    assert job.read.latency is not None
    assert (job.read.latency.kind, job.read.latency.percentiles_ns) == ("lat", {50.0: 1500, 99.9: 8500})
    assert job.write.total_ios == 0


def test_a_sound_read_is_trusted() -> None:
    assert reason(told()) is None


@pytest.mark.parametrize(
    ("job", "why"),
    [
        ({"error": 84}, "what was read is not what was written (error 84)"),
        ({"error": 28}, "failed: No space left on device (error 28)"),
        ({"error": "0"}, "does not tell whether it failed"),
        ({"error": False}, "does not tell whether it failed"),
        ({"error": -5}, "does not tell whether it failed"),
        ({"read": direction(runtime=29399)}, "read: ended early, after 29.399 of 30 s"),
        ({"read": direction(runtime=None)}, "read: ended early, after None of 30 s"),
        ({"read": direction(total_ios=0)}, "read: no I/O was done"),
        ({"read": direction(total_ios=None)}, "read: no I/O was done"),
        ({"read": direction(bw_bytes=0)}, "read: no I/O was done"),
        ({"read": direction(io_bytes="many")}, "read: no I/O was done"),
        ({"read": direction(short_ios=1)}, "read: 1 short I/Os"),
        ({"read": direction(short_ios=None)}, "read: does not tell short I/Os"),
        ({"write": direction()}, "write: was not asked for, and 300 I/Os are told"),
    ],
)
def test_a_figure_that_cannot_be_trusted_is_told(job: dict[str, Any], why: str) -> None:
    assert reason(told(job)) == f"r: {why}"


def test_just_enough_of_the_time_is_enough() -> None:
    assert reason(told({"read": direction(runtime=29400), "job_runtime": 29400})) is None


def test_a_thread_of_a_group_that_ended_early_is_seen_in_the_sum() -> None:
    both = replace(READ, threads=2)
    assert reason(told({"job_runtime": 60000}), both) is None
    assert reason(told({"job_runtime": 45000}), both) == "r: one of 2 threads ended early: 45.0 s together"


def test_jobs_that_are_told_one_by_one_are_judged_each() -> None:
    run = fio_run(printed(told()))
    two = replace(run, jobs=run.jobs * 2)
    assert sound(two, replace(READ, threads=2)) is None
    assert sound(two, replace(READ, threads=3)) == "tells 2 jobs, 3 were asked for"
    late = replace(two.jobs[1], read=replace(two.jobs[1].read, runtime_s=1.0))
    assert sound(replace(two, jobs=(two.jobs[0], late)), replace(READ, threads=2)) is not None


@pytest.mark.parametrize(("status", "why"), [(1, "fio ended with status 1"), (None, "its status is not known")])
def test_a_status_other_than_0_is_not_trusted(status: int | None, why: str) -> None:
    assert reason(told(), status=status) == why


def test_what_fio_said_beside_the_document_counts() -> None:
    signal = b"\nfio: terminating on signal 15\n"
    assert reason(signal + told()) == "fio said 'fio: terminating on signal 15'"
    assert reason(told(), stderr=b"crc32c: verify failed at file /srv/x offset 0\n") is not None
    assert reason(b"r: Laying out IO file (1 file / 8MiB)\n" + told()) is not None


def test_a_read_that_may_have_made_its_own_files_is_not_trusted() -> None:
    unknown = replace(READ, laid_out=False)
    assert reason(told(), unknown) == "r: may have read files of its own making: allow_file_create=0 is not set"
    assert reason(told({"job options": {"rw": "read", "allow_file_create": "0"}}), unknown) is None


WRITE = direction(io_bytes=16 << 20, runtime=1600)
VERIFY = Asked(writes=True, verifies=True, moved_bytes=16 << 20)
OPTIONS = {"rw": "write", "verify": "crc32c", "size": "16m"}


@pytest.mark.parametrize(
    ("job", "why"),
    [
        ({"job options": OPTIONS}, None),
        ({"job options": {"rw": "write"}}, "v: nothing was verified"),
        ({"job options": {**OPTIONS, "do_verify": "0"}}, "v: nothing was verified"),
        ({"job options": OPTIONS, "read": IDLE}, "v: read: no I/O was done"),
        ({"job options": OPTIONS, "read": direction(io_bytes=8 << 20)}, "v: read: 8388608 of 16777216 bytes"),
        ({"job options": OPTIONS, "write": direction(io_bytes=8 << 20)}, "v: write: 8388608 of 16777216 bytes"),
    ],
)
def test_only_what_was_read_back_whole_is_verified(job: dict[str, Any], why: str | None) -> None:
    assert reason(told({"jobname": "v", "read": WRITE, "write": WRITE, **job}), VERIFY) == why


def test_fio_2_is_refused_by_its_keys() -> None:
    old = {"io_bytes": 1294256, "bw": 129386, "iops": 8086, "runtime": 10003, "clat": {"percentile": {"99.0": 3}}}
    stdout = told({"read": old}).replace(b"fio-3.36", b"fio-2.17")
    with pytest.raises(ReaderError, match="KiB and microseconds"):
        fio_run(printed(stdout))


def test_the_bandwidth_of_fio_3_0_is_worked_out() -> None:
    old = {key: value for key, value in direction().items() if key != "bw_bytes"}
    assert fio_run(printed(told({"read": old}))).jobs[0].read.bw_bytes_per_s == 300 * (1 << 20) / 30


@pytest.mark.parametrize(
    ("stdout", "why"),
    [
        (b"", "printed nothing"),
        (b"fio: unrecognized option\n", "printed no JSON object, but"),
        (told()[:-20], "its JSON is broken"),
        (told() + b"\n" + told(), "printed 2 JSON documents, as with --status-interval"),
        (b"{}", "tells no jobs"),
        (b'{"jobs": []}', "tells no jobs"),
        (b'{"jobs": [7]}', "tells no jobs"),
        (b'[{"jobs": []}]', "printed no JSON object"),
        (told({"read": None, "mixed": direction()}), "tells no 'read' of a job (unified_rw_reporting?)"),
        (told().replace(b'"iops": 10.0', b'"iops": NaN'), "holds no number"),
    ],
)  # fmt: skip
def test_what_is_no_one_document_of_fio_is_refused(stdout: bytes, why: str) -> None:
    with pytest.raises(ReaderError) as error:
        fio_run(printed(stdout))
    assert why in str(error.value) and str(error.value).startswith("fio --output-format=json jobs.fio: ")


def test_lines_around_the_document_do_no_harm() -> None:
    around = b"note: both iodepth >= 1 and synchronous I/O engine are selected\n" + told() + b"\nDisk stats: none\n"
    assert reason(around) is None


def test_the_sum_of_all_clients_is_no_job_of_its_own() -> None:
    job = json.loads(told())["jobs"][0]
    clients = [{**job, "hostname": "h1"}, {**job, "hostname": "h2"}, {**job, "jobname": "All clients"}]
    run = fio_run(printed(json.dumps({"fio version": "fio-3.36", "client_stats": clients}).encode()))
    assert [one.hostname for one in run.jobs] == ["h1", "h2"]


@pytest.mark.parametrize("version", ["3.25", "3.33", "3.39", "3.41"])
def test_samples_of_good_runs_are_trusted(version: str) -> None:
    run = fio_run(of_fio(f"ok.fio-{version}.json"))
    asked = replace(asked_of(run), laid_out=True)
    assert (asked.threads, asked.reads) == (2 if len(run.jobs) == 1 else len(run.jobs), True)
    assert run.version == f"fio-{version}"
    assert sound(run, asked) is None
    assert sound(run, replace(asked, runtime_s=30.0)) is not None


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("sigterm.fio-3.41.stdout", "terminating on signal 15"),
        ("enospc-continue_on_error.fio-3.39.stdout", "full: failed: No space left on device (error 28)"),
        ("verify-corrupt-block.fio-3.39.stdout", "vfy: what was read is not what was written (error 84)"),
        ("verify-corrupt-block.nonfatal.fio-3.39.stdout", "vfy: what was read is not what was written (error 84)"),
        ("verify-zeroed-block.fio-3.33.stdout", "vfy: what was read is not what was written (error 84)"),
        ("client-server.fio-3.41.stdout", "read files of its own making"),
    ],
)
def test_samples_of_bad_runs_are_not(name: str, why: str) -> None:
    run = fio_run(of_fio(name))
    found = sound(run, replace(asked_of(run), laid_out=True))
    assert found is not None and why in found


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("bad-option.fio-3.39.stdout", 'printed nothing (it said "fio: unrecognized option'),
        ("derived.empty-output.json", "printed nothing"),
        ("fio-2.x-usec.pkb-sample.json", "fio-2.1.4 tells KiB and microseconds"),
        ("fio.pkb-hist.json", "fio-2.17 tells KiB and microseconds"),
        ("status-interval-multi-docs.fio-3.41.stdout", "JSON documents, as with --status-interval"),
    ],
)
def test_samples_that_tell_no_figures_are_refused(name: str, why: str) -> None:
    with pytest.raises(ReaderError) as error:
        fio_run(of_fio(name))
    assert why in str(error.value)


def test_samples_in_other_surroundings() -> None:
    windows = fio_run(of_fio("fio-3.26.windowsaio.vc.json"))
    assert windows.jobs[0].write.bw_bytes_per_s == 8876980
    assert sound(windows, asked_of(windows)) is None
    logged = fio_run(of_fio("fio.superbench-disk_performance.log"))
    assert sound(logged, asked_of(logged)) is None
    assert asked_of(logged).threads == 4
    assert logged.jobs[0].read.latency is not None and logged.jobs[0].read.latency.kind == "lat"
    after_text = fio_run(of_fio("normal-then-json.fio-3.41.stdout"))
    assert sound(after_text, replace(asked_of(after_text), laid_out=True)) is None
    assert sound(after_text, asked_of(after_text)) is not None
    logs = fio_run(of_fio("bwlog.fio-3.41.json"))
    assert sound(logs, replace(asked_of(logs), laid_out=True)) is None


def of_lab(state: str) -> list[tuple[str, FioRun]]:
    folder = SAMPLES / "nvmeof-lab" / state
    if not folder.is_dir():
        pytest.skip(f"no samples in {folder}")
    found = [output for output in open_bundle(folder).matching("fio") if output.argv[1:] != ("--version",)]
    return [(output.name, fio_run(output)) for output in found]


@pytest.mark.parametrize(
    ("state", "count"),
    [("healthy", 6), ("path-down-port", 1), ("fs-full", 2), ("all-paths-lost", 0), ("local-critical-warning", 0)],
)
def test_every_run_of_the_lab(state: str, count: int) -> None:
    runs = of_lab(state)
    assert len(runs) == count
    for number, (name, run) in enumerate(runs):
        found = sound(run, asked_of(run, [before for _, before in runs[:number]]))
        if state == "fs-full":
            assert found == "wv: failed: No space left on device (error 28)", name
        else:
            assert found is None, name
        assert run.jobs[0].name in name.replace("write-verify", "wv").replace("randread", "rr").replace("mixed", "mix")


def test_a_read_of_the_lab_alone_may_have_made_its_file() -> None:
    run = next(run for name, run in of_lab("healthy") if name == "fio-randread.fx100.json")
    assert "of its own making" in (sound(run, asked_of(run)) or "")


def test_jobs_of_several_kinds_have_no_one_order() -> None:
    run = fio_run(printed(told()))
    other = replace(run.jobs[0], options={"rw": "write"})
    with pytest.raises(ReaderError, match="read and write"):
        asked_of(replace(run, jobs=(*run.jobs, other)))


def quiet(stdout: bytes, status: int | None) -> None:
    try:
        run = fio_run(printed(stdout, status))
        sound(run, READ)
        asked_of(run, [run])
    except ReaderError:
        pass


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=400), st.sampled_from([0, 1, 124, 127, None]))
def test_any_bytes_raise_nothing_else(stdout: bytes, status: int | None) -> None:
    quiet(stdout, status)


VALUES = st.sampled_from([None, True, -1, 10**40, 1e300, -1.5, "7", "x" * 50, [], {}, [1], {"a": 1}, "\u0663", 10**400])


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_any_value_anywhere_raises_nothing_else(data: st.DataObject) -> None:
    document = json.loads(told(**{"global options": {"directory": "/srv/x"}}))
    places: list[tuple[Any, Any]] = []

    def walk(value: Any) -> None:
        for key in list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else []:
            places.append((value, key))
            walk(value[key])

    walk(document)
    where, key = data.draw(st.sampled_from(places))
    where[key] = data.draw(VALUES)
    quiet(json.dumps(document).encode(), 0)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 3000), st.integers(0, 3000), st.binary(max_size=3))
def test_a_mutilated_document_raises_nothing_else(cut: int, at: int, put: bytes) -> None:
    whole = told()
    quiet(whole[:cut], 0)
    quiet(whole[:at] + put + whole[at + len(put) :], 0)
