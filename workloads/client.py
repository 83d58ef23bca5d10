"""The streaming client: sends one request and records timestamps and tokens; derives nothing.

Requests go through the official client with its retries off, one connection each. A request's send time is taken
when its last byte has gone to the socket, so connecting is no part of TTFT; a read is stamped as it returns and
decoded after the stream has ended. The clock is the user's (CLOCK_MONOTONIC at the read).
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import httpx2
import openai

from workloads import arrival, sse
from workloads.prompts import PromptSpec

Json = dict[str, Any]
_SENT_NS: contextvars.ContextVar[list[int]] = contextvars.ContextVar("sent_ns")


@dataclass(frozen=True)
class Order:
    """One request to be sent, and the facts of the plan that its record repeats."""

    id: str
    prompt: PromptSpec
    output_tokens: int
    facts: Json


def run_wave(base_url: str, model_name: str, orders: Sequence[Order], deadline_s: float) -> list[Json]:
    """Send all orders at once and return a record each (docs/evidence.md), failed ones included.

    Never raises for what a server does: that is in the records.
    """
    # Prompts are made before the clock runs, and no collection of garbage falls into the measurement.
    prepared = [(order, order.prompt.token_ids()) for order in orders]
    gc.collect()
    gc.disable()
    try:
        return asyncio.run(_run_wave(base_url, model_name, prepared, deadline_s))
    finally:
        gc.enable()


async def _run_wave(
    base_url: str, model_name: str, prepared: Sequence[tuple[Order, list[int]]], deadline_s: float
) -> list[Json]:
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None)
    http = httpx2.AsyncClient(limits=limits, trust_env=False, event_hooks={"request": [_watch_sending]})
    client = openai.AsyncOpenAI(
        base_url=f"{base_url}/v1", api_key="none", max_retries=0, timeout=deadline_s, http_client=http
    )

    async def send(order: tuple[Order, list[int]], t_intended_ns: int) -> Json:
        return await _send(client, model_name, order[0], order[1], t_intended_ns, deadline_s)

    async with client:
        return await arrival.wave(send, prepared)


async def _send(
    client: openai.AsyncOpenAI,
    model_name: str,
    order: Order,
    token_ids: list[int],
    t_intended_ns: int,
    deadline_s: float,
) -> Json:
    sent_ns: list[int] = []
    _SENT_NS.set(sent_ns)
    reads: list[sse.Read] = []
    error: str | None = None
    try:
        async with (
            asyncio.timeout(deadline_s),
            client.completions.with_streaming_response.create(
                model=model_name,
                prompt="",
                max_tokens=order.output_tokens,
                temperature=0,
                stream=True,
                stream_options={"include_usage": True},
                logprobs=1,
                # The client walks through every element of a typed argument, 0.1 s for 4096 ids; the extra body
                # it takes as it is.
                extra_body={"prompt": token_ids, "ignore_eos": True, "return_tokens_as_token_ids": True},
                extra_headers={"Accept-Encoding": "identity"},
            ) as response,
        ):
            async for data in response.iter_bytes():
                reads.append(sse.Read(time.monotonic_ns(), data))
    except TimeoutError:
        error = f"no end within the deadline of {deadline_s:g} s"
    except openai.APIStatusError as fault:
        error = f"HTTP {fault.status_code}: {' '.join(str(fault.message).split())[:300]}"
    except (openai.OpenAIError, httpx2.HTTPError, OSError) as fault:
        error = f"{type(fault).__name__}: {' '.join(str(fault).split())[:300]}"
    outcome = sse.outcome(sse.events(reads))
    if error is not None:
        outcome = {**outcome, "status": "failed", "error": error}
    return {
        "id": order.id,
        **order.facts,
        "prompt_set": order.prompt.prompt_set,
        "prompt_index": order.prompt.prompt_index,
        "prompt_seed": order.prompt.prompt_seed(),
        "prompt_tokens_expected": order.prompt.tokens,
        "output_tokens_expected": order.output_tokens,
        "t_intended_ns": t_intended_ns,
        "t_sent_ns": sent_ns[-1] if sent_ns else None,
        "clock": "user",
        "clock_offset_ns": clock_offset_ns(),
        **outcome,
    }


def clock_offset_ns() -> int:
    """Return CLOCK_REALTIME minus CLOCK_MONOTONIC, ns: constant unless somebody steps the clock."""
    before_ns = time.monotonic_ns()
    realtime_ns = time.time_ns()
    return realtime_ns - (before_ns + time.monotonic_ns()) // 2


async def _watch_sending(request: httpx2.Request) -> None:
    """Have the transport tell when the request's last byte went to the socket."""
    sent_ns = _SENT_NS.get()

    async def trace(name: str, _info: object) -> None:
        if name.endswith(".send_request_body.complete"):
            sent_ns.append(time.monotonic_ns())

    watch: Callable[[str, object], Awaitable[None]] = trace
    request.extensions["trace"] = watch
