"""Put every prompt set into an arm's tier once, and prove from its files that it is there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scenarios import tiers
from scenarios.engine import ArmPlan, LiveArm
from workloads import chunks, client, trial
from workloads.evidence import Run, RunDir
from workloads.prompts import PromptSpec

Json = dict[str, Any]


class PopulateFailed(RuntimeError):
    """One line: which set did not get into which tier, expected and found."""


def still_there(run: RunDir, arm: LiveArm | ArmPlan) -> None:
    """Raise PopulateFailed unless the arm's tier still holds every file that was found when its sets were stored.

    Raises TierFailed: the tier says that it is gone or broken.
    """
    if arm.tier_folder is None:
        return
    now = _listed(arm.name, arm.tier_folder)
    for line in Run(run.path).populated(arm.name):
        lost = [name for name, size in line["files"].items() if now.get(name) != size]
        if lost:
            raise PopulateFailed(
                f"arm '{arm.name}': {len(lost)} of {len(line['files'])} chunk files of set {line['prompt_set']} are "
                f"no longer in {arm.tier_folder} (the first: {lost[0]}): start a new run instead"
            )


def _listed(arm: str, folder: Path) -> dict[str, int]:
    try:
        return tiers.chunk_files(folder)
    except OSError as error:
        raise PopulateFailed(f"arm '{arm}': {folder} cannot be listed: {error.strerror}") from None


def populate(
    run: RunDir,
    live: LiveArm,
    sets: Sequence[Sequence[PromptSpec]],
    chunk_tokens: int,
    chunk_bytes: int,
    deadline_s: float,
    seed: int,
) -> None:
    """Send each prompt once, wait until it is stored, and record the chunk files that appeared.

    A sample of them is hashed at once (`seed` is the run's), to be compared after each trial.

    Raises PopulateFailed when the tier does not hold every whole chunk of a set afterwards: an arm whose store was
    never confirmed must not be measured. TrialFailed or TierError when it cannot be asked, TierFailed when the tier
    says that it is gone or broken.
    """
    if live.cache is None or live.tier_folder is None:
        return
    for number, prompts in enumerate(sets):
        before = _listed(live.name, live.tier_folder)
        records: list[Json] = []
        # One at a time: storing is no part of what is measured, and a burst would only be slower.
        for prompt in prompts:
            order = client.Order(
                id=f"{live.name}-populate-s{number}-{prompt.prompt_index}",
                prompt=prompt,
                output_tokens=1,
                facts={
                    "arm": live.name, "step": None, "block": None, "trial": None, "wave": None, "measured": False,
                    "prompt_set": prompt.prompt_set, "prompt_index": prompt.prompt_index,
                },
            )  # fmt: skip
            records += client.run_wave(live.base_url, live.model_name, [order], deadline_s)
        pending = trial.wait_stored(live)
        after = _listed(live.name, live.tier_folder)
        files = {name: size for name, size in sorted(after.items()) if name not in before}
        expected = sum(prompt.tokens // chunk_tokens for prompt in prompts)
        failed = [record["error"] for record in records if record["status"] != "ok"]
        short = [name for name, size in files.items() if size != chunk_bytes]
        looked = chunks.look(live.tier_folder, chunks.sample(seed, number, files))
        confirmed = not failed and not short and len(files) >= expected and pending == 0
        run.append(
            f"raw/{live.name}/populate.jsonl",
            {
                "arm": live.name,
                "prompt_set": number,
                "start": live.start,
                "prompts": len(prompts),
                "expected_chunks": expected,
                "files": files,
                "chunks": looked,
                "pending": pending,
                "confirmed": confirmed,
                "requests": records,
            },
        )
        if failed:
            raise PopulateFailed(
                f"arm '{live.name}': set {number}: {len(failed)} of {len(prompts)} requests failed: {failed[0]}"
            )
        if not confirmed:
            raise PopulateFailed(
                f"arm '{live.name}': set {number}: {len(files)} of {expected} chunks lie in {live.tier_folder}"
                + (f", {len(short)} of them not of {chunk_bytes} bytes" if short else "")
                + ": the tier does not keep what the engine computes, so nothing would be read back"
            )
        for name, fault in looked["faults"].items():
            if fault in tiers.OF_THE_TIER:
                raise tiers.TierFailed(f"{live.tier_folder / name}: just stored, and cannot be read ({fault})")
