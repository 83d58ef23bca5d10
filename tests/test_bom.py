"""The bill of materials: strict, and a wrong one told in one line with file, line, key and reason."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from gates.arrival import limits
from scenarios.bom import Bom
from scenarios.load import ConfigError, load_site
from scenarios.model import Site
from tests.arrival_lab import SITE

ROOT = Path(__file__).resolve().parent.parent
LIMITS = (ROOT / "gates/criteria/g1.toml").read_text(encoding="utf-8")


def test_everything_is_optional() -> None:
    assert Bom() == Bom.model_validate({})
    assert load_site("rehearsal").value.bom is not None


def test_it_survives_being_written_to_run_json_and_read_again() -> None:
    bom = Site.model_validate(tomllib.loads(SITE)).bom
    assert bom is not None
    assert Bom.model_validate(bom.model_dump(mode="json", by_alias=True)) == bom


def test_the_rehearsal_declares_the_versions_that_are_installed_with_the_suite() -> None:
    bom = load_site("rehearsal").value.bom
    assert bom is not None and bom.software is not None
    pinned = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    assert {f"{name}=={version}" for name, version in bom.software.packages.items()} <= set(pinned)
    assert bom.software.packages


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('serials = ["L1", "L2"]\n', 'serialz = ["L1"]\n', "bom.drives.local.serialz: unknown key; did you mean 'serials'?"),
        ('serials = ["L1", "L2"]\n', "", "bom.drives.local.serials: name the drives' serial numbers, or how many"),
        ('serials = ["L1", "L2"]', 'serials = ["L1", "L1"]', "bom.drives.local.serials: one of them twice"),
        ("controllers = 1", "controllers = 1\ncount = 3", "bom.drives.local.count: 3, but 2 serial numbers"),
        ("size_bytes = 4_000_000_000", 'size_bytes = "4 GB"', "bom.drives.local.size_bytes: input should be a valid integer"),
        ("free_bytes_min = 100_000_000", "free_bytes_min = 100", "bom.mounts.array.free_bytes_min: input should be greater than"),
        ("speed_gbit_per_s = 100.0", "speed_gbit_per_s = 12.5e9", "bom.ports.fab0.speed_gbit_per_s: input should be less than"),
        ("cores_min = 8", "cores_min = -8", "bom.host.cores_min: input should be greater than"),
        ('serial = "A1"', 'serial = "   "', "bom.subsystems.array.serial: must be text without control characters"),
        ('vendor = "nvidia"', 'vendor = "amd"', "diagnostics: is a tool of NVIDIA's"),
        ("size_bytes = 4_000_000_000", "size_bytes = 0", "bom.drives.local.size_bytes: input should be greater than or equal to 1048576"),
        ('transport = "rdma"', 'transport = "roce"', "bom.subsystems.array.transport: input should be 'rdma'"),
        ("optimized_min = 1", "optimized_min = 1\npaths = 3", "bom.subsystems.array.paths: 3, but 2 are described"),
        ('traddr = "192.0.2.2"', 'traddr = "192.0.2.1"', "bom.subsystems.array.path: one of them twice"),
        ('netdev = "fab0"\ndevice = "rdma0"\n', "", "bom.ports.fab0.netdev: name the interface, or the RDMA device"),
        ('device = "rdma0"\n', "", "bom.ports.fab0.active_mtu_bytes: is told of an RDMA device"),
        ("pfc_priority = 3", "pfc_priority = 8", "bom.ports.fab0.pfc_priority: input should be less than or equal to 7"),
        ('source = "array"', 'source = "arrey"', "bom.mounts.array.source: 'arrey' is none of drives or subsystems"),
        ('target = "/srv/array"', 'target = "srv/array"', "bom.mounts.array.target"),
        ('pci_device = "10de:2329"', 'pci_device = "0x2329"', "bom.accelerators.gpus.pci_device"),
        ('vendor = "nvidia"', 'vendor = "other"', "bom.accelerators.gpus.vendor"),
        ("count = 2", "count = 0", "bom.accelerators.gpus.count"),
        ('address = "0000:01:00.0"', 'address = "0000:01:00.0"\ndevice = "1b36:0010"', "bom.pcie.l1.address: name one device"),
        ("[bom.drives.local]", "[bom.drives.x]\nserials = ['X']\n[bom.drives.array]\nserials = ['Y']\n[bom.drives.local]", "bom.subsystems.array: a group of drives has this name, too"),
    ],
)  # fmt: skip
def test_a_wrong_one_is_one_line_with_its_place(tmp_path: Path, old: str, new: str, told: str) -> None:
    assert old in SITE
    path = tmp_path / "lab.toml"
    path.write_text(SITE.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_site(str(path))
    assert told in str(caught.value)
    assert str(caught.value).startswith(f"{path}:")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('gate = "g1"', 'gate = "g3"', "gate: input should be 'g1'"),
        ('metric = "wear"', 'metric = "ware"', "criterion.metric: input should be"),
        ("limit = 70.0", "limit = nan", "criterion.limit: input should be a finite number"),
        ('metric = "wear"', 'metric = "temperature"', "criterion: needs exactly one limit of 'wear'"),
    ],
)
def test_wrong_limits_are_one_line(tmp_path: Path, old: str, new: str, told: str) -> None:
    assert old in LIMITS
    path = tmp_path / "g1.toml"
    path.write_text(LIMITS.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        limits.load(path)
    assert told in str(caught.value)


def test_a_limit_does_not_hold_for_what_is_no_number() -> None:
    loaded = limits.load(ROOT / "gates/criteria/g1.toml")
    assert loaded.of("wear").holds(5.0)
    assert not loaded.of("wear").holds(5.1)
    assert loaded.of("spare_margin").holds(0.0)
    assert not loaded.of("spare_margin").holds(-1.0)
    assert not any(limit.holds(float("nan")) for limit in loaded.criterion)
