"""What /sys tells: one attribute a line, `PATH: 'value'`; a link as `PATH -> target`; `PATH: ERRNO n why` if refused.

Paths may go through links, as /sys/class/nvme/nvme3/state does. An attribute that was not collected, or that the kernel
refused to show, is None: never 0, and never fine. RDMA ports: gates/readers/rdma_sysfs.py.
"""

from __future__ import annotations

import math
import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from gates.readers.error import ReaderError, answer, decimal, integer, shown, whole_lines, word
from gates.readers.nvme import address_of
from workloads.bundle import Output

PATH_MAX = 4096  # as the kernel's
LINKS_MAX = 40  # as the kernel's
DEPTH_MAX = 64  # folders above an attribute; real paths have about 20
SECTOR_BYTES = 512  # of `size` and `stat`, whatever the device's own is: Documentation/block/stat.rst
OFF = math.inf  # a timeout that never comes: the kernel shows "off"


@dataclass(frozen=True)
class Sysfs:
    """The attributes and links that were collected."""

    values: Mapping[str, str | None] = field(repr=False)  # None: refused
    links: Mapping[str, str] = field(repr=False)
    below: Mapping[str, tuple[str, ...]] = field(repr=False)  # names in a folder

    def real(self, path: str) -> str:
        """Return the path without links in it, as far as they were collected."""
        for _ in range(LINKS_MAX):
            done, rest = "", [part for part in path.split("/") if part]
            for at, part in enumerate(rest):
                done = f"{done}/{part}"
                if done in self.links:
                    path = posixpath.normpath(
                        posixpath.join(posixpath.dirname(done), self.links[done], *rest[at + 1 :])
                    )
                    break
            else:
                return done or "/"
        return path  # a ring of links: nothing lies there

    def attribute(self, path: str) -> str | None:
        """Return the text of an attribute; None: not collected, or refused."""
        return self.values.get(self.real(path))

    def children(self, path: str) -> tuple[str, ...]:
        """Return the names in a folder, in order; () for one that was not collected."""
        return self.below.get(self.real(path), ())


@dataclass(frozen=True)
class NvmeController:
    """One controller: for NVMe-oF, one path."""

    name: str
    transport: str | None
    state: str | None  # live, connecting, ...
    subsystem_nqn: str | None
    model: str | None
    serial: str | None
    firmware: str | None
    address: str | None
    traddr: str | None
    trsvcid: str | None
    host_traddr: str | None
    src_addr: str | None
    # Of NVMe-oF only. OFF (infinity): never. ctrl_loss_tmo: how long it tries to reconnect before it is removed.
    # fast_io_fail_tmo: after how long its I/O fails instead of hanging.
    ctrl_loss_tmo_s: float | None
    reconnect_delay_s: float | None
    fast_io_fail_tmo_s: float | None
    keep_alive_s: float | None  # 0: none is sent
    numa_node: int | None  # None for a virtual device, too
    pci_address: str | None
    ana_states: Mapping[str, str | None]  # by path device, as nvme3c4n1: stale while the controller is not live


@dataclass(frozen=True)
class NvmeSubsystem:
    """One subsystem as the host sees it."""

    name: str
    nqn: str | None
    model: str | None
    serial: str | None
    firmware: str | None
    io_policy: str | None
    controllers: tuple[str, ...]
    namespaces: tuple[str, ...]  # multipath devices, as nvme3n1; () where each controller has its own


@dataclass(frozen=True)
class NetDevice:
    """One network interface."""

    name: str
    mtu_bytes: int | None
    speed_mbit_per_s: int | None  # None where the link is down
    duplex: str | None
    operstate: str | None
    carrier: bool | None
    address: str | None
    numa_node: int | None
    pci_address: str | None
    statistics: Mapping[str, int]


@dataclass(frozen=True)
class BlockQueue:
    """One block device's size, queue and counters."""

    name: str
    size_bytes: int | None
    logical_block_bytes: int | None
    physical_block_bytes: int | None
    scheduler: str | None
    io_timeout_ms: int | None
    rotational: bool | None
    read_only: bool | None
    # Since boot. An NVMe multipath device may show 0 throughout: in older kernels (seen: 6.1) only its paths count.
    read_bytes: int | None
    written_bytes: int | None
    reads: int | None
    writes: int | None
    in_flight: int | None


@dataclass(frozen=True)
class PciLink:
    """One PCIe device's link: what it runs at and what the device could."""

    address: str
    speed_gt_per_s: float | None
    width: int | None
    max_speed_gt_per_s: float | None
    max_width: int | None
    numa_node: int | None

    @property
    def degraded(self) -> bool | None:
        """Return whether it runs below what the device can; None: not known."""
        if None in (self.speed_gt_per_s, self.width, self.max_speed_gt_per_s, self.max_width):
            return None
        return (self.speed_gt_per_s or 0.0) < (self.max_speed_gt_per_s or 0.0) or (self.width or 0) < (
            self.max_width or 0
        )


