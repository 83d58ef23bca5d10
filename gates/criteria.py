"""Requirements as data: the model of a criteria file and its loader."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from scenarios.load import ConfigError, Loaded, load_toml
from scenarios.model import CANDIDATE, RECOMPUTE, Name, NonNegativeFloat, PositiveFloat, PositiveInt, Site, Strict

COUNTED = ("failed_requests", "tier_faults")
HERE = Path(__file__).resolve().parent
Share = Annotated[float, Field(gt=0, lt=0.5, allow_inf_nan=False)]


class Looks(Strict):
    """At how many valid blocks the evidence is judged, and the one-sided error of each look."""

    blocks: Annotated[tuple[PositiveInt, ...], Field(min_length=1, strict=False)]
    alpha: Annotated[tuple[Share, ...], Field(min_length=1, strict=False)]

    @model_validator(mode="after")
    def _pairs(self) -> Self:
        if len(self.blocks) != len(self.alpha):
            raise ValueError("alpha: needs one value per look")
        if sorted(set(self.blocks)) != list(self.blocks):
            raise ValueError("blocks: must rise and not repeat")
        return self


class Criterion(Strict):
    """One requirement, judged at every step of the scenario.

    `reduction`, `gain` and `increase` compare the first of `arms` with the second, as a share of the second (0.25 =
    25 %); of an increase a guard allows no more than its limit. `count` counts events of one arm. A condition in
    `requires` that does not hold makes this criterion INVALID and leaves the others alone. `tolerance` relaxes the
    limit, in the limit's unit; `precision` is the half width, in log ratio, at which the point decides (policy
    `measured`).
    """

    id: Name
    metric: Literal[
        "ttft_p50_s", "ttft_p99_s", "itl_p99_s", "tpot_p50_s", "output_tokens_per_s", "failed_requests", "tier_faults"
    ]
    arms: Annotated[tuple[Name, ...], Field(min_length=1, max_length=2, strict=False)]
    compare: Literal["reduction", "gain", "increase", "count"]
    operator: Literal[">=", "<="]
    limit: Annotated[float, Field(allow_inf_nan=False)]
    unit: Literal["share", "requests", "events"]
    policy: Literal["measured", "proven", "exact"]
    tolerance: NonNegativeFloat = 0.0
    precision: PositiveFloat | None = None
    band_high: PositiveFloat | None = None  # above it the row passes with the flag `explain`
    alpha: Share | None = None  # of its own, for criteria outside the looks
    min_blocks: PositiveInt | None = None
    requires: Annotated[tuple[Literal["honest-recompute"], ...], Field(strict=False)] = ()
    rationale: str
    source: str

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        counts = self.compare == "count"
        if counts != (self.policy == "exact") or counts != (len(self.arms) == 1):
            raise ValueError("policy: 'exact' belongs to counts of one arm, 'measured' and 'proven' to two arms")
        if (self.compare in ("count", "increase")) != (self.operator == "<="):
            raise ValueError("operator: counts and increases have an upper limit '<=', the others a lower one '>='")
        if counts != (self.metric in COUNTED) or counts != (self.unit != "share"):
            raise ValueError(
                "metric: counts are of failed_requests and tier_faults, comparisons are shares of the rest"
            )
        if self.compare != "count" and (self.compare == "gain") != (self.metric == "output_tokens_per_s"):
            raise ValueError("compare: 'gain' belongs to a rate, 'reduction' and 'increase' to times")
        if len(set(self.arms)) != len(self.arms) or self.arms[0] != CANDIDATE:
            raise ValueError(f"arms: the first must be '{CANDIDATE}', whose fault a failure is, the second another arm")
        if not counts and self.limit <= -1:
            raise ValueError("limit: a share is above -1")
        if ("honest-recompute" in self.requires) != (RECOMPUTE in self.arms):
            raise ValueError(f"requires: 'honest-recompute' belongs to comparisons with '{RECOMPUTE}'")
        if (self.policy == "measured") != (self.precision is not None):
            raise ValueError("precision: belongs to policy 'measured' and to no other")
        if self.compare == "reduction" and self.limit >= 1:
            raise ValueError("limit: a reduction is below 1")
        if (self.alpha is None) != (self.min_blocks is None):
            raise ValueError("alpha: goes together with min_blocks")
        return self


class Criteria(Strict):
    """A criteria file."""

    schema_: Annotated[Literal[1], Field(alias="schema")]
    gate: Literal["g3"]
    looks: Looks
    criterion: Annotated[tuple[Criterion, ...], Field(min_length=1, strict=False)]

    @model_validator(mode="after")
    def _ids_differ(self) -> Self:
        ids = [c.id for c in self.criterion]
        if len(set(ids)) != len(ids):
            raise ValueError("criterion: two of them have the same id")
        return self


@dataclass(frozen=True)
class Case:
    """One criterion at one step: a row of the verdict."""

    criterion: Criterion
    step: int

    @property
    def id(self) -> str:
        """Return `<criterion>-c<step>`."""
        return f"{self.criterion.id}-c{self.step}"


def default_file(gate: str) -> Path:
    """Return the criteria file that comes with the suite. Raises ConfigError where there is none."""
    path = HERE / "criteria" / f"{gate}.toml"
    if not path.is_file():
        raise ConfigError(f"no criteria for gate '{gate}'")
    return path


def file_for(gate: str, site: Loaded[Site]) -> Path:
    """Return the criteria file of a gate on a site: the one that the site names, else the suite's own.

    Raises ConfigError where there is none.
    """
    named = {str(key): value for key, value in site.value.criteria.items()}.get(gate)
    if named is None:
        return default_file(gate)
    path = site.path.parent / named if named.endswith(".toml") else HERE / "criteria" / f"{named}.toml"
    if not path.is_file():
        where = site.origins.get(f"criteria.{gate}", str(site.path))
        raise ConfigError(f"{where}: criteria.{gate}: no such file: {path}")
    return path


def load(path: Path) -> Criteria:
    """Return the criteria in `path`. Raises ConfigError with file, line, key and reason."""
    return load_toml(path, Criteria).value


def cases(criteria: Criteria, steps: Sequence[int]) -> list[Case]:
    """Return a case per criterion and step, in the file's order."""
    return [Case(criterion, step) for criterion in criteria.criterion for step in steps]
