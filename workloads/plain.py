"""Plain files: written whole, and opened only where they are plain. What a run is made of."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import io
import os
import re
import stat
import tempfile
import time
import unicodedata
from pathlib import Path

# What `write_whole` writes to before it puts the file in its place, and nothing else has such a name.
SCRATCH = re.compile(r"\.(?P<target>[^/]+)\.[a-z0-9_]{8}\.part")
_LOCK_DELAY_S = 0.05  # a writer locks its scratch file just after making it


class EvidenceError(ValueError):
    """One line that names the file (and line) of the run that is wrong, and how."""


def write_whole(target: Path, content: bytes) -> None:
    """Replace `target` by `content` in one step: readers see the old file or the new one, never a part.

    What an earlier write of the same file left behind when it was cut off is removed. Raises OSError.
    """
    for old in target.parent.glob(f".{_literal(target.name)}.????????.part"):
        if _left_behind(old):
            old.unlink(missing_ok=True)
    handle, scratch = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as f:
            # Held for as long as the scratch file exists; where locks are not to be had, it counts as left behind.
            with contextlib.suppress(OSError):
                fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
            f.write(content)
            f.flush()
            os.fsync(f.fileno())
            os.chmod(scratch, 0o644)
            os.replace(scratch, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(scratch)
        raise


def being_written(path: Path) -> bool:
    """Return whether `path` is a scratch file of `write_whole` whose writer is still at it."""
    return SCRATCH.fullmatch(path.name) is not None and not _left_behind(path)


def sweep(folder: Path) -> list[str]:
    """Remove what writes that were cut off left behind below `folder`; return the names. Raises OSError.

    Only for a run that is taken up again: such a file was never part of the evidence, its target is whole or not there.
    """
    gone = [p for p in sorted(folder.rglob(".*.part")) if SCRATCH.fullmatch(p.name) and _left_behind(p)]
    for path in gone:
        path.unlink()
    return [path.relative_to(folder).as_posix() for path in gone]


def open_plain(path: Path) -> io.BufferedReader:
    """Open a file to be read, and never wait: what is no plain file (a pipe, a device) is refused.

    Raises EvidenceError, OSError.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise EvidenceError(f"{path}: not a plain file")
    return open(handle, "rb")


def sha256_of(path: Path) -> str:
    """Return the file's SHA-256 in hex. Raises EvidenceError, OSError."""
    with open_plain(path) as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def shown(text: str) -> str:
    """Return foreign text for one line of a terminal: what cannot be printed is escaped, so that it fakes nothing."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def is_normal(name: str) -> bool:
    """Return whether a name is in Unicode normal form C: two spellings of one name are two files to some systems."""
    return unicodedata.is_normalized("NFC", name)


def _left_behind(scratch: Path) -> bool:
    for wait_s in (_LOCK_DELAY_S, 0.0):
        try:
            handle = os.open(scratch, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return False  # put in its place meanwhile
        except OSError:
            return True
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            return True
        finally:
            os.close(handle)
        time.sleep(wait_s)
    return True


def _literal(name: str) -> str:
    return re.sub(r"([*?\[])", r"[\1]", name)
