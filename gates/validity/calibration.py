"""The client's own bias at each concurrency, against a server that logged what it really did."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from gates import criteria, metrics, stats
from gates.nodata import NoData
from gates.validity.breach import HARNESS, MISSHAPEN, Tell
from scenarios.load import ConfigError
from workloads.calibrate import FOLDER, REQUESTS_MIN
from workloads.evidence import Run, read_jsonl

Json = dict[str, Any]

# A client that is late for nearly half of its requests has a sound median: so many budgets a tenth of them may exceed.
TAIL_BUDGETS = 5


@dataclass(frozen=True)
class Bias:
    """Client's TTFT minus the server's at one concurrency, in seconds over n requests."""

    step: int
    n: int
    p50_s: float
    p90_abs_s: float  # of its size, whatever its sign
    p99_s: float
    clock: str


def bias(run: Run, step: int) -> Bias | NoData:
    """Return the client's bias at one concurrency; NoData where it was not measured whole.

    The truth of a request is the time from the kernel's receipt of its last byte at the server to the server's
    sending of its first token. Raises EvidenceError and what reading a record of another shape raises.
    """
    folder = run.path / FOLDER / f"c{step}"
    if not (folder / "requests.jsonl").exists() or not (folder / "server.jsonl").exists():
        return NoData(f"the client's bias at concurrency {step} was not measured")
    truth = {line["id"]: line for line in read_jsonl(folder / "server.jsonl")}
    differences_s: list[float] = []
    clocks: set[str] = set()
    for request in read_jsonl(folder / "requests.jsonl"):
        if request["status"] != "ok":
            return NoData(f"request {request['id']} of the calibration failed: {request['error']}")
        told = truth.pop(request["id"], None)
        if told is None:
            return NoData(f"request {request['id']} of the calibration is not in the server's log")
        true_ns = told["t_sent_ns"][0] - told["t_received_ns"]
        differences_s.append((request["t_first_ns"] - request["t_sent_ns"] - true_ns) * metrics.NS)
        clocks.add(str(request["clock"]))
    if len(differences_s) < REQUESTS_MIN:
        return NoData(f"{len(differences_s)} requests in the calibration at concurrency {step}, {REQUESTS_MIN} needed")
    return Bias(
        step=step,
        n=len(differences_s),
        p50_s=stats.quantile(differences_s, 0.5),
        p90_abs_s=stats.quantile([abs(difference_s) for difference_s in differences_s], 0.9),
        p99_s=stats.quantile(differences_s, 0.99),
        clock="+".join(sorted(clocks)),
    )


def resolved_s(run: Run) -> float | NoData:
    """Return the smallest difference in TTFT, in seconds, that the run's criteria must tell from none.

    For each comparison of TTFT: its relaxed limit, or its precision where that is more, as a share of the TTFT p50 of
    the arm that it compares with, at the concurrency where that is shortest. Raises ConfigError, EvidenceError and
    what reading a record of another shape raises.
    """
    wanted: dict[str, float] = {}
    for criterion in criteria.load(run.path / "criteria.toml").criterion:
        if criterion.metric == "ttft_p50_s":
            share = max(criterion.limit - criterion.tolerance, criterion.precision or 0.0)
            if share > 0:  # "any better" has no smallest difference
                wanted[criterion.arms[1]] = min(share, wanted.get(criterion.arms[1], math.inf))
    found: list[float] = []
    for trial in run.trials():
        arm = str(trial.facts["arm"])
        if arm in wanted and trial.facts["completed"] is True:
            ttft_s = metrics.ttft_p50_s(trial)
            if not isinstance(ttft_s, NoData) and math.isfinite(ttft_s):
                found.append(wanted[arm] * ttft_s)
    return min(found) if found else NoData("no TTFT to compare the client's bias with")


def check_calibration(run: Run, tell: Tell) -> None:
    """Tell where the bias was not measured, or is more than its budget. Raises what is in MISSHAPEN."""
    budget = budget_s(run)
    for step in run.facts["scenario"]["steps"]:
        measured = bias(run, int(step))
        if isinstance(measured, NoData):
            tell("calibration", HARNESS, measured.reason)
        elif not isinstance(budget, NoData) and not abs(measured.p50_s) <= budget:
            told = f"the client's own bias at concurrency {step} is {measured.p50_s * 1e3:.3f} ms at the median"
            tell("calibration", HARNESS, f"{told}, {budget * 1e3:.3f} ms allowed by the differences to be resolved")
        elif not isinstance(budget, NoData) and not measured.p90_abs_s <= TAIL_BUDGETS * budget:
            told = f"a tenth of the client's requests at concurrency {step} are {measured.p90_abs_s * 1e3:.3f} ms off"
            tell("calibration", HARNESS, f"{told} or more, {TAIL_BUDGETS * budget * 1e3:.3f} ms allowed")


def budget_s(run: Run) -> float | NoData:
    """Return what the bias may be, in seconds: the scenario's share of the smallest difference to be resolved."""
    smallest_s = resolved_s(run)
    share = float(run.facts["scenario"]["workload"]["client_bias_budget_share"])
    return smallest_s if isinstance(smallest_s, NoData) else share * smallest_s


def summary(run: Run) -> list[Json]:
    """Return the bias at each concurrency as verdict.json tells it; what was not measured is left out.

    It repeats what `check_calibration` has looked at, so records that cannot be read are told there.
    """
    try:
        budget = budget_s(run)
        found = [bias(run, int(step)) for step in run.facts["scenario"]["steps"]]
    except (*MISSHAPEN, ConfigError):
        return []
    allowed = None if isinstance(budget, NoData) else budget
    return [{**asdict(one), "budget_s": allowed} for one in found if not isinstance(one, NoData)]
