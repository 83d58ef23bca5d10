"""How a peer's failure is told: in one line, made of the end of its log."""

from __future__ import annotations

import contextlib
from pathlib import Path


class PeerFailed(RuntimeError):
    """A generator could not be installed, run or read: one line that says what and where to look."""


def explain(text: str) -> str:
    """Return the one line that says why an installation failed, from the end of its log."""
    unreachable = (
        "Temporary failure in name resolution", "Connection refused", "Network is unreachable", "timed out",
        "Max retries exceeded", "NewConnectionError", "Could not fetch URL", "ConnectionError",
    )  # fmt: skip
    if "No space left on device" in text:
        return "the disk is full: free some space and run the same command again"
    if any(sign in text for sign in unreachable):
        return (
            "no package index can be reached: connect this machine, or set PIP_INDEX_URL to a mirror, or "
            "PIP_NO_INDEX=1 and PIP_FIND_LINKS to a folder of wheels"
        )
    if "No matching distribution found for torch" in text:
        return (
            "pip cannot find the CPU build of torch: set PIP_EXTRA_INDEX_URL to the PyTorch CPU index or "
            "PIP_FIND_LINKS to a folder with the wheel"
        )
    if "ensurepip" in text:
        return "Python cannot make a virtual environment: install Debian's package python3-venv"
    errors = [line for line in text.splitlines() if line.startswith("ERROR:")]
    return errors[-1].removeprefix("ERROR:").strip() if errors else last_line(text) or "the installation failed"


def last_line(text: str) -> str:
    """Return the last line that is not blank, stripped: of a traceback the one that names the error."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def tail(log: Path, size_bytes: int = 200_000) -> str:
    """Return the end of a log as text, empty where it cannot be read."""
    with contextlib.suppress(OSError):
        return log.read_bytes()[-size_bytes:].decode("utf-8", "replace")
    return ""
