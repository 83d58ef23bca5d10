"""The vocabulary of what is under test: site, tier, arm, scenario. Frozen, strict, units in the names."""

from __future__ import annotations

import posixpath
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from scenarios.bom import Bom
from scenarios.strict import Name as Name
from scenarios.strict import NonNegativeFloat as NonNegativeFloat
from scenarios.strict import PositiveFloat as PositiveFloat
from scenarios.strict import PositiveInt as PositiveInt
from scenarios.strict import Strict as Strict


def _whole(value: object) -> object:
    """Return the value; refuse what only equals a whole number, as true and 1.0 do."""
    if type(value) is not int:
        raise ValueError("input should be 1")
    return value


Port = Annotated[int, Field(ge=0, le=65535)]
# Longer than any start or request that somebody waits for: what exceeds it is no limit.
Deadline = Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)]
BlockDevice = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._!-]{0,63}$")]
RdmaPort = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}/[0-9]{1,3}$")]

# The three arms that G3 compares. A scenario may declare more.
RECOMPUTE, BASELINE, CANDIDATE = "recompute", "baseline", "candidate"
PROBE = (1, 2, 3)  # the prompt that every start is asked for one token of: healthy is not yet able to serve


class Medium(Strict):
    """The speed that an emulated tier is given, and the fault that it has for the suite's own controls."""

    read_bytes_per_s: PositiveInt
    read_latency_s: NonNegativeFloat = 0.0
    fault: Literal["none", "wrong-kv", "stores-nothing"] = "none"


class Tier(Strict):
    """A place where KV can be kept, as a folder of chunk files."""

    title: str
    kind: Literal["fs", "emulated"]
    path: str  # absolute: a mount of the lab; relative: below the run's own scratch folder
    direct_io: bool = True
    medium: Medium | None = None
    expected_read_bytes_per_s: PositiveFloat | None = None  # by the order; plans a run, judges nothing
    one_local_drive: bool = False  # said on the report's first page
    # What its reads come through, where counters tell: names in /sys/block, as "nvme0n1" (an array or its members, not
    # both), and "<device>/<port>" in /sys/class/infiniband, as "mlx5_0/1" (ports that carry nothing but the tier).
    block_devices: Annotated[tuple[BlockDevice, ...], Field(strict=False)] = ()
    rdma_ports: Annotated[tuple[RdmaPort, ...], Field(strict=False)] = ()

    @model_validator(mode="after")
    def _medium_fits_kind(self) -> Self:
        if (self.kind == "emulated") != (self.medium is not None):
            raise ValueError("medium: belongs to kind 'emulated' and to no other")
        if self.kind == "emulated" and not self.direct_io:
            raise ValueError("direct_io: an emulated tier must read around the page cache")
        return self

    @model_validator(mode="after")
    def _counts_nothing_twice(self) -> Self:
        for key, names in (("block_devices", self.block_devices), ("rdma_ports", self.rdma_ports)):
            if len(set(names)) != len(names):
                raise ValueError(f"{key}: names one of them twice, so that its bytes would count twice")
        return self


class ServedModel(Strict):
    """A model that the site can serve."""

    source: Literal["generated", "path"]
    path: str | None = None  # a folder, absolute; required for source 'path'
    kv_bytes_per_token: PositiveInt
    vocabulary_tokens: PositiveInt
    max_context_tokens: PositiveInt
    # What this site's accelerators could compute of this model at best, and how much of it recompute must reach to be
    # an honest opponent. Agreed before the run.
    prefill_roofline_tokens_per_s: PositiveFloat | None = None
    recompute_share_min: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] = 0.3

    @model_validator(mode="after")
    def _path_fits_source(self) -> Self:
        if (self.source == "path") != (self.path is not None):
            raise ValueError("path: belongs to source 'path' and to no other")
        return self


class Engine(Strict):
    """How vLLM's OpenAI server is started on this site."""

    policy: Literal["resident", "exclusive"]
    command: Annotated[tuple[str, ...], Field(min_length=1, strict=False)]
    args: Annotated[tuple[str, ...], Field(strict=False)] = ()
    env: dict[str, str] = Field(default_factory=dict)
    port: Port = 0  # 0: any free one
    ready_deadline_s: Deadline
    stall_s: Deadline = 60.0  # no progress of any kind for so long ends a start
    stop_deadline_s: Deadline = 20.0


class LMCache(Strict):
    """How the LMCache server is started on this site."""

    command: Annotated[tuple[str, ...], Field(min_length=1, strict=False)]
    args: Annotated[tuple[str, ...], Field(strict=False)] = ()
    env: dict[str, str] = Field(default_factory=dict)
    port: Port = 0
    http_port: Port = 0
    chunk_tokens: PositiveInt = 256
    dram_gb: PositiveFloat
    ready_deadline_s: Deadline = 60.0


class Pace(Strict):
    """What a run is planned with until G2 has measured it: stated by the site, judges nothing."""

    start_s: PositiveFloat  # of an engine, model loaded
    prefill_tokens_per_s: PositiveFloat
    decode_s_per_token: PositiveFloat
    sd: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] = 0.03  # of a block's log ratio


