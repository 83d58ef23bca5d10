"""Which arms are up at a time: all of them ("resident"), or one after the other ("exclusive")."""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Protocol

from scenarios.engine import ArmPlan, LiveArm, Say, bring_up, running

Logs = Callable[[str, int], Path]  # (arm, number of the start) -> folder for its logs
Started = Callable[[LiveArm], None]  # called with a fresh arm as soon as it is up


class Fleet(Protocol):
    """Gives out arms that are up."""

    def arm(self, name: str) -> contextlib.AbstractContextManager[LiveArm]:
        """Return a context in which the arm is up. Raises StartFailed on entering."""
        ...

    def stop(self) -> None:
        """End every process."""
        ...


class Exclusive:
    """Each use of an arm is a fresh start of its processes: what a lab with one set of accelerators needs."""

    def __init__(
        self, plans: Mapping[str, ArmPlan], logs: Logs, started: Started, say: Say, starts: Mapping[str, int]
    ) -> None:
        """`starts`: how often each arm was started before, in earlier sessions of the run."""
        self._plans, self._logs, self._started, self._say = plans, logs, started, say
        self._starts = {name: starts.get(name, 0) for name in plans}

    @contextlib.contextmanager
    def arm(self, name: str) -> Iterator[LiveArm]:
        """Start the arm, give it out, end it."""
        self._starts[name] += 1
        number = self._starts[name]
        with running(self._plans[name], self._logs(name, number), number, self._say) as live:
            self._started(live)
            yield live

    def stop(self) -> None:
        """Do nothing: no arm is up between uses."""


class Resident:
    """All arms are brought up at first use and stay up side by side."""

    def __init__(
        self, plans: Mapping[str, ArmPlan], logs: Logs, started: Started, say: Say, starts: Mapping[str, int]
    ) -> None:
        """`starts`: how often each arm was started before, in earlier sessions of the run."""
        self._plans, self._logs, self._started, self._say = plans, logs, started, say
        self._numbers = {name: starts.get(name, 0) + 1 for name in plans}
        self._live: dict[str, LiveArm] = {}

    @contextlib.contextmanager
    def arm(self, name: str) -> Iterator[LiveArm]:
        """Give out the arm; the first call brings all of them up."""
        if not self._live:
            self._bring_all_up()
        yield self._live[name]

    def stop(self) -> None:
        """End every arm's processes, at the same time, since each takes seconds."""
        live, self._live = list(self._live.values()), {}
        if live:
            with concurrent.futures.ThreadPoolExecutor(max_workers=len(live)) as pool:
                list(pool.map(lambda arm: arm.stop(), live))

    def _bring_all_up(self) -> None:
        cancel = threading.Event()
        workers = max(1, min(len(self._plans), os.cpu_count() or 1))
        pool = concurrent.futures.ThreadPoolExecutor(max_workers=workers)
        coming = {
            name: pool.submit(bring_up, plan, self._logs(name, number), number, self._say, cancel)
            for (name, plan), number in zip(self._plans.items(), self._numbers.values(), strict=True)
        }
        try:
            for future in concurrent.futures.as_completed(coming.values()):
                future.result()
        finally:
            # One failure, or Ctrl-C, ends the others; what is already up is left for `stop`.
            cancel.set()
            pool.shutdown(wait=True, cancel_futures=True)
            for name, future in coming.items():
                if future.done() and not future.cancelled() and future.exception() is None:
                    self._live[name] = future.result()
                    self._started(self._live[name])
