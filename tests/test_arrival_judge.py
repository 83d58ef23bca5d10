"""G1's checks: each fails where its fault is and nowhere else, names what is at fault, and never passes without data."""

from __future__ import annotations

import functools
import os
import re
import tomllib
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gates.arrival import limits
from gates.arrival.check import Finding, Plan
from gates.arrival.host import Host
from gates.arrival.plan import plan
from scenarios.model import Site
from tests.arrival_lab import NQN, PYTHON, SITE, Lab, files_of, smart
from workloads import probes
from workloads.bundle import Bundle, Output, of_files, open_bundle

ROOT = Path(__file__).resolve().parent.parent
CRITERIA = ROOT / "gates/criteria/g1.toml"
REAL_SITE = (ROOT / "tests/data/nvmeof-lab.toml").read_text(encoding="utf-8")
REAL_LAB = Path(os.environ.get("KVGATE_SHARED", ROOT.parent / "shared")) / "samples/nvmeof-lab"

Fault = Callable[[Lab], object]


@functools.cache
def planned(site: str = SITE) -> Plan:
    return plan(Site.model_validate(tomllib.loads(site)).bom, limits.load(CRITERIA))


def judged(bundle: Bundle, site: str = SITE, after: Bundle | None = None) -> dict[str, Finding]:
    """Return the finding of each check."""
    host = Host(bundle, "host/before", after=Host(after, "host/after") if after is not None else None)
    return {check.id: check.look(host) for check in planned(site).checks}


def failed(found: dict[str, Finding]) -> set[str]:
    return {name for name, finding in found.items() if finding.verdict == "FAIL"}


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


SPOILT = {
    "missing": ("", 127, "sh: not found"),
    "timed out": ("", 124, ""),
    "nothing": ("", 0, ""),
    "an error with status 0": ("Error: permission denied\n", 0, ""),
    "another language": ("Fehler: Zugriff verweigert, Gerät nicht gefunden\n", 1, "Zugriff verweigert"),
    "JSON of another kind": ('{"error": "Permission denied"}', 0, ""),
}


