"""The positive control and the needles: what was not seen, or not carried out, proves nothing."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gates import verdict
from tests.synthetic import make_run
from tests.synthetic_requests import likely
from tests.synthetic_truth import Truth, only
from workloads import control, needles
from workloads.evidence import Run, RunDir

Json = dict[str, Any]


def judged(folder: Path, **truth: Any) -> Json:
    return verdict.judge(Run(make_run(folder, Truth(**truth))))


def told(result: Json, check: str) -> list[Json]:
    return [b for b in result["breaches"] if b["check"] == check]


def answer(*roles: str, **values: Any) -> Callable[[Json], None]:
    def change(facts: Json) -> None:
        for record in [r for r in facts["requests"] if r["role"] in roles]:
            record.update(values)

    return change


def hashes(when: str, **values: Any) -> Callable[[Json], None]:
    def change(facts: Json) -> None:
        found = facts["exchanges"][1]["hashes"]
        found[when] = dict(values) or dict(found["sound"])

    return change


def of_another_run(facts: Json) -> None:
    for record in facts["requests"]:
        record["prompt_seed"] += 1


MOST = ("exchanged-0", "exchanged-2")
BLIND = {
    "not seen": (
        answer(*MOST, first_logprobs=likely(7)),
        "1 of 3 exchanged chunks are seen: the checks are blind here",
    ),
    "no number": (answer(*MOST, first_logprobs=None), "the checks are blind here"),
    "never sound": (answer("sound", first_logprobs=likely(8)), "the sound answer is not the one that was computed"),
    "not healed": (answer("restored", first_logprobs=likely(8)), "the restored answer is not the one"),
    "failed": (answer("sound", status="failed", error="x"), "a request of it failed"),
    "given up": (lambda f: f.update(error="no room"), "the control was not carried out: no room"),
    "not asked": (lambda f: f["requests"].pop(3), "the control asked stored, spare, sound, exchanged-1, "),
    "not exchanged": (hashes("exchanged"), "the two chunk files were not exchanged"),
    "not restored": (hashes("restored", a="1"), "the two chunk files are not what they were before"),
    "another prompt": (of_another_run, "is not the one that this run makes"),
    "others' files": (lambda f: f["files"].update(stored=["m@0@0001.data"]), "its files are not its own"),
}


@pytest.mark.parametrize(("change", "words"), BLIND.values(), ids=BLIND.keys())
def test_a_control_that_was_not_seen_or_not_carried_out_is_invalid(
    tmp_path: Path, change: Callable[[Json], None], words: str
) -> None:
    result = judged(tmp_path, control=change)
    assert any(words in b["reason"] for b in told(result, "control")), result["reasons"]
    assert {b["whose"] for b in told(result, "control")} == {"harness"}
    assert result["verdict"] == "INVALID"


def test_a_single_exchange_that_happens_not_to_matter_is_borne(tmp_path: Path) -> None:
    result = judged(tmp_path, control=answer("exchanged-1", first_logprobs=likely(7)))
    assert result["verdict"] == "PASS"
    assert "exchanged-1 0.000, exchanged-2 4.000" in " ".join(result["outputs"])


def test_a_run_without_a_control_is_invalid(tmp_path: Path) -> None:
    path = make_run(tmp_path, Truth(seal=False))
    (path / "raw/baseline/control.json").unlink()
    result = verdict.judge(Run(path))
    assert "no chunk was exchanged" in told(result, "control")[0]["reason"]
    assert result["verdict"] == "INVALID"


def test_two_files_have_each_others_name_and_nothing_is_written(tmp_path: Path) -> None:
    for name in ("a", "b", "other"):
        (tmp_path / name).write_text(name)
    was = {name: os.stat(tmp_path / name).st_ino for name in ("a", "b", "other")}
    with pytest.raises(KeyboardInterrupt), control.exchanged(tmp_path, "a", "b"):
        assert [(tmp_path / name).read_text() for name in ("a", "b", "other")] == ["b", "a", "other"]
        raise KeyboardInterrupt
    assert {name: os.stat(tmp_path / name).st_ino for name in ("a", "b", "other")} == was
    assert sorted(os.listdir(tmp_path)) == ["a", "b", "other"]


def test_no_two_runs_ask_for_the_same_control_prompt(tmp_path: Path) -> None:
    mine, again, other = (control.prompts(1, run, 4096, 256, 1024) for run in ("r1", "r1", "r2"))
    assert [p.token_ids() for p in mine] == [p.token_ids() for p in again]
    assert len({tuple(p.token_ids()[:256]) for p in (*mine, *other)}) == 4
    assert [p.tokens for p in mine] == [4096, 513]
    assert RunDir.create(tmp_path, "g3").run_id != RunDir.create(tmp_path, "g3").run_id


def test_needles_hold_their_fact_once_each_at_another_depth() -> None:
    found = needles.needles(5, "r", 2000)
    assert found == needles.needles(5, "r", 2000) != needles.needles(5, "s", 2000)
    depths = [needle.text.index(needle.expected) / len(needle.text) for needle in found]
    assert depths == sorted(depths)
    assert depths[0] < 0.2
    assert depths[-1] > 0.75
    for needle in found:
        assert needle.text.count(needle.expected) == 1
        assert len(needle.text.split()) < 2000 * needles.WORDS_PER_TOKEN


def losing(lost: dict[tuple[str, str], set[int]]) -> Callable[[Json], None]:
    """A change by which these needles, (arm, role) -> numbers, are not found."""

    def change(facts: Json) -> None:
        for role in ("computed", "read"):
            for record in facts[role]:
                if record["needle"] in lost.get((facts["arm"], role), ()):
                    record["text"] = " nothing"

    return change


LOST: dict[str, tuple[dict[tuple[str, str], set[int]], str, str]] = {
    "none": ({}, "", "PASS"),
    "by the candidate": ({("candidate", "read"): {2}}, "candidate", "FAIL"),
    "by the baseline": ({("baseline", "read"): {0, 1}}, "baseline", "INVALID"),
    "never known to the candidate": ({("candidate", "computed"): {2}, ("candidate", "read"): {2}}, "", "PASS"),
    "not known to recompute": ({("recompute", "computed"): {2}, ("candidate", "read"): {2}}, "", "PASS"),
    "all by the candidate": (
        {("candidate", "computed"): {0, 1, 2, 3}, ("candidate", "read"): {0, 1, 2, 3}},
        "harness",
        "INVALID",
    ),
    "all by recompute": ({("recompute", "computed"): {0, 1, 2, 3}}, "harness", "INVALID"),
}


@pytest.mark.parametrize(("lost", "whose", "given_verdict"), LOST.values(), ids=LOST.keys())
def test_a_needle_lost_between_computing_and_reading_is_the_arms_fault(
    tmp_path: Path, lost: Any, whose: str, given_verdict: str
) -> None:
    result = judged(tmp_path, rehearsal=False, needles=losing(lost))
    assert {b["whose"] for b in told(result, "needles")} == ({whose} if whose else set())
    assert result["verdict"] == given_verdict, result["reasons"]


def test_needles_not_read_from_the_tier_say_nothing(tmp_path: Path) -> None:
    change = only({"arm": "candidate"}, lambda facts: facts.update(after=facts["before"]))
    result = judged(tmp_path, rehearsal=False, needles=change)
    assert "0 tokens of its needles came from the tier, 16380 expected" in told(result, "needles")[0]["reason"]
    assert result["verdict"] == "INVALID"


def test_a_lab_model_must_be_asked(tmp_path: Path) -> None:
    result = judged(tmp_path / "a", rehearsal=False, needles=lambda facts: facts.update(skipped="no time"))
    assert {b["reason"].split(": ")[1] for b in told(result, "needles")} == {
        "needles were left out, though the model is not generated"
    }
    path = make_run(tmp_path / "b", Truth(seal=False))
    (path / "raw/candidate/needles.json").unlink()
    assert "was not asked for needles" in told(verdict.judge(Run(path)), "needles")[0]["reason"]
