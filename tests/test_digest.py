"""One pass over the records: the same whoever makes it, and odd records are told by the trial that holds them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from gates import parallel, verdict
from gates.validity import digest
from tests.looking import breaches_of
from tests.synthetic import make_run
from tests.synthetic_truth import Truth
from workloads.evidence import Run, RunDir

Json = dict[str, Any]


def die(_run: Path, _trial: Path) -> digest.Digest:
    os._exit(9)


def in_order(path: Path, order: list[int]) -> Path:
    """Put the waves of the candidate's first trial into another order."""
    file = path / "raw/candidate/c2/b01/requests.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(line for wave in order for line in lines if json.loads(line)["wave"] == wave))
    return path


@pytest.mark.parametrize("read_at", [digest._read_at, die], ids=["as they come", "killed"])
def test_processes_of_their_own_give_the_same_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read_at: Any
) -> None:
    path = make_run(tmp_path, Truth())
    alone = verdict.to_bytes(verdict.judge(Run(path)))
    started: list[int] = []
    pool = parallel.ProcessPoolExecutor
    monkeypatch.setattr(parallel, "ProcessPoolExecutor", lambda n, *rest: started.append(n) or pool(n, *rest))
    monkeypatch.setattr(parallel, "SHARED_FROM_BYTES", 0)
    monkeypatch.setattr(parallel.os, "cpu_count", lambda: 2)
    monkeypatch.setattr(digest, "_read_at", read_at)
    assert verdict.to_bytes(verdict.judge(Run(path))) == alone
    assert started == [2]


def test_what_is_read_twice_is_read_anew_once_it_has_changed(tmp_path: Path) -> None:
    run = Run(make_run(tmp_path, Truth(blocks=1)))
    trial = run.trial("candidate", 2, 1)
    assert trial is not None
    before = digest.digest(run, trial)
    assert digest.digest(run, trial) is before
    with (trial.path / "requests.jsonl").open("ab") as f:
        f.write(b"{")
    after = digest.digest(run, trial)
    assert [b.check for b in after.breaches] == [*[b.check for b in before.breaches], "readable"]


def test_waves_that_do_not_stand_in_their_order_are_told(tmp_path: Path) -> None:
    path = in_order(make_run(tmp_path, Truth(blocks=1)), [0, 2, 1, 3, 4, 5])
    told = [(b.check, b.reason) for b in breaches_of(path, "candidate/c2/b01")]
    assert ("timeline", "wave 1 began before wave 2 had ended") in told


def test_a_wave_in_two_pieces_is_told(tmp_path: Path) -> None:
    path = make_run(tmp_path, Truth(blocks=1, seal=False))
    file = path / "raw/candidate/c2/b01/requests.jsonl"
    first, *others = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join([*others, first]))
    RunDir(path).seal("end")
    reasons = [b.reason for b in breaches_of(path, "candidate/c2/b01")]
    assert "wave 0 has 1 requests, 2 of different prompts expected" in reasons


def test_a_record_named_as_another_trials_is_told(tmp_path: Path) -> None:
    def rename(record: Json) -> None:
        if (record["arm"], record["step"], record["block"], record["wave"]) == ("candidate", 2, 1, 1):
            record["id"] = record["id"].replace("b01", "b02")

    path = make_run(tmp_path, Truth(request=rename))
    result = verdict.judge(Run(path))
    assert result["verdict"] == "INVALID"
    told = [b["reason"] for b in result["breaches"] if b["check"] == "requests"]
    assert "request candidate-c2-b02-w1-0 is recorded in candidate/c2/b01, and is of candidate/c2/b02" in told


def test_a_fault_in_every_record_is_told_so_often_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digest, "TOLD_MAX", 3)

    def odd(record: Json) -> None:
        record["finish_reason"] = "odd"

    path = make_run(tmp_path, Truth(blocks=1, request=odd))
    reasons = [b.reason for b in breaches_of(path, "candidate/c2/b01") if b.check == "lengths"]
    assert len(reasons) == 4
    assert reasons[-1] == "9 more of the kind"  # of six waves of two
