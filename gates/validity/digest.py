"""One pass over a trial's records for all that is asked of them: its breaches, its metrics, its answers.

A run of millions of requests is read once, wave by wave, several trials at a time.
"""

from __future__ import annotations

import functools
import gc
import weakref
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from gates import metrics
from gates.columns import Columns, columns_of
from gates.metrics import Collector, Values
from gates.parallel import read_in_processes
from gates.recorded import counters_of, requests_of
from gates.validity.books import TimeBook
from gates.validity.breach import HARNESS, HOST, MISSHAPEN, Breach, misshapen
from gates.validity.checks import Checks
from gates.validity.packed import Packed, Packer
from gates.validity.records import Sketch, Sketcher, name_of
from workloads.evidence import EvidenceError, Run, Trial, read_json

Json = dict[str, Any]
T = TypeVar("T")
R = TypeVar("R")

# What a fault in every record of a trial would tell, nobody reads to its end.
TOLD_MAX = 100


@dataclass(frozen=True)
class Digest:
    """What one pass over a trial gave. What could not be read is an EvidenceError in its place."""

    version: metrics.Version
    breaches: list[Breach]  # but for those that need to know what the run has to resolve
    times: list[TimeBook]
    _sketch: Sketch | EvidenceError
    _values: Values | EvidenceError
    _answers: Packed | EvidenceError

    def sketch(self) -> Sketch:
        """Return the trial's sketch. Raises EvidenceError."""
        return _or_raise(self._sketch)

    def answers(self) -> Packed:
        """Return the beginnings of the trial's answers. Raises EvidenceError."""
        return _or_raise(self._answers)

    def remember(self) -> None:
        """Keep the trial's metrics for whoever asks for them."""
        if not isinstance(self._values, EvidenceError):
            metrics.remember(self.version, self._values)


_digests: weakref.WeakKeyDictionary[Run, dict[Path, Digest]] = weakref.WeakKeyDictionary()


def digest(run: Run, trial: Trial) -> Digest:
    """Return the trial's digest, from memory where its records are as they were."""
    known = _digests.setdefault(run, {})
    found = known.get(trial.path)
    if found is None or found.version != _version(trial):
        found = known[trial.path] = _read(run, trial)
        found.remember()
    return found


def digests(run: Run) -> list[tuple[Trial, Digest]]:
    """Return each trial of the run with its digest, by block, arm and step. Raises EvidenceError."""
    trials = list(run.trials())
    known = _digests.setdefault(run, {})
    unknown = [trial.path for trial in trials if trial.path not in known]
    for path, found in read_in_processes(unknown, functools.partial(_read_at, run.path)):
        known[path] = found
        found.remember()
    return [(trial, digest(run, trial)) for trial in trials]


def _read_at(run: Path, trial: Path) -> Digest | None:
    try:
        return _read(_run_at(run), Trial(trial, read_json(trial / "trial.json")))
    except MISSHAPEN:
        return None  # told by whoever reads it again


@functools.lru_cache(maxsize=1)
def _run_at(path: Path) -> Run:
    return Run(path)


class _Part(Generic[T]):
    """One of those that look at every wave; what its records lack is its own fault and no other's."""

    def __init__(self, take: Callable[[list[Json], Columns | None], None], finish: Callable[[], T]) -> None:
        self._take, self._finish = take, finish
        self._fault: EvidenceError | None = None

    def take(self, wave: list[Json], columns: Columns | None) -> None:
        self._try(lambda: self._take(wave, columns))

    def fail(self, fault: EvidenceError) -> None:
        self._fault = self._fault or fault

    def result(self) -> T | EvidenceError:
        found = self._try(self._finish)
        return self._fault if self._fault is not None else found  # type: ignore[return-value]

    def _try(self, step: Callable[[], R]) -> R | None:
        if self._fault is None:
            try:
                return step()
            except MISSHAPEN as error:
                self._fault = EvidenceError(misshapen(error))
        return None


def _read(run: Run, trial: Trial) -> Digest:
    name = name_of(trial)
    breaches: list[Breach] = []

    told: Counter[tuple[str, str]] = Counter()

    def tell(check: str, whose: str, reason: str) -> None:
        # What an arm did counts, so that none of it is left out.
        told[check, whose] += 1
        if whose not in (HARNESS, HOST) or told[check, whose] <= TOLD_MAX:
            breaches.append(Breach(check, whose, reason, name))

    snapshots, unread = _snapshots(trial)
    collector, packer, sketcher = Collector(), Packer(name), Sketcher(name, run.facts.get("run_id"))
    checks = Checks(run, trial, name, snapshots, tell)
    judged = _Part(checks.take, checks.end)
    values, answers = _Part(collector.take, collector.values), _Part(packer.take, packer.packed)
    sketch = _Part(sketcher.take, lambda: sketcher.sketch(trial.facts, snapshots))
    if unread is not None:
        judged.fail(unread)
    version = _version(trial)
    collects = gc.isenabled()
    gc.disable()  # records hold no cycles, and looking for some among thousands takes a third of the time
    try:
        for _, wave in metrics.waves(requests_of(trial)):
            columns = columns_of(wave)
            for part in (judged, values, answers, sketch):
                part.take(wave, columns)
    except MISSHAPEN as error:
        for part in (judged, values, answers):  # a sketch is of what can be read
            part.fail(EvidenceError(misshapen(error)))
    finally:
        if collects:
            gc.enable()
    times = judged.result()
    if isinstance(times, EvidenceError):
        tell("readable", HARNESS, str(times))
        times = []
    for (check, whose), count in told.items():
        if whose in (HARNESS, HOST) and count > TOLD_MAX:
            breaches.append(Breach(check, whose, f"{count - TOLD_MAX} more of the kind", name))
    return Digest(version, breaches, times, sketch.result(), values.result(), answers.result())


def _snapshots(trial: Trial) -> tuple[list[Json], EvidenceError | None]:
    """Return the counter snapshots that can be read, and why no more can."""
    found: list[Json] = []
    try:
        for snapshot in counters_of(trial):
            found.append(snapshot)
    except EvidenceError as error:
        return found, error
    return found, None


def _version(trial: Trial) -> metrics.Version:
    try:
        return metrics.version_of(trial)
    except EvidenceError:
        return metrics.no_records(trial)


def _or_raise(found: R | EvidenceError) -> R:
    if isinstance(found, EvidenceError):
        raise found
    return found