@pytest.mark.parametrize("how", [*SPOILT, "half", "not collected"])
@pytest.mark.parametrize("command", Lab().outputs())
def test_a_command_that_tells_nothing_makes_nothing_pass_or_fail(command: str, how: str) -> None:
    outputs = Lab().outputs()
    whole = judged(Lab().bundle())
    if how == "not collected":
        del outputs[command]
    elif how == "half":
        printed, _, _ = outputs[command]
        outputs[command] = (printed[: len(printed) // 2], 0, "")
    else:
        outputs[command] = SPOILT[how]
    found = judged(of_files(files_of(outputs), Path("spoilt")))
    # A write that did not end, or was refused, is what there is to find.
    tried = command.startswith("dd ") and how != "missing"
    if not tried:
        assert failed(found) == set()
    assert set(found) == set(whole)
    told = {name for name, finding in found.items() if finding.verdict == "INVALID"}
    assert all(found[name].reason.startswith("no data: ") for name in told)
    if command not in TOLD_ELSEWHERE and how != "half" and not tried:
        assert told, "nothing depends on this command"


# What another command tells, too.
TOLD_ELSEWHERE = {
    "nvme list -o json", "nvme list -v -o json", "nvme list-subsys /dev/nvme1n2 -o json", "rdma -j link show", "lsblk -J -b -O",
    "mlnx_qos -i fab0", "dcb -j pfc show dev fab0", "dcb -j apptrust show dev fab0",
}  # fmt: skip


COMMANDS = list(Lab().outputs())


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_whatever_a_host_tells_no_check_raises(data: st.DataObject) -> None:
    outputs = Lab().outputs()
    for command in data.draw(st.lists(st.sampled_from(COMMANDS), min_size=1, max_size=4, unique=True)):
        printed, _, _ = outputs[command]
        begin = data.draw(st.integers(0, len(printed)))
        end = data.draw(st.integers(begin, min(len(printed), begin + 40)))
        printed = (
            printed[:begin]
            + data.draw(st.sampled_from(["", "null", "-1", "[]", "{}", '"', "0", "1e400", "é\n"]))
            + printed[end:]
        )
        outputs[command] = printed, data.draw(st.sampled_from([0, 0, 0, 1, 124, 127])), ""
    found = judged(of_files(files_of(outputs), Path("mutated")))
    assert all(finding.verdict in ("PASS", "FAIL", "INVALID") for finding in found.values())
    assert all(finding.found is not None for finding in found.values() if finding.verdict != "INVALID")


def test_no_data_of_one_drive_leaves_the_others_alone() -> None:
    lab = Lab()
    del lab.smart["L1"]["temperature"]
    found = judged(lab.bundle())
    assert {n for n, f in found.items() if f.verdict != "PASS"} == {"drives.local.temperature"}
    assert "L1" in found["drives.local.temperature"].reason


def test_a_fault_counts_before_what_is_not_known() -> None:
    lab = Lab()
    del lab.smart["L1"]["critical_warning"]
    lab.smart["L2"]["critical_warning"] = 1
    assert judged(lab.bundle())["drives.local.critical_warning"].verdict == "FAIL"


def test_a_blank_health_log_says_nothing() -> None:
    lab = Lab()
    lab.smart["L1"] = dict.fromkeys(smart(), 0)
    found = judged(lab.bundle())
    assert found["drives.local.critical_warning"].verdict == "INVALID"
    assert "L1" in found["drives.local.critical_warning"].reason


def test_loss_is_judged_by_deltas_over_a_load_alone() -> None:
    site = SITE.replace('driver = "mlx5_core"', 'driver = "mlx5_core"\nlossless = true')

    def counted(discards: int, sequence: int, boot: int = 1) -> Bundle:
        outputs = Lab().outputs()
        outputs["ethtool -S fab0"] = (
            f"NIC statistics:\n     rx_discards_phy: {discards}\n     rx_pause_ctrl_phy: {discards}\n",
            0,
            "",
        )
        told = [{"ifname": "rdma0", "port": 1, "out_of_sequence": sequence, "np_ecn_marked_roce_packets": sequence + 5}]
        outputs["rdma -j statistic show"] = (str(told).replace("'", '"'), 0, "")
        outputs[BOOT] = (f"{BOOTS[boot]}\n", 0, "")
        return of_files(files_of(outputs), Path("counted"))

    def loss(before: Bundle, after: Bundle | None) -> Finding:
        return judged(before, site, after)["ports.fab0.loss"]

    assert loss(counted(7, 3), None).verdict == "INVALID"
    assert loss(counted(7, 3), counted(7, 3)).verdict == "PASS"
    assert loss(counted(7, 3), counted(8, 3)).verdict == "FAIL"
    assert loss(counted(7, 3), counted(7, 9)).verdict == "FAIL"
    assert "reset" in loss(counted(7, 3), counted(0, 3)).reason
    assert loss(counted(7, 3), counted(0, 3)).verdict == "INVALID"
    assert loss(counted(7, 3), counted(7, 3, boot=2)).verdict == "INVALID"
    without = Lab().bundle()
    assert loss(without, without).verdict == "INVALID"


@pytest.mark.parametrize("status", ["Skip", "Not Run", "Warn", "???"])
def test_a_test_that_did_not_pass_is_no_pass(status: str) -> None:
    lab = Lab()
    lab.diag["Denylist"] = status
    found = judged(lab.bundle())
    assert {name for name, finding in found.items() if finding.verdict != "PASS"} == {"accelerators.gpus.diagnostics"}
    assert found["accelerators.gpus.diagnostics"].verdict == "INVALID"


OTHER_PYTHON = "/usr/bin/python3"


def test_which_python_is_meant_must_be_known() -> None:
    outputs = Lab().outputs()
    outputs[f"packages-of {OTHER_PYTHON}"] = ("vllm==0.31.0\n# 1 packages\n", 0, "")
    mixed = of_files(files_of(outputs), Path("mixed"))
    found = judged(mixed)
    of_python = {"software.packages.vllm", "software.modules.lmcache-v1-x.py", "software.native_ops"}
    assert {name for name, finding in found.items() if finding.verdict != "PASS"} == of_python
    assert all(found[name].verdict == "INVALID" and OTHER_PYTHON in found[name].reason for name in of_python)
    named = SITE.replace("[bom.software]\n", f'[bom.software]\npython = "{PYTHON}"\n')
    assert failed(judged(mixed, named)) == set() and judged(mixed, named)["software.packages.vllm"].verdict == "PASS"
    other = SITE.replace("[bom.software]\n", f'[bom.software]\npython = "{OTHER_PYTHON}"\n')
    assert failed(judged(mixed, other)) == {"software.packages.vllm"}
    nobody = SITE.replace("[bom.software]\n", '[bom.software]\npython = "/opt/other/python"\n')
    assert "no software of /opt/other/python was collected" in judged(mixed, nobody)["software.native_ops"].reason


def test_an_lmcache_that_is_not_installed_fails() -> None:
    outputs = Lab().outputs()
    outputs[f"module-hashes-of {PYTHON}"] = ("# 0 files\n", 0, "")
    outputs[f"native-ops-of {PYTHON}"] = ('{"modules": [], "libraries": []}', 0, "")
    found = judged(of_files(files_of(outputs), Path("none")))
    assert failed(found) == {"software.modules.lmcache-v1-x.py", "software.native_ops"}
    assert "not installed" in found["software.native_ops"].reason


BOOT = "cat /proc/sys/kernel/random/boot_id"
BOOTS = {number: f"{number:08x}-0000-0000-0000-000000000000" for number in (1, 2)}


def loaded(lab: Lab, boot: int = 1, **more: tuple[str, int, str]) -> Bundle:
    outputs = lab.outputs() | {BOOT: (BOOTS[boot] + "\n", 0, "")} | more
    return of_files(files_of(outputs), Path("loaded"))


CARRY = SITE.replace('io_policy = "round-robin"\n', "paths_carry = true\n")


@pytest.mark.parametrize(
    ("policy", "ana", "after", "verdict", "word"),
    [
        ("round-robin", "optimized", {"nvme5": 900, "nvme4": 800}, "PASS", "192.0.2.1 (nvme5): 409600 bytes"),
        ("round-robin", "optimized", {"nvme5": 900, "nvme4": 10}, "FAIL", "192.0.2.2 (nvme4) carried nothing"),
        ("queue-depth", "optimized", {"nvme5": 100, "nvme4": 10}, "FAIL", "192.0.2.1 (nvme5) carried nothing"),
        ("round-robin", "non-optimized", {"nvme5": 900, "nvme4": 10}, "PASS", "nvme5"),
        ("numa", "optimized", {"nvme5": 900, "nvme4": 10}, "PASS", "numa: "),
        ("numa", "optimized", {"nvme5": 100, "nvme4": 10}, "FAIL", "carried nothing"),
        ("round-robin", "optimized", {"nvme5": 900, "nvme4": 9}, "INVALID", "reset"),
        ("", "optimized", {"nvme5": 900, "nvme4": 800}, "INVALID", "I/O policy"),
    ],
)
def test_paths_that_should_carry_bytes(policy: str, ana: str, after: dict[str, int], verdict: str, word: str) -> None:
    lab = Lab(io_policy=policy, carried={"nvme5": 100, "nvme4": 10})
    lab.paths[1]["ana"] = ana
    later = lab.copy()
    later.carried = after
    found = judged(loaded(lab), CARRY, loaded(later))["subsystems.array.paths_carry"]
    assert (found.verdict, word in found.reason) == (verdict, True), found
    assert judged(loaded(lab), CARRY)["subsystems.array.paths_carry"].verdict == "INVALID"
    assert judged(loaded(lab), CARRY, loaded(later, 2))["subsystems.array.paths_carry"].verdict == "INVALID"


def test_a_path_that_does_not_count_is_not_idle() -> None:
    lab = Lab(carried={"nvme5": 1, "nvme4": 1})
    walk = next(command for command in lab.outputs() if command.startswith("walk of"))
    off = lab.outputs()[walk][0].replace("queue/iostats: '1'", "queue/iostats: '0'")
    found = judged(loaded(lab, **{walk: (off, 0, "")}), CARRY, loaded(lab, **{walk: (off, 0, "")}))
    assert found["subsystems.array.paths_carry"].verdict == "INVALID"


def test_a_log_that_was_cleared_between_two_looks_hides_nothing() -> None:
    bad = Lab(log=["I/O error, dev nvme2n1, sector 8 op 0x0:(READ) flags 0x0"])
    assert "drives.local.kernel_log" in failed(judged(bad.bundle(), after=Lab().bundle()))
    assert "drives.local.kernel_log" in failed(judged(Lab().bundle(), after=bad.bundle()))
    empty = loaded(Lab(), **{"dmesg -x --time-format=iso": ("", 0, "")})
    found = judged(Lab().bundle(), after=empty)["drives.local.kernel_log"]
    assert (found.verdict, "printed nothing" in found.reason) == ("INVALID", True)
    assert "does not begin with the boot" in judged(Lab().bundle())["drives.local.kernel_log"].reason


def test_what_df_tells_of_one_file_system_alone_is_used() -> None:
    outputs = Lab().outputs()
    whole = outputs.pop("df -B1 --output")[0].splitlines()
    for line in whole[1:]:
        target = line.split()[-1]
        outputs[f"df -B1 --output {target}"] = (f"{whole[0]}\n{line}\n", 0, "")
    found = judged(of_files(files_of(outputs), Path("single")))
    assert {name for name, finding in found.items() if finding.verdict != "PASS"} == set()


class Watched(Bundle):
    """A bundle that notes what is asked of it."""

    def __init__(self, outputs: tuple[Output, ...], asked: set[str]) -> None:
        super().__init__(outputs)
        object.__setattr__(self, "asked", asked)

    def find(self, *words: str) -> Output | None:
        found = super().find(*words)
        self.asked.update([found.name] if found else [])  # type: ignore[attr-defined]
        return found

    def matching(self, *words: str) -> list[Output]:
        found = super().matching(*words)
        self.asked.update(output.name for output in found)  # type: ignore[attr-defined]
        return found


EVERYTHING = (
    SITE.replace('kernel = "6.1"\n', 'kernel = "6.1"\nrocm = "6"\ncuda = "12"\ncann = "8"\n')
    + """
[bom.accelerators.amd]
vendor = "amd"
count = 1
[bom.accelerators.npu]
vendor = "ascend"
count = 1
"""
)
# Asked of a device that was found, or in a way that is not watched here; other tests read them.
OF_WHAT_WAS_FOUND = (
    "nvme-smart-log.*",
    "smartctl-a.*",
    "rdma-statistic.json",
    "ethtool-S.*",
    "ip-link-s.json",
    "write.*",
    "proc-diskstats",
    "date",
    "boot-id",
)


def test_what_is_collected_is_read_or_said_to_be_for_the_eye(tmp_path: Path) -> None:
    for folder in ("class/nvme/nvme0", "block/nvme0n1", "block/sda", "class/net/fab0/device"):
        (tmp_path / folder).mkdir(parents=True)
    tasks = probes.plan(["/srv/array"], [PYTHON], True, str(tmp_path))
    asked: set[str] = set()
    outputs = tuple(Output(task.name, tuple(task.words or task.argv), b"", b"", 127) for task in tasks)
    host = Host(Watched(outputs, asked), "host/before")
    for check in planned(EVERYTHING).checks:
        assert check.look(host).verdict == "INVALID", check.id
    text = (ROOT / "docs/probes.md").read_text(encoding="utf-8")
    kept = re.findall(r"`([^`]+)`", text.split("## Kept for the eye")[1].split("Readers that no row uses")[0])
    unread = {output.name for output in outputs if output.name not in asked}
    unread -= {name for name in unread if any(fnmatch(name, pattern) for pattern in OF_WHAT_WAS_FOUND)}
    assert {name for name in unread if not any(fnmatch(name, pattern) for pattern in kept)} == set()
    assert {pattern for pattern in kept if not any(fnmatch(name, pattern) for name in unread)} == set()


def test_nothing_declared_is_nothing_checked() -> None:
    nothing = plan(None, limits.load(CRITERIA))
    assert nothing.checks == ()
    assert {metric for _, metric in nothing.not_declared} >= {"presence", "mounted", "link", "raw_speed"}


def test_ids_are_one_each_and_limits_are_of_their_metric() -> None:
    ids = [check.id for check in planned().checks]
    assert len(set(ids)) == len(ids)
    assert all(check.limit is None or check.limit.metric == check.metric for check in planned().checks)


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
