"""RDMA ports, their addresses and counters, as rdma, ibstat, ibstatus, ibv_devinfo, show_gids and sysfs show them.

Formats: iproute2's rdma (link.c, stat.c), rdma-core's ibstat.c, ibstatus and devinfo.c.
"""

from __future__ import annotations

import ipaddress
import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from gates.readers.error import (
    ReaderError,
    answer,
    document_of,
    identity,
    integer,
    objects,
    shown,
    whole_lines,
    word,
)
from workloads.bundle import Output

ACTIVE, LINK_UP = "ACTIVE", "LINK_UP"

# The tools' words for the same state, without what is no letter.
_STATES = {"INITIALIZING": "INIT", "LINKUP": LINK_UP, "ACTIVEDEFER": "ACTIVE_DEFER", "LINKERRORRECOVERY": "LINK_ERROR"}
_STATES |= {"LINKERRORRECOVER": "LINK_ERROR", "PHYTEST": "PHY_TEST"}
_GBIT = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,3})?)(?:\s|$)")


@dataclass(frozen=True)
class Gid:
    """One entry of a port's address table."""

    index: int
    gid: str  # shortest form
    type: str | None  # "RoCE v1", "RoCE v2", "IB"; None: not told, as by old ibv_devinfo
    ipv4: str | None  # the address that an IPv4-mapped entry carries
    link_local: bool
    netdev: str | None = None


@dataclass(frozen=True)
class Port:
    """One port of an RDMA device."""

    device: str
    port: int
    state: str | None = None  # ACTIVE, DOWN, INIT, ARMED, ACTIVE_DEFER
    physical_state: str | None = None  # LINK_UP, DISABLED, POLLING, ...
    link_layer: str | None = None  # Ethernet, InfiniBand
    netdev: str | None = None
    rate_gbit_per_s: float | None = None  # all lanes; None for a port that is not up, whatever rate was printed
    max_mtu_bytes: int | None = None
    active_mtu_bytes: int | None = None
    firmware: str | None = None
    board_id: str | None = None
    part_id: int | None = None
    gids: tuple[Gid, ...] = ()

    @property
    def up(self) -> bool | None:
        """Return whether the port carries traffic; None where its state is not told."""
        if self.state is None:
            return None
        return self.state == ACTIVE and self.physical_state in (None, LINK_UP)


@dataclass(frozen=True)
class PortCounters:
    """The counters of one port; one that the driver does not have is not in it."""

    device: str
    port: int
    counters: Mapping[str, int]


@dataclass(frozen=True)
class RdmaLosses:
    """What a port lost or had to send again, and how it was slowed. None: the driver has no such counter."""

    out_of_sequence: int | None
    packet_sequence_errors: int | None
    ack_timeouts: int | None
    receiver_not_ready: int | None
    retries_exceeded: int | None
    out_of_buffer: int | None
    link_downed: int | None
    ecn_marked: int | None
    cnp_sent: int | None
    cnp_handled: int | None


# mlx5 (NVIDIA's "hw_counters" page), bnxt_re (hw_counters.c), irdma (hw.c), rxe (rxe_hw_counters.c), in this order.
LOSS_NAMES: Mapping[str, tuple[str, ...]] = {
    "out_of_sequence": ("out_of_sequence", "oos_drop_count", "out_of_seq_request"),
    "packet_sequence_errors": ("packet_seq_err", "seq_err_naks_rcvd", "rcvd_seq_err"),
    "ack_timeouts": ("local_ack_timeout_err", "to_retransmits", "completer_retry_err"),
    "receiver_not_ready": ("rnr_nak_retry_err", "rnr_naks_rcvd", "rcvd_rnr_err"),
    "retries_exceeded": ("max_retry_exceeded", "retry_exceeded_err"),
    "out_of_buffer": ("out_of_buffer", "res_oob_drop_count"),
    "link_downed": ("link_downed",),
    "ecn_marked": ("np_ecn_marked_roce_packets", "rx_ecn_marked_pkts", "RxECNMrkd"),
    "cnp_sent": ("np_cnp_sent", "tx_cnp_pkts", "cnpSent"),
    "cnp_handled": ("rp_cnp_handled", "rx_cnp_pkts", "cnpHandled"),
}


