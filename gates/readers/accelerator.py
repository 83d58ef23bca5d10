"""What every vendor's tool tells of one accelerator. None: the tool does not tell it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Accelerator:
    """One GPU or NPU (of Ascend: one chip of a card), as one tool's output shows it."""

    vendor: str  # AMD, NVIDIA or Ascend
    index: int | None = None  # the tool's own number of it; of Ascend the NPU id of the card
    chip: int | None = None  # Ascend only: a card with two dies has two entries of one index
    name: str | None = None
    bus_id: str | None = None  # as pci.bus_id writes it
    vendor_id: int | None = None
    device_id: int | None = None  # PCI: 0x74a2 is an MI308X
    uuid: str | None = None
    serial: str | None = None
    memory_bytes: int | None = None  # tools write MiB, whatever unit they print
    firmware: str | None = None  # VBIOS, or the card's firmware
    driver: str | None = None
    ecc: bool | None = None  # of the device's memory
    corrected_errors: int | None = None  # since the driver was loaded
    uncorrected_errors: int | None = None
    lifetime_corrected_errors: int | None = None
    lifetime_uncorrected_errors: int | None = None
    mig: bool | None = None  # NVIDIA only
    partition: int | None = None  # AMD only: the partition's number on its GPU; above 0 it is not a GPU of its own
    power_w: float | None = None
    temperature_c: float | None = None
    health: str | None = None  # the tool's own word: OK, Warning, Alarm, ...; trouble that it printed
