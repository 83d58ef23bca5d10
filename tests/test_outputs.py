"""Right answers: an arm whose first tokens are not recompute's is told, and nothing passes where none are known."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gates import verdict
from tests.synthetic import make_run
from tests.synthetic_truth import Truth, only, put
from workloads.evidence import Run

Json = dict[str, Any]
WRONG = 1024  # no id of the synthetic vocabulary


def judged(folder: Path, **truth: Any) -> Json:
    return verdict.judge(Run(make_run(folder, Truth(**truth))))


def equality(result: Json) -> list[Json]:
    return [b for b in result["breaches"] if b["check"] == "output-equality"]


def wrong(record: Json) -> None:
    record["output_token_ids"] = [WRONG, *record["output_token_ids"][1:]]


def some(where: Json, count: int) -> Callable[[Json], None]:
    """A change by which the first `count` requests that fit have another first token."""
    left = {"n": count}

    def change(record: Json) -> None:
        if left["n"] and all(record[key] == value for key, value in where.items()):
            left["n"] -= 1
            wrong(record)

    return change


def test_equal_outputs_pass_and_what_was_compared_is_told(tmp_path: Path) -> None:
    result = judged(tmp_path)
    assert result["verdict"] == "PASS"
    assert [line.split(";")[0] for line in result["outputs"][:2]] == [
        f"{arm}: 0 of 180 first tokens, over 8 prompts, are not recompute's" for arm in ("baseline", "candidate")
    ]
    told = "; 0 are more than 0.2 nats off; 2 % allowed; recompute differs from itself in 0 of 54"
    assert result["outputs"][0].endswith(told)
    assert [line.split(":")[0] for line in result["outputs"][2:]] == ["the control", "the stores"]
    (row,) = [r for r in result["criteria"] if (r["id"], r["step"]) == ("tier-faults", 2)]
    assert result["outputs"][1] in row["reason"]


def test_wrong_kv_of_the_candidate_fails(tmp_path: Path) -> None:
    result = judged(tmp_path, request=only({"arm": "candidate"}, wrong))
    assert result["verdict"] == "FAIL"
    (found,) = equality(result)
    assert found["whose"] == "candidate"
    assert found["reason"].startswith(
        "candidate: 180 of 180 first tokens, over 8 prompts, are not recompute's (the first: "
    )
    failing = {r["id"] for r in result["criteria"] if r["verdict"] == "FAIL"}
    assert failing == {"tier-faults"}


def test_wrong_kv_of_the_baseline_is_invalid(tmp_path: Path) -> None:
    result = judged(tmp_path, request=only({"arm": "baseline"}, wrong))
    assert result["verdict"] == "INVALID"
    assert [b["whose"] for b in equality(result)] == ["baseline"]


def test_one_exchanged_prompt_of_eight_fails(tmp_path: Path) -> None:
    result = judged(tmp_path, request=only({"arm": "candidate", "prompt_set": 1, "prompt_index": 3}, wrong))
    assert result["verdict"] == "FAIL"
    assert "candidate: 12 of 180" in equality(result)[0]["reason"]


@pytest.mark.parametrize(("count", "given"), [(3, "PASS"), (4, "FAIL")])
def test_the_budget_is_a_share_and_what_is_within_it_is_told(tmp_path: Path, count: int, given: str) -> None:
    """2 % of 180 requests are 3.6."""
    result = judged(tmp_path, request=some({"arm": "candidate"}, count))
    assert result["verdict"] == given
    assert any(line.startswith(f"candidate: {count} of 180 first tokens") for line in result["outputs"])


def test_few_requests_get_no_odd_one_for_free(tmp_path: Path) -> None:
    result = judged(tmp_path, blocks=1, request=some({"arm": "candidate"}, 1))
    assert "candidate: 1 of 36 first tokens" in equality(result)[0]["reason"]
    assert result["verdict"] == "FAIL"


def test_the_share_that_is_allowed_is_allowed(tmp_path: Path) -> None:
    exact = lambda f: f["scenario"]["workload"].update(first_token_mismatch_budget=0.05)  # noqa: E731
    assert equality(judged(tmp_path / "a", run=exact, request=some({"arm": "candidate"}, 9))) == []  # 9 of 180
    assert equality(judged(tmp_path / "b", run=exact, request=some({"arm": "candidate"}, 10)))


def test_what_recompute_does_to_itself_is_the_floor(tmp_path: Path) -> None:
    def request(record: Json) -> None:
        mine(record)
        theirs(record)

    mine, theirs = some({"arm": "candidate"}, 9), some({"arm": "recompute"}, 4)  # 9 of 180 against 4 of 54
    result = judged(tmp_path, request=request)
    assert result["verdict"] == "PASS"
    assert result["outputs"][0].endswith("; 7.41 % allowed; recompute differs from itself in 4 of 54")


def test_a_recompute_that_disagrees_with_itself_is_no_reference(tmp_path: Path) -> None:
    result = judged(tmp_path, request=some({"arm": "recompute"}, 8))
    assert result["verdict"] == "INVALID"
    assert [b["whose"] for b in equality(result)] == ["harness"]
    assert "recompute differs from itself in 8 of 54 first tokens, 10 % allowed" in equality(result)[0]["reason"]


def test_where_recompute_is_evenly_divided_both_count(tmp_path: Path) -> None:
    """Three of the six requests of one prompt: the candidate's 18 of 180 with it are as right as the baseline's."""
    theirs = some({"arm": "recompute", "prompt_set": 0, "prompt_index": 3}, 3)
    result = judged(tmp_path, request=theirs)
    assert result["verdict"] == "PASS"
    assert "candidate: 0 of 180" in result["outputs"][1]
    assert result["outputs"][1].endswith("recompute differs from itself in 0 of 54")


def test_wrong_recompute_alone_blames_both_and_never_passes(tmp_path: Path) -> None:
    assert judged(tmp_path, request=only({"arm": "recompute"}, wrong))["verdict"] in ("FAIL", "INVALID")


@pytest.mark.parametrize(
    "arms", [("recompute", "baseline", "candidate"), ("candidate",), ("baseline",), ("recompute",)]
)
def test_ids_that_are_not_told_are_no_data(tmp_path: Path, arms: tuple[str, ...]) -> None:
    def silent(record: Json) -> None:
        if record["arm"] in arms:
            record["output_token_ids"] = []

    result = judged(tmp_path, request=silent)
    assert result["verdict"] == "INVALID"
    no_data = [b for b in equality(result) if "no data on its outputs" in b["reason"]]
    assert {b["reason"].split(":")[0] for b in no_data} == set(arms)
    assert {b["whose"] for b in no_data} == {"harness"}


def test_one_request_without_ids_is_told(tmp_path: Path) -> None:
    result = judged(tmp_path, request=only({"id": "candidate-c2-b03-w2-1"}, put(output_token_ids=[])))
    assert result["verdict"] == "INVALID"
    assert (
        "candidate: no data on its outputs: 1 of 180 successful requests name no token id"
        in equality(result)[0]["reason"]
    )


def test_prompts_that_recompute_never_had_compare_with_the_baseline(tmp_path: Path) -> None:
    """Recompute's only valid block has prompt set 0, so that set 1 has no reference."""
    blind = only({"arm": "recompute", "block": 2}, put(clock=None))

    def request(record: Json) -> None:
        blind(record)
        if record["arm"] == "candidate" and record["prompt_set"] == 1:
            wrong(record)

    sound = judged(tmp_path / "a", request=blind)
    assert equality(sound) == []
    assert any("over 4 prompts, are not baseline's" in line for line in sound["outputs"])
    result = judged(tmp_path / "b", request=request)
    (found,) = equality(result)
    assert found["whose"] == "harness"
    assert "candidate: 72 of 72 first tokens, over 4 prompts, are not baseline's" in found["reason"]
    assert result["verdict"] == "INVALID"


