"""GuideLLM as a peer: how it is asked for a load, and how its report is read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.peers.failed import last_line
from bench.peers.peer import Load, Peer, PeerRequest, duration_s

# What GuideLLM needs of torch is a data loader. The default build would bring 5 GB of CUDA libraries with it; this
# one is the build that the CPU build of vLLM asks for.
TORCH = "torch==2.13.0+cpu"


class GuideLLM(Peer):
    """GuideLLM: up to ten worker processes, asyncio over httpx, `time.time`; keeps first and last token only."""

    name = "guidellm"
    distribution = "guidellm"
    requirements = ("guidellm==0.8.1", TORCH)

    def _argv(self, load: Load, work: Path, report: Path) -> list[str]:
        # A file, because its command line splits values at commas and equals signs, which a path may contain.
        config = work / "guidellm.json"
        config.write_text(json.dumps(self.config(load, self._tokenizer, report), indent=1), encoding="utf-8")
        return [str(self._python), "-m", "guidellm", "run", "--config", str(config), "--disable-console"]

    @staticmethod
    def config(load: Load, tokenizer: Path, report: Path) -> dict[str, Any]:
        """Return GuideLLM's own description of the run, to be given as `--config`."""
        spec = {
            "backend": {
                "kind": "openai_http",
                "target": load.base_url,
                "model": load.model,
                "request_format": "/v1/completions",
            },
            "profile": {"kind": "concurrent", "streams": [load.concurrency]},
            "constraints": [{"kind": "max_requests", "count": load.requests}],
            "tokenizer": {"kind": "huggingface_auto", "model": str(tokenizer)},
            "data": [
                {
                    "kind": "synthetic_text",
                    "prompt_tokens": load.prompt_tokens,
                    "output_tokens": load.output_tokens,
                }
            ],
            "seed": {"kind": "static", "value": load.seed},
            "outputs": [{"kind": "json", "path": str(report)}],
        }
        return {"spec": spec}

    @staticmethod
    def read(report: Mapping[str, Any]) -> tuple[PeerRequest, ...]:
        """Read the one benchmark of the report: Unix timestamps in seconds per request, by status."""
        (benchmark,) = report["benchmarks"]
        groups = benchmark["requests"]
        found = []
        for status in ("successful", "errored", "incomplete"):
            for one in groups[status] or ():
                times = one["info"]["timings"]
                start, first, last = (
                    times["request_start"],
                    times["first_token_iteration"],
                    times["last_token_iteration"],
                )
                tokens = times["token_iterations"]
                ok = status == "successful" and start is not None and first is not None
                told = last_line(one["info"].get("error") or "")
                found.append(
                    PeerRequest(
                        text=one["output"] or "",
                        ok=ok,
                        ttft_s=duration_s(first - start) if start is not None and first is not None else None,
                        itl_s=None,
                        mean_gap_s=duration_s(last - first) / (tokens - 1)
                        if first is not None and tokens > 1
                        else None,
                        started_s=start,
                        error="" if ok else told or status,
                    )
                )
        return tuple(found)
