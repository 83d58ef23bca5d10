"""What surprises who does not know it is told before a run starts, and stays legal."""

from __future__ import annotations

import dataclasses
import math
import re
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import conftest
from gates import criteria, metrics, plan, verdict
from gates.cautions import cautions, infinite_from
from gates.nodata import NoData
from scenarios import preflight
from scenarios.load import load_scenario, load_site
from scenarios.model import Scenario
from tests.synthetic import make_run
from tests.synthetic_truth import Truth
from workloads import gate_run
from workloads.evidence import Run
from workloads.progress import Progress

Json = dict[str, Any]
CRITERIA = criteria.load(criteria.default_file("g3"))
SITE = load_site("rehearsal")
SCENARIO = load_scenario("rehearsal", SITE).value
LAB = re.findall(
    r"```toml\n(.*?)```",
    (Path(__file__).resolve().parent.parent / "README.md").read_text(encoding="utf-8"),
    re.DOTALL,
)[0]


def of_load(*steps: int, **load: int) -> Scenario:
    workload = SCENARIO.workload.model_copy(update=load)
    return SCENARIO.model_copy(update={"workload": workload, "steps": steps or SCENARIO.steps})


def with_budget(requests: float, *without: str) -> criteria.Criteria:
    rows = tuple(
        one.model_copy(update={"limit": requests}) if one.metric == criteria.FAILED_REQUESTS else one
        for one in CRITERIA.criterion
        if one.metric not in without
    )
    return CRITERIA.model_copy(update={"criterion": rows})


def test_the_shipped_files_have_none() -> None:
    assert cautions(SITE.value, SCENARIO, CRITERIA) == []
    assert cautions(SITE.value, SCENARIO, criteria.load(criteria.file_for("g3", SITE))) == []


def record(number: int, answered: bool, tokens: int) -> Json:
    """Return what the metrics read of a request: a token a second after the first one."""
    stamps = [10**9 * (1 + token) for token in range(tokens)]
    found: Json = {"id": f"r{number}", "status": "ok", "measured": True, "t_sent_ns": 0, "t_first_ns": stamps[0]}
    found |= {"t_last_ns": stamps[-1] if answered else 0, "chunk_ns": stamps, "chunk_tokens": [1] * tokens}
    found["usage"] = {"prompt_tokens": 8, "completion_tokens": tokens}
    return found if answered else found | {"status": "failed", "t_first_ns": None}


def fewest_that_fail(metric: str, step: int, waves: int, tokens: int) -> int:
    """Return how many failures make a trial's metric worthless, by the code that computes it, failures side by side."""
    for failed in range(1, step * waves + 1):
        found = metrics.Collector()
        for wave in range(waves):
            numbers = range(wave * step, (wave + 1) * step)
            found.take([record(number, number >= failed, tokens) for number in numbers], None)
        value = found.values().by_name[metric]
        assert not isinstance(value, NoData)
        if math.isinf(value) or value == 0:
            return failed
    raise AssertionError("no failure shows")


@pytest.mark.parametrize("tokens", [2, 8, 60])
@pytest.mark.parametrize(("step", "waves"), [(1, 1), (1, 5), (2, 5), (3, 1), (4, 5), (7, 3), (64, 2)])
@pytest.mark.parametrize("metric", metrics.PER_TRIAL)
def test_so_many_failures_make_a_value_infinite(metric: str, step: int, waves: int, tokens: int) -> None:
    scenario = of_load(step, waves_measured=waves, output_tokens=tokens)
    assert infinite_from(metric, scenario, step) == fewest_that_fail(metric, step, waves, tokens)


