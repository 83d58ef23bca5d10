"""What the tiers were filled with: every prompt of every set, sent once, for this arm, before anything was measured."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

from gates.validity.breach import HARNESS, Tell
from gates.validity.records import Sketch
from workloads.evidence import Run
from workloads.prompts import PromptSpec

Json = dict[str, Any]

CHECK = "populate"


def check_stored_prompts(run: Run, trials: Sequence[Sketch], tell: Tell) -> None:
    """Tell where a prompt set's requests are not those that had to store it. Raises what is in MISSHAPEN.

    Whether a set is there at all, and whole, is looked at elsewhere.
    """
    first_ns = min((trial.begin_ns for trial in trials if trial.begin_ns is not None), default=None)
    chunk_tokens = int(run.facts["site"]["lmcache"]["chunk_tokens"])
    for arm in run.facts["scenario"]["arms"]:
        starts = [start["start"] for start in run.starts(arm)]
        files: dict[int, set[str]] = {}
        for line in run.populated(arm):
            number = int(line["prompt_set"])
            place = f"arm '{arm}': prompt set {number}"
            files.setdefault(number, set()).update(line["files"])
            if line["arm"] != arm or starts.count(line["start"]) != 1:
                tell(CHECK, HARNESS, f"{place}: a record of arm {line['arm']!r}, start {line['start']!r}")
            for fault in _faults(run, arm, line, chunk_tokens, first_ns):
                tell(CHECK, HARNESS, f"{place}: {fault}")
        for (one, mine), (other, theirs) in combinations(sorted(files.items()), 2):
            if mine & theirs:
                told = f"{len(mine & theirs)} chunk files belong to both prompt sets {one} and {other}"
                tell(CHECK, HARNESS, f"arm '{arm}': {told}")


def _faults(run: Run, arm: str, line: Json, chunk_tokens: int, first_ns: int | None) -> list[str]:
    scenario = run.facts["scenario"]
    tokens, prompts = int(scenario["workload"]["prompt_tokens"]), max(scenario["steps"])
    requests = line["requests"]
    if (line["prompts"], len(requests)) != (prompts, prompts):
        return [f"{len(requests)} requests of {line['prompts']} prompts, {prompts} expected"]
    faults = []
    if line["expected_chunks"] != prompts * (tokens // chunk_tokens):
        faults.append(f"{line['expected_chunks']} chunks expected, {prompts * (tokens // chunk_tokens)} is right")
    for index, r in enumerate(requests):
        spec = PromptSpec(
            seed=int(run.facts["seed"]),
            prompt_set=int(line["prompt_set"]),
            prompt_index=index,
            tokens=tokens,
            vocabulary_tokens=1,  # no part of the prompt's seed
        )
        wanted: Json = {
            "id": f"{arm}-populate-s{line['prompt_set']}-{index}", "arm": arm, "wave": None,
            "prompt_set": line["prompt_set"], "prompt_index": index, "prompt_seed": spec.prompt_seed(),
            "prompt_tokens_expected": tokens, "output_tokens_expected": 1, "status": "ok", "error": None,
        }  # fmt: skip
        odd = [f"{key} {r[key]!r}, not {value!r}" for key, value in wanted.items() if r[key] != value]
        if r["usage"] is None or r["usage"]["prompt_tokens"] != tokens:
            odd.append(f"usage {r['usage']!r}")
        if odd:
            faults.append(f"request {index}: {odd[0]}")
            break
        stamps = [r["t_intended_ns"], r["t_sent_ns"], r["t_first_ns"], r["t_last_ns"]]
        if first_ns is not None:
            stamps.append(first_ns)
        if any(type(stamp) is not int for stamp in stamps) or sorted(stamps) != stamps:
            faults.append(f"request {index} was not sent and answered before the first trial")
            break
    return faults
