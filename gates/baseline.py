"""What G2 has learnt of a site's baseline, as a file: baseline.json. G3 holds its own baseline against it."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, ValidationError
from scipy import special

from gates.nodata import NoData
from gates.stats import Estimate
from scenarios.load import ConfigError
from scenarios.model import Name, NonNegativeFloat, PositiveFloat, PositiveInt, Strict

FILE = "baseline.json"
CONFIDENCE = 0.99  # of the prediction interval: one honest run in a hundred is doubted
DAYS_MIN = 3

Metric = Literal["ttft_p50_s", "output_tokens_per_s"]


class Level(Strict):
    """The baseline at one concurrency: one value a day, in the metric's unit."""

    step: PositiveInt
    metric: Metric
    day_values: Annotated[tuple[PositiveFloat, ...], Field(min_length=DAYS_MIN, strict=False)]


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


def read(path: Path) -> Record:
    """Return the record in `path`. Raises ConfigError naming the file, the key and what is wrong."""
    try:
        return Record.model_validate(json.loads(path.read_bytes()))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}: G2 writes it; name it in the site's baseline_record") from None
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in fault["loc"])
        raise ConfigError(f"{path}: {place}: {' '.join(fault['msg'].split())}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: not JSON: {error}") from None


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
