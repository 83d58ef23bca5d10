"""What of a run may be as it is, but surprises who does not know it: told before it starts, judged by nobody."""

from __future__ import annotations

import math
from bisect import bisect_left

from gates import oc
from gates.criteria import FAILED_REQUESTS, Criteria, Criterion, lacking
from scenarios.model import BASELINE, CANDIDATE, Scenario, Site


def cautions(site: Site, scenario: Scenario, criteria: Criteria) -> list[str]:
    """Return a line for each of them."""
    missing = lacking(criteria)
    return [
        *([f"no acceptance can come of these criteria: {'; '.join(missing)}"] if missing else []),
        *(told for one in criteria.criterion for told in _void_budget(one, scenario, criteria)),
        *_no_record(site, criteria),
    ]


def _no_record(site: Site, criteria: Criteria) -> list[str]:
    """Return a line where a lab has no record of its baseline, though more than the band may be measured."""
    bands = [
        f"'{one.id}' above {one.band_high * 100:g} %"
        for one in criteria.criterion
        if one.band_high is not None and one.arms == (CANDIDATE, BASELINE)
    ]
    if site.rehearsal or site.baseline_record is not None or not bands:
        return []
    published = f"the published R2 gain reaches {(max(oc.R2_GAINS) - 1) * 100:.0f} % at one step"
    told = f"the site names no baseline_record: {', '.join(bands)} at any step makes that step INVALID, not PASS"
    return [f"{told} as in what is simulated; {published}"]


def _void_budget(counted: Criterion, scenario: Scenario, criteria: Criteria) -> list[str]:
    """Return a line where fewer failures than are allowed fail another criterion, whose value is infinite then."""
    compared = [one for one in criteria.criterion if one.compare != "count"]
    if counted.metric != FAILED_REQUESTS or counted.limit < 1 or not compared:
        return []
    places = []
    for step in scenario.steps:
        first = min(compared, key=lambda one: infinite_from(one.metric, scenario, step))
        fewest = infinite_from(first.metric, scenario, step)
        if fewest <= counted.limit:
            requests = step * scenario.workload.waves_measured
            places.append(f"concurrency {step} from {fewest} of {requests} on ({first.metric} of '{first.id}')")
    if not places:
        return []
    told = f"'{counted.id}': a budget of {counted.limit:g} failed requests is void within a trial"
    return [f"{told}: a value can be infinite there, which is a FAIL, at {', at '.join(places)}"]


def infinite_from(metric: str, scenario: Scenario, step: int) -> int:
    """Return how many failed requests of one of the candidate's trials can make its value infinite (a rate: 0).

    See `gates.metrics`: a failure is +infinity in a quantile, and one gap in ITL; TTFT's median is each wave's own.
    """
    requests = step * scenario.workload.waves_measured
    if metric == "ttft_p50_s":
        return _make_infinite(step, 0.5)
    if metric == "ttft_p99_s":
        return _make_infinite(requests, 0.99)
    if metric == "tpot_p50_s":
        return _make_infinite(requests, 0.5)
    if metric == "itl_p99_s":
        gaps = scenario.workload.output_tokens - 1

        def infinite(failed: int) -> bool:
            return failed >= _make_infinite((requests - failed) * gaps + failed, 0.99)

        return 1 + bisect_left(range(1, requests), True, key=infinite)
    return requests


def _make_infinite(values: int, share: float) -> int:
    """Return how many infinite ones of so many values make their quantile infinite; see `stats.quantile`."""
    return values - math.ceil((values - 1) * share)