def losses(counters: Mapping[str, int]) -> RdmaLosses:
    """Return the counters of loss under one name for every driver."""

    def first(names: tuple[str, ...]) -> int | None:
        return next((counters[name] for name in names if name in counters), None)

    return RdmaLosses(**{key: first(names) for key, names in LOSS_NAMES.items()})


def links(output: Output) -> tuple[Port, ...]:
    """Return the ports that `rdma link show` tells, with -j or as text. () is no RDMA device.

    Raises ReaderError: neither form, a port twice.
    """
    found = answer(output)
    ports = []
    if found.lstrip()[:1] == "[":
        for item in objects(document_of(found, output), output):
            device, port = _device_port(item.get("ifname"), item.get("port"), output)
            told = {key: word(item.get(key)) for key in ("state", "physical_state", "netdev")}
            ports.append(_link(device, port, told))
    else:
        for line in found.splitlines():
            if match := re.match(r"(?:link |\d+/\d+: )([^\s/]+)/(\d{1,5}):? (.*)", line):
                words = match[3].split()
                ports.append(_link(match[1], int(match[2]), dict(itertools.pairwise(words))))
        if not ports:
            raise ReaderError(f"{output.command}: shows no link, but {shown(found)}")
    return _once(ports, output)


def statistics(output: Output) -> tuple[PortCounters, ...]:
    """Return the counters that `rdma statistic show` tells of each port, with -j or as text. Raises ReaderError."""
    found = answer(output)
    read = []
    if found.lstrip()[:1] == "[":
        for item in objects(document_of(found, output), output):
            device, port = _device_port(item.get("ifname"), item.get("port"), output)
            counts = {name: integer(value) for name, value in item.items() if name not in ("ifindex", "port")}
            read.append(PortCounters(device, port, _known(counts)))
    else:
        for line in whole_lines(found, output):
            if match := re.match(r"link ([^\s/]+)/(\d{1,5}) (.*)", line):
                words = match[3].split()
                counts = {name: integer(value) for name, value in zip(words[::2], words[1::2], strict=False)}
                read.append(PortCounters(match[1], int(match[2]), _known(counts)))
        if not read:
            raise ReaderError(f"{output.command}: shows no counters of a link, but {shown(found)}")
    if len({(one.device, one.port) for one in read}) < len(read):
        raise ReaderError(f"{output.command}: shows one port twice")
    return tuple(read)


def hw_counters(output: Output) -> dict[str, int]:
    """Return the counters of lines 'name:value', 'name value' or 'name = value', a path before the name left out.

    Raises ReaderError: no counter, one twice (the lines of one port are wanted).
    """
    read: dict[str, int] = {}
    for line in whole_lines(answer(output), output):
        told = " ".join(line.split())
        match = re.fullmatch(r"(?:[^ ]*/)?(\w+)(?: ?[:=] ?| )'?(\d{1,39})'?", told)
        if match is None:
            continue
        if match[1] in read:
            raise ReaderError(f"{output.command}: tells {match[1]} twice: ask for the counters of one port")
        read[match[1]] = int(match[2])
    if not read:
        raise ReaderError(f"{output.command}: tells no counter, but {shown(answer(output))}")
    return read


def ibstat(output: Output) -> tuple[Port, ...]:
    """Return the ports that `ibstat` shows. Raises ReaderError: none, as it prints where there is no device."""
    device: str | None = None
    drafts: list[_Draft] = []
    common: dict[str, str] = {}
    for line in answer(output).splitlines():
        if match := re.match(r"(?:CA|RNIC|iWARP RNIC) '([^']+)'", line):
            device, common = match[1], {}
        elif device is not None and (match := re.fullmatch(r"\s*Port (\d{1,5}):\s*", line)):
            drafts.append(_Draft(device, int(match[1]), dict(common)))
        elif device is not None and (pair := _pair(line)):
            target = drafts[-1].told if drafts and drafts[-1].device == device else common
            target.setdefault(*pair)
    return _once([_ib_port(draft, "state", "physical state", "link layer") for draft in drafts], output, needed=True)


