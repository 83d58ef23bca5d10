"""`amd-smi list|static|metric --json` of ROCm 6.0 to 7.x, and `rocm-smi ... --json`, which came before it.

amd-smi prints a list of GPUs, or from 26.2.1 on {"gpu_data": [...]}; what it cannot tell is "N/A" in place of a number,
an object or a whole section. A number is plain, "65520 MB" or {"value": 65520, "unit": "MB"}.
Formats: amdsmi_commands.py, rocm_smi.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from gates.readers.accelerator import Accelerator
from gates.readers.error import ReaderError, decimal, document, identity, integer, objects, shown, text, word
from gates.readers.pci import bus_id
from workloads.bundle import Output

MIB = 1 << 20  # amd-smi writes MB, and means this

# PCI device ids of AMD's accelerators.
NAMES: Mapping[int, str] = {
    0x740F: "MI210",
    0x74A0: "MI300A",
    0x74A1: "MI300X",
    0x74B5: "MI300X (VF)",
    0x74A2: "MI308X",
    0x74B6: "MI308X (VF)",
    0x74A8: "MI308X-HF",
    0x74BC: "MI308X-HF (VF)",
    0x74A5: "MI325X",
    0x75A0: "MI350X",
    0x75A3: "MI355X",
}


def gpus(output: Output) -> tuple[Accelerator, ...]:
    """Return the GPUs that any amd-smi command with --json tells of, with what it tells.

    Raises ReaderError: no list of GPUs, an error in its place, a GPU without a number, one number twice.
    """
    found = document(output)
    if isinstance(found, dict):
        if "error" in found or "code" in found:
            raise ReaderError(f"{output.command}: says {shown(word(found.get('error')) or 'an error')}")
        found = found.get("gpu_data", [found] if "gpu" in found else found)
    read = [_gpu(item, output) for item in objects(found, output) if "gpu" in item or not _of_cpu(item)]
    if not read:
        raise ReaderError(f"{output.command}: tells of no GPU")
    if len({gpu.index for gpu in read}) < len(read):
        raise ReaderError(f"{output.command}: tells of one GPU twice")
    return tuple(read)


def rocm_smi(output: Output) -> tuple[Accelerator, ...]:
    """Return the cards that `rocm-smi --json` tells of. Raises ReaderError: none."""
    found = document(output)
    cards = {
        int(match[1]): value
        for key, value in (found.items() if isinstance(found, dict) else ())
        if (match := re.fullmatch(r"card([0-9]{1,4})", key)) and isinstance(value, dict)
    }
    if not cards:
        raise ReaderError(f"{output.command}: tells of no card, but {shown(text(output))}")
    system = _part(found, "system")
    return tuple(_card(index, card, word(system.get("Driver version"))) for index, card in sorted(cards.items()))


def _of_cpu(item: Mapping[str, Any]) -> bool:
    return "cpu" in item or "core" in item or "cpu_data" in item


def _gpu(item: Mapping[str, Any], output: Output) -> Accelerator:
    index = integer(item.get("gpu"))
    if index is None:
        raise ReaderError(f"{output.command}: a GPU has no number")
    asic, vram, ecc = _part(item, "asic"), _part(item, "vram"), _part(item, "ecc")
    vbios = _part(item, "vbios") or _part(item, "ifwi")
    size, unit = _amount(vram.get("size", vram.get("vram_size", vram.get("vram_size_mb"))))
    watts, _ = _amount(_part(item, "power").get("socket_power"))
    warmth, _ = _amount(_part(item, "temperature").get("hotspot"))
    return Accelerator(
        vendor="AMD",
        index=index,
        name=word(asic.get("market_name")),
        bus_id=bus_id(item.get("bdf")) or bus_id(_part(item, "bus").get("bdf")),
        vendor_id=identity(asic.get("vendor_id")),
        device_id=identity(asic.get("device_id")),
        uuid=_uuid(item.get("uuid")),
        serial=word(asic.get("asic_serial")),
        memory_bytes=int(size * MIB) if size is not None and unit in ("", "MB", "MiB") else None,
        firmware=next((told for key in ("part_number", "version", "name") if (told := word(vbios.get(key)))), None),
        driver=word(_part(item, "driver").get("version")) or word(_part(item, "driver").get("driver_version")),
        ecc=_memory_ecc(_part(item, "ras").get("ecc_block_state")),
        corrected_errors=integer(ecc.get("total_correctable_count", ecc.get("correctable"))),
        uncorrected_errors=integer(ecc.get("total_uncorrectable_count", ecc.get("uncorrectable"))),
        partition=integer(item.get("partition_id")),
        power_w=watts,
        temperature_c=warmth,
    )


def _card(index: int, card: Mapping[str, Any], driver: str | None) -> Accelerator:
    # "GPU ID" was the device's id until it became a number of the kernel's own; "Card model" the subsystem's.
    told = card.get("Device ID", card.get("GPU ID"))
    name = next((word(card.get(key)) for key in ("Device Name", "Card Series", "Card series") if key in card), None)
    return Accelerator(
        vendor="AMD",
        index=index,
        name=name,
        bus_id=bus_id(card.get("PCI Bus")),
        device_id=identity(told) if isinstance(told, str) and told.lower().startswith("0x") else None,
        uuid=word(card.get("Unique ID")),
        serial=word(card.get("Serial Number")),
        memory_bytes=integer(card.get("VRAM Total Memory (B)")),
        firmware=word(card.get("VBIOS version")),
        driver=driver,
        power_w=decimal(
            card.get("Average Graphics Package Power (W)", card.get("Current Socket Graphics Package Power (W)"))
        ),
        temperature_c=decimal(card.get("Temperature (Sensor junction) (C)")),
    )


def _part(item: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = item.get(key)
    return found if isinstance(found, dict) else {}


def _amount(found: object) -> tuple[float | None, str]:
    """Return a number and its unit from 65520, "65520 MB" or {"value": 65520, "unit": "MB"}."""
    if isinstance(found, dict):
        return decimal(found.get("value")), word(found.get("unit")) or ""
    number, _, unit = found.strip().partition(" ") if isinstance(found, str) else (found, "", "")
    return decimal(number), unit.strip()


def _uuid(found: object) -> str | None:
    """Return a UUID; amd-smi puts the text of an error in its place."""
    told = word(found)
    return told if told is not None and re.fullmatch(r"[0-9a-fA-F-]{32,40}", told) else None


def _memory_ecc(found: object) -> bool | None:
    """Return whether the memory's block (UMC) corrects errors; the blocks are an object, or a list in old versions."""
    if isinstance(found, list):
        found = {item.get("block"): item.get("status") for item in found if isinstance(item, dict) and _named(item)}
    state = found.get("UMC") if isinstance(found, dict) else None
    return {"ENABLED": True, "DISABLED": False}.get(state) if isinstance(state, str) else None


def _named(item: Mapping[str, Any]) -> bool:
    return isinstance(item.get("block"), str)
