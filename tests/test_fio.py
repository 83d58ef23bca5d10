"""fio on a folder: what is run, what is refused, and that nothing is left behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from gates.readers.fio import asked_of, fio_run, sound
from workloads import fio, probes
from workloads.probes import Ran

ROOT = Path(__file__).resolve().parent.parent
HOW = fio.How(runtime_s=0.4, ramp_s=0.0, direct=False, engine="psync")
SMALL = 4 << 20

needs_fio = pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    real = tmp_path.resolve() / "tier"
    real.mkdir()
    (real / fio.SENTINEL).touch()
    return real


def made(folder: Path) -> list[str]:
    return sorted(found.name for found in folder.iterdir() if found.name != fio.SENTINEL)


def values(job: fio.Job) -> dict[str, str]:
    return dict(option.removeprefix("--").partition("=")[::2] for option in job.options)


# What is run.


def test_every_read_is_of_files_that_a_job_before_it_laid_out() -> None:
    jobs = fio.all_jobs(HOW, SMALL, readers=2, chunk_bytes=100_000)
    laid_out: set[str] = set()
    for job in jobs:
        told = values(job)
        if told["rw"] == "write" and "verify_only" not in told:
            laid_out.add(told["filename_format"])
            assert told["end_fsync"] == "1" and job.asked.writes
        else:
            assert told["filename_format"] in laid_out and job.asked.laid_out
            assert told["allow_file_create"] == "0"
    assert [job.name for job in jobs] == [
        "stream-write", "stream-sequential-read", "stream-random-read", "chunks-write", "chunks-chunk-read",
        "checked-verify", "checked-verify-again",
    ]  # fmt: skip


def test_times_of_reads_are_those_given() -> None:
    how = fio.How(runtime_s=300, ramp_s=60)
    for job in fio.all_jobs(how, SMALL, chunk_bytes=1 << 20):
        told = values(job)
        assert (told["thread"], told["direct"]) == ("1", "1")
        if job.asked.reads:
            assert (told["time_based"], told["runtime"], told["ramp_time"]) == ("1", "300000ms", "60000ms")
            assert job.asked.runtime_s == 300
            assert job.deadline_s > 360


def test_chunks_are_read_whole_one_at_a_time_by_each_reader() -> None:
    layout = fio.chunk_files("chunks", 33_554_433, 1 << 30, readers=4)
    assert layout.file_bytes == 33_554_432 + 4096  # what direct I/O can do
    assert layout.files == (1 << 30) // layout.file_bytes // 4
    told = values(fio.chunk_read(layout, HOW))
    assert told["bs"] == told["filesize"] == str(layout.file_bytes)
    assert (told["iodepth"], told["numjobs"], told["file_service_type"]) == ("1", "4", "random")
    assert fio.chunk_files("few", 1 << 30, 1 << 20).files == 2


def test_the_space_that_is_asked_for_is_what_the_jobs_write() -> None:
    jobs = fio.all_jobs(HOW, SMALL, readers=2, chunk_bytes=100_000)
    written = sum(job.asked.moved_bytes or 0 for job in jobs if job.asked.writes)
    assert fio.need_bytes(SMALL, 2, 100_000) == written


def test_the_order_can_be_read_back_from_the_options() -> None:
    """What fio tells of its options gives what was asked for: a run that somebody else started is judged alike."""
    for job in fio.all_jobs(HOW, SMALL, readers=2, chunk_bytes=1 << 20):
        told = {**values(job), "nrfiles": "1"}
        run = fio_run_of(told)
        found = asked_of(run)
        wanted = replace(job.asked, laid_out=False, moved_bytes=None)
        assert replace(found, moved_bytes=None) == wanted, job.name


def fio_run_of(options: dict[str, str]):  # type: ignore[no-untyped-def]
    return SimpleNamespace(jobs=(SimpleNamespace(options=options),))


# What is refused.


def refused(folder: Path, change: Callable[[Path], object]) -> str:
    change(folder)
    reason = fio.refusal(folder, 1, 1)
    assert reason is not None and "\n" not in reason
    with pytest.raises(fio.ScratchRefused, match="tier"), fio.scratch(folder, 1, 1):
        pytest.fail("entered")
    return reason


def test_a_marked_folder_is_taken(folder: Path) -> None:
    assert fio.refusal(folder, 1 << 20, 10) is None


def test_no_sentinel(folder: Path) -> None:
    assert f"holds no {fio.SENTINEL}" in refused(folder, lambda f: (f / fio.SENTINEL).unlink())
    assert made(folder) == []


def test_a_sentinel_that_is_a_link_or_a_folder_is_none(folder: Path, tmp_path: Path) -> None:
    (folder / fio.SENTINEL).unlink()
    (tmp_path / "other").touch()
    (folder / fio.SENTINEL).symlink_to(tmp_path / "other")
    assert "holds no" in (fio.refusal(folder) or "")
    (folder / fio.SENTINEL).unlink()
    (folder / fio.SENTINEL).mkdir()
    assert "holds no" in (fio.refusal(folder) or "")


def test_the_root_of_a_mount_without_sentinel_is_named_as_such(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os.path, "ismount", lambda path: Path(path) == folder)
    assert "is the root of a mount" in refused(folder, lambda f: (f / fio.SENTINEL).unlink())


def test_a_link_to_elsewhere(folder: Path, tmp_path: Path) -> None:
    link = folder.parent / "tier-link"
    link.symlink_to(folder)
    assert f"leads to {folder}" in (fio.refusal(link) or "")
    assert f"leads to {folder}" in (fio.refusal(link / ".." / "tier-link") or "")


def test_a_file_a_device_and_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "is no folder" in (fio.refusal(folder / fio.SENTINEL) or "")
    assert "No such file" in (fio.refusal(folder / "nothing") or "")
    assert "must begin with /" in (fio.refusal(Path("tier")) or "")
    real = Path.lstat
    monkeypatch.setattr(Path, "lstat", lambda path: SimpleNamespace(st_mode=0o060600) if path == folder else real(path))
    assert "a block device" in (fio.refusal(folder) or "")


def space(**changes: int) -> Callable[[object], SimpleNamespace]:
    told = {"f_flag": 0, "f_bavail": 1000, "f_frsize": 4096, "f_blocks": 2000, "f_files": 1000, "f_favail": 900}
    return lambda _path: SimpleNamespace(**{**told, **changes})


@pytest.mark.parametrize(
    ("told", "why"),
    [
        (space(f_bavail=0), "needs 1000000 bytes, and 0 may be used"),
        (space(f_bavail=300), "may be used"),
        (space(f_bavail=100), "may be used"),  # within the 5 % that is left alone
        (space(f_flag=os.ST_RDONLY), "read-only"),
        (space(f_favail=64), "inodes are free"),
        (space(f_files=0, f_favail=0), None),  # a file system without a table of inodes
        (space(), None),
    ],
)
def test_a_full_file_system(
    folder: Path, monkeypatch: pytest.MonkeyPatch, told: Callable[[object], SimpleNamespace], why: str | None
) -> None:
    monkeypatch.setattr(os, "statvfs", told)
    found = fio.refusal(folder, 1_000_000, 10)
    assert (found is None) if why is None else (why in (found or ""))


def test_a_folder_that_does_not_answer(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fio, "LOOK_S", 0.05)
    monkeypatch.setattr(os, "statvfs", lambda _path: time.sleep(0.5))
    assert fio.refusal(folder) == f"{folder}: does not answer within 0.05 s"


# What is left.


def test_a_missing_fio_is_one_line_with_the_package(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        fio, "run_tool", lambda argv, s: Ran(tuple(argv), b"", b"", 127 if argv[0] == "fio" else 0, 0, "")
    )
    with pytest.raises(fio.FioMissing, match="apt-get install fio") as error, fio.scratch(folder) as work:
        work.run(fio.all_jobs(HOW, SMALL)[0])
    assert "\n" not in str(error.value)


def test_what_fio_printed_is_kept_as_it_was(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = fio.all_jobs(HOW, SMALL)[0]

    def run(argv: tuple[str, ...], deadline_s: float) -> Ran:
        if argv[0] != "fio":
            return probes.run_tool(argv, deadline_s)
        (Path(argv[3].partition("=")[2]) / "laid-out").write_bytes(b"x")
        assert deadline_s == job.deadline_s
        return Ran(argv, b"\xff{", b"e", 124, 1.0, "killed")

    monkeypatch.setattr(fio, "run_tool", run)
    with fio.scratch(folder) as work:
        output = work.run(job)
        assert made(folder) == [work.folder.name]
    assert (output.stdout, output.stderr, output.status, output.note) == (b"\xff{", b"e", 124, "killed")
    assert output.argv[:3] == ("fio", "--output-format=json", f"--name={job.name}")
    assert made(folder) == [] and work.leftover is None


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, ValueError])
def test_all_is_removed_after_an_interrupt(folder: Path, error: type[BaseException]) -> None:
    with pytest.raises(error), fio.scratch(folder) as work:
        (work.folder / "a").write_bytes(b"x")
        raise error
    assert made(folder) == []


def test_what_cannot_be_removed_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    note = "abandoned after 300 s"
    monkeypatch.setattr(fio, "run_tool", lambda argv, s: Ran(tuple(argv), b"", b"", 124, s, note))
    with fio.scratch(folder) as work:
        pass
    assert work.leftover == f"{work.folder}: could not be removed: {note}"


@needs_fio
def test_a_folder_with_a_colon(folder: Path) -> None:
    odd = folder / "a:b"
    odd.mkdir()
    (odd / fio.SENTINEL).touch()
    with fio.scratch(odd) as work:
        output = work.run(fio.lay_out(fio.one_file("x", 1 << 20), HOW))
        assert made(odd) == [work.folder.name]
    assert output.status == 0


@needs_fio
def test_all_jobs_run_and_their_figures_are_sound(folder: Path) -> None:
    before = []
    with fio.scratch(folder, fio.need_bytes(SMALL, 2, 100_000)) as work:
        for job in fio.all_jobs(HOW, SMALL, readers=2, chunk_bytes=100_000):
            run = fio_run(work.run(job))
            assert sound(run, job.asked) is None, job.name
            assert sound(run, asked_of(run, before)) is None, job.name
            assert run.jobs[0].name == job.name
            before.append(run)
        assert len(list(work.folder.iterdir())) > 10
    assert made(folder) == [] and work.leftover is None


@needs_fio
def test_what_was_changed_since_it_was_written_is_seen(folder: Path) -> None:
    layout = fio.one_file("checked", 1 << 20)
    with fio.scratch(folder) as work:
        assert work.run(fio.write_verify(layout, HOW)).status == 0
        (laid,) = work.folder.iterdir()
        with laid.open("r+b") as file:
            file.seek(300_000)
            file.write(b"\0" * 10)
        job = fio.verify_again(layout, HOW)
        run = fio_run(work.run(job))
    assert "error 84" in (sound(run, job.asked) or "")


@needs_fio
def test_a_read_makes_no_file(folder: Path) -> None:
    with fio.scratch(folder) as work:
        job = fio.sequential_read(fio.one_file("never", 1 << 20), HOW)
        output = work.run(job)
        assert not list(work.folder.iterdir())
    assert output.status != 0
    assert sound(fio_run(output), job.asked) is not None


@needs_fio
def test_fio_past_its_deadline_is_ended_with_all_its_threads(folder: Path) -> None:
    layout = fio.one_file("x", 1 << 20, readers=2)
    with fio.scratch(folder) as work:
        work.run(fio.lay_out(layout, HOW))
        job = fio.sequential_read(layout, replace(HOW, runtime_s=60))
        output = work.run(replace(job, deadline_s=1.0))
    assert (output.status, output.note) == (124, "killed after 1 s")
    running = subprocess.run(["ps", "ax", "-o", "args"], capture_output=True, text=True, check=True).stdout
    assert str(work.folder) not in running
    assert made(folder) == []


@needs_fio
def test_control_c_ends_fio_and_removes_what_it_laid_out(folder: Path) -> None:
    script = (
        "from pathlib import Path; from workloads import fio\n"
        "how = fio.How(runtime_s=60, ramp_s=0, direct=False, engine='psync')\n"
        "layout = fio.one_file('x', 1 << 20)\n"
        f"with fio.scratch(Path({str(folder)!r})) as work:\n"
        "    work.run(fio.lay_out(layout, how)); print('laid out', flush=True)\n"
        "    work.run(fio.sequential_read(layout, how))\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as child:
        assert child.stdout is not None and child.stdout.readline() == b"laid out\n"
        assert made(folder)
        time.sleep(0.3)
        child.send_signal(signal.SIGINT)
        child.communicate(timeout=20)
    assert child.returncode != 0
    assert made(folder) == []
