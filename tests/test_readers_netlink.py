"""ip -j: interfaces, their addresses and counters."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gates.readers.netlink import Address, interfaces
from tests.reader_samples import lab, of_lab, refused, refuses_what_did_not_run, said, survives

PORT: dict[str, Any] = {
    "ifindex": 2,
    "ifname": "ens1f0",
    "flags": ["BROADCAST", "MULTICAST", "UP", "LOWER_UP"],
    "mtu": 9000,
    "operstate": "UP",
    "link_type": "ether",
    "address": "0c:42:a1:00:00:01",
    "master": "bond0",
    "parentdev": "0000:41:00.0",
}


def one(**change: Any) -> Any:
    (interface,) = interfaces(said(json.dumps([{**PORT, **change}])))
    return interface


def test_an_interface() -> None:
    found = one()
    assert (found.name, found.mtu_bytes, found.state, found.enabled, found.carrier) == (
        "ens1f0",
        9000,
        "UP",
        True,
        True,
    )
    assert (found.kind, found.master, found.parent) == ("ether", "bond0", "0000:41:00.0")
    assert found.addresses == () and found.counters == {}


@pytest.mark.parametrize(
    ("flags", "enabled", "carrier"),
    [
        (["BROADCAST", "UP", "LOWER_UP"], True, True),
        (["NO-CARRIER", "BROADCAST", "UP"], True, False),
        (["BROADCAST"], False, False),
        (None, None, None),
        ("UP", None, None),
    ],
)
def test_what_the_flags_say(flags: object, enabled: bool | None, carrier: bool | None) -> None:
    found = one(flags=flags)
    assert (found.enabled, found.carrier) == (enabled, carrier)


def test_addresses_and_counters() -> None:
    found = one(
        addr_info=[
            {"family": "inet", "local": "192.168.50.2", "prefixlen": 24, "scope": "global"},
            {"family": "inet6", "local": "fe80::1", "scope": "link"},
            {"family": "inet"},
            "none",
        ],
        stats64={"rx": {"dropped": 3, "errors": "x"}, "tx": None},
    )
    assert found.addresses == (Address("inet", "192.168.50.2", 24, "global"), Address("inet6", "fe80::1", None, "link"))
    assert found.counters == {"rx_dropped": 3}


def test_a_filter_leaves_empty_objects() -> None:
    (found,) = interfaces(said(json.dumps([{}, PORT, {}])))
    assert found.name == "ens1f0"
    refused(interfaces, said("[{},{}]"))
    refused(interfaces, said("[]"))


def test_other_types_are_unknown() -> None:
    found = one(mtu="9000x", operstate=7, address=None, addr_info={}, stats64=[])
    assert (found.mtu_bytes, found.state, found.mac, found.addresses, found.counters) == (None, None, None, (), {})


def test_the_lab() -> None:
    for _, output in of_lab("ip -j -d link show"):
        lo, first, second = interfaces(output)
        assert (lo.state, lo.kind) == ("UNKNOWN", "loopback")
        assert (first.name, first.mtu_bytes, first.carrier, first.parent) == ("fab0", 9000, True, "virtio4")
        assert second.name == "fab1"
    healthy = lab("healthy")
    addresses, counters = healthy.find("ip", "-j", "addr", "show"), healthy.find("ip", "-j", "-s", "-s", "link", "show")
    assert addresses is not None and counters is not None
    assert interfaces(addresses)[1].addresses[0] == Address("inet", "192.168.50.2", 24, "global")
    told = interfaces(counters)[1].counters
    assert (told["rx_dropped"], told["rx_crc_errors"], told["tx_carrier_changes"]) == (0, 0, 2)
    survives(interfaces, addresses, counters)


def test_what_is_refused() -> None:
    refuses_what_did_not_run(interfaces)
    assert "twice" in refused(interfaces, said(json.dumps([PORT, PORT])))
    assert "no ifname" in refused(interfaces, said('[{"ifindex": 1}]'))
    refused(interfaces, said('{"ifname": "a"}'))
    refused(interfaces, said(json.dumps([PORT])[:-9]))
