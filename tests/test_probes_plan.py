"""What the collector asks of a host, by the devices that it finds and by what it is told to ask."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.probe_lab import PYTHON
from workloads import probes
from workloads.probes import Task, run_tool


@pytest.fixture
def sysfs(tmp_path: Path) -> Path:
    root = tmp_path / "sys"
    for name in ("class/nvme/nvme0", "class/nvme/nvme10", "class/nvme/nvme2", "class/net/eth0/device", "class/net/lo",
                 "class/net/bond0/bonding", "class/net/-S/device", "block/nvme0n1", "block/nvme0n1p1", "block/nvme3c3n1",
                 "block/sda", "block/loop0"):  # fmt: skip
        (root / name).mkdir(parents=True)
    return root


def commands(tasks: list[Task]) -> list[str]:
    return [" ".join(task.words or task.argv) for task in tasks]


def test_each_device_is_asked_in_its_own_commands(sysfs: Path) -> None:
    told = commands(probes.plan([], [], False, str(sysfs)))
    for wanted in (
        "nvme list -v -o json", "nvme list-subsys -v -o json", "rdma -j link show", "rdma -j statistic show",
        "ip -j addr show", "lspci -D -vvv -nn -k", "lsblk -J -b -O", "dmesg -x --time-format=iso", "gdscheck -p",
        "cat /proc/self/mountinfo", "nvme smart-log /dev/nvme10 -o json", "nvme ana-log /dev/nvme2 -o json",
        "nvme list-subsys /dev/nvme0n1 -o json", "nvme id-ns /dev/nvme0n1 -o json", "smartctl -j -a /dev/sda",
        "ethtool -S eth0", "mlnx_qos -i eth0", "ethtool bond0",
    ):  # fmt: skip
        assert wanted in told, wanted
    assert not [line for line in told if line.split()[-1] in ("lo", "/dev/loop0", "/dev/nvme0n1p1", "-S")]
    assert not [line for line in told if "nvme3c3n1" in line or "dcgmi" in line or "write-probe" in line]
    assert len(set(told)) == len(told)
    devices = [task.device for task in probes.plan([], [], False, str(sysfs)) if task.argv[:2] == ("nvme", "id-ctrl")]
    assert devices == ["nvme0", "nvme2", "nvme10"]


def test_what_is_asked_for_alone(sysfs: Path) -> None:
    told = commands(probes.plan(["/srv/tier"], ["/opt/v/bin/python"], True, str(sysfs)))
    for wanted in ("dcgmi diag -r 1 --json", "write-probe /srv/tier", "module-hashes-of /opt/v/bin/python",
                   "native-ops-of /opt/v/bin/python", "packages-of /opt/v/bin/python"):  # fmt: skip
        assert wanted in told
    assert "/opt/v/bin/python -m pip list --format=freeze --disable-pip-version-check" in told


def test_nothing_of_the_plan_changes_the_host_but_the_write_that_was_asked_for(sysfs: Path) -> None:
    changing = {"format", "connect", "disconnect", "reset", "set-feature", "delete-ns", "mkfs", "rm", "sanitize", "set"}
    for task in probes.plan(["/srv/tier"], [], True, str(sysfs)):
        assert not changing & set(task.argv), task


def test_what_is_installed_is_told_of_the_collectors_own_python_too(sysfs: Path) -> None:
    tasks = [task for task in probes.plan([], [PYTHON], False, str(sysfs)) if task.words[:1] == ("packages-of",)]
    assert b"\npytest==" in run_tool(tasks[0].argv, 60).stdout
