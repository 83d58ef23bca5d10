"""RDMA ports, GIDs, counters and QoS: every tool's form, and what a port that is down must not claim."""

from __future__ import annotations

import json

import pytest

from gates.readers import qos, rdma, rdma_sysfs
from tests.reader_samples import Reader, lab, of_lab, refused, refuses_what_did_not_run, said, sample, survives

VERBS = """\
hca_id:\tmlx5_0
\ttransport:\t\t\tInfiniBand (0)
\tfw_ver:\t\t\t\t22.35.1012
\tvendor_id:\t\t\t0x02c9
\tvendor_part_id:\t\t\t4125
\tboard_id:\t\t\tMT_0000000359
\tphys_port_cnt:\t\t\t1
\t\tport:\t1
\t\t\tstate:\t\t\t{state}
\t\t\tmax_mtu:\t\t4096 (5)
\t\t\tactive_mtu:\t\t{mtu}
\t\t\tlink_layer:\t\tEthernet
\t\t\tactive_width:\t\t4X (2)
\t\t\tactive_speed:\t\t25.0 Gbps (32)
\t\t\tphys_state:\t\t{physical}
\t\t\tGID[  0]:\t\tfe80:0000:0000:0000:0e42:a1ff:fe00:0001, RoCE v1
\t\t\tGID[  1]:\t\tfe80::e42:a1ff:fe00:1, RoCE v2
\t\t\tGID[  2]:\t\t0000:0000:0000:0000:0000:ffff:c0a8:3202, RoCE v1
\t\t\tGID[  3]:\t\t::ffff:192.168.50.2, RoCE v2

"""
UP = VERBS.format(state="PORT_ACTIVE (4)", mtu="4096 (5)", physical="LINK_UP (5)")
STAT = """\
CA 'mlx5_0'
\tCA type: MT4125
\tNumber of ports: 2
\tFirmware version: 22.35.1012
\tPort 1:
\t\tState: {state}
\t\tPhysical state: {physical}
\t\tRate: {rate}
\t\tLink layer: Ethernet
\tPort 2:
\t\tState: Down
\t\tPhysical state: Disabled
\t\tRate: 40
\t\tLink layer: InfiniBand
"""
QOS = """\
DCBX mode: OS controlled
Priority trust state: {trust}
Cable len: 7
PFC configuration:
\tpriority    0   1   2   3   4   5   6   7
\tenabled     0   0   0   1   0   0   0   0
\tbuffer      0   0   0   1   0   0   0   0
tc: 0 ratelimit: unlimited, tsa: vendor
\t priority:  1
"""


def stat(state: str = "Active", physical: str = "LinkUp", rate: str = "100") -> str:
    return STAT.format(state=state, physical=physical, rate=rate)


def test_verbs_show_a_port_whole() -> None:
    (port,) = rdma.devices(said(UP))
    assert (port.device, port.port, port.state, port.physical_state, port.up) == (
        "mlx5_0",
        1,
        "ACTIVE",
        "LINK_UP",
        True,
    )
    assert (port.rate_gbit_per_s, port.active_mtu_bytes, port.max_mtu_bytes) == (100.0, 4096, 4096)
    assert (port.firmware, port.board_id, port.part_id) == ("22.35.1012", "MT_0000000359", 4125)
    assert [(gid.type, gid.ipv4, gid.link_local) for gid in port.gids] == [
        ("RoCE v1", None, True),
        ("RoCE v2", None, True),
        ("RoCE v1", "192.168.50.2", False),
        ("RoCE v2", "192.168.50.2", False),
    ]
    assert port.gids[0].gid == port.gids[1].gid and [gid.index for gid in port.gids] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("state", "physical"),
    [
        ("PORT_DOWN (1)", "DISABLED (3)"),
        ("PORT_DOWN (1)", "POLLING (2)"),
        ("PORT_INIT (2)", "LINK_UP (5)"),
        ("PORT_ACTIVE (4)", "LINK_ERROR_RECOVERY (6)"),
        ("invalid state (0)", "LINK_UP (5)"),
    ],
)
def test_a_port_that_is_not_up_has_no_rate(state: str, physical: str) -> None:
    (port,) = rdma.devices(said(VERBS.format(state=state, mtu="1024 (3)", physical=physical)))
    assert port.rate_gbit_per_s is None and port.active_mtu_bytes == 1024
    assert port.up is (None if "invalid" in state else False)


