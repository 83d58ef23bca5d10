"""What imported results can prove: that the candidate failed requests. Everything else is INVALID, with the reasons.

No row ever passes: such files show neither what served a prompt, nor that it was cold, nor that answers were right,
and they are as easily written as measured. A figure that cannot be trusted is not given as a number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from gates.criteria import Criteria, Criterion, load
from gates.facts import Facts
from gates.imports.checks import contradictions, differences, mixed_up, of_two_kinds
from gates.imports.store import KIND, files_of, stored
from gates.imports.vllm_bench import Result
from gates.stats import Estimate
from gates.validity.breach import Breach
from gates.validity.places import foreign
from scenarios.model import BASELINE, CANDIDATE
from workloads.evidence import EvidenceError, Run

Json = dict[str, Any]

__all__ = ["KIND", "judge"]

FAIL, INVALID = "FAIL", "INVALID"
STANDING = "result files prove neither cold reads, nor that the tier served, nor right answers: no acceptance"
NO_COUNTERS = "no proof that the tier served (no counters)"
NOT_COLD = "no proof that reads were cold"
NO_ORDER = "no proof of how engines were started and arms took turns"
FIRST_CHUNK = "ttfts end at the first chunk, whether or not it holds a token"
ROLE_ONLY = "ttfts end at the first chunk, which of a chat is the role alone"
CHUNK_GAPS = "itls are gaps between chunks, not tokens"
WHOLE_DURATION = "throughput is over the whole duration, filling up and draining included"
NO_TIER = "the files hold nothing of the tier: no chunks stored, no log of an engine"
IN_BAND = "the tool counts an answer that breaks off with an error inside its stream as a success"
REASONS_TOLD = 4


@dataclass(frozen=True)
class Pair:
    """A result of each arm, and what is against comparing them."""

    number: int  # from 1, in the order given
    baseline: Result
    candidate: Result
    against: list[str] = field(default_factory=list)

    @property
    def step(self) -> int | None:
        """Return the concurrency of the candidate's result; None where none was set."""
        return self.candidate.max_concurrency


def judge(run: Run, untrusted: Sequence[str]) -> tuple[Facts, list[Json]]:
    """Return facts and rows of an imported run; `untrusted` is what is already held against it.

    Raises EvidenceError, ConfigError, OSError, and what reading a run.json of another shape raises.
    """
    criteria = load(run.path / "criteria.toml")
    whole = list(untrusted)
    if run.facts.get("gate") != criteria.gate:
        whole.append(f"run.json: gate is {run.facts.get('gate')!r}, {criteria.gate!r} in criteria.toml")
    whole += foreign(run, files_of(run))
    arms = stored(run)
    if not len(arms[BASELINE]) == len(arms[CANDIDATE]) > 0:
        raise EvidenceError(f"{len(arms[BASELINE])} results of the baseline, {len(arms[CANDIDATE])} of the candidate")
    results = [*arms[BASELINE], *arms[CANDIDATE]]
    whole += mixed_up(results)
    wrong = {result.where: contradictions(result) for result in results}
    pairs = [
        Pair(number, mine, other, _against(mine, other, wrong))
        for number, (mine, other) in enumerate(zip(arms[BASELINE], arms[CANDIDATE], strict=True), start=1)
    ]
    mixed = of_two_kinds(results)
    rows = []
    for criterion in criteria.criterion:
        for step in sorted({pair.step for pair in pairs}, key=lambda step: math.inf if step is None else step):
            here = [pair for pair in pairs if pair.step == step]
            rows.append(_row(criterion, step, *_judged(criteria, criterion, here, wrong, mixed, whole)))
    facts = Facts(
        run,
        valid=[],
        invalid={pair.number: [*pair.against, NO_COUNTERS, NOT_COLD] for pair in pairs},
        breaches=[*_breaches(results, wrong), *_of_pairs(pairs, wrong)],
        untrusted=[*whole, *(line for lines in wrong.values() for line in lines), STANDING],
    )
    return facts, rows


def failed(result: Result) -> int | None:
    """Return how many requests failed that were sent: by the arrays where they are, else as stated.

    None where nothing tells.
    """
    broke = result.broke()
    return sum(broke) - result.never_sent() if broke is not None else result.failed


def _against(baseline: Result, candidate: Result, wrong: dict[str, list[str]]) -> list[str]:
    found = [line for result in (baseline, candidate) for line in wrong[result.where]]
    found += differences(baseline, candidate)
    found += [line for result in (baseline, candidate) for line in _unfit(result)]
    found += _never_sent((baseline, candidate))
    told = failed(baseline)
    if told is None or told > 0:
        found.append(
            f"{baseline.where}: {'an unknown number' if told is None else told} of the baseline's requests failed"
        )
    return found


def _never_sent(results: Sequence[Result]) -> list[str]:
    told = "requests were never sent: the machine of the load could not connect"
    return [f"{result.where}: {n} {told}" for result in results if (n := result.never_sent())]


