"""ethtool: links, drivers, modules, and counters of several drivers under one name; what is missing is None, never 0."""

from __future__ import annotations

import json

import pytest

from gates.readers import ethtool
from tests.reader_samples import Reader, of_lab, refused, refuses_what_did_not_run, said, sample, survives

SETTINGS = """\
Settings for ens1f0:
\tSupported ports: [ FIBRE ]
\tSupported link modes:   100000baseSR4/Full
\t                        100000baseCR4/Full
\tSpeed: {speed}
\tDuplex: {duplex}
\tAuto-negotiation: off
\tPort: Direct Attach Copper
\tLink detected: {detected}
"""
MODULE = """\
\tIdentifier                                : 0x11 (QSFP28)
\tConnector                                 : 0x23 (No separable connector)
\tVendor name                               : Mellanox
\tVendor PN                                 : MCP1600-C003
\tVendor SN                                 : MT2012VS03521
\tModule temperature                        : 41.25 degrees C / 106.25 degrees F
\tModule temperature high alarm             : Off
\tModule temperature high warning           : On
\tLaser rx power low alarm                  : On
\tModule temperature high alarm threshold   : 80.00 degrees C / 176.00 degrees F
"""
MLX5 = """\
NIC statistics:
     rx_packets: 10
     rx_out_of_buffer: 3
     rx_discards_phy: 2
     rx_prio3_packets: 100
     rx_prio3_pause: 41927
     rx_prio3_pause_duration: 8134
     rx_prio3_discards: 1
     tx_prio3_pause: 5
     rx_ecn_mark: 9
"""


def settings_of(speed: str = "100000Mb/s", duplex: str = "Full", detected: str = "yes") -> str:
    return SETTINGS.format(speed=speed, duplex=duplex, detected=detected)


def test_a_link() -> None:
    assert ethtool.link(said(settings_of())) == ethtool.Link(100.0, True, False, True, "Direct Attach Copper")


@pytest.mark.parametrize(
    ("speed", "detected", "gbit_per_s", "up"),
    [
        ("100000Mb/s", "no", None, False),  # drivers print what the port could do, too
        ("100000Mb/s", "no (No cable)", None, False),
        ("Unknown!", "no", None, False),
        ("Unknown! (65535)", "yes", None, True),
        ("4294967295Mb/s", "yes", None, True),
        ("0Mb/s", "yes", None, True),
        ("40000Mb/s", "yes", 40.0, True),
        ("400000Mb/s (lanes: 4)", "yes", 400.0, True),
        ("100000Mb/s", "perhaps", None, None),
    ],
)
def test_a_speed_needs_a_link(speed: str, detected: str, gbit_per_s: float | None, up: bool | None) -> None:
    found = ethtool.link(said(settings_of(speed, detected=detected)))
    assert (found.speed_gbit_per_s, found.detected) == (gbit_per_s, up)


def test_a_link_as_json() -> None:
    item = {"ifname": "ens1f0", "speed": 100000, "duplex": "Full", "auto-negotiation": True, "link-detected": True}
    found = ethtool.link(said(json.dumps([item])))
    assert (found.speed_gbit_per_s, found.full_duplex, found.autonegotiation, found.detected) == (
        100.0,
        True,
        True,
        True,
    )
    assert ethtool.link(said(json.dumps([{**item, "link-detected": False}]))).speed_gbit_per_s is None
    refused(ethtool.link, said(json.dumps([item, item])))


@pytest.mark.parametrize(
    ("name", "gbit_per_s", "port"),
    [
        ("ethtool.default1", 1.0, "Twisted Pair"),
        ("ethtool.default2", 40.0, "FIBRE"),
        ("ethtool.link-partner-advertised-link-modes", 0.1, "Twisted Pair"),
    ],
)
def test_links_of_samples(name: str, gbit_per_s: float, port: str) -> None:
    found = ethtool.link(sample(f"ethtool/{name}.txt"))
    assert (found.speed_gbit_per_s, found.port, found.detected, found.full_duplex) == (gbit_per_s, port, True, True)


