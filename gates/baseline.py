"""What G2 has learnt of a site's baseline, as a file: baseline.json. G3 holds its own baseline against it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import Field, ValidationError, model_validator
from scipy import special

from gates.nodata import NoData
from gates.stats import Estimate
from scenarios.load import ConfigError
from scenarios.model import Name, NonNegativeFloat, PositiveFloat, PositiveInt, Strict
from workloads.plain import EvidenceError
from workloads.strict_json import read_json

FILE = "baseline.json"
CONFIDENCE = 0.99  # of the prediction interval: one honest run in a hundred is doubted
DAYS_MIN = 3
# Of the largest day's value to the smallest's: what scatters more is no record of one baseline.
DAYS_RATIO_MAX = 2.0

Metric = Literal["ttft_p50_s", "output_tokens_per_s"]
DayValue = Annotated[float, Field(gt=1e-9, lt=1e9, allow_inf_nan=False)]


class Level(Strict):
    """The baseline at one concurrency: one value a day, in the metric's unit."""

    step: PositiveInt
    metric: Metric
    day_values: Annotated[tuple[DayValue, ...], Field(min_length=DAYS_MIN, strict=False)]

    @model_validator(mode="after")
    def _days_of_one_baseline(self) -> Self:
        ratio = max(self.day_values) / min(self.day_values)
        if ratio > DAYS_RATIO_MAX:
            told = f"the largest is {ratio:.3g} times the smallest, {DAYS_RATIO_MAX:g} allowed"
            raise ValueError(f"day_values: {told}: these are not days of one baseline")
        return self


class Record(Strict):
    """G2's record. `noise` is the sd of a block's log ratio of the baseline against itself (A/A)."""

    schema_: Annotated[Literal[1], Field(alias="schema")]
    site: Name
    model: Name
    made_utc: str
    run_id: str
    manifest_sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    noise: dict[Metric, PositiveFloat]
    between_start_sd: dict[Metric, NonNegativeFloat] = Field(
        default_factory=dict
    )  # of the log of a trial's value, from start to start
    levels: Annotated[tuple[Level, ...], Field(min_length=1, strict=False)]

    @model_validator(mode="after")
    def _of_one_mind(self) -> Self:
        self.made()
        found = [(level.metric, level.step) for level in self.levels]
        for metric, step in found:
            if found.count((metric, step)) > 1:
                raise ValueError(f"levels: {metric} at concurrency {step} stands there twice: leave one of them")
        return self

    def made(self) -> datetime:
        """Return when it was made, UTC. Raises ValueError where `made_utc` is no date."""
        try:
            made = datetime.fromisoformat(self.made_utc)
        except ValueError:
            raise ValueError(f"made_utc: {self.made_utc[:40]!r} is no date: give it as 2026-01-31") from None
        return made.replace(tzinfo=UTC) if made.tzinfo is None else made.astimezone(UTC)


def read(path: Path) -> Record:
    """Return the record in `path`. Raises ConfigError naming the file, the key and what is wrong."""
    try:
        return Record.model_validate(read_json(path))
    except EvidenceError as error:
        hint = "" if path.is_file() else ": G2 writes it; name it in the site's baseline_record"
        raise ConfigError(f"{error}{hint}") from None
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        place = "".join(f"{part}: " for part in (".".join(map(str, fault["loc"])),) if part)
        raise ConfigError(f"{path}: {place}{' '.join(fault['msg'].split()).removeprefix('Value error, ')}") from None


def predicted(record: Record, metric: str, step: int) -> Estimate | NoData:
    """Return where a day's value lies with CONFIDENCE, in the metric's unit, if the baseline is as it was.

    exp(m ± t(1 - a/2, n-1) · s · √(1 + 1/n)) over the logs of n days: the prediction interval of one further
    observation of a normal sample, so that the variance between days is in it.
    """
    for level in record.levels:
        if (level.metric, level.step) == (metric, step):
            return _prediction(level.day_values)
    return NoData(f"the baseline's record has no {metric} at concurrency {step}")


def _prediction(values: Sequence[float]) -> Estimate:
    logs = np.log(np.asarray(values, dtype=float))
    n = int(logs.size)
    mean, sd = float(logs.mean()), float(logs.std(ddof=1))
    half = float(special.stdtrit(n - 1, 0.5 + CONFIDENCE / 2)) * sd * math.sqrt(1 + 1 / n)
    whole = Estimate(mean, mean - half, mean + half, CONFIDENCE, n, "prediction interval over days")
    return replace(whole, point=math.exp(mean), low=math.exp(whole.low), high=math.exp(whole.high))
