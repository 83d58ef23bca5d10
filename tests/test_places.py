"""Nothing else lies in a run: every foreign file and folder is told, wherever it lies, and nothing that belongs there."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gates import __main__ as program
from gates import validity, verdict
from gates.imports import command, store
from gates.validity.places import foreign, of_arrival
from scenarios.load import load_site
from tests.arrival_lab import SITE, Lab
from tests.synthetic import make_run
from tests.synthetic_truth import Truth
from workloads import arrival_run
from workloads.bundle import Output, files_of
from workloads.evidence import MANIFEST, EvidenceError, Run, RunDir, read_json
from workloads.progress import Progress

Json = dict[str, Any]
DATA = Path(__file__).resolve().parent / "data" / "vllm_bench"
CRITERIA = Path(__file__).resolve().parent.parent / "gates/criteria/g1.toml"
INCIDENT = {"whose": "candidate", "kind": "engine-died", "arm": "candidate", "step": 2, "block": 3, "message": "crash"}
INTERRUPTED = {"whose": "harness", "kind": "interrupted", "message": "stopped by a signal"}


def reseal(path: Path) -> None:
    (path / MANIFEST).unlink(missing_ok=True)
    RunDir(path).seal("end")


def rejudged(path: Path, capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:
    """Return the verdict that the program writes, and all that it says of it."""
    reseal(path)
    program.main(["rejudge", str(path)])
    found = read_json(path / "verdict.json")
    return found["verdict"], capsys.readouterr().out + json.dumps(found)


FOREIGN = (
    "notes.txt", "other/raw.jsonl", "run.json.old", "criteria-2.toml", "Run.json", "incidents.json", "incidents.jsonl.old", "LEDGER.jsonl",
    "LEDGER.extract.json.old", "host/uname.txt", "host/during/uname.txt", "host/before/deep/uname.txt",
    "host/before/uname.sh", "host/before-1/uname.txt", "host/before-02/uname.txt", "host/beforehand/uname.txt",
    "raw/import/candidate-01.json", "raw/fio/x/INDEX.tsv", "raw/verdict.json", "report.english.html", "x.part",
    "blocks/b01.json.old", "host/after/.hidden",
)  # fmt: skip


@pytest.mark.parametrize("name", FOREIGN)
def test_a_file_that_no_run_writes_makes_it_invalid(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    path = make_run(tmp_path, Truth(seal=False))
    (path / name).parent.mkdir(parents=True, exist_ok=True)
    (path / name).write_bytes(b"{}\n")
    found, said = rejudged(path, capsys)
    assert found == "INVALID"
    assert f"places: {name}: no part of a run has this name" in said


@pytest.mark.parametrize("name", ["other", "raw/other", "host/before/x", "host/after-1"])
def test_an_empty_folder_that_no_run_makes_is_told(tmp_path: Path, name: str) -> None:
    path = make_run(tmp_path, Truth(blocks=1, seal=False))
    (path / name).mkdir()
    told = [breach.reason for breach in validity.check_run(Run(path)) if breach.check == "places"]
    assert told == [f"{name}: no part of a run has this name"]


def test_of_many_the_first_are_told_also_where_their_names_are_no_text(tmp_path: Path) -> None:
    path = make_run(tmp_path, Truth(blocks=1, seal=False))
    for number in range(20):
        (path / f"x{number:02d}\n").write_bytes(b"")
    told = [breach.reason for breach in validity.check_run(Run(path)) if breach.check == "places"]
    assert told == [f"x{number:02d}\\n: no part of a run has this name" for number in range(5)]


def with_a_second_session(path: Path) -> None:
    again = RunDir.reopen(path)
    for when in ("before", "after"):
        again.write_bytes(f"host/{again.of_session(when)}/lscpu.txt", b"x")


def with_what_a_customer_adds(path: Path) -> None:
    (path / "waivers.toml").write_text("", encoding="utf-8")
    for name in ("verdict.json", "report.zh.html", "report.en.pdf", f"{MANIFEST}.sig", f"{MANIFEST}.sig.error"):
        (path / name).write_bytes(b"x")


SOUND: dict[str, tuple[Truth, Callable[[Path], None]]] = {
    "a rehearsal": (Truth(seal=False), lambda _: None),
    "a lab's, with G2's record": (Truth(seal=False, rehearsal=False), lambda _: None),
    "two sessions": (Truth(seal=False, incidents=[INTERRUPTED]), with_a_second_session),
    "reports and waivers": (Truth(seal=False), with_what_a_customer_adds),
}


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_run_has_nothing_foreign(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    truth, change = SOUND[name]
    path = make_run(tmp_path, truth)
    change(path)
    found, said = rejudged(path, capsys)
    assert found == "PASS", said


# Incidents of every session.


def test_incidents_without_their_session_are_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A session that died before it asked the host leaves its incidents alone."""
    path = make_run(tmp_path, Truth(seal=False))
    RunDir(path, session=2).incident(**INCIDENT)
    found, said = rejudged(path, capsys)
    assert found == "FAIL"  # the candidate's
    assert "crash" in said and "engine-died" in said
    assert [(i["kind"], i["session"]) for i in Run(path).incidents()] == [("engine-died", 2)]


