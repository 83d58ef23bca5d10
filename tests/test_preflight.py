"""What a first-time user lacks is told in one line, before anything starts."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import install
from scenarios import preflight
from scenarios.load import load_scenario, load_site
from scenarios.model import Scenario, Site

ROOT = Path(__file__).resolve().parent.parent


class Usage(NamedTuple):
    total: int
    used: int
    free: int


def loaded(**engine: Any) -> tuple[Site, Scenario]:
    site = load_site("rehearsal")
    scenario = load_scenario("rehearsal", site).value
    return site.value.model_copy(update={"engine": site.value.engine.model_copy(update=engine)}), scenario


def refusal(site: Site, scenario: Scenario, folder: Path, **more: Any) -> str | None:
    findings = preflight.look(site, scenario, folder / "runs", folder / "work", **more)
    # Whether the engine is installed here is not what these tests are about.
    return preflight.refusal(f for f in findings if not f.name.startswith("package"))


@pytest.fixture
def roomy(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = preflight.psutil.virtual_memory()._replace(available=1 << 40)
    monkeypatch.setattr(preflight.psutil, "virtual_memory", lambda: memory)
    monkeypatch.setattr(shutil, "disk_usage", lambda _p: Usage(1 << 41, 0, 1 << 40))
    monkeypatch.setattr(preflight, "direct_io_works", lambda _p: True)


@pytest.mark.usefixtures("roomy")
def test_nothing_is_refused_without_a_cause(tmp_path: Path) -> None:
    assert refusal(*loaded(), tmp_path) is None


@pytest.mark.usefixtures("roomy")
def test_a_cpu_without_avx2(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("flags\t\t: fpu sse2 avx\n", encoding="ascii")
    told = refusal(*loaded(), tmp_path, cpuinfo=cpuinfo)
    assert told is None or "no AVX2" in told
    assert told is not None or os.uname().machine != "x86_64"


@pytest.mark.usefixtures("roomy")
def test_no_room_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _p: Usage(10, 10, 1000))
    told = refusal(*loaded(), tmp_path) or ""
    assert "no room on the disk: 0.0 GB free" in told
    assert "(runs, tiers.local-nvme.path, tiers.fx100.path)" in told


@pytest.mark.usefixtures("roomy")
def test_a_tier_that_is_not_mounted_is_told_before_the_room_that_it_has_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _p: Usage(10, 10, 1000))
    site, scenario = loaded()
    away = site.tiers["fx100"].model_copy(update={"path": "/srv/no-such-mount"})
    site = site.model_copy(update={"tiers": {**site.tiers, "fx100": away}})
    told = refusal(site, scenario, tmp_path) or ""
    assert "/srv/no-such-mount: no such folder: mount the tier or correct tiers.fx100.path" in told


@pytest.mark.usefixtures("roomy")
def test_not_enough_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = preflight.psutil.virtual_memory()._replace(available=1 << 30)
    monkeypatch.setattr(preflight.psutil, "virtual_memory", lambda: memory)
    assert "not enough memory: 1.1 GB available" in (refusal(*loaded(), tmp_path) or "")


@pytest.mark.usefixtures("roomy")
def test_a_file_system_without_direct_io(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "direct_io_works", lambda _p: False)
    assert "refuses direct I/O" in (refusal(*loaded(), tmp_path) or "")


@pytest.mark.usefixtures("roomy")
def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen()
        port = s.getsockname()[1]
        told = refusal(*loaded(port=port, policy="exclusive"), tmp_path)
    assert told == f"port {port} is taken: free it, or set engine.port to 0 in the site file to have one chosen"


@pytest.mark.usefixtures("roomy")
def test_a_command_that_is_not_there(tmp_path: Path) -> None:
    assert "'vllm-of-the-lab' is not a command here" in (
        refusal(*loaded(command=("vllm-of-the-lab", "serve")), tmp_path) or ""
    )


def test_a_missing_engine_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight.importlib.util, "find_spec", lambda _name: None)
    told = preflight.refusal(preflight.look(*loaded(), tmp_path, tmp_path))
    assert told == "vllm is not installed (engine): run `make engine`"


def test_python_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 9, 2))
    with pytest.raises(install.Refused, match=r"is too old: KVGate needs 3\.11"):
        install.check_python()


def test_install_refusals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("flags\t\t: fpu sse2\n", encoding="ascii")
    monkeypatch.setattr(install.platform, "machine", lambda: "x86_64")
    with pytest.raises(install.Refused, match="no AVX2"):
        install.check_processor(str(cpuinfo))
    monkeypatch.setattr(shutil, "disk_usage", lambda _p: Usage(10, 10, 5 * 10**9))
    with pytest.raises(install.Refused, match=r"5\.0 GB free, 9 GB needed"):
        install.check_disk("engine")


@pytest.mark.parametrize(
    ("log", "told"),
    [
        ("WARNING: Retrying ... NewConnectionError(... Temporary failure in name resolution)\nERROR: No matching distribution found for pytest==9", "no package index can be reached"),
        ("ERROR: Could not find a version that satisfies the requirement torch==2.13.0+cpu\nERROR: No matching distribution found for torch==2.13.0+cpu", "PIP_EXTRA_INDEX_URL"),
        ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device", "the disk is full"),
        ("ERROR: Package 'x' requires a different Python: 3.14.0 not in '<3.14'", "requires a different Python"),
    ],
)  # fmt: skip
def test_why_pip_failed(log: str, told: str) -> None:
    line = install.explain(log)
    assert told in line
    assert "\n" not in line


def run_pytest(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("KVGATE_")}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "gates/test_g3.py", *args],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**clean, **env},
    )


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("--site", "nowhere"), "unknown site 'nowhere'"),
        (("--scenario", "nowhere"), "unknown scenario 'nowhere'"),
        (("--site", "nowhere.toml"), "nowhere.toml: no such site file"),
        (("--langs", "fr"), "choose from zh, en"),
        (("--langs", ","), "choose from zh, en"),
    ],
)
def test_a_mistake_on_the_command_line_is_one_line_and_status_4(args: tuple[str, ...], told: str) -> None:
    done = run_pytest(*args)
    said = (done.stdout + done.stderr).strip()
    assert done.returncode == 4
    assert told in said
    assert "Traceback" not in said
    assert said.count("\n") == 0


def test_the_plan_is_what_collect_only_prints() -> None:
    done = run_pytest("--collect-only", "-q")
    assert done.returncode == 0
    assert "gates/test_g3.py::test_criterion[ttft-p50-reduction-c2]" in done.stdout
    assert "18 tests collected" in done.stdout
    smoke = run_pytest("--collect-only", "-q", "--smoke")
    assert "gates/test_g3.py::test_smoke[candidate-c4]" in smoke.stdout


def test_nothing_selected_is_never_status_0() -> None:
    assert run_pytest("-k", "nothing_of_that_name").returncode == 5


def test_the_environment_names_a_site_too() -> None:
    done = run_pytest("--collect-only", KVGATE_SITE="nowhere")
    assert done.returncode == 4
    assert "unknown site 'nowhere'" in done.stdout + done.stderr


def test_doctor_says_what_there_is() -> None:
    done = subprocess.run([sys.executable, "-m", "scenarios.preflight"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode in (0, 1)
    assert "disk: " in done.stdout
    assert "memory: " in done.stdout
    assert "Traceback" not in done.stderr


def test_make_help_lists_the_gate() -> None:
    done = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0
    assert "gate-g3" in done.stdout


def test_make_names_a_missing_run() -> None:
    done = subprocess.run(["make", "verify"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2
    assert "name the run: make verify RUN=runs/..." in done.stderr


def lab(folder: Path, *, link: bool = False, same: bool = False, policy: str = "exclusive") -> tuple[Site, Scenario]:
    site, scenario = loaded(policy=policy)
    real, shm = folder / "real", Path("/dev/shm") / folder.name
    for path in (real, shm):
        path.mkdir(exist_ok=True)
    if link:
        (folder / "link").symlink_to(real)
    paths = {"baseline": folder / "link" if link else real, "candidate": real / "below" if same else shm}
    paths["candidate"].mkdir(exist_ok=True)
    names = {arm: scenario.arms[arm].tiers[0] for arm in paths}
    changed = {names[arm]: site.tiers[names[arm]].model_copy(update={"path": str(path)}) for arm, path in paths.items()}
    return site.model_copy(update={"rehearsal": False, "tiers": {**site.tiers, **changed}}), scenario


@pytest.mark.usefixtures("roomy")
@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, None),
        ({"link": True}, "leads to "),
        ({"same": True}, "lies on the same file system as tier '"),
        ({"policy": "resident"}, "a lab needs 'exclusive'"),
    ],
)
def test_a_lab_that_could_prove_nothing_is_refused_before_its_hours_are_spent(
    tmp_path: Path, changes: dict[str, Any], told: str | None
) -> None:
    if tmp_path.stat().st_dev == Path("/dev/shm").stat().st_dev:
        pytest.skip("needs two file systems")
    try:
        found = refusal(*lab(tmp_path, **changes), tmp_path)
    finally:
        shutil.rmtree(Path("/dev/shm") / tmp_path.name, ignore_errors=True)
    assert found is None if told is None else told in (found or "")
