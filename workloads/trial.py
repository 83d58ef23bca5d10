"""One trial: one arm at one step in one block. Discarded and measured waves, each proven cold by counters."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from scenarios import tiers
from scenarios.engine import LiveArm
from workloads import chunks, client, counters
from workloads.evidence import Run, RunDir
from workloads.prompts import PromptSpec

Json = dict[str, Any]
PENDING_DEADLINE_S = 120.0


class TrialFailed(RuntimeError):
    """One line: why a trial could not be carried through."""


@dataclass(frozen=True)
class TrialPlan:
    """Where a trial stands in the run, and its load."""

    arm: str
    step: int
    block: int
    position: int  # place of the arm in its block, from 0
    prompts: Sequence[PromptSpec]  # one per user
    output_tokens: int
    waves_discarded: int
    waves_measured: int
    request_deadline_s: float

    @property
    def name(self) -> str:
        """Return `<arm>/c<step>/b<nn>`: the trial's folder below raw/."""
        return f"{self.arm}/c{self.step}/b{self.block:02d}"


def run_trial(run: RunDir, live: LiveArm, plan: TrialPlan) -> None:
    """Carry the trial through and record it; what went wrong is in trial.json and raised as TrialFailed."""
    folder = f"raw/{plan.name}"
    facts: Json = {
        "arm": plan.arm,
        "step": plan.step,
        "block": plan.block,
        "start": live.start,
        "prompt_set": plan.prompts[0].prompt_set,
        "position": plan.position,
        "waves_discarded": plan.waves_discarded,
        "waves_measured": plan.waves_measured,
        "completed": False,
        "error": "interrupted",
    }
    run.write_json(f"{folder}/trial.json", facts)
    log_begin = live.engine.log.stat().st_size
    error: str | None = None
    try:
        for wave in range(plan.waves_discarded + plan.waves_measured):
            _run_wave(run, live, plan, wave, wave >= plan.waves_discarded)
            if fault := live.fault():
                raise TrialFailed(fault)
        _hash_again(run, live, plan)
    except (TrialFailed, tiers.TierError) as fault:
        error = str(fault)
        raise TrialFailed(error) from None
    else:
        facts["completed"] = True
    finally:
        if facts["completed"] or error is not None:
            run.write_json(f"{folder}/trial.json", {**facts, "error": error})
        with live.engine.log.open("rb") as log:
            log.seek(log_begin)
            run.write_bytes(f"{folder}/engine.log", log.read())


def _run_wave(run: RunDir, live: LiveArm, plan: TrialPlan, wave: int, measured: bool) -> None:
    folder = f"raw/{plan.name}"
    make_cold(live)
    orders = [
        client.Order(
            id=f"{plan.arm}-c{plan.step}-b{plan.block:02d}-w{wave}-{prompt.prompt_index}",
            prompt=prompt,
            output_tokens=plan.output_tokens,
            facts={
                "arm": plan.arm,
                "step": plan.step,
                "block": plan.block,
                "trial": plan.name,
                "wave": wave,
                "measured": measured,
                "prompt_set": prompt.prompt_set,
                "prompt_index": prompt.prompt_index,
            },
        )
        for prompt in plan.prompts
    ]
    before = counters.snapshot(live, wave, measured, "before")
    run.append(f"{folder}/counters.jsonl", before)
    records = client.run_wave(live.base_url, live.model_name, orders, plan.request_deadline_s)
    run.append_all(f"{folder}/requests.jsonl", records)
    run.append(f"{folder}/counters.jsonl", counters.settled(live, wave, measured, before, len(records)))


def _hash_again(run: RunDir, live: LiveArm, plan: TrialPlan) -> None:
    """Record what the sampled chunk files of the trial's prompt set are now. After the last snapshot of the trial."""
    if live.tier_folder is None:
        return
    number = plan.prompts[0].prompt_set
    names = [
        n
        for line in Run(run.path).populated(plan.arm)
        if line["prompt_set"] == number
        for n in line["chunks"]["hashes"]
    ]
    run.write_json(f"raw/{plan.name}/chunks.json", chunks.look(live.tier_folder, names))


def make_cold(live: LiveArm) -> None:
    """Wait until nothing is on its way into the tier, then empty the cache above it.

    Raises TrialFailed when stores stay pending; TierError when the server does not answer.
    """
    if live.cache is None:
        return
    wait_stored(live)
    live.cache.clear_dram()


def wait_stored(live: LiveArm, deadline_s: float = PENDING_DEADLINE_S) -> int:
    """Return 0 once LMCache reports, twice in a row, that no store is pending. Raises TrialFailed, TierError."""
    assert live.cache is not None  # noqa: S101  # the caller has looked
    end_s = time.monotonic() + deadline_s
    quiet = 0
    while quiet < 2:
        pending = live.cache.pending()
        quiet = quiet + 1 if pending == 0 else 0
        if time.monotonic() > end_s:
            raise TrialFailed(f"arm '{live.name}': {pending} stores still pending after {deadline_s:.0f} s")
        time.sleep(0.02)
    return 0
