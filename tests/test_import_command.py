"""The command that imports: pairs in, one sealed run out, which is judged again anywhere; nothing where it refuses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gates import __main__ as program
from gates import verdict
from gates.imports import store
from tests.import_lab import DATA, imported
from workloads.evidence import EvidenceError, Run, RunDir

ROOT = Path(__file__).resolve().parent.parent


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def gates(*args: object) -> tuple[int, str]:
        status = program.main([str(arg) for arg in args])
        out, err = capsys.readouterr()
        assert err == ""
        return status, out

    files = [DATA / "baseline.json", DATA / "candidate.json", DATA / "plain.json", DATA / "unlimited.json"]
    status, out = gates("import", "vllm-bench", *files, "--out", tmp_path / "a")
    run = Path(out.splitlines()[-1])
    assert status == 11 and [path.name for path in (tmp_path / "a").iterdir()] == [run.name]
    first = (run / "verdict.json").read_bytes()
    assert gates("verify", run)[0] == 0
    moved = run.rename(tmp_path / "moved")
    # Another process, another place: the same bytes.
    done = subprocess.run([sys.executable, "-m", "gates", "rejudge", moved], cwd=ROOT, capture_output=True, check=False)
    assert (done.returncode, done.stderr, (moved / "verdict.json").read_bytes()) == (11, b"", first)
    status, out = gates("explain", moved)
    assert status == 11 and "at concurrency unknown" in out and "at concurrency 4" in out
    by_arm = ("--baseline", files[0], files[2], "--candidate", files[1], files[3])
    status, out = gates("import", "vllm-bench", *by_arm, "--out", tmp_path / "b")
    assert (
        json.loads((Path(out.splitlines()[-1]) / "verdict.json").read_bytes())["criteria"]
        == json.loads(first)["criteria"]
    )
    (moved / "raw/import/candidate-01.json").write_bytes(b"{}")
    assert gates("rejudge", moved)[0] == 11 and gates("verify", moved)[0] == 1


ODD_FILES: dict[str, Callable[[Path], object]] = {
    "a pipe": os.mkfifo,
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a folder": Path.mkdir,
    "sparse": lambda path: (path.touch(), os.truncate(path, 1 << 21)),
}


@pytest.mark.parametrize("name", ODD_FILES)
def test_what_is_no_file_of_an_import_is_told_without_waiting(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(store, "BYTES_MAX", 1 << 20)
    run, _ = imported(tmp_path, "baseline.json", "stopped.json")
    (run / "raw/import/candidate-01.json").unlink()
    ODD_FILES[name](run / "raw/import/candidate-01.json")
    for what in ("rejudge", "explain"):
        assert program.main([what, str(run)]) == 11
        out, err = capsys.readouterr()
        assert err == "" and "candidate-01.json" in out
    told = "not a plain file" if name != "sparse" else "larger than 1 MiB"
    assert any(f"raw/import/candidate-01.json: {told}" in r for r in verdict.judge(Run(run))["reasons"])


@pytest.mark.parametrize("name", ["a pipe", "a device", "a folder", "sparse"])
def test_what_is_no_file_is_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(store, "BYTES_MAX", 1 << 20)
    ODD_FILES[name](tmp_path / "x.json")
    with pytest.raises(EvidenceError, match=r"x\.json: (no such file|larger than)"):
        store.take(tmp_path / "x.json", "candidate")


@pytest.mark.parametrize(
    ("args", "told"),
    [
        ((), "no file of the baseline"),
        (("baseline.json",), "give them in pairs"),
        (("baseline.json", "baseline.json"), "byte for byte"),
        (("baseline.json", "nowhere.json"), "no such file"),
        (("baseline.json", "appended-candidate.json"), "2 results, the baseline's files hold 1"),
        (("--baseline", "baseline.json"), "no file of the candidate"),
        (("baseline.json", "plain.json", "--candidate", "chat.json"), "not both"),
    ],
)
def test_errors_of_use(tmp_path: Path, capsys: pytest.CaptureFixture[str], args: tuple[str, ...], told: str) -> None:
    named = [str(DATA / arg) if arg.endswith(".json") else arg for arg in args]
    assert program.main(["import", "vllm-bench", *named, "--out", str(tmp_path / "runs")]) == 4
    out, err = capsys.readouterr()
    assert out == "" and told in err and err.count("\n") == 1
    assert not (tmp_path / "runs").exists()


def test_nothing_half_written_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(*_: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(RunDir, "seal", no_room)
    with pytest.raises(OSError, match="No space"):
        imported(tmp_path, "baseline.json", "candidate.json")
    assert list((tmp_path / "runs").iterdir()) == []
