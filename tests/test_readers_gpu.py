"""Accelerators: nvidia-smi, amd-smi, rocm-smi and npu-smi in their versions' forms, and what they cannot tell."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gates.readers import amd, ascend, nvidia
from gates.readers.accelerator import Accelerator
from tests.reader_samples import SAMPLES, Reader, refused, refuses_what_did_not_run, said, sample, survives

MIB = 1 << 20


# NVIDIA


def query(fields: str, text: str, *, extra: str = "", status: int | None = 0) -> Any:
    return said(text, "nvidia-smi", f"--query-gpu={fields}", f"--format=csv{extra}", status=status)


@pytest.mark.parametrize(
    ("name", "model", "device", "memory_mib", "mig", "driver"),
    [
        ("h100-80gb-hbm3_590.48.01", "NVIDIA H100 80GB HBM3", 0x2330, 81559, False, "590.48.01"),
        ("h100-mig_590.48.01", "NVIDIA H100 80GB HBM3", 0x2330, 81559, True, "590.48.01"),
        ("h200_590.48.01", "NVIDIA H200", 0x2335, 143771, False, "590.48.01"),
        ("h200-mig_590.48.01", "NVIDIA H200", 0x2335, 143771, True, "590.48.01"),
        ("l40s_595.80", "NVIDIA L40S", 0x26B9, 46068, None, "595.80"),
    ],
)
def test_nvidia_samples(name: str, model: str, device: int, memory_mib: int, mig: bool | None, driver: str) -> None:
    (gpu,) = nvidia.gpus(sample(f"gpu-nvidia/{name}.query-gpu.csv"))
    assert (gpu.name, gpu.device_id, gpu.vendor_id, gpu.mig) == (model, device, 0x10DE, mig)
    assert (gpu.memory_bytes, gpu.driver, gpu.ecc, gpu.health) == (memory_mib * MIB, driver, True, None)
    assert (gpu.uncorrected_errors, gpu.lifetime_uncorrected_errors) == (0, 0)
    assert gpu.firmware is not None and gpu.bus_id is not None and gpu.power_w is not None
    (listed,) = nvidia.listed(sample(f"gpu-nvidia/{name}.L.txt"))
    assert listed.name == model and bool(listed.mig_profiles) is bool(mig)
    for other in ("query-compute-apps", "query-retired-pages"):
        assert nvidia.rows(sample(f"gpu-nvidia/{name}.{other}.csv"))[0]["gpu_name"] == model


def test_nvidia_hosts_of_other_captures() -> None:
    eight = nvidia.gpus(sample("gpu-nvidia/nvidia-smi.query-gpu-8xH100.csv"))
    assert [gpu.index for gpu in eight] == list(range(8)) and {gpu.memory_bytes for gpu in eight} == {81559 * MIB}
    (one,) = nvidia.gpus(sample("gpu-nvidia/nvidia-smi.query-gpu-1xH100.csv"))
    assert (one.corrected_errors, one.lifetime_corrected_errors) == (7, 11)
    assert (one.uncorrected_errors, one.lifetime_uncorrected_errors) == (14, 20)
    (old,) = nvidia.gpus(sample("gpu-nvidia/nvidia-smi.query-gpu-1xT4-NA.csv"))
    assert (old.bus_id, old.power_w, old.temperature_c) == ("0001:01:00.0", None, 26.0)
    first, second = nvidia.gpus(sample("gpu-nvidia/query-gpu.exporter-testdata.csv"))
    assert (first.serial, first.ecc, first.memory_bytes, second.index) == (None, None, None, 1)
    profiles = nvidia.listed(sample("gpu-nvidia/h200-mig_590.48.01.L.txt"))[0].mig_profiles
    assert profiles == ("1c.3g.71gb", "2c.3g.71gb", "2g.35gb", "1g.18gb", "1g.18gb")


@pytest.mark.parametrize(
    ("extra", "text"),
    [
        ("", "index, name, memory.total [MiB]\n0, NVIDIA H200, 143771 MiB\n"),
        (",nounits", "index, name, memory.total [MiB]\n0, NVIDIA H200, 143771\n"),
        (",noheader", "0, NVIDIA H200, 143771 MiB\n"),
        (",noheader,nounits", "0, NVIDIA H200, 143771\n"),
    ],
)
def test_nvidia_with_and_without_header_and_units(extra: str, text: str) -> None:
    (gpu,) = nvidia.gpus(query("index,gpu_name,memory.total", text, extra=extra))
    assert gpu == Accelerator("NVIDIA", index=0, name="NVIDIA H200", memory_bytes=143771 * MIB)


@pytest.mark.parametrize("cell", ["[N/A]", "N/A", "[Not Supported]", "[Insufficient Permissions]", "", "ERR!"])
def test_nvidia_words_for_unknown(cell: str) -> None:
    text = f"index, ecc.mode.current, ecc.errors.uncorrected.volatile.total\n0, {cell}, {cell}\n"
    (gpu,) = nvidia.gpus(query("x", text))
    assert (gpu.ecc, gpu.uncorrected_errors, gpu.health) == (None, None, None)


@pytest.mark.parametrize(
    ("text", "health"),
    [
        ("index, pci.bus_id, pstate\n0, 00000000:18:00.0, [GPU is lost]\n", "GPU is lost"),
        ("index, pci.bus_id, pstate\n0, 00000000:18:00.0, [Unknown Error]\n", "Unknown Error"),
        ("index, pci.bus_id, pstate\n0, 00000000:18:00.0, [GPU requires reset]\n", "GPU requires reset"),
        (
            "index, pci.bus_id, pstate\n0, 00000000:18:00.0, P0\nWARNING: infoROM is corrupted at gpu 0000:18:00.0\n",
            "infoROM is corrupted at gpu 0000:18:00.0",
        ),
        (
            "index, pci.bus_id, pstate\n0, 00000000:18:00.0, P0\nWARNING: infoROM is corrupted at gpu 0000:19:00.0\n",
            None,
        ),
    ],
)
def test_nvidia_says_trouble_within_the_table(text: str, health: str | None) -> None:
    (gpu,) = nvidia.gpus(query("x", text, status=14))
    assert gpu.health == health


@pytest.mark.parametrize(
    "text",
    [
        "No devices were found\n",
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n",
        "Failed to initialize NVML: Driver/library version mismatch\n",
        'Field "nosuch" is not a valid field to query.\n',
        "index, name\n",
        "index, name\n0, NVIDIA H200\nUnable to determine the device handle for GPU0000:3B:00.0: GPU is lost.\n",
        "index, name\n0, NVIDIA H200\n0, NVIDIA H200\n",
        "index, name, count\n0, NVIDIA H200, 8\n1, NVIDIA H200, 8\n",
        'index, name\n0, "NVIDIA H200\n',
        "index, index\n0, 0\n",
    ],
)
def test_nvidia_refuses(text: str) -> None:
    refused(nvidia.gpus, query("index,name,count", text, status=None))
    refused(nvidia.listed, said(text))


def test_nvidia_absent_and_cut_off() -> None:
    assert "no such tool" in refused(nvidia.gpus, sample("missing-hw/nvidia-smi.absent.stdout"))
    text = "index, ecc.errors.uncorrected.volatile.total\n0, 0\n1, 12"
    assert len(nvidia.gpus(query("x", text, status=None))) == 1 and len(nvidia.gpus(query("x", text))) == 2
    assert "8" in refused(nvidia.gpus, query("index,count", "0, 8\n", extra=",noheader"))
    only = said("0, 8\n", "nvidia-smi", "--query-gpu=index,count", "--format=csv,noheader", "-i", "0")
    assert len(nvidia.gpus(only)) == 1
    refused(nvidia.listed, said("GPU 0: NVIDIA H200 (UUID: GPU-0)\nGPU 0: NVIDIA H200 (UUID: GPU-0)\n"))


# AMD

STATIC: dict[str, Any] = {
    "gpu": 0,
    "asic": {"market_name": "AMD Instinct MI308X", "vendor_id": "0x1002", "device_id": "0x74a2"},
    "bus": {"bdf": "0000:05:00.0"},
    "vbios": {"name": "AMD MI308X_HW", "part_number": "113-M3080102-01", "version": "022.040.003.041"},
    "driver": {"name": "amdgpu", "version": "6.10.5"},
    "ras": {"ecc_block_state": {"UMC": "ENABLED", "SDMA": "DISABLED"}},
    "vram": {"type": "HBM3", "size": {"value": 196592, "unit": "MB"}},
}
METRIC = {"gpu": 0, "ecc": {"total_correctable_count": 3, "total_uncorrectable_count": 0}}


@pytest.mark.parametrize("wrap", [lambda gpu: [gpu], lambda gpu: {"gpu_data": [gpu]}, lambda gpu: gpu])
def test_amd_in_every_wrapping(wrap: Any) -> None:
    noise = "WARNING: User is missing the following required groups: render\n"
    (gpu,) = amd.gpus(said(noise + json.dumps(wrap(STATIC), indent=4)))
    assert (gpu.device_id, amd.NAMES[gpu.device_id or 0], gpu.vendor_id) == (0x74A2, "MI308X", 0x1002)
    assert (gpu.bus_id, gpu.memory_bytes, gpu.ecc) == ("0000:05:00.0", 196592 * MIB, True)
    assert (gpu.firmware, gpu.driver) == ("113-M3080102-01", "6.10.5")


@pytest.mark.parametrize(
    ("size", "memory_bytes"),
    [
        ({"value": 196592, "unit": "MB"}, 196592 * MIB),
        ("196592 MB", 196592 * MIB),
        (196592, 196592 * MIB),
        ({"value": "N/A", "unit": "MB"}, None),
        ({"value": 192, "unit": "GB"}, None),  # no version writes that; nobody knows which GB
        ("N/A", None),
        (None, None),
    ],
)
def test_amd_writes_amounts_in_three_ways(size: object, memory_bytes: int | None) -> None:
    (gpu,) = amd.gpus(said(json.dumps([{**STATIC, "vram": {"size": size}}])))
    assert gpu.memory_bytes == memory_bytes


def test_amd_sections_that_it_cannot_tell() -> None:
    nothing = dict.fromkeys(STATIC, "N/A")
    (gpu,) = amd.gpus(said(json.dumps([{**nothing, "gpu": 3}])))
    assert gpu == Accelerator("AMD", index=3)
    blocks = [{"block": "UMC", "status": "DISABLED"}, "N/A"]
    assert amd.gpus(said(json.dumps([{"gpu": 0, "ras": {"ecc_block_state": blocks}}])))[0].ecc is False
    moved = {"gpu": 0, "ifwi": {"version": "00158746"}}
    assert amd.gpus(said(json.dumps([moved])))[0].firmware == "00158746"


def test_amd_list_and_metric() -> None:
    listed = {"gpu": 1, "bdf": "0000:15:00.0", "uuid": "e2ff74a2-0000-1000-80a2-3b6ad4e2ff74", "partition_id": 2}
    (gpu,) = amd.gpus(said(json.dumps([listed])))
    assert (gpu.bus_id, gpu.uuid, gpu.partition) == ("0000:15:00.0", listed["uuid"], 2)
    broken = {
        "gpu": 1,
        "bdf": "AMDSMI_STATUS_NOT_SUPPORTED - Feature not supported",
        "uuid": "AMDSMI_STATUS_API_FAILED",
    }
    assert amd.gpus(said(json.dumps([broken])))[0] == Accelerator("AMD", index=1)
    (gpu,) = amd.gpus(said(json.dumps({"gpu_data": [METRIC]})))
    assert (gpu.corrected_errors, gpu.uncorrected_errors) == (3, 0)
    (gpu,) = amd.gpus(said(json.dumps([{"gpu": 0, "ecc": {"total_uncorrectable_count": "N/A"}}])))
    assert (gpu.corrected_errors, gpu.uncorrected_errors) == (None, None)


def test_amd_samples() -> None:
    (gpu,) = amd.gpus(sample("gpu-amd/amd-smi.static-or-list.dme0.json"))
    assert (gpu.name, gpu.device_id, gpu.ecc) == ("AMD Instinct MI210", 0x740F, True)
    assert (gpu.memory_bytes, gpu.bus_id, gpu.firmware) == (65520 * MIB, None, "Mi200 pcie")
    refused(amd.gpus, sample("gpu-amd/amd-smi.metric.vc.csv"))
    ids = dict(line.split(" ", 1) for line in sample("gpu-amd/mi3xx-device-ids.txt").stdout.decode().splitlines())
    assert {int(key, 16): name for key, name in ids.items()} == amd.NAMES


@pytest.mark.parametrize(
    ("name", "count", "device", "driver", "bus_id"),
    [
        ("mi100_rocm571", 6, 0x738C, "6.2.4", "0000:1e:00.0"),
        ("mi100_rocm602", 4, 0x738C, "6.3.6", "0000:83:00.0"),
        ("rx6700xt_rocm612", 1, 0x73DF, "6.3.6", "0000:07:00.0"),
        ("vega-20-WKS-GL-XE", 1, 0x66A1, "5.9.17", "0000:63:00.0"),
    ],
)
def test_rocm_smi_samples(name: str, count: int, device: int, driver: str, bus_id: str) -> None:
    cards = amd.rocm_smi(sample(f"gpu-amd/rocm-smi.{name}.json"))
    assert [card.index for card in cards] == list(range(count))
    assert (cards[0].device_id, cards[0].driver, cards[0].bus_id) == (device, driver, bus_id)
    assert all(card.memory_bytes and card.firmware for card in cards)


def test_rocm_smi_ids_that_are_none() -> None:
    (card,) = amd.rocm_smi(said('{"card0": {"GPU ID": "55069", "GUID": "55069"}}'))
    assert card.device_id is None  # a number of the kernel's own
    refused(amd.rocm_smi, said('{"system": {"Driver version": "6.3.6"}}'))


@pytest.mark.parametrize(
    "document",
    [
        [],
        {},
        {"gpu_data": []},
        {"gpu_data": "N/A"},
        {"error": "No AMD GPU device is found", "code": -3},
        [{"asic": {}}],
        [{"gpu": "N/A"}],
        [{"gpu": 0}, {"gpu": 0}],
        [{"cpu": 0}],
        "amdgpu not found in modules",
    ],
)
def test_amd_refuses(document: object) -> None:
    refused(amd.gpus, said(document if isinstance(document, str) else json.dumps(document)))


# Ascend

RULE = "+---------------------------+---------------+----------------------------------------------------+\n"
HEAD = f"""\
{RULE}| npu-smi 24.1.rc2                 Version: 24.1.rc2                                              |
{RULE}| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
| Chip  {{0:<20}}| Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |
+===========================+===============+====================================================+
"""
TAIL = f"""\
{RULE}| NPU     Chip              | Process id    | Process name             | Process memory(MB)      |
+===========================+===============+====================================================+
| 0       0                 | 824166        | VLLMWorker_TP            | 59316                   |
| No running processes found in NPU 1                                                              |
"""
A2 = f"""\
| {{0}}     910B3               | {{1:<13}} | {{2:<11}} 34                0    / 0             |
| 0                         | 0000:C{{0}}:00.0  | 0           0    / 0          3385 / 65536         |
{RULE}"""
A3 = f"""\
| {{0}}     Ascend910           | OK            | 178.7       37                0    / 0             |
| 0     {{1}}                   | 0000:9{{1}}:00.0  | 0           0    / 0          3419 / 65536         |
{RULE}| {{0}}     Ascend910           | {{2:<13}} | -           36                0    / 0             |
| 1     {{3}}                   | 0000:9{{3}}:00.0  | 12          0    / 0          62449/ 65536         |
"""


def cards(*rows: str, phy: str = "") -> Any:
    return said(HEAD.format(phy) + "".join(rows) + TAIL, "npu-smi", "info")


def test_ascend_one_chip_a_card() -> None:
    first, second = ascend.chips(cards(A2.format(0, "OK", "93.6"), A2.format(1, "Alarm", "-")))
    assert (first.index, first.chip, first.name, first.health) == (0, 0, "910B3", "OK")
    assert (first.memory_bytes, first.bus_id, first.driver) == (65536 * MIB, "0000:c0:00.0", "24.1.rc2")
    assert (first.power_w, first.temperature_c) == (93.6, 34.0)
    assert (second.index, second.health, second.power_w) == (1, "Alarm", None)


def test_ascend_two_chips_a_card() -> None:
    found = ascend.chips(cards(A3.format(0, 0, "Warning", 1), A3.format(1, 2, "OK", 3), phy="Phy-ID"))
    assert [(chip.index, chip.chip, chip.health) for chip in found] == [
        (0, 0, "OK"),
        (0, 1, "Warning"),
        (1, 0, "OK"),
        (1, 1, "OK"),
    ]
    assert [chip.power_w for chip in found] == [178.7, None, 178.7, None]
    assert {chip.memory_bytes for chip in found} == {65536 * MIB}


def test_ascend_310p_and_950() -> None:
    text = """\