def test_verbs_of_other_versions() -> None:
    effective = UP.replace("\t\t\tphys_state", "\t\t\teffective_speed:\t400.0 Gbps\n\t\t\tphys_state")
    assert rdma.devices(said(effective))[0].rate_gbit_per_s == 400.0
    old = UP.replace(", RoCE v1", "").replace(", RoCE v2", "")
    assert {gid.type for gid in rdma.devices(said(old))[0].gids} == {None}
    assert rdma.devices(said(UP.replace("4X (2)", "invalid width (0)")))[0].rate_gbit_per_s is None
    assert rdma.devices(said(UP.replace("4096 (5)", "invalid MTU (0)")))[0].active_mtu_bytes is None
    two = rdma.devices(said(UP + UP.replace("mlx5_0", "mlx5_1").replace("22.35", "22.36")))
    assert [(port.device, port.firmware) for port in two] == [("mlx5_0", "22.35.1012"), ("mlx5_1", "22.36.1012")]


def test_ibstat_shows_both_ports() -> None:
    first, second = rdma.ibstat(said(stat()))
    assert (first.state, first.physical_state, first.rate_gbit_per_s) == ("ACTIVE", "LINK_UP", 100.0)
    assert (first.firmware, second.firmware) == ("22.35.1012", "22.35.1012")
    assert (second.port, second.up, second.rate_gbit_per_s, second.link_layer) == (2, False, None, "InfiniBand")


@pytest.mark.parametrize(
    ("state", "physical", "rate", "up", "gbit_per_s"),
    [
        ("Active", "LinkUp", "56 (FDR10)", True, 56.0),
        ("Active", "LinkUp", "2.5", True, 2.5),
        ("Active", "LinkUp", "100\n\t\tEffective speed: 50", True, 50.0),
        ("Down", "Polling", "100", False, None),
        ("Initializing", "LinkUp", "100", False, None),
        ("Active", "LinkErrorRecovery", "100", False, None),
        ("???", "LinkUp", "100", None, None),
        ("Active", "LinkUp", "0", True, None),
    ],
)
def test_ibstat_rates(state: str, physical: str, rate: str, up: bool | None, gbit_per_s: float | None) -> None:
    port = rdma.ibstat(said(stat(state, physical, rate)))[0]
    assert (port.up, port.rate_gbit_per_s) == (up, gbit_per_s)


def test_ibstatus() -> None:
    head = "Infiniband device 'mlx5_0' port 1 status:\n\tdefault gid:\t fe80::1\n\tstate:\t\t {}\n"
    text = head + "\tphys state:\t {}\n\trate:\t\t {}\n\tlink_layer:\t Ethernet\n"
    (port,) = rdma.ibstatus(said(text.format("4: ACTIVE", "5: LinkUp", "200 Gb/sec (4X HDR)")))
    assert (port.up, port.rate_gbit_per_s, port.link_layer) == (True, 200.0, "Ethernet")
    (port,) = rdma.ibstatus(said(text.format("1: DOWN", "3: Disabled", "40 Gb/sec (4X QDR)")))
    assert (port.up, port.rate_gbit_per_s, port.physical_state) == (False, None, "DISABLED")
    (port,) = rdma.ibstatus(said(text.format("unknown", "unknown", "unknown")))
    assert (port.up, port.state, port.rate_gbit_per_s) == (None, None, None)


