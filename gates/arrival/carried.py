"""Which paths of a subsystem carried bytes while fio ran: by the counters of each path's own block device.

No path of an array is disabled to see what another one does alone: what each has carried, tells of it.
"""

from __future__ import annotations

from collections.abc import Callable

from gates.arrival import topology
from gates.arrival.check import Finding, finding, unseen
from gates.arrival.host import Host, Seen
from gates.nodata import NoData
from gates.readers import counters, nvme, sysfs

LIVE, OPTIMIZED = "live", "optimized"
SPREADING = ("round-robin", "queue-depth")  # policies that use every path of the best ANA state


def judge(nqn: str, mine: Callable[[Host], Seen[nvme.Subsystem | None]], host: Host) -> Finding:
    """Return whether the paths that the I/O policy uses carried bytes: all of the best, or with `numa` any."""
    if host.after is None:
        return unseen(f"{nqn}: paths are told apart under a load alone, and no load was run between two looks")
    seen = mine(host)
    looks = (topology.tree(host), topology.tree(host.after))
    raw = (*seen.raw, *looks[0].raw, *looks[1].raw)
    if seen.value is None:
        return unseen(f"subsystem {nqn} is not connected", raw)
    if isinstance(seen.value, NoData):
        return unseen(seen.value, raw)
    told: list[dict[str, int]] = []
    for look in looks:
        if isinstance(look.value, NoData):
            return unseen(look.value, raw)
        told.append(_bytes(look.value, seen.value))
    rose = counters.deltas(told[0], told[1], boot_ids=(host.boot_id, host.after.boot_id))
    unknown = [f"{nqn}: {value.reason}" for value in rose.values() if isinstance(value, NoData)]
    moved = {name: value for name, value in rose.items() if not isinstance(value, NoData)}
    live = [path for path in seen.value.paths if path.state == LIVE]
    used = [path for path in live if path.ana_state == OPTIMIZED] or live
    unknown += [f"{nqn}: no counter of path {_named(path)}" for path in used if path.controller not in rose]
    idle = [f"{nqn}: path {_named(path)} carried nothing" for path in used if moved.get(path.controller) == 0]
    policy = seen.value.io_policy
    if policy is None:
        unknown.append(f"{nqn}: its I/O policy is not told, so which paths must carry bytes is not known")
    elif policy not in SPREADING and len(idle) < len(used):
        idle = []
    if not used:
        unknown.append(f"{nqn}: no path is live")
    shown = ", ".join(f"{_named(p)}: {moved[p.controller]} bytes" for p in seen.value.paths if p.controller in moved)
    return finding([] if policy is None else idle, shown, f"{policy}: {shown}", raw, unknown)


def _bytes(tree: sysfs.Sysfs, subsystem: nvme.Subsystem) -> dict[str, int]:
    """Return bytes read and written by controller; one that does not count, as its iostats are off, is left out."""
    found = {}
    for path in subsystem.paths:
        parts = [sysfs.path_bytes(tree, path.controller, device) for device in _devices(tree, path.controller)]
        known = [part for part in parts if part is not None]
        if known and len(known) == len(parts):
            found[path.controller] = sum(known)
    return found


def _devices(tree: sysfs.Sysfs, controller: str) -> list[str]:
    return [c for each in sysfs.nvme_controllers(tree) if each.name == controller for c in each.ana_states]


def _named(path: nvme.Path) -> str:
    return f"{path.traddr or 'unknown'} ({path.controller})"
