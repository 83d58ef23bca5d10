"""Right answers: for the same prompt every arm must begin its answer with the token that recompute begins it with.

KV that was stored and read back is what recompute computes afresh, and decoding is greedy, so the first token differs
only where the KV is wrong or where two tokens are so near each other that rounding decides. How often rounding does is
what recompute shows against itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gates.validity.breach import HARNESS, Breach
from gates.validity.records import name_of
from scenarios.model import BASELINE, RECOMPUTE
from workloads.evidence import Run

CHECK = "output-equality"
# Breaches by which a trial's records are not what was asked for: then its outputs say nothing of the arm.
OF_THE_RECORDS = ("readable", "complete", "requests", "counters", "lengths", "tokens", "status")
# A recompute arm that agrees with itself less than this sees no exchanged chunk either.
FLOOR_MAX = 0.1

# Prompt seed -> the first token ids that count as right; more than one where they were equally frequent.
Right = dict[int, frozenset[int]]


@dataclass
class _Firsts:
    """The first tokens of one arm's successful requests."""

    by_prompt: dict[int, Counter[int]] = field(default_factory=dict)
    named: list[tuple[str, int, int]] = field(default_factory=list)  # request id, prompt seed, first token id
    without: list[str] = field(default_factory=list)  # ids of the requests whose tokens were not told

    def most_common(self) -> Right:
        """Return the most frequent first ids of each prompt."""
        return {
            seed: frozenset(token for token, count in counts.items() if count == max(counts.values()))
            for seed, counts in self.by_prompt.items()
        }

    def disagreement(self) -> tuple[int, int]:
        """Return (requests that differ from the most frequent first id, requests), over prompts seen repeatedly."""
        repeated = [counts for counts in self.by_prompt.values() if counts.total() > 1]
        return sum(c.total() - max(c.values()) for c in repeated), sum(c.total() for c in repeated)


def check_outputs(run: Run, trials: Mapping[str, Sequence[Breach]]) -> tuple[list[Breach], list[str]]:
    """Return (breaches, a line per comparison on what was found). `trials`: those that were checked, and how.

    The share of an arm's successful requests, over the whole run, whose first id is not recompute's most common one
    must not exceed recompute's disagreement with itself, or the scenario's budget where that is more. It is compared
    as a share however few the requests are: at the default of 2 % no odd one among fewer than 50 passes. To let one
    go for the sake of rounding would let one exchanged chunk go in every short run; a model with near ties shows them
    in recompute's floor, or has its budget agreed before the run. What is within the budget is told with the verdict.

    The reference is made of recompute's valid trials; of the others every completed trial counts whose records hold.
    Prompts without a reference compare with the baseline; which of the two was wrong then nobody can say, so that it
    is the harness's. Raises what is in MISSHAPEN.
    """
    firsts = _first_tokens(run, trials)
    found: list[Breach] = []
    lines: list[str] = []

    def tell(whose: str, reason: str) -> None:
        found.append(Breach(CHECK, whose, reason, "run"))

    for arm, mine in firsts.items():
        if mine.without:
            total = len(mine.without) + len(mine.named)
            told = f"{len(mine.without)} of {total} successful requests name no token id, the first: {mine.without[0]}"
            tell(HARNESS, f"{arm}: no data on its outputs: {told}")
    recompute = firsts.pop(RECOMPUTE, _Firsts())
    odd, total = recompute.disagreement()
    floor = odd / total if total else 0.0
    itself = f"{RECOMPUTE} differs from itself in {odd} of {total}"
    if floor > FLOOR_MAX:
        tell(HARNESS, f"{itself} first tokens, {FLOOR_MAX * 100:g} % allowed: it is no reference for the other arms")
    allowed = max(float(run.facts["scenario"]["workload"]["first_token_mismatch_budget"]), floor)
    right = recompute.most_common()
    unknown = {s: ids for s, ids in firsts.get(BASELINE, _Firsts()).most_common().items() if s not in right}
    for arm, mine in firsts.items():
        for other, wanted, whose in ((RECOMPUTE, right, arm), (BASELINE, unknown, HARNESS)):
            share, told = _compare(arm, mine, other, wanted) if arm != other else (0.0, "")
            if told:
                lines.append(f"{told}; {allowed * 100:.3g} % allowed; {itself}")
            if share > allowed:
                tell(whose, lines[-1])
    return found, lines


def _compare(arm: str, mine: _Firsts, other: str, right: Right) -> tuple[float, str]:
    """Return (share of the arm's first tokens that are not the other's, what was found); "" where none compare."""
    compared = [(name, seed, token) for name, seed, token in mine.named if seed in right]
    if not compared:
        return 0.0, ""
    odd = [(name, seed, token) for name, seed, token in compared if token not in right[seed]]
    prompts = len({seed for _, seed, _ in compared})
    told = f"{arm}: {len(odd)} of {len(compared)} first tokens, over {prompts} prompts, are not {other}'s"
    if odd:
        name, seed, token = odd[0]
        told += f" (the first: {name} has {token}, not {' or '.join(str(i) for i in sorted(right[seed]))})"
    return len(odd) / len(compared), told


def _first_tokens(run: Run, trials: Mapping[str, Sequence[Breach]]) -> dict[str, _Firsts]:
    """Return the first tokens of each arm, from the trials that can be used for it."""
    firsts: dict[str, _Firsts] = {}
    for trial in run.trials():
        breaches = trials.get(name_of(trial))
        if breaches is None or trial.facts["completed"] is not True:
            continue
        arm = str(trial.facts["arm"])
        if any(arm == RECOMPUTE or (b.whose == HARNESS and b.check in OF_THE_RECORDS) for b in breaches):
            continue
        mine = firsts.setdefault(arm, _Firsts())
        for r in trial.requests():
            if r["status"] != "ok":
                continue
            if not r["output_token_ids"]:
                mine.without.append(r["id"])
                continue
            seed, token = int(r["prompt_seed"]), int(r["output_token_ids"][0])
            mine.by_prompt.setdefault(seed, Counter())[token] += 1
            mine.named.append((r["id"], seed, token))
    return firsts
