"""Blocks that had to be replaced: each look has its share of them, which no later block makes less."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gates import verdict
from tests.synthetic import make_run
from tests.synthetic_truth import Truth
from workloads.evidence import Run

Json = dict[str, Any]


def judged(folder: Path, blocks: int, bad: set[int], **truth: Any) -> Json:
    """Judge a run in which the client was late for a request of the baseline in each of the `bad` blocks."""

    def late(record: Json) -> None:
        if (record["arm"], record["wave"], record["prompt_index"]) == ("baseline", 1, 0) and record["block"] in bad:
            record["t_intended_ns"] -= 6_000_000_000

    def known(block: Json) -> None:
        if block["block"] in bad:
            name = f"baseline/c2/b{block['block']:02d}"
            block["breaches"] = [{"trial": name, "check": "client-lag", "whose": "harness", "reason": "late"}]

    return verdict.judge(Run(make_run(folder, Truth(blocks=blocks, request=late, block=known, **truth))))


def told(result: Json) -> str:
    return str(result["reasons"][0]).split(":")[0]


@pytest.mark.parametrize("blocks", [7, 8, 10, 14])
def test_what_is_invalid_at_a_look_stays_invalid_however_many_blocks_follow(tmp_path: Path, blocks: int) -> None:
    result = judged(tmp_path, blocks, {2, 4})
    assert (result["verdict"], len(result["blocks"]["valid"])) == ("INVALID", blocks - 2)
    assert told(result) == "2 blocks had to be replaced for 5 valid ones (40 %), 20 % allowed"


def test_what_was_replaced_after_the_look_that_decided_was_not_yet_there(tmp_path: Path) -> None:
    result = judged(tmp_path, 8, {6, 7})
    assert (result["verdict"], result["blocks"]["valid"]) == ("PASS", [1, 2, 3, 4, 5, 8])


def test_one_for_five_is_a_fifth_and_two_for_eight_are_more(tmp_path: Path) -> None:
    assert judged(tmp_path / "a", 6, {2})["verdict"] == "PASS"
    ttft = {("candidate", block): 1.2 * share for block, share in enumerate((0.55, 0.6, 0.75, 0.6, 0.8, 0.62), 1)}
    open_at_five = {
        "ttft_in_s": ttft | {("candidate", n): 0.6 for n in range(7, 11)},
        "noise": 0.0005,
        "decode_s": 0.001,
    }
    assert judged(tmp_path / "b", 6, {2}, **open_at_five)["verdict"] == "INCONCLUSIVE"
    result = judged(tmp_path / "c", 10, {2, 7}, **open_at_five)
    assert (result["verdict"], len(result["blocks"]["valid"])) == ("INVALID", 8)
    assert told(result) == "2 blocks had to be replaced for 8 valid ones (25 %), 20 % allowed"


@pytest.mark.parametrize(
    ("blocks", "bad", "words"),
    [
        (2, {2}, "1 block had to be replaced for 1 valid one (100 %), 20 % allowed"),
        (2, {1, 2}, "2 blocks had to be replaced for 0 valid ones, 20 % allowed"),
    ],
)
def test_before_the_first_look_all_of_them_count(tmp_path: Path, blocks: int, bad: set[int], words: str) -> None:
    result = judged(tmp_path, blocks, bad)
    assert (result["verdict"], told(result)) == ("INVALID", words)
