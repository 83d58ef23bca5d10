"""G1's checks on a made-up host and the real lab: each fails where its fault is and nowhere else, and names it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.arrival_judging import REAL_SITE, failed, judged
from tests.arrival_lab import NQN, PYTHON, SITE, Lab, files_of, smart
from tests.reader_samples import SAMPLES
from workloads.bundle import of_files, open_bundle

REAL_LAB = SAMPLES / "nvmeof-lab"

Fault = Callable[[Lab], object]


def test_what_was_ordered_and_is_well_passes() -> None:
    found = judged(Lab().bundle())
    assert {name: finding.reason for name, finding in found.items() if finding.verdict != "PASS"} == {}
    assert all(finding.found and finding.raw for finding in found.values())


def down(lab: Lab, *numbers: int) -> None:
    for number in numbers:
        lab.paths[number]["state"] = "connecting"


def all_paths_lost(lab: Lab) -> None:
    down(lab, 0, 1)
    lab.namespaces = []
    lab.writes["/srv/array"] = (124, "")


def drive_gone(lab: Lab) -> None:
    del lab.drives["L2"]


def renamed(lab: Lab) -> None:
    """Another boot: everything has other device names."""
    lab.drives["L1"] |= {"subsystem": 12, "controller": "nvme0"}
    lab.drives["L2"] |= {"subsystem": 7, "controller": "nvme3"}
    lab.mounts[2]["source"] = "/dev/nvme12n1p1"
    lab.namespaces = [1]
    lab.mounts[1]["source"] = "/dev/nvme1n1"
    lab.paths.reverse()


def swapped_mounts(lab: Lab) -> None:
    lab.mounts[1]["source"], lab.mounts[2]["source"] = lab.mounts[2]["source"], lab.mounts[1]["source"]


def warns(**changes: object) -> Fault:
    return lambda lab: lab.smart.update({"L2": smart(**changes)})


def says(*lines: str) -> Fault:
    return lambda lab: lab.log.extend(lines)


PATH_1, PATH_2 = "subsystems.array.path.192.0.2.1-4420", "subsystems.array.path.192.0.2.2-4420"
PATHS, OPTIMIZED = "subsystems.array.paths", "subsystems.array.optimized"

# name: the fault, the checks that must fail and no other, a word that the first of them must say
FAULTS: dict[str, tuple[Fault, list[str], str]] = {
    "renamed": (renamed, [], ""),
    "first path down": (lambda lab: down(lab, 0), [PATH_1, PATHS, OPTIMIZED], "192.0.2.1"),
    "second path down": (lambda lab: down(lab, 1), [PATH_2, PATHS], "192.0.2.2"),
    "all paths lost": (
        all_paths_lost,
        [PATH_1, PATH_2, PATHS, OPTIMIZED, "subsystems.array.namespaces", "mounts.array.writable"],
        "connecting",
    ),
    "a path gone": (lambda lab: lab.paths.pop(0), [PATH_1, PATHS, OPTIMIZED], "192.0.2.1"),
    "a path too many": (lambda lab: lab.paths.append({**lab.paths[0], "controller": "nvme6", "traddr": "192.0.2.3"}), [PATHS], "3 paths"),
    "resetting": (lambda lab: lab.paths[1].update(state="resetting"), [PATH_2, PATHS], "resetting"),
    "inaccessible": (lambda lab: lab.paths[0].update(ana="inaccessible"), [PATH_1, OPTIMIZED], "inaccessible"),
    "ANA the other way round": (
        lambda lab: (lab.paths[0].update(ana="non-optimized"), lab.paths[1].update(ana="optimized")),
        [PATH_1, PATH_2],
        "non-optimized",
    ),
    "TCP": (lambda lab: lab.paths[1].update(transport="tcp"), ["subsystems.array.transport"], "192.0.2.2"),
    "numa policy": (lambda lab: setattr(lab, "io_policy", "numa"), ["subsystems.array.io_policy"], "numa"),
    "I/O may hang": (lambda lab: lab.timeouts.update(fast_io_fail_tmo="off"), ["subsystems.array.fast_io_fail_tmo_s"], "off"),
    "gives up early": (lambda lab: lab.timeouts.update(ctrl_loss_tmo="60"), ["subsystems.array.ctrl_loss_tmo_s"], "60 s"),
    "namespace resized": (lambda lab: lab.array.update(bytes=2_000_000_000), ["subsystems.array.size_bytes"], "nvme1n2"),
    "a namespace too many": (lambda lab: lab.namespaces.append(5), ["subsystems.array.namespaces"], "nvme1n5"),
    "another product": (
        lambda lab: lab.array.update(model="Example FX1000"),
        ["subsystems.array.product", "subsystems.array.model"],
        "FX1000",
    ),
    "the array's firmware": (lambda lab: lab.array.update(firmware="R1"), ["subsystems.array.firmware"], "R1"),
    "a drive's firmware": (lambda lab: lab.drive.update(L2={"firmware": "F0"}), ["drives.local.firmware"], "L2"),
    "a drive's model": (lambda lab: lab.drive.update(L1={"model": "Local 2T"}), ["drives.local.model"], "L1"),
    "a drive's size": (lambda lab: lab.drives["L2"].update(bytes=2_000_000_000), ["drives.local.size_bytes"], "L2"),
    "a drive gone": (drive_gone, ["drives.local.presence"], "L2 is not there"),
    "a drive resetting": (lambda lab: lab.drives["L1"].update(state="resetting"), ["drives.local.presence"], "nvme3 is resetting"),
    "critical warning": (warns(critical_warning=4), ["drives.local.critical_warning"], "L2"),
    "read-only warning": (warns(critical_warning=8), ["drives.local.critical_warning"], "media read-only"),
    "media errors": (warns(media_errors="3"), ["drives.local.media_errors"], "L2"),
    "hot": (warns(temperature=273 + 75), ["drives.local.temperature"], "75 celsius"),
    "worn": (warns(percent_used=40), ["drives.local.wear"], "40 percent"),
    "spare low": (warns(avail_spare=5), ["drives.local.spare_margin"], "L2"),
    "read-only mount": (
        lambda lab: (lab.mounts[1].update(options="ro,noatime"), lab.writes.update({"/srv/array": (1, "dd: failed to open '/srv/array/.w': Read-only file system")})),
        ["mounts.array.options", "mounts.array.writable"],
        "/srv/array",
    ),
    "full": (
        lambda lab: (lab.df.update({"/srv/local": (10**9, 0, 10, 90)}), lab.writes.update({"/srv/local": (1, "dd: error writing '/srv/local/.w': No space left on device")})),
        ["mounts.local.filesystem_use", "mounts.local.writable"],
        "/srv/local",
    ),
    "little room": (lambda lab: lab.df.update({"/srv/array": (10**8, 9 * 10**7, 10, 90)}), ["mounts.array.free_bytes"], "/srv/array"),
    "no inodes": (lambda lab: lab.df.update({"/srv/array": (10**8, 9 * 10**8, 100, 0)}), ["mounts.array.inode_use"], "/srv/array"),
    "not mounted": (lambda lab: lab.mounts.pop(1), ["mounts.array.mounted"], "/srv/array"),
    "another file system": (lambda lab: lab.mounts[1].update(fstype="ext4"), ["mounts.array.fstype"], "ext4"),
    "mounts exchanged": (swapped_mounts, ["mounts.array.source", "mounts.local.source"], "/srv/array"),
    "a link down": (
        lambda lab: (lab.interface.update(flags=["UP", "NO-CARRIER"], operstate="DOWN"), lab.ethtool.update({"Speed": "Unknown!", "Link detected": "no"}), lab.rdma.update(state="DOWN", physical_state="DISABLED")),
        ["ports.fab0.link"],
        "fab0",
    ),
    "RDMA down alone": (lambda lab: lab.rdma.update(state="DOWN", physical_state="POLLING"), ["ports.fab0.link"], "rdma0/1"),
    "slow link": (lambda lab: lab.ethtool.update(Speed="25000Mb/s"), ["ports.fab0.speed"], "25"),
    "MTU": (lambda lab: lab.interface.update(mtu=1500), ["ports.fab0.mtu_bytes"], "1500"),
    "RDMA's MTU": (lambda lab: setattr(lab, "active_mtu", "1024 (3)"), ["ports.fab0.active_mtu_bytes"], "1024"),
    "GID of version 1": (lambda lab: setattr(lab, "gids", ["::ffff:192.0.2.9, RoCE v1"]), ["ports.fab0.gid"], "RoCE v1"),
    "link-local GID alone": (lambda lab: lab.gids.pop(), ["ports.fab0.gid"], "fe80"),
    "PFC off": (lambda lab: setattr(lab, "pfc", "0 0 0 0 0 0 0 0"), ["ports.fab0.pfc"], "no priority"),
    "PFC elsewhere": (lambda lab: setattr(lab, "pfc", "0 0 0 0 1 0 0 0"), ["ports.fab0.pfc"], "4"),
    "PFC off as the kernel tells": (lambda lab: lab.dcb.__setitem__(3, False), ["ports.fab0.pfc"], "no priority"),
    "a scheduler": (lambda lab: lab.queues.update(nvme7n1=("none [mq-deadline] kyber", "30000")), ["drives.local.scheduler"], "nvme7n1"),
    "the array's scheduler": (lambda lab: lab.queues.update(nvme1n2=("none [kyber]", "30000")), ["subsystems.array.scheduler"], "kyber"),
    "a long timeout": (lambda lab: lab.queues.update(nvme2n1=("[none]", "4294967295")), ["drives.local.io_timeout"], "nvme2n1"),
    "a test that fails": (lambda lab: lab.diag.update({"NVML Library": "Fail"}), ["accelerators.gpus.diagnostics"], "NVML Library"),
    "no GPUDirect Storage": (lambda lab: setattr(lab, "gds", "Unsupported"), ["accelerators.gpus.gds_nvmeof"], "not supported"),
    "trust": (lambda lab: setattr(lab, "trust", "pcp"), ["ports.fab0.trust"], "pcp"),
    "ECN off": (lambda lab: setattr(lab, "ecn", "0"), ["ports.fab0.ecn"], "fab0"),
    "the card's firmware": (lambda lab: lab.nic.update({"firmware-version": "27"}), ["ports.fab0.firmware"], "27"),
    "PCIe narrower": (lambda lab: setattr(lab, "link", "16GT/s, Width x2 (downgraded)"), ["pcie.l1.link"], "0000:01:00.0"),
    "PCIe slower": (lambda lab: setattr(lab, "link", "8GT/s (downgraded), Width x4"), ["pcie.l1.link"], "8 GT/s"),
    "a GPU gone": (lambda lab: lab.gpus.pop(), ["accelerators.gpus.count"], "1 "),
    "another GPU": (lambda lab: lab.gpus[1].__setitem__(3, "0x233010DE"), ["accelerators.gpus.pci_device"], "NVIDIA 1"),
    "less memory": (lambda lab: lab.gpus[1].__setitem__(6, "40000 MiB"), ["accelerators.gpus.memory_bytes"], "NVIDIA 1"),
    "no ECC": (lambda lab: lab.gpus[0].__setitem__(7, "Disabled"), ["accelerators.gpus.ecc"], "NVIDIA 0"),
    "MIG": (lambda lab: lab.gpus[0].__setitem__(8, "Enabled"), ["accelerators.gpus.mig"], "NVIDIA 0"),
    "memory errors": (lambda lab: lab.gpus[0].__setitem__(9, "2"), ["accelerators.gpus.health"], "2 uncorrected"),
    "kernel": (lambda lab: setattr(lab, "kernel", "6.10.0-1-amd64"), ["software.kernel"], "6.10.0"),
    "vLLM": (lambda lab: setattr(lab, "packages", "vllm==0.31.0\n# 1 packages\n"), ["software.packages.vllm"], "0.31.0"),
    "no vLLM": (lambda lab: setattr(lab, "packages", "numpy==2.0.0\n# 1 packages\n"), ["software.packages.vllm"], "not installed"),
    "a release candidate": (lambda lab: setattr(lab, "packages", "vllm==0.32.0.dev7\n# 1 packages\n"), ["software.packages.vllm"], "dev7"),
    "the patch is not in": (lambda lab: setattr(lab, "patch", "d" * 64), ["software.modules.lmcache-v1-x.py"], "dddd"),
    "ops for CUDA": (lambda lab: lab.native.update(built_for=["cuda"]), ["software.native_ops"], "cuda"),
    "ops for both": (lambda lab: lab.native.update(built_for=["cuda", "rocm"]), ["software.native_ops"], "cuda, rocm"),
    "ops for none": (lambda lab: lab.native.update(built_for=[]), ["software.native_ops"], "no library"),
    "ops that do not load": (lambda lab: lab.native.update(loads=False, error="ImportError: libamdhip64.so.6"), ["software.native_ops"], "libamdhip64"),
    "cores": (lambda lab: setattr(lab, "cpus", "4"), ["host.cores"], "4"),
    "a path in the log": (says("nvme nvme4: starting error recovery"), ["subsystems.array.kernel_log"], "nvme4"),
    "a path that came back": (says("nvme nvme4: starting error recovery", "nvme nvme4: Successfully reconnected (1 attempts)"), [], ""),
    "a drive in the log": (says("I/O error, dev nvme2n1, sector 8 op 0x0:(READ) flags 0x0"), ["drives.local.kernel_log"], "nvme2n1"),
    "a file system in the log": (says("EXT4-fs error (device nvme7n1p1): ext4_find_entry:1: reading directory lblock 0"), ["mounts.local.kernel_log"], "/srv/local"),
    "a link in the log": (says("mlx5_core 0000:5c:00.0 fab0: Link down"), ["ports.fab0.kernel_log"], "fab0"),
    "somebody else's trouble": (says("I/O error, dev sda, sector 8 op 0x0:(READ)", "eth9: Link is Down"), [], ""),
    "a name that was another's": (
        says('nvme nvme4: new ctrl: NQN "nqn.2014-08.org.other", addr 192.0.2.7:4420', "nvme nvme4: starting error recovery"),
        [],
        "",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_fails_where_it_is_and_nowhere_else(name: str) -> None:
    fault, checks, word = FAULTS[name]
    lab = Lab()
    fault(lab)
    found = judged(lab.bundle())
    assert failed(found) == set(checks), {n: found[n].reason for n in failed(found) ^ set(checks) if n in found}
    if checks:
        assert word in found[checks[0]].reason
        assert found[checks[0]].raw
    else:
        assert {n for n, finding in found.items() if finding.verdict != "PASS"} == set()


def test_every_kind_of_check_has_a_fault_that_it_finds() -> None:
    untested = set(judged(Lab().bundle())) - {check for _, checks, _ in FAULTS.values() for check in checks}
    assert untested == {
        "host.architecture", "host.cpu_model", "host.memory_bytes", "drives.local.sector_bytes", "drives.local.controllers",
        "subsystems.array.presence", "subsystems.array.serial", "subsystems.array.sector_bytes", "ports.fab0.driver",
        "subsystems.array.reconnect_delay_s", "mounts.local.options", "mounts.local.mounted", "mounts.local.fstype",
        "mounts.local.inode_use", "mounts.array.filesystem_use", "mounts.array.kernel_log", "accelerators.gpus.model",
        "accelerators.gpus.firmware", "accelerators.gpus.driver",
    }  # fmt: skip


OTHER_ORDERS = {
    'architecture = "x86_64"': ('architecture = "aarch64"', "host.architecture"),
    'cpu_model = "Example CPU"': ('cpu_model = "Another"', "host.cpu_model"),
    "memory_bytes_min = 8_000_000_000": ("memory_bytes_min = 80_000_000_000", "host.memory_bytes"),
    "sector_bytes = 512": ("sector_bytes = 4096", "drives.local.sector_bytes"),
    "controllers = 1": ("controllers = 2", "drives.local.controllers"),
    'serial = "A1"': ('serial = "A2"', "subsystems.array.serial"),
    "sector_bytes = 4096": ("sector_bytes = 512", "subsystems.array.sector_bytes"),
    'driver = "mlx5_core"': ('driver = "bnxt_en"', "ports.fab0.driver"),
    "reconnect_delay_s = 2": ("reconnect_delay_s = 10", "subsystems.array.reconnect_delay_s"),
    'model = "H20"': ('model = "H200"', "accelerators.gpus.model"),
    'firmware = "96.00"': ('firmware = "95.00"', "accelerators.gpus.firmware"),
    'driver = "570.1"': ('driver = "580.1"', "accelerators.gpus.driver"),
}


@pytest.mark.parametrize("old", OTHER_ORDERS)
def test_another_order_fails_there_alone(old: str) -> None:
    new, check = OTHER_ORDERS[old]
    assert SITE.count(old) == 1
    assert failed(judged(Lab().bundle(), SITE.replace(old, new))) == {check}


def test_another_array_is_not_connected() -> None:
    found = judged(Lab().bundle(), SITE.replace(NQN, "nqn.2030-01.example:other"))
    assert failed(found) == {"subsystems.array.presence", PATHS, PATH_1, PATH_2, OPTIMIZED}
    assert "not connected" in found["subsystems.array.presence"].reason


def test_an_lmcache_that_is_not_installed_fails() -> None:
    outputs = Lab().outputs()
    outputs[f"module-hashes-of {PYTHON}"] = ("# 0 files\n", 0, "")
    outputs[f"native-ops-of {PYTHON}"] = ('{"modules": [], "libraries": []}', 0, "")
    found = judged(of_files(files_of(outputs), Path("none")))
    assert failed(found) == {"software.modules.lmcache-v1-x.py", "software.native_ops"}
    assert "not installed" in found["software.native_ops"].reason


# The real lab: what must fail in each state, and nothing else.
REAL = {
    "healthy": {},
    "path-down-port": {
        "subsystems.fx100.paths": "192.168.50.2",
        "subsystems.fx100.path.192.168.50.2-4420": "192.168.50.2",
        "subsystems.fx100.optimized": "fx100",
        "subsystems.fx100.kernel_log": "nvme3",
    },
    "all-paths-lost": {
        "subsystems.fx100.namespaces": "fx100",
        "subsystems.fx100.paths": "192.168.51.2",
        "subsystems.fx100.path.192.168.50.2-4420": "connecting",
        "subsystems.fx100.path.192.168.51.2-4420": "connecting",
        "subsystems.fx100.optimized": "fx100",
        "subsystems.fx100.kernel_log": "fx100",
        "mounts.fx100.writable": "/mnt/fx100",
    },
    "local-critical-warning": {"drives.local-2.critical_warning": "QLABLOCAL2"},
    "fs-full": {
        "mounts.fx100.writable": "/mnt/fx100",
        "mounts.fx100.filesystem_use": "/mnt/fx100",
        "mounts.local.writable": "No space left",
        "mounts.local.filesystem_use": "/mnt/local",
    },
}


@pytest.mark.parametrize("state", REAL)
def test_the_real_lab(state: str) -> None:
    if not (REAL_LAB / state).is_dir():
        pytest.skip(f"no samples at {REAL_LAB}: set KVGATE_SHARED")
    found = judged(open_bundle(REAL_LAB / state), REAL_SITE)
    assert failed(found) == set(REAL[state])
    for name, word in REAL[state].items():
        assert word in found[name].reason
        assert all((REAL_LAB / state / file.removeprefix("host/before/")).is_file() for file in found[name].raw)
    if state == "healthy":
        assert {finding.verdict for finding in found.values()} == {"PASS"}
