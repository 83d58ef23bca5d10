"""`python -m gates`: the same bytes anywhere, one line for what goes wrong, and the exit status."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.synthetic import make_run
from tests.synthetic_truth import Truth, put
from workloads.evidence import RunDir

ROOT = Path(__file__).resolve().parent.parent


def gates(*args: object) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "gates", *map(str, args)]
    return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)


def content(path: Path) -> dict[str, bytes]:
    return {p.relative_to(path).as_posix(): p.read_bytes() for p in path.rglob("*") if p.is_file()}


def test_rejudge_writes_the_same_bytes_anywhere_and_touches_nothing_else(tmp_path: Path) -> None:
    path = make_run(tmp_path)
    before = content(path)
    copy = tmp_path / "else where"
    shutil.copytree(path, copy)
    for folder in (path, copy, copy):
        done = gates("rejudge", folder)
        assert (done.returncode, done.stderr) == (0, "")
        assert "G3 verdict: PASS" in done.stdout
    assert (path / "verdict.json").read_bytes() == (copy / "verdict.json").read_bytes()
    after = content(path)
    assert json.loads(after.pop("verdict.json"))["schema"] == 1
    assert after == before


def test_bad_evidence_gives_the_same_bytes_anywhere_too(tmp_path: Path) -> None:
    path = make_run(tmp_path, Truth(blocks=1, seal=False))
    requests = path / "raw/candidate/c2/b01/requests.jsonl"
    requests.write_bytes(requests.read_bytes()[:-20])
    RunDir(path).seal("end")
    copy = tmp_path / "elsewhere"
    shutil.copytree(path, copy)
    assert [gates("rejudge", folder).returncode for folder in (path, copy)] == [11, 11]
    assert (path / "verdict.json").read_bytes() == (copy / "verdict.json").read_bytes()


@pytest.mark.parametrize("command", ["verify", "explain", "rejudge"])
def test_commands_on_a_good_run(tmp_path: Path, command: str) -> None:
    done = gates(command, make_run(tmp_path, Truth(blocks=5)))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout


STATUS: dict[str, tuple[dict[str, Any], int]] = {
    "slower": ({"ttft_s": {"recompute": 3.0, "baseline": 1.2, "candidate": 1.5}}, 1),
    "too few": ({"blocks": 4}, 10),
    "interrupted": ({"blocks": 1, "incidents": [{"whose": "harness", "kind": "interrupted", "message": "^C"}]}, 11),
}


@pytest.mark.parametrize("name", STATUS)
def test_exit_status(tmp_path: Path, name: str) -> None:
    truth, status = STATUS[name]
    path = make_run(tmp_path, Truth(**truth))
    assert gates("rejudge", path).returncode == status
    assert gates("explain", path).returncode == status


def damage_newer(path: Path) -> None:
    (path / "run.json").write_text('{"schema": 2}', encoding="utf-8")


def damage_nan(path: Path) -> None:
    (path / "run.json").write_text('{"schema": NaN}', encoding="utf-8")


def damage_gone(path: Path) -> None:
    (path / "run.json").unlink()


def damage_smoke(path: Path) -> None:
    facts = json.loads((path / "run.json").read_bytes())
    put(kind="smoke")(facts)
    (path / "run.json").write_text(json.dumps(facts), encoding="utf-8")


@pytest.mark.parametrize("damage", [damage_newer, damage_nan, damage_gone, damage_smoke])
@pytest.mark.parametrize("command", ["rejudge", "explain"])
def test_what_cannot_be_judged_is_one_line_and_overwrites_nothing(tmp_path: Path, command: str, damage: Any) -> None:
    path = make_run(tmp_path, Truth(blocks=1))
    (path / "verdict.json").write_bytes(b"{}")
    damage(path)
    before = content(path)
    done = gates(command, path)
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr.startswith("kvgate: ")
    assert done.stderr.count("\n") == 1
    assert content(path) == before


def test_verify_names_the_file(tmp_path: Path) -> None:
    path = make_run(tmp_path, Truth(blocks=1))
    (path / "raw/candidate/c2/b01/trial.json").write_bytes(b"{}")
    (path / "raw/candidate/c2/b01/counters.jsonl").unlink()
    (path / "extra.txt").write_bytes(b"")
    done = gates("verify", path)
    assert done.returncode == 1
    for told in ("trial.json: changed", "counters.jsonl: missing", "extra.txt: added"):
        assert told in done.stdout
    assert gates("rejudge", path).returncode == 11


@pytest.mark.parametrize(
    "args", [(), ("rejudge",), ("judge", "x"), ("rejudge", "/nowhere"), ("verify", ROOT / "tests")]
)
def test_usage_errors_are_one_line(args: tuple[object, ...]) -> None:
    done = gates(*args)
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr.startswith("kvgate: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("command", ["rejudge", "explain"])
def test_words_that_a_terminal_cannot_show_change_no_status(tmp_path: Path, command: str) -> None:
    path = make_run(tmp_path, Truth(incidents=[{"whose": "host", "kind": "aborted", "message": "磁盘已满"}]))
    argv = [sys.executable, "-m", "gates", command, str(path)]
    done = subprocess.run(argv, cwd=ROOT, env={**os.environ, "PYTHONIOENCODING": "latin-1"}, capture_output=True)
    assert (done.returncode, done.stderr) == (11, b"")


def test_a_verdict_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    path = make_run(tmp_path)
    (path / "verdict.json").mkdir()
    done = gates("rejudge", path)
    assert done.returncode == 4 and done.stderr.count("\n") == 1
    assert "verdict: " in done.stdout
