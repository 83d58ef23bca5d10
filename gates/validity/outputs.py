"""Right answers: for the same prompt every arm must begin its answer as recompute begins it.

KV that was stored and read back is what recompute computes afresh, and decoding is greedy, so the first token and its
log-probability differ only where the KV is wrong or where rounding decides. How much rounding does is what recompute
shows against itself on the site. Later tokens are not compared: one near tie, and two sound answers part for good.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from gates.validity.answers import (
    ALLOWED_MAX,
    Reading,
    allowed_distance,
    by_prompt,
    floor_of,
    nearest,
    right_tokens,
)
from gates.validity.breach import HARNESS, Breach, Tell
from gates.validity.chunks import compare_stores
from gates.validity.control import check_control
from gates.validity.digest import digest
from gates.validity.needles import check_needles
from gates.validity.packed import Packed, Reference, Whole
from gates.validity.records import name_of
from scenarios.model import BASELINE, RECOMPUTE
from workloads.evidence import EvidenceError, Run

CHECK = "output-equality"
WRONG_PROMPT = "wrong-prompt"
# Breaches by which a trial's records are not what was asked for: then its outputs say nothing of the arm.
OF_THE_RECORDS = ("readable", "complete", "requests", "counters", "lengths", "tokens", "status")
# A recompute arm that agrees with itself less than this sees no exchanged chunk either.
FLOOR_MAX = 0.1

Prompts = dict[int, list[Reading]]  # by the prompts' seeds
# Prompt seed -> the first token ids that count as right; more than one where rounding decides between them.
Right = dict[int, frozenset[int]]


@dataclass
class Answers:
    """What one arm answered, trial by trial."""

    trials: list[Packed] = field(default_factory=list)

    def readings(self, but: Right) -> Prompts:
        """Return the readings, one by one, of every prompt that is not in `but`."""
        return by_prompt(
            packed.reading(row)
            for packed in self.trials
            for row in np.flatnonzero(~np.isin(packed.seeds, list(but))).tolist()
        )


def check_outputs(run: Run, trials: Mapping[str, Sequence[Breach]]) -> tuple[list[Breach], list[str]]:
    """Return (breaches, a line per comparison on what was found). `trials`: those that were checked, and how.

    Allowed is a distance of `first_logprob_noise` nats in the log-probabilities of the first token and its runners-up,
    or twice the largest that recompute shows between two of its own readings of one prompt. Tokens within it of
    recompute's best one are near ties: any of them is right. Then for each arm

    - a prompt is wrong where more than half of its readings in one trial are farther off: the arm's fault, were it one
      of a thousand;
    - the share of readings that are farther off, and the share of first ids that are not right, over the whole run,
      must not exceed `first_token_mismatch_budget`, or recompute's own disagreement where that is more. They are
      compared as shares however few the requests are: at the default of 2 % no odd one among fewer than 50 passes.

    The reference is made of recompute's valid trials; of the others every completed trial counts whose records hold.
    Prompts without a reference compare with the baseline; which of the two was wrong then nobody can say, so that it
    is the harness's. What is within the budget is told with the verdict. The positive control, the needles and the
    two stores' bytes are judged here, too. Raises what is in MISSHAPEN.
    """
    arms = _answers(run, trials)
    found: list[Breach] = []
    lines: list[str] = []

    def tell(check: str, whose: str, reason: str) -> None:
        found.append(Breach(check, whose, reason, "run"))

    for arm, mine in arms.items():
        untold = sum(packed.without_ids for packed in mine.trials)
        if untold:
            total = untold + sum(len(packed.seeds) for packed in mine.trials)
            first = next(packed.first_without_ids for packed in mine.trials if packed.without_ids)
            told = f"{untold} of {total} successful requests name no token id, the first"
            tell(CHECK, HARNESS, f"{arm}: no data on its outputs: {told}: {first}")
    load = run.facts["scenario"]["workload"]
    recompute = arms.pop(RECOMPUTE, Answers()).readings({})
    allowed = _allowed(run, recompute, float(load["first_logprob_noise"]), tell)
    right = {seed: right_tokens(readings, allowed) for seed, readings in recompute.items()}
    total = sum(len(readings) for readings in recompute.values())
    odd = sum(reading.token not in right[seed] for seed, readings in recompute.items() for reading in readings)
    itself = f"{RECOMPUTE} differs from itself in {odd} of {total}"
    if total and odd / total > FLOOR_MAX:
        told = f"{itself} first tokens, {FLOOR_MAX * 100:g} % allowed: it is no reference for the other arms"
        tell(CHECK, HARNESS, told)
    budget = max(float(load["first_token_mismatch_budget"]), odd / total if total else 0.0)
    unknown = arms.get(BASELINE, Answers()).readings(right)
    for arm, mine in arms.items():
        for other, believed, whose in ((RECOMPUTE, recompute, arm), (BASELINE, unknown, HARNESS)):
            if arm != other and believed:
                lines += _compare(run, arm, mine, other, believed, whose, allowed, (budget, itself), tell)
    lines += check_control(run, allowed, tell)
    lines += check_needles(run, tell)
    lines += compare_stores(run, tell)
    return found, lines


def _allowed(run: Run, recompute: Prompts, agreed: float, tell: Tell) -> float:
    """Return how many nats a reading may be off; tell where recompute's own readings say that nothing can be seen."""
    blank = next((r for readings in recompute.values() for r in readings if not r.likely), None)
    if blank is not None:
        request = _request(run, blank)
        tell(CHECK, HARNESS, f"{RECOMPUTE}: no data on the log-probabilities of {request}: it is no reference")
        return agreed
    floor = floor_of(recompute)
    if allowed_distance(floor, agreed) > ALLOWED_MAX:
        told = f"{RECOMPUTE}'s own readings of one prompt lie up to {floor:.3f} nats apart, {ALLOWED_MAX / 2:g} allowed"
        tell(CHECK, HARNESS, f"{told}: it is no reference for the other arms")
    return min(allowed_distance(floor, agreed), ALLOWED_MAX)