def ibstatus(output: Output) -> tuple[Port, ...]:
    """Return the ports that `ibstatus` shows. Raises ReaderError: none."""
    drafts: list[_Draft] = []
    for line in answer(output).splitlines():
        if match := re.match(r"Infiniband device '([^']+)' port (\d{1,5}) status:", line):
            drafts.append(_Draft(match[1], int(match[2])))
        elif drafts and (pair := _pair(line)):
            drafts[-1].told.setdefault(*pair)
    return _once([_ib_port(draft, "state", "phys state", "link_layer") for draft in drafts], output, needed=True)


def devices(output: Output) -> tuple[Port, ...]:
    """Return the ports that `ibv_devinfo` shows; with -v their GIDs, rate and physical state, too.

    Raises ReaderError: none, as where it says "No IB devices found".
    """
    device: str | None = None
    common: dict[str, str] = {}
    drafts: list[_Draft] = []
    for line in answer(output).splitlines():
        if match := re.match(r"hca_id:\s*(\S+)", line):
            device, common = match[1], {}
        elif device is not None and (match := re.fullmatch(r"\s+port:\s*(\d{1,5})\s*", line)):
            drafts.append(_Draft(device, int(match[1]), dict(common)))
        elif match := re.fullmatch(r"\s+GID\[\s*(\d{1,5})\]:\s*([0-9a-fA-F:.]+)(?:, (.+))?", line):
            if drafts and (gid := gid_of(int(match[1]), match[2], match[3])) is not None:
                drafts[-1].gids.append(gid)
        elif device is not None and (pair := _pair(line)):
            target = drafts[-1].told if drafts and drafts[-1].device == device else common
            target.setdefault(*pair)
    return _once([_verbs_port(draft) for draft in drafts], output, needed=True)


def show_gids(output: Output) -> dict[tuple[str, int], tuple[Gid, ...]]:
    """Return the GIDs of each (device, port) that `show_gids` lists.

    Raises ReaderError: none, or not as many as it says.
    """
    read: dict[tuple[str, int], list[Gid]] = {}
    count: int | None = None
    for line in answer(output).splitlines():
        words = line.split()
        if match := re.fullmatch(r"n_gids_found=(\d{1,9})", line.strip()):
            count = int(match[1])
        elif len(words) >= 4 and words[1].isascii() and words[1].isdecimal() and integer(words[2]) is not None:
            version = next((w for w in words[4:] if re.fullmatch("[vV][12]", w)), None)
            gid = gid_of(int(words[2][:5]), words[3], f"RoCE {version.lower()}" if version else None)
            if gid is not None:
                named = words[-1] if version is not None and words[-1] != version else None
                read.setdefault((words[0], int(words[1][:5])), []).append(replace(gid, netdev=named))
    found = sum(len(gids) for gids in read.values())
    if not found or (count is not None and count != found):
        said = "" if count is None else f", it says that it found {count}"
        raise ReaderError(f"{output.command}: shows {found} GIDs{said}")
    return {port: tuple(gids) for port, gids in read.items()}


def port_of_sysfs(device: str, port: int, told: Mapping[str, str], gids: tuple[Gid, ...]) -> Port:
    """Return the port that its attributes in sysfs, and its device's, tell of."""
    read = Port(
        device=device,
        port=port,
        state=_state(told.get("state")),
        physical_state=_state(told.get("phys_state")),
        link_layer=_layer(told.get("link_layer")),
        netdev=next((gid.netdev for gid in gids if gid.netdev is not None), None),
        rate_gbit_per_s=_rate(told.get("rate")),
        firmware=word(told.get("fw_ver")),
        board_id=word(told.get("board_id")),
        gids=gids,
    )
    return _up(read)


def gid_of(index: int, address: str, kind: str | None) -> Gid | None:
    """Return a GID from its text and type, None for the empty one and for what is none."""
    try:
        read = ipaddress.IPv6Address(address.strip())
    except ValueError:
        return None
    if not int(read):
        return None
    types = {"rocev1": "RoCE v1", "rocev2": "RoCE v2", "ib/rocev1": "RoCE v1", "ib": "IB"}
    told = types.get("".join((kind or "").lower().split()))
    mapped = read.ipv4_mapped
    return Gid(index, read.compressed, told, str(mapped) if mapped else None, read.is_link_local)


