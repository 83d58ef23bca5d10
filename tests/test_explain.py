"""`explain`: notes are told as notes, and nothing is said of blocks or faults that is not so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gates import verdict
from gates.explain import SHOWN_MAX, explain
from tests.synthetic import make_run
from tests.synthetic_truth import ROWS, Truth, put
from workloads.evidence import Run

BASELINE_S = 1.2
OPEN = (0.55, 0.75, 0.60, 0.80, 0.62)  # too far apart to decide at any look
AGAINST = "The run as a whole cannot be trusted: "


def told(folder: Path, shares: tuple[float, ...] = (), **truth: Any) -> list[str]:
    """Explain a run whose candidate has, block by block, this share of the baseline's TTFT."""
    if shares:
        ttft = {("candidate", block): BASELINE_S * share for block, share in enumerate(shares, start=1)}
        truth = {"noise": 0.0005, "decode_s": 0.001, "blocks": len(shares), "ttft_in_s": ttft, **truth}
    run = Run(make_run(folder, Truth(**truth)))
    return explain(run, verdict.judge(run))


def starting(lines: list[str], word: str) -> list[str]:
    return [line for line in lines if line.startswith(word)]


def test_blocks_after_the_look_that_decided_are_a_note(tmp_path: Path) -> None:
    lines = told(tmp_path, (0.6,) * 5 + (0.9,) * 3)
    note = "the look at 5 blocks decided: 3 valid blocks that came after it do not count"
    assert starting(lines, "Note: ") == [f"Note: {note}."]
    assert not starting(lines, AGAINST)
    assert "It rests on 5 of 8 valid blocks; 0 were thrown out." in lines


def test_blocks_between_two_looks_are_not_rested_on(tmp_path: Path) -> None:
    lines = told(tmp_path, (*OPEN, 0.7))
    assert "It rests on 5 of 6 valid blocks; 0 were thrown out." in lines
    assert "The next look is at 8 blocks." in lines


def test_no_further_look_is_told_of_where_none_can_come(tmp_path: Path) -> None:
    lines = told(tmp_path, (*OPEN, 0.9, 0.5, 0.95, *OPEN[:4]))
    assert "is INCONCLUSIVE" in lines[0]
    assert any("is too wide to decide" in line for line in lines)
    assert "That was the last look: no more follows." in lines
    assert not starting(lines, "The next look")
    assert "It rests on 12 valid blocks; 0 were thrown out." in lines


def test_tests_that_were_left_out_decide_and_are_not_held_against_the_run(tmp_path: Path) -> None:
    lines = told(tmp_path, selection={"collected": ROWS, "selected": 3})
    assert f"Decided by: only 3 of {ROWS} tests of the gate were asked for." in lines
    assert not starting(lines, AGAINST)


def test_a_changed_suite_is_a_note_of_a_pass(tmp_path: Path) -> None:
    lines = told(tmp_path, rehearsal=False, run=put(suite={"dirty": True, "commit": "0" * 40}))
    assert "is PASS" in lines[0]
    assert starting(lines, "Note: no acceptance: the suite was changed")
    assert not starting(lines, AGAINST)


def test_what_is_held_against_the_run_is_told_as_such_and_once(tmp_path: Path) -> None:
    incident = {"whose": "harness", "kind": "interrupted", "message": "^C"}
    lines = told(tmp_path, blocks=1, incidents=[incident])
    assert "is INVALID" in lines[0]
    assert starting(lines, AGAINST)
    assert not starting(lines, "Note: ") and not starting(lines, "INVALID: ")


def test_a_self_check_does_not_read_as_an_acceptance(tmp_path: Path) -> None:
    lines = told(tmp_path, rehearsal=False, kind="selfcheck")
    assert "is PASS" in lines[0]
    assert "It is no acceptance." in lines[1]


def test_every_fault_of_the_candidate_is_told(tmp_path: Path) -> None:
    run = Run(make_run(tmp_path))
    judged = verdict.judge(run)
    breaches = [
        {"check": "tier", "whose": "candidate", "reason": f"fault {n}", "trial": "candidate/c2/b01"}
        for n in range(SHOWN_MAX + 3)
    ] + [{"check": "tier", "whose": "candidate", "reason": "elsewhere", "trial": "candidate/c4/b01"}]
    (row,) = [r for r in judged["criteria"] if (r["id"], r["step"]) == ("tier-faults", 2)]
    row.update(verdict="FAIL", reason=f"{SHOWN_MAX + 3} in 60 requests, the first: fault 0")
    judged.update(verdict="FAIL", breaches=breaches)
    lines = explain(run, judged)
    assert [line for line in lines if "fault 0" in line and line.startswith("  and")] == []
    assert "  and candidate/c2/b01: tier: fault 1." in lines
    assert f"  and candidate/c2/b01: tier: fault {SHOWN_MAX}." in lines
    assert "  and 2 more: all are in verdict.json, under breaches." in lines
    assert not any("elsewhere" in line for line in lines)


def test_an_invalid_block_says_how_many_reasons_there_are(tmp_path: Path) -> None:
    run = Run(make_run(tmp_path))
    judged = verdict.judge(run)
    judged["blocks"]["invalid"] = [{"block": 6, "reasons": ["first", "second"]}, {"block": 7, "reasons": ["alone"]}]
    lines = explain(run, judged)
    assert lines[-2:] == ["Block 6 was invalid: first (and 1 more).", "Block 7 was invalid: alone."]
