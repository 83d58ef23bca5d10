"""What all tests need of the process that they run in."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings

# The same examples on every machine, so that one commit has one outcome; `make fuzz` is what looks for new ones.
settings.register_profile("same", derandomize=True, deadline=None, database=None)
settings.register_profile("new", derandomize=False, max_examples=300, deadline=None, database=None, print_blob=True)
settings.load_profile("same")


@pytest.fixture(scope="session", autouse=True)
def interruptible() -> Iterator[None]:
    """Let Ctrl-C reach what the tests start, also where a shell has started us in the background, without it."""
    was = signal.getsignal(signal.SIGINT)
    if was is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, was)
