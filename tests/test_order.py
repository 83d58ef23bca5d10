"""Blocks, folders and files where they must be: nothing chosen by hand, nothing beside what is judged."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from gates import validity, verdict
from tests.synthetic import make_run
from tests.synthetic_truth import Truth, only, put
from workloads.evidence import Run, RunDir

Json = dict[str, Any]


def told(path: Path, check: str) -> list[str]:
    return [b.reason for b in validity.check_run(Run(path)) if b.check == check]


ORDER_FAULTS: dict[str, tuple[Json, str]] = {
    "arms": ({"order": ["baseline", "candidate", "recompute"]}, "block 1: its order is baseline, candidate, recompute, candidate, baseline, recompute by the run's seed"),
    "steps": ({"steps": [4, 2]}, "block 1: its steps is 4, 2, 2, 4 by the run's seed"),
    "prompt set": ({"prompt_set": 1}, "block 1: its prompt_set is 1, 0 by the run's seed"),
    "replaced nothing": ({"replaces": 7}, "block 1: its replaces is 7, None by the run's seed"),
}  # fmt: skip


@pytest.mark.parametrize("name", ORDER_FAULTS)
def test_an_order_that_the_seed_did_not_draw_is_told(tmp_path: Path, name: str) -> None:
    values, reason = ORDER_FAULTS[name]
    assert told(make_run(tmp_path, Truth(blocks=2, block=only({"block": 1}, put(**values)))), "order") == [reason]


def test_the_candidate_always_after_the_baseline_never_passes(tmp_path: Path) -> None:
    """As rotated orders would be that somebody chose: each block of one piece, but none as the seed drew it."""
    path = make_run(tmp_path, Truth(seed=1, seal=False))
    said = RunDir(path)
    facts = Run(path).facts
    said.write_json("run.json", {**facts, "seed": 2})
    said.seal("end")
    assert told(path, "order")
    assert verdict.judge(Run(path))["verdict"] == "INVALID"


def spoilt(block: Json) -> None:
    if block["block"] == 2:
        block["breaches"] = [{"trial": "baseline/c2/b02", "check": "cold", "whose": "host", "reason": "warm"}]


def test_an_invalid_block_is_repeated_with_its_own_plan(tmp_path: Path) -> None:
    path = make_run(tmp_path / "a", Truth(blocks=4, block=spoilt))
    assert told(path, "order") == []
    second, third = Run(path).blocks()[1:3]
    assert (third["order"], third["steps"], third["prompt_set"]) == (
        second["order"], second["steps"], second["prompt_set"],
    )  # fmt: skip
    assert third["replaces"] == 2

    def forgets(block: Json) -> None:
        spoilt(block)
        block["replaces"] = None

    forgotten = make_run(tmp_path / "b", Truth(blocks=3, block=forgets))
    assert told(forgotten, "order") == ["block 3: its replaces is None, 2 by the run's seed"]
    cut = only({"block": 2}, put(complete=False))
    assert told(make_run(tmp_path / "c", Truth(blocks=4, block=cut)), "order") == []


def test_more_blocks_than_were_planned_are_told(tmp_path: Path) -> None:
    assert told(make_run(tmp_path, Truth(blocks=13)), "order") == ["block 13: the plan ends with 12 valid blocks"]


def test_a_sound_run_has_nothing_out_of_place(tmp_path: Path) -> None:
    for number, truth in enumerate((Truth(blocks=2), Truth(blocks=2, rehearsal=False))):
        assert told(make_run(tmp_path / str(number), truth), "places") == []


HIDDEN = (
    "raw/candidate/c2/b001/trial.json", "raw/candidate/c2/b1/trial.json", "raw/candidate/c2/b00/trial.json",
    "raw/candidate/c02/b01/trial.json", "raw/candidate/c8/b01/trial.json", "raw/other/c2/b01/trial.json",
    "raw/candidate/c2/b01/requests.jsonl.old", "raw/candidate/c2/b01/more/trial.json", "raw/candidate/c2/notes.txt",
    "raw/candidate/start-1/start.json", "raw/candidate/start-001/start.json", "raw/candidate/start-01/more.json",
    "raw/candidate/control.json", "raw/recompute/populate.jsonl", "raw/trial.json", "blocks/b1.json",
    "blocks/b001.json", "blocks/more/b01.json", "calibration/c02/requests.jsonl", "calibration/c2/more.jsonl",
)  # fmt: skip


@pytest.mark.parametrize("name", HIDDEN)
def test_what_has_no_place_in_a_run_is_told(tmp_path: Path, name: str) -> None:
    path = make_run(tmp_path, Truth(blocks=1, seal=False))
    file = path / name
    file.parent.mkdir(parents=True, exist_ok=True)
    source = {"trial.json": "raw/candidate/c2/b01/trial.json", "start.json": "raw/candidate/start-01/start.json"}
    if file.name in source:
        shutil.copy(path / source[file.name], file)
    else:
        file.write_text("{}\n", encoding="utf-8")
    found = told(path, "places")
    odd = [
        place for place in (file.relative_to(path), *file.relative_to(path).parents) if f"{place}: " in " ".join(found)
    ]
    assert odd, found


def test_a_second_trial_in_a_folder_beside_the_first_never_passes(tmp_path: Path) -> None:
    path = make_run(tmp_path, Truth(seal=False))
    shutil.copytree(path / "raw/candidate/c2/b01", path / "raw/candidate/c2/b001")
    RunDir(path).seal("end")
    assert told(path, "places") == ["raw/candidate/c2/b001: no part of a run has this name", *(
        f"raw/candidate/c2/b001/{name}: no part of a run has this name"
        for name in ("chunks.json", "counters.jsonl", "engine.log", "requests.jsonl")
    )]  # fmt: skip
    assert verdict.judge(Run(path))["verdict"] == "INVALID"


def test_blocks_that_changed_their_names_are_told(tmp_path: Path) -> None:
    path = make_run(tmp_path, Truth(blocks=5, seal=False))
    four, five = path / "blocks/b04.json", path / "blocks/b05.json"
    content = four.read_bytes()
    four.write_bytes(five.read_bytes())
    five.write_bytes(content)
    assert told(path, "places") == [
        "blocks/b04.json: it says that it is block 5", "blocks/b05.json: it says that it is block 4",
    ]  # fmt: skip
