"""What `ethtool` tells of a port: its link (plain), driver (-i), pause (-a), module (-m), counters (-S).

Formats: ethtool 4.x to 7.x, text and, where a version has it, --json.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gates.readers.error import (
    ReaderError,
    answer,
    document_of,
    integer,
    objects,
    shown,
    whole_lines,
    word,
)
from workloads.bundle import Output


@dataclass(frozen=True)
class Link:
    """How a port is linked."""

    speed_gbit_per_s: float | None  # None without a link, whatever is printed
    full_duplex: bool | None
    autonegotiation: bool | None
    detected: bool | None
    port: str | None  # FIBRE, Direct Attach Copper, Twisted Pair, ...


@dataclass(frozen=True)
class Driver:
    """A port's driver and firmware."""

    name: str | None
    version: str | None  # of an in-tree driver the kernel's
    firmware: str | None
    bus_id: str | None  # as printed


@dataclass(frozen=True)
class Pause:
    """Global pause frames (802.3x): off where PFC is on."""

    autonegotiate: bool | None
    receive: bool | None
    transmit: bool | None


@dataclass(frozen=True)
class Module:
    """A cable or transceiver."""

    identifier: str | None  # QSFP28, SFP, ...
    connector: str | None
    vendor: str | None
    part_number: str | None
    serial: str | None
    temperature_c: float | None
    alarms: tuple[str, ...]  # what the module itself says is too high or too low


def link(output: Output) -> Link:
    """Return a port's link. Raises ReaderError: no settings ("No data available"), more than one port."""
    found = answer(output)
    if found.lstrip()[:1] == "[":
        told = _one(found, output)
        speed = integer(told.get("speed"))
        autonegotiation, detected = _bool(told.get("auto-negotiation")), _bool(told.get("link-detected"))
    else:
        told = _settings(found, "Settings for", output)
        named = re.search(r"^Settings for (\S+):", found, re.MULTILINE)
        if named and output.argv[:1] == ("ethtool",) and named[1] not in output.argv:
            raise ReaderError(f"{output.command}: tells of {shown(named[1])}")
        match = re.fullmatch(r"(\d{1,9})Mb/s(?: .*)?", told.get("Speed", ""))
        speed = int(match[1]) if match else None
        autonegotiation, detected = _bool(told.get("Auto-negotiation")), _bool(told.get("Link detected"))
    duplex = word(told.get("Duplex", told.get("duplex")))
    unknown = not speed or speed >= 0xFFFFFFFF or not detected  # drivers print what they could do, too
    return Link(
        speed_gbit_per_s=None if unknown or speed is None else speed / 1000,
        full_duplex={"full": True, "half": False}.get((duplex or "").lower()),
        autonegotiation=autonegotiation,
        detected=detected,
        port=word(told.get("Port", told.get("port"))),
    )


def driver(output: Output) -> Driver:
    """Return what `ethtool -i` tells. Raises ReaderError: no driver named."""
    told = _pairs(answer(output))
    if not told.get("driver"):
        raise ReaderError(f"{output.command}: names no driver, but prints {shown(answer(output))}")
    return Driver(
        word(told.get("driver")),
        word(told.get("version")),
        word(told.get("firmware-version")),
        word(told.get("bus-info")),
    )


def pause(output: Output) -> Pause:
    """Return what `ethtool -a` tells. Raises ReaderError: it tells nothing, as where the driver has no pause."""
    found = answer(output)
    if found.lstrip()[:1] == "[":
        told = _one(found, output)
        return Pause(_bool(told.get("autonegotiate")), _bool(told.get("rx")), _bool(told.get("tx")))
    told = _settings(found, "Pause parameters for", output)
    return Pause(_bool(told.get("Autonegotiate")), _bool(told.get("RX")), _bool(told.get("TX")))