@pytest.mark.parametrize("name", ["incidents-02.jsonl", "incidents-1.jsonl", "incidents-x.jsonl", "incidents2.jsonl"])
def test_incidents_that_no_session_writes_make_a_run_invalid(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    path = make_run(tmp_path, Truth(seal=False))
    (path / name).write_text(json.dumps({**INCIDENT, "run": Run(path).facts["run_id"]}) + "\n", encoding="utf-8")
    found, said = rejudged(path, capsys)
    assert found == "INVALID"
    assert f"{name}: no session of a run writes its incidents there" in said
    with pytest.raises(EvidenceError, match="no session"):
        Run(path).incidents()


def test_an_empty_file_of_incidents_forgives_no_interruption(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = make_run(tmp_path, Truth(seal=False, incidents=[INTERRUPTED]))
    (path / "incidents-2.jsonl").write_bytes(b"")
    assert rejudged(path, capsys)[0] == "INVALID"


def test_a_session_that_died_early_is_not_written_over_by_the_next(tmp_path: Path) -> None:
    path = make_run(tmp_path, Truth(blocks=1))
    early = RunDir.reopen(path)
    early.incident(whose="host", kind="start-failed", message="no model")
    early.seal("end")
    again = RunDir.reopen(path)
    again.incident(whose="host", kind="note", message="x")
    again.seal("end")
    assert (early.session, again.session) == (2, 3)
    assert validity.unfinished(Run(path)) == []
    assert not [fault for fault in verdict.verify(path) if "changed" in fault]
    assert [i["session"] for i in Run(path).incidents()] == [2, 3]


# Imports and G1.


def imported(tmp_path: Path) -> Path:
    given = (("baseline.json", "baseline"), ("stopped.json", "candidate"))
    sources = [store.take(DATA / name, arm) for name, arm in given]
    return command.settle(store.write(tmp_path / "runs", sources))


def test_an_import_holds_its_files_and_no_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = imported(tmp_path)
    with_what_a_customer_adds(path)
    assert rejudged(path, capsys)[0] == "FAIL"
    for name in ("raw/import/candidate-02.json", "raw/candidate.json", "incidents.jsonl", "blocks/b01.json"):
        (path / name).parent.mkdir(exist_ok=True)
        (path / name).write_bytes((DATA / "candidate.json").read_bytes())
        found, said = rejudged(path, capsys)
        assert found == "INVALID"
        assert f"{name}: no part of a run has this name" in said
        (path / name).unlink()


def arrived(tmp_path: Path, *, collected_here: bool) -> Run:
    """Return a G1 run on what a made-up host tells, with names of its own where it was collected elsewhere."""
    (tmp_path / "site.toml").write_text(SITE, encoding="utf-8")
    (tmp_path / "bundle").mkdir()
    for name, content in {**Lab().files(), "notes/of its own.txt": b"x"}.items():
        (tmp_path / "bundle" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "bundle" / name).write_bytes(content)
    request = arrival_run.Request(
        load_site(str(tmp_path / "site.toml")), tmp_path / "runs", CRITERIA, tmp_path / "bundle", {}, {}
    )
    found: list[Path] = []
    arrival_run.carry_out(request, Progress(lambda _line: None, False), found.append)
    if collected_here:
        recorded = RunDir(found[0])
        facts = read_json(found[0] / "run.json")
        facts["site"]["bom"]["raw"] = {"array": {}}
        recorded.write_json("run.json", {**facts, "bundle": None})
        (found[0] / "host/before/notes/of its own.txt").unlink()
        (found[0] / "host/before/notes").rmdir()
        for folder in ("host/after", "raw/fio/array"):
            for name, content in files_of([Output("fio-x", ("fio",), b"", b"", 0)]).items():
                recorded.write_bytes(f"{folder}/{name}", content)
        recorded.incident(whose="host", kind="probe", message="x")
    return Run(found[0])


@pytest.mark.parametrize("collected_here", [True, False])
def test_a_g1_holds_its_bundles_and_nothing_else(tmp_path: Path, collected_here: bool) -> None:
    run = arrived(tmp_path, collected_here=collected_here)
    assert foreign(run, of_arrival(run)) == []
    names = ["raw/fio/other/INDEX.tsv", "raw/candidate/populate.jsonl", "host/after/x.sh", "notes.txt"]
    names += ["host/before/x.sh", "raw/fio/array/x.sh", "host/before/deep/x.stdout"] if collected_here else []
    for name in names:
        (run.path / name).parent.mkdir(parents=True, exist_ok=True)
        (run.path / name).write_bytes(b"x")
        told = foreign(run, of_arrival(run))
        assert any(line.startswith(name) for line in told) and len(told) <= 5, told
        (run.path / name).unlink()
        if not any((run.path / name).parent.iterdir()):
            (run.path / name).parent.rmdir()
