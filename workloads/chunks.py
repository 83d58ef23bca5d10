"""Chunk files at rest: the SHA-256 of a sample of them, read so that no cache above the storage is warmed by it."""

from __future__ import annotations

import errno
import hashlib
import mmap
import os
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

Json = dict[str, Any]

SAMPLE_MAX = 64  # chunk files of a prompt set; where there are no more, all of them are looked at
_READ_BYTES = 1 << 20


def sample(seed: int, prompt_set: int, names: Iterable[str]) -> list[str]:
    """Return the names of the chunk files of a set that are looked at, sorted; the run's seed alone chooses them.

    The same ones in every tier where the names are the same.
    """
    ranked = sorted(names, key=lambda name: hashlib.sha256(f"kvgate/{seed}/{prompt_set}/{name}".encode()).digest())
    return sorted(ranked[:SAMPLE_MAX])


def look(folder: Path, names: Sequence[str]) -> Json:
    """Return what chunks.json says of these files (docs/evidence.md); never raises for what a file is like.

    Must not be called while anything is measured: it reads from the tier.
    """
    begin_ns = time.monotonic_ns()
    hashes: dict[str, str | None] = {}
    sizes: dict[str, int | None] = {}
    faults: dict[str, str] = {}
    direct = True
    for name in names:
        try:
            hashes[name], sizes[name], around = hash_file(folder / name)
            direct = direct and around
        except OSError as error:
            hashes[name] = sizes[name] = None
            faults[name] = errno.errorcode.get(error.errno or 0, "unknown")
    return {
        "t_begin_ns": begin_ns,
        "t_end_ns": time.monotonic_ns(),
        "direct_io": direct,
        "hashes": hashes,
        "bytes": sizes,
        "faults": faults,
    }


def hash_file(path: Path) -> tuple[str, int, bool]:
    """Return (SHA-256 in hex, bytes, whether it was read around the page cache). Raises OSError.

    Where the file system knows no direct I/O, what was read is dropped from the page cache afterwards.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_DIRECT", 0))
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    else:
        try:
            return *_digest(handle), True
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
        finally:
            os.close(handle)
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        found = _digest(handle)
        os.fsync(handle)  # what has not been written yet cannot be dropped
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        return *found, False
    finally:
        os.close(handle)


def _digest(handle: int) -> tuple[str, int]:
    digest, size = hashlib.sha256(), 0
    # Direct I/O wants memory that begins on a page.
    with mmap.mmap(-1, _READ_BYTES) as page, memoryview(page) as buffer:
        while count := os.readv(handle, [buffer]):
            digest.update(buffer[:count])
            size += count
            if count % 512:
                break  # only the end of a file is shorter than what storage reads at once
    return digest.hexdigest(), size
