"""/sys as text: attributes through links, and what G1 reads there."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gates.readers import sysfs as reader
from gates.readers.error import ReaderError
from gates.readers.sysfs import Sysfs, sysfs
from tests.reader_samples import cuts, hostile_bytes, lab, said, tried

COMMAND = "walk of /sys/class/nvme"
CTL, SUBSYS = "/sys/devices/virtual/nvme-fabrics/ctl", "/sys/devices/virtual/nvme-subsystem/nvme-subsys3"
DRIVE = "/sys/devices/pci0000:00/0000:00:07.0/0000:01:00.0"
NIC = "/sys/devices/pci0000:10/0000:10:01.0/0000:11:00.0"
TEXT = f"""\
/sys/class/nvme/nvme3 -> ../../devices/virtual/nvme-fabrics/ctl/nvme3
/sys/class/nvme/nvme0 -> ../../devices/pci0000:00/0000:00:07.0/0000:01:00.0/nvme/nvme0
{CTL}/nvme3/address: 'traddr=192.168.50.2,trsvcid=4420,src_addr=192.168.50.1'
{CTL}/nvme3/state: 'connecting'
{CTL}/nvme3/transport: 'rdma'
{CTL}/nvme3/subsysnqn: 'nqn.2024-01.example:fx'
{CTL}/nvme3/model: "O'Brien \\\\ 1\\t2\\x41"
{CTL}/nvme3/ctrl_loss_tmo: '600'
{CTL}/nvme3/reconnect_delay: '10'
{CTL}/nvme3/fast_io_fail_tmo: 'off'
{CTL}/nvme3/numa_node: '-1'
{CTL}/nvme3/nvme3c3n1/ana_state: 'optimized'
{CTL}/nvme3/nvme3c3n1/hidden: '1'
{CTL}/nvme3/nvme3c3n1/queue/logical_block_size: '512'
{DRIVE}/nvme/nvme0/address: '0000:01:00.0'
{DRIVE}/nvme/nvme0/device -> ../../../0000:01:00.0
{DRIVE}/nvme/nvme0/state: 'live'
{DRIVE}/nvme/nvme0/transport: 'pcie'
{DRIVE}/nvme/nvme0/numa_node: '1'
{DRIVE}/current_link_speed: '8.0 GT/s PCIe'
{DRIVE}/current_link_width: '4'
{DRIVE}/max_link_speed: '16.0 GT/s PCIe'
{DRIVE}/max_link_width: '4'
/sys/class/nvme-subsystem/nvme-subsys3 -> ../../devices/virtual/nvme-subsystem/nvme-subsys3
{SUBSYS}/subsysnqn: 'nqn.2024-01.example:fx'
{SUBSYS}/iopolicy: 'round-robin'
{SUBSYS}/nvme3 -> ../../nvme-fabrics/ctl/nvme3
{SUBSYS}/nvme3n1/hidden: '0'
{SUBSYS}/nvme3n1/size: '2097152'
{SUBSYS}/nvme3n1/ro: '0'
{SUBSYS}/nvme3n1/stat: '     212        0     8530      394       73      145    99736      689        2      448     1087'
{SUBSYS}/nvme3n1/queue/logical_block_size: '512'
{SUBSYS}/nvme3n1/queue/physical_block_size: '4096'
{SUBSYS}/nvme3n1/queue/scheduler: 'none [mq-deadline] kyber'
{SUBSYS}/nvme3n1/queue/rotational: ERRNO 22 Invalid argument
/sys/class/infiniband/mlx5_0 -> ../../devices/pci0000:10/0000:10:01.0/0000:11:00.0/infiniband/mlx5_0
{NIC}/infiniband/mlx5_0/fw_ver: '20.35.1012'
{NIC}/infiniband/mlx5_0/ports/1/state: '4: ACTIVE'
/sys/class/net/bonding_masters: ''
/sys/class/net/fab0 -> ../../devices/pci0000:10/0000:10:01.0/0000:11:00.0/net/fab0
{NIC}/numa_node: '0'
{NIC}/net/fab0/device -> ../../../0000:11:00.0
{NIC}/net/fab0/mtu: '9000'
{NIC}/net/fab0/speed: '-1'
{NIC}/net/fab0/operstate: 'down'
{NIC}/net/fab0/carrier: '0'
{NIC}/net/fab0/statistics/rx_dropped: '5'
"""


@pytest.fixture(name="tree")
def _tree() -> Sysfs:
    return sysfs(said(TEXT, COMMAND))


def test_attributes_through_links(tree: Sysfs) -> None:
    assert tree.attribute("/sys/class/nvme/nvme3/state") == "connecting"
    assert tree.attribute("/sys/class/nvme-subsystem/nvme-subsys3/nvme3/transport") == "rdma"
    assert tree.attribute("/sys/class/nvme/nvme3/model") == "O'Brien \\ 1\t2A"
    assert tree.children("/sys/class/nvme") == ("nvme0", "nvme3")
    assert tree.children("/sys/class/net/fab0/statistics") == ("rx_dropped",)


def test_what_was_not_collected_or_refused_is_none(tree: Sysfs) -> None:
    assert tree.attribute("/sys/class/nvme/nvme9/state") is None
    assert tree.attribute(f"{SUBSYS}/nvme3n1/queue/rotational") is None
    assert tree.children("/sys/class/hwmon") == () and tree.attribute("/") is None


def test_rings_of_links_end() -> None:
    tree = sysfs(said("/sys/a -> ../sys/b\n/sys/b -> a\n/sys/c -> c/c/c\n/sys/x: '1'\n", COMMAND))
    assert tree.attribute("/sys/a/state") is None and tree.children("/sys/c/c") == ()


def test_controllers(tree: Sysfs) -> None:
    local, path = reader.nvme_controllers(tree)
    assert (path.name, path.transport, path.state, path.traddr, path.trsvcid) == (
        "nvme3",
        "rdma",
        "connecting",
        "192.168.50.2",
        "4420",
    )
    assert (path.src_addr, path.ctrl_loss_tmo_s, path.reconnect_delay_s) == ("192.168.50.1", 600, 10)
    assert path.fast_io_fail_tmo_s == reader.OFF == math.inf  # off is not 0, and not unknown
    assert (path.numa_node, path.pci_address, path.ana_states) == (None, None, {"nvme3c3n1": "optimized"})
    assert (local.transport, local.numa_node, local.pci_address) == ("pcie", 1, "0000:01:00.0")
    assert (local.ctrl_loss_tmo_s, local.fast_io_fail_tmo_s) == (None, None)


def test_subsystems(tree: Sysfs) -> None:
    found = reader.nvme_subsystems(tree)[0]
    assert (found.nqn, found.io_policy) == ("nqn.2024-01.example:fx", "round-robin")
    assert (found.controllers, found.namespaces) == (("nvme3",), ("nvme3n1",))


def test_the_pci_device_of_an_rdma_device(tree: Sysfs) -> None:
    assert reader.pci_address(tree, "/sys/class/infiniband/mlx5_0") == "0000:11:00.0"
    assert reader.pci_address(tree, "/sys/class/nvme/nvme3") is None


def test_net_devices(tree: Sysfs) -> None:
    (found,) = reader.net_devices(tree)
    assert (found.name, found.mtu_bytes, found.speed_mbit_per_s) == ("fab0", 9000, None)
    assert (found.operstate, found.carrier, found.numa_node) == ("down", False, 0)
    assert (found.pci_address, found.statistics) == ("0000:11:00.0", {"rx_dropped": 5})


def test_block_queues(tree: Sysfs) -> None:
    (found,) = reader.block_queues(tree)  # not the hidden path device
    assert (found.name, found.size_bytes, found.logical_block_bytes, found.physical_block_bytes) == (
        "nvme3n1",
        1 << 30,
        512,
        4096,
    )
    assert (found.scheduler, found.rotational, found.read_only) == ("mq-deadline", None, False)
    assert (found.reads, found.read_bytes, found.writes, found.written_bytes, found.in_flight) == (
        212,
        8530 * 512,
        73,
        99736 * 512,
        2,
    )


def test_pci_links(tree: Sysfs) -> None:
    (found,) = reader.pci_links(tree)
    assert (found.address, found.speed_gt_per_s, found.max_speed_gt_per_s, found.width) == (
        "0000:01:00.0",
        8.0,
        16.0,
        4,
    )
    assert found.degraded is True
    even = TEXT.replace("'8.0 GT/s PCIe'", "'16.0 GT/s PCIe'")
    assert reader.pci_links(sysfs(said(even, COMMAND)))[0].degraded is False
    for unknown in ("'Unknown'", "ERRNO 22 Invalid argument"):
        assert reader.pci_links(sysfs(said(TEXT.replace("'8.0 GT/s PCIe'", unknown), COMMAND)))[0].degraded is None
    narrow = even.replace("current_link_width: '4'", "current_link_width: '2'")
    assert reader.pci_links(sysfs(said(narrow, COMMAND)))[0].degraded is True


@pytest.mark.parametrize(
    "text",
    [
        "",
        "/sys/a -> b\n",
        "nothing\n",
        "/sys/a: 'cut off\n",
        "/sys/a: 'x'y'\n",
        "/etc/passwd: 'x'\n",
        "/sys/a: live\n",
        "/sys/a: ERRNO\n",
        "/sys/a\n",
        "/sys" + "/a" * 3000 + ": '1'\n",
        "/sys" + "/a" * 100 + ": '1'\n",
    ],
)
def test_what_is_no_walk_of_sys(text: str) -> None:
    with pytest.raises(ReaderError):
        sysfs(said(text, COMMAND))


@pytest.mark.parametrize(
    ("state", "wanted", "device"),
    [
        ("healthy", {"nvme3": "live", "nvme4": "live"}, "nvme3n1"),
        ("path-down-port", {"nvme3": "connecting", "nvme4": "live"}, "nvme3n1"),
        ("all-paths-lost", {"nvme4": "connecting", "nvme6": "connecting"}, "nvme3n1"),
    ],
)
def test_lab(state: str, wanted: dict[str, str], device: str) -> None:
    output = next(each for each in lab(state).outputs if each.argv[:1] == ("walk",))
    tree = sysfs(output)
    array = [each for each in reader.nvme_controllers(tree) if each.subsystem_nqn == "nqn.2024-01.example.qlab:fx100"]
    assert {each.name: each.state for each in array} == wanted
    assert {
        (each.transport, each.ctrl_loss_tmo_s, each.reconnect_delay_s, each.fast_io_fail_tmo_s) for each in array
    } == {("rdma", 600, 2, math.inf)}
    subsystem = next(each for each in reader.nvme_subsystems(tree) if each.name == "nvme-subsys3")
    assert (subsystem.io_policy, set(subsystem.controllers), subsystem.namespaces) == ("numa", set(wanted), (device,))
    queue = next(each for each in reader.block_queues(tree) if each.name == device)
    assert (queue.logical_block_bytes, queue.size_bytes) == (512, 1 << 30)
    links = {each.address: each.degraded for each in reader.pci_links(tree)}
    if state != "healthy":  # collected there only
        return
    assert links["0000:01:00.0"] is False and links["0000:00:07.0"] is True
    assert {each.name: each.speed_mbit_per_s for each in reader.net_devices(tree)}["fab0"] == 100000


def whole(tree: Sysfs) -> None:
    for each in (
        reader.nvme_controllers,
        reader.nvme_subsystems,
        reader.net_devices,
        reader.block_queues,
        reader.pci_links,
    ):
        each(tree)


@settings(max_examples=80, deadline=None)
@given(
    st.one_of(hostile_bytes(), st.tuples(st.integers(0, len(TEXT)), st.integers(0, 40), st.binary(max_size=20))),
    st.sampled_from([0, 1, None]),
)
def test_nothing_else_is_raised(what: bytes | tuple[int, int, bytes], status: int | None) -> None:
    if isinstance(what, bytes):
        stdout = what
    else:
        at, gone, instead = what
        stdout = TEXT[:at].encode() + instead + TEXT[at + gone :].encode()
    tree = tried(sysfs, said(stdout, COMMAND, status=status))
    if tree is not None:
        whole(tree)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, TEXT.count("\n") - 1), st.text(max_size=12)), max_size=5))
def test_any_value_is_read_or_not_known(changes: list[tuple[int, str]]) -> None:
    lines = TEXT.splitlines()
    for at, value in changes:
        path, colon, _ = lines[at].partition(": ")
        lines[at] = f"{path}: {value!r}" if colon else lines[at]
    tree = tried(sysfs, said("\n".join(lines).encode("utf-8", "replace"), COMMAND))
    if tree is not None:
        whole(tree)


def test_a_cut_walk_is_refused_or_lacks_its_end() -> None:
    text = TEXT[:900]
    full = sysfs(said(TEXT, COMMAND)).values
    for _, tree in cuts(sysfs, COMMAND, text.encode(), 5):
        assert all(full[path] == value for path, value in tree.values.items())
