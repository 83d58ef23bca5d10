"""The run directory as it is written and read: whole files, whole lines, each of its run."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.evidence import EvidenceError, Run, RunDir, read_json, read_jsonl, write_whole
from workloads.plain import being_written, open_plain, sha256_of, shown, sweep


def test_nan_is_never_written(tmp_path: Path) -> None:
    run = RunDir.create(tmp_path, "g3")
    with pytest.raises(ValueError, match="not JSON compliant"):
        run.append("x.jsonl", {"t": float("nan")})


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b'{"a": 1', "cut off"),
        (b"{nope}\n", "not JSON"),
        (b"[1]\n", "not a JSON object"),
        (b'{"a": NaN}\n', "NaN is no measured value"),
        (b'{"a": 1}\r', "cut off"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, content: bytes, told: str) -> None:
    path = tmp_path / "r.jsonl"
    path.write_bytes(b'{"ok": 1}\n' + content)
    with pytest.raises(EvidenceError, match=f":2: .*{told}"):
        list(read_jsonl(path))


@given(st.binary(max_size=200))
def test_arbitrary_bytes_raise_nothing_but_evidence_errors(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.jsonl"
    path.write_bytes(content)
    for read in (lambda: list(read_jsonl(path)), lambda: read_json(path)):
        try:
            read()
        except EvidenceError as error:
            assert str(path) in str(error)


@pytest.mark.parametrize("schema", [2, True, 1.0, "1", None])
def test_another_schema_is_refused(tmp_path: Path, schema: object) -> None:
    (tmp_path / "run.json").write_text(json.dumps({"schema": schema}), encoding="utf-8")
    with pytest.raises(EvidenceError, match=f"schema {schema!r}, this version reads 1"):
        Run(tmp_path)


def test_what_is_no_plain_file_is_refused_without_waiting(tmp_path: Path) -> None:
    pipe, device = tmp_path / "pipe.jsonl", tmp_path / "device.jsonl"
    os.mkfifo(pipe)
    device.symlink_to("/dev/zero")
    for path in (pipe, device, tmp_path):
        for read in (lambda p: list(read_jsonl(p)), read_json, open_plain, sha256_of):
            with pytest.raises(EvidenceError, match="not a plain file"):
                read(path)


def test_records_tell_their_run_also_where_the_folder_was_renamed(tmp_path: Path) -> None:
    run = RunDir.create(tmp_path, "g3")
    run.write_json("run.json", {"schema": 1, "run_id": run.run_id})
    run.write_json("raw/a/start-01/start.json", {"arm": "a"})
    run.append("raw/a/c2/b01/requests.jsonl", {"id": "1"})
    run.write_json("other.json", {"x": 1})
    moved = RunDir.reopen(run.path.rename(tmp_path / "elsewhere"))
    moved.append("raw/a/c2/b01/requests.jsonl", {"id": "2"})
    assert moved.run_id == run.run_id
    assert read_json(moved.path / "raw/a/start-01/start.json") == {"arm": "a", "run": run.run_id}
    assert {r["run"] for r in read_jsonl(moved.path / "raw/a/c2/b01/requests.jsonl")} == {run.run_id}
    assert read_json(moved.path / "other.json") == {"x": 1}
    assert "run" not in read_json(moved.path / "run.json")


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "a.json"
    write_whole(target, b"old")

    def fail(_source: object, _target: object) -> None:
        raise OSError("no space")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="no space"):
        write_whole(target, b"new")
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == {"a.json": b"old"}


def test_a_scratch_file_counts_as_being_written_while_its_writer_holds_it(tmp_path: Path) -> None:
    scratch = tmp_path / ".verdict.json.abcd_123.part"
    with scratch.open("wb") as writer:
        fcntl.flock(writer, fcntl.LOCK_EX)
        assert being_written(scratch)
        assert sweep(tmp_path) == []
        write_whole(tmp_path / "verdict.json", b"{}")  # somebody else's write of the same file goes beside it
        assert scratch.exists()
    assert not being_written(scratch)
    other = tmp_path / "x.part"
    other.write_bytes(b"")
    assert not being_written(other)


def test_what_a_killed_write_left_behind_goes_with_the_next_write_or_a_sweep(tmp_path: Path) -> None:
    for name in (".a.json.abcdefgh.part", "raw/.t.json.abcdefgh.part", "raw/.t.json.part", "raw/x.part", "raw/[a].x"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"half")
    write_whole(tmp_path / "a.json", b"whole")
    assert not (tmp_path / ".a.json.abcdefgh.part").exists()
    assert sweep(tmp_path) == ["raw/.t.json.abcdefgh.part"]
    assert sorted(p.name for p in (tmp_path / "raw").iterdir()) == [".t.json.part", "[a].x", "x.part"]


@given(st.text())
def test_foreign_text_stays_one_printable_line(text: str) -> None:
    assert shown(text).isprintable()
    if text.isprintable():
        assert shown(text) == text
