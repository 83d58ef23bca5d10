"""A load in TOML: when it is sent, and what. Format: docs/load.md."""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Iterator
from itertools import repeat
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self, cast

from pydantic import Field, model_validator

from scenarios.load import Loaded, load_toml
from scenarios.model import NonNegativeFloat, PositiveFloat, Strict
from workloads import prompts, traces
from workloads.prompts import ComposedPrompt

Rate = Annotated[float, Field(ge=1e-6, le=1e6)]
Tokens = Annotated[int, Field(gt=0, le=traces.TOKENS_MAX)]
Count = Annotated[int, Field(gt=0, le=10_000_000)]


class _OneOf(Strict):
    """A table with exactly one of its sub-tables."""

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        names = list(type(self).model_fields)
        given = [name for name in names if getattr(self, name) is not None]
        if not given:
            raise ValueError(f"give exactly one of {', '.join(names)}")
        if len(given) > 1:
            # Named first: the key to look at.
            raise ValueError(f"{given[1]}: give exactly one of {', '.join(names)}; '{given[0]}' is there, too")
        return self

    @property
    def kind(self) -> str:
        """Return the name of the sub-table that was given."""
        return next(name for name in type(self).model_fields if getattr(self, name) is not None)


class _When(Strict):
    """When requests are sent, and by whom; as it stands: whenever somebody is free, by anybody."""

    count_key: ClassVar[str] = "requests"

    def count(self) -> int | None:
        """Return how many requests are sent; None: all of the trace."""
        return cast(int, getattr(self, self.count_key))

    def offsets_s(self, seed: int) -> Iterator[float | None]:
        """Yield the time of each request from the start of the load, without end; None: not set beforehand."""
        return repeat(None)

    def user_and_turn(self, index: int) -> tuple[int | None, int]:
        """Return whose request it is and how many that user has sent before."""
        return None, 0


class Waves(_When):
    """`users` requests at once, `waves` times; a wave begins when the one before has ended."""

    count_key: ClassVar[str] = "waves"
    users: Count
    waves: Count

    def count(self) -> int:
        return self.users * self.waves

    def user_and_turn(self, index: int) -> tuple[int, int]:
        return index % self.users, index // self.users


class Closed(_When):
    """`users` users, each sending its next request when its last has ended, until `requests` are sent."""

    users: Count
    requests: Count


class Open(_When):
    """`requests` requests at times that do not wait for answers: a Poisson process, or evenly spaced from 0."""

    rate_per_s: Rate
    spacing: Literal["poisson", "constant"]
    requests: Count

    def offsets_s(self, seed: int) -> Iterator[float]:
        draw = random.Random(_sub_seed(seed, "arrival"))  # noqa: S311  # reproducible on purpose
        t_ns = 0
        for index in range(self.requests):
            if self.spacing == "poisson":
                # Whole nanoseconds: machines differ in the last bit of a logarithm, and a sum would keep it. The gaps
                # are not stretched to meet the rate exactly: that would no longer be a Poisson process.
                t_ns += round(-math.log(1.0 - draw.random()) / self.rate_per_s * 1e9)
            else:
                t_ns = round(index / self.rate_per_s * 1e9)
            yield t_ns / 1e9


class TraceTimes(_When):
    """The trace's own times, divided by `speed`."""

    speed: Rate = 1.0

    def count(self) -> None:
        return None


class SessionTurns(_When):
    """`users` users at once, each with `turns` requests; a user thinks for `think_s` after each answer."""

    count_key: ClassVar[str] = "turns"
    users: Count
    turns: Count
    think_s: Annotated[float, Field(ge=0, le=86_400, allow_inf_nan=False)]

    def count(self) -> int:
        return self.users * self.turns

    def user_and_turn(self, index: int) -> tuple[int, int]:
        return index % self.users, index // self.users


class Arrival(_OneOf):
    """When requests are sent."""

    waves: Waves | None = None
    closed: Closed | None = None
    open: Open | None = None
    trace: TraceTimes | None = None
    sessions: SessionTurns | None = None

    @property
    def given(self) -> _When:
        """Return the sub-table that was given."""
        return cast(_When, getattr(self, self.kind))


class _Made(Strict):
    """Prompts made from a description; `longest_key` is the one to look at where they are too long."""

    longest_key: ClassVar[str]
    output_tokens: Tokens

    def make(self, seed: int, requests: int, users: int, vocabulary_tokens: int) -> Iterator[ComposedPrompt]:
        """Yield `requests` prompts or more."""
        raise NotImplementedError

    def longest_tokens(self, turns: int) -> int:
        """Return the length of the longest prompt."""
        raise NotImplementedError


