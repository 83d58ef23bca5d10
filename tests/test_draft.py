"""`python -m gates draft-site`: what is there as a site file, refused until it was reviewed."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gates import draft
from gates.arrival import limits
from gates.arrival.host import Host
from gates.arrival.plan import plan
from scenarios.load import ConfigError, load_site
from tests.arrival_lab import Lab, files_of
from workloads.bundle import of_files

ROOT = Path(__file__).resolve().parent.parent


def reviewed(text: str) -> str:
    return text.replace('name = ""', 'name = "lab"').replace('path = "TODO"', 'path = "/srv/model"')


def test_a_draft_is_refused_until_it_was_reviewed(tmp_path: Path) -> None:
    path = tmp_path / "draft.toml"
    path.write_text(draft.site(Lab().bundle(), "b.tar"), encoding="utf-8")
    with pytest.raises(ConfigError, match="name"):
        load_site(str(path))


def test_what_was_drafted_fits_the_host_and_not_another(tmp_path: Path) -> None:
    path = tmp_path / "draft.toml"
    path.write_text(reviewed(draft.site(Lab().bundle(), "b.tar")), encoding="utf-8")
    bom = load_site(str(path)).value.bom
    assert bom is not None
    assert {s for drives in bom.drives.values() for s in drives.serials} == {"L1", "L2"}
    assert [(p.traddr, p.ana) for s in bom.subsystems.values() for p in s.path] == [
        ("192.0.2.1", "optimized"),
        ("192.0.2.2", "non-optimized"),
    ]
    assert {mount.target for mount in bom.mounts.values()} == {"/srv/array", "/srv/local"}
    assert bom.accelerators["nvidia"].pci_device == "10de:2329"
    checks = plan(bom, limits.load(ROOT / "gates/criteria/g1.toml")).checks
    host = Host(Lab().bundle(), "host/before")
    assert {check.look(host).verdict for check in checks} == {"PASS"}
    other = Lab()
    other.drive["L1"] = {"firmware": "F2"}
    assert "FAIL" in {check.look(Host(other.bundle(), "host/before")).verdict for check in checks}


def test_what_was_not_told_is_said_and_not_made_up(tmp_path: Path) -> None:
    outputs = {name: told for name, told in Lab().outputs().items() if not name.startswith(("nvme", "walk"))}
    text = draft.site(of_files(files_of(outputs), tmp_path), "b.tar")
    assert "# not known: `nvme list` was not collected" in text
    assert "drives" not in tomllib.loads(text)["bom"]


@settings(max_examples=30, deadline=None)
@given(st.text(max_size=40), st.text(max_size=20))
def test_whatever_a_host_tells_the_draft_is_toml_that_says_the_same(model: str, serial: str) -> None:
    lab = Lab()
    lab.array["model"] = model
    lab.drives[serial] = {"subsystem": 30, "controller": "nvme30", "pci": "0000:09:00.0", "bytes": 512}
    lab.smart[serial] = {}
    lab.mounts.append({"target": f"/srv/{serial}", "source": "/dev/sdz", "fstype": model, "options": "rw"})
    found = tomllib.loads(draft.site(lab.bundle(), serial))
    told = {s for drives in found["bom"].get("drives", {}).values() for s in drives["serials"]}
    assert not told or {"L1", "L2"} <= told


def test_the_command(tmp_path: Path) -> None:
    for name, data in Lab().files().items():
        (tmp_path / name).write_bytes(data)
    done = subprocess.run(
        [sys.executable, "-m", "gates", "draft-site", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert tomllib.loads(done.stdout)["schema"] == 1
    wrong = subprocess.run(
        [sys.executable, "-m", "gates", "draft-site", str(tmp_path / "no")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (wrong.returncode, wrong.stdout, wrong.stderr.count("\n")) == (4, "", 1)
