"""lspci in all of its forms: which functions there are, and how their links trained."""

from __future__ import annotations

from pathlib import Path

import pytest

from gates.readers.pci import Function, Link, bus_id, functions
from tests.reader_samples import SAMPLES, of_lab, refused, refuses_what_did_not_run, said, sample, survives

NIC = """\
0000:41:00.0 Ethernet controller [0200]: Mellanox Technologies MT2892 Family [ConnectX-6 Dx] [15b3:101d] (rev 01)
\tSubsystem: Mellanox Technologies ConnectX-6 Dx EN adapter card [15b3:0016]
\tNUMA node: 3
\tCapabilities: [60] Express (v2) Endpoint, MSI 00
\t\tLnkCap:\tPort #0, Speed {can}, Width x{lanes}, ASPM not supported
\t\t\tClockPM- Surprise- LLActRep- BwNot- ASPMOptComp+
\t\tLnkSta:\tSpeed {speed}, Width x{width}
\t\t\tTrErr- Train- SlotClk+ DLActive- BWMgmt- ABWMgmt-
\t\tLnkCap2: Supported Link Speeds: 2.5-16GT/s, Crosslink- Retimer+ 2Retimers+ DRS-
\t\tLnkSta2: Current De-emphasis Level: -6dB, EqualizationComplete+
\tKernel driver in use: mlx5_core
\tKernel modules: mlx5_core
"""


def one(text: str) -> Function:
    (function,) = functions(said(text, "lspci", "-vvv"))
    return function


def nic(speed: str = "16GT/s", width: str = "16", can: str = "16GT/s", lanes: str = "16") -> str:
    return NIC.format(speed=speed, width=width, can=can, lanes=lanes)


def test_a_function_is_read_whole() -> None:
    assert one(nic()) == Function(
        bus_id="0000:41:00.0",
        kind="Ethernet controller",
        name="Mellanox Technologies MT2892 Family [ConnectX-6 Dx]",
        class_id=0x0200,
        vendor_id=0x15B3,
        device_id=0x101D,
        can=Link(16.0, 16),
        runs=Link(16.0, 16),
        driver="mlx5_core",
        numa_node=3,
    )


@pytest.mark.parametrize(
    ("speed", "width", "degraded"),
    [
        ("16GT/s", "16", False),
        ("16GT/s (ok)", "16 (ok)", False),
        ("32GT/s (overdriven)", "16 (ok)", False),
        ("8GT/s (downgraded)", "16 (ok)", True),
        ("8GT/s", "16", True),  # before 3.6, and of bridges after 3.10, nothing is said
        ("16GT/s (ok)", "8 (downgraded)", True),
        ("2.5GT/s (downgraded)", "1 (downgraded)", True),
        ("unknown (downgraded)", "0 (downgraded)", None),  # a virtual function has no link of its own
        ("16GT/s", "0", None),
    ],
)
def test_degraded_comes_from_the_numbers(speed: str, width: str, degraded: bool | None) -> None:
    assert one(nic(speed, width)).degraded is degraded


def test_a_number_that_is_cut_off_is_no_width() -> None:
    text = nic("16GT/s", "16")
    cut = text[: text.index("Width x16\n") + len("Width x1")]
    assert one(cut).runs is None and one(cut).degraded is None


def test_without_root_the_link_is_unknown() -> None:
    function = one("41:00.0 Ethernet controller: Mellanox Technologies MT2892\n\tCapabilities: <access denied>\n")
    assert function.denied and function.degraded is None and function.bus_id == "0000:41:00.0"


@pytest.mark.parametrize("header", ["ff", "7f"])
def test_a_device_off_the_bus_is_gone(header: str) -> None:
    head = "41:00.0 Ethernet controller: Mellanox Technologies MT2892 (rev ff) (prog-if ff)\n"
    function = one(f"{head}\t!!! Unknown header type {header}\n\tKernel driver in use: mlx5_core\n")
    assert function.gone and function.degraded is None and function.driver == "mlx5_core"
    assert not one(nic()).gone


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("0A:00.0", "0000:0a:00.0"),
        ("00000000:0A:00.0", "0000:0a:00.0"),
        ("0000:0a:00.0", "0000:0a:00.0"),
        ("10000:e1:00.0", "10000:e1:00.0"),
        ("0a:00", None),
        ("0a:00.9", None),
        (None, None),
        (7, None),
    ],
)
def test_bus_ids_of_all_tools_are_one(text: object, wanted: str | None) -> None:
    assert bus_id(text) == wanted