def test_the_lab() -> None:
    seen = 0
    for command, reader in (("ethtool fab0", ethtool.link), ("ethtool fab1", ethtool.link)):
        for _, output in of_lab(command):
            assert reader(output).speed_gbit_per_s == 100.0
            seen += 1
    assert seen >= 6
    for command in ("ethtool -S fab0", "ethtool -S fab1"):
        for _, output in of_lab(command):
            counted = ethtool.counters(output)
            assert counted["rx_queue_0_drops"] == 0
            losses = ethtool.losses(counted)  # a virtual card counts none of what would be asked
            assert {losses.receive_discards, losses.crc_errors, losses.out_of_buffer} == {None}
    for _, output in of_lab("ethtool lo"):
        found = ethtool.link(output)
        assert (found.detected, found.speed_gbit_per_s, found.full_duplex) == (True, None, None)
    for _, output in of_lab("ethtool -i fab0"):
        assert ethtool.driver(output) == ethtool.Driver("virtio_net", "1.0.0", None, "0000:00:05.0")
    for _, output in of_lab("ethtool -k fab0"):
        assert ethtool.features(output)["rx-checksumming"] and not ethtool.features(output)["loopback"]
    for command, bad in (
        ("ethtool nosuch0", ethtool.link),
        ("ethtool --json fab0", ethtool.link),
        ("ethtool -S lo", ethtool.counters),
        ("ethtool -a fab0", ethtool.pause),
        ("ethtool -m fab0", ethtool.module),
    ):
        for _, output in of_lab(command):
            refused(bad, output)


@pytest.mark.parametrize("version", ["6.1", "7.2"])
def test_features_as_json(version: str) -> None:
    found = ethtool.features(sample(f"ethtool/local-virtio.ethtool-{version}.jsonk.stdout"))
    assert found["rx-checksumming"] and not found["tx-checksum-ipv4"] and len(found) > 40


def test_other_json_of_the_sample() -> None:
    assert "only with netlink" in refused(ethtool.counters, sample("ethtool/local-virtio.ethtool-7.2.jsonS.stdout"))
    refused(ethtool.counters, sample("ethtool/local-virtio.ethtool-7.2.jsong.stdout"))  # rings are no counters


def test_driver_without_values() -> None:
    text = "driver: mlx5_core\nversion: 6.8.0\nfirmware-version: 22.35.1012 (MT_0000000359)\nbus-info: 0000:41:00.0\n"
    assert ethtool.driver(said(text)).firmware == "22.35.1012 (MT_0000000359)"
    assert ethtool.driver(said("driver: x\nfirmware-version: N/A\n")).firmware is None


def test_pause() -> None:
    text = "Pause parameters for ens1f0:\nAutonegotiate:\toff\nRX:\t\ton\nTX:\t\toff\n"
    assert ethtool.pause(said(text)) == ethtool.Pause(False, True, False)
    as_json = [{"ifname": "ens1f0", "autonegotiate": True, "rx": False, "tx": False}]
    assert ethtool.pause(said(json.dumps(as_json))) == ethtool.Pause(True, False, False)


def test_modules() -> None:
    found = ethtool.module(said(MODULE))
    assert (found.identifier, found.vendor, found.part_number, found.serial) == (
        "QSFP28",
        "Mellanox",
        "MCP1600-C003",
        "MT2012VS03521",
    )
    assert (found.temperature_c, found.connector) == (41.25, "No separable connector")
    assert found.alarms == ("Laser rx power low alarm", "Module temperature high warning")
    sampled = ethtool.module(sample("ethtool/ethtool.module-info.txt"))
    assert (sampled.identifier, sampled.part_number, sampled.serial, sampled.alarms) == ("SFP", "UDC-2", None, ())
    refused(ethtool.module, said("Offset\t\tValues\n------\t\t------\n0x0000:\t\t11 00 06 00\n"))


def test_counters_of_mlx5() -> None:
    counted = ethtool.counters(sample("ethtool/ethtool-S.mlx5_core.txt"))
    losses = ethtool.losses(counted)
    assert losses.crc_errors == 0 == losses.symbol_errors and losses.link_downs is not None
    assert losses.receive_discards == counted["rx_discards_phy"] and losses.out_of_buffer == counted["rx_out_of_buffer"]
    assert losses.priorities[0].receive_packets == counted["rx_prio0_packets"] > 0
    assert losses.priorities[0].receive_pfc_frames is None  # PFC is off: the driver does not count it
    assert losses.ecn_marked is None


