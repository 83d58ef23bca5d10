"""G1's checks that take two looks at a host, before a load and after it: losses, paths that carry, the kernel's log."""

from __future__ import annotations

from pathlib import Path

import pytest

from gates.arrival.check import Finding
from tests.arrival_judging import failed, judged
from tests.arrival_lab import SITE, Lab, files_of
from workloads.bundle import Bundle, of_files

BOOT = "cat /proc/sys/kernel/random/boot_id"
BOOTS = {number: f"{number:08x}-0000-0000-0000-000000000000" for number in (1, 2)}


def loaded(lab: Lab, boot: int = 1, **more: tuple[str, int, str]) -> Bundle:
    outputs = lab.outputs() | {BOOT: (BOOTS[boot] + "\n", 0, "")} | more
    return of_files(files_of(outputs), Path("loaded"))


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