def module(output: Output) -> Module:
    """Return what `ethtool -m` tells as text. Raises ReaderError: no module's identifier in it, as in a hex dump."""
    told = _pairs(answer(output))
    if "Identifier" not in told:
        raise ReaderError(f"{output.command}: identifies no module, but prints {shown(answer(output))}")
    warmth = re.match(r"(-?\d{1,3}(?:\.\d{1,4})?) degrees C", told.get("Module temperature", ""))
    return Module(
        identifier=_named(told.get("Identifier")),
        connector=_named(told.get("Connector")),
        vendor=word(told.get("Vendor name")),
        part_number=word(told.get("Vendor PN")),
        serial=word(told.get("Vendor SN")),
        temperature_c=float(warmth[1]) if warmth else None,
        alarms=tuple(
            sorted(name for name, said in told.items() if re.search(" alarm$| warning$", name) and said == "On")
        ),
    )


def features(output: Output) -> dict[str, bool]:
    """Return what `ethtool -k` tells, text or --json: each feature, on or off. Raises ReaderError: none."""
    found = answer(output)
    if found.lstrip()[:1] == "[":
        told = {
            name: value.get("active")
            for name, value in _one(found, output).items()
            if isinstance(value, dict) and isinstance(value.get("active"), bool)
        }
    else:
        said = _settings(found, "Features for", output)
        told = {name: _bool(value.partition(" ")[0]) for name, value in said.items()}
    read = {name: value for name, value in told.items() if value is not None}
    if not read:
        raise ReaderError(f"{output.command}: tells no feature, but {shown(found)}")
    return read


def counters(output: Output) -> dict[str, int]:
    """Return what `ethtool -S` counts, by the driver's own names: text, or --json where groups were asked for.

    A name that is printed twice with two values is left out: which is meant, nobody can tell. Raises ReaderError: none.
    """
    found = answer(output)
    read: dict[str, int | None] = {}
    if found.lstrip()[:1] == "[":
        for group, values in _one(found, output).items():
            for name, value in values.items() if isinstance(values, dict) else ():
                read[f"{group}-{name}"] = integer(value)
    else:
        for line in whole_lines(found, output):
            name, colon, value = line.rpartition(":")
            count = integer(value) if value[:1].isspace() else None
            if colon and name.strip() and count is not None:
                read[name.strip()] = None if read.get(name.strip(), count) != count else count
    known = {name: value for name, value in read.items() if value is not None}
    if not known:
        raise ReaderError(f"{output.command}: counts nothing, but prints {shown(found)}")
    return known


def _settings(found: str, title: str, output: Output) -> dict[str, str]:
    lines = found.splitlines()
    if sum(line.startswith(title) for line in lines) != 1:
        raise ReaderError(f"{output.command}: must show '{title}' one port, but prints {shown(found)}")
    return _pairs("\n".join(line for line in lines if not line.startswith(title)))


def _pairs(found: str) -> dict[str, str]:
    """Return the first value of each 'key: value'; a line that only goes on has no key."""
    read: dict[str, str] = {}
    for line in found.splitlines():
        key, colon, value = line.partition(":")
        if colon and key.strip():
            read.setdefault(key.strip(), value.strip())
    return read


def _one(found: str, output: Output) -> dict[str, Any]:
    items = objects(document_of(found, output), output)
    if len(items) != 1:
        raise ReaderError(f"{output.command}: must tell of one port, not of {len(items)}")
    return items[0]


def _bool(found: object) -> bool | None:
    if isinstance(found, str):
        # The reason of a link that is down follows in brackets: "no (No cable)".
        return {"on": True, "yes": True, "off": False, "no": False}.get(found.partition(" (")[0].strip().lower())
    return found if isinstance(found, bool) else None


def _named(found: str | None) -> str | None:
    """Return the words of '0x11 (QSFP28)'."""
    match = re.fullmatch(r"0x[0-9a-fA-F]+ \((.*)\)", found or "")
    return word(match[1] if match else found)


