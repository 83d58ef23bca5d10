"""An NVMe drive's health log: as nvme-cli and smartctl both tell it, and `smartctl -j -a`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gates.readers.error import ReaderError, document, identity, integer, shown, word
from workloads.bundle import Output

DATA_UNIT_BYTES = 512_000  # NVM Express base specification, SMART / Health Information: thousands of 512 bytes
# Bits of `critical_warning`, same source.
WARNINGS = (
    "spare below threshold",
    "temperature beyond threshold",
    "reliability degraded",
    "media read-only",
    "volatile memory backup failed",
    "persistent memory region unreliable",
)
COLDEST_C, HOTTEST_C = -60, 200  # outside, it is no temperature of a drive but another unit, or nothing
# Bits of smartctl's exit status, smartctl(8).
UNUSABLE, FAILING = 0b11, 0b1000


@dataclass(frozen=True)
class Health:
    """What a controller says of itself; None where it, or the tool, does not tell."""

    device: str | None = None  # as nvme0
    model: str | None = None
    serial: str | None = None
    firmware: str | None = None
    passed: bool | None = None  # the tool's own verdict, where it has one
    critical_warning: int | None = None  # bits
    temperature_c: int | None = None
    temperature_sensors_c: tuple[int | None, ...] = ()
    available_spare_percent: int | None = None
    available_spare_threshold_percent: int | None = None
    percentage_used: int | None = None  # of rated endurance; up to 255
    data_read_bytes: int | None = None
    data_written_bytes: int | None = None
    host_reads: int | None = None  # commands
    host_writes: int | None = None
    power_cycles: int | None = None
    power_on_hours: int | None = None
    unsafe_shutdowns: int | None = None
    media_errors: int | None = None
    error_log_entries: int | None = None
    warning_temperature_minutes: int | None = None
    critical_temperature_minutes: int | None = None

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return the critical warnings in words."""
        bits = self.critical_warning or 0
        known = tuple(name for bit, name in enumerate(WARNINGS) if bits >> bit & 1)
        return known if bits < 1 << len(WARNINGS) else (*known, "another")

    @property
    def blank(self) -> bool:
        """Return whether nothing was ever counted: a target that keeps no such log answers with zeros."""
        counted = (
            self.temperature_c,
            self.available_spare_percent,
            self.data_read_bytes,
            self.data_written_bytes,
            self.host_reads,
            self.host_writes,
            self.power_on_hours,
            self.power_cycles,
        )
        return not any(counted) and not self.critical_warning and not self.media_errors


def smartctl(output: Output) -> Health:
    """Return what `smartctl -j -a DEVICE` tells. Raises ReaderError: no NVMe device, or it could not be asked."""
    found = document(output)
    told = found.get("smartctl") if isinstance(found, dict) else None
    if not isinstance(told, dict):
        raise ReaderError(f"{output.command}: printed JSON that is not smartctl's: {shown(str(found))}")
    status = integer(told.get("exit_status"))
    status = output.status if status is None else status
    if status is None or status < 0 or status & UNUSABLE:
        raise ReaderError(f"{output.command}: {_messages(told) or f'ended with status {status}'}")
    log = found.get("nvme_smart_health_information_log")
    if not isinstance(log, dict):
        why = _messages(told) or "is it an NVMe drive?"
        raise ReaderError(f"{output.command}: tells no NVMe health log: {why}")
    device, verdict = found.get("device"), found.get("smart_status")
    passed = verdict.get("passed") if isinstance(verdict, dict) else None
    passed = passed if isinstance(passed, bool) else None
    return health(
        log,
        output,
        device=bare(device.get("name")) if isinstance(device, dict) else None,
        model=word(found.get("model_name")),
        serial=word(found.get("serial_number")),
        firmware=word(found.get("firmware_version")),
        passed=False if status & FAILING else passed,
    )


