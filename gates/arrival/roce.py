"""RoCE ports: up, as fast as ordered, with the MTU, addresses, priorities and drivers that were ordered."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from gates.arrival import topology
from gates.arrival.check import Collector, Finding, Plan, finding, same, unseen
from gates.arrival.host import Host, Seen
from gates.arrival.limits import Limit, Limits
from gates.nodata import NoData
from gates.readers import counters, ethtool, netlink, qos, rdma, rdma_sysfs
from scenarios.bom import Bom, RocePort

IP_LINK = (
    ("ip", "-j", "-d", "link", "show"),
    ("ip", "-j", "-s", "-s", "link", "show"),
    ("ip", "-j", "link", "show"),
    ("ip", "-j", "addr", "show"),
)
RDMA_LINK = (("rdma", "-j", "link", "show"), ("rdma", "-d", "-j", "link", "show"), ("rdma", "link", "show"))
VERBS = (("ibv_devinfo", "-v"), ("ibv_devinfo",))
STATISTICS = ("rdma", "-j", "statistic", "show")
# What is lost; ECN marks and CNPs are how congestion is avoided, and no loss.
LOST = tuple(key for key in rdma.LOSS_NAMES if key not in ("ecn_marked", "cnp_sent", "cnp_handled"))

NO_LOSS = ("receive_pause_frames", "transmit_pause_frames", "ecn_marked")


def plan(bom: Bom, limits: Limits) -> Plan:
    """Return the checks of the declared ports."""
    gathered = Collector()
    for name, wanted in bom.ports.items():
        at = f"ports.{name}"
        gathered.add(at, "link", "up", partial(_link, wanted))
        speed = None if wanted.speed_gbit_per_s is None else f"{wanted.speed_gbit_per_s:g} Gbit/s"
        gathered.add(at, "speed", speed, partial(_speed, wanted))
        gathered.add(at, "mtu_bytes", wanted.mtu_bytes, partial(_mtu, wanted))
        gathered.add(at, "active_mtu_bytes", wanted.active_mtu_bytes, partial(_active_mtu, wanted))
        gid = wanted.gid_type and wanted.gid_type + (", IPv4-mapped" if wanted.gid_ipv4 else "")
        gathered.add(at, "gid", gid or ("IPv4-mapped" if wanted.gid_ipv4 else None), partial(_gid, wanted))
        pfc = None if wanted.pfc_priority is None else f"PFC on priority {wanted.pfc_priority} alone"
        gathered.add(at, "pfc", pfc, partial(_pfc, wanted))
        gathered.add(at, "trust", wanted.trust, partial(_trust, wanted))
        gathered.add(at, "ecn", None if wanted.ecn is None else "on" if wanted.ecn else "off", partial(_ecn, wanted))
        gathered.add(at, "driver", wanted.driver, partial(_driver, wanted, "driver", wanted.driver, lambda d: d.name))
        gathered.add(
            at, "firmware", wanted.firmware, partial(_driver, wanted, "firmware", wanted.firmware, lambda d: d.firmware)
        )
        limit = limits.of("loss")
        declared = f"{limit.operator} {limit.limit:g} {limit.unit} under load" if wanted.lossless else None
        gathered.add(at, "loss", declared, partial(_loss, wanted, limit), limit)
    if not bom.ports:
        gathered.lacks("ports", "link")
    return gathered.plan()


def _interface(wanted: RocePort, host: Host) -> Seen[netlink.Interface]:
    seen = host.read(netlink.interfaces, *IP_LINK)
    if isinstance(seen.value, NoData):
        return Seen(seen.value, seen.raw)
    found = next((each for each in seen.value if each.name == wanted.netdev), None)
    return Seen(found or NoData(f"{wanted.netdev}: no such interface"), seen.raw)


def _port(wanted: RocePort, seen: Seen[tuple[rdma.Port, ...]]) -> Seen[rdma.Port]:
    if isinstance(seen.value, NoData):
        return Seen(seen.value, seen.raw)
    found = next((p for p in seen.value if (p.device, p.port) == (wanted.device, wanted.port)), None)
    return Seen(found or NoData(f"{wanted.device}/{wanted.port}: no such RDMA port"), seen.raw)


def _verbs(wanted: RocePort, host: Host) -> Seen[rdma.Port]:
    """Return the port as ibv_devinfo tells of it; else as ibstat does, which knows no MTU and no GIDs."""
    seen = host.read(rdma.devices, *VERBS)
    by_ibstat = host.read(rdma.ibstat, ("ibstat",))
    return _port(
        wanted, by_ibstat if isinstance(seen.value, NoData) and not isinstance(by_ibstat.value, NoData) else seen
    )


def _link(wanted: RocePort, host: Host) -> Finding:
    """Judge by every tool that tells: the interface, the cable's side of it, and the RDMA device above it."""
    faults: list[str] = []
    unknown: list[str] = []
    raw: list[str] = []
    told: list[str] = []
    if wanted.netdev is not None:
        listed = host.read(netlink.interfaces, *IP_LINK)
        raw += listed.raw
        interface = _interface(wanted, host)
        wire = host.read(ethtool.link, ("ethtool", wanted.netdev))
        raw += wire.raw
        states: list[tuple[str, bool | None]] = []
        if not isinstance(interface.value, NoData):
            states += [("enabled", interface.value.enabled), ("carrier", interface.value.carrier)]
            told.append(f"{wanted.netdev} {interface.value.state or ''}".strip())
        elif not isinstance(listed.value, NoData):
            faults.append(interface.value.reason)
        if not isinstance(wire.value, NoData):
            states.append(("link detected", wire.value.detected))
        faults += [f"{wanted.netdev}: {what}: no" for what, state in states if state is False]
        if not faults and not any(state for _, state in states):
            reasons = [s.value.reason for s in (interface, wire) if isinstance(s.value, NoData)]
            unknown.append("; ".join(reasons) or f"{wanted.netdev}: whether it has a link is not told")
    if wanted.device is not None:
        seen = host.read(rdma.links, *RDMA_LINK)
        port = _port(wanted, seen)
        if isinstance(seen.value, NoData):
            port = _verbs(wanted, host)
        raw += port.raw
        if isinstance(port.value, NoData):
            (unknown if isinstance(seen.value, NoData) else faults).append(port.value.reason)
        else:
            state = f"{wanted.device}/{wanted.port} {port.value.state} {port.value.physical_state or ''}".strip()
            told.append(state)
            if port.value.up is None:
                unknown.append(f"{wanted.device}/{wanted.port}: its state is not told")
            elif not port.value.up:
                faults.append(f"{state}, not ACTIVE and LINK_UP")
            if wanted.netdev and port.value.netdev and port.value.netdev != wanted.netdev:
                faults.append(f"{wanted.device}/{wanted.port} is {port.value.netdev}, {wanted.netdev} was declared")
    return finding(faults, ", ".join(told), ", ".join(told), raw, unknown)


