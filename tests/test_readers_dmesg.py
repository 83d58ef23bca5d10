"""The kernel's log: what is trouble, whose, whether it is over, and what is not."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gates.readers.dmesg import KernelLog, Trouble, kernel_log
from gates.readers.error import ReaderError
from tests.reader_samples import hostile_bytes, lab, mutated, printed, said, sample, tried

PCI = "0000:5c:00.0"
# (line, kind, subject)
TROUBLES = [
    ("nvme nvme0: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0x10", "controller-down", "nvme0"),
    ("nvme nvme4: I/O tag 22 (2016) opcode 0x2 (Admin Cmd) QID 0 timeout, reset controller", "timeout", "nvme4"),
    ("nvme nvme0: I/O 12 QID 3 timeout, aborting", "timeout", "nvme0"),
    ("nvme nvme0: I/O 12 (I/O Cmd) QID 3 timeout, completion polled", "timeout", "nvme0"),
    ("nvme nvme3: queue 1: timeout request 0x12 type 4", "timeout", "nvme3"),
    ("nvme nvme3: ANATT timeout, resetting controller.", "timeout", "nvme3"),
    ("nvme nvme4: Disabling device after reset failure: -19", "reset-failed", "nvme4"),
    ("nvme nvme0: Device not ready; aborting reset, CSTS=0x1", "reset-failed", "nvme0"),
    ("nvme nvme0: Removing after probe failure status: -19", "reset-failed", "nvme0"),
    ("nvme nvme17: failed nvme_keep_alive_end_io error=10", "keep-alive", "nvme17"),
    ("nvmet: ctrl 1 keep-alive timer (15 seconds) expired!", "keep-alive", "nvmet: ctrl 1"),
    ("nvmet: ctrl 1 fatal error occurred!", "target-error", "nvmet: ctrl 1"),
    ("nvme nvme3: starting error recovery", "recovery", "nvme3"),
    ("nvme nvme3: NVME-FC{0}: controller connectivity lost. Awaiting Reconnect", "recovery", "nvme3"),
    ("nvme nvme3: Reconnecting in 2 seconds...", "reconnect", "nvme3"),
    ("nvme nvme3: Failed reconnect attempt 3/300", "reconnect", "nvme3"),
    ("nvme nvme3: Removing controller...", "removed", "nvme3"),
    ("nvme nvme3: Removing controller (-104)...", "removed", "nvme3"),
    ("nvme nvme15: RECV for CQE 0x00000000ce392ed9 failed with status transport retry counter exceeded (12)", "transport", "nvme15"),
    ("nvme nvme2: queue 1: receive failed:  -104", "transport", "nvme2"),
    ("nvme nvme0: critical temperature, controller throttles", "critical", "nvme0"),
    ("nvme nvme3: globally duplicate IDs for nsid 1", "namespace", "nvme3"),
    ("block nvme3n1: no usable path - requeuing I/O", "path-lost", "nvme3n1"),
    ("block nvme3n1: no available path - failing I/O", "io-failed", "nvme3n1"),
    ("nvme0n1: Read(0x2) @ LBA 123456, 8 blocks, Unrecovered Read Error (sct 0x2 / sc 0x81) DNR ", "io-error", "nvme0n1"),
    ("nvme3c4n1: I/O Cmd(0x1) @ LBA 0, 8 blocks, I/O Error (sct 0x3 / sc 0x70)", "io-error", "nvme3c4n1"),
    ("blk_update_request: I/O error, dev nvme0n1, sector 2048 op 0x1:(WRITE) flags 0x800", "io-error", "nvme0n1"),
    ("critical medium error, dev nvme0n1, sector 2048 op 0x0:(READ)", "io-error", "nvme0n1"),
    ("Buffer I/O error on dev dm-0, logical block 0, lost sync page write", "io-error", "dm-0"),
    ("fio: attempt to access beyond end of device", "io-error", None),
    ("INFO: task fio:1234 blocked for more than 120 seconds.", "hung-task", "fio:1234"),
    ("EXT4-fs (md0): Remounting filesystem read-only", "fs-read-only", "md0"),
    ("EXT4-fs error (device nvme3n1): ext4_find_entry:1683: inode #2: comm ls: reading directory lblock 0", "fs-error", "nvme3n1"),
    ("EXT4-fs warning (device nvme3n1): ext4_end_bio:342: I/O error 10 writing to inode 12", "fs-error", "nvme3n1"),
    ("Aborting journal on device nvme3n1-8.", "fs-error", "nvme3n1-8"),
    ("XFS (nvme3n1): metadata I/O error in \"xfs_buf_ioend\" at daddr 0x1 len 1 error 5", "fs-error", "nvme3n1"),
    ("XFS (nvme3n1): Filesystem has been shut down due to log error (0x2).", "fs-error", "nvme3n1"),
    ("BTRFS error (device sdb1): bdev /dev/sdb1 errs: wr 1, rd 0, flush 0, corrupt 0, gen 0", "fs-error", "sdb1"),
    ("md/raid1:md1: Disk failure on nvme2n1p1, disabling device.", "raid", "md1"),
    ("infiniband mlx5_0: mlx5_handle_error_cqe:332:(pid 0): WC error: 4, Message: local protection error", "rdma-error", "mlx5_0"),
    (f"mlx5_core {PCI}: poll_health:825:(pid 0): device's health compromised - reached miss count", "nic-health", PCI),
    (f"mlx5_core {PCI}: print_health_info:424:(pid 0): assert_var[0] 0x00000000", "nic-health", PCI),
    (f"mlx5_core {PCI}: wait_func:1145:(pid 9): QUERY_VPORT_COUNTER(0x770) timeout. Will cause a leak of a command resource", "nic-health", PCI),
    (f"mlx5_core {PCI}: Port module event[error]: module 0, Cable error, Bad or shorted cable", "module", PCI),
    (f"mlx5_core {PCI}: mlx5_pcie_event:299:(pid 8): Detected insufficient power on the PCIe slot (27W).", "slot-power", PCI),
    ("NETDEV WATCHDOG: fab0 (mlx5_core): transmit queue 3 timed out", "tx-timeout", "fab0"),
    (f"mlx5_core {PCI} enp92s0f0np0: Link down", "link-down", "enp92s0f0np0"),
    ("bnxt_en 0000:19:00.0 eth0: NIC Link is Down", "link-down", "eth0"),
    ("infiniband rxe0: set down", "link-down", "rxe0"),
    ("bond0: (slave enp1s0): link status definitely down, disabling slave", "link-down", "enp1s0"),
    ("pcieport 0000:00:01.0: AER: Corrected error received: 0000:01:00.0", "aer-corrected", "0000:01:00.0"),
    ("pcieport 0000:00:01.0: AER: Correctable error message received from 0000:01:00.0", "aer-corrected", "0000:01:00.0"),
    ("pcieport 0000:00:01.0: AER: Multiple Uncorrected (Non-Fatal) error received: 0000:01:00.0", "aer-uncorrected", "0000:01:00.0"),
    ("nvme 0000:01:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)", "aer-corrected", "0000:01:00.0"),
    ("nvme 0000:01:00.0: PCIe Bus Error: severity=Uncorrectable (Fatal), type=Inaccessible", "aer-uncorrected", "0000:01:00.0"),
    ("pcieport 0000:00:01.0: DPC: containment event, status:0x1f01 source:0x0000", "aer-uncorrected", "0000:00:01.0"),
    ("pcieport 0000:00:01.0: pciehp: Slot(4): Link Down", "pcie-link", "0000:00:01.0"),
    (f"mlx5_core {PCI}: 63.008 Gb/s available PCIe bandwidth, limited by 8.0 GT/s PCIe x8 link at 0000:5b:01.0 (capable of 126 Gb/s)", "pcie-bandwidth", PCI),
]  # fmt: skip
HARMLESS = [
    "nvme nvme0: pci function 0000:01:00.0",
    "nvme nvme0: 2/0/0 default/read/poll queues",
    "nvme nvme0: Ignoring bogus Namespace Identifiers",
    "nvme nvme3: creating 2 I/O queues.",
    "nvme nvme3: mapped 2/0/0 default/read/poll queues.",
    "nvme nvme3: queue_size 128 > ctrl sqsize 64, clamping down",
    'nvme nvme3: Removing ctrl: NQN "nqn.2014-08.org.nvmexpress.discovery"',
    "nvme nvme3: rescanning namespaces.",
    "nvme 0000:01:00.0: Unable to change power state from D3cold to D0, device inaccessible",
    "nvmet: creating nvm controller 1 for subsystem nqn.a for NQN nqn.b.",
    "nvme_ns_head_submit_bio: 726 callbacks suppressed",
    "EXT4-fs (nvme3n1): mounted filesystem with ordered data mode. Quota mode: none.",
    "XFS (nvme3n1): Unmounting Filesystem",
    "md/raid1:md1: active with 2 out of 2 mirrors",
    "ata4: SATA link down (SStatus 0 SControl 300)",
    "I/O error, dev sr0, sector 0 op 0x0:(READ) flags 0x80700",
    "blk_update_request: I/O error, dev fd0, sector 0",
    "pcieport 0000:00:07.0: AER: enabled with IRQ 24",
    f"mlx5_core {PCI}: firmware version: 20.35.1012",
    f"mlx5_core {PCI}: 252.048 Gb/s available PCIe bandwidth (16.0 GT/s PCIe x16 link)",
    f"mlx5_core {PCI}: Port module event: module 0, Cable plugged",
    "infiniband rxe0: added fab0",
    "IPv6: ADDRCONF(NETDEV_UP): eth0: link is not ready",
    "VFS: file-max limit 1000000 reached",
    "perf: interrupt took too long (2509 > 2500)",
]


def read(text: str, command: str = "dmesg -t") -> KernelLog:
    return kernel_log(said(text, command))


@pytest.mark.parametrize(("line", "kind", "subject"), TROUBLES, ids=range(len(TROUBLES)))
def test_trouble_and_whose(line: str, kind: str, subject: str | None) -> None:
    found = read(line + "\n").troubles
    assert [(each.kind, each.subject, each.over) for each in found] == [(kind, subject, False)]


@pytest.mark.parametrize("line", HARMLESS)
def test_what_is_none(line: str) -> None:
    assert read(line + "\n") == KernelLog((), 1)


@pytest.mark.parametrize(
    "prefix",
    [
        "[   83.028888] ",
        "[Sun Jun 29 19:20:26 2025] ",
        "[Jun29 19:20] ",
        "[  +0.000004] ",
        "[   83.028888] [   T1234] ",
        "2026-11-30T03:45:39,423629+00:00 ",
        "kern  :warn  : 2026-11-30T03:45:39,423629+00:00 ",
        "kern  :err   : [   83.028888] ",
        "<4>[   83.028888] ",
        "4,3964,206764307,-;",
        "4,3964,206764307,-,caller=T1234;",
        "Nov 30 03:45:39 cn01 kernel: ",
        "",
    ],
)
def test_every_form_of_a_line(prefix: str) -> None:
    found = read(f"{prefix}nvme nvme3: starting error recovery\n").troubles
    assert [(each.kind, each.subject) for each in found] == [("recovery", "nvme3")]
    assert found[0].line == f"{prefix}nvme nvme3: starting error recovery".strip()


@pytest.mark.parametrize(
    "prefix", ["user  :warn  : 2026-11-30T03:45:39,423629+00:00 ", "daemon:err   : [ 1.2] ", "<12>[ 1.2] ", "12,1,2,-;"]
)
def test_what_a_program_wrote_into_the_log_is_not_the_kernels(prefix: str) -> None:
    assert read(f"{prefix}nvme nvme3: starting error recovery\n") == KernelLog((), 1)


def test_json_of_dmesg_and_of_journald() -> None:
    line = "nvme nvme3: starting error recovery"
    rows = [
        {"pri": 4, "time": 1.5, "msg": line},
        {"pri": 12, "time": 2.0, "msg": line},
        {"fac": "user", "pri": "warn", "msg": line},
    ]
    found = read(json.dumps({"dmesg": rows}), "dmesg -J")
    assert (found.messages, found.troubles) == (3, (Trouble("recovery", "nvme3", line),))
    journal = [
        {"PRIORITY": "4", "SYSLOG_FACILITY": "0", "MESSAGE": line},
        {"SYSLOG_FACILITY": "1", "MESSAGE": line},
        {"MESSAGE": list(line.encode())},
    ]
    assert len(read("\n".join(map(json.dumps, journal)), "journalctl -k -o json").troubles) == 2
    for text in ('{"other": 1}', '{"dmesg": 1}', '{"dmesg": [1]}', '{"dmesg": [{"msg": null}]}'):
        with pytest.raises(ReaderError):
            read(text)


ISO, PLAIN = "kern  :warn  : 2030-01-01T00:00:00,000000+00:00 booted\n", "[    1.000000] booted\n"


@pytest.mark.parametrize(
    ("command", "text", "is_log"),
    [
        ("dmesg -x --time-format=iso", ISO, True),
        ("dmesg -x --time-format iso", ISO, True),
        ("dmesg --decode --time-format=iso", PLAIN, False),
        ("dmesg -x --time-format=iso", ISO.removeprefix("kern  :warn  : "), False),
        ("dmesg -x", "kern  :warn  : " + PLAIN, True),
        ("dmesg -x", PLAIN, False),
        ("dmesg", PLAIN, True),
        ("/bin/dmesg", PLAIN, True),
        ("dmesg", "booted\n", False),
        ("dmesg -T", "[Sun Jun 29 19:20:26 2025] booted\n", True),
        ("dmesg -xT", "kern  :warn  : [Sun Jun 29 19:20:26 2025] booted\n", True),
        ("dmesg -T", "Usage: dmesg [options]\n", False),
        ("dmesg -r", "<4>" + PLAIN, True),
        ("dmesg -r", PLAIN, False),
        ("dmesg -d", "[    1.000000 <    0.000000>] booted\n", True),
        ("dmesg --time-format=delta", "[<    0.000000>] booted\n", True),
        ("dmesg -H", "[Jun29 19:20] a\n[  +0.000004] b\n", True),
        ("journalctl -k", "-- Journal begins at Mon. --\nNov 30 03:45:39 cn01 kernel: booted\n", True),
        ("journalctl -k -o short-iso", "2030-01-01T00:00:00+00:00 cn01 kernel: booted\n", True),
        ("journalctl -k", "No journal files were found.\n", False),
        ("cat /dev/kmsg", "4,3964,206764307,-;booted\n SUBSYSTEM=pci\n", True),
        ("cat /var/log/kern.log", "cat: no such file\n", False),
        ("dmesg", "  an error that is indented\n", False),
        ("dmesg", 8 * PLAIN + "another\n" * 2, False),
        ("dmesg", 19 * PLAIN + "another\n", True),
    ],
)
def test_what_has_not_the_form_that_was_asked_for_is_no_log(command: str, text: str, is_log: bool) -> None:
    if is_log:
        assert read(text, command).troubles == ()
    else:
        with pytest.raises(ReaderError, match="are no messages of a kernel"):
            read(text, command)


def test_a_log_that_begins_with_the_boot() -> None:
    assert read("[    0.000000] Linux version 6.1.0\n" + PLAIN, "dmesg").from_boot
    assert not read(PLAIN * 30 + "[    9.000000] Linux version 6.1.0\n", "dmesg").from_boot
    assert not read("user  :warn  : [    0.000000] Linux version 6.1.0\n", "dmesg -x").from_boot


def test_records_of_kmsg_are_continued_by_indented_lines() -> None:
    found = read("6,1,2,-;nvme nvme3: starting error recovery\n SUBSYSTEM=nvme\n DEVICE=c244:3\n")
    assert found.messages == 1 and len(found.troubles) == 1


def test_reconnected_is_over_and_down_again_is_not() -> None:
    down = "nvme nvme3: starting error recovery\nnvme nvme3: Reconnecting in 2 seconds...\n"
    up = "nvme nvme3: Successfully reconnected (3 attempts)\n"
    assert [each.over for each in read(down + up).troubles] == [True, True]
    assert [each.over for each in read(down + up + down).troubles] == [True, True, False, False]
    assert [each.over for each in read(down + up.replace("nvme3", "nvme4")).troubles] == [False, False]
    assert not any(each.over for each in read(down + "nvme nvme3: creating 2 I/O queues.\n").troubles)


def test_a_lost_path_is_over_when_every_controller_is_back() -> None:
    lost = "nvme nvme3: starting error recovery\nnvme nvme4: starting error recovery\nblock nvme3n1: no usable path - requeuing I/O\n"
    one, both = (
        "nvme nvme3: Successfully reconnected (1 attempt)\n",
        "nvme nvme4: Successfully reconnected (2 attempts)\n",
    )
    assert [each.over for each in read(lost).troubles] == [False] * 3
    assert [each.over for each in read(lost + one).troubles] == [True, False, False]
    assert [each.over for each in read(lost + one + both).troubles] == [True] * 3
    assert [each.over for each in read("block nvme3n1: no usable path - requeuing I/O\n").troubles] == [False]


def test_a_removed_controller_is_back_under_another_name() -> None:
    new = 'nvme {}: new ctrl: NQN "nqn.a", addr 192.168.50.2:4420{}\n'
    text = new.format("nvme3", "") + "nvme nvme3: Removing controller...\n"
    assert not read(text).troubles[0].over
    assert not read(text + new.format("nvme6", "").replace("50.2", "51.2")).troubles[0].over
    back = read(text + new.format("nvme6", ", hostnqn: nqn.h")).troubles
    assert [(each.subject, each.names, each.over) for each in back] == [("nvme3", ("nqn.a", "192.168.50.2:4420"), True)]


@pytest.mark.parametrize(
    ("down", "up"),
    [
        ("nvme nvme0: controller is down; will reset: CSTS=0x1", "nvme nvme0: 8/0/0 default/read/poll queues"),
        (f"mlx5_core {PCI} fab0: Link down", f"mlx5_core {PCI} fab0: Link up"),
        (
            "bnxt_en 0000:19:00.0 eth0: NIC Link is Down",
            "bnxt_en 0000:19:00.0 eth0: NIC Link is Up, 100000 Mbps full duplex",
        ),
        ("infiniband rxe0: set down", "infiniband rxe0: set active"),
        ("pcieport 0000:00:01.0: pciehp: Slot(4): Link Down", "pcieport 0000:00:01.0: pciehp: Slot(4): Link Up"),
    ],
)
def test_other_things_that_come_back(down: str, up: str) -> None:
    assert [each.over for each in read(f"{down}\n{up}\n").troubles] == [True]
    assert [each.over for each in read(f"{up}\n{down}\n").troubles] == [False]


def test_names_of_a_drive_and_of_a_disk_in_an_array() -> None:
    text = "nvme nvme0: pci function 0000:01:00.0\nnvme nvme0: controller is down; will reset: CSTS=0x1\n"
    assert read(text).troubles[0].names == ("0000:01:00.0",)
    assert read("md/raid0md0: Disk failure on nvme0n1p1 detected, failing array.\n").troubles[0].names == ("nvme0n1p1",)
    assert read(f"mlx5_core {PCI} fab0: Link down\n").troubles[0].names == (PCI,)


def test_a_connection_that_never_was_is_no_loss() -> None:
    refused = "nvme nvme6: failed to connect socket: -111\n"
    assert read(refused).troubles == ()
    assert [each.kind for each in read("nvme nvme6: Reconnecting in 2 seconds...\n" + refused).troubles] == [
        "reconnect",
        "connect",
    ]


@pytest.mark.parametrize(
    ("text", "status", "stderr"),
    [
        ("", 1, "dmesg: read kernel buffer failed: Operation not permitted"),
        ("", 0, ""),
        (" \n\n", 0, ""),
        ("dmesg: read kernel buffer failed: Operation not permitted\n", 0, ""),
        ("[ 1.0] nvme nvme3: starting error recovery\n", 1, ""),
        ("[ 1.0] nvme nvme3: starting error recovery\n", 124, ""),
    ],
)
def test_a_log_that_could_not_be_read_is_not_a_clean_one(text: str, status: int, stderr: str) -> None:
    with pytest.raises(ReaderError):
        kernel_log(said(text, "dmesg", status=status, stderr=stderr))


# Shared samples

DISK_NEGATIVE = {
    "Another log line without any specific event",
    "Buffer I/O error on dev dm-0",
    "EXT4-fs (dm-0): I/O error while reading",
    "EXT4-fs (dm-0): I/O error while reading superblock",
    "EXT4-fs (dm-0): metadata_csum_seed is not necessary",
    "EXT4-fs (sda1): mounted filesystem with ordered data mode",
    "EXT4-fs: Remounting filesystem read-write",
    "General I/O error detected",
    "attempt to access device",
    "block nvme0n1: no available path",
    "device is working normally",
    "md/raid0: Disk failure detected",
    "md: raid1 personality registered for level 1",
    "nvme nvme0: Disabling device",
    "nvme nvme0: I/O timeout",
    "nvme nvme0: pci function 0000:01:00.0",
}
MLX5_NEGATIVE = {
    "High Temperature detected but not in a port module event",
    "Port module event: Temperature normal",
    "mlx5_cmd_out_err:838:(pid 1441871): OTHER_CMD(0x123) failed",
    "mlx5_core: ACCESS_REG successful",
    "mlx5_core: Detected insufficient power on the PCIe slot (27 W).",
    "mlx5_core: Detected insufficient power on the PCIe slot (27.5W).",
    "mlx5_core: Detected insufficient power on the PCIe slot (W).",
    "mlx5_port_module_event: Port module event[error]: module 0, Cable error, Low Signal",
    "some other log message",
    "some random log line with no matching patterns",
}


@pytest.mark.parametrize(("name", "negative"), [("disk-and-nvme-lines", DISK_NEGATIVE), ("mlx5-lines", MLX5_NEGATIVE)])
def test_sample_of_lines_that_are_trouble_and_lines_that_are_not(name: str, negative: set[str]) -> None:
    output = sample(f"dmesg/{name}.gpud-tests.txt", "dmesg -t")
    lines = {line.strip() for line in output.stdout.decode().splitlines() if line.strip()}
    assert negative < lines
    assert {each.line for each in kernel_log(output).troubles} == lines - negative


@pytest.mark.parametrize(
    ("name", "kinds", "over"),
    [
        ("nvme-fabrics.full-cycle.txt", {"recovery": 1, "keep-alive": 1, "reconnect": 5, "connect": 1}, True),
        (
            "nvme-keepalive-expired-no-path.txt",
            {"keep-alive": 1, "target-error": 1, "recovery": 1, "path-lost": 1, "reconnect": 1},
            False,
        ),
        (
            "nvme-rdma.local-protection-error.txt",
            {"rdma-error": 2, "transport": 1, "recovery": 1, "path-lost": 2},
            False,
        ),
        ("nvme-tcp.recover-and-reconnect.txt", {"recovery": 1, "reconnect": 4, "connect": 2}, False),
        ("dmesg-decode-iso.gpud.log", {}, False),
        ("kmsg.gpud.1.log", {}, False),
        ("kmsg.gpud.2.peermem.log", {"peer-memory": 7}, False),
    ],
)
def test_samples_of_logs(name: str, kinds: dict[str, int], over: bool) -> None:
    found = kernel_log(sample(f"dmesg/{name}", "dmesg -t" if "full-cycle" in name else "dmesg"))
    assert Counter(each.kind for each in found.troubles) == kinds and found.messages
    assert {each.over for each in found.troubles} <= {over}


# The lab


@pytest.mark.parametrize(
    ("state", "subjects"),
    [
        ("healthy", set()),
        ("fs-full", set()),
        ("local-critical-warning", set()),
        ("path-down-port", {"nvme3"}),
        ("all-paths-lost", {"nvme4", "nvme6", "nvme3n1"}),
    ],
)
def test_lab(state: str, subjects: set[str]) -> None:
    found = kernel_log(printed(lab(state), "dmesg -x --time-format=iso"))
    assert {each.subject for each in found.troubles} == subjects and found.messages
    assert not any(each.over for each in found.troubles)


@pytest.mark.parametrize("command", ["dmesg", "dmesg -J", "journalctl -k -o json --no-pager -n 200"])
def test_lab_healthy_in_every_form(command: str) -> None:
    found = kernel_log(printed(lab("healthy"), command))
    assert found.troubles == () and found.messages >= 200


# Anything


@settings(max_examples=100, deadline=None)
@given(
    st.one_of(
        hostile_bytes(),
        st.lists(st.sampled_from([line for line, _, _ in TROUBLES] + HARMLESS), max_size=8).map(
            lambda lines: "\n".join(lines).encode()
        ),
        mutated(
            '{"dmesg":[{"pri":4,"time":1.0,"msg":"nvme nvme3: starting error recovery"},{"pri":6,"time":1,"msg":"x"}]}'
        ),
    ),
    st.sampled_from([0, 1, 124, 127, None]),
)
def test_nothing_else_is_raised(stdout: bytes, status: int | None) -> None:
    tried(kernel_log, said(stdout, "dmesg", status=status))


def test_long_lines_are_cut_and_quick() -> None:
    found = read("nvme nvme0: " + "I/O 1 QID " * 100_000 + "\n" + "EXT4-fs (" * 100_000 + "\n")
    assert found.messages == 2 and found.troubles == ()
