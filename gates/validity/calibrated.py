"""Is the calibration one of this run: its concurrency, prompts, clock and boot, and before all that it vouches for?

The size of the bias is judged in `calibration`; here, whether what it was computed from can have happened.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from gates.metrics import NS
from gates.validity.breach import HARNESS, Tell
from gates.validity.records import Sketch
from workloads.calibrate import FOLDER, REQUESTS_MIN, TOKENS
from workloads.evidence import Run, read_jsonl
from workloads.prompts import PromptSpec

Json = dict[str, Any]

CHECK = "calibration"
# What happens later has a later stamp: by more than two readings of two clocks differ.
STAMPS_NS = 1_000_000


def check_calibrated(run: Run, trials: Sequence[Sketch], tell: Tell) -> None:
    """Tell of every step whose calibration is not this run's. Raises what is in MISSHAPEN.

    What is not there at all is told by `check_calibration`.
    """
    clocks = {clock for trial in trials for clock in trial.clocks}
    began = [trial.begin_ns for trial in trials if trial.begin_ns is not None]
    for arm in run.facts["scenario"]["arms"]:
        began += [r["t_sent_ns"] for line in run.populated(arm) for r in line["requests"] if r["status"] == "ok"]
    ended_ns, ended = None, 0
    for step in [int(step) for step in run.facts["scenario"]["steps"]]:
        folder = run.path / FOLDER / f"c{step}"
        if not (folder / "requests.jsonl").exists() or not (folder / "server.jsonl").exists():
            continue
        requests, lines = list(read_jsonl(folder / "requests.jsonl")), list(read_jsonl(folder / "server.jsonl"))
        for fault in _ordered(run, step, requests) or _happened(requests, lines):
            tell(CHECK, HARNESS, f"concurrency {step}: {fault}")
            break
        else:
            begin_ns, end_ns = (f(r[key] for r in requests) for f, key in ((min, "t_sent_ns"), (max, "t_last_ns")))
            if ended_ns is not None and begin_ns < ended_ns:
                tell(CHECK, HARNESS, f"concurrency {step}: was calibrated while concurrency {ended} still was")
            ended_ns, ended = end_ns, step
            if began and min(began) < end_ns:
                late_s = (end_ns - min(began)) * NS
                tell(CHECK, HARNESS, f"concurrency {step}: ended {late_s:.3f} s after the first prompt was measured")
        used = {str(r["clock"]) for r in requests}
        if len(used) != 1 or (clocks and used != clocks):
            told = f"stamped by the clock {' and '.join(sorted(used))}, the trials by {' and '.join(sorted(clocks))}"
            tell(CHECK, HARNESS, f"concurrency {step}: {told}: it says nothing of them")


def _ordered(run: Run, step: int, requests: Sequence[Json]) -> list[str]:
    """Return what of the requests is not what a calibration orders."""
    load, waves = run.facts["scenario"]["workload"], math.ceil(REQUESTS_MIN / step)
    if len(requests) != waves * step:
        return [f"{len(requests)} requests in its calibration, {waves} waves of {step} expected"]
    for place, r in enumerate(requests):
        wave, index = divmod(place, step)
        spec = PromptSpec(
            seed=int(run.facts["seed"]),
            prompt_set=0,
            prompt_index=index,
            tokens=int(load["prompt_tokens"]),
            vocabulary_tokens=1,  # no part of the prompt's seed
        )
        wanted: Json = {
            "id": f"calibration-c{step}-w{wave}-{index}", "step": step, "wave": wave,
            "prompt_seed": spec.prompt_seed(), "prompt_tokens_expected": spec.tokens, "output_tokens_expected": TOKENS,
        }  # fmt: skip
        odd = [f"{key} {r[key]!r}, not {value!r}" for key, value in wanted.items() if r[key] != value]
        if odd:
            return [f"request {place} of its calibration has the {odd[0]}"]
    return []


def _happened(requests: Sequence[Json], lines: Sequence[Json]) -> list[str]:
    """Return what of the stamps cannot have happened, or not at this concurrency."""
    truth = {str(line["id"]): line for line in lines}
    if len(lines) != len(requests) or len(truth) != len(lines):
        return [f"{len(lines)} lines in the server's log, {len(requests)} requests in the client's"]
    waves: dict[int, list[Json]] = {}
    for r in requests:
        told = truth.get(str(r["id"]))
        if told is None or r["status"] != "ok":
            return []  # told with the bias
        sent_ns = told["t_sent_ns"]
        stamps = [r["t_sent_ns"] + r["clock_offset_ns"], told["t_received_ns"], sent_ns[0]]
        seen = [r["t_first_ns"] + r["clock_offset_ns"], r["t_last_ns"] + r["clock_offset_ns"]]
        if any(type(stamp) is not int for stamp in (*stamps, *sent_ns, *seen)):
            return [f"{r['id']}: a stamp is no whole number"]
        steps = [*pairwise((*stamps, *seen)), *pairwise(sent_ns), (sent_ns[-1], seen[1])]
        steps.append((r["t_intended_ns"], r["t_sent_ns"]))
        if any(later - earlier < -STAMPS_NS for earlier, later in steps):
            return [f"{r['id']}: sent, received, answered and seen are not in this order"]
        if len(sent_ns) != TOKENS:
            return [f"{r['id']}: the server sent {len(sent_ns)} tokens, {TOKENS} ordered"]
        waves.setdefault(int(r["wave"]), []).append(r)
    for number, wave in waves.items():
        if max(r["t_sent_ns"] for r in wave) > min(r["t_last_ns"] for r in wave):
            return [f"wave {number} of its calibration was not sent at once: a request ended before another was sent"]
    for (one, earlier), (other, later) in pairwise(sorted(waves.items())):
        if min(r["t_sent_ns"] for r in later) < max(r["t_last_ns"] for r in earlier):
            return [f"wave {other} of its calibration was sent before wave {one} had ended"]
    return []