class Unshared(_Made):
    """Prompts that share nothing."""

    longest_key: ClassVar[str] = "prompt_tokens"
    prompt_tokens: Tokens

    def make(self, seed: int, requests: int, users: int, vocabulary_tokens: int) -> Iterator[ComposedPrompt]:
        return prompts.unshared(seed, requests, self.prompt_tokens, vocabulary_tokens)

    def longest_tokens(self, turns: int) -> int:
        return self.prompt_tokens


class SharedPrefix(_Made):
    """Prompts of `groups` groups in turn; those of one group begin with the same `prefix_tokens`."""

    longest_key: ClassVar[str] = "prefix_tokens"
    groups: Count
    prefix_tokens: Tokens
    suffix_tokens: Tokens

    def make(self, seed: int, requests: int, users: int, vocabulary_tokens: int) -> Iterator[ComposedPrompt]:
        rounds = -(-requests // self.groups)
        return prompts.shared_prefix(
            seed, self.groups, rounds, self.prefix_tokens, self.suffix_tokens, vocabulary_tokens
        )

    def longest_tokens(self, turns: int) -> int:
        return self.prefix_tokens + self.suffix_tokens


class LongDocument(_Made):
    """Questions on `documents` documents, one on each in every round."""

    longest_key: ClassVar[str] = "document_tokens"
    documents: Count
    document_tokens: Tokens
    question_tokens: Tokens

    def make(self, seed: int, requests: int, users: int, vocabulary_tokens: int) -> Iterator[ComposedPrompt]:
        rounds = -(-requests // self.documents)
        return prompts.long_documents(
            seed, self.documents, self.document_tokens, rounds, self.question_tokens, vocabulary_tokens
        )

    def longest_tokens(self, turns: int) -> int:
        return self.document_tokens + self.question_tokens


class Sessions(_Made):
    """Conversations that grow; `output_tokens` is also the length of the answers that later prompts repeat."""

    longest_key: ClassVar[str] = "first_tokens"
    first_tokens: Tokens
    turn_tokens: Tokens

    def make(self, seed: int, requests: int, users: int, vocabulary_tokens: int) -> Iterator[ComposedPrompt]:
        turns = requests // users
        return prompts.sessions(
            seed, users, turns, self.first_tokens, self.turn_tokens, self.output_tokens, vocabulary_tokens
        )

    def longest_tokens(self, turns: int) -> int:
        return self.first_tokens + (turns - 1) * (self.output_tokens + self.turn_tokens)


class TraceFile(Strict):
    """The requests of a trace, or those of a window of it."""

    file: Annotated[str, Field(pattern=r"^[^\x00]+$")]  # relative: to the folder of the load file
    block_tokens: Tokens = traces.BLOCK_TOKENS
    first: Count | None = None
    from_s: NonNegativeFloat = 0.0
    to_s: PositiveFloat | None = None

    @model_validator(mode="after")
    def _window_has_a_length(self) -> Self:
        if self.to_s is not None and self.to_s <= self.from_s:
            raise ValueError("to_s: must be more than from_s")
        return self


class Prompts(_OneOf):
    """What is sent."""

    unshared: Unshared | None = None
    shared_prefix: SharedPrefix | None = None
    long_document: LongDocument | None = None
    sessions: Sessions | None = None
    trace: TraceFile | None = None

    @property
    def given(self) -> _Made | TraceFile:
        """Return the sub-table that was given."""
        return cast("_Made | TraceFile", getattr(self, self.kind))


class Load(Strict):
    """One load: when it is sent, and what."""

    schema_: Annotated[Literal[1], Field(alias="schema")]
    title: str
    arrival: Arrival
    prompts: Prompts

    @model_validator(mode="after")
    def _belong_together(self) -> Self:
        if self.arrival.trace and not self.prompts.trace:
            raise ValueError("arrival.trace: the times are those of a trace, so [prompts.trace] must name it")
        if bool(self.arrival.sessions) != bool(self.prompts.sessions):
            there = "arrival" if self.arrival.sessions else "prompts"
            raise ValueError(f"{there}.sessions: [arrival.sessions] and [prompts.sessions] need each other")
        return self


def read_load(path: Path) -> Loaded[Load]:
    """Return the load that the TOML file describes. Raises ConfigError: `file:line: key: reason`."""
    return load_toml(path, Load)


def _sub_seed(seed: int, use: str) -> int:
    return int.from_bytes(hashlib.sha256(f"kvgate/{seed}/{use}".encode()).digest()[:8], "big")