| NPU     Name                  | Health          | Power(W)     Temp(C)           Hugepages-Usage(page) |
| Chip    Device                | Bus-Id          | AICore(%)    Memory-Usage(MB)                        |
+===============================+=================+======================================================+
| 6       310P3                 | OK              | NA           50                0     / 0             |
| 0       0                     | 0000:84:00.0    | 0            1839 / 21525                            |
"""
    (chip,) = ascend.chips(said(text))
    assert (chip.index, chip.name, chip.power_w, chip.memory_bytes) == (6, "310P3", None, 21525 * MIB)
    text = """\
| NPU ID | Name             | Health        | Power(W)    Temp(C)           Hugepages-Usage(page) |
|        |                  | Bus-Id        | NPU Util(%) Memory-Usage(MB)  HBM-Usage(MB)         |
+========+==================+===============+=====================================================+
| 0      | Ascend950PR      | OK            | 195.7       56                0     / 0             |
|        |                  | NA            | 0           0    / 0          5239  / 131072        |
+========+==================+===============+=====================================================+
| No running processes found in NPU 0                                                             |
"""
    (chip,) = ascend.chips(said(text))
    assert (chip.index, chip.chip, chip.name, chip.bus_id) == (0, None, "Ascend950PR", None)
    assert (chip.memory_bytes, chip.health) == (131072 * MIB, "OK")


@pytest.mark.parametrize(
    "text",
    [
        HEAD.format("") + TAIL,
        HEAD.format("") + A2.format(0, "OK", "1").split("\n")[0] + "\n" + TAIL,
        HEAD.format("") + A2.format(0, "Fine", "1") + TAIL,
        HEAD.format("") + A2.format(0, "OK", "1") * 2 + TAIL,
        HEAD.format("") + "| 0  910B3 | OK |\n| 0 | x |\n" + TAIL,
        "DrvMngGetConsoleLogLevel failed. (g_conLogLevel=3)\ndcmi model initialized failed. ret is -8005\n",
    ],
)
def test_ascend_refuses(text: str) -> None:
    refused(ascend.chips, said(text))


BOARD = """\
\tNPU ID                         : 2
\tProduct Name                   : IT21HMDC_Bin5
\tModel                          : NA
\tSerial Number                  : 1025C9048791
\tSoftware Version               : 25.5.2
\tFirmware Version               : 7.8.0.7.220
\tPCIe Bus Info                  : 0000:C1:00.0
\tPCI Vendor ID                  : 0x19E5
\tPCI Device ID                  : 0xD802
\tChip Count                     : 1
"""


def test_ascend_details_of_a_card() -> None:
    card = ascend.card(said(BOARD, "npu-smi", "info", "-t", "board", "-i", "2"))
    assert (card.index, card.device_id, card.vendor_id) == (2, 0xD802, 0x19E5)
    assert (card.driver, card.firmware, card.bus_id) == ("25.5.2", "7.8.0.7.220", "0000:c1:00.0")
    health = "\tHealth Status                  : Warning\n\tError Code                     : 80E01801\n"
    card = ascend.card(said(health, "npu-smi", "info", "-t", "health", "-i", "5", "-c", "1"))
    assert (card.index, card.chip, card.health) == (5, 1, "Warning")
    ecc = "\tNPU ID : 0\n\tHBM Double Bit Error Count : 2\n\tHBM Double Bit Aggregate Total Err Cnt : 7\n"
    card = ascend.card(said(ecc, "npu-smi", "info", "-t", "ecc", "-i", "0"))
    assert (card.uncorrected_errors, card.lifetime_uncorrected_errors, card.corrected_errors) == (2, 7, None)
    memory = "NPU ID : 0\nDDR Capacity(MB) : 0\nHBM Capacity(MB) : 65536\n"
    assert ascend.card(said(memory)).memory_bytes == 65536 * MIB
    assert "-c" in refused(ascend.card, said("NPU ID : 0\nHealth : OK\nChip ID : 0\nHealth : Alarm\nChip ID : 1\n"))
    refused(ascend.card, said("This device does not support querying ecc.\n"))


ALL = [
    (nvidia.gpus, "index, name, ecc.mode.current\n0, NVIDIA H200, Enabled\n"),
    (nvidia.rows, "index, name\n0, NVIDIA H200\n"),
    (nvidia.listed, "GPU 0: NVIDIA H200 (UUID: GPU-0)\n  MIG 1g.18gb     Device  0: (UUID: MIG-0)\n"),
    (amd.gpus, json.dumps([STATIC, {**METRIC, "gpu": 1}])),
    (amd.gpus, json.dumps({"gpu_data": [STATIC]})),
    (amd.rocm_smi, '{"card0": {"Device ID": "0x738c", "PCI Bus": "0000:83:00.0"}, "system": {"Driver version": "1"}}'),
    (ascend.chips, HEAD.format("Phy-ID") + A3.format(0, 0, "OK", 1) + TAIL),
    (ascend.card, BOARD),
]


@pytest.mark.parametrize(("reader", "text"), ALL)
def test_any_bytes(reader: Reader, text: str) -> None:
    refuses_what_did_not_run(reader)
    survives(reader, said(text))


@pytest.mark.parametrize("path", sorted((SAMPLES / "gpu-amd").glob("*.json")), ids=lambda path: path.name)
def test_damaged_samples(path: Any) -> None:
    output = sample(f"gpu-amd/{path.name}")
    survives(amd.rocm_smi if "rocm" in path.name else amd.gpus, output)
