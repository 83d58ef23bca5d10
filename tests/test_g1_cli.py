"""`make gate-g1` from a collected bundle: verdict, exit status, evidence, and one line for what goes wrong."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from gates import proof, verdict
from gates.arrival import limits
from gates.arrival.explain import explain
from gates.arrival.plan import plan
from scenarios.load import load_site
from tests.arrival_lab import SITE, Lab
from workloads import arrival_run
from workloads.evidence import Run, RunDir
from workloads.progress import Progress

ROOT = Path(__file__).resolve().parent.parent
CRITERIA = ROOT / "gates/criteria/g1.toml"


def run(*argv: object) -> subprocess.CompletedProcess[str]:
    told = [sys.executable, "-m", *map(str, argv)]
    return subprocess.run(told, cwd=ROOT, capture_output=True, text=True, check=False)


def gate(tmp_path: Path, *more: object) -> subprocess.CompletedProcess[str]:
    return run("pytest", "gates/test_g1.py", "--runs", tmp_path / "runs", *more)


def tar_of(files: dict[str, bytes], path: Path) -> Path:
    with tarfile.open(path, "w:gz" if path.suffix == ".gz" else "w") as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(f"bundle/{name}")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return path


@pytest.fixture
def site(tmp_path: Path) -> Path:
    path = tmp_path / "site.toml"
    path.write_text(SITE, encoding="utf-8")
    return path


def carried_out(tmp_path: Path, site: Path, lab: Lab, *, left_out: int = 0) -> Path:
    """Return a run on what the lab tells, sealed, not judged."""
    loaded = load_site(str(site))
    found: list[Path] = []
    checks = len(plan(loaded.value.bom, limits.load(CRITERIA)).checks)
    request = arrival_run.Request(
        site=loaded,
        runs=tmp_path / "runs",
        criteria_file=CRITERIA,
        bundle=tar_of(lab.files(), tmp_path / "bundle.tar"),
        selection={"collected": checks, "selected": checks - left_out},
        overrides={},
    )
    arrival_run.carry_out(request, Progress(lambda _line: None, False), found.append)
    facts = json.loads((found[0] / "run.json").read_bytes())
    assert facts["bundle"]["name"] == "bundle.tar"
    assert facts["created_utc"] <= facts["ended_utc"]
    return found[0]


def judged(path: Path) -> dict[str, Any]:
    return verdict.judge(Run(path))


def test_the_gate_from_a_bundle_on_another_machine(tmp_path: Path, site: Path) -> None:
    lab = Lab()
    lab.paths[1]["state"] = "connecting"
    done = gate(tmp_path, "--site", site, "--from", tar_of(lab.files(), tmp_path / "b.tar.gz"))
    assert done.returncode == 1, done.stdout + done.stderr
    assert "G1 verdict: FAIL" in done.stdout
    assert "192.0.2.2 port 4420" in done.stdout
    (path,) = (tmp_path / "runs").glob("*-g1-*")
    written = json.loads((path / "verdict.json").read_bytes())
    assert (written["gate"], written["verdict"], written["schema"], written["acceptance"]) == ("g1", "FAIL", 1, False)
    row = next(row for row in written["criteria"] if row["id"] == "subsystems.array.path.192.0.2.2-4420")
    assert row["verdict"] == "FAIL"
    assert row["declared"] == "192.0.2.2 port 4420, live, non-optimized"
    assert row["found"] == "nvme4 connecting non-optimized"
    assert row["raw"] and all((path / file).is_file() for file in row["raw"])
    assert {"id": "raw", "metric": "raw_speed"} in written["not_declared"]
    assert len(list(path.glob("report.*.html"))) == 2
    copy = tmp_path / "elsewhere"
    shutil.copytree(path, copy)
    assert verdict.to_bytes(judged(copy)) == (path / "verdict.json").read_bytes()
    assert run("gates", "rejudge", copy).returncode == 1
    assert (path / "verdict.json").read_bytes() == (copy / "verdict.json").read_bytes()
    told = run("gates", "explain", copy)
    assert (told.returncode, told.stderr) == (1, "")
    assert "FAIL: subsystems.array.path.192.0.2.2-4420" in told.stdout
    assert "Not declared, so not checked:" in told.stdout


def test_all_well_passes_and_is_an_acceptance_of_a_lab_alone(tmp_path: Path, site: Path) -> None:
    path = carried_out(tmp_path, site, Lab())
    found = judged(path)
    rows = found["criteria"]
    assert {row["verdict"] for row in rows} == {"PASS"}
    assert (found["verdict"], found["rehearsal"]) == ("PASS", False)
    assert verdict.summary_lines(found)[-1] == "G1 verdict: PASS"
    keys = {
        "id",
        "metric",
        "arms",
        "step",
        "limit",
        "unit",
        "estimate",
        "verdict",
        "reason",
        "flags",
        "declared",
        "found",
        "raw",
    }
    assert all(keys <= set(row) and row["arms"] == [] and row["step"] is None for row in rows)
    assert all(row["raw"] and all((path / file).is_file() for file in row["raw"]) for row in rows)


def test_a_part_of_the_checks_is_no_pass(tmp_path: Path, site: Path) -> None:
    path = carried_out(tmp_path, site, Lab(), left_out=1)
    assert judged(path)["verdict"] == "INCONCLUSIVE"
    told = explain(Run(path), judged(path))
    assert any(line.startswith("Note: only ") for line in told)
    assert not any("cannot be trusted" in line for line in told)


def test_evidence_that_was_changed_proves_nothing(tmp_path: Path, site: Path) -> None:
    path = carried_out(tmp_path, site, Lab())
    file = next(f for f in sorted((path / "host/before").glob("*.stdout")) if b'"critical_warning"' in f.read_bytes())
    file.write_bytes(file.read_bytes().replace(b'"critical_warning": 0', b'"critical_warning": 4'))
    found = judged(path)
    assert found["verdict"] == "INVALID"
    assert {row["verdict"] for row in found["criteria"]} == {"INVALID"}
    assert file.name in found["reasons"][0]
    lines, status = proof.verify_run(path, None)
    assert status == 1
    assert any(f"{file.name}: changed" in line for line in lines)


def test_a_file_that_no_g1_writes_is_told(tmp_path: Path, site: Path) -> None:
    path = carried_out(tmp_path, site, Lab())
    (path / "host/other.txt").write_text("x", encoding="utf-8")
    rewrite(path)
    found = judged(path)
    assert found["verdict"] == "INVALID"
    assert any("host/other.txt: no part of a run has this name" in reason for reason in found["reasons"])


def rewrite(path: Path, **changes: object) -> None:
    facts = json.loads((path / "run.json").read_bytes())
    (path / "run.json").write_text(json.dumps({**facts, **changes}), encoding="utf-8")
    (path / "MANIFEST.sha256").unlink()
    RunDir(path).seal("end")


@pytest.mark.parametrize(
    "changes",
    [
        {"site": {}},
        {"site": {"rehearsal": False, "bom": {"drives": 7}}},
        {"site": {"rehearsal": False, "bom": {}}},
        {"site": {"rehearsal": False}},
        {"rehearsal": True},
        {"site": []},
    ],
)
def test_a_run_of_another_shape_is_invalid(tmp_path: Path, site: Path, changes: dict[str, object]) -> None:
    path = carried_out(tmp_path, site, Lab())
    rewrite(path, **changes)
    assert judged(path)["verdict"] == "INVALID"


def test_a_run_that_lost_its_bundle_is_invalid(tmp_path: Path, site: Path) -> None:
    path = carried_out(tmp_path, site, Lab())
    shutil.rmtree(path / "host")
    rewrite(path)
    found = judged(path)
    assert found["verdict"] == "INVALID"
    assert "PASS" not in {row["verdict"] for row in found["criteria"]}


def test_an_interrupted_run_is_invalid(tmp_path: Path, site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(arrival_run, "_collect", stopped)
    with pytest.raises(KeyboardInterrupt):
        carried_out(tmp_path, site, Lab())
    (path,) = (tmp_path / "runs").glob("*-g1-*")
    assert judged(path)["verdict"] == "INVALID"
    assert "interrupted" in judged(path)["reasons"][0]


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (("--from", ROOT / "tests"), "INDEX.tsv"),
        (("--smoke",), "--smoke: g1 has nothing for it"),
        (("--site", "{no-bom}"), "bom: declares nothing that could be checked"),
    ],
)
def test_a_mistake_is_one_line_before_anything_is_written(
    tmp_path: Path, site: Path, more: tuple[object, ...], told: str
) -> None:
    bare = tmp_path / "bare.toml"
    bare.write_text(SITE.split("[bom.host]")[0], encoding="utf-8")
    words = [bare if word == "{no-bom}" else word for word in more]
    done = gate(tmp_path, *(() if "--site" in words else ("--site", site)), *words)
    assert done.returncode == 4
    said = [line for line in (done.stdout + done.stderr).splitlines() if "kvgate:" in line]
    assert len(said) == 1 and told in said[0]
    assert not (tmp_path / "runs").exists()


def test_a_bundle_is_for_g1_alone(tmp_path: Path) -> None:
    done = run("pytest", "gates/test_g3.py", "--site", "rehearsal", "--from", "x.tar", "--runs", tmp_path)
    assert done.returncode == 4
    assert "--from: g3 measures this host; a bundle is for g1" in done.stderr