@pytest.mark.parametrize(
    "text",
    [
        "link mlx5_0/1 state ACTIVE physical_state LINK_UP netdev eth0 \n",
        "link mlx5_0/1 state ACTIVE physical_state LINK_UP netdev eth0 netdev_index 2 \n    caps: <CM, IP_BASED_GIDS>\n",
        "1/1: mlx5_0/1: state ACTIVE physical_state LINK_UP netdev eth0 \n",
        "link mlx5_0/1 subnet_prefix fe80:0000:0000:0000 lid 13399 sm_lid 49151 lmc 0 state ACTIVE"
        " physical_state LINK_UP netdev eth0 \n",
        '[{"ifindex":0,"ifname":"mlx5_0","port":1,"state":"ACTIVE","physical_state":"LINK_UP","netdev":"eth0"}]',
        '[{"ifindex":0,"ifname":"mlx5_0/1","state":"ACTIVE","physical_state":"LINK_UP","netdev":"eth0","caps":["CM"]}]',
    ],
)
def test_rdma_link_in_every_form(text: str) -> None:
    (port,) = rdma.links(said(text))
    assert (port.device, port.port, port.up, port.netdev) == ("mlx5_0", 1, True, "eth0")


def test_no_device_is_an_empty_list_and_no_answer_is_none() -> None:
    assert rdma.links(said("[]\n")) == ()
    refused(rdma.links, sample("missing-hw/rdma-link-j.no-netlink.stdout"))
    refused(rdma.statistics, sample("missing-hw/rdma-statistic-j.no-netlink.stdout"))
    assert "can't be found" in refused(rdma.ibstat, sample("missing-hw/ibstat-l.none.stdout"))
    refused(rdma.devices, sample("missing-hw/ibv_devinfo.none.stdout"))
    refused(rdma.devices, said("No IB devices found\n", status=255))
    assert "printed nothing" in refused(rdma.ibstat, said(""))  # what ibstat says of a host without a device


def test_rdma_link_of_the_sample() -> None:
    up, down = rdma.links(sample("rdma/rdma-link.text.txt"))
    assert (up.up, down.up, down.physical_state, down.netdev) == (True, False, "DISABLED", "eth1")


def test_the_lab_in_every_state() -> None:
    seen = 0
    for command, reader in (
        ("rdma -j link show", rdma.links),
        ("rdma link show", rdma.links),
        ("rdma -d -j link show", rdma.links),
        ("ibv_devinfo", rdma.devices),
        ("ibv_devinfo -v", rdma.devices),
        ("ibstat", rdma.ibstat),
        ("ibstatus", rdma.ibstatus),
    ):
        for _, output in of_lab(command):
            first, second = reader(output)
            assert (first.device, second.device, first.up, second.up) == ("rxe0", "rxe1", True, True)
            assert first.rate_gbit_per_s == (100.0 if command in ("ibstat", "ibstatus", "ibv_devinfo -v") else None)
            seen += 1
    assert seen >= 15
    (gids, _) = rdma.devices(next(output for _, output in of_lab("ibv_devinfo -v")))
    assert [(gid.type, gid.ipv4) for gid in gids.gids] == [("RoCE v2", None), ("RoCE v2", "192.168.50.2")]
    for _, output in of_lab("ibv_devinfo -d mlx5_9"):
        assert "wasn't found" in refused(rdma.devices, output)


def test_statistics_as_json_and_text_tell_the_same_counters() -> None:
    healthy = lab("healthy")
    as_json, as_text = healthy.find("rdma", "-j", "statistic", "show"), healthy.find("rdma", "statistic", "show")
    assert as_json is not None and as_text is not None
    first, second = rdma.statistics(as_json), rdma.statistics(as_text)
    assert [(one.device, one.port, set(one.counters)) for one in first] == [
        (one.device, one.port, set(one.counters)) for one in second
    ]
    assert first[0].counters["rcvd_pkts"] == 3253 and second[0].counters["rcvd_pkts"] == 3261
    losses = rdma.losses(first[0].counters)
    assert (losses.out_of_sequence, losses.packet_sequence_errors, losses.link_downed) == (0, 0, 0)
    assert losses.out_of_buffer is None and losses.cnp_sent is None  # Soft-RoCE has no such counter
    for _, output in of_lab("rdma -j statistic show"):
        assert len(rdma.statistics(output)) == 2
    for _, output in of_lab("rdma -j statistic qp show"):
        assert rdma.statistics(output) == ()