def _unfit(result: Result) -> list[str]:
    """Return why a result that may well be true is none of the measurement that the gate asks for."""
    found = []
    if result.missing:
        found.append(f"no {', '.join(result.missing)}: measure again with --save-detailed")
    if result.max_concurrency is None:
        found.append("no max_concurrency: measure again with --max-concurrency, the gate's step")
    elif result.num_prompts < result.max_concurrency:
        found.append(f"{result.num_prompts} requests never reach concurrency {result.max_concurrency}")
    if result.request_rate is None:
        found.append("no request_rate")
    elif math.isfinite(result.request_rate):
        found.append(f"request_rate is {result.request_rate:g}/s: the gate judges users who wait for their answer")
    return [f"{result.where}: {line}" for line in found]


def _judged(
    criteria: Criteria,
    criterion: Criterion,
    pairs: Sequence[Pair],
    wrong: dict[str, list[str]],
    mixed: Sequence[str],
    whole: Sequence[str],
) -> tuple[Estimate | None, str, str]:
    if whole:
        return None, INVALID, whole[0]
    if criterion.metric == "failed_requests" and criterion.arms == (CANDIDATE,):
        return _failures(criterion, [pair.candidate for pair in pairs], wrong)
    if not {*criterion.arms} <= {BASELINE, CANDIDATE}:
        return None, INVALID, f"no files of {', '.join(sorted({*criterion.arms} - {BASELINE, CANDIDATE}))}"
    if criterion.compare == "count":
        return None, INVALID, NO_TIER
    against = [line for pair in pairs for line in pair.against] + list(mixed)
    needed = criterion.min_blocks or criteria.looks.blocks[0]
    counted = [f"n = {len(pairs)} pairs, {needed} needed"] if len(pairs) < needed else []
    reasons = [*_few(against), NO_COUNTERS, NOT_COLD, *counted, *_of_metric(criterion, pairs), NO_ORDER]
    return None, INVALID, "; ".join(reasons)


def _failures(
    criterion: Criterion, results: Sequence[Result], wrong: dict[str, list[str]]
) -> tuple[Estimate | None, str, str]:
    """Judge the candidate's failed requests, over the results that do not contradict themselves."""
    sound = [(result, failed(result)) for result in results if not wrong[result.where]]
    found, total = sum(n or 0 for _, n in sound), sum(result.num_prompts for result, _ in sound)
    if found > criterion.limit:
        first = next(result for result, n in sound if n)
        told = f"{found} of {total} requests failed, by the files' own account, the first in {first.where}"
        return Estimate(found, found, found, 1.0, total, "count"), FAIL, told
    against = [line for result in results for line in wrong[result.where]]
    unknown = [f"{result.where}: it has neither failed nor the arrays" for result, n in sound if n is None]
    not_all = [
        f"{result.where}: completed {result.completed} of {result.num_prompts}"
        for result, n in sound
        if n is None
        if result.completed < result.num_prompts
    ]
    undetailed = [line for result in results for line in _unfit(result) if result.missing and "--save-detailed" in line]
    return (
        None,
        INVALID,
        "; ".join(
            [
                *_few([*against, *_never_sent(results), *not_all, *unknown, *undetailed]),
                f"no failure told, but {IN_BAND}",
            ]
        ),
    )


def _of_metric(criterion: Criterion, pairs: Sequence[Pair]) -> list[str]:
    """Return why the tool's figures are not the criterion's metric."""
    if criterion.metric.startswith("ttft"):
        chat = any(
            "chat" in str(r.values.get("endpoint_type")) for pair in pairs for r in (pair.baseline, pair.candidate)
        )
        return [ROLE_ONLY if chat else FIRST_CHUNK]
    return [WHOLE_DURATION] if criterion.metric == "output_tokens_per_s" else [CHUNK_GAPS]


def _few(lines: Sequence[str]) -> list[str]:
    more = len(lines) - REASONS_TOLD
    return [*lines[:REASONS_TOLD], *([f"and {more} more reasons, listed as breaches"] if more > 0 else [])]


def _breaches(results: Sequence[Result], wrong: dict[str, list[str]]) -> list[Breach]:
    found = [Breach("contradiction", r.arm, line, r.where) for r in results for line in wrong[r.where]]
    for result in results:
        told = failed(result)
        if told:
            found.append(Breach("errors", result.arm, f"{told} of {result.num_prompts} requests failed", result.where))
    return found


def _of_pairs(pairs: Sequence[Pair], wrong: dict[str, list[str]]) -> list[Breach]:
    known = {line for lines in wrong.values() for line in lines}
    return [
        Breach("comparison", "harness", line, f"pair {pair.number}")
        for pair in pairs
        for line in pair.against
        if line not in known
    ]


def _row(criterion: Criterion, step: int | None, estimate: Estimate | None, verdict: str, reason: str) -> Json:
    """Return a row of verdict.json, of the same shape as any other run's."""
    return {
        "id": criterion.id,
        "metric": criterion.metric,
        "arms": list(criterion.arms),
        "step": step,
        "operator": criterion.operator,
        "limit": criterion.limit,
        "tolerance": criterion.tolerance,
        "unit": criterion.unit,
        "policy": criterion.policy,
        "estimate": None if estimate is None else asdict(estimate),
        "verdict": verdict,
        "reason": reason,
        "flags": [],
    }
