"""The run directory: whole files, sealed segments, and every change named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.evidence import MANIFEST, EvidenceError, Run, RunDir, read_json, read_jsonl, verify


@pytest.fixture
def sealed(tmp_path: Path) -> Path:
    run = RunDir.create(tmp_path, "g3")
    run.write_json("run.json", {"schema": 1})
    run.append("raw/a/c2/b01/requests.jsonl", {"id": "1"})
    run.seal("look-1")
    run.append("incidents.jsonl", {"kind": "x"})
    run.seal("end")
    return run.path


def test_a_sealed_run_verifies_also_when_moved(sealed: Path) -> None:
    assert verify(sealed) == []
    moved = sealed.rename(sealed.parent / "elsewhere")
    assert verify(moved) == []


def test_verdict_and_reports_are_no_evidence(sealed: Path) -> None:
    for name in ("verdict.json", "report.zh.html", "report.en.pdf", "MANIFEST.sha256.sig"):
        (sealed / name).write_text("x", encoding="utf-8")
    assert verify(sealed) == []


def test_changed_missing_added_and_linked_files_are_named(sealed: Path) -> None:
    (sealed / "raw/a/c2/b01/requests.jsonl").write_text('{"id": "2"}\n', encoding="utf-8")
    (sealed / "incidents.jsonl").unlink()
    (sealed / "raw/extra.jsonl").write_text("", encoding="utf-8")
    (sealed / "raw/report.en.html").write_text("", encoding="utf-8")
    assert sorted(verify(sealed)) == [
        "incidents.jsonl: missing",
        "raw/a/c2/b01/requests.jsonl: changed since it was sealed",
        "raw/extra.jsonl: added since the run was sealed",
        "raw/report.en.html: added since the run was sealed",
    ]


def test_a_segment_cannot_be_dropped_or_rewritten(sealed: Path) -> None:
    manifest = sealed / MANIFEST
    lines = manifest.read_text(encoding="utf-8").splitlines(keepends=True)
    second = next(i for i, line in enumerate(lines) if line.startswith("# segment end"))
    manifest.write_text("".join(lines[second:]), encoding="utf-8")
    assert any("does not follow" in fault for fault in verify(sealed))


def test_a_manifest_that_points_outside_is_refused(sealed: Path) -> None:
    with (sealed / MANIFEST).open("a", encoding="utf-8") as f:
        f.write("0" * 64 + "  ../../etc/passwd\n")
    assert any("not a plain file of this run" in fault for fault in verify(sealed))


def test_an_unsealed_run_says_so(tmp_path: Path) -> None:
    run = RunDir.create(tmp_path, "g3")
    assert verify(run.path) == [f"{MANIFEST}: missing or unreadable: the run was never sealed"]


def test_growing_files_are_left_to_a_later_segment(tmp_path: Path) -> None:
    run = RunDir.create(tmp_path, "g3")
    run.append("raw/a/start-01/engine.log", {"a": 1})
    run.write_json("run.json", {"schema": 1})
    run.seal("look-1", growing=frozenset({"raw/a/start-01/engine.log"}))
    run.append("raw/a/start-01/engine.log", {"a": 2})
    run.seal("end")
    assert verify(run.path) == []


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
