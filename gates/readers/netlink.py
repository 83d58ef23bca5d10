"""`ip -j link`, `ip -j -s link`, `ip -j addr`: network interfaces. Formats: iproute2, ipaddress.c, 4.14 to 6.x."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gates.readers.error import ReaderError, answer, document_of, integer, objects, word
from workloads.bundle import Output


@dataclass(frozen=True)
class Address:
    """One address of an interface."""

    family: str  # inet, inet6
    address: str
    prefix_bits: int | None
    scope: str | None  # global, link, host


@dataclass(frozen=True)
class Interface:
    """One network interface."""

    name: str
    mtu_bytes: int | None
    state: str | None  # UP, DOWN, LOWERLAYERDOWN, UNKNOWN as of lo
    enabled: bool | None  # the administrator's UP
    carrier: bool | None
    kind: str | None  # ether, loopback, infiniband
    mac: str | None
    master: str | None  # the bond or bridge that it belongs to
    parent: str | None  # PCI address, or virtio4
    addresses: tuple[Address, ...]  # () also where the command does not ask for them
    counters: Mapping[str, int]  # rx_dropped, tx_carrier_errors, ...; {} without -s


def interfaces(output: Output) -> tuple[Interface, ...]:
    """Return the interfaces in the tool's order. Raises ReaderError: no list of interfaces, or one twice.

    `ip -j -4 addr` writes an empty object for every interface that it leaves out.
    """
    read = [_interface(item, output) for item in objects(document_of(answer(output), output), output)]
    if not read:
        raise ReaderError(f"{output.command}: shows no interface, not even lo")
    if len({interface.name for interface in read}) < len(read):
        raise ReaderError(f"{output.command}: shows one interface twice")
    return tuple(read)


def _interface(item: dict[str, Any], output: Output) -> Interface:
    name = word(item.get("ifname"))
    if name is None:
        raise ReaderError(f"{output.command}: an interface has no ifname")
    raw_flags = item.get("flags")
    flags = {flag for flag in raw_flags if isinstance(flag, str)} if isinstance(raw_flags, list) else None
    return Interface(
        name=name,
        mtu_bytes=integer(item.get("mtu")),
        state=word(item.get("operstate")),
        enabled=None if flags is None else "UP" in flags,
        carrier=None if flags is None else "LOWER_UP" in flags and "NO-CARRIER" not in flags,
        kind=word(item.get("link_type")),
        mac=word(item.get("address")),
        master=word(item.get("master")),
        parent=word(item.get("parentdev")),
        addresses=tuple(_addresses(item.get("addr_info"))),
        counters=_counters(item.get("stats64", item.get("stats"))),
    )


def _addresses(found: object) -> list[Address]:
    read = []
    for item in found if isinstance(found, list) else []:
        if not isinstance(item, dict):
            continue
        family, address = word(item.get("family")), word(item.get("local"))
        if family is not None and address is not None:
            read.append(Address(family, address, integer(item.get("prefixlen")), word(item.get("scope"))))
    return read


def _counters(found: object) -> dict[str, int]:
    read = {}
    for direction in ("rx", "tx"):
        part = found.get(direction) if isinstance(found, dict) else None
        for name, value in part.items() if isinstance(part, dict) else ():
            if (count := integer(value)) is not None:
                read[f"{direction}_{name}"] = count
    return read