def _speed(wanted: RocePort, host: Host) -> Finding:
    at = wanted.netdev or f"{wanted.device}/{wanted.port}"
    found: float | None = None
    reasons: list[str] = []
    raw: list[str] = []
    if wanted.netdev is not None:
        wire = host.read(ethtool.link, ("ethtool", wanted.netdev))
        raw += wire.raw
        if isinstance(wire.value, NoData):
            reasons.append(wire.value.reason)
        else:
            found = wire.value.speed_gbit_per_s
    if found is None and wanted.device is not None:
        port = _verbs(wanted, host)
        raw += port.raw
        if isinstance(port.value, NoData):
            reasons.append(port.value.reason)
        else:
            found = port.value.rate_gbit_per_s
    if found is None:
        return unseen("; ".join(reasons) or f"{at}: no speed is told, as of a port without a link", raw)
    told = f"{found:g} Gbit/s"
    faults = [] if found == wanted.speed_gbit_per_s else [f"{at}: {told}, {wanted.speed_gbit_per_s:g} were declared"]
    return finding(faults, told, f"{at}: {told}", raw)


def _mtu(wanted: RocePort, host: Host) -> Finding:
    seen = _interface(wanted, host)
    if isinstance(seen.value, NoData):
        return unseen(seen.value, seen.raw)
    return same(f"{wanted.netdev}: MTU", wanted.mtu_bytes, seen.value.mtu_bytes, seen.raw)


def _active_mtu(wanted: RocePort, host: Host) -> Finding:
    seen = _verbs(wanted, host)
    if isinstance(seen.value, NoData):
        return unseen(seen.value, seen.raw)
    at = f"{wanted.device}/{wanted.port}: RDMA's active MTU"
    return same(at, wanted.active_mtu_bytes, seen.value.active_mtu_bytes, seen.raw)