def test_a_counter_of_another_type_is_missing() -> None:
    item = {"ifname": "mlx5_0", "port": 1, "out_of_buffer": "N/A", "out_of_sequence": 3, "lqpn": [1], "x": -1}
    (one,) = rdma.statistics(said(json.dumps([item])))
    assert one.counters == {"out_of_sequence": 3}


def test_a_number_that_is_cut_off_is_missing() -> None:
    text = "link mlx5_0/1 out_of_sequence 12\nlink mlx5_1/1 out_of_sequence 12"
    assert len(rdma.statistics(said(text, status=None))) == 1
    assert len(rdma.statistics(said(text))) == 2


def test_hw_counters_of_one_port() -> None:
    counters = rdma.hw_counters(sample("rdma/hw_counters.mlx5.txt"))
    assert counters["rx_write_requests"] == 108307999 and len(counters) == 11
    losses = rdma.losses(counters)
    assert (losses.out_of_sequence, losses.ack_timeouts, losses.receiver_not_ready, losses.out_of_buffer) == (
        0,
        0,
        0,
        0,
    )
    assert losses.ecn_marked is None and losses.cnp_handled is None
    assert rdma.hw_counters(said("/srv/hw_counters/out_of_buffer = 3\nnp_cnp_sent 7\n")) == {
        "out_of_buffer": 3,
        "np_cnp_sent": 7,
    }
    assert "twice" in refused(rdma.hw_counters, sample("rdma/sysfs-infiniband.h100-mlx5.flat.txt"))


def test_sysfs_of_a_real_host() -> None:
    first, second = rdma_sysfs.ports(sample("rdma/sysfs-infiniband.h100-mlx5.flat.txt"))
    assert (first.port.device, first.port.up, first.port.rate_gbit_per_s) == ("mlx5_0", True, 400.0)
    assert (first.port.link_layer, first.port.firmware, first.port.board_id) == (
        "InfiniBand",
        "28.41.1000",
        "MT_0000000838",
    )
    assert (first.counters["link_downed"], second.counters["link_downed"]) == (0, 255)
    assert first.counters["port_rcv_data"] == 230539874932483
    assert first.hw_counters["roce_adp_retrans"] == 3 and "roce_adp_retrans" not in first.counters


def test_sysfs_of_the_lab() -> None:
    for state in ("healthy", "path-down-port", "all-paths-lost"):
        (output,) = [found for found in lab(state).outputs if found.name == "sysfs.txt"]
        for found, address in zip(rdma_sysfs.ports(output), ("192.168.50.2", "192.168.51.2"), strict=True):
            assert found.port.up and found.port.rate_gbit_per_s == 100.0
            gids = [(gid.index, gid.type, gid.ipv4, gid.link_local) for gid in found.port.gids]
            assert gids == [(0, "RoCE v2", None, True), (1, "RoCE v2", address, False)]
            assert found.port.netdev == found.port.device.replace("rxe", "fab")
            assert found.hw_counters["sent_pkts"] > 0 and found.counters == {}


