"""The official `openai` client in a closed loop, as a load generator of its own: what it would cost to measure with it.

`python -m bench.official URL USERS REQUESTS OUTPUT_TOKENS PROMPT_TOKENS OUT` writes a JSON list, a request each:
`text`, `ttft_s`, `gaps_s`. Its clock is the user's: the client hands over what it has read, not when it came in.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
import time
from pathlib import Path
from typing import Any

import httpx2
import openai

from workloads import timing_server
from workloads.prompts import ComposedPrompt, unshared

DEADLINE_S = 120.0


async def _load(url: str, users: int, requests: int, output_tokens: int, prompt_tokens: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    prompts = unshared(1, requests, prompt_tokens, vocabulary_tokens=1000)
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None)
    http = httpx2.AsyncClient(limits=limits, trust_env=False)

    async def send(client: openai.AsyncOpenAI, prompt: ComposedPrompt) -> None:
        begin_s = time.perf_counter()
        stamps_s: list[float] = []
        words: list[str] = []
        stream = await client.completions.create(
            model=timing_server.MODEL,
            prompt="",
            max_tokens=output_tokens,
            stream=True,
            stream_options={"include_usage": True},
            # Typed token ids are walked through one by one, which costs more than all the rest.
            extra_body={"prompt": prompt.token_ids()},
        )
        async for chunk in stream:
            if chunk.choices and chunk.choices[0].text:
                stamps_s.append(time.perf_counter())
                words.append(chunk.choices[0].text)
        gaps_s = [after - before for before, after in itertools.pairwise(stamps_s)]
        found.append({"text": "".join(words), "ttft_s": stamps_s[0] - begin_s, "gaps_s": gaps_s})

    async with openai.AsyncOpenAI(
        base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=DEADLINE_S, http_client=http
    ) as client:

        async def user() -> None:
            for prompt in prompts:
                await send(client, prompt)

        await asyncio.gather(*(user() for _ in range(users)))
    return found


def main(argv: list[str]) -> int:
    """Send the load and write what was seen."""
    url, users, requests, output_tokens, prompt_tokens, out = argv
    found = asyncio.run(_load(url, int(users), int(requests), int(output_tokens), int(prompt_tokens)))
    Path(out).write_text(json.dumps(found), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
