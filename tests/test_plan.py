"""What a run will cost and can decide: reckoned by hand here, and the big lab's hours within what was agreed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gates import criteria, plan
from scenarios.load import ConfigError, Loaded, load_scenario, load_site
from scenarios.model import Scenario, Site

ROOT = Path(__file__).resolve().parent.parent
CRITERIA = criteria.load(criteria.default_file("g3"))
SITE = load_site("rehearsal")
SCENARIO = load_scenario("rehearsal", SITE).value

LAB = """
schema = 1
name = "lab"
title = "Lab"
[pace]
start_s = 780.0
prefill_tokens_per_s = 8000.0
decode_s_per_token = 0.03
[engine]
policy = "exclusive"
command = ["vllm"]
ready_deadline_s = 1500.0
[lmcache]
command = ["lmcache", "server"]
dram_gb = 64.0
[models.big]
source = "path"
path = "/models/big"
kv_bytes_per_token = 253952
vocabulary_tokens = 151936
max_context_tokens = 262144
[tiers.local-nvme]
title = "one local NVMe drive"
kind = "fs"
path = "/mnt/a"
expected_read_bytes_per_s = 3.2e9
[tiers.fx100]
title = "FX100"
kind = "fs"
path = "/mnt/b"
expected_read_bytes_per_s = 11.0e9
"""


def lab(folder: Path, *changes: tuple[str, str]) -> tuple[Loaded[Site], Scenario]:
    text = LAB
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    (folder / "lab.toml").write_text(text, encoding="utf-8")
    small = (ROOT / "scenarios/catalog/rehearsal.toml").read_text(encoding="utf-8")
    big = (
        small.replace('"kvgate-toy"', '"big"').replace("steps = [2, 4]", "steps = [1, 4, 16]")
        .replace("prompt_tokens = 4096", "prompt_tokens = 32768").replace("output_tokens = 8", "output_tokens = 200")
    )  # fmt: skip
    (folder / "big.toml").write_text(big, encoding="utf-8")
    site = load_site(str(folder / "lab.toml"))
    return site, load_scenario(str(folder / "big.toml"), site).value


def test_a_model_that_loads_in_thirteen_minutes_fits_in_the_agreed_hours(tmp_path: Path) -> None:
    site, scenario = lab(tmp_path)
    hours = plan.cost(site.value, scenario, CRITERIA).hours
    assert hours[5] is not None and hours[12] is not None
    assert 15 * 780 / 3600 < hours[5] <= 10  # fifteen engine starts alone
    assert hours[12] <= 15


def test_bytes_and_hours_of_the_rehearsal_by_hand() -> None:
    found = plan.cost(SITE.value, SCENARIO, CRITERIA)
    prompt_bytes = 4095 * 4096  # the last token is always computed
    assert found.stored_bytes == 2 * 4 * prompt_bytes
    assert found.read_bytes == {"recompute": 0, "baseline": 6 * 6 * prompt_bytes, "candidate": 6 * 6 * prompt_bytes}
    waves_s = 0.0
    for step, answer_s in ((2, 8 * 0.02), (4, 8 * 0.02 * 2)):
        for speed in (40e6, 100e6):
            waves_s += 5 * 6 * (step * prompt_bytes / speed + answer_s + 0.5)
        waves_s += 3 * 3 * (step * 4096 / 4500 + answer_s + 0.5)
    populate_s = 2 * 2 * 4 * 4096 / 4500
    assert found.hours[5] == pytest.approx((10 + populate_s + waves_s + 3 * 60) / 3600)


@pytest.mark.parametrize(
    "change",
    [
        ("[pace]\nstart_s = 780.0\nprefill_tokens_per_s = 8000.0\ndecode_s_per_token = 0.03\n", ""),
        ("expected_read_bytes_per_s = 11.0e9\n", ""),
    ],
)
def test_what_is_not_stated_is_not_reckoned(tmp_path: Path, change: tuple[str, str]) -> None:
    site, scenario = lab(tmp_path, change)
    assert set(plan.cost(site.value, scenario, CRITERIA).hours.values()) == {None}
    assert "hours unknown" in plan.one_line(site, scenario, CRITERIA)
    assert any("hours unknown" in line for line in plan.lines(site, scenario, CRITERIA))


def test_power_is_none_without_a_difference_and_rises_with_the_effect() -> None:
    outcomes = plan.power(SITE, SCENARIO, CRITERIA).outcomes
    passes = {name: one.pass_.point for name, one in outcomes.items()}
    assert passes["aa"] == 0.0
    assert passes["short"] < 0.01
    assert passes["limit"] < passes["beyond"]


def test_the_noise_is_that_of_g2_once_there_is_a_record(tmp_path: Path) -> None:
    record: dict[str, Any] = {
        "schema": 1, "site": "lab", "model": "big", "made_utc": "2026-01-01", "run_id": "g2-run",
        "manifest_sha256": "0" * 64, "noise": {"ttft_p50_s": 0.01, "output_tokens_per_s": 0.01},
        "levels": [{"step": 1, "metric": "ttft_p50_s", "day_values": [1.0, 1.1, 1.2]}],
    }  # fmt: skip
    (tmp_path / "g2.json").write_text(json.dumps(record), encoding="utf-8")
    site, scenario = lab(tmp_path, ("[pace]", 'baseline_record = "g2.json"\n[pace]'))
    quiet = plan.power(site, scenario, CRITERIA)
    assert quiet.noise == "G2's record g2-run"
    assert quiet.outcomes["beyond"].pass_.point > 0.99
    del record["noise"]["ttft_p50_s"]
    (tmp_path / "g2.json").write_text(json.dumps(record), encoding="utf-8")
    with pytest.raises(ConfigError, match="noise: ttft_p50_s missing"):
        plan.power(site, scenario, CRITERIA)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("[pace]", "[pace]"), "sd 0.03 of a block's log ratio, assumed: the site states no pace.sd"),
        (("[pace]", "[pace]\nsd = 0.03"), "sd 0.03 of a block's log ratio, stated by the site"),
        (("[pace]", "[pace]\nsd = 0.05"), "sd 0.05 of a block's log ratio, stated by the site"),
        (
            ("[pace]\nstart_s = 780.0\nprefill_tokens_per_s = 8000.0\ndecode_s_per_token = 0.03\n", ""),
            "sd 0.03 of a block's log ratio, assumed: the site states no pace.sd",
        ),
    ],
)
def test_where_the_noise_is_from_is_told(
    tmp_path: Path, change: tuple[str, str], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "REPETITIONS", 1)
    assert plan.power(*lab(tmp_path, change), CRITERIA).noise == told


def test_the_command_prints_it_and_refuses_in_one_line() -> None:
    def command(*args: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "gates", "plan", *args]
        return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=120)

    done = command()
    assert (done.returncode, done.stderr) == (0, "")
    assert "look at 5 blocks: " in done.stdout
    assert "A/A: no difference" in done.stdout
    refused = command("--site", "nowhere")
    assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (4, "", 1)


def test_a_run_does_not_end_on_what_nobody_can_simulate() -> None:
    counted = tuple(one for one in CRITERIA.criterion if one.compare == "count")
    found = plan.recorded(SITE, SCENARIO, CRITERIA.model_copy(update={"criterion": counted}))
    assert list(found) == ["unknown"]
    assert "no criterion compares" in found["unknown"]


def test_nor_does_the_plan_end_on_it() -> None:
    counted = tuple(one for one in CRITERIA.criterion if one.compare == "count")
    lines = plan.lines(SITE, SCENARIO, CRITERIA.model_copy(update={"criterion": counted}))
    assert any(line.startswith("what it can decide is not known: no criterion compares") for line in lines)
    assert lines[-1].startswith("note: no acceptance can come of these criteria: no criterion compares ttft_p50_s with")


def test_what_a_run_can_decide_is_recorded_as_it_is_told() -> None:
    found = plan.recorded(SITE, SCENARIO, CRITERIA)
    by_effect = {one["effect"]: one for one in found["outcomes"]}
    assert list(by_effect) == list(plan.EFFECTS)
    assert by_effect["aa"]["pass"] == 0
    for one in by_effect.values():
        assert one["pass"] + one["fail"] + one["inconclusive"] == pytest.approx(1)


def test_what_is_not_simulated_is_named() -> None:
    (told,) = [line for line in plan.lines(SITE, SCENARIO, CRITERIA) if "upper bound" in line]
    assert "P(PASS) is an upper bound" in told
    assert told.endswith(
        ": ttft-p50-vs-recompute, throughput-vs-recompute, guard-ttft-p99, guard-itl-p99, guard-tpot, "
        "failed-requests, tier-faults"
    )


@pytest.mark.parametrize("order", [(0.25, 0.5), (0.5, 0.25)])
def test_the_strictest_limit_is_the_one_that_power_is_told_at(order: tuple[float, float]) -> None:
    (ttft, *others) = CRITERIA.criterion
    two = tuple(ttft.model_copy(update={"id": f"t{limit}", "limit": limit}) for limit in order)
    ratio, gain, _ = plan._limits(CRITERIA.model_copy(update={"criterion": (*two, *others)}))
    assert (ratio, gain) == (pytest.approx(0.5), pytest.approx(1.27))


def test_an_increase_is_relaxed_upwards() -> None:
    (ttft, *_) = CRITERIA.criterion
    change = {"compare": "increase", "operator": "<=", "limit": 0.1, "tolerance": 0.05}
    ratio, _, _ = plan._limits(CRITERIA.model_copy(update={"criterion": (ttft.model_copy(update=change),)}))
    assert ratio == pytest.approx(1.15)