def test_show_gids() -> None:
    text = (
        "DEV\tPORT\tINDEX\tGID\t\t\t\t\tIPv4  \t\tVER\tDEV\n"
        "---\t----\t-----\t---\t\t\t\t\t------------  \t---\t---\n"
        "mlx5_0\t1\t0\tfe80:0000:0000:0000:0e42:a1ff:fe00:0001\t\t\tv1\tens1f0\n"
        "mlx5_0\t1\t3\t0000:0000:0000:0000:0000:ffff:c0a8:3202\t192.168.50.2  \tv2\tens1f0\n"
        "n_gids_found={}\n"
    )
    (gids,) = rdma.show_gids(said(text.format(2))).values()
    assert [(gid.index, gid.type, gid.ipv4, gid.netdev) for gid in gids] == [
        (0, "RoCE v1", None, "ens1f0"),
        (3, "RoCE v2", "192.168.50.2", "ens1f0"),
    ]
    assert "it says that it found 3" in refused(rdma.show_gids, said(text.format(3)))


def test_qos_of_the_sample() -> None:
    found = qos.qos(sample("rdma/mlnx_qos.eth2.txt"))
    assert (found.trust, found.firmware_controlled, found.cable_length_m) == ("dscp", False, 10)
    assert found.pfc == (True, False, True, False, False, False, True, True)
    assert len(found.dscp_priority) == 64 and found.dscp_priority[26] == 3


def test_qos_under_pcp_with_buffers() -> None:
    found = qos.qos(said(QOS.format(trust="pcp")))
    assert (found.trust, found.pfc.index(True), sum(found.pfc), dict(found.dscp_priority)) == ("pcp", 3, 1, {})
    assert qos.qos(said(QOS.format(trust="none"))).trust is None
    refused(qos.qos, said(QOS.format(trust="pcp").replace("1   0   0   0   0\n\tbuffer", "1\n\tbuffer")))
    refused(qos.qos, said("Priority trust state is not supported on your system\n"))
    twice = "\tprio:3 dscp:26,\n\tprio:4 dscp:26,\n"
    assert "two priorities" in refused(qos.qos, said(twice + QOS.format(trust="dscp")))


@pytest.mark.parametrize(
    ("reader", "text"),
    [
        (rdma.links, '[{"ifname":"a","port":1},{"ifname":"a","port":1}]'),
        (rdma.links, '[{"port":1}]'),
        (rdma.links, '[{"ifname":"a"}]'),
        (rdma.links, '[{"ifname":"a","port":"one"}]'),
        (rdma.statistics, '[{"ifname":"a","port":1},{"ifname":"a","port":1}]'),
        (rdma.ibstat, stat() + stat()),
        (rdma.devices, UP + UP),
    ],
)
def test_what_does_not_hold_together(reader: Reader, text: str) -> None:
    refused(reader, said(text))


ALL = [
    (rdma.links, "link a/1 state ACTIVE physical_state LINK_UP netdev b\n"),
    (rdma.links, '[{"ifname":"a","port":1,"state":"ACTIVE","physical_state":"LINK_UP"}]'),
    (rdma.statistics, "link a/1 out_of_buffer 0 out_of_sequence 3\n"),
    (rdma.statistics, '[{"ifname":"a","port":1,"out_of_buffer":0}]'),
    (rdma.hw_counters, "out_of_buffer:0\nx = '7'\n"),
    (rdma.ibstat, stat()),
    (rdma.ibstatus, "Infiniband device 'a' port 1 status:\n\tstate:\t\t 4: ACTIVE\n\trate:\t\t 100 Gb/sec (4X EDR)\n"),
    (rdma.devices, UP),
    (
        rdma.show_gids,
        "mlx5_0\t1\t3\t0000:0000:0000:0000:0000:ffff:c0a8:3202\t192.168.50.2  \tv2\teth0\nn_gids_found=1\n",
    ),
    (rdma_sysfs.ports, "mlx5_0/ports/1/state = 4: ACTIVE\nmlx5_0/ports/1/gids/0 = fe80::1\nmlx5_0/fw_ver: '1'\n"),
    (qos.qos, QOS.format(trust="dscp")),
]


@pytest.mark.parametrize(("reader", "text"), ALL)
def test_any_bytes(reader: Reader, text: str) -> None:
    refuses_what_did_not_run(reader)
    survives(reader, said(text))