class Site(Strict):
    """A lab: its software, its models, its tiers."""

    schema_: Annotated[Literal[1], BeforeValidator(_whole), Field(alias="schema")]
    name: Name
    title: str
    rehearsal: bool = False
    work_dir: str = ".work"  # scratch: generated model, tiers with relative paths
    engine: Engine
    lmcache: LMCache
    models: Annotated[dict[Name, ServedModel], Field(min_length=1)]
    tiers: Annotated[dict[Name, Tier], Field(min_length=1)]
    # Criteria of the site's own, per gate: a name in gates/criteria, or a TOML file relative to the site's.
    pace: Pace | None = None
    # G2's record of the baseline (gates/baseline.py), relative to the site's file; a rehearsal needs none.
    baseline_record: Annotated[str, Field(min_length=1)] | None = None
    criteria: dict[Literal["g1", "g2", "g3", "g4"], Annotated[str, Field(min_length=1)]] = Field(default_factory=dict)
    bom: Bom | None = None  # what was ordered, for G1

    @model_validator(mode="after")
    def _stand_ins_are_a_rehearsal(self) -> Self:
        stands_in = any(t.kind == "emulated" for t in self.tiers.values())
        if not self.rehearsal and (stands_in or any(m.source == "generated" for m in self.models.values())):
            raise ValueError("rehearsal: must be true where a tier is emulated or a model generated")
        return self

    @model_validator(mode="after")
    def _raw_checks_know_their_model(self) -> Self:
        for name, raw in (self.bom.raw if self.bom is not None else {}).items():
            if raw.model is not None and raw.model not in self.models:
                raise ValueError(f"bom.raw.{name}.model: '{raw.model}' is none of this site's models")
        return self

    @model_validator(mode="after")
    def _tiers_lie_apart(self) -> Self:
        owners: dict[str, str] = {}
        for name, tier in self.tiers.items():
            owner = owners.setdefault(posixpath.normpath(tier.path), name)
            if owner != name:
                told = f"'{tier.path}' is the path of '{owner}', too; each tier needs a folder of its own"
                raise ValueError(f"tiers.{name}.path: {told}, or one would serve what the other stored")
        return self


class Arm(Strict):
    """An engine with one ordered list of tiers under its HBM and DRAM."""

    title: str
    tiers: Annotated[tuple[Name, ...], Field(max_length=1, strict=False)] = ()


class Workload(Strict):
    """What is sent: cold recovery of long prompts, in waves."""

    prompt_tokens: PositiveInt
    output_tokens: PositiveInt
    prompt_sets: Annotated[int, Field(ge=2, le=3)]
    waves_discarded: Annotated[int, Field(ge=0)] = 1
    waves_measured: PositiveInt = 5
    recompute_blocks: PositiveInt = 3
    recompute_waves: PositiveInt = 2
    request_deadline_s: Deadline
    # Each budget has a bound: what exceeds it is no scenario's honest need, and would let everything pass.
    client_lag_budget_s: Annotated[float, Field(gt=0, le=5, allow_inf_nan=False)]  # intended to real moment of sending
    # Shares of requests: first tokens that came in one read with a later event; first tokens other than recompute's.
    # The client's own bias, as a share of the smallest difference in TTFT that the criteria must resolve.
    client_bias_budget_share: Annotated[float, Field(gt=0, le=0.1, allow_inf_nan=False)] = 0.01
    first_shared_read_budget: Annotated[float, Field(ge=0, le=0.5, allow_inf_nan=False)] = 0.05
    first_token_mismatch_budget: Annotated[float, Field(ge=0, le=0.1, allow_inf_nan=False)] = 0.02
    # How far rounding may move a first token's log-probability, in nats, where recompute does not show it itself.
    first_logprob_noise: Annotated[float, Field(ge=0, le=0.5, allow_inf_nan=False)] = 0.2


class Scenario(Strict):
    """Model, workload, steps and arms of one gate run."""

    schema_: Annotated[Literal[1], BeforeValidator(_whole), Field(alias="schema")]
    name: Name
    title: str
    gate: Literal["g3"]
    model: Name
    steps: Annotated[tuple[PositiveInt, ...], Field(min_length=1, strict=False)]  # concurrency
    workload: Workload
    arms: dict[Name, Arm]

    @model_validator(mode="after")
    def _is_a_comparison(self) -> Self:
        if sorted(set(self.steps)) != list(self.steps):
            raise ValueError("steps: must rise and not repeat")
        for name in (RECOMPUTE, BASELINE, CANDIDATE):
            if name not in self.arms:
                raise ValueError(f"arms: '{name}' is missing; G3 compares recompute, baseline and candidate")
        for name, arm in self.arms.items():
            if (name == RECOMPUTE) != (not arm.tiers):
                raise ValueError(f"arms.{name}.tiers: '{RECOMPUTE}' has none, every other arm one")
        if self.arms[CANDIDATE].tiers == self.arms[BASELINE].tiers:
            told = f"'{self.arms[CANDIDATE].tiers[0]}' is the baseline's, too"
            raise ValueError(f"arms.{CANDIDATE}.tiers: {told}; a tier compared with itself shows nothing")
        return self

    def largest_step(self) -> int:
        """Return the highest concurrency: also the number of prompts in a set."""
        return self.steps[-1]

    def waves(self, arm: str) -> tuple[int, int]:
        """Return (discarded, measured) waves of one trial of `arm`."""
        return self.workload.waves_discarded, (
            self.workload.recompute_waves if arm == RECOMPUTE else self.workload.waves_measured
        )


def stored_tokens(prompt_tokens: int, chunk_tokens: int) -> int:
    """Return how many tokens of a stored prompt a tier can serve: whole chunks, and never the last token.

    The engine must compute at least one token to have something to sample from, so a prompt of whole chunks
    yields one token less than it stored.
    """
    return min(prompt_tokens // chunk_tokens * chunk_tokens, prompt_tokens - 1)