def _compare(
    run: Run, arm: str, mine: Answers, other: str, believed: Prompts, whose: str, allowed: float,
    floor: tuple[float, str], tell: Tell,
) -> list[str]:  # fmt: skip
    """Tell what of an arm's readings is not the believed arm's; return a line on it, or none where none compare."""
    right = {seed: right_tokens(readings, allowed) for seed, readings in believed.items()}
    reference = Reference(believed)
    compared = odd = far = 0
    prompts: set[int] = set()
    first: Reading | None = None  # whose token is not right
    wrong, first_wrong = 0, ""  # prompts, counted by trial
    for packed in mine.trials:
        rows = np.flatnonzero(reference.known(packed))
        seeds = packed.seeds[rows].tolist()
        compared += len(rows)
        prompts.update(seeds)
        others = [
            number
            for number, (seed, token) in enumerate(zip(seeds, packed.tokens[rows].tolist(), strict=True))
            if token not in right[seed]
        ]
        odd += len(others)
        if others and first is None:
            first = packed.reading(int(rows[others[0]]))
        off = reference.far(packed, rows, allowed)
        far += int(off.sum())
        found = _wrong_prompts(packed, rows, off)
        if found and not wrong:
            seed, many, count = found[0]
            row = int(rows[off & (packed.seeds[rows] == seed)][0])
            first_wrong = _wrong_prompt(run, packed, row, many, count, believed)
        wrong += len(found)
    if not compared:
        return []
    told = f"{arm}: {odd} of {compared} first tokens, over {len(prompts)} prompts, are not {other}'s"
    if first is not None:
        wanted = " or ".join(str(token) for token in sorted(right[first.seed]))
        told += f" (the first: {_request(run, first)} has {first.token}, not {wanted})"
    budget, itself = floor
    told += f"; {far} are more than {allowed:.3g} nats off; {budget * 100:.3g} % allowed; {itself}"
    if odd / compared > budget or far / compared > budget:
        tell(CHECK, whose, told)
    if wrong:
        shown = f"{arm}: answers of {wrong} prompts, counted by trial, are not {other}'s: {first_wrong}"
        tell(WRONG_PROMPT, whose, f"{shown}; {allowed:.3g} nats allowed")
    return [told]


def _wrong_prompts(packed: Packed, rows: Whole, off: NDArray[np.bool_]) -> list[tuple[int, int, int]]:
    """Return (prompt, readings too far from every believed one, readings) where these are more than half of a trial's.

    A chunk that is wrong at rest is read wrong each time, so one prompt among many shows however small its share is.
    """
    counts = dict(zip(*(found.tolist() for found in np.unique(packed.seeds[rows], return_counts=True)), strict=True))
    seeds, odd = np.unique(packed.seeds[rows[off]], return_counts=True)
    found = zip(seeds.tolist(), odd.tolist(), strict=True)
    return [(seed, many, counts[seed]) for seed, many in found if 2 * many > counts[seed]]


def _wrong_prompt(run: Run, packed: Packed, row: int, many: int, count: int, believed: Prompts) -> str:
    """Return words on a wrong prompt, of which `row` is one reading. Raises EvidenceError."""
    reading = packed.reading(row)
    least = nearest(reading, believed[reading.seed])
    told = f"{least:.3f} nats off" if math.isfinite(least) else "without a number"
    shown = f"{many} of {count} readings of prompt {reading.seed} in {packed.trial}"
    return f"{shown} (the first: {_request(run, reading)}, {told})"


def _request(run: Run, reading: Reading) -> str:
    """Return the id of the reading's record. Raises EvidenceError."""
    arm, step, block = reading.trial.split("/")
    trial = run.trial(arm, int(step[1:]), int(block[1:]))
    record = next(islice(trial.requests(), reading.place, None), None) if trial is not None else None
    if record is None:
        raise EvidenceError(f"{reading.trial}: its records changed while they were judged")
    return str(record["id"])


def _answers(run: Run, trials: Mapping[str, Sequence[Breach]]) -> dict[str, Answers]:
    """Return the answers of each arm, of the trials that can be used for it. Raises what is in MISSHAPEN."""
    arms: dict[str, Answers] = {}
    for trial in run.trials():
        breaches = trials.get(name_of(trial))
        if breaches is None or trial.facts["completed"] is not True:
            continue
        arm = str(trial.facts["arm"])
        if any(arm == RECOMPUTE or (b.whose == HARNESS and b.check in OF_THE_RECORDS) for b in breaches):
            continue
        arms.setdefault(arm, Answers()).trials.append(digest(run, trial).answers())
    return arms
