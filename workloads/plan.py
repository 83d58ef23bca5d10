"""The plan that follows from a load: which prompt is sent when, by whom.

Everything follows from the load file, the trace it names and one seed, and is the same on every machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice, repeat

from scenarios.load import ConfigError, Loaded
from workloads import prompts, traces
from workloads.load import Arrival, Load, TraceFile
from workloads.prompts import ComposedPrompt


@dataclass(frozen=True, slots=True)
class Item:
    """One request of a plan."""

    index: int
    prompt: ComposedPrompt
    output_tokens: int
    t_offset_s: float | None  # from the start of the load; None: sent when its wave, user or turn is due
    user: int | None  # None: whoever is free
    turn: int  # of a session, or the number of the wave, from 0; else 0
    think_s: float  # to wait after the answer to this user's turn before; 0 for a first one


@dataclass(frozen=True)
class PlanFacts:
    """What a plan will send. `sharing`: as declared, with a cache without limit, in the order of the plan."""

    sharing: prompts.Sharing
    output_tokens: int
    longest_tokens: int  # prompt and output of one request
    last_offset_s: float | None  # None: it depends on the answers


@dataclass(frozen=True)
class Plan:
    """The requests of a load in the order of sending; can be gone through again and again."""

    arrival: Arrival
    requests: int
    make_items: Callable[[], Iterator[Item]]

    def __iter__(self) -> Iterator[Item]:
        """Yield the items, each made when asked for."""
        return self.make_items()

    def facts(self) -> PlanFacts:
        """Return what will be sent; goes through the whole plan without making any token."""
        output_tokens, longest, last_s = 0, 0, None

        def seen() -> Iterator[ComposedPrompt]:
            nonlocal output_tokens, longest, last_s
            for item in self:
                output_tokens += item.output_tokens
                longest = max(longest, item.prompt.tokens + item.output_tokens)
                last_s = item.t_offset_s
                yield item.prompt

        return PlanFacts(prompts.declared_sharing(seen()), output_tokens, longest, last_s)


def plan(loaded: Loaded[Load], seed: int, vocabulary_tokens: int, max_context_tokens: int | None = None) -> Plan:
    """Return the plan of a load for a model of that vocabulary and window (None: not checked).

    Raises ConfigError, before anything is sent: what was asked for cannot be. ValueError: a vocabulary under 2.
    """
    if vocabulary_tokens < 2:
        raise ValueError(f"a vocabulary of {vocabulary_tokens} tokens leaves no id beside 0")
    arrival = loaded.value.arrival
    when, given = arrival.given, loaded.value.prompts.given
    think_s = arrival.sessions.think_s if arrival.sessions else 0.0
    if isinstance(given, TraceFile):
        trace = _trace(loaded, given, max_context_tokens)
        requests = when.count() or len(trace.requests)
        if requests > len(trace.requests):
            raise _refuse(
                loaded,
                f"arrival.{arrival.kind}.{when.count_key}",
                f"{requests} requests are asked for, but the trace has {len(trace.requests)} in its window",
            )
    else:
        requests = when.count() or 0
        users = arrival.sessions.users if arrival.sessions else 1
        prompt_tokens = given.longest_tokens(requests // users)
        if max_context_tokens is not None and prompt_tokens + given.output_tokens > max_context_tokens:
            raise _refuse(
                loaded,
                f"prompts.{loaded.value.prompts.kind}.{given.longest_key}",
                f"prompt and output of {prompt_tokens} + {given.output_tokens} tokens exceed the model's "
                f"{max_context_tokens}",
            )

    def contents() -> Iterator[tuple[ComposedPrompt, int]]:
        if isinstance(given, TraceFile):
            outputs = (r.output_tokens for r in trace.requests)
            return zip(trace.prompts(seed, vocabulary_tokens), outputs, strict=True)
        return zip(given.make(seed, requests, users, vocabulary_tokens), repeat(given.output_tokens), strict=False)

    def offsets_s() -> Iterator[float | None]:
        return (r.timestamp_ms / 1000 for r in trace.requests) if arrival.trace else when.offsets_s(seed)

    def items() -> Iterator[Item]:
        both = zip(contents(), offsets_s(), strict=False)
        for index, ((prompt, output_tokens), t_offset_s) in enumerate(islice(both, requests)):
            user, turn = when.user_and_turn(index)
            yield Item(index, prompt, output_tokens, t_offset_s, user, turn, think_s if turn else 0.0)

    return Plan(arrival, requests, items)


def _trace(loaded: Loaded[Load], asked: TraceFile, max_context_tokens: int | None) -> traces.Trace:
    times = loaded.value.arrival.trace
    try:
        trace = traces.Trace.read(loaded.path.parent / asked.file, asked.block_tokens)
        trace = trace.window(
            first=asked.first, from_s=asked.from_s, to_s=asked.to_s, speed=times.speed if times else 1.0
        )
        if max_context_tokens is not None:
            trace.check_context(max_context_tokens)
    except traces.TraceError as error:
        raise _refuse(loaded, "prompts.trace.file", str(error)) from None
    return trace


def _refuse(loaded: Loaded[Load], key: str, reason: str) -> ConfigError:
    return ConfigError(f"{loaded.origins[key]}: {key}: {reason}")