def _gid(wanted: RocePort, host: Host) -> Finding:
    """Judge whether one address serves: of the declared type, of IPv4 where declared, and never link-local alone."""
    seen = _verbs(wanted, host)
    gids: tuple[rdma.Gid, ...] = () if isinstance(seen.value, NoData) else seen.value.gids
    raw = seen.raw
    if not gids:
        for _, walked in host.read_all(rdma_sysfs.ports, "walk", "of"):
            for each in () if isinstance(walked.value, NoData) else walked.value:
                if (each.port.device, each.port.port) == (wanted.device, wanted.port):
                    gids, raw = each.port.gids, walked.raw
    at = f"{wanted.device}/{wanted.port}"
    if not gids:
        return unseen(seen.value if isinstance(seen.value, NoData) else f"{at}: no GID is told (ibv_devinfo -v)", raw)
    told = ", ".join(f"{gid.type or 'type not told'} {gid.ipv4 or gid.gid}" for gid in gids)
    served = [gid for gid in gids if not gid.link_local and (gid.ipv4 or not wanted.gid_ipv4)]
    if wanted.gid_type is None or any(gid.type == wanted.gid_type for gid in served):
        faults = [] if served else [f"{at}: no GID that serves ({told})"]
        return finding(faults, told, told, raw)
    if any(gid.type is None for gid in served):
        return unseen(f"{at}: the type of a GID is not told", raw)
    return finding([f"{at}: no {wanted.gid_type} GID that serves ({told})"], told, "", raw)


def _pfc(wanted: RocePort, host: Host) -> Finding:
    """Judge by mlnx_qos and by the kernel's own dcb: which one serves depends on the driver; both must agree."""
    by_mlnx = host.read(qos.qos, ("mlnx_qos", "-i", wanted.netdev or ""))
    by_dcb = host.read(qos.dcb_pfc, ("dcb", "-j", "pfc", "show", "dev", wanted.netdev or ""))
    told: dict[tuple[bool, ...], None] = {}
    if not isinstance(by_mlnx.value, NoData):
        told[by_mlnx.value.pfc] = None
    if not isinstance(by_dcb.value, NoData):
        told[by_dcb.value] = None
    raw = tuple(file for seen in (by_mlnx, by_dcb) if not isinstance(seen.value, NoData) for file in seen.raw)
    if not told:
        reasons = (seen.value.reason for seen in (by_mlnx, by_dcb) if isinstance(seen.value, NoData))
        return unseen("; ".join(reasons), (*by_mlnx.raw, *by_dcb.raw))
    shown = " and ".join(
        f"PFC on {', '.join(str(priority) for priority, on in enumerate(pfc) if on) or 'no priority'}" for pfc in told
    )
    right = tuple(priority == wanted.pfc_priority for priority in range(qos.PRIORITIES))
    faults = [] if set(told) == {right} else [f"{wanted.netdev}: {shown}, on {wanted.pfc_priority} was declared"]
    firmware = not isinstance(by_mlnx.value, NoData) and by_mlnx.value.firmware_controlled
    why = f"{wanted.netdev}: the firmware decides (DCBX): the settings shown may not be those in force"
    return finding(faults, shown, shown, raw, [why] if firmware else [])


def _trust(wanted: RocePort, host: Host) -> Finding:
    by_mlnx = host.read(qos.qos, ("mlnx_qos", "-i", wanted.netdev or ""))
    if not isinstance(by_mlnx.value, NoData):
        return same(f"{wanted.netdev}: trust", wanted.trust, by_mlnx.value.trust, by_mlnx.raw)
    by_dcb = host.read(qos.dcb_trust, ("dcb", "-j", "apptrust", "show", "dev", wanted.netdev or ""))
    if isinstance(by_dcb.value, NoData):
        return unseen(f"{by_mlnx.value.reason}; {by_dcb.value.reason}", (*by_mlnx.raw, *by_dcb.raw))
    return same(f"{wanted.netdev}: trust", wanted.trust, next(iter(by_dcb.value), "nothing"), by_dcb.raw)