def test_a_trial_whose_records_do_not_hold_says_nothing_of_its_arm(tmp_path: Path) -> None:
    """Wrong prompts give wrong answers: the harness's fault, not the candidate's."""

    def foreign(record: Json) -> None:
        if (record["arm"], record["block"]) == ("candidate", 5):
            wrong(record)
            record["usage"] = {"prompt_tokens": 1, "completion_tokens": 8}

    result = judged(tmp_path, blocks=6, request=foreign)
    assert equality(result) == []
    assert [b["block"] for b in result["blocks"]["invalid"]] == [5]


def test_a_block_replaced_for_another_reason_does_not_wash_wrong_answers_out(tmp_path: Path) -> None:
    truth = {"request": only({"arm": "candidate", "block": 5}, wrong), "blocks": 6}
    late = only({"arm": "baseline"}, put(lmcache_pending=3))
    seen = {"n": 0}

    def snapshot(record: Json) -> None:
        seen["n"] += record["arm"] == "baseline"
        if seen["n"] == 4 * 24 + 1:
            late(record)

    result = judged(tmp_path, snapshot=snapshot, **truth)
    assert [b["block"] for b in result["blocks"]["invalid"]] == [5]
    assert [b["whose"] for b in equality(result)] == ["candidate"]
    assert result["verdict"] == "FAIL"


def test_a_candidate_that_died_before_there_was_anything_to_compare_with_still_fails(tmp_path: Path) -> None:
    """The candidate is the first arm of block 1 here: one whole trial of it, and nothing else was measured."""
    died = {"whose": "candidate", "kind": "engine-died", "message": "killed", "arm": "candidate", "step": 4, "block": 1}
    result = judged(
        tmp_path,
        blocks=1,
        trial=only({"arm": "candidate", "step": 4}, put(completed=False, error="engine died")),
        block=put(complete=False),
        leave_out=[f"{arm}/c{step}/b01" for arm in ("recompute", "baseline") for step in (2, 4)],
        incidents=[died],
    )
    assert equality(result) == []
    assert result["verdict"] == "FAIL"
    assert not [line for line in result["outputs"] if line.startswith("candidate")]
