"""Reading several trials at a time, in processes of their own, where there is much to read."""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import TypeVar

from scenarios.keeper import PR_SET_PDEATHSIG

R = TypeVar("R")

# Starting a process takes a second or two, as long as reading so much.
SHARED_FROM_BYTES = 100_000_000
PROCESSES_MAX = 8


def read_in_processes(folders: Iterable[Path], read: Callable[[Path], R | None]) -> Iterator[tuple[Path, R]]:
    """Yield each trial's folder with what `read` returns of it, unless that is None, as they come.

    Yields nothing where there is little to read, and less where a process is killed: whatever is missing is left to be
    read by whoever asks. `read` must be a function of a module, and not raise.
    """
    sizes: dict[Path, int] = {}
    for folder in folders:
        with contextlib.suppress(OSError):
            sizes[folder] = (folder / "requests.jsonl").stat().st_size
    workers = min(os.cpu_count() or 1, PROCESSES_MAX, len(sizes))
    if workers < 2 or sum(sizes.values()) < SHARED_FROM_BYTES:
        return
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, context, _end_with, (os.getpid(),))
    try:
        largest_first = sorted(sizes, key=sizes.__getitem__, reverse=True)
        jobs = {pool.submit(read, folder): folder for folder in largest_first}
        for job in as_completed(jobs):
            folder = jobs.pop(job)
            if (found := job.result()) is not None:
                yield folder, found
    except BrokenProcessPool:
        return
    finally:
        pool.shutdown(cancel_futures=True)


def _end_with(parent: int) -> None:
    """Make this process end with its parent, however that ends, and with Ctrl-C, without a word."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it has gone meanwhile
        os._exit(1)
