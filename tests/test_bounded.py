"""Numbers that no run can have had are told in a moment: nothing is derived from them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gates import verdict
from gates.validity import unbounded
from tests.synthetic import make_run
from tests.synthetic_truth import Truth
from workloads.evidence import Run, RunDir, read_json

Json = dict[str, Any]
MUCH = 10**12
SOON_S = 60.0  # without its bound each of these would take hours


def workload(**values: object) -> Callable[[Json], None]:
    return lambda facts: facts["scenario"]["workload"].update(values)


def model(facts: Json) -> Json:
    found: Json = facts["site"]["models"][facts["scenario"]["model"]]
    return found


def looks(blocks: object) -> Callable[[Json], None]:
    return lambda facts: facts["looks"].update(blocks=blocks)


UNBOUNDED: dict[str, tuple[Callable[[Json], None], str]] = {
    "prompt": (workload(prompt_tokens=MUCH), "run.json: scenario.workload.prompt_tokens: 1000000000000 is no whole number from 1 to 10000000"),
    "prompt as text": (workload(prompt_tokens=str(MUCH)), "scenario.workload.prompt_tokens: 1000000000000 is no whole number"),
    "prompt as float": (workload(prompt_tokens=1e12), "scenario.workload.prompt_tokens: 1000000000000.0 is no whole number"),
    "output": (workload(output_tokens=MUCH), "scenario.workload.output_tokens"),
    "sets": (workload(prompt_sets=MUCH), "scenario.workload.prompt_sets: 1000000000000 is no whole number from 1 to 3"),
    "waves": (workload(waves_measured=MUCH), "scenario.workload.waves_measured"),
    "waves discarded": (workload(waves_discarded=MUCH), "scenario.workload.waves_discarded"),
    "waves of recompute": (workload(recompute_waves=MUCH), "scenario.workload.recompute_waves"),
    "blocks of recompute": (workload(recompute_blocks=MUCH), "scenario.workload.recompute_blocks"),
    "looks": (looks([MUCH]), "looks.blocks: 1000000000000 is no whole number from 1 to 100"),
    "many looks": (looks([5] * 101), "looks.blocks: no list of 1 to 100 looks"),
    "no looks": (looks([]), "looks.blocks: no list of 1 to 100 looks"),
    "users": (lambda f: f["scenario"].update(steps=[2, MUCH]), "scenario.steps: 1000000000000 is no whole number from 1 to 100000"),
    "many steps": (lambda f: f["scenario"].update(steps=list(range(1, 102))), "scenario.steps: no list of 1 to 100 steps"),
    "chunks": (lambda f: f["site"]["lmcache"].update(chunk_tokens=0), "site.lmcache.chunk_tokens: 0 is no whole number from 1"),
    "KV": (lambda f: model(f).update(kv_bytes_per_token=MUCH), "kv_bytes_per_token: 1000000000000 is no whole number"),
}  # fmt: skip


def soon(run: Run) -> Json:
    begin_s = time.monotonic()
    result = verdict.judge(run)
    assert time.monotonic() - begin_s < SOON_S
    return result


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("sound"), Truth(blocks=1, seal=False))


@pytest.mark.parametrize("name", UNBOUNDED)
def test_numbers_without_bounds_are_told_before_anything_is_derived(sound: Path, name: str) -> None:
    change, told = UNBOUNDED[name]
    run = Run(sound)
    change(run.facts)
    result = soon(run)
    assert (result["verdict"], result["criteria"]) == ("INVALID", [])
    assert any(told in reason for reason in result["reasons"]), result["reasons"]
    assert verdict.decide(run, 1) == "INVALID"


def test_what_a_run_can_have_is_within_the_bounds(sound: Path) -> None:
    result = verdict.judge(Run(sound))
    assert result["criteria"]
    assert not any("no whole number" in reason for reason in result["reasons"])


@pytest.mark.parametrize("size", [1 << 60, MUCH])
def test_files_of_any_size_are_told_soon(tmp_path: Path, size: int) -> None:
    """Files that are told to have held so much, all zeros since: nobody hashes as many zeros to see whether."""
    huge = lambda line: line.update(files=dict.fromkeys(line["files"], size))  # noqa: E731
    other = lambda f: f.update(hashes=dict.fromkeys(f["hashes"], "0" * 64), bytes=dict.fromkeys(f["bytes"], size))  # noqa: E731
    result = soon(Run(make_run(tmp_path, Truth(blocks=1, populate=huge, chunks=other))))
    assert result["verdict"] == "INVALID"
    assert any("holds other bytes" in b["reason"] for b in result["breaches"])


@pytest.mark.parametrize("key", ["step", "block", "position"])
def test_a_trial_of_any_number_is_told_soon(tmp_path: Path, key: str) -> None:
    path = make_run(tmp_path, Truth(blocks=1, seal=False))
    file = path / "raw/candidate/c2/b01/trial.json"
    file.write_text(json.dumps({**read_json(file), key: MUCH}), encoding="utf-8")
    RunDir(path).seal("end")
    assert soon(Run(path))["verdict"] == "INVALID"


def test_thousands_of_waves_and_of_users_are_within_the_bounds(sound: Path) -> None:
    """Five million requests are some thousand waves of a trial; nothing in the scenario's model forbids them."""
    run = Run(sound)
    run.facts["scenario"]["workload"].update(waves_measured=100_000, waves_discarded=1000)
    run.facts["scenario"]["steps"] = [2, 50_000]
    assert unbounded(run) == []
