"""Health logs: smartctl's, and the fields under all their names."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gates.readers import smart
from gates.readers.error import ReaderError
from tests.reader_samples import cuts, hostile_bytes, lab, mutated, printed, said, sample, tried

COMMAND = "smartctl -j -a /dev/nvme0"
LOG: dict[str, Any] = {
    "critical_warning": 0,
    "temperature": 41,
    "available_spare": 100,
    "available_spare_threshold": 10,
    "percentage_used": 3,
    "data_units_read": 1000,
    "data_units_written": 2000,
    "host_reads": 7,
    "host_writes": 8,
    "power_cycles": 9,
    "power_on_hours": 482,
    "unsafe_shutdowns": 2,
    "media_errors": 0,
    "num_err_log_entries": 34,
    "warning_temp_time": 0,
    "critical_comp_time": 0,
    "temperature_sensors": [41, None, 38],
}
DOCUMENT: dict[str, Any] = {
    "smartctl": {"version": [7, 4], "exit_status": 0},
    "device": {"name": "/dev/nvme0", "protocol": "NVMe"},
    "model_name": "Some 1.6TB",
    "serial_number": "S1",
    "firmware_version": "F1",
    "smart_status": {"passed": True, "nvme": {"value": 0}},
    "nvme_smart_health_information_log": LOG,
}


def read(status: int = 0, log: dict[str, Any] | None = None, **changed: Any) -> smart.Health:
    document = DOCUMENT | changed | {"nvme_smart_health_information_log": LOG | (log or {})}
    document["smartctl"] = document["smartctl"] | {"exit_status": status}
    return smart.smartctl(said(json.dumps(document), COMMAND, status=status))


def test_every_field_has_its_unit() -> None:
    found = read()
    assert (found.device, found.model, found.serial, found.firmware) == ("nvme0", "Some 1.6TB", "S1", "F1")
    assert (found.critical_warning, found.passed, found.warnings) == (0, True, ())
    assert (found.temperature_c, found.temperature_sensors_c) == (41, (41, None, 38))
    assert (found.data_read_bytes, found.data_written_bytes) == (512_000_000, 1_024_000_000)
    assert (found.media_errors, found.error_log_entries, found.percentage_used) == (0, 34, 3)
    assert (found.available_spare_percent, found.available_spare_threshold_percent) == (100, 10)
    assert not found.blank


def test_a_failing_drive_is_told_with_its_figures() -> None:
    found = read(8, {"critical_warning": 5}, smart_status={"passed": True})
    assert (found.passed, found.critical_warning) == (False, 5)
    assert found.warnings == ("spare below threshold", "reliability degraded")
    assert read(0, {"critical_warning": 0x40}).warnings == ("another",)


@pytest.mark.parametrize("status", [1, 2, 3, 10, 66])
def test_a_device_that_could_not_be_asked_is_none(status: int) -> None:
    with pytest.raises(ReaderError, match="open failed"):
        read(status, smartctl={"messages": [{"string": "open failed", "severity": "error"}]})


@pytest.mark.parametrize("status", [4, 32, 64, 128])
def test_other_bits_leave_the_figures(status: int) -> None:
    assert read(status).media_errors == 0


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("critical_warning", None),
        ("critical_warning", "none"),
        ("critical_warning", True),
        ("critical_warning", 256),
        ("critical_warning", -1),
        ("critical_warning", {"value": None}),
    ],
)
def test_a_warning_that_is_no_number_is_not_known(field: str, value: object) -> None:
    assert read(0, {field: value}).critical_warning is None


@pytest.mark.parametrize("value", [None, 0.5, "warm", True, 323, -400, 10**40])
def test_a_temperature_that_no_drive_has_is_not_known(value: object) -> None:
    assert read(0, {"temperature": value}).temperature_c is None


def test_a_cold_drive() -> None:
    assert read(0, {"temperature": -5}).temperature_c == -5


def test_counters_of_128_bits() -> None:
    huge = (1 << 128) - 1
    found = read(0, {"media_errors": float(huge), "media_errors_s": str(huge)})
    assert found.media_errors == huge
    assert read(0, {"media_errors": None}).media_errors is None
    assert read(0, {"media_errors": -1}).media_errors is None


def test_what_is_no_smartctl_or_no_nvme_drive() -> None:
    for document in (
        {},
        {"smartctl": 1},
        {"smartctl": {"exit_status": "0", "version": []}},
        DOCUMENT | {"smartctl": {}},
    ):
        with pytest.raises(ReaderError):
            smart.smartctl(said(json.dumps(document), COMMAND, status=None))
    with pytest.raises(ReaderError, match="no NVMe health log"):
        smart.smartctl(said(json.dumps({"smartctl": {"exit_status": 0}}), "smartctl -j -a /dev/sda"))
    with pytest.raises(ReaderError, match="no health log"):
        smart.smartctl(said(json.dumps(DOCUMENT | {"nvme_smart_health_information_log": {"x": 1}}), COMMAND))


@pytest.mark.parametrize(
    ("name", "model", "hours"),
    [
        ("smartctl-nvme.telegraf.json", "Sabrent Rocket 4.0 1TB", None),
        ("smartctl.INTEL_SSDPE2KX080T8_1.json", None, None),
        ("smartctl.SAMSUNG_MZQLB1T9HAJR-00007_19.json", None, None),
        ("smartctl.nvme-null-CT250P2SSD8-nvme0.json", None, 10147),
        ("smartctl.nvme-null-HUSMR7632BHP301-nvme0.json", "HUSMR7632BHP301", 482),
    ],
)
def test_samples_of_real_drives(name: str, model: str | None, hours: int | None) -> None:
    found = smart.smartctl(sample(f"smart/{name}", COMMAND))
    assert found.critical_warning == 0 and found.media_errors is not None and found.temperature_c is not None
    assert 15 <= found.temperature_c <= 80 and found.passed is True and not found.blank
    assert model in (None, found.model) and hours in (None, found.power_on_hours)


@pytest.mark.parametrize("name", ["smartctl-7.5.nodev", "smartctl-7.5.not-nvme"])
def test_samples_of_no_drive(name: str) -> None:
    with pytest.raises(ReaderError, match=r"No such device|Unable to detect"):
        smart.smartctl(sample(f"missing-hw/{name}.stdout", COMMAND))


def test_lab_warning() -> None:
    bundle = lab("local-critical-warning")
    bad = smart.smartctl(printed(bundle, "smartctl -j -a /dev/nvme2"))
    assert (bad.serial, bad.critical_warning, bad.passed) == ("QLABLOCAL2", 4, False)
    good = smart.smartctl(printed(bundle, "smartctl -j -a /dev/nvme0"))
    assert (good.serial, good.critical_warning, good.passed, good.temperature_c) == ("QLABLOCAL1", 0, True, 50)


def test_lab_target_keeps_no_log() -> None:
    found = smart.smartctl(printed(lab("healthy"), "smartctl -j -a /dev/nvme3n1"))
    assert (found.serial, found.temperature_c, found.blank) == ("FX100SN0001", None, True)
    assert not smart.smartctl(printed(lab("healthy"), "smartctl -j -a /dev/nvme0")).blank


@pytest.mark.parametrize(("state", "device"), [("path-down-port", "nvme3"), ("all-paths-lost", "nvme6")])
def test_lab_lost_path_says_why(state: str, device: str) -> None:
    with pytest.raises(ReaderError, match="Resource temporarily unavailable"):
        smart.smartctl(printed(lab(state), f"smartctl -j -a /dev/{device}"))


@settings(max_examples=60, deadline=None)
@given(st.one_of(hostile_bytes(), mutated(json.dumps(DOCUMENT))), st.sampled_from([0, 1, 8, 124, 127, None]))
def test_nothing_else_is_raised(stdout: bytes, status: int | None) -> None:
    tried(smart.smartctl, said(stdout, COMMAND, status=status))


def test_a_cut_document_is_refused() -> None:
    assert cuts(smart.smartctl, COMMAND, json.dumps(DOCUMENT, indent=1).encode(), 7) == []
