"""Sealing: segments in a chain, every change named, nothing odd overlooked, and INVALID for all of it."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import socket
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gates import __main__ as program
from gates import verdict
from tests.synthetic import make_run
from tests.synthetic_truth import Truth
from workloads.evidence import MANIFEST, EvidenceError, Run, RunDir, verify
from workloads.seal import parse, unended

Damage = Callable[[Path], object]
REQUESTS = "raw/a/c2/b01/requests.jsonl"


def seal_small(folder: Path) -> Path:
    run = RunDir.create(folder, "g3")
    run.write_json("run.json", {"schema": 1, "run_id": run.run_id})
    run.append(REQUESTS, {"id": "1"})
    run.folder("raw/b/start-01")
    run.seal("look-1")
    run.append("incidents.jsonl", {"kind": "x"})
    run.seal("end")
    return run.path


@pytest.fixture
def sealed(tmp_path: Path) -> Path:
    return seal_small(tmp_path)


def test_a_sealed_run_verifies_also_when_moved_and_with_another_tool(sealed: Path) -> None:
    assert verify(sealed) == []
    assert unended(sealed) == []
    moved = sealed.rename(sealed.parent / "elsewhere")
    assert verify(moved) == []
    assert os.waitstatus_to_exitcode(os.system(f"cd {moved} && sha256sum --strict --quiet -c {MANIFEST}")) == 0  # noqa: S605


def test_verdict_reports_and_signatures_are_no_evidence(sealed: Path) -> None:
    names = ("verdict.json", "report.zh.html", "report.en.pdf")
    for name in (*names, f"{MANIFEST}.sig", f"{MANIFEST}.witness.sig", f"{MANIFEST}.sig.error"):
        (sealed / name).write_text("x", encoding="utf-8")
    assert verify(sealed) == []


DERIVED_NAMES = ("verdict.json", "report.en.pdf", f"{MANIFEST}.sig", f"{MANIFEST}.witness.sig", f"{MANIFEST}.sig.error")
OTHER_THAN_PLAIN: dict[str, Callable[[Path, Path], object]] = {
    "a link": lambda place, file: place.symlink_to(file),
    "a dangling link": lambda place, _: place.symlink_to("nowhere"),
    "a link to a folder": lambda place, file: place.symlink_to(file.parent),
    "a hard link": lambda place, file: os.link(file, place),
    "a pipe": lambda place, _: os.mkfifo(place),
}


@pytest.mark.parametrize("kind", OTHER_THAN_PLAIN)
def test_what_is_no_evidence_may_be_a_link_and_is_not_opened(sealed: Path, kind: str) -> None:
    """A web server's or a shared folder's own: none of it can change what was measured."""
    (sealed.parent / "web.pdf").write_bytes(b"x")
    for name in DERIVED_NAMES:
        OTHER_THAN_PLAIN[kind](sealed / name, sealed.parent / "web.pdf")
    assert verify(sealed) == []
    RunDir(sealed).seal("again")
    assert verify(sealed) == [] and not [name for name in DERIVED_NAMES if name in (sealed / MANIFEST).read_text()]


def test_a_folder_with_a_derived_name_hides_nothing(sealed: Path) -> None:
    (sealed / "report.en.pdf").mkdir()
    (sealed / "report.en.pdf/requests.jsonl").write_bytes(b"")
    assert verify(sealed) == [
        "report.en.pdf: a folder, where a file would be no evidence: added since the run was sealed"
    ]


def test_a_run_is_not_sealed_onto_what_is_no_manifest(sealed: Path) -> None:
    (sealed / MANIFEST).rename(sealed.parent / "m")
    os.mkfifo(sealed / MANIFEST)
    with pytest.raises(EvidenceError, match="not a plain file"):
        RunDir(sealed).seal("end")


@pytest.mark.parametrize("name", ["report.evil", "report.x.html", "x.sig", "LEDGER.extract.json", "raw/verdict.json"])
def test_nothing_else_is_left_out(sealed: Path, name: str) -> None:
    (sealed / name).write_text("x", encoding="utf-8")
    assert verify(sealed) == [f"{name}: added since the run was sealed"]


def test_changed_missing_and_added_files_are_named(sealed: Path) -> None:
    (sealed / REQUESTS).write_text('{"id": "2"}\n', encoding="utf-8")
    (sealed / "incidents.jsonl").unlink()
    (sealed / "raw/extra.jsonl").write_text("", encoding="utf-8")
    assert verify(sealed) == [
        f"{REQUESTS}: changed since it was sealed",
        "incidents.jsonl: missing",
        "raw/extra.jsonl: added since the run was sealed",
    ]


def link(path: Path) -> None:
    (path / "incidents.jsonl").rename(path.parent / "outside")
    (path / "incidents.jsonl").symlink_to(path.parent / "outside")


def link_folder(path: Path) -> None:
    (path / "raw/a").rename(path.parent / "outside")
    (path / "raw/a").symlink_to(path.parent / "outside")


def listen(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as s:
        here = os.getcwd()
        os.chdir(path)  # a socket's name is limited in length
        s.bind("s")
        os.chdir(here)


def respell(path: Path) -> None:
    (path / unicodedata.normalize("NFD", "é.txt")).write_bytes(b"")


def crlf(path: Path) -> None:
    (path / MANIFEST).write_bytes((path / MANIFEST).read_bytes().replace(b"\n", b"\r\n"))


def cut(path: Path) -> None:
    (path / MANIFEST).write_bytes((path / MANIFEST).read_bytes()[:-1])


def drop_first_segment(path: Path) -> None:
    content = (path / MANIFEST).read_bytes()
    (path / MANIFEST).write_bytes(content[content.index(b"# segment end") :])


def append(line: str) -> Damage:
    def do(path: Path) -> None:
        with (path / MANIFEST).open("ab") as f:
            f.write(line.encode())

    return do


ODD: dict[str, tuple[Damage, str]] = {
    "a link": (link, "incidents.jsonl: a symbolic link, not a plain file of this run"),
    "a linked folder": (link_folder, "raw/a: a symbolic link, not a plain file of this run"),
    "a dangling link": (lambda p: (p / "x").symlink_to("nowhere"), "x: a symbolic link, not a plain file"),
    "a folder with a derived name": (lambda p: (p / "verdict.json").mkdir(), "verdict.json: a folder, where a file"),
    "a manifest that is a pipe": (
        lambda p: ((p / MANIFEST).unlink(), os.mkfifo(p / MANIFEST)), f"{MANIFEST}: not a plain file",
    ),
    "a pipe": (lambda p: os.mkfifo(p / "raw/pipe"), "raw/pipe: a pipe, socket or device, not a plain file of this run"),
    "a socket": (listen, "s: a pipe, socket or device"),
    "a hard link": (
        lambda p: os.link(p / "run.json", p.parent / "run.json"), "run.json: a hard link: the file has 2 names",
    ),
    "an empty folder": (lambda p: (p / "raw/z").mkdir(), "raw/z: an empty folder: added since the run was sealed"),
    "scratch": (
        lambda p: (p / "raw/.t.json.abcdefgh.part").write_bytes(b"{"),
        "raw/.t.json.abcdefgh.part: left behind by a write that was cut off: added since the run was sealed",
    ),
    "scratch of a derived file": (lambda p: (p / ".verdict.json.abcdefgh.part").write_bytes(b""), "left behind by"),
    "another part": (lambda p: (p / "x.part").write_bytes(b""), "x.part: added since the run was sealed"),
    "another spelling": (respell, "e\u0301.txt: its name is not in Unicode normal form C"),
    "a name of two lines": (
        lambda p: (p / "x\nMANIFEST: every file is as it was sealed").write_bytes(b""), "x\\nMANIFEST: every file",
    ),
    "a name that is no text": (lambda p: (p / os.fsdecode(b"x\xff")).write_bytes(b""), "x\\udcff: no manifest can hold"),
    "a folder instead of a file": (
        lambda p: ((p / "run.json").unlink(), (p / "run.json").mkdir()), "run.json: missing",
    ),
    "a manifest in CR LF": (crlf, f"{MANIFEST}:1: not a line of a manifest: it ends in CR LF"),
    "a manifest that is cut": (cut, f"{MANIFEST}:6: cut off in the middle of a line"),
    "a segment dropped": (drop_first_segment, "this segment does not follow what stands before it"),
    "a line of something else": (append("\n"), f"{MANIFEST}:7: not a line of a manifest"),
    "a file twice": (append(f"{'0' * 64}  run.json\n"), f"{MANIFEST}:7: run.json is listed twice"),
    "a way out": (append(f"{'0' * 64}  ../../etc/passwd\n"), "../../etc/passwd is not a plain file of this run"),
    "a manifest that is a link": (
        lambda p: ((p / MANIFEST).rename(p / "m"), (p / MANIFEST).symlink_to("m")), f"{MANIFEST}: not a plain file",
    ),
    "a manifest that lists nothing": (lambda p: (p / MANIFEST).write_bytes(b""), f"{MANIFEST}: lists nothing"),
    "no manifest": (lambda p: (p / MANIFEST).unlink(), f"{MANIFEST}: missing: nothing seals this run"),
}  # fmt: skip


@pytest.mark.parametrize("name", ODD)
def test_what_is_odd_is_named(sealed: Path, name: str) -> None:
    damage, told = ODD[name]
    damage(sealed)
    faults = verify(sealed)
    assert any(told in fault for fault in faults), faults
    assert all(fault.isprintable() for fault in faults)


def test_a_run_with_something_odd_can_be_sealed_and_still_tells_it(sealed: Path) -> None:
    for name in ("a pipe", "a link", "a dangling link", "a name of two lines", "a name that is no text", "scratch"):
        ODD[name][0](sealed)
    RunDir(sealed).seal("end")
    assert len(verify(sealed)) == 6


def test_only_a_scratch_file_that_is_being_written_is_left_out(sealed: Path) -> None:
    scratch = sealed / ".report.zh.html.abcdefgh.part"
    with scratch.open("wb") as writer:
        fcntl.flock(writer, fcntl.LOCK_EX)
        assert verify(sealed) == []
    assert verify(sealed) == [
        f"{scratch.name}: left behind by a write that was cut off: added since the run was sealed"
    ]


def test_empty_folders_are_sealed_and_may_be_lost_by_a_copy(sealed: Path) -> None:
    assert "# empty raw/b/start-01\n" in (sealed / MANIFEST).read_text(encoding="utf-8")
    (sealed / "raw/b/start-01").rmdir()
    (sealed / "raw/b").rmdir()
    assert verify(sealed) == []


def test_growing_files_are_left_to_a_later_segment(tmp_path: Path) -> None:
    run = RunDir.create(tmp_path, "g3")
    run.append("raw/a/start-01/engine.log", {"a": 1})
    run.write_json("run.json", {"schema": 1})
    run.seal("look-1", growing=frozenset({"raw/a/start-01/engine.log"}))
    assert unended(run.path) == [
        f"{MANIFEST}: ends with segment 'look-1', not with 'end': the run did not come to its end"
    ]
    run.append("raw/a/start-01/engine.log", {"a": 2})
    run.seal("end")
    assert verify(run.path) == []


def test_an_unsealed_run_says_so(tmp_path: Path) -> None:
    run = RunDir.create(tmp_path, "g3")
    assert verify(run.path) == [f"{MANIFEST}: missing: nothing seals this run"]


@given(st.binary(max_size=300))
def test_no_manifest_is_too_strange_to_be_read(content: bytes) -> None:
    found = parse(content)
    assert found.faults or found.digests


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_no_byte_of_a_manifest_can_change_unseen(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = seal_small(tmp_path_factory.mktemp("seal"))
    content = bytearray((path / MANIFEST).read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] = data.draw(st.integers(0, 255).filter(lambda value: value != content[place]))
    (path / MANIFEST).write_bytes(bytes(content))
    assert verify(path) or unended(path)
    shutil.rmtree(path)


# A whole run, judged.


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("recorded"))


@pytest.fixture
def run_path(recorded: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(recorded, tmp_path / recorded.name))


def reseal(path: Path) -> None:
    """Seal anew, as somebody would who has the files in his hands."""
    (path / MANIFEST).unlink()
    RunDir(path).seal("end")


def rewrite(path: Path, old: bytes, new: bytes) -> None:
    content = path.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, new, 1))


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("other"), Truth(blocks=1))


@pytest.mark.parametrize(
    "name",
    [
        "raw/candidate/start-01/start.json", "raw/candidate/populate.jsonl", "raw/candidate/c2/b01/trial.json",
        "raw/candidate/c2/b01/requests.jsonl", "raw/candidate/c2/b01/counters.jsonl",
        "raw/candidate/c2/b01/chunks.json", "raw/baseline/control.json", "raw/baseline/needles.json", "blocks/b01.json",
        "calibration/c2/requests.jsonl",
    ],
)  # fmt: skip
def test_a_file_of_another_run_is_told(run_path: Path, other: Path, name: str) -> None:
    shutil.copyfile(other / name, run_path / name)
    reseal(run_path)
    result = verdict.judge(Run(run_path))
    assert result["verdict"] == "INVALID"
    told = f"bound: {name}:1: a record of run {other.name}, not of {run_path.name}"
    assert told in result["reasons"]


BAD: dict[str, tuple[Damage, str]] = {
    "a duplicate id": (
        lambda p: rewrite(p / "raw/candidate/c2/b01/requests.jsonl", b"b01-w1-1", b"b01-w1-0"),
        "candidate/c2/b01: requests: a request is recorded twice",
    ),
    "a line cut off": (
        lambda p: (p / "raw/candidate/c2/b01/requests.jsonl").write_bytes(
            (p / "raw/candidate/c2/b01/requests.jsonl").read_bytes()[:-20]
        ),
        "cut off in the middle of a line",
    ),
    "NaN": (
        lambda p: rewrite(p / "raw/baseline/c2/b01/counters.jsonl", b'"t_ns":', b'"x":NaN,"t_ns":'),
        "NaN is no measured value",
    ),
    "a record that names no run": (
        lambda p: rewrite(p / "raw/baseline/c2/b01/requests.jsonl", f',"run":"{p.name}"'.encode(), b""),
        "a record of no run that it names",
    ),
    "a pipe for a record": (
        lambda p: ((p / "raw/baseline/c2/b01/requests.jsonl").unlink(), os.mkfifo(p / "raw/baseline/c2/b01/requests.jsonl")),
        "a pipe, socket or device",
    ),
    "a pipe for the criteria": (
        lambda p: ((p / "criteria.toml").unlink(), os.mkfifo(p / "criteria.toml")), "a pipe, socket or device",
    ),
    "a key twice": (
        lambda p: rewrite(p / "raw/candidate/c2/b01/requests.jsonl", b'"t_first_ns":', b'"t_first_ns":1,"t_first_ns":'),
        "raw/candidate/c2/b01/requests.jsonl:1: key 't_first_ns' stands there twice",
    ),
    "a key twice in a snapshot": (
        lambda p: rewrite(p / "raw/candidate/c2/b01/counters.jsonl", b'"t_ns":', b'"t_ns" :1,"t_ns":'),
        "raw/candidate/c2/b01/counters.jsonl:1: key 't_ns' stands there twice",
    ),
    "a key twice in a document": (
        lambda p: rewrite(p / "blocks/b02.json", b'"complete":', b'"complete": false, "complete":'),
        "blocks/b02.json: key 'complete' stands there twice",
    ),
    "no end": (
        lambda p: ((p / MANIFEST).unlink(), RunDir(p).seal("look-5")), "the run did not come to its end",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", OTHER_THAN_PLAIN)
def test_a_linked_verdict_or_report_takes_nothing_from_a_run(
    run_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    (run_path.parent / "web.pdf").write_bytes(b"x")
    for name in ("verdict.json", "report.en.pdf"):
        OTHER_THAN_PLAIN[kind](run_path / name, run_path.parent / "web.pdf")
    assert program.main(["rejudge", str(run_path)]) == 0
    assert "G3 verdict: PASS" in capsys.readouterr().out
    assert json.loads((run_path / "verdict.json").read_bytes())["verdict"] == "PASS"
    assert (run_path.parent / "web.pdf").read_bytes() == b"x"  # put in the link's place, not behind it


@pytest.mark.parametrize("name", BAD)
def test_bad_evidence_is_invalid_though_it_was_sealed(run_path: Path, name: str) -> None:
    damage, told = BAD[name]
    damage(run_path)
    if name != "no end":
        reseal(run_path)
    result = verdict.judge(Run(run_path))
    everything = [*result["reasons"], *(r for b in result["blocks"]["invalid"] for r in b["reasons"])]
    assert result["verdict"] == "INVALID"
    assert any(told in reason for reason in everything), everything


# Those of the files and segments that every run has; a folder for run.json leaves no run to be judged.
NOT_IN_EVERY_RUN = {"a link", "a linked folder", "a segment dropped", "a folder instead of a file"}


@pytest.mark.parametrize("name", [name for name in ODD if name not in NOT_IN_EVERY_RUN])
def test_a_run_that_is_not_as_sealed_is_invalid_and_nothing_is_written(run_path: Path, name: str) -> None:
    ODD[name][0](run_path)
    before = sorted(p.as_posix() for p in run_path.rglob("*"))
    result = verdict.judge(Run(run_path))
    assert result["verdict"] == "INVALID"
    assert result["reasons"]
    json.dumps(result, allow_nan=False)
    assert sorted(p.as_posix() for p in run_path.rglob("*")) == before


def test_run_json_with_a_key_twice_is_refused_and_judged_as_neither(
    run_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rewrite(run_path / "run.json", b'"rehearsal": ', b'"rehearsal": false,\n "rehearsal": ')
    before = sorted(p.name for p in run_path.iterdir())
    assert program.main(["rejudge", str(run_path)]) == 4
    assert "run.json: key 'rehearsal' stands there twice" in capsys.readouterr().err
    assert sorted(p.name for p in run_path.iterdir()) == before


def test_a_newer_run_is_refused(run_path: Path) -> None:
    rewrite(run_path / "run.json", b'"schema": 1', b'"schema": 2')
    with pytest.raises(EvidenceError, match="schema 2, this version reads 1"):
        Run(run_path)
