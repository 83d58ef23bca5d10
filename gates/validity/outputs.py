"""Right answers: for the same prompt every arm must begin its answer as recompute begins it.

KV that was stored and read back is what recompute computes afresh, and decoding is greedy, so the first token and its
log-probability differ only where the KV is wrong or where rounding decides. How much rounding does is what recompute
shows against itself on the site. Later tokens are not compared: one near tie, and two sound answers part for good.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gates.validity.answers import (
    ALLOWED_MAX,
    Reading,
    Readings,
    allowed_distance,
    floor_of,
    right_tokens,
    wrong_prompts,
)
from gates.validity.breach import HARNESS, Breach, Tell
from gates.validity.chunks import compare_stores
from gates.validity.control import check_control
from gates.validity.needles import check_needles
from gates.validity.records import name_of
from scenarios.model import BASELINE, RECOMPUTE
from workloads.evidence import Run

CHECK = "output-equality"
WRONG_PROMPT = "wrong-prompt"
# Breaches by which a trial's records are not what was asked for: then its outputs say nothing of the arm.
OF_THE_RECORDS = ("readable", "complete", "requests", "counters", "lengths", "tokens", "status")
# A recompute arm that agrees with itself less than this sees no exchanged chunk either.
FLOOR_MAX = 0.1

# Prompt seed -> the first token ids that count as right; more than one where rounding decides between them.
Right = dict[int, frozenset[int]]


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
    arms = _readings(run, trials)
    found: list[Breach] = []
    lines: list[str] = []

    def tell(check: str, whose: str, reason: str) -> None:
        found.append(Breach(check, whose, reason, "run"))

    for arm, mine in arms.items():
        if mine.without_ids:
            total = len(mine.without_ids) + len(mine.all)
            told = f"{len(mine.without_ids)} of {total} successful requests name no token id, the first"
            tell(CHECK, HARNESS, f"{arm}: no data on its outputs: {told}: {mine.without_ids[0]}")
    load = run.facts["scenario"]["workload"]
    recompute = arms.pop(RECOMPUTE, Readings())
    allowed = _allowed(recompute, float(load["first_logprob_noise"]), tell)
    right = _right(recompute, allowed)
    odd, total = sum(r.token not in right[r.seed] for r in recompute.all), len(recompute.all)
    itself = f"{RECOMPUTE} differs from itself in {odd} of {total}"
    if total and odd / total > FLOOR_MAX:
        told = f"{itself} first tokens, {FLOOR_MAX * 100:g} % allowed: it is no reference for the other arms"
        tell(CHECK, HARNESS, told)
    budget = max(float(load["first_token_mismatch_budget"]), odd / total if total else 0.0)
    unknown = Readings([r for r in arms.get(BASELINE, Readings()).all if r.seed not in right])
    for arm, mine in arms.items():
        for other, believed, whose in ((RECOMPUTE, recompute, arm), (BASELINE, unknown, HARNESS)):
            if arm != other:
                lines += _compare(arm, mine, other, believed, whose, allowed, (budget, itself), tell)
    lines += check_control(run, allowed, tell)
    lines += check_needles(run, tell)
    lines += compare_stores(run, tell)
    return found, lines


def _allowed(recompute: Readings, agreed: float, tell: Tell) -> float:
    """Return how many nats a reading may be off; tell where recompute's own readings say that nothing can be seen."""
    blank = next((r.request for r in recompute.all if not r.likely), None)
    if blank is not None:
        tell(CHECK, HARNESS, f"{RECOMPUTE}: no data on the log-probabilities of {blank}: it is no reference")
        return agreed
    floor = floor_of(recompute)
    if allowed_distance(floor, agreed) > ALLOWED_MAX:
        told = f"{RECOMPUTE}'s own readings of one prompt lie up to {floor:.3f} nats apart, {ALLOWED_MAX / 2:g} allowed"
        tell(CHECK, HARNESS, f"{told}: it is no reference for the other arms")
    return min(allowed_distance(floor, agreed), ALLOWED_MAX)


def _right(believed: Readings, allowed: float) -> Right:
    return {seed: right_tokens(readings, allowed) for seed, readings in believed.by_prompt().items()}


def _compare(
    arm: str, mine: Readings, other: str, believed: Readings, whose: str, allowed: float, floor: tuple[float, str],
    tell: Tell,
) -> list[str]:  # fmt: skip
    """Tell what of an arm's readings is not the believed arm's; return a line on it, or none where none compare."""
    right = _right(believed, allowed)
    compared = [reading for reading in mine.all if reading.seed in right]
    if not compared:
        return []
    odd = [reading for reading in compared if reading.token not in right[reading.seed]]
    prompts = len({reading.seed for reading in compared})
    told = f"{arm}: {len(odd)} of {len(compared)} first tokens, over {prompts} prompts, are not {other}'s"
    if odd:
        wanted = " or ".join(str(token) for token in sorted(right[odd[0].seed]))
        told += f" (the first: {odd[0].request} has {odd[0].token}, not {wanted})"
    wrong, far, count = wrong_prompts(mine, believed, allowed)
    budget, itself = floor
    told += f"; {far} are more than {allowed:.3g} nats off; {budget * 100:.3g} % allowed; {itself}"
    if len(odd) / len(compared) > budget or far / count > budget:
        tell(CHECK, whose, told)
    if wrong:
        shown = f"{arm}: answers of {len(wrong)} prompts, counted by trial, are not {other}'s: {wrong[0]}"
        tell(WRONG_PROMPT, whose, f"{shown}; {allowed:.3g} nats allowed")
    return [told]


def _readings(run: Run, trials: Mapping[str, Sequence[Breach]]) -> dict[str, Readings]:
    """Return the readings of each arm, from the trials that can be used for it."""
    arms: dict[str, Readings] = {}
    for trial in run.trials():
        breaches = trials.get(name_of(trial))
        if breaches is None or trial.facts["completed"] is not True:
            continue
        arm = str(trial.facts["arm"])
        if any(arm == RECOMPUTE or (b.whose == HARNESS and b.check in OF_THE_RECORDS) for b in breaches):
            continue
        mine = arms.setdefault(arm, Readings())
        for r in trial.requests():
            if r["status"] != "ok":
                continue
            if not r["output_token_ids"]:
                mine.without_ids.append(r["id"])
                continue
            likely = {str(token): float(value) for token, value in (r["first_logprobs"] or {}).items()}
            token = int(r["output_token_ids"][0])
            mine.all.append(Reading(str(r["id"]), name_of(trial), int(r["prompt_seed"]), token, likely))
    return arms
