"""What the collector tells by itself, where no tool does: sysfs, a write, the modules of a Python."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path

import pytest

from tests.probe_lab import FILE, PYTHON
from workloads import probes
from workloads.probes import run_tool

# The walk of sysfs.


def test_the_walk_tells_links_attributes_and_errors_one_a_line(tmp_path: Path) -> None:
    device = tmp_path / "devices/pci0000:00/0000:00:01.0/0000:01:00.0"
    nvme = device / "nvme/nvme0"
    (nvme / "power").mkdir(parents=True)
    for name, text in (("model", "Some Drive\n"), ("pools", "a\nb\n"), ("power/control", "auto\n"), ("dhchap_secret", "DHHC-1:x\n"),
                       ("uevent", "X=1\n"), ("state", "it's\n")):  # fmt: skip
        (nvme / name).write_text(text)
    (nvme / "rescan_controller").write_text("")
    (nvme / "rescan_controller").chmod(0o200)
    (nvme / "device").symlink_to("../../../0000:01:00.0")
    (nvme / "unreadable").symlink_to("nowhere")
    (device / "vendor").write_text("0x1234\n")
    (device / "config").write_bytes(b"\0" * 64)
    for name in ("current_link_speed", "max_link_speed", "vendor"):
        (device.parent / name).write_text("16.0 GT/s PCIe\n")
    gids = nvme / "ports/1/gids"
    gids.mkdir(parents=True)
    (gids / "0").write_text("fe80:0000:0000:0000:0000:0000:0000:0001\n")
    (gids / "1").write_text("0000:0000:0000:0000:0000:0000:0000:0000\n")
    root = tmp_path / "class"
    root.mkdir()
    (root / "nvme0").symlink_to(os.path.relpath(nvme, root))
    lines: list[str] = []
    probes.Walk(lines.append).roots([str(root), str(tmp_path / "none"), str(root) + "/x*"])
    told = [line.replace(str(tmp_path), "") for line in lines]
    assert told[0] == "/class/nvme0 -> ../devices/pci0000:00/0000:00:01.0/0000:01:00.0/nvme/nvme0"
    inside = "/devices/pci0000:00/0000:00:01.0/0000:01:00.0"
    assert f"{inside}/nvme/nvme0/model: 'Some Drive'" in told
    assert f"{inside}/nvme/nvme0/pools: 'a\\nb'" in told
    assert f'{inside}/nvme/nvme0/state: "it\'s"' in told
    assert f"{inside}/nvme/nvme0/device -> ../../../0000:01:00.0" in told
    assert f"{inside}/nvme/nvme0/ports/1/gids/0: 'fe80:0000:0000:0000:0000:0000:0000:0001'" in told
    assert f"{inside}/vendor: '0x1234'" in told
    assert "/devices/pci0000:00/0000:00:01.0/max_link_speed: '16.0 GT/s PCIe'" in told
    for never in ("secret", "DHHC", "uevent", "power", "rescan", "config", "gids/1"):
        assert not [line for line in told if never in line], never
    assert len(set(told)) == len(told)


def test_an_attribute_that_blocks_is_told_as_such_and_the_walk_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_for_others(asked: int, told: int) -> None:
        with os.fdopen(asked, "rb") as paths:
            for line in paths:
                if b"blocked" in line:
                    time.sleep(60)
                os.write(told, probes.struct.pack("=ii", 0, 1) + b"7")
        os._exit(0)

    monkeypatch.setattr(probes, "_read_for_others", read_for_others)
    for name in ("a", "blocked", "c"):
        (tmp_path / name).write_text("7")
    lines: list[str] = []
    walk = probes.Walk(lines.append, patience_s=0.2)
    walk.folder(str(tmp_path))
    walk.reader.leave() if walk.reader else None
    told = [line.replace(str(tmp_path), "") for line in lines]
    assert told == ["/a: '7'", "/blocked: ERRNO 110 Connection timed out", "/c: '7'"]


def test_the_walk_of_this_host_ends() -> None:
    ran = run_tool((PYTHON, "-I", "-S", str(FILE), "--child", "sysfs", "/sys/class/net"), 60)
    assert (ran.status, ran.stderr) == (0, b"")
    assert b"/sys/class/net/lo -> " in ran.stdout and b"/mtu: '" in ran.stdout


# The write.


def test_the_write_probe_leaves_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert probes.write_probe(str(tmp_path), 10_000) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["bytes"], told["same"], told["removed"]) == (10_000, True, True)
    assert told["fsync_s"] >= 0
    assert not list(tmp_path.iterdir())


def test_a_refused_write_is_told_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert probes._child(["write", str(tmp_path / "none")]) == 1

    def full(*_args: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        probes.write_probe(str(tmp_path))
    assert not list(tmp_path.iterdir())


# Python's modules.


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    inside = tmp_path / "lmcache/v1"
    (inside / "__pycache__").mkdir(parents=True)
    (tmp_path / "lmcache/__init__.py").write_text("raise SystemExit('must not run')\n")
    (inside / "x.py").write_text("x = 1\n")
    (inside / "__pycache__/x.pyc").write_text("")
    (tmp_path / "lmcache/ops.so").write_bytes(b"\x7fELF libamdhip64.so.6 \0")
    return tmp_path


def test_modules_are_hashed_without_running_them(packages: Path) -> None:
    environ = {**os.environ, "PYTHONPATH": str(packages)}
    argv = [PYTHON, str(FILE), "--child", "hashes", "lmcache", "no_such_module"]
    done = subprocess.run(argv, env=environ, capture_output=True, text=True, check=True, timeout=60)
    lines = done.stdout.splitlines()
    assert lines[0] == f"# lmcache is {packages}/lmcache"
    assert [line.split()[2] for line in lines[1:-1]] == ["lmcache/__init__.py", "lmcache/ops.so", "lmcache/v1/x.py"]
    assert lines[-1] == "# 3 files"
    assert lines[3].split()[:2] == [probes.hashlib.sha256(b"x = 1\n").hexdigest(), "6"]


def test_native_libraries_tell_what_they_were_built_for_and_that_they_do_not_load(packages: Path) -> None:
    (packages / "lmcache/__init__.py").write_text("")
    (packages / "torch.py").write_text("raise RuntimeError('no\\ntorch')\n")
    environ = {**os.environ, "PYTHONPATH": str(packages)}
    argv = [PYTHON, "-S", str(FILE), "--child", "natives", "lmcache", "none"]
    done = subprocess.run(argv, env=environ, capture_output=True, text=True, check=True, timeout=60)
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["torch"] == {"error": "RuntimeError: no torch"}
    assert told["modules"] == ["lmcache"]
    (library,) = told["libraries"]
    assert (library["file"], library["built_for"], library["loads"]) == ("lmcache/ops.so", ["rocm"], False)
    assert library["error"]


def test_packages_are_told_without_pip() -> None:
    ran = run_tool((PYTHON, "-B", str(FILE), "--child", "packages"), 60)
    assert b"\npytest==" in ran.stdout
    lines = ran.stdout.decode().splitlines()
    assert lines[-1] == f"# {len(lines) - 1} packages"
