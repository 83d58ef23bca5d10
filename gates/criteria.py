"""Requirements as data: the model of a criteria file and its loader."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from scenarios.load import ConfigError, Loaded, line_of, load_toml
from scenarios.model import (
    BASELINE,
    CANDIDATE,
    RECOMPUTE,
    Name,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    Site,
    Strict,
)

FAILED_REQUESTS, TIER_FAULTS = COUNTED = ("failed_requests", "tier_faults")
# What the gate is passed by: (metric, comparison, other arm). A guard may be as strict as its site likes.
REQUIRED = (
    ("ttft_p50_s", ("reduction",), BASELINE),
    ("output_tokens_per_s", ("gain",), BASELINE),
    ("ttft_p50_s", ("reduction",), RECOMPUTE),
    ("output_tokens_per_s", ("gain",), RECOMPUTE),
    ("ttft_p99_s", ("increase", "reduction"), BASELINE),
    ("itl_p99_s", ("increase", "reduction"), BASELINE),
    ("tpot_p50_s", ("increase", "reduction"), BASELINE),
)
HERE = Path(__file__).resolve().parent
# Below it the interval of three blocks is wider than any ratio that a number can hold.
ALPHA_MIN = 0.0001
Share = Annotated[float, Field(ge=ALPHA_MIN, lt=0.5, allow_inf_nan=False)]
# The design judges nothing on fewer blocks than the three that recompute joins; a hundred take a lab days.
BLOCKS_MIN, BLOCKS_MAX = 3, 100
# What is wider lets pass whatever is measured. A share of the second arm's value (the design's is 0.02), and in log
# ratio (the design's 0.03 and 0.10; 1.0 is a factor of 2.7, for a rehearsal's few requests).
TOLERANCE_MAX, PRECISION_MAX = 0.1, 1.0
INCREASE_MAX = 2.0  # three times as long
_HEADER = re.compile(r"\s*\[\[?\s*([A-Za-z0-9_.\"'-]+)\s*\]\]?\s*(#.*)?")


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
        if not BLOCKS_MIN <= self.blocks[0] <= self.blocks[-1] <= BLOCKS_MAX:
            raise ValueError(f"blocks: a look judges {BLOCKS_MIN} to {BLOCKS_MAX} blocks: give numbers between these")
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
        self._bounded(counts)
        if ("honest-recompute" in self.requires) != (RECOMPUTE in self.arms):
            raise ValueError(f"requires: 'honest-recompute' belongs to comparisons with '{RECOMPUTE}'")
        if (self.policy == "measured") != (self.precision is not None):
            raise ValueError("precision: belongs to policy 'measured' and to no other")
        if self.compare == "reduction" and self.limit >= 1:
            raise ValueError("limit: a reduction is below 1")
        if (self.alpha is None) != (self.min_blocks is None):
            raise ValueError("alpha: goes together with min_blocks")
        if self.min_blocks is not None and not BLOCKS_MIN <= self.min_blocks <= BLOCKS_MAX:
            raise ValueError(f"min_blocks: {self.min_blocks}: give a number from {BLOCKS_MIN} to {BLOCKS_MAX}")
        return self

    def _bounded(self, counts: bool) -> None:
        """Raise ValueError for numbers by which nothing, or everything, would pass."""
        if counts and (self.limit < 0 or self.tolerance):
            raise ValueError("limit: of a count it is 0 or more, and has no tolerance: give the number that is allowed")
        if self.metric == TIER_FAULTS and self.limit != 0:
            raise ValueError("limit: wrong answers and lost chunks are never within a budget of tier_faults: give 0")
        if self.compare in ("reduction", "gain") and self.limit < 0:
            raise ValueError(
                f"limit: below 0 a {self.compare} would pass that is none: give 0 or more, and a tolerance"
            )
        if self.compare == "increase" and not -1 < self.limit <= INCREASE_MAX:
            raise ValueError(f"limit: an increase is a share above -1: give at most {INCREASE_MAX:g}")
        if self.tolerance > TOLERANCE_MAX:
            told = f"{self.tolerance:g} lets nearly anything pass: give a share of at most {TOLERANCE_MAX:g}"
            raise ValueError(f"tolerance: {told}, as 0.02 for 2 %")
        if self.precision is not None and self.precision > PRECISION_MAX:
            told = f"{self.precision:g} lets the point decide however the blocks scatter"
            raise ValueError(f"precision: {told}: give at most {PRECISION_MAX:g}, in log ratio, as 0.03")
        if self.band_high is not None and self.operator != ">=":
            raise ValueError("band_high: belongs to reductions and gains: leave it out")
        if self.band_high is not None and self.band_high <= self.limit:
            raise ValueError(
                f"band_high: {self.band_high:g} is not above the limit {self.limit:g}: the band begins there"
            )


class _OneOfThem(ValueError):
    """A fault between criteria, with the place of the one to look at."""

    def __init__(self, place: int, told: str) -> None:
        super().__init__(told)
        self.place = place


class Criteria(Strict):
    """A criteria file."""

    schema_: Annotated[Literal[1], Field(alias="schema")]
    gate: Literal["g3"]
    looks: Looks
    criterion: Annotated[tuple[Criterion, ...], Field(min_length=1, strict=False)]

    @model_validator(mode="after")
    def _ids_differ(self) -> Self:
        ids = [c.id for c in self.criterion]
        for place, name in enumerate(ids):
            if name in ids[:place]:
                raise _OneOfThem(place, "criterion.id: two of them have the same id: give this one another")
        return self

    @model_validator(mode="after")
    def _wrong_answers_count(self) -> Self:
        if all(c.metric != TIER_FAULTS for c in self.criterion):
            raise ValueError(
                f"criterion: none counts the {CANDIDATE}'s {TIER_FAULTS}, so that wrong answers would pass: add one "
                f'with metric = "{TIER_FAULTS}" and limit = 0.0, as in gates/criteria/g3.toml'
            )
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
    """Return the criteria in `path`. Raises ConfigError with file, line, criterion, key and reason."""
    try:
        return load_toml(path, Criteria).value
    except ConfigError as error:
        fault = error.__context__  # what the line was made of
        if not isinstance(fault, ValidationError):
            raise
        raise ConfigError(_placed(path, fault, str(error))) from None


def _placed(path: Path, error: ValidationError, told: str) -> str:
    """Return the line that was told of a faulty criterion with its own place and id: all of them have the same keys."""
    # The fault that was told: the first, but for a misspelt key, which goes before.
    fault: Any = min(error.errors(include_url=False), key=lambda f: f["type"] != "extra_forbidden")
    place = getattr(fault.get("ctx", {}).get("error"), "place", None)
    if fault["loc"][:1] == ("criterion",) and len(fault["loc"]) > 1:
        place = fault["loc"][1]
    if not isinstance(place, int):
        return told
    text = _only(path.read_text(encoding="utf-8"), place)
    key, _, reason = re.sub(rf"^{re.escape(str(path))}:\d+: ", "", told).partition(": ")
    line = line_of(text, tuple(key.split(".")))
    if line is None:  # written in one line, as `criterion = [{...}]`
        return told
    name = re.search(r"^\s*id\s*=\s*(.*?)\s*(#.*)?$", text, re.MULTILINE)
    whose = f"criterion {name[1]}" if name else f"criterion {place + 1}, which has no id"
    return f"{path}:{line}: {whose}: {key.removeprefix('criterion.')}: {reason}"


def where(path: Path, criteria: Criteria, criterion: Criterion, key: str) -> str:
    """Return `file:line: criterion "id": key`, the place of a key in the file that these criteria were loaded from."""
    text = _only(path.read_text(encoding="utf-8"), criteria.criterion.index(criterion))
    line = line_of(text, ("criterion", key))
    return f'{path}{f":{line}" if line else ""}: criterion "{criterion.id}": {key}'


def lacking(criteria: Criteria) -> list[str]:
    """Return a line for each requirement of the gate that no criterion states; a run judged without it accepts nothing.

    How strict a criterion is, its site has agreed.
    """
    told = [
        f"no criterion compares {metric} with {arm}" + (f" as a {kinds[0]}" if len(kinds) == 1 else "")
        for metric, kinds, arm in REQUIRED
        if not any((c.metric, *c.arms[1:]) == (metric, arm) and c.compare in kinds for c in criteria.criterion)
    ]
    counted = {c.metric for c in criteria.criterion}
    return told + [f"no criterion counts {metric}" for metric in COUNTED if metric not in counted]


def _only(text: str, place: int) -> str:
    """Return the text with every line blank that is not of that [[criterion]], so that lines keep their numbers."""
    lines: list[str] = []
    at = -1
    inside = False
    for line in text.splitlines():
        if header := _HEADER.fullmatch(line):
            inside = header[1] == "criterion"
            at += inside
        lines.append(line if inside and at == place else "")
    return "\n".join(lines)


def cases(criteria: Criteria, steps: Sequence[int]) -> list[Case]:
    """Return a case per criterion and step, in the file's order."""
    return [Case(criterion, step) for criterion in criteria.criterion for step in steps]
