"""The requests of a made-up run, each with its times, as the client records them."""

from __future__ import annotations

from typing import Any

from tests.synthetic_host import EPOCH_OFFSET_NS, Host
from workloads import calibrate
from workloads.prompts import PromptSpec

Json = dict[str, Any]


def likely(token: int) -> dict[str, float]:
    """Return log-probabilities of a first token and four runners-up, none of them near."""
    return {f"token_id:{(token + 37 * i) % 1024}": -1.0 - i for i in range(5)}


def prompt(host: Host, prompt_set: int, index: int) -> PromptSpec:
    """Return one prompt of a set."""
    tokens = host.scenario.workload.prompt_tokens
    return PromptSpec(
        seed=host.truth.seed, prompt_set=prompt_set, prompt_index=index, tokens=tokens, vocabulary_tokens=1024
    )


def alone(host: Host, prompt_tokens: int, output_tokens: int) -> Json:
    """Return what all records hold of the lengths and times of a request that is sent alone."""
    sent_ns, host.now_ns = host.now_ns, host.now_ns + 1_000_000_000
    return {
        "t_sent_ns": sent_ns, "t_first_ns": host.now_ns, "t_last_ns": host.now_ns,
        "prompt_tokens_expected": prompt_tokens, "output_tokens_expected": output_tokens,
        "usage": {"prompt_tokens": prompt_tokens, "completion_tokens": output_tokens},
    }  # fmt: skip


def storing(host: Host, arm: str, prompt_set: int, index: int) -> Json:
    """Return the request by which a prompt is stored, 4 s after what was before it."""
    spec = prompt(host, prompt_set, index)
    sent_ns, host.now_ns = host.now_ns + 1_000_000, host.now_ns + 4_000_000_000
    return {
        "id": f"{arm}-populate-s{prompt_set}-{index}", "arm": arm, "step": None, "block": None, "trial": None,
        "wave": None, "measured": False, "prompt_set": prompt_set, "prompt_index": index,
        "prompt_seed": spec.prompt_seed(), "prompt_tokens_expected": spec.tokens, "output_tokens_expected": 1,
        "t_intended_ns": sent_ns, "t_sent_ns": sent_ns, "t_first_ns": host.now_ns, "t_last_ns": host.now_ns,
        "clock": "user", "clock_offset_ns": EPOCH_OFFSET_NS, "status": "ok", "error": None,
        "usage": {"prompt_tokens": spec.tokens, "completion_tokens": 1},
    }  # fmt: skip


def calibrated(host: Host, step: int, wave: int, index: int, t_ns: int) -> tuple[Json, Json]:
    """Return (the client's record, the server's) of a request of the calibration that is sent at `t_ns`."""
    first_ns = t_ns + 40_000_000 + 20_000
    record: Json = {
        "id": f"calibration-c{step}-w{wave}-{index}", "step": step, "wave": wave,
        "prompt_seed": prompt(host, 0, index).prompt_seed(), "prompt_tokens_expected": prompt(host, 0, index).tokens,
        "output_tokens_expected": calibrate.TOKENS, "t_intended_ns": t_ns, "t_sent_ns": t_ns,
        "clock": "user", "clock_offset_ns": EPOCH_OFFSET_NS, "t_first_ns": first_ns,
        "t_last_ns": first_ns + 30_000_000, "status": "ok", "error": None,
    }  # fmt: skip
    line: Json = {
        "number": wave * step + index, "id": record["id"], "t_received_ns": t_ns + EPOCH_OFFSET_NS,
        "t_sent_ns": [t_ns + EPOCH_OFFSET_NS + 40_000_000 + i * 10_000_000 for i in range(calibrate.TOKENS)],
    }  # fmt: skip
    host.truth.calibration(record)
    host.truth.server(line)
    return record, line


def of_wave(
    host: Host, arm: str, step: int, block: int, wave: int, measured: bool, index: int, prompt_set: int, factor: float
) -> Json:
    """Return a request of a trial's wave; `factor`: what the noise makes of all the times of the trial."""
    load = host.scenario.workload
    spec = prompt(host, prompt_set, index)
    sent_ns = host.now_ns + 1_000_000
    ttft_s = host.truth.ttft_at_s.get((arm, step), host.truth.ttft_s[arm])
    ttft_s = host.truth.ttft_in_s.get((arm, block), ttft_s)
    late_s = host.truth.late_s.get(arm, 0.0) if index == 0 else 0.0
    first_ns = sent_ns + int((ttft_s * step / 2 + late_s) * factor * 1e9)
    decode_ns = int(host.truth.decode_at_s.get(arm, host.truth.decode_s) * factor * 1e9)
    last_ns = first_ns + decode_ns + int(host.truth.stall_s.get(arm, 0.0) * 1e9)
    gaps = load.output_tokens - 1
    return {
        "id": f"{arm}-c{step}-b{block:02d}-w{wave}-{index}",
        "arm": arm,
        "step": step,
        "block": block,
        "trial": f"{arm}/c{step}/b{block:02d}",
        "wave": wave,
        "measured": measured,
        "prompt_set": prompt_set,
        "prompt_index": index,
        "prompt_seed": spec.prompt_seed(),
        "prompt_tokens_expected": load.prompt_tokens,
        "output_tokens_expected": load.output_tokens,
        "t_intended_ns": host.now_ns,
        "t_sent_ns": sent_ns,
        "t_first_ns": first_ns,
        "t_last_ns": last_ns,
        "clock": "user",
        "clock_offset_ns": EPOCH_OFFSET_NS,
        "chunk_ns": [*(decode_ns * i // gaps for i in range(gaps)), last_ns - first_ns],
        "chunk_tokens": [1] * load.output_tokens,
        "first_shared_read": False,
        "text": "x",
        "first_logprobs": likely(spec.prompt_seed() % 1024),
        "output_token_ids": [spec.prompt_seed() % 1024] * load.output_tokens,
        "usage": {"prompt_tokens": load.prompt_tokens, "completion_tokens": load.output_tokens},
        "finish_reason": "length",
        "status": "ok",
        "error": None,
    }
