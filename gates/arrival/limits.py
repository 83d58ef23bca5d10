"""The limits of G1 as data: a criteria file of its own kind, since nothing in it compares arms at steps."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self, get_args

from pydantic import Field, model_validator

from scenarios.load import load_toml
from scenarios.strict import Name, Strict

Metric = Literal[
    "critical_warning",
    "media_errors",
    "wear",
    "temperature",
    "spare_margin",
    "kernel_log",
    "filesystem_use",
    "inode_use",
    "loss",
    "raw_speed",
    "raw_latency",
]
METRICS: tuple[str, ...] = get_args(Metric)


class Limit(Strict):
    """One limit of what is measured or counted, whatever a site orders."""

    id: Name
    metric: Metric
    operator: Literal[">=", "<="]
    limit: Annotated[float, Field(allow_inf_nan=False)]
    unit: Literal["share", "events", "bits", "celsius", "percent"]
    rationale: str
    source: str

    def holds(self, value: float) -> bool:
        """Return whether a value keeps to the limit; a NaN does not."""
        return value >= self.limit if self.operator == ">=" else value <= self.limit


class Limits(Strict):
    """A criteria file of G1: every metric has one limit, or a check would be left out unseen."""

    schema_: Annotated[Literal[1], Field(alias="schema")]
    gate: Literal["g1"]
    criterion: Annotated[tuple[Limit, ...], Field(min_length=1, strict=False)]

    @model_validator(mode="after")
    def _one_each(self) -> Self:
        metrics = [limit.metric for limit in self.criterion]
        for metric in METRICS:
            if metrics.count(metric) != 1:  # type: ignore[arg-type]
                raise ValueError(f"criterion: needs exactly one limit of '{metric}'")
        return self

    def of(self, metric: str) -> Limit:
        """Return the limit of a metric. Raises KeyError."""
        return {limit.metric: limit for limit in self.criterion}[metric]  # type: ignore[index]


def load(path: Path) -> Limits:
    """Return the limits in `path`. Raises ConfigError with file, line, key and reason."""
    return load_toml(path, Limits).value