def _ecn(wanted: RocePort, host: Host) -> Finding:
    """Judge both sides: the notification point, which marks, and the reaction point, which slows down."""
    seen = topology.tree(host)
    if isinstance(seen.value, NoData):
        return unseen(seen.value, seen.raw)
    priorities = range(8) if wanted.pfc_priority is None else (wanted.pfc_priority,)
    told: dict[str, str] = {}
    for side in ("roce_np", "roce_rp"):
        for priority in priorities:
            path = f"/sys/class/net/{wanted.netdev}/ecn/{side}/enable/{priority}"
            if (value := seen.value.attribute(path)) is not None:
                told[f"{side} {priority}"] = value.strip()
    if not told or set(told.values()) - {"0", "1"}:
        return unseen(f"{wanted.netdev}: /sys tells no ECN of it", seen.raw)
    on = all(value == "1" for value in told.values()) if wanted.pfc_priority is not None else "1" in told.values()
    shown = ", ".join(f"{name}: {value}" for name, value in told.items())
    faults = [] if on == wanted.ecn else [f"{wanted.netdev}: ECN {shown}, {'on' if wanted.ecn else 'off'} was declared"]
    return finding(faults, shown, shown, seen.raw)


def _driver(
    wanted: RocePort, metric: str, declared: object, take: Callable[[ethtool.Driver], object], host: Host
) -> Finding:
    seen = host.read(ethtool.driver, ("ethtool", "-i", wanted.netdev or ""))
    if isinstance(seen.value, NoData):
        return unseen(seen.value, seen.raw)
    return same(f"{wanted.netdev}: {metric}", declared, take(seen.value), seen.raw)


def _loss(wanted: RocePort, limit: Limit, host: Host) -> Finding:
    """Judge by how much the counters of loss rose over the load: what they stand at says nothing."""
    at = wanted.netdev or f"{wanted.device}/{wanted.port}"
    if host.after is None:
        return unseen(f"{at}: counters say something over a load alone, and no load was run between two looks")
    boots = (host.boot_id, host.after.boot_id)
    found: dict[str, int | NoData] = {}
    raw: list[str] = []
    for counted in (_rdma_counts, _netdev_counts):
        before, after = counted(wanted, host), counted(wanted, host.after)
        raw += (*before.raw, *after.raw)
        if isinstance(before.value, NoData) or isinstance(after.value, NoData):
            reason = before.value if isinstance(before.value, NoData) else after.value
            found[str(reason)] = reason if isinstance(reason, NoData) else NoData(f"{at}: no counters")
        elif before.value or after.value:
            found |= counters.deltas(before.value, after.value, boot_ids=boots)
    known = {name: value for name, value in found.items() if not isinstance(value, NoData)}
    faults = [f"{at}: {name} rose by {value}" for name, value in known.items() if not limit.holds(value)]
    missing = [value.reason for value in found.values() if isinstance(value, NoData)]
    unknown = missing or ([] if known else [f"{at}: its driver has no counter of loss"])
    told = f"{sum(known.values())} lost, by {len(known)} counters"
    judged = finding(faults, told, told, raw, unknown)
    return Finding(
        judged.verdict, judged.found, judged.reason, judged.raw, float(sum(known.values())) if known else None
    )


def _rdma_counts(wanted: RocePort, host: Host) -> Seen[dict[str, int]]:
    if wanted.device is None:
        return Seen({})
    seen = host.read(rdma.statistics, STATISTICS)
    if isinstance(seen.value, NoData):
        return Seen(seen.value, seen.raw)
    mine = next((p for p in seen.value if (p.device, p.port) == (wanted.device, wanted.port)), None)
    if mine is None:
        return Seen(NoData(f"{wanted.device}/{wanted.port}: no counters"), seen.raw)
    lost = rdma.losses(mine.counters)
    return Seen({key: value for key in LOST if (value := getattr(lost, key)) is not None}, seen.raw)


def _netdev_counts(wanted: RocePort, host: Host) -> Seen[dict[str, int]]:
    if wanted.netdev is None:
        return Seen({})
    seen = host.read(ethtool.counters, ("ethtool", "-S", wanted.netdev))
    if isinstance(seen.value, NoData):
        return Seen(seen.value, seen.raw)
    lost = ethtool.losses(seen.value)
    named = {key: getattr(lost, key) for key in ethtool.LOSS_NAMES if key not in NO_LOSS}
    return Seen({key: value for key, value in named.items() if value is not None}, seen.raw)