def test_numbers_in_place_of_names() -> None:
    function = one("41:00.0 0200: 15b3:101d (rev 01)\n\tFlags: bus master\n")
    assert (function.class_id, function.vendor_id, function.device_id) == (0x200, 0x15B3, 0x101D)


@pytest.mark.parametrize(
    ("name", "count", "degraded", "fine"),
    [
        ("pci/lspci-vvv.h100-mlx5.txt", 517, 16, 86),
        ("pci/lspci-vvv.linux-1.txt", 2, 1, 0),
        ("pci/lspci-vvv.linux-2.txt", 31, 0, 22),
    ],
)
def test_real_hosts(name: str, count: int, degraded: int, fine: int) -> None:
    found = functions(sample(name))
    assert len(found) == count
    assert sum(function.degraded is True for function in found) == degraded
    assert sum(function.degraded is False for function in found) == fine


def test_the_words_of_real_hosts_agree_with_the_numbers() -> None:
    """Where pciutils says (downgraded), the numbers say so, too; bridges say it here as well."""
    text = sample("pci/lspci-vvv.h100-mlx5.txt").stdout.decode()
    assert sum("(downgraded)" in line for line in text.splitlines() if "LnkSta:" in line) == 16


@pytest.mark.parametrize(
    ("name", "first", "coded"),
    [
        ("pci/lspci-mmv.ubuntu-20.10.txt", "Host bridge", False),
        ("pci/lspci-nmmv.ubuntu-20.10.txt", None, True),
        ("pci/lspci-nnmmv.ubuntu-20.10.txt", "Host bridge", True),
    ],
)
def test_machine_forms(name: str, first: str | None, coded: bool) -> None:
    found = functions(sample(name))
    assert len(found) == 46 and found[0].kind == first and found[0].bus_id == "0000:00:00.0"
    ids = (found[0].class_id, found[0].vendor_id, found[0].device_id)
    assert ids == ((0x0600, 0x8086, 0x7190) if coded else (None, None, None))


def test_the_lab_in_every_form() -> None:
    forms = ["-vv -mm", "-vv", "-vvv -nn -k", "-mm -nn", "-vmmk -nn"]
    read = [functions(output) for form in forms for _, output in of_lab(f"lspci -D {form}")]
    assert len(read) == len(forms)
    assert len({tuple(function.bus_id for function in found) for found in read}) == 1
    assert {found[-1].name for found in read} == {"Red Hat, Inc. QEMU NVM Express Controller"}
    assert [found[-1].device_id for found in read] == [None, None, 0x10, 0x10, 0x10]
    assert [found[-1].driver for found in read] == [None, "nvme", "nvme", None, "nvme"]
    assert read[1][-1].degraded is False


def test_the_old_machine_form_and_removed_devices() -> None:
    (function,) = functions(said("Device:\t41:00.0\nClass:\tEthernet controller\nDevice:\tMT2892\nRev:\tff\n"))
    assert function.bus_id == "0000:41:00.0" and function.name == "MT2892" and function.gone


def test_what_is_refused() -> None:
    refuses_what_did_not_run(functions)
    assert "twice" in refused(functions, said(nic() + nic()))
    assert "cut off" in refused(functions, said('41:00.0 "Ethernet controller" "Mella\n'))
    for _, output in of_lab("lspci -t"):
        refused(functions, output)


def test_any_bytes() -> None:
    survives(functions, said(nic()), said("Slot:\t41:00.0\nClass:\tEthernet controller\nDevice:\tMT2892\n"))


@pytest.mark.parametrize("path", sorted((SAMPLES / "pci").glob("*")), ids=lambda path: path.name)
def test_damaged_samples(path: Path) -> None:
    survives(functions, sample(f"pci/{path.name}"))