def test_a_budget_that_one_failure_makes_void(tmp_path: Path) -> None:
    """It stays legal; and the judge fails such a run, as is told."""
    judged = with_budget(5)
    (told,) = cautions(SITE.value, SCENARIO, judged)
    assert told == (
        "'failed-requests': a budget of 5 failed requests is void within a trial: a value can be infinite there, which is a "
        "FAIL, at concurrency 2 from 1 of 10 on (ttft_p50_s of 'ttft-p50-reduction'), "
        "at concurrency 4 from 1 of 20 on (ttft_p99_s of 'guard-ttft-p99')"
    )
    assert f"note: {told}" in plan.lines(SITE, SCENARIO, judged)

    def fail(found: Json) -> None:
        if found["id"] == "candidate-c4-b03-w2-0":
            found.update(status="failed", error="HTTP 503: busy", t_first_ns=None, t_last_ns=None, usage=None)

    file = tmp_path / "mine.toml"
    text = criteria.default_file("g3").read_text(encoding="utf-8")
    file.write_text(text.replace('limit = 0.0\nunit = "requests"', 'limit = 5.0\nunit = "requests"'), encoding="utf-8")
    with mock.patch.object(criteria, "default_file", lambda _gate: file):
        result = verdict.judge(Run(make_run(tmp_path / "runs", Truth(request=fail))))
    failed = [(row["id"], row["step"]) for row in result["criteria"] if row["verdict"] == "FAIL"]
    assert ("guard-ttft-p99", 4) in failed
    assert "failed-requests" not in {name for name, _ in failed}


@pytest.mark.parametrize("kind", ["gate", "smoke"])
def test_a_gate_says_so_when_it_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    file = tmp_path / "mine.toml"
    text = criteria.default_file("g3").read_text(encoding="utf-8")
    file.write_text(text.replace('limit = 0.0\nunit = "requests"', 'limit = 5.0\nunit = "requests"'), encoding="utf-8")
    monkeypatch.setattr(preflight, "look", lambda *_args: iter(()))
    monkeypatch.setattr(gate_run, "carry_out", lambda *_args: None)
    scenario = load_scenario("rehearsal", SITE)
    options = {**conftest.DEFAULTS, "runs": str(tmp_path / "runs")}
    session = conftest.Session("g3", kind, SITE, scenario, file, None, None, [], {}, options)
    said: list[str] = []
    conftest._carry_out(session, 0, Progress(said.append, False))
    told = [line for line in said if "note: 'failed-requests': a budget of 5 failed requests is void" in line]
    assert len(told) == (kind == "gate")


def test_a_budget_that_holds_is_not_told_of() -> None:
    """The 99th percentile of 400 requests rests on the largest four: three failures leave it finite."""
    large = of_load(80)
    assert infinite_from("ttft_p99_s", large, 80) == 4
    assert cautions(SITE.value, large, with_budget(3)) == []
    (told,) = cautions(SITE.value, large, with_budget(4))
    assert told.endswith("at concurrency 80 from 4 of 400 on (ttft_p99_s of 'guard-ttft-p99')")
    assert len(cautions(SITE.value, SCENARIO, with_budget(1))) == 1
    assert cautions(SITE.value, SCENARIO, with_budget(0.5)) == []


def test_what_no_criterion_states_is_told() -> None:
    lines = plan.lines(SITE, SCENARIO, with_budget(0, "itl_p99_s", "failed_requests"))
    assert lines[-1] == (
        "note: no acceptance can come of these criteria: no criterion compares itl_p99_s with baseline; "
        "no criterion counts failed_requests"
    )


def test_a_lab_without_a_record_of_its_baseline(tmp_path: Path) -> None:
    (tmp_path / "lab.toml").write_text(LAB, encoding="utf-8")
    site = load_site(str(tmp_path / "lab.toml"))
    scenario = SCENARIO.model_copy(update={"model": "qwen3-coder-480b"})
    (told,) = [line for line in plan.lines(site, scenario, CRITERIA) if line.startswith("note: ")]
    assert told == (
        "note: the site names no baseline_record: 'throughput-gain' above 40 % at any step makes that step INVALID, not "
        "PASS as in what is simulated; the published R2 gain reaches 40 % at one step"
    )
    named = site.value.model_copy(update={"baseline_record": "g2.json"})
    assert cautions(named, scenario, CRITERIA) == []
    unbanded = tuple(one.model_copy(update={"band_high": None}) for one in CRITERIA.criterion)
    assert cautions(site.value, scenario, CRITERIA.model_copy(update={"criterion": unbanded})) == []
    rehearsal = dataclasses.replace(site, value=site.value.model_copy(update={"rehearsal": True}))
    assert cautions(rehearsal.value, scenario, CRITERIA) == []
