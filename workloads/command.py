"""What the suite's command lines have in common: an error is one line, and every way out is an end in order."""

from __future__ import annotations

import argparse
import io
import os
import sys
import traceback
from collections.abc import Callable
from typing import NoReturn

INTERNAL_ERROR, USAGE_ERROR = 3, 4  # as pytest's
INTERRUPTED = 130  # as a shell's, of a command that SIGINT ended
UNREAD = 141  # the same for SIGPIPE; never 0, which would be a verdict


class Parser(argparse.ArgumentParser):
    """Says in one line what is wrong with the arguments."""

    def error(self, message: str) -> NoReturn:
        """Print the line and exit with USAGE_ERROR."""
        self.exit(USAGE_ERROR, f"kvgate: {one_line(message)}; see `{self.prog} --help`\n")


def carry_out(step: Callable[[], int], told: tuple[type[Exception], ...], interrupted: str) -> int:
    """Return the exit status of a command: what `step` returns, or what its end means.

    An error among `told` is one line. So is Ctrl-C, with `interrupted` on what is left behind. Any other error is a
    fault of ours: its traceback, and a status that is no verdict.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a name that the terminal cannot show is no reason to end
    try:
        status = step()
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read has enough; nothing may be written to the closed end while Python leaves.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return UNREAD
    except KeyboardInterrupt:
        _tell(f"interrupted; {interrupted}")
        return INTERRUPTED
    except told as error:
        _tell(one_line(error))
        return USAGE_ERROR
    except Exception:  # noqa: BLE001  # Python's own status for it is 1, which is a FAIL
        traceback.print_exc()
        _tell("a fault of the suite, not of what it was asked: please report the lines above")
        return INTERNAL_ERROR
    return status


def _tell(line: str) -> None:
    sys.stderr.write(f"kvgate: {line}\n")


def one_line(told: object) -> str:
    """Return the words of it in one line."""
    return " ".join(str(told).split())