def health(log: Mapping[str, Any], output: Output, *, kelvin: bool = False, **known: Any) -> Health:
    """Return the health log of a JSON object, under the names that tools and their versions give its fields.

    nvme-cli tells kelvin, smartctl Celsius. Raises ReaderError for an object that holds nothing of such a log.
    """

    def count(*names: str, most: int | None = None) -> int | None:
        for name in names:
            # smartctl adds NAME_s, the exact text, where a counter of 128 bits does not fit into a JSON number.
            value = integer(log.get(f"{name}_s"))
            value = integer(log.get(name)) if value is None else value
            if value is not None:
                return value if most is None or value <= most else None
        return None

    def units(name: str) -> int | None:
        value = count(name)
        return None if value is None else value * DATA_UNIT_BYTES

    found = Health(
        critical_warning=_warning(log.get("critical_warning")),
        temperature_c=_celsius(log.get("temperature"), kelvin),
        temperature_sensors_c=_sensors(log, kelvin),
        available_spare_percent=count("available_spare", "avail_spare", most=100),
        available_spare_threshold_percent=count("available_spare_threshold", "spare_thresh", most=100),
        percentage_used=count("percentage_used", "percent_used", most=255),
        data_read_bytes=units("data_units_read"),
        data_written_bytes=units("data_units_written"),
        host_reads=count("host_reads", "host_read_commands"),
        host_writes=count("host_writes", "host_write_commands"),
        power_cycles=count("power_cycles"),
        power_on_hours=count("power_on_hours"),
        unsafe_shutdowns=count("unsafe_shutdowns"),
        media_errors=count("media_errors"),
        error_log_entries=count("num_err_log_entries"),
        warning_temperature_minutes=count("warning_temp_time"),
        critical_temperature_minutes=count("critical_comp_time"),
        **known,
    )
    if found == Health(**known):
        raise ReaderError(f"{output.command}: printed JSON, but no health log: {shown(str(dict(log)))}")
    return found


def bare(device: object) -> str | None:
    """Return a device's name without the folder it is in: /dev/nvme0n1 is nvme0n1."""
    name = word(device)
    return None if name is None else name.removeprefix("/dev/") or None


def _warning(value: object) -> int | None:
    """Return the bits of a number, or of nvme-cli's object (`-v`; always in 2.11 and 2.12), all that either names."""
    if isinstance(value, dict):
        names = ("available_spare", "temp_threshold", "reliability_degraded", "ro", "vmbu_failed", "pmr_ro")
        whole, bits = integer(value.get("value")), [integer(value.get(name)) for name in names]
        told = [bit for bit in bits if bit is not None]
        if (whole is None and len(told) < len(names)) or any(bit > 1 for bit in told):
            return None
        value = (whole or 0) | sum(1 << at for at, bit in enumerate(bits) if bit)
    found = identity(value)
    return found if found is not None and found < 1 << 8 else None


def _celsius(value: object, kelvin: bool) -> int | None:
    """Return a temperature; None for 0 kelvin, which means that there is no sensor, and for what no drive has."""
    below = isinstance(value, int) and not isinstance(value, bool) and value < 0
    degrees = integer(-value if below else value)  # type: ignore[operator]  # `below` says it is a number
    if degrees is None:
        return None
    degrees = (-degrees if below else degrees) - (273 if kelvin else 0)
    return degrees if COLDEST_C <= degrees <= HOTTEST_C else None


def _sensors(log: Mapping[str, Any], kelvin: bool) -> tuple[int | None, ...]:
    listed = log.get("temperature_sensors")
    if not isinstance(listed, list):
        names = [f"temperature_sensor_{number}" for number in range(1, 9)]
        listed = [log[name] for name in names if name in log]
    return tuple(_celsius(each, kelvin) for each in listed[:8])


def _messages(told: Mapping[str, Any]) -> str:
    listed = told.get("messages")
    said = [word(each.get("string")) for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
    return shown("; ".join(text for text in said if text), 160) if any(said) else ""
