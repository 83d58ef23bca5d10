"""Is the opponent honest, and was anything measured? A sick baseline or a slow recompute makes a good ratio.

Each function returns None, or why a comparison at that concurrency, or the whole run, is not to be believed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from gates import baseline, metrics, stats
from gates.criteria import Criterion
from gates.nodata import NoData
from gates.stats import Estimate
from scenarios.model import BASELINE, RECOMPUTE
from workloads.evidence import Run

Json = dict[str, Any]

# Half the width of an interval, in log ratio. Time is measured to the nanosecond, and no two blocks of a real engine
# agree to a millionth: quiet labs show some thousandths.
WIDTH_MIN = 1e-6


def nothing_measured(criterion: Criterion, pairs: Sequence[tuple[float, float]], log: Estimate) -> str | None:
    """Return why the blocks' values, of both arms in pairs, cannot come from measuring: they do not vary."""
    for arm, values in zip(criterion.arms, zip(*pairs, strict=True), strict=True):
        if len(values) > 1 and len(set(values)) == 1:
            told = f"{arm}: {criterion.metric} is the same in {len(values)} blocks to the last digit"
            return f"{told}: that was not measured"
    if log.n > 1 and not (log.high - log.low) / 2 > WIDTH_MIN:
        return f"the blocks' ratios agree to {(log.high - log.low) / 2:.1g}: that was not measured"
    return None


def suite_changed(run: Run) -> str | None:
    """Return why nobody can look up the code that measured: the suite's tree was not a commit's.

    The evidence is no worse for it, so the verdict stands; but who accepts must be able to read what measured.
    """
    said = run.facts.get("suite")
    if isinstance(said, dict) and said.get("dirty") is False and said.get("commit"):
        return None
    return "no acceptance: the suite was changed (dirty tree), or is of no known commit: nobody can look up its code"


def slow_recompute(run: Run, step: int, blocks: Sequence[int]) -> str | None:
    """Return why recompute is no honest opponent: its prefill rate is under the agreed share of the site's roofline.

    The rate of a wave is its prompt tokens over the time from the first sending to the last first token; the median
    over measured waves of these blocks counts. Raises what reading a record of another shape raises.
    """
    name = run.facts["scenario"]["model"]
    model = run.facts["site"]["models"][name]
    roofline = model["prefill_roofline_tokens_per_s"]
    if roofline is None:
        told = f"the site declares no prefill_roofline_tokens_per_s for '{name}', so nobody can tell a straw man"
        return None if run.facts["rehearsal"] is True else told
    rates = []
    for block in blocks:
        trial = run.trial(RECOMPUTE, step, block)
        for rate in metrics.values_of(trial).prefill_tokens_per_s if trial is not None else ():
            if isinstance(rate, NoData):
                return f"recompute's prefill rate is not known: {rate.reason}"
            rates.append(rate)
    if not rates:
        return "no data: recompute was not measured in a valid block"
    rate, share = stats.quantile(rates, 0.5), float(model["recompute_share_min"])
    if rate >= share * roofline:
        return None
    told = f"recompute prefills {rate:.0f} tokens/s, {share * 100:g} % of the site's {roofline:.0f} agreed"
    return f"{told}: too slow to be an honest opponent"


def strange_baseline(run: Run, step: int, blocks: Sequence[int], above_band: bool) -> str | None:
    """Return why the baseline is not the one that G2 has recorded, in either direction, or is slower than recompute.

    Without a record, where the site names none, only a gain above the band is doubted, and a rehearsal needs none.
    Raises ConfigError for a record that is none.
    """
    file = run.path / baseline.FILE
    if file.is_file():
        record = baseline.read(file)
        if (record.site, record.model) != (run.facts["site"]["name"], run.facts["scenario"]["model"]):
            return f"{baseline.FILE} is of site '{record.site}' and model '{record.model}'"
        if record.made() > datetime.fromisoformat(str(run.facts["created_utc"])):
            return f"{baseline.FILE}: made_utc: {record.made_utc}: it was made after the run began"
        for metric in ("ttft_p50_s", "output_tokens_per_s"):
            told = _outside(run, record, metric, step, blocks)
            if told is not None:
                return told
    elif run.facts["site"]["baseline_record"] is not None:
        told = f"the site names a record of its baseline, {run.facts['site']['baseline_record']}"
        return f"{told}, but the run holds no {baseline.FILE}"
    elif above_band and run.facts["rehearsal"] is not True:
        return "the gain is above the band, and there is no record of G2 to hold the baseline against"
    return _slower_than_recompute(run, step, blocks) if above_band else None


def _outside(run: Run, record: baseline.Record, metric: str, step: int, blocks: Sequence[int]) -> str | None:
    interval = baseline.predicted(record, metric, step)
    if isinstance(interval, NoData):
        return interval.reason
    logs = [math.log(value) for value in _values(run, BASELINE, metric, step, blocks)]
    if not logs:
        return "no data: the baseline was not measured in a valid block"
    value = math.exp(math.fsum(logs) / len(logs))
    if interval.low <= value <= interval.high:
        return None
    told = f"the baseline's {metric} is {value:.4g}, G2 expects {interval.low:.4g} to {interval.high:.4g}"
    return f"{told} (n = {interval.n} days): it is not the baseline that G2 has recorded"


def _slower_than_recompute(run: Run, step: int, blocks: Sequence[int]) -> str | None:
    """Judge by the point, over the blocks that hold both arms."""
    logs: list[float] = []
    for block in blocks:
        pair = [_values(run, arm, "output_tokens_per_s", step, [block]) for arm in (BASELINE, RECOMPUTE)]
        if all(pair):
            logs.append(math.log(pair[0][0] / pair[1][0]))
    if not logs or math.fsum(logs) >= 0:
        return None
    slower = -math.expm1(math.fsum(logs) / len(logs)) * 100
    return (
        f"the gain is above the band, but over a baseline {slower:.1f} % slower than recompute: "
        "a sick baseline makes a good ratio"
    )


def _values(run: Run, arm: str, metric: str, step: int, blocks: Sequence[int]) -> list[float]:
    found = []
    for block in blocks:
        trial = run.trial(arm, step, block)
        value = metrics.PER_TRIAL[metric](trial) if trial is not None else None
        if isinstance(value, float) and 0 < value < math.inf:
            found.append(value)
    return found
