"""fio jobs on a tier: what its file system gives raw, and whether it gives back what was written. JSON untouched.

Every job writes, so every job is refused but in a folder that is marked as scratch by a file of the name SENTINEL.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from workloads.bundle import MISSING, Output
from workloads.probes import run_tool

T = TypeVar("T")

SENTINEL = ".kvgate-scratch"
PACKAGE = "fio"
ALIGNMENT_BYTES = 4096  # of direct I/O
KEEP_FREE = 0.05  # share of a file system that is left alone
SLOWEST_BYTES_PER_S = 20e6  # what a deadline allows for
MARGIN_S = 60.0
LOOK_S = 10.0  # how long a look at the folder may take: a dead one answers never
REMOVE_S = 300.0


class FioMissing(RuntimeError):
    """One line: fio is not installed, and which package brings it."""


class ScratchRefused(RuntimeError):
    """One line: why nothing is written to a folder."""


@dataclass(frozen=True)
class Asked:
    """What a job has to have done; whether it has, is judged elsewhere."""

    reads: bool = False
    writes: bool = False
    verifies: bool = False
    runtime_s: float | None = None  # None: it ends with its files
    moved_bytes: int | None = None  # in each direction asked for
    threads: int = 1
    laid_out: bool = False  # its files were written by a job before it


@dataclass(frozen=True)
class Layout:
    """Files that are laid out once and then read: so many of each reader's own."""

    label: str
    file_bytes: int
    files: int  # of each reader
    readers: int = 1

    @property
    def total_bytes(self) -> int:
        """Return the bytes of all files."""
        return self.file_bytes * self.files * self.readers

    @property
    def options(self) -> tuple[str, ...]:
        """Return the options by which fio finds the same files in every job."""
        return (
            f"--filename_format={self.label}.$jobnum.$filenum",
            f"--filesize={self.file_bytes}",
            f"--nrfiles={self.files}",
            f"--numjobs={self.readers}",
        )


@dataclass(frozen=True)
class How:
    """How a tier is read and written."""

    runtime_s: float = 30.0
    ramp_s: float = 5.0
    direct: bool = True
    engine: str = "libaio"

    @property
    def options(self) -> tuple[str, ...]:
        """Return the options of every job."""
        # Threads: as processes each job would leave our process group, and outlive a kill.
        return (
            "--thread=1",
            "--group_reporting=1",
            "--eta=never",
            f"--ioengine={self.engine}",
            f"--direct={int(self.direct)}",
            "--lat_percentiles=1",
            "--percentile_list=50:90:95:99:99.9",
            "--verify_state_save=0",
        )

    @property
    def timed(self) -> tuple[str, ...]:
        """Return the options of a read job: it has its time, and makes no file of its own."""
        return (
            "--time_based=1",
            f"--runtime={round(self.runtime_s * 1000)}ms",
            f"--ramp_time={round(self.ramp_s * 1000)}ms",
            "--allow_file_create=0",
            "--randrepeat=0",
        )


@dataclass(frozen=True)
class Job:
    """One run of fio."""

    name: str
    options: tuple[str, ...]
    asked: Asked
    deadline_s: float