@dataclass
class _Draft:
    device: str
    port: int
    told: dict[str, str] = field(default_factory=dict)
    gids: list[Gid] = field(default_factory=list)


def _pair(line: str) -> tuple[str, str] | None:
    key, colon, value = line.partition(":")
    return (key.strip().lower(), value.strip()) if colon and key[:1].isspace() else None


def _state(found: str | None) -> str | None:
    """Return one word for 'PORT_ACTIVE (4)', '4: ACTIVE' and 'Active'; None for what a tool has no word for."""
    if found is None:
        return None
    named = re.sub(r"^\d+:|\(\d+\)$", "", found.strip()).strip().upper().removeprefix("PORT_")
    bare = re.sub(r"[^A-Z]", "", named)
    if not bare or bare.startswith("INVALID") or bare in ("UNKNOWN", "NA"):
        return None
    return _STATES.get(bare, named.replace(" ", "_"))


def _rate(found: str | None) -> float | None:
    match = _GBIT.match(found or "")
    return (float(match[1]) or None) if match else None


def _up(port: Port) -> Port:
    """Return the port without the rate, if it is not up: drivers print one for a port that is down."""
    return port if port.up else replace(port, rate_gbit_per_s=None)


def _link(device: str, port: int, told: Mapping[str, str | None]) -> Port:
    states = _state(told.get("state")), _state(told.get("physical_state"))
    return Port(device, port, *states, netdev=told.get("netdev"))


def _ib_port(draft: _Draft, state: str, physical: str, layer: str) -> Port:
    told = draft.told
    return _up(
        Port(
            device=draft.device,
            port=draft.port,
            state=_state(told.get(state)),
            physical_state=_state(told.get(physical)),
            link_layer=_layer(told.get(layer)),
            rate_gbit_per_s=_rate(told.get("effective speed")) or _rate(told.get("rate")),
            firmware=word(told.get("firmware version")),
        )
    )


def _verbs_port(draft: _Draft) -> Port:
    told = draft.told
    lane, width = _rate(told.get("active_speed")), re.match(r"(\d{1,2})X ", told.get("active_width", ""))
    return _up(
        Port(
            device=draft.device,
            port=draft.port,
            state=_state(told.get("state")),
            physical_state=_state(told.get("phys_state")),
            link_layer=_layer(told.get("link_layer")),
            rate_gbit_per_s=_rate(told.get("effective_speed")) or (lane * int(width[1]) if lane and width else None),
            max_mtu_bytes=_mtu(told.get("max_mtu")),
            active_mtu_bytes=_mtu(told.get("active_mtu")),
            firmware=word(told.get("fw_ver")),
            board_id=word(told.get("board_id")),
            part_id=identity(told.get("vendor_part_id")),
            gids=tuple(draft.gids),
        )
    )


def _layer(found: str | None) -> str | None:
    return {"ethernet": "Ethernet", "infiniband": "InfiniBand", "ib": "InfiniBand"}.get((found or "").lower())


def _mtu(found: str | None) -> int | None:
    match = re.fullmatch(r"(\d{3,5}) \(\d\)", found or "")
    return int(match[1]) if match else None


def _device_port(name: object, port: object, output: Output) -> tuple[str, int]:
    """Return device and port; old versions write "mlx5_0/1" as the name. Raises ReaderError."""
    device, _, number = (word(name) or "").partition("/")
    index = integer(port) if port is not None else integer(number)
    if not device or index is None:
        raise ReaderError(f"{output.command}: an entry names no device and port")
    return device, index


def _known(counts: Mapping[str, int | None]) -> dict[str, int]:
    return {name: count for name, count in counts.items() if count is not None}


def _once(ports: list[Port], output: Output, *, needed: bool = False) -> tuple[Port, ...]:
    if needed and not ports:
        raise ReaderError(f"{output.command}: shows no port, but {shown(answer(output))}")
    if len({(port.device, port.port) for port in ports}) < len(ports):
        raise ReaderError(f"{output.command}: shows one port twice")
    return tuple(ports)
