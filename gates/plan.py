"""What a G3 run will cost and what it can decide, before anything starts. Reckoned: nothing is judged by it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from gates import baseline, oc, rule
from gates.cautions import cautions
from gates.criteria import Criteria
from scenarios.load import ConfigError, Loaded
from scenarios.model import BASELINE, CANDIDATE, RECOMPUTE, Scenario, Site, stored_tokens

Json = dict[str, Any]

REPETITIONS = 2000
WORDS = (("PASS", "pass_"), ("FAIL", "fail"), ("INCONCLUSIVE", "inconclusive"))
# Between two waves: emptying caches, counters, logs; between two trials: the judge's look. Seen on the rehearsal.
WAVE_OVERHEAD_S = 0.5
CALIBRATION_S = 10.0


# The true effects at which a run's power is told.
EFFECTS = {
    "r2": "published R2",
    "aa": "A/A: no difference",
    "short": "one precision short of the limits",
    "limit": "exactly the limits",
    "beyond": "one precision beyond the limits",
}


@dataclass(frozen=True)
class Cost:
    """Hours to each look, bytes stored in each tier, bytes read in one block by each arm."""

    hours: dict[int, float | None]  # blocks -> hours; None: the site states no pace
    stored_bytes: int
    read_bytes: dict[str, int]


@dataclass(frozen=True)
class Power:
    """Where the noise comes from, and the outcome of the simulation at each true effect."""

    noise: str
    outcomes: dict[str, oc.Outcome]  # by what is in EFFECTS


def cost(site: Site, scenario: Scenario, criteria: Criteria) -> Cost:
    """Return what the run will cost. Speeds are those that the site states; hours are None where one is missing."""
    load = scenario.workload
    kv_bytes = site.models[scenario.model].kv_bytes_per_token
    prompt_bytes = stored_tokens(load.prompt_tokens, site.lmcache.chunk_tokens) * kv_bytes
    waves = {arm: sum(scenario.waves(arm)) for arm in scenario.arms}
    read = {
        arm: sum(scenario.steps) * waves[arm] * prompt_bytes if scenario.arms[arm].tiers else 0 for arm in scenario.arms
    }
    hours: dict[int, float | None] = {}
    for blocks in criteria.looks.blocks:
        seconds = _seconds(site, scenario, blocks, prompt_bytes)
        hours[blocks] = None if seconds is None else seconds / 3600
    return Cost(hours, load.prompt_sets * scenario.largest_step() * prompt_bytes, read)


def _seconds(site: Site, scenario: Scenario, blocks: int, prompt_bytes: int) -> float | None:
    if site.pace is None:
        return None
    load, pace = scenario.workload, site.pace
    stored = [arm for arm in scenario.arms if scenario.arms[arm].tiers]
    prefill_s = load.prompt_tokens / pace.prefill_tokens_per_s
    total_s = CALIBRATION_S + len(stored) * load.prompt_sets * scenario.largest_step() * prefill_s
    starts = len(scenario.arms) if site.engine.policy == "resident" else len(stored)
    for arm in scenario.arms:
        joined = min(blocks, load.recompute_blocks) if arm == RECOMPUTE else blocks
        starts += joined if site.engine.policy == "exclusive" else 0
        for step in scenario.steps:
            wave_s = _wave_s(site, scenario, arm, step, prompt_bytes)
            if wave_s is None:
                return None
            total_s += joined * sum(scenario.waves(arm)) * (wave_s + WAVE_OVERHEAD_S)
    return total_s + starts * pace.start_s


def _wave_s(site: Site, scenario: Scenario, arm: str, step: int, prompt_bytes: int) -> float | None:
    """Return how long a wave takes: its prompts one after the other through the arm's bottleneck, then the answer."""
    assert site.pace is not None  # noqa: S101  # the caller has looked
    load = scenario.workload
    answer_s = load.output_tokens * site.pace.decode_s_per_token * max(1, step // 2)
    tiers = scenario.arms[arm].tiers
    if not tiers:
        return step * load.prompt_tokens / site.pace.prefill_tokens_per_s + answer_s
    tier = site.tiers[tiers[0]]
    speed = tier.medium.read_bytes_per_s if tier.medium is not None else tier.expected_read_bytes_per_s
    return None if speed is None else step * prompt_bytes / speed + answer_s


def power(site: Loaded[Site], scenario: Scenario, criteria: Criteria, seed: int = 1) -> Power:
    """Return what a run can decide at the effects that matter, at the site's noise, by simulation of the rule.

    Effects: the published R2 figures, A/A, the limits, and one precision to either side of them. Raises ConfigError for
    a baseline record that is none, ValueError for criteria that compare nothing with the baseline.
    """
    noise, source = _noise(site)
    steps = len(scenario.steps)
    ratio, gain, off = _limits(criteria)
    effects = [
        ("r2", oc.R2_RATIOS, oc.R2_GAINS),
        ("aa", (1.0,) * steps, (1.0,) * steps),
        ("short", (ratio * off[0],) * steps, (gain / off[1],) * steps),
        ("limit", (ratio,) * steps, (gain,) * steps),
        ("beyond", (ratio / off[0],) * steps, (gain * off[1],) * steps),
    ]
    sds = noise["ttft_p50_s"], noise["output_tokens_per_s"]
    outcomes = {
        name: oc.p_pass(criteria, ratios, gains, *sds, repetitions=REPETITIONS, seed=seed)
        for name, ratios, gains in effects
    }
    return Power(source, outcomes)


def _limits(criteria: Criteria) -> tuple[float, float, tuple[float, float]]:
    """Return (TTFT ratio, throughput ratio, factor of one precision of each) at the strictest relaxed limits."""
    found: dict[str, tuple[float, float]] = {}
    for criterion in oc.compared(criteria):
        limit = rule.relaxed_limit(criterion.operator, criterion.limit, criterion.tolerance)
        at = rule.edge_of(criterion.compare, limit), math.exp(criterion.precision or oc.DEFAULT_PRECISION)
        found[criterion.metric] = max(at, found.get(criterion.metric, at))
    (ttft, ttft_off), (gain, gain_off) = (found.get(m, (0.0, 1.0)) for m in ("ttft_p50_s", "output_tokens_per_s"))
    return math.exp(-ttft), math.exp(gain), (ttft_off, gain_off)


def _noise(site: Loaded[Site]) -> tuple[dict[str, float], str]:
    value = site.value
    if value.baseline_record is not None:
        record = baseline.read(site.path.parent / value.baseline_record)
        missing = {"ttft_p50_s", "output_tokens_per_s"} - set(record.noise)
        if missing:
            raise ConfigError(
                f"{site.path.parent / value.baseline_record}: noise: {', '.join(sorted(missing))} missing"
            )
        return {str(key): sd for key, sd in record.noise.items()}, f"G2's record {record.run_id}"
    sd = value.pace.sd if value.pace is not None else oc.DEFAULT_PRECISION
    by_site = value.pace is not None and site.origins.get("pace.sd") != "default"
    stated = "stated by the site" if by_site else "assumed: the site states no pace.sd"
    return dict.fromkeys(("ttft_p50_s", "output_tokens_per_s"), sd), f"sd {sd:g} of a block's log ratio, {stated}"


def lines(site: Loaded[Site], scenario: Scenario, criteria: Criteria) -> list[str]:
    """Return the plan in words. Raises ConfigError."""
    found = cost(site.value, scenario, criteria)
    arms = f"{CANDIDATE} and {BASELINE} in every block, {RECOMPUTE} in {scenario.workload.recompute_blocks}"
    told = [
        f"G3 on site {site.value.name}, scenario {scenario.name}: concurrency {', '.join(map(str, scenario.steps))}",
        arms,
        f"stored in each tier: {found.stored_bytes / 1e9:.3g} GB; read in one block: "
        + ", ".join(f"{arm} {size / 1e9:.3g} GB" for arm, size in found.read_bytes.items() if size),
    ]
    for blocks, hours in found.hours.items():
        when = "hours unknown: the site states no pace or no speed of a tier" if hours is None else f"{hours:.2f} h"
        told.append(f"look at {blocks} blocks: {when}")
    decides = _decides(site, scenario, criteria)
    return [*told, *decides, *(f"note: {one}" for one in cautions(site.value, scenario, criteria))]


def _decides(site: Loaded[Site], scenario: Scenario, criteria: Criteria) -> list[str]:
    """Return what the run can decide in words, or why that is not known. Raises ConfigError."""
    try:
        decides = power(site, scenario, criteria)
    except ConfigError:
        raise
    except ValueError as error:
        return [f"what it can decide is not known: {error}"]
    told = [f"what it can decide ({decides.noise}; {REPETITIONS} simulated runs each):"]
    for name, one in decides.outcomes.items():
        shares = ((word, getattr(one, key).point) for word, key in WORDS)
        told.append(
            f"  {EFFECTS[name]:<34}"
            + "".join(f"  {word} {share:>6.1%}" for word, share in shares)
            + f"  {one.mean_blocks.point:>5.1f} blocks"
        )
    judged = {one.id for one in oc.compared(criteria)}
    if others := ", ".join(one.id for one in criteria.criterion if one.id not in judged):
        told.append(f"  P(PASS) is an upper bound: taken to pass, not simulated: {others}")
    return told


def recorded(site: Loaded[Site], scenario: Scenario, criteria: Criteria) -> Json:
    """Return what a run can decide, as it is sealed with the run that begins; why that is not known under `unknown`.

    Raises nothing: it judges nothing, so no run may end on it.
    """
    try:
        decides = power(site, scenario, criteria)
    except ValueError as error:
        return {"unknown": " ".join(str(error).split())}
    return {
        "noise": decides.noise,
        "repetitions": REPETITIONS,
        "outcomes": [
            {"effect": name, "blocks": one.mean_blocks.point}
            | {word.lower(): getattr(one, key).point for word, key in WORDS}
            for name, one in decides.outcomes.items()
        ],
    }


def one_line(site: Loaded[Site], scenario: Scenario, criteria: Criteria) -> str:
    """Return what a run will cost, as it is said when it starts. Raises nothing."""
    found = cost(site.value, scenario, criteria)
    hours = [value for value in found.hours.values() if value is not None]
    blocks = list(found.hours)
    time = f"about {hours[0]:.1f} to {hours[-1]:.1f} h" if hours else "hours unknown: the site states no pace"
    return f"{blocks[0]} to {blocks[-1]} blocks, {time}, {found.stored_bytes / 1e9:.3g} GB stored in each tier"