def one_file(label: str, size_bytes: int, readers: int = 1) -> Layout:
    """Return a layout of one file a reader, `size_bytes` together."""
    return Layout(label, _aligned(max(size_bytes // readers, ALIGNMENT_BYTES)), 1, readers)


def chunk_files(label: str, chunk_bytes: int, size_bytes: int, readers: int = 1) -> Layout:
    """Return a layout of files of one KV chunk each (rounded up to what direct I/O can do), `size_bytes` together.

    At least two a reader: a single one would be read again and again.
    """
    file_bytes = _aligned(chunk_bytes)
    return Layout(label, file_bytes, max(size_bytes // file_bytes // readers, 2), readers)


def lay_out(layout: Layout, how: How, block_bytes: int = 1 << 20) -> Job:
    """Return the job that writes the files in sequence, to the device: what it tells is the speed of writing."""
    options = ("--rw=write", _block(layout, block_bytes), "--iodepth=8", "--refill_buffers=1", "--end_fsync=1")
    asked = Asked(writes=True, moved_bytes=layout.total_bytes, threads=layout.readers)
    return _job(f"{layout.label}-write", layout, how, options, asked)


def sequential_read(layout: Layout, how: How, block_bytes: int = 1 << 20, depth: int = 16) -> Job:
    """Return the job that reads the files in sequence."""
    return _read("sequential-read", layout, how, ("--rw=read", _block(layout, block_bytes), f"--iodepth={depth}"))


def random_read(layout: Layout, how: How, block_bytes: int = 256 << 10, depth: int = 16) -> Job:
    """Return the job that reads blocks at random."""
    options = ("--rw=randread", "--norandommap=1", _block(layout, block_bytes), f"--iodepth={depth}")
    return _read("random-read", layout, how, options)


def chunk_read(layout: Layout, how: How) -> Job:
    """Return the job that reads whole files at random, one at a time by each reader: as KV chunks are read."""
    # Not rw=read: with files at random and a time to fill, fio 3.33 never ends once every file was read.
    options = (
        "--rw=randread",
        "--norandommap=1",
        f"--bs={layout.file_bytes}",
        "--iodepth=1",
        "--file_service_type=random",
        f"--openfiles={min(layout.files, 128)}",
    )
    return _read("chunk-read", layout, how, options)


def write_verify(layout: Layout, how: How, block_bytes: int = 1 << 20) -> Job:
    """Return the job that writes blocks with checksums, then reads all of them back and compares."""
    options = (*_verified(layout, block_bytes), "--do_verify=1", "--end_fsync=1")
    asked = Asked(writes=True, verifies=True, moved_bytes=layout.total_bytes, threads=layout.readers)
    return _job(f"{layout.label}-verify", layout, how, options, asked)


def verify_again(layout: Layout, how: How, block_bytes: int = 1 << 20) -> Job:
    """Return the job that reads back what `write_verify` wrote: on another path, on another host, after a while."""
    options = (*_verified(layout, block_bytes), "--verify_only=1", "--allow_file_create=0")
    asked = Asked(verifies=True, moved_bytes=layout.total_bytes, threads=layout.readers, laid_out=True)
    return _job(f"{layout.label}-verify-again", layout, how, options, asked)


def all_jobs(how: How, size_bytes: int, readers: int = 4, chunk_bytes: int | None = None) -> tuple[Job, ...]:
    """Return the raw check of a tier in its order; of chunk files only where their size is known."""
    stream = one_file("stream", size_bytes, readers)
    jobs = [lay_out(stream, how), sequential_read(stream, how), random_read(stream, how)]
    if chunk_bytes is not None:
        chunks = chunk_files("chunks", chunk_bytes, size_bytes, readers)
        jobs += [lay_out(chunks, how), chunk_read(chunks, how)]
    checked = one_file("checked", size_bytes)
    return (*jobs, write_verify(checked, how), verify_again(checked, how))


def need_bytes(size_bytes: int, readers: int = 4, chunk_bytes: int | None = None) -> int:
    """Return the space that `all_jobs` takes at most."""
    layouts = [one_file("", size_bytes, readers), one_file("", size_bytes)]
    if chunk_bytes is not None:
        layouts.append(chunk_files("", chunk_bytes, size_bytes, readers))
    return sum(layout.total_bytes for layout in layouts)


def refusal(folder: Path, wanted_bytes: int = 0, files: int = 0) -> str | None:
    """Return why nothing is to be written to this folder, in one line; None: it may be.

    A folder that does not answer within LOOK_S is refused, too.
    """
    try:
        return _in_time(lambda: _refusal(folder, wanted_bytes, files), LOOK_S)
    except TimeoutError:
        return f"{folder}: does not answer within {LOOK_S:g} s"
    except OSError as error:
        return f"{folder}: {error.strerror or error}"


@dataclass
class Scratch:
    """A folder of our own below a scratch folder, for as long as the jobs run."""

    folder: Path
    leftover: str | None = None  # what could not be removed, and why

    def run(self, job: Job) -> Output:
        """Return what fio printed and how it ended: untouched, whatever it was. Raises FioMissing."""
        directory = str(self.folder).replace(":", "\\:")  # fio takes several folders, with colons between
        argv = ("fio", "--output-format=json", f"--name={job.name}", f"--directory={directory}", *job.options)
        ran = run_tool(argv, job.deadline_s)
        if ran.status == MISSING:
            raise FioMissing(f"fio is not installed: apt-get install {PACKAGE} (Debian, Ubuntu), dnf install {PACKAGE}")
        return Output(f"fio-{job.name}", argv, ran.stdout, ran.stderr, ran.status, ran.note)


@contextmanager
def scratch(folder: Path, wanted_bytes: int = 0, files: int = 0) -> Iterator[Scratch]:
    """Yield a new folder below `folder` and remove it with all that was laid out, after an interrupt, too.

    What cannot be removed, as the file system is dead, is told by `leftover` afterwards. Raises ScratchRefused.
    """
    if reason := refusal(folder, wanted_bytes, files):
        raise ScratchRefused(reason)
    work = Scratch(folder / f".kvgate-fio-{os.getpid()}-{os.urandom(4).hex()}")
    try:
        _in_time(lambda: work.folder.mkdir(mode=0o700), LOOK_S)
    except (OSError, TimeoutError) as error:
        raise ScratchRefused(f"{work.folder}: cannot be made: {error or 'no answer'}") from None
    try:
        yield work
    finally:
        # In a child: to remove files of a dead file system may block for ever.
        ran = run_tool(("rm", "-rf", "--", str(work.folder)), REMOVE_S)
        if ran.status != 0:
            said = " ".join(ran.stderr.decode("utf-8", "replace").split())[:200]
            work.leftover = f"{work.folder}: could not be removed: {ran.note or said or f'status {ran.status}'}"


def _refusal(folder: Path, wanted_bytes: int, files: int) -> str | None:
    if not folder.is_absolute():
        return f"{folder}: must begin with /"
    real = Path(os.path.realpath(folder))
    if real != Path(os.path.normpath(folder)):
        return f"{folder}: leads to {real}: name that folder itself"
    mode = folder.lstat().st_mode
    if not stat.S_ISDIR(mode):
        kind = "a block device, and nothing is ever written to one" if stat.S_ISBLK(mode) else "no folder"
        return f"{folder}: is {kind}: name a scratch folder"
    sentinel = folder / SENTINEL
    if not (sentinel.is_file() and not sentinel.is_symlink()):
        what = "is the root of a mount and holds" if os.path.ismount(folder) else "holds"
        return f"{folder}: {what} no {SENTINEL}: touch {sentinel} if everything may be written there"
    space = os.statvfs(folder)
    if space.f_flag & os.ST_RDONLY:
        return f"{folder}: its file system is read-only"
    if not os.access(folder, os.W_OK | os.X_OK):
        return f"{folder}: is not ours to write to"
    free_bytes = space.f_bavail * space.f_frsize - int(KEEP_FREE * space.f_blocks * space.f_frsize)
    if free_bytes < max(wanted_bytes, 1):
        return f"{folder}: needs {wanted_bytes} bytes, and {max(free_bytes, 0)} may be used: make room, or ask for less"
    if space.f_files and space.f_favail < files + 64:
        return f"{folder}: needs {files} files, and {space.f_favail} inodes are free: make room, or ask for less"
    return None


def _in_time(look: Callable[[], T], seconds: float) -> T:
    """Return what `look` returns. Raises TimeoutError: not within so many seconds; it is left to its fate."""
    told: list[T] = []
    raised: list[Exception] = []

    def work() -> None:
        try:
            told.append(look())
        except Exception as error:  # noqa: BLE001  # it is raised again where it belongs
            raised.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)
    if raised:
        raise raised[0]
    if not told:
        raise TimeoutError
    return told[0]


def _job(name: str, layout: Layout, how: How, options: tuple[str, ...], asked: Asked) -> Job:
    moved_bytes = 2 * layout.total_bytes if asked.writes or asked.verifies else 0
    timed_s = how.runtime_s + how.ramp_s if asked.runtime_s is not None else 0.0
    deadline_s = timed_s + moved_bytes / SLOWEST_BYTES_PER_S + MARGIN_S
    return Job(name, (*how.options, *layout.options, *options), asked, deadline_s)


def _read(kind: str, layout: Layout, how: How, options: tuple[str, ...]) -> Job:
    asked = Asked(reads=True, runtime_s=how.runtime_s, threads=layout.readers, laid_out=True)
    return _job(f"{layout.label}-{kind}", layout, how, (*options, *how.timed), asked)


def _verified(layout: Layout, block_bytes: int) -> tuple[str, ...]:
    return ("--rw=write", _block(layout, block_bytes), "--iodepth=8", "--verify=crc32c", "--verify_fatal=1")


def _block(layout: Layout, block_bytes: int) -> str:
    return f"--bs={min(_aligned(block_bytes), layout.file_bytes)}"


def _aligned(size_bytes: int) -> int:
    return -(-size_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