# What is lost, or slows a port, under one name for every driver. mlx5: en_stats.c; bnxt_en: bnxt_ethtool.c; ice and
# i40e: ice_ethtool.c, i40e_ethtool.c; eth-*: the standard groups. The first name that a port has is taken.
LOSS_NAMES: Mapping[str, tuple[str, ...]] = {
    "receive_discards": ("rx_discards_phy", "rx_stat_discard", "rx_dropped.nic", "port.rx_dropped"),
    "transmit_discards": (
        "tx_discards_phy",
        "tx_stat_discard",
        "tx_dropped_link_down.nic",
        "port.tx_dropped_link_down",
    ),
    "out_of_buffer": ("rx_out_of_buffer", "rx_total_ring_discards", "rx_total_discard_pkts", "rx_dropped"),
    "crc_errors": (
        "rx_crc_errors_phy",
        "rx_fcs_err_frames",
        "rx_crc_errors.nic",
        "port.rx_crc_errors",
        "eth-mac-FrameCheckSequenceErrors",
    ),
    "symbol_errors": (
        "rx_symbol_err_phy",
        "rx_pcs_symbol_err",
        "illegal_bytes.nic",
        "port.illegal_bytes",
        "eth-phy-SymbolErrorDuringCarrier",
    ),
    "link_downs": ("link_down_events_phy", "link_down_events"),
    "receive_pause_frames": ("rx_pause_ctrl_phy", "rx_pause_frames", "link_xoff_rx.nic", "port.link_xoff_rx"),
    "transmit_pause_frames": ("tx_pause_ctrl_phy", "tx_pause_frames", "link_xoff_tx.nic", "port.link_xoff_tx"),
    "ecn_marked": ("rx_ecn_mark",),
}
# The same by priority: {} stands for its number.
PRIORITY_NAMES: Mapping[str, tuple[str, ...]] = {
    "receive_packets": ("rx_prio{}_packets", "rx_packets_pri{}"),
    "transmit_packets": ("tx_prio{}_packets", "tx_packets_pri{}"),
    "receive_pfc_frames": (
        "rx_prio{}_pause",
        "rx_pfc_ena_frames_pri{}",
        "rx_priority_{}_xoff.nic",
        "port.rx_priority_{}_xoff",
    ),
    "transmit_pfc_frames": (
        "tx_prio{}_pause",
        "tx_pfc_ena_frames_pri{}",
        "tx_priority_{}_xoff.nic",
        "port.tx_priority_{}_xoff",
    ),
    "receive_discards": ("rx_prio{}_discards", "rx_discard_packets_cos{}"),
}


@dataclass(frozen=True)
class Priority:
    """The counters of one priority. None: the driver has no such counter."""

    receive_packets: int | None
    transmit_packets: int | None
    receive_pfc_frames: int | None
    transmit_pfc_frames: int | None
    receive_discards: int | None


@dataclass(frozen=True)
class Losses:
    """What a port lost, and how it was slowed. None: the driver has no such counter."""

    receive_discards: int | None
    transmit_discards: int | None
    out_of_buffer: int | None
    crc_errors: int | None
    symbol_errors: int | None
    link_downs: int | None
    receive_pause_frames: int | None
    transmit_pause_frames: int | None
    ecn_marked: int | None
    priorities: tuple[Priority, ...]  # 8 of them


def losses(counted: Mapping[str, int]) -> Losses:
    """Return a port's counters of loss under one name for every driver."""

    def first(names: tuple[str, ...], priority: int | None = None) -> int | None:
        wanted = (name.format(priority) for name in names)
        return next((counted[name] for name in wanted if name in counted), None)

    return Losses(
        **{key: first(names) for key, names in LOSS_NAMES.items()},
        priorities=tuple(
            Priority(**{key: first(names, priority) for key, names in PRIORITY_NAMES.items()}) for priority in range(8)
        ),
    )
