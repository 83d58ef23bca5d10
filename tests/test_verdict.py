"""The verdict, from synthetic runs of known truth: each criterion must pass, must fail, must be undecided, must be invalid."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gates import compare, criteria, stats, verdict
from gates.explain import explain
from reports import reasons
from tests.synthetic import make_run
from tests.synthetic_truth import ROWS, Truth, only, put
from tests.test_validity import losing_two_chunks
from workloads.evidence import EvidenceError, Run, RunDir

Json = dict[str, Any]
TTFT = {"recompute": 3.0, "baseline": 1.2, "candidate": 0.6}


def judged(folder: Path, **truth: Any) -> Json:
    return verdict.judge(Run(make_run(folder, Truth(**truth))))


def row(result: Json, name: str, step: int = 2) -> Json:
    (found,) = [r for r in result["criteria"] if (r["id"], r["step"]) == (name, step)]
    return found


def candidate(ttft_s: float) -> dict[str, float]:
    return {**TTFT, "candidate": ttft_s}


IDS = [c.id for c in criteria.load(criteria.default_file("g3")).criterion]


def test_a_good_run_passes_on_every_row(tmp_path: Path) -> None:
    result = judged(tmp_path)
    assert result["verdict"] == "PASS"
    assert [(r["id"], r["step"], r["verdict"]) for r in result["criteria"]] == [
        (i, s, "PASS") for i in IDS for s in (2, 4)
    ]
    assert result["acceptance"] is False  # a rehearsal never is
    found = row(result, "ttft-p50-reduction")["estimate"]
    assert found["point"] == pytest.approx(0.5, abs=0.02)
    assert found["n"] == 5
    assert found["low"] < found["point"] < found["high"]


def test_only_a_lab_can_accept(tmp_path: Path) -> None:
    assert judged(tmp_path, rehearsal=False)["acceptance"] is True


def test_stand_ins_are_never_an_acceptance_whatever_the_run_is_called(tmp_path: Path) -> None:
    def emulate(facts: Json) -> None:
        facts["site"]["tiers"]["fx100"]["kind"] = "emulated"

    result = judged(tmp_path, rehearsal=False, run=emulate)
    assert (result["verdict"], result["acceptance"]) == ("INVALID", False)
    assert "tier fx100 is emulated" in result["reasons"][0]


def test_a_block_or_step_that_was_left_out_is_invalid(tmp_path: Path) -> None:
    path = make_run(tmp_path / "a", Truth(blocks=6, seal=False))
    (path / "blocks/b04.json").unlink()
    for folder in path.glob("raw/*/c*/b04"):
        shutil.rmtree(folder)
    assert "one was left out" in " ".join(verdict.judge(Run(path))["reasons"])
    fewer = judged(tmp_path / "b", run=lambda f: f["scenario"].update(steps=[2]), block=put(steps=[2]))
    assert fewer["verdict"] == "INVALID"
    assert "its step is not the scenario's" in " ".join(fewer["reasons"])


def fail_candidate(record: Json) -> None:
    record.update(status="failed", error="reset", t_first_ns=None, usage=None)


MUST_FAIL: dict[str, Json] = {
    "ttft-p50-reduction": {"ttft_s": candidate(1.1)},
    "throughput-gain": {"ttft_s": candidate(1.1)},
    "ttft-p50-vs-recompute": {"ttft_s": {**TTFT, "candidate": 3.5}},
    "throughput-vs-recompute": {"ttft_s": {**TTFT, "candidate": 3.5}},
    "guard-ttft-p99": {"late_s": {"candidate": 3.0}},
    "guard-itl-p99": {"stall_s": {"candidate": 0.3}},
    "guard-tpot": {"decode_at_s": {"candidate": 0.4}},
    "failed-requests": {"request": only({"id": "candidate-c2-b03-w2-1"}, fail_candidate)},
    "tier-faults": {"incidents": [{"whose": "candidate", "kind": "engine-died", "message": "killed"}]},
}


@pytest.mark.parametrize("name", IDS)
def test_every_criterion_can_fail(tmp_path: Path, name: str) -> None:
    result = judged(tmp_path, **MUST_FAIL[name])
    assert row(result, name)["verdict"] == "FAIL"
    assert result["verdict"] == "FAIL"


@pytest.mark.parametrize("name", IDS)
def test_every_criterion_is_invalid_when_the_run_cannot_be_trusted(tmp_path: Path, name: str) -> None:
    result = judged(tmp_path, incidents=[{"whose": "host", "kind": "aborted", "message": "disk full"}])
    assert row(result, name)["verdict"] == "INVALID"
    assert result["verdict"] == "INVALID"
    assert "disk full" in result["reasons"][0]


@pytest.mark.parametrize("name", IDS)
def test_every_criterion_is_invalid_without_data(tmp_path: Path, name: str) -> None:
    result = judged(tmp_path, blocks=0)
    assert row(result, name)["verdict"] == "INVALID"
    assert result["verdict"] == "INVALID"


@pytest.mark.parametrize("name", IDS[:7])
def test_every_comparison_can_be_undecided(tmp_path: Path, name: str) -> None:
    ttft = {"recompute": 0.9, "baseline": 1.2, "candidate": 0.9 if name.startswith("t") else 0.8}
    if name.startswith("guard"):
        ttft["candidate"] = 1.3
    result = judged(tmp_path, ttft_s=ttft, noise=0.25, seed=3)
    assert row(result, name)["verdict"] == "INCONCLUSIVE"


def test_too_few_blocks_are_inconclusive_however_good(tmp_path: Path) -> None:
    result = judged(tmp_path, blocks=4)
    assert result["verdict"] == "INCONCLUSIVE"
    assert "4 valid blocks, 5 needed" in row(result, "ttft-p50-reduction")["reason"]


@pytest.mark.parametrize("seed", range(5))
def test_equal_tiers_and_a_slower_candidate_never_pass(tmp_path: Path, seed: int) -> None:
    assert judged(tmp_path, ttft_s=candidate(1.2), seed=seed)["verdict"] == "FAIL"
    assert judged(tmp_path, ttft_s=candidate(1.5), seed=seed)["verdict"] == "FAIL"


def test_above_the_band_passes_with_a_flag(tmp_path: Path) -> None:
    assert row(judged(tmp_path), "throughput-gain")["flags"] == ["explain"]
    inside = judged(tmp_path, ttft_s=candidate(0.88), decode_s=0.05)
    assert row(inside, "throughput-gain")["verdict"] == "PASS"
    assert row(inside, "throughput-gain")["flags"] == []


def test_a_candidate_whose_median_rests_on_failures_fails(tmp_path: Path) -> None:
    result = judged(tmp_path, request=only({"arm": "candidate", "step": 2, "prompt_index": 1}, fail_candidate))
    assert row(result, "ttft-p50-reduction")["verdict"] == "FAIL"
    assert row(result, "ttft-p50-reduction")["estimate"] is None
    assert result["verdict"] == "FAIL"


def test_a_candidate_that_serves_nothing_fails_on_speed_as_well(tmp_path: Path) -> None:
    result = judged(tmp_path, request=only({"arm": "candidate"}, fail_candidate))
    assert {r["verdict"] for r in result["criteria"] if r["id"] != "tier-faults"} == {"FAIL"}
    assert result["verdict"] == "FAIL"


def broken_off(arm: str) -> Json:
    """An arm whose engine dies at step 2 of block 2: what the loop then leaves behind."""
    return {
        "blocks": 2,
        "trial": only({"arm": arm, "block": 2, "step": 2}, put(completed=False, error="engine died")),
        "block": only({"block": 2}, put(complete=False)),
        "leave_out": [f"{arm}/c4/b02"],
        "incidents": [{"whose": arm, "kind": "engine-died", "message": "killed", "arm": arm, "step": 2, "block": 2}],
    }


def test_a_crash_of_the_candidate_fails_and_is_not_washed_out(tmp_path: Path) -> None:
    result = judged(tmp_path, **broken_off("candidate"))
    assert result["verdict"] == "FAIL"
    assert row(result, "tier-faults")["verdict"] == "FAIL"
    assert row(result, "ttft-p50-reduction")["verdict"] == "INCONCLUSIVE"
    assert result["blocks"]["valid"] == [1]
    assert "the candidate broke it off: killed" in result["blocks"]["invalid"][0]["reasons"][0]


def test_a_crash_of_the_baseline_is_invalid(tmp_path: Path) -> None:
    assert judged(tmp_path, **broken_off("baseline"))["verdict"] == "INVALID"


def test_a_candidate_that_never_starts_fails(tmp_path: Path) -> None:
    """Nothing was stored or measured then, and that is no second fault."""
    failed = [{"whose": "candidate", "kind": "start-failed", "message": "hang", "arm": "candidate"}]
    path = make_run(tmp_path, Truth(blocks=0, incidents=failed, seal=False))
    for arm in ("baseline", "candidate"):
        (path / f"raw/{arm}/populate.jsonl").unlink()
    (path / "raw/candidate/start-01/start.json").unlink()
    RunDir(path).seal("end")
    result = verdict.judge(Run(path))
    assert (result["verdict"], row(result, "tier-faults")["verdict"]) == ("FAIL", "FAIL")


def test_chunks_that_the_candidate_lost_fail_whatever_the_speed(tmp_path: Path) -> None:
    result = judged(tmp_path, snapshot=losing_two_chunks())
    assert row(result, "tier-faults")["verdict"] == "FAIL"
    assert row(result, "ttft-p50-reduction")["verdict"] == "PASS"
    assert result["verdict"] == "FAIL"


def test_one_step_short_of_the_limit_fails_the_gate(tmp_path: Path) -> None:
    result = judged(tmp_path, ttft_at_s={("candidate", 4): 1.0})
    assert row(result, "ttft-p50-reduction", 2)["verdict"] == "PASS"
    assert row(result, "ttft-p50-reduction", 4)["verdict"] == "FAIL"
    assert result["verdict"] == "FAIL"


def test_a_gain_above_the_band_over_a_baseline_slower_than_recompute_is_invalid(tmp_path: Path) -> None:
    result = judged(tmp_path, ttft_at_s={("baseline", 4): 4.0})
    assert {row(result, name, 4)["verdict"] for name in IDS[:2]} == {"INVALID"}
    assert "a sick baseline" in row(result, "throughput-gain", 4)["reason"]
    assert {row(result, name, 2)["verdict"] for name in IDS[:2]} == {"PASS"}
    assert result["verdict"] == "INVALID"


def test_a_baseline_left_out_of_a_block_makes_it_invalid(tmp_path: Path) -> None:
    left_out = only({"block": 5}, put(order=["candidate"]))
    result = judged(tmp_path, block=left_out, leave_out=["baseline/c2/b05", "baseline/c4/b05"])
    assert result["blocks"]["valid"] == [1, 2, 3, 4]
    assert result["verdict"] != "PASS"


@pytest.mark.parametrize(
    ("key", "value"), [("gate", "g2"), ("looks", {"blocks": [3], "alpha": [0.05]}), ("rehearsal", False)]
)
def test_a_run_json_that_contradicts_criteria_or_site_is_invalid(tmp_path: Path, key: str, value: object) -> None:
    result = judged(tmp_path, run=put(**{key: value}))
    assert (result["verdict"], result["acceptance"]) == ("INVALID", False)
    assert result["reasons"][0].startswith(f"run.json: {key} is ")


def test_a_run_that_calls_itself_another_gates_is_invalid(tmp_path: Path) -> None:
    result = judged(tmp_path, run=put(gate="g1"))
    assert (result["verdict"], result["criteria"]) == ("INVALID", [])
    assert "criteria.toml" in result["reasons"][0]


def test_a_block_told_to_be_of_another_prompt_set_is_invalid(tmp_path: Path) -> None:
    result = judged(tmp_path, block=only({"block": 5}, put(prompt_set=1)))
    assert result["blocks"]["invalid"][0]["reasons"][0] == "baseline at concurrency 2 was sent prompt set 0"


def test_reasons_do_not_tell_where_the_run_lies(tmp_path: Path) -> None:
    path = make_run(tmp_path, Truth(seal=False))
    requests = path / "raw/candidate/c2/b01/requests.jsonl"
    requests.write_bytes(requests.read_bytes()[:-20])
    RunDir(path).seal("end")
    content = verdict.to_bytes(verdict.judge(Run(path))).decode()
    assert "raw/candidate/c2/b01/requests.jsonl:12: cut off" in content
    assert str(tmp_path) not in content


ODD: list[Any] = [None, -1, 0, True, 1e308, "", "x", [], {}, [None], {"a": 1}, 2**70]
FILES = (
    "run.json", "blocks/b01.json", "incidents.jsonl", "raw/baseline/populate.jsonl", "raw/candidate/start-01/start.json",
    "raw/candidate/c2/b01/trial.json", "raw/candidate/c2/b01/requests.jsonl", "raw/candidate/c2/b01/counters.jsonl",
)  # fmt: skip


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(name=st.sampled_from(FILES), field=st.integers(0, 60), odd=st.sampled_from(ODD))
def test_any_field_of_any_record_may_hold_anything(one_block: Path, name: str, field: int, odd: object) -> None:
    """One field replaced, in one record: judged without a traceback, to something that can be written."""
    path = one_block
    file = path / name
    before = file.read_bytes()
    try:
        lines = before.decode().splitlines() if name.endswith("l") else [before.decode()]
        record = json.loads(lines[0])
        record[list(record)[field % len(record)]] = odd
        file.write_text("\n".join([json.dumps(record), *lines[1:]]) + "\n", encoding="utf-8")
        try:
            result = verdict.judge(Run(path))
        except (verdict.NotJudgedError, EvidenceError):
            return
        assert result["verdict"] != "PASS"
        assert verdict.to_bytes(result)
        assert verdict.summary_lines(result)
        assert explain(Run(path), result)
        assert verdict.decide(Run(path), 1) != "PASS"
    finally:
        file.write_bytes(before)


@pytest.fixture(scope="module")
def one_block(tmp_path_factory: pytest.TempPathFactory) -> Path:
    incident = {"whose": "candidate", "kind": "odd", "message": "m"}
    return make_run(tmp_path_factory.mktemp("odd"), Truth(blocks=1, incidents=[incident]))


def test_a_failing_baseline_is_invalid_and_never_a_gain(tmp_path: Path) -> None:
    result = judged(tmp_path, request=only({"arm": "baseline"}, fail_candidate))
    assert result["verdict"] == "INVALID"


def test_everything_failing_is_never_a_pass(tmp_path: Path) -> None:
    result = judged(tmp_path, request=fail_candidate)
    assert result["verdict"] == "INVALID"


def test_one_invalid_block_in_six_is_left_out_and_listed(tmp_path: Path) -> None:
    result = judged(tmp_path, blocks=6, snapshot=_stale_block_5())
    assert result["blocks"]["valid"] == [1, 2, 3, 4, 6]
    assert [b["block"] for b in result["blocks"]["invalid"]] == [5]
    assert result["verdict"] == "PASS"


def test_more_replaced_than_a_fifth_of_the_valid_blocks_is_invalid(tmp_path: Path) -> None:
    result = judged(tmp_path, blocks=7, trial=lambda f: f.update(completed=f["block"] > 2))
    assert result["verdict"] == "INVALID"
    told = "2 blocks had to be replaced for 5 valid ones (40 %), 20 % allowed: "
    assert result["reasons"][0].startswith(told)
    assert "五" not in (reasons.translation(result["reasons"][0], "zh") or "五")


def _stale_block_5() -> Any:
    seen = {"n": 0}

    def change(snapshot: Json) -> None:
        # Each block has 2 steps * 6 waves * 2 snapshots of that arm.
        if snapshot["arm"] == "baseline":
            seen["n"] += 1
            if seen["n"] == 4 * 24 + 1:
                snapshot["lmcache_pending"] = 3

    return change


def test_a_missing_trial_or_step_is_never_a_pass(tmp_path: Path) -> None:
    everywhere = [f"baseline/c4/b{n:02d}" for n in range(1, 6)]
    result = judged(tmp_path, leave_out=everywhere)
    assert result["verdict"] == "INVALID"


def test_a_partial_selection_never_passes(tmp_path: Path) -> None:
    result = judged(tmp_path, selection={"collected": ROWS, "selected": 3})
    assert result["verdict"] == "INCONCLUSIVE"
    assert f"only 3 of {ROWS}" in result["reasons"][0]


def test_a_smoke_run_has_no_verdict(tmp_path: Path) -> None:
    with pytest.raises(verdict.NotJudgedError):
        judged(tmp_path, kind="smoke")


def test_an_unsealed_or_changed_run_is_invalid(tmp_path: Path) -> None:
    assert judged(tmp_path, seal=False)["verdict"] == "INVALID"
    path = make_run(tmp_path)
    requests = path / "raw/candidate/c2/b01/requests.jsonl"
    requests.write_text(
        requests.read_text(encoding="utf-8").replace('"status":"ok"', '"status":"OK"'), encoding="utf-8"
    )
    result = verdict.judge(Run(path))
    assert result["verdict"] == "INVALID"
    assert "raw/candidate/c2/b01/requests.jsonl: changed" in result["reasons"][0]


def test_a_cut_off_line_is_named_and_invalid(tmp_path: Path) -> None:
    path = make_run(tmp_path)
    requests = path / "raw/candidate/c2/b01/requests.jsonl"
    requests.write_bytes(requests.read_bytes()[:-20])
    result = verdict.judge(Run(path))
    assert result["verdict"] == "INVALID"


def test_criteria_that_were_exchanged_are_invalid(tmp_path: Path) -> None:
    path = make_run(tmp_path, Truth(seal=False))
    file = path / "criteria.toml"
    file.write_text(file.read_text(encoding="utf-8").replace("limit = 0.25", "limit = 0.01"), encoding="utf-8")
    assert any("not the criteria" in reason for reason in verdict.judge(Run(path))["reasons"])


@pytest.mark.parametrize("damage", ["scenario", "site", "run_id", "selection", "criteria_sha256"])
def test_a_run_json_of_another_shape_never_passes_and_never_raises(tmp_path: Path, damage: str) -> None:
    result = judged(tmp_path, run=lambda facts: facts.pop(damage))
    assert result["verdict"] != "PASS" or damage == "run_id"


def test_while_running_the_same_rule_decides(tmp_path: Path) -> None:
    run = Run(make_run(tmp_path, Truth(seal=False)))
    assert verdict.decide(run, 5) == "PASS"
    assert verdict.decide(run, 4) == "INVALID"


def test_the_look_decides_on_its_own_blocks_alone(tmp_path: Path) -> None:
    """Six valid blocks are judged as the five of the look reached: nothing between looks counts."""
    assert row(judged(tmp_path, blocks=6), "ttft-p50-reduction")["estimate"]["n"] == 5


@pytest.mark.parametrize("away", [-1.0, 1.0], ids=["short of the limit", "beyond the limit"])
def test_rare_wrong_verdicts_over_all_looks(away: float) -> None:
    """One precision from the limit, with t5 noise of one precision, DESIGN promises at most 0.2 % wrong verdicts."""
    loaded = criteria.load(criteria.default_file("g3"))
    criterion, precision = loaded.criterion[0], 0.03
    truth = math.log(1 - criterion.limit) - away * precision
    repeats = 2000
    noise = np.random.default_rng(1).standard_t(5, (repeats, loaded.looks.blocks[-1])) * math.sqrt(3 / 5) * precision
    wrong = 0
    for row_of_noise in noise:
        for blocks, alpha in zip(loaded.looks.blocks, loaded.looks.alpha, strict=True):
            given, _ = compare._by_policy(criterion, stats.mean_interval(truth + row_of_noise[:blocks], alpha))
            if given != "INCONCLUSIVE":
                wrong += given == ("PASS" if away < 0 else "FAIL")
                break
    assert wrong <= 9  # 4 expected at 0.2 %; more than 9 has a chance below 1 %


def test_the_summary_is_short_and_worst_first(tmp_path: Path) -> None:
    lines = verdict.summary_lines(judged(tmp_path, ttft_s=candidate(1.1)))
    assert len(lines) <= ROWS + 1
    assert lines[0].startswith("FAIL")
    assert lines[-1].startswith("G3 verdict: FAIL")


def test_put_sets_fields() -> None:
    record: Json = {}
    put(a=1)(record)
    assert record == {"a": 1}


def test_a_failure_under_a_stepped_clock_is_nobodys(tmp_path: Path) -> None:
    """The client takes an answer that its own clock puts before the request for none."""

    def stepped(record: Json) -> None:
        if (record["arm"], record["block"], record["step"], record["wave"]) == ("candidate", 3, 4, 2):
            if record["prompt_index"] == 0:
                fail_candidate(record)
            if record["prompt_index"] == 3:
                record["clock_offset_ns"] -= 2 * 10**9

    def known(block: Json) -> None:
        if block["block"] == 3:
            block["breaches"] = [{"trial": "candidate/c4/b03", "check": "clock", "whose": "host", "reason": "x"}]

    path = make_run(tmp_path, Truth(blocks=6, request=stepped, block=known))
    rows = [row for row in verdict.judge(Run(path))["criteria"] if row["id"] == "failed-requests"]
    assert {row["step"]: row["verdict"] for row in rows} == {2: "PASS", 4: "INVALID"}
    assert "failed while the host's clock was stepped" in rows[-1]["reason"]


@pytest.mark.parametrize("key", ["gate", "rehearsal", "criteria_sha256"])
def test_what_run_json_says_in_the_wrong_shape_ends_in_a_verdict(tmp_path: Path, key: str) -> None:
    def nested(facts: Json) -> None:
        deep: list[Any] = []
        for _ in range(100):
            deep = [deep]
        facts[key] = deep

    result = verdict.judge(Run(make_run(tmp_path, Truth(blocks=1, run=nested))))
    assert result["verdict"] == "INVALID" and result[key] is None
    verdict.to_bytes(result)


def test_more_selected_than_collected_is_no_whole_gate(tmp_path: Path) -> None:
    path = make_run(tmp_path, Truth(selection={"collected": ROWS, "selected": ROWS + 1}))
    assert verdict.judge(Run(path))["verdict"] != "PASS"


def test_a_note_beside_a_verdict_is_told_as_one(tmp_path: Path) -> None:
    passed = verdict.summary_lines(judged(tmp_path / "a", blocks=8))
    assert any(line.startswith("note: the look at 5 blocks decided") for line in passed)
    assert not any(line.startswith("against the run") for line in passed)
    assert any(
        line.startswith("against the run: ") for line in verdict.summary_lines(judged(tmp_path / "b", seal=False))
    )