def sysfs(output: Output) -> Sysfs:
    """Return what was collected. Raises ReaderError: a line that is neither attribute nor link, or is cut off."""
    values: dict[str, str | None] = {}
    links: dict[str, str] = {}
    for number, line in enumerate(whole_lines(answer(output), output), start=1):
        if not line.strip():
            continue
        found = re.fullmatch(r"(/sys/.+?)(?: -> (.{1,4096})|: (.*))", line)
        if found is None or len(found[1]) > PATH_MAX or found[1].count("/") > DEPTH_MAX:
            raise ReaderError(f"{output.command}: line {number} is neither attribute nor link: {shown(line)}")
        if found[2] is not None:
            links[found[1]] = found[2]
        else:
            values[found[1]] = _value(found[3], number, output)
    if not values:
        raise ReaderError(f"{output.command}: holds no attribute")
    below: dict[str, dict[str, None]] = {}
    for path in (*values, *links):
        while len(path) > 1:
            folder, _, name = path.rpartition("/")
            names = below.setdefault(folder or "/", {})
            if name in names:
                break
            names[name] = None
            path = folder
    return Sysfs(values, links, {folder: tuple(sorted(names, key=_natural)) for folder, names in below.items()})


def nvme_controllers(tree: Sysfs) -> tuple[NvmeController, ...]:
    """Return the controllers below /sys/class/nvme."""
    found = []
    for name in tree.children("/sys/class/nvme"):
        at = f"/sys/class/nvme/{name}"
        address = _text(tree, f"{at}/address")
        parts = address_of(address)
        found.append(
            NvmeController(
                name,
                _text(tree, f"{at}/transport"),
                _text(tree, f"{at}/state"),
                _text(tree, f"{at}/subsysnqn"),
                _text(tree, f"{at}/model"),
                _text(tree, f"{at}/serial"),
                _text(tree, f"{at}/firmware_rev"),
                address,
                parts.get("traddr"),
                parts.get("trsvcid"),
                parts.get("host_traddr"),
                parts.get("src_addr"),
                _timeout(tree, f"{at}/ctrl_loss_tmo"),
                _timeout(tree, f"{at}/reconnect_delay"),
                _timeout(tree, f"{at}/fast_io_fail_tmo"),
                _timeout(tree, f"{at}/kato"),
                _count(tree, f"{at}/numa_node"),
                pci_address(tree, at),
                {
                    path: _text(tree, f"{at}/{path}/ana_state")
                    for path in tree.children(at)
                    if re.fullmatch(r"nvme\d+c\d+n\d+", path)
                },
            )
        )
    return tuple(found)


def nvme_subsystems(tree: Sysfs) -> tuple[NvmeSubsystem, ...]:
    """Return the subsystems below /sys/class/nvme-subsystem."""
    found = []
    for name in tree.children("/sys/class/nvme-subsystem"):
        at = f"/sys/class/nvme-subsystem/{name}"
        names = tree.children(at)
        found.append(
            NvmeSubsystem(
                name,
                _text(tree, f"{at}/subsysnqn"),
                _text(tree, f"{at}/model"),
                _text(tree, f"{at}/serial"),
                _text(tree, f"{at}/firmware_rev"),
                _text(tree, f"{at}/iopolicy"),
                tuple(each for each in names if re.fullmatch(r"nvme\d+", each)),
                tuple(each for each in names if re.fullmatch(r"nvme\d+n\d+", each)),
            )
        )
    return tuple(found)


def net_devices(tree: Sysfs) -> tuple[NetDevice, ...]:
    """Return the interfaces below /sys/class/net."""
    found = []
    for name in tree.children("/sys/class/net"):
        at = f"/sys/class/net/{name}"
        if not tree.children(at):  # bonding_masters, a file
            continue
        found.append(
            NetDevice(
                name,
                _count(tree, f"{at}/mtu"),
                _count(tree, f"{at}/speed") or None,  # -1, 0 or an error where there is no link
                _text(tree, f"{at}/duplex"),
                _text(tree, f"{at}/operstate"),
                _flag(tree, f"{at}/carrier"),
                _text(tree, f"{at}/address"),
                _count(tree, f"{at}/device/numa_node"),
                pci_address(tree, at),
                _counters(tree, f"{at}/statistics"),
            )
        )
    return tuple(found)