def test_counters_of_mlx5_with_pfc() -> None:
    losses = ethtool.losses(ethtool.counters(said(MLX5)))
    assert (losses.receive_discards, losses.out_of_buffer, losses.ecn_marked, losses.crc_errors) == (2, 3, 9, None)
    assert losses.priorities[3] == ethtool.Priority(100, None, 41927, 5, 1)
    assert losses.priorities[0] == ethtool.Priority(None, None, None, None, None)


@pytest.mark.parametrize(
    ("name", "discards", "crc", "symbols", "buffers", "link_downs", "pfc", "packets"),
    [
        ("bnxt_en", "rx_stat_discard", "rx_fcs_err_frames", "rx_pcs_symbol_err", "rx_total_ring_discards", 0, 0, 0),
        ("ice", "rx_dropped.nic", "rx_crc_errors.nic", "illegal_bytes.nic", "rx_dropped", None, 0, None),
        ("i40e", "port.rx_dropped", "port.rx_crc_errors", "port.illegal_bytes", "rx_dropped", None, 0, None),
    ],
)
def test_counters_of_other_drivers(
    name: str,
    discards: str,
    crc: str,
    symbols: str,
    buffers: str,
    link_downs: int | None,
    pfc: int | None,
    packets: int | None,
) -> None:
    counted = ethtool.counters(sample(f"ethtool/ethtool-S.{name}.txt"))
    losses = ethtool.losses(counted)
    assert (losses.receive_discards, losses.crc_errors) == (counted[discards], counted[crc])
    assert (losses.symbol_errors, losses.out_of_buffer) == (counted[symbols], counted[buffers])
    assert losses.link_downs == link_downs
    assert (losses.priorities[3].receive_pfc_frames, losses.priorities[3].receive_packets) == (pfc, packets)


def test_every_ring_keeps_its_own_name() -> None:
    counted = ethtool.counters(sample("ethtool/ethtool-S.bnxt_en.txt"))
    assert counted["[0]: rx_discards"] == 11763190 and counted["[1]: rx_discards"] == 10611365


def test_standard_groups_as_text_and_json() -> None:
    text = "Standard stats for ens1f0:\neth-phy-SymbolErrorDuringCarrier: 4\neth-mac-FrameCheckSequenceErrors: 2\n"
    groups = {"eth-phy": {"SymbolErrorDuringCarrier": 4}, "eth-mac": {"FrameCheckSequenceErrors": 2}}
    as_json = json.dumps([{"ifname": "ens1f0", **groups}])
    assert ethtool.counters(said(text)) == ethtool.counters(said(as_json))
    losses = ethtool.losses(ethtool.counters(said(as_json)))
    assert (losses.symbol_errors, losses.crc_errors, losses.receive_discards) == (4, 2, None)


def test_counters_that_nobody_can_trust_are_missing() -> None:
    assert ethtool.counters(said("a: 1\nb: 2\nb: 3\nc: 4\nc: 4\nd: -1\ne: x\n")) == {"a": 1, "c": 4}
    assert ethtool.counters(said("a: 1\nb: 12", status=None)) == {"a": 1}  # of 1234, perhaps
    refused(ethtool.counters, said("NIC statistics:\n"))


ALL = [
    (ethtool.link, settings_of()),
    (ethtool.link, '[{"ifname":"a","speed":100000,"duplex":"Full","link-detected":true}]'),
    (ethtool.driver, "driver: mlx5_core\nversion: 1\n"),
    (ethtool.pause, "Pause parameters for a:\nRX:\ton\n"),
    (ethtool.module, MODULE),
    (ethtool.features, "Features for a:\nrx-checksumming: on [fixed]\n"),
    (ethtool.features, '[{"ifname":"a","rx":{"active":true,"fixed":null}}]'),
    (ethtool.counters, MLX5),
    (ethtool.counters, '[{"ifname":"a","eth-phy":{"SymbolErrorDuringCarrier":0}}]'),
]


@pytest.mark.parametrize(("reader", "text"), ALL)
def test_any_bytes(reader: Reader, text: str) -> None:
    refuses_what_did_not_run(reader)
    survives(reader, said(text))


@pytest.mark.parametrize("name", ["bnxt_en", "i40e", "ice", "mlx5_core"])
def test_damaged_samples(name: str) -> None:
    survives(ethtool.counters, sample(f"ethtool/ethtool-S.{name}.txt"))
