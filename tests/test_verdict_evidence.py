"""Evidence that is damaged, partial, of another shape or of another run never ends in a PASS, nor in a traceback."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gates import verdict
from gates.explain import explain
from tests.synthetic import make_run
from tests.synthetic_truth import ROWS, Truth, only, put
from workloads.evidence import EvidenceError, Run, RunDir

Json = dict[str, Any]


def judged(folder: Path, **truth: Any) -> Json:
    return verdict.judge(Run(make_run(folder, Truth(**truth))))


def test_a_block_or_step_that_was_left_out_is_invalid(tmp_path: Path) -> None:
    path = make_run(tmp_path / "a", Truth(blocks=6, seal=False))
    (path / "blocks/b04.json").unlink()
    for folder in path.glob("raw/*/c*/b04"):
        shutil.rmtree(folder)
    assert "one was left out" in " ".join(verdict.judge(Run(path))["reasons"])
    fewer = judged(tmp_path / "b", run=lambda f: f["scenario"].update(steps=[2]), block=put(steps=[2]))
    assert fewer["verdict"] == "INVALID"
    assert "its step is not the scenario's" in " ".join(fewer["reasons"])


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
