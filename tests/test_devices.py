"""The counters of the tier's own devices: read from /sys, and held against what the engine was given."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gates import validity
from tests import looking
from tests.synthetic import make_run
from tests.synthetic_host import CHUNK_BYTES
from tests.synthetic_truth import Truth
from workloads import counters
from workloads.evidence import Run

Json = dict[str, Any]
NAMED: Json = {
    "block_devices": {"fx100": ("nvme1n1", "nvme2n1"), "local-nvme": ("nvme0n1",)},
    "rdma_ports": {"fx100": ("mlx5_0/1", "mlx5_1/1")},
}
WAVE_BYTES = 2 * 16 * CHUNK_BYTES  # at concurrency 2


def breaches(folder: Path, arm: str = "candidate", named: Json = NAMED, **truth: Any) -> list[validity.Breach]:
    return looking.breaches(folder, arm, **named, **truth)


@pytest.mark.parametrize("arm", ["recompute", "baseline", "candidate"])
def test_a_sound_trial_has_no_breach(tmp_path: Path, arm: str) -> None:
    assert breaches(tmp_path, arm) == []
    assert all(b.check != "described" for b in validity.check_run(Run(make_run(tmp_path, Truth(blocks=1, **NAMED)))))


def moving(key: str, name: str, by: int) -> Callable[[Json], None]:
    """A change that adds `by` to a counter after wave 1 of the candidate at its first step, and ever after."""
    seen = {"n": 0}

    def change(snapshot: Json) -> None:
        if snapshot["arm"] == "candidate":
            seen["n"] += 1
            if seen["n"] > 3:  # two of wave 0, one before wave 1
                snapshot[key][name] += by

    return change


@pytest.mark.parametrize(
    ("key", "name", "share", "check", "told"),
    [
        ("device_read_bytes", "nvme1n1", -0.06, "device-bytes", "less, so not all of it came from there"),
        ("device_read_bytes", "nvme2n1", 0.11, "device-bytes", "more, so others read there too"),
        ("port_receive_bytes", "mlx5_0/1", -0.09, "port-bytes", "less, so not all of it came from there"),
        ("port_receive_bytes", "mlx5_1/1", 0.13, "port-bytes", "more, so others read there too"),
    ],
)
def test_bytes_that_do_not_fit_are_told(
    tmp_path: Path, key: str, name: str, share: float, check: str, told: str
) -> None:
    found = breaches(tmp_path / "a", snapshot=moving(key, name, int(share * WAVE_BYTES)))
    assert [(b.check, b.whose) for b in found] == [(check, "host")], found
    assert "wave 1: " in found[0].reason
    assert f"{WAVE_BYTES} expected: {told}" in found[0].reason
    within = share * (0.6 if share > 0 else 0.5)
    assert breaches(tmp_path / "b", snapshot=moving(key, name, int(within * WAVE_BYTES))) == []


def test_a_device_that_nothing_was_read_from_is_told(tmp_path: Path) -> None:
    """The page cache, or another mount: the process has read, the device has not."""
    still = lambda s: s.update(device_read_bytes=dict.fromkeys(s["device_read_bytes"], 7))  # noqa: E731
    found = breaches(tmp_path, snapshot=still)
    assert {b.check for b in found} == {"device-bytes"}
    assert f"nvme1n1 and nvme2n1 counted 0 bytes, {WAVE_BYTES} expected" in found[0].reason


ABSENT: dict[str, tuple[Callable[[Json], Any], str]] = {
    "device not read": (lambda s: s["device_read_bytes"].update(nvme1n1=None), "no data on the bytes that nvme1n1 counted"),
    "device lost": (lambda s: s["device_read_bytes"].clear(), "no data on the bytes that nvme1n1 counted"),
    "port not read": (lambda s: s["port_receive_bytes"].update({"mlx5_0/1": None}), "no data on the bytes that mlx5_0/1 counted"),
    "port a truth value": (lambda s: s["port_receive_bytes"].update({"mlx5_0/1": True}), "no data on the bytes that mlx5_0/1 counted"),
    "device wrapped": (lambda s: s["device_read_bytes"].update(nvme1n1=-s["device_read_bytes"]["nvme1n1"]), "it was reset, or it wrapped"),
    "port wrapped": (lambda s: s["port_receive_bytes"].update({"mlx5_1/1": -s["port_receive_bytes"]["mlx5_1/1"]}), "it was reset, or it wrapped"),
}  # fmt: skip


@pytest.mark.parametrize("name", ABSENT)
def test_a_counter_that_is_missing_or_fell_is_told(tmp_path: Path, name: str) -> None:
    change, told = ABSENT[name]
    found = breaches(tmp_path, snapshot=lambda s: change(s) if s["arm"] == "candidate" else None)
    assert found
    assert all(b.whose == "host" and told in b.reason for b in found), found


def test_a_site_that_names_nothing_and_snapshots_of_another_shape(tmp_path: Path) -> None:
    assert breaches(tmp_path / "a", named={}, snapshot=lambda s: s.update(device_read_bytes=None)) == []
    (found,) = breaches(tmp_path / "b", snapshot=lambda s: s.pop("device_read_bytes"))
    assert (found.check, found.whose) == ("readable", "harness")


STAT = "  4021 12 {sectors} 900  77 8 640 33 0 500 933 0 0 0 0 0 0\n"


def test_block_devices_are_counted_in_sectors_of_512_bytes(tmp_path: Path) -> None:
    (tmp_path / "block/nvme0n1").mkdir(parents=True)
    stat = tmp_path / "block/nvme0n1/stat"
    stat.write_text(STAT.format(sectors=65536), encoding="ascii")
    assert counters.device_read_bytes("nvme0n1", tmp_path) == 32 * 2**20
    for content in (b"", b"1 2\n", b"1 2 x 3\n", b"1 2 -3 4\n", b"\xff\xfe\n"):
        stat.write_bytes(content)
        assert counters.device_read_bytes("nvme0n1", tmp_path) is None
    assert counters.device_read_bytes("md0", tmp_path) is None


def test_ports_are_counted_in_words_of_4_bytes(tmp_path: Path) -> None:
    folder = tmp_path / "class/infiniband/mlx5_0/ports/1/counters"
    folder.mkdir(parents=True)
    (folder / "port_rcv_data").write_text("1000\n", encoding="ascii")
    assert counters.port_receive_bytes("mlx5_0/1", tmp_path) == 4000
    assert counters.port_receive_bytes("mlx5_0/2", tmp_path) is None
    for content in (b"", b"N/A (no PMA)\n", b"-1\n"):
        (folder / "port_rcv_data").write_bytes(content)
        assert counters.port_receive_bytes("mlx5_0/1", tmp_path) is None


def test_the_time_to_first_token_is_among_what_is_kept() -> None:
    text = (
        "# TYPE vllm:time_to_first_token_seconds histogram\n"
        'vllm:time_to_first_token_seconds_bucket{le="1"} 2\n'
        "vllm:time_to_first_token_seconds_count 2\n"
        "vllm:time_to_first_token_seconds_sum 1.5\n"
        "vllm:inter_token_latency_seconds_sum 9\n"
    )
    kept = counters.families_of(text, counters.ENGINE_FAMILIES).splitlines()
    assert [line.split(" ")[0] for line in kept[1:]] == [
        "vllm:time_to_first_token_seconds_count",
        "vllm:time_to_first_token_seconds_sum",
    ]
