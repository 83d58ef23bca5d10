"""A run is judged to the same bytes wherever it lies, whatever it is called, and however it is named."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from gates import verdict
from tests.synthetic import make_run
from tests.synthetic_truth import Truth, only
from workloads.evidence import Run, RunDir


def losing_chunks(file: dict[str, dict[str, str]]) -> None:
    file["hashes"] = dict.fromkeys(file["hashes"], "0" * 64)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run whose texts name itself, its folders, and things that only look like a path of it."""
    path = make_run(
        tmp_path_factory.mktemp("runs"), Truth(seal=False, blocks=1, chunks=only({"arm": "candidate"}, losing_chunks))
    )
    run = RunDir(path)
    full = OSError(28, "No space left on device", str(path / "raw/baseline/c2/b05/requests.jsonl"))
    for message in (
        f"OSError: {full}",
        f"the engine said: --log={path}/raw/x.log ('{path}/y'), ./z and ../z",
        f'of another place: /mnt/old/{path.name}/raw/x.log and "/mnt/old/{path.name}/y"',
    ):
        run.incident(whose="harness", kind="crashed", message=message)
    run.seal("end")
    return path


def bytes_of(path: Path) -> bytes:
    return verdict.to_bytes(verdict.judge(Run(path)))


@pytest.mark.parametrize("name", ["candidate", "c2", "a b"])
def test_the_verdict_is_the_same_wherever_the_run_lies(
    recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    here = bytes_of(recorded)
    assert str(recorded.parent).encode() not in here and b"/mnt/old" not in here
    assert b"./z and ../z" in here and b"candidate/c2/b01" in here
    moved = tmp_path / "elsewhere" / name
    shutil.copytree(recorded, moved)
    assert bytes_of(moved) == here
    monkeypatch.chdir(moved.parent)
    assert bytes_of(Path(name)) == here
    monkeypatch.chdir(moved)
    assert bytes_of(Path()) == here


def test_what_a_run_records_of_itself_does_not_tell_where_it_lay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = RunDir.create(Path("runs"), "g3")
    run.incident(whose="harness", kind="crashed", message=f"{run.path}/a and {run.path.absolute()}/b")
    assert '"message":"a and b"' in (run.path / "incidents.jsonl").read_text()
