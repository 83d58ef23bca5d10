"""Real noise: log ratios of A/A blocks from a file, and what can be had of public data."""

from __future__ import annotations

import csv
import math
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gates.stats import Floats
from scenarios.load import ConfigError

COLUMNS = ("log_ttft_ratio", "log_throughput_ratio")
NAMED = ("kvct-nvme", "kvct-dram", "nightly")
LOG_RATIO_MAX = 20.0  # a factor of 500 million
LEAST = 5  # rows; fewer say nothing about a tail
LEAST_PERIODS = 20  # of one arm at one concurrency

_PERIODS = {"kvct-nvme": "gds_dram_*sustained_periods*.csv", "kvct-dram": "dram_only_*sustained_periods*.csv"}


@dataclass(frozen=True, eq=False)
class Residuals:
    """Rows of (TTFT, throughput) in log ratio, centred and turned so that more is better; a row is drawn as a whole."""

    name: str
    values: Floats

    def sd(self) -> tuple[float, float]:
        """Return the standard deviation of each column, in log ratio."""
        spread = self.values.std(axis=0)
        return float(spread[0]), float(spread[1])


def shared_data() -> Path:
    """Return the folder of the public data: $KVGATE_SHARED/data, by default beside the project."""
    project = Path(__file__).resolve().parents[2]
    return Path(os.environ.get("KVGATE_SHARED", project.parent / "shared")) / "data"


def load(name_or_path: str) -> Residuals:
    """Return the named public noise, or that of a CSV file with the columns COLUMNS (or one of them, for both).

    Raises:
        ConfigError: file, line and what is wrong.
    """
    if name_or_path == "nightly":
        return _nightly(_only(shared_data(), "lmcache_nightly_*.csv"))
    if name_or_path in _PERIODS:
        return _periods(name_or_path, _only(shared_data() / "kvct_ttft", _PERIODS[name_or_path]))
    path = Path(name_or_path)
    rows = list(_rows(path))
    known = [column for column in COLUMNS if rows and column in rows[0][1]]
    if not known:
        raise ConfigError(f"{path}:1: needs a column {' or '.join(COLUMNS)}, and rows below it")
    signs = {"log_ttft_ratio": -1.0, "log_throughput_ratio": 1.0}
    columns = [[signs[name] * _log_ratio(path, line, row, name) for line, row in rows] for name in known]
    return _centred(path, path.name, np.array([columns[0], columns[-1]]).T)


def _nightly(path: Path) -> Residuals:
    """Return the log ratio of each night to the one before: the same test, the same machine, code that moves on."""
    rows = list(_rows(path))
    ttft = np.log([_positive(path, line, row, "query_ttft_per_prompt") for line, row in rows])
    rate = -np.log([_positive(path, line, row, "query_round_time_per_prompt") for line, row in rows])
    return _centred(path, "nightly", np.array([-np.diff(ttft), np.diff(rate)]).T)


def _periods(name: str, path: Path) -> Residuals:
    """Return log TTFT and log throughput of 30 s periods, less their mean at the same concurrency, in order of time."""
    found: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
    for line, row in _rows(path):
        period = _number(path, line, row, "period_number")
        ttft, rate = (_positive(path, line, row, key) for key in ("median_ttft", "input_tokens_per_sec"))
        found[str(row["concurrency_level"])].append((period, -math.log(ttft), math.log(rate)))
    kept = [np.array(group) for group in found.values() if len(group) >= LEAST_PERIODS]
    if not kept:
        raise ConfigError(f"{path}: no concurrency with {LEAST_PERIODS} periods")
    for group in kept:
        group[:, 1:] -= group[:, 1:].mean(axis=0)
    together = np.concatenate(kept)
    return _centred(path, name, together[np.argsort(together[:, 0])][:, 1:])


def _centred(path: Path, name: str, values: Floats) -> Residuals:
    if len(values) < LEAST:
        raise ConfigError(f"{path}: {len(values)} rows of noise, {LEAST} needed")
    centred = values - values.mean(axis=0)
    if np.any(centred.std(axis=0) == 0):
        raise ConfigError(f"{path}: noise that does not vary")
    return Residuals(name, centred)


def _only(folder: Path, pattern: str) -> Path:
    found: Sequence[Path] = sorted(folder.glob(pattern))
    if len(found) != 1:
        raise ConfigError(f"{folder}: {len(found)} files {pattern}, one needed: set KVGATE_SHARED to where data/ lies")
    return found[0]


def _rows(path: Path) -> Iterator[tuple[int, Mapping[str, str | None]]]:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            for row in reader:
                yield reader.line_num, row
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None


def _number(path: Path, line: int, row: Mapping[str, str | None], key: str) -> float:
    try:
        value = float(row[key] or "")
    except (KeyError, ValueError):
        value = math.nan
    if not math.isfinite(value):
        raise ConfigError(f"{path}:{line}: {key}: '{row.get(key)}' is no number")
    return value


def _log_ratio(path: Path, line: int, row: Mapping[str, str | None], key: str) -> float:
    value = _number(path, line, row, key)
    if abs(value) > LOG_RATIO_MAX:
        raise ConfigError(f"{path}:{line}: {key}: {value:g} is no log ratio of two measured values: give its logarithm")
    return value


def _positive(path: Path, line: int, row: Mapping[str, str | None], key: str) -> float:
    value = _number(path, line, row, key)
    if value <= 0:
        raise ConfigError(f"{path}:{line}: {key}: {value:g} is not above 0, and has no logarithm")
    return value