def block_queues(tree: Sysfs) -> tuple[BlockQueue, ...]:
    """Return every block device with a queue, by name; not the hidden path devices of NVMe multipath."""
    found = []
    marks = [path for path in tree.values if path.endswith("/queue/logical_block_size")]
    folders = (path.removesuffix("/queue/logical_block_size") for path in marks)
    for at in sorted(folders, key=lambda folder: _natural(posixpath.basename(folder))):
        if _flag(tree, f"{at}/hidden"):
            continue
        name = posixpath.basename(at)
        sectors = _count(tree, f"{at}/size")
        # The chosen one in brackets, or the one word of a device that has no choice, as NVMe multipath.
        chosen = re.search(r"\[(\S+)\]|^(\w+)$", _text(tree, f"{at}/queue/scheduler") or "")
        # reads, merged, sectors, ms, then the same of writes, then in flight
        stat = [integer(each) for each in (tree.attribute(f"{at}/stat") or "").split()]
        stat = stat if len(stat) >= 11 and None not in stat else [None] * 11
        found.append(
            BlockQueue(
                name,
                _times(sectors, SECTOR_BYTES),
                _count(tree, f"{at}/queue/logical_block_size"),
                _count(tree, f"{at}/queue/physical_block_size"),
                (chosen[1] or chosen[2]) if chosen else None,
                _count(tree, f"{at}/queue/io_timeout"),
                _flag(tree, f"{at}/queue/rotational"),
                _flag(tree, f"{at}/ro"),
                _times(stat[2], SECTOR_BYTES),
                _times(stat[6], SECTOR_BYTES),
                stat[0],
                stat[4],
                stat[8],
            )
        )
    return tuple(found)


def path_bytes(tree: Sysfs, controller: str, device: str) -> int | None:
    """Return the bytes that a path device, as nvme3c4n1, read and wrote since boot; None: not told, or not counted."""
    at = f"/sys/class/nvme/{controller}/{device}"
    stat = [integer(each) for each in (tree.attribute(f"{at}/stat") or "").split()]
    if len(stat) < 11 or stat[2] is None or stat[6] is None or _flag(tree, f"{at}/queue/iostats") is False:
        return None
    return (stat[2] + stat[6]) * SECTOR_BYTES


def pci_links(tree: Sysfs) -> tuple[PciLink, ...]:
    """Return every PCIe device whose link was collected, by address; a port above a device is one of its own."""
    found: dict[str, PciLink] = {}
    for path in tree.values:
        folder, _, name = path.rpartition("/")
        address = _last_pci(folder)
        if name != "current_link_speed" or address is None or not folder.endswith(address):
            continue
        found[address] = PciLink(
            address,
            _speed(tree, f"{folder}/current_link_speed"),
            _width(tree, f"{folder}/current_link_width"),
            _speed(tree, f"{folder}/max_link_speed"),
            _width(tree, f"{folder}/max_link_width"),
            _count(tree, f"{folder}/numa_node"),
        )
    return tuple(found[address] for address in sorted(found))


def pci_address(tree: Sysfs, path: str) -> str | None:
    """Return the PCI address behind a class device, as /sys/class/infiniband/mlx5_0; None: it is virtual."""
    return _last_pci(tree.real(f"{path}/device")) or _last_pci(tree.real(path))


def _value(printed: str, number: int, output: Output) -> str | None:
    """Return the value, as Python writes a string; None where the kernel refused it."""
    if re.match(r"ERRNO \d+ ", printed):
        return None
    quoted = re.fullmatch(r"""'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)\"""", printed)
    if quoted is None:
        raise ReaderError(f"{output.command}: line {number} is cut off or broken: {shown(printed)}")
    return re.sub(r"\\(x[0-9a-f]{2}|.)", _unescaped, quoted[1] if quoted[2] is None else quoted[2])


def _unescaped(found: re.Match[str]) -> str:
    code = found[1]
    return chr(int(code[1:], 16)) if len(code) > 1 else {"n": "\n", "t": "\t", "r": "\r"}.get(code, code)


def _natural(name: str) -> tuple[tuple[str, int], ...]:
    """Return a key that puts nvme2 before nvme10."""
    parts = re.findall(r"(\D*)(\d{1,18}|$)", name)
    return tuple((text, int(digits or 0)) for text, digits in parts)


def _text(tree: Sysfs, path: str) -> str | None:
    return word(tree.attribute(path))


def _count(tree: Sysfs, path: str) -> int | None:
    return integer(tree.attribute(path))  # a negative number, as numa_node -1, says that there is none


def _times(value: int | None, by: int) -> int | None:
    return None if value is None else value * by


def _flag(tree: Sysfs, path: str) -> bool | None:
    value = _count(tree, path)
    return {0: False, 1: True}.get(value) if value is not None else None


def _timeout(tree: Sysfs, path: str) -> float | None:
    text = _text(tree, path)
    return OFF if text in ("off", "-1") else decimal(text)


def _counters(tree: Sysfs, folder: str) -> Mapping[str, int]:
    """Return the counters that could be read: one that could not is not among them, and not 0."""
    values = {name: _count(tree, f"{folder}/{name}") for name in tree.children(folder)}
    return {name: value for name, value in values.items() if value is not None}


def _last_pci(path: str) -> str | None:
    found = re.findall(r"(?<=/)[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7](?=/|$)", path)
    return found[-1] if found else None


def _speed(tree: Sysfs, path: str) -> float | None:
    found = re.match(r"([\d.]+) GT/s", _text(tree, path) or "")
    return decimal(found[1]) if found else None


def _width(tree: Sysfs, path: str) -> int | None:
    width = _count(tree, path)
    return width if width and width <= 32 else None  # 0: no link; 255: unknown
