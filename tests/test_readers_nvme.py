"""nvme-cli's forms by version, what it prints when it fails, and the lab's states."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gates.readers import nvme
from gates.readers.error import ReaderError
from tests.reader_samples import SAMPLES, cuts, hostile_bytes, lab, mutated, printed, said, sample, tried

LIST, SUBSYS, SMART = "nvme list -o json", "nvme list-subsys -o json", "nvme smart-log /dev/nvme0 -o json"
FLAT: dict[str, Any] = {
    "NameSpace": 1,
    "DevicePath": "/dev/nvme0n1",
    "Firmware": "F1  ",
    "ModelNumber": "Some 1.6TB      ",
    "SerialNumber": "S1          ",
    "UsedBytes": 1000,
    "MaximumLBA": 3125627568,
    "PhysicalSize": 1600321314816,
    "SectorSize": 512,
}
SPACE = {"NameSpace": "nvme2n1", "NSID": 1, "UsedBytes": 5, "MaximumLBA": 8, "PhysicalSize": 4096, "SectorSize": 512}


def controller(name: str, **changed: Any) -> dict[str, Any]:
    return {
        "Controller": name,
        "SerialNumber": "FX1",
        "ModelNumber": "FX100",
        "Firmware": "1.0",
        "Transport": "rdma",
        "Address": f"traddr=192.168.{name[-1]}.1,trsvcid=4420",
    } | changed


NESTED: dict[str, Any] = {
    "Subsystem": "nvme-subsys2",
    "SubsystemNQN": "nqn.2024-01.example:fx",
    "Controllers": [controller("nvme3", Namespaces=[], Paths=[]), controller("nvme4", Namespaces=[], Paths=[])],
    "Namespaces": [SPACE],
}
HOSTS = {"Devices": [{"HostNQN": "nqn.h", "Subsystems": [NESTED]}]}
PATHS: list[dict[str, Any]] = [
    {"Name": "nvme3", "Transport": "rdma", "Address": "traddr=10.0.0.1,trsvcid=4420", "State": "live"},
    {"Name": "nvme4", "Transport": "rdma", "Address": "traddr=10.0.1.1,trsvcid=4420", "State": "connecting"},
]
SUBSYSTEM = {"Name": "nvme-subsys2", "NQN": "nqn.2024-01.example:fx", "Paths": PATHS}
SUBSYSTEMS = [{"HostNQN": "nqn.h", "HostID": "1", "Subsystems": [SUBSYSTEM]}]
LOG: dict[str, Any] = {
    "critical_warning": 0,
    "temperature": 310,
    "avail_spare": 100,
    "spare_thresh": 10,
    "percent_used": 1,
    "data_units_read": "42",
    "host_read_commands": 346.0,
    "media_errors": "0",
    "num_err_log_entries": 0,
    "temperature_sensor_1": 311,
}


def listing(document: object, status: int | None = 0) -> nvme.Listing:
    return nvme.drives(said(json.dumps(document), LIST, status=status))


def subsystems(document: object) -> tuple[nvme.Subsystem, ...]:
    return nvme.subsystems(said(json.dumps(document), SUBSYS))


def health(**changed: Any) -> Any:
    return nvme.smart_log(said(json.dumps(LOG | changed), SMART))


def test_flat() -> None:
    found = listing({"Devices": [FLAT]})
    assert found.controllers is None  # not told, which is not none
    assert found.drives == (nvme.Drive("nvme0n1", 1, "Some 1.6TB", "S1", "F1", 1600321314816, 1000, 512),)
    assert listing({"Devices": [FLAT | {"DevicePath": "nvme0n1"}]}).drives[0].device == "nvme0n1"


def test_nested_below_the_subsystem_the_controller_or_with_paths() -> None:
    nqn, ways = "nqn.2024-01.example:fx", ("nvme3", "nvme4")
    wanted = nvme.Drive("nvme2n1", 1, "FX100", "FX1", "1.0", 4096, 5, 512, nqn, ways, "rdma")
    assert listing(HOSTS).drives == (wanted,)
    assert [each.name for each in listing(HOSTS).controllers or ()] == ["nvme3", "nvme4"]
    assert listing({"Devices": [NESTED]}).drives == (wanted,)  # 1.x: no hosts
    by_path = {
        "Subsystem": "s",
        "SubsystemNQN": nqn,
        "Namespaces": [SPACE | {"Paths": [controller("nvme3"), controller("nvme4")]}],
    }
    assert listing({"Devices": [{"Subsystems": [by_path]}]}).drives == (wanted,)  # --output-format-version=2
    own = NESTED | {"Controllers": [controller("nvme3", Namespaces=[SPACE], Paths=[])], "Namespaces": []}
    assert listing({"Devices": [{"Subsystems": [own]}]}).drives[0].controllers == ("nvme3",)


def test_a_controller_whose_namespaces_cannot_be_reached_is_told() -> None:
    found = listing({"Devices": [{"Subsystems": [NESTED | {"Namespaces": []}]}]})
    assert found.drives == () and [each.name for each in found.controllers or ()] == ["nvme3", "nvme4"]


def test_a_row_without_identity_is_refused_by_name() -> None:
    blank = FLAT | {"ModelNumber": " " * 40, "SerialNumber": " " * 20, "PhysicalSize": 0, "SectorSize": 1}
    with pytest.raises(ReaderError, match="nvme0n1 tells neither model nor serial"):
        listing({"Devices": [blank]})
    half = listing(
        {"Devices": [FLAT | {"SerialNumber": "", "PhysicalSize": 0, "SectorSize": 1, "UsedBytes": None}]}
    ).drives[0]
    assert (half.serial, half.size_bytes, half.sector_bytes, half.used_bytes) == (None, None, None, None)


def test_no_drive_at_all() -> None:
    assert listing({"Devices": []}).drives == ()
    assert listing({}).drives == ()  # 1.x


@pytest.mark.parametrize(
    "document",
    [
        {"error": "Failed to scan topology"},
        {"Error: x": [{"error": "Unknown"}]},
        {"Devices": "none"},
        {"Devices": None},
        {"Devices": [1]},
        {"Devices": [{"Subsystems": {}}]},
        {"Devices": [{"Subsystems": [{"Subsystem": "s"}]}]},
        {"Devices": [FLAT | {"DevicePath": None}]},
        {"Devices": [FLAT, FLAT | {"SerialNumber": "other"}]},
        {"Devices": [{"Subsystems": [NESTED | {"Controllers": [{"Transport": "rdma"}]}]}]},
        {"Other": []},
        [],
    ],
)
def test_what_is_no_list(document: object) -> None:
    with pytest.raises(ReaderError):
        listing(document)


def test_a_failed_command_is_refused_with_its_reason() -> None:
    with pytest.raises(ReaderError, match="Failed to scan"):
        nvme.drives(said('{"error":"Failed to scan"}', LIST))  # status 0, too
    with pytest.raises(ReaderError, match=r"status 70: '/dev/nvme9: No such file"):
        nvme.smart_log(said("\x1b[1mUsage: nvme", SMART, status=70, stderr="/dev/nvme9: No such file or directory\n"))
    with pytest.raises(ReaderError, match="status 1"):
        listing({"Devices": [FLAT]}, 1)
    assert listing({"Devices": [FLAT]}, None).drives


def test_paths_of_1_x_and_2_x() -> None:
    first, second = subsystems(SUBSYSTEMS)[0].paths
    assert first == nvme.Path("nvme3", "rdma", "10.0.0.1", "4420", state="live")
    assert (second.state, second.ana_state) == ("connecting", None)
    spaces = [PATHS[0] | {"Address": "traddr=10.0.0.1 trsvcid=4420 host_traddr=10.0.0.9", "ANAState": "inaccessible"}]
    old = subsystems({"Subsystems": [{"Name": "s", "NQN": "nqn.x   ", "Paths": spaces}]})[0]
    assert (old.nqn, old.paths[0].host_traddr, old.paths[0].ana_state) == ("nqn.x", "10.0.0.9", "inaccessible")


def test_paths_of_an_own_object_and_by_their_device() -> None:
    split = [{"Name": "s", "NQN": "nqn.x"}, {"Paths": [PATHS[0] | {"Name": "nvme2c11n1"}]}]
    found = subsystems({"Subsystems": split})
    assert len(found) == 1 and found[0].paths[0].controller == "nvme11"


def test_io_policy_and_pci_and_ipv6() -> None:
    path = PATHS[0] | {"Transport": "pcie", "Address": "0000:01:00.0"}
    found = subsystems([{"Subsystems": [SUBSYSTEM | {"IOPolicy": "round-robin", "Paths": [path]}]}])[0]
    assert (found.io_policy, found.paths[0].traddr, found.paths[0].trsvcid) == ("round-robin", "0000:01:00.0", None)
    v6 = nvme.address_of("traddr=fe80::1%eth0,trsvcid=4420,host_iface=eth0,src_addr=none")
    assert v6 == {"traddr": "fe80::1%eth0", "trsvcid": "4420", "host_iface": "eth0"}


def test_trailing_commas_are_forgiven_outside_strings() -> None:
    text = json.dumps([{"Subsystems": [SUBSYSTEM | {"NQN": "nqn.a,]b"}]}]).replace("}]}]", "},]},]")
    with pytest.raises(json.JSONDecodeError):
        json.loads(text)
    assert nvme.subsystems(said(text, SUBSYS))[0].nqn == "nqn.a,]b"


def test_no_subsystem_and_what_is_none() -> None:
    assert subsystems([]) == subsystems({}) == subsystems([{"HostNQN": "h", "Subsystems": []}]) == ()
    for document in (
        [{"HostNQN": "h"}],
        [1],
        {"a": 1},
        [{"Subsystems": [{"Paths": []}]}],
        [{"Subsystems": [SUBSYSTEM | {"Paths": "x"}]}],
    ):
        with pytest.raises(ReaderError):
            subsystems(document)


def test_health_in_kelvin_and_as_float_string_or_number() -> None:
    found = health()
    assert (found.device, found.temperature_c, found.temperature_sensors_c) == ("nvme0", 37, (38,))
    assert (found.available_spare_percent, found.available_spare_threshold_percent, found.percentage_used) == (
        100,
        10,
        1,
    )
    assert (found.data_read_bytes, found.host_reads, found.media_errors) == (42 * 512_000, 346, 0)
    assert health(temperature=0).temperature_c is None  # no sensor, not -273
    assert health(temperature=37).temperature_c is None  # no drive is at -236 C
    assert health(media_errors=1e20).media_errors == 10**20
    assert health(media_errors="340282366920938463463374607431768211455").media_errors == (1 << 128) - 1
    assert health(media_errors=None).media_errors is None


def test_critical_warning_as_number_or_object() -> None:
    parts = {
        "value": 4,
        "available_spare": 0,
        "temp_threshold": 0,
        "reliability_degraded": 1,
        "ro": 0,
        "vmbu_failed": 0,
        "pmr_ro": 0,
    }
    assert health(critical_warning=4).critical_warning == health(critical_warning="0x4").critical_warning == 4
    assert health(critical_warning=parts).critical_warning == 4
    assert health(critical_warning={k: v for k, v in parts.items() if k != "value"}).critical_warning == 4
    assert health(critical_warning=parts | {"value": 0}).critical_warning == 4  # the worse of the two
    assert health(critical_warning={"ro": 0}).critical_warning is None
    assert health(critical_warning=parts | {"ro": 2}).critical_warning is None
    assert health(critical_warning={}).critical_warning is None


def test_other_names_of_the_same_fields() -> None:
    found = nvme.smart_log(said(json.dumps({"percentage_used": 7, "available_spare": 99, "host_reads": 3}), SMART))
    assert (found.percentage_used, found.available_spare_percent, found.host_reads) == (7, 99, 3)
    assert found.critical_warning is None and found.media_errors is None


def test_version() -> None:
    for text, wanted in (
        ("nvme version 1.12\n", "1.12"),
        ("nvme version 2.3 (git 2.3)\nlibnvme version 1.3 (git 1.3)\n", "2.3"),
        ("nvme-cli version 2.16\n", "2.16"),
    ):
        assert nvme.version(said(text, "nvme version")) == wanted
    with pytest.raises(ReaderError):
        nvme.version(said("libnvme version 1.3", "nvme version"))


def test_identity_and_ana_groups() -> None:
    told = {"mn": "M ", "sn": "S ", "fr": "F", "ver": 66560, "cntlid": 1, "wctemp": 343, "cctemp": 0, "tnvmcap": "0"}
    found = nvme.identity(said(json.dumps(told), "nvme id-ctrl /dev/nvme0 -o json"))
    assert (found.model, found.version, found.warning_temperature_c) == ("M", "1.4.0", 70)
    assert (found.critical_temperature_c, found.capacity_bytes) == (None, None)
    with pytest.raises(ReaderError, match="no identity"):
        nvme.identity(said("{}", "nvme id-ctrl /dev/nvme0 -o json"))
    log = {"ngrps": 1, "ANA DESC LIST ": [{"grpid": 1, "state": "optimized", "NSIDS": [{"nsid": 1}, {"nsid": 2}]}]}
    groups = nvme.ana_groups(said(json.dumps(log), "nvme ana-log /dev/nvme0 -o json"))
    assert groups == (nvme.AnaGroup(1, "optimized", (1, 2)),)


# Shared samples


@pytest.mark.parametrize("tag", ["fx100-ok.v2.13", "fx100-ok.v2.16"])
def test_sample_list_verbose(tag: str) -> None:
    found = nvme.drives(sample(f"nvme/list-v.{tag}.json", LIST))
    assert [each.device for each in found.drives] == ["nvme0n1", "nvme1n1", "nvme2n1"]
    array = found.drives[2]
    assert (array.serial, array.transport, array.controllers) == ("FX100SN0000001", "rdma", ("nvme3", "nvme4"))
    assert (array.size_bytes, array.sector_bytes, found.drives[0].sector_bytes) == (15362991415296, 512, 4096)
    assert len(found.controllers or ()) == 5


def test_sample_list_that_could_open_nothing() -> None:
    assert nvme.drives(sample("nvme/list-v.fx100-ok.v2.3.json", LIST)).drives == ()
    with pytest.raises(ReaderError, match="nvme0n1 tells neither"):
        nvme.drives(sample("nvme/list.cannot-open-devices.v1.12.json", LIST))


def test_sample_paths_of_every_version() -> None:
    files = sorted((SAMPLES / "nvme").glob("list-subsys*.json"))
    if not files:
        pytest.skip("needs the shared samples")
    for file in files:
        found = nvme.subsystems(sample(f"nvme/{file.name}", SUBSYS))
        paths = found[-1 if "v2.3" not in file.name else 0].paths
        assert all(path.traddr and path.state for each in found for path in each.paths), file.name
        if "gonvme" in file.name:
            assert found[0].io_policy == "numa" and [path.src_addr for path in paths] == ["10.1.1.2", "10.1.1.2"]
            continue
        states, transports = sorted(str(path.state) for path in paths), sorted(str(path.transport) for path in paths)
        assert len(paths) == (1 if "single" in file.name else 2), file.name
        assert states == (["connecting", "live"] if "degraded" in file.name else ["live"] * len(paths)), file.name
        assert transports == (["rdma", "tcp"] if "tcp" in file.name else ["rdma"] * len(paths)), file.name
        ana = {str(path.ana_state) for path in paths}
        if ".nodev." in file.name:
            assert ana == {"None"}, file.name  # not told without a device
        else:
            assert ana == ({"non-optimized", "inaccessible"} if "-ana." in file.name else {"optimized"}), file.name
        assert found[0].io_policy == ("numa" if "-v." in file.name else None)


@pytest.mark.parametrize(
    ("name", "reader", "says"),
    [
        ("missing-hw/nvme-list-2.13.none.stdout", nvme.drives, "Failed to scan topology"),
        ("missing-hw/nvme-list-2.3.none.stdout", nvme.drives, "Failed to scan topology"),
        ("missing-hw/nvme-list-subsys-2.16.none.stdout", nvme.subsystems, "Failed to scan topology"),
        ("missing-hw/nvme-smart-log-1.12.nodev.stdout", nvme.smart_log, "/dev/nvme9: No such file"),
        ("missing-hw/nvme-smart-log-2.16.nodev.stdout", nvme.smart_log, "/dev/nvme9: No such file"),
        ("nvme/smart-log.ioctl-fails.v2.16.stdout", nvme.smart_log, "/dev/nvme2: No such device"),
        ("nvme/list-subsys.text.fx100-ok.v2.16.txt", nvme.subsystems, "no JSON"),
        ("nvme/discover.tcp.go-spdk-helper.json", nvme.drives, "no Devices"),
        ("nvme/show-topology.fx100-ok.v2.16.json", nvme.drives, "no object"),
    ],
)
def test_samples_that_are_refused(name: str, reader: Any, says: str) -> None:
    with pytest.raises(ReaderError, match=says):
        reader(sample(name, "nvme something"))


def test_sample_of_no_device() -> None:
    assert nvme.drives(sample("missing-hw/nvme-list-1.12.none.stdout", LIST)).drives == ()


# The lab


@pytest.mark.parametrize(
    ("state", "array", "local"),
    [
        ("healthy", "nvme3n1", "nvme0n1"),
        ("path-down-port", "nvme3n1", "nvme1n1"),
        ("local-critical-warning", "nvme3n2", "nvme1n1"),
        ("all-paths-lost", None, "nvme1n1"),
    ],
)
@pytest.mark.parametrize("command", [LIST, "nvme list -v -o json"])
def test_lab_drives(state: str, array: str | None, local: str, command: str) -> None:
    found = {each.serial: each for each in nvme.drives(printed(lab(state), command)).drives}
    assert found["QLABLOCAL1"].device == local and found["QLABLOCAL1"].size_bytes == 4 << 30
    assert array == (found["FX100SN0001"].device if array else found.get("FX100SN0001"))


@pytest.mark.parametrize(
    ("state", "wanted"),
    [
        ("healthy", {"nvme3": "live", "nvme4": "live"}),
        ("path-down-port", {"nvme3": "connecting", "nvme4": "live"}),
        ("all-paths-lost", {"nvme4": "connecting", "nvme6": "connecting"}),
        ("local-critical-warning", {"nvme4": "live", "nvme6": "live"}),
    ],
)
def test_lab_paths(state: str, wanted: dict[str, str]) -> None:
    found = {each.nqn: each for each in nvme.subsystems(printed(lab(state), SUBSYS))}
    array = found["nqn.2024-01.example.qlab:fx100"]
    assert {path.controller: path.state for path in array.paths} == wanted
    assert {path.transport for path in array.paths} == {"rdma"}
    assert sorted(str(path.traddr) for path in array.paths) == ["192.168.50.2", "192.168.51.2"]
    assert {path.trsvcid for path in array.paths} == {"4420"}
    assert found["nqn.2024-01.example.qlab:tcp01"].paths[0].src_addr == "192.168.51.2"


def test_lab_ana_states() -> None:
    def ana(state: str, device: str) -> dict[str, str | None]:
        command = f"nvme list-subsys /dev/{device} -o json"
        return {path.controller: path.ana_state for path in nvme.subsystems(printed(lab(state), command))[0].paths}

    assert ana("healthy", "nvme3n1") == {"nvme3": "optimized", "nvme4": "non-optimized"}
    assert ana("all-paths-lost", "nvme3n1") == {"nvme4": None, "nvme6": None}
    assert ana("local-critical-warning", "nvme3n2") == {"nvme4": "non-optimized", "nvme6": "optimized"}
    assert nvme.subsystems(printed(lab("healthy"), "nvme list-subsys /dev/nvme99n1 -o json")) == ()


def test_lab_health() -> None:
    bad = nvme.smart_log(printed(lab("local-critical-warning"), "nvme smart-log /dev/nvme2 -o json"))
    assert (bad.critical_warning, bad.warnings, bad.temperature_c) == (4, ("reliability degraded",), 50)
    array = nvme.smart_log(printed(lab("healthy"), "nvme smart-log /dev/nvme3n1 -o json"))
    assert array.blank and array.temperature_c is None
    for device in ("nvme3n1", "nvme4", "nvme6"):
        with pytest.raises(ReaderError, match="Resource temporarily unavailable"):
            nvme.smart_log(printed(lab("all-paths-lost"), f"nvme smart-log /dev/{device} -o json"))


def test_lab_identity_version_and_ana_log() -> None:
    bundle = lab("healthy")
    assert nvme.version(printed(bundle, "nvme version")) == "2.3"
    found = nvme.identity(printed(bundle, "nvme id-ctrl /dev/nvme3 -o json"))
    assert (found.model, found.serial, found.subsystem_nqn) == (
        "QLAB FX100",
        "FX100SN0001",
        "nqn.2024-01.example.qlab:fx100",
    )
    assert nvme.ana_groups(printed(bundle, "nvme ana-log /dev/nvme4 -o json"))[0].state == "non-optimized"


# Anything

EVERY = (
    (nvme.drives, LIST, {"Devices": [FLAT]}),
    (nvme.drives, LIST, HOSTS),
    (nvme.subsystems, SUBSYS, SUBSYSTEMS),
    (nvme.smart_log, SMART, LOG),
    (nvme.identity, "nvme id-ctrl /dev/nvme0 -o json", {"mn": "M", "sn": "S", "ver": 66560, "wctemp": 343}),
    (nvme.ana_groups, "nvme ana-log /dev/nvme0 -o json", {"ANA DESC LIST ": [{"grpid": 1, "NSIDS": [{"nsid": 1}]}]}),
)


@settings(max_examples=120, deadline=None)
@given(st.data(), st.sampled_from(EVERY), st.sampled_from([0, 0, 1, 124, 127, None]))
def test_nothing_else_is_raised(data: st.DataObject, what: tuple[Any, str, object], status: int | None) -> None:
    reader, command, document = what
    stdout = data.draw(st.one_of(hostile_bytes(), mutated(json.dumps(document))))
    tried(reader, said(stdout, command, status=status))
    tried(nvme.version, said(stdout, "nvme version", status=status))


@pytest.mark.parametrize("what", EVERY, ids=lambda what: what[0].__name__)
def test_a_cut_document_is_refused(what: tuple[Any, str, object]) -> None:
    reader, command, document = what
    assert cuts(reader, command, json.dumps(document, indent=1).encode(), 3) == []
