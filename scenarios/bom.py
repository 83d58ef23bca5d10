"""The bill of materials of a site: what was ordered, as far as the site says it. G1 compares it with what is there.

Every item is optional. What is not declared is listed as such in the verdict and never counts as passed. Nothing is
named by a device name that a reboot may change: drives go by serial number, arrays by NQN, file systems by mount point.
"""

from __future__ import annotations

import posixpath
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from scenarios.strict import Name, NonNegativeFloat, PositiveFloat, PositiveInt, Strict
from scenarios.strict import Text as PlainText

# Without what makes two spellings of one path: a slash at the end, two of them, dots.
AbsolutePath = Annotated[str, Field(pattern=r"^/[^\x00\n]*$", max_length=4096), AfterValidator(posixpath.normpath)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
PciId = Annotated[str, Field(pattern=r"^[0-9a-f]{4}:[0-9a-f]{4}$")]
PciAddress = Annotated[str, Field(pattern=r"^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$")]
Share = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]
Bytes = Annotated[int, Field(ge=1 << 20)]  # a smaller figure is one in another unit
BytesPerS = Annotated[float, Field(ge=1e6, le=1e13, allow_inf_nan=False)]  # in bytes: 12e9, not 12 or 96e9 bits
GbitPerS = Annotated[float, Field(ge=0.1, le=10_000, allow_inf_nan=False)]


def _as_told(text: str) -> str:
    """Return a text as readers tell one: tools pad with blanks."""
    if not text.isprintable() or not text.split():
        raise ValueError("must be text without control characters")
    return " ".join(text.split())


Text = Annotated[PlainText, AfterValidator(_as_told)]
Texts = Annotated[tuple[Text, ...], Field(strict=False)]


class Host(Strict):
    """The machine itself."""

    name: Text | None = None  # as `uname -n`: so that no other host's collection is judged in its place
    architecture: Text | None = None  # as `uname -m`
    cpu_model: Text | None = None  # a part of the model's name, as lscpu tells it
    cores_min: PositiveInt | None = None  # logical CPUs that are online
    memory_bytes_min: Bytes | None = None
    kernel_log: bool = True  # whether its log must show no trouble of what is declared


class Drives(Strict):
    """Local NVMe drives of one kind: by serial numbers, or so many of one model."""

    serials: Texts = ()
    count: PositiveInt | None = None
    model: Text | None = None
    firmware: Text | None = None
    size_bytes: Bytes | None = None  # of each
    sector_bytes: PositiveInt | None = None
    controllers: PositiveInt | None = None  # PCIe controllers of each
    scheduler: Text | None = None  # of the block device, as none or mq-deadline
    io_timeout_s: PositiveFloat | None = None  # after which the kernel takes a command for lost

    @model_validator(mode="after")
    def _can_be_told_apart(self) -> Self:
        if not self.serials and (self.model is None or self.count is None):
            raise ValueError("serials: name the drives' serial numbers, or how many of which model (count, model)")
        if self.serials and self.count is not None and self.count != len(self.serials):
            raise ValueError(f"count: {self.count}, but {len(self.serials)} serial numbers")
        if len(set(self.serials)) != len(self.serials):
            raise ValueError("serials: one of them twice")
        return self


class Path(Strict):
    """One way to an NVMe-oF subsystem: the target's address, and what the array says of the way (ANA)."""

    traddr: Text
    trsvcid: Text | None = None  # the port, as text
    ana: Literal["optimized", "non-optimized"] | None = None


class Subsystem(Strict):
    """An NVMe-oF subsystem: the array, or one of its parts."""

    nqn: Text
    product: Text | None = None  # a word of the model that it must tell, as FX100
    serial: Text | None = None
    model: Text | None = None
    firmware: Text | None = None
    namespaces: PositiveInt | None = None
    size_bytes: Bytes | None = None  # of each namespace
    sector_bytes: PositiveInt | None = None
    transport: Literal["rdma", "tcp", "fc", "loop", "pcie"] | None = None
    paths: PositiveInt | None = None  # how many, all live
    path: Annotated[tuple[Path, ...], Field(strict=False)] = ()
    optimized_min: PositiveInt | None = None  # live paths in ANA state optimized
    io_policy: Literal["numa", "round-robin", "queue-depth"] | None = None
    ctrl_loss_tmo_s: Annotated[int, Field(ge=-1)] | None = None  # -1: never gives up
    fast_io_fail_tmo_s: Annotated[int, Field(ge=0)] | None = None
    reconnect_delay_s: Annotated[int, Field(ge=0)] | None = None
    paths_carry: bool = False  # whether each path that the I/O policy uses must carry bytes under fio's load
    scheduler: Text | None = None  # of each namespace's block device
    io_timeout_s: PositiveFloat | None = None

    @model_validator(mode="after")
    def _paths_agree(self) -> Self:
        if self.path and self.paths is not None and self.paths != len(self.path):
            raise ValueError(f"paths: {self.paths}, but {len(self.path)} are described")
        ways = [(path.traddr, path.trsvcid) for path in self.path]
        if len(set(ways)) != len(ways):
            raise ValueError("path: one of them twice")
        return self


class RocePort(Strict):
    """A port of a network card, as RDMA device, as network interface, or as both."""

    netdev: Name | None = None
    device: Name | None = None  # RDMA device
    port: PositiveInt = 1
    speed_gbit_per_s: GbitPerS | None = None
    mtu_bytes: PositiveInt | None = None  # of the interface
    active_mtu_bytes: PositiveInt | None = None  # of RDMA
    gid_type: Literal["RoCE v1", "RoCE v2"] | None = None
    gid_ipv4: bool = False  # whether there must be a GID that maps an IPv4 address
    pfc_priority: Annotated[int, Field(ge=0, le=7)] | None = None
    trust: Literal["dscp", "pcp"] | None = None
    ecn: bool | None = None
    driver: Text | None = None
    firmware: Text | None = None
    lossless: bool = False  # whether its counters of loss must stand still under fio's load

    @model_validator(mode="after")
    def _is_named(self) -> Self:
        if self.netdev is None and self.device is None:
            raise ValueError("netdev: name the interface, or the RDMA device (device)")
        for key in ("active_mtu_bytes", "gid_type"):
            if getattr(self, key) is not None and self.device is None:
                raise ValueError(f"{key}: is told of an RDMA device: name it (device)")
        for key in ("mtu_bytes", "pfc_priority", "trust", "ecn", "driver", "firmware"):
            if getattr(self, key) is not None and self.netdev is None:
                raise ValueError(f"{key}: is told of an interface: name it (netdev)")
        return self


class Accelerators(Strict):
    """Accelerators of one kind."""

    vendor: Literal["amd", "nvidia", "ascend"]
    count: PositiveInt
    model: Text | None = None  # a part of the name that the tool tells
    pci_device: PciId | None = None  # vendor:device, as 1002:74a2
    memory_bytes_min: Bytes | None = None  # of each
    firmware: Text | None = None  # the VBIOS
    driver: Text | None = None
    ecc: bool | None = None
    mig: bool | None = None
    health: bool = True  # whether each must tell that it is well
    diagnostics: bool = False  # whether every test of `dcgmi diag` must have passed
    gds_nvmeof: bool = False  # whether GPUDirect Storage must serve NVMe-oF

    @model_validator(mode="after")
    def _are_nvidias(self) -> Self:
        for key in ("diagnostics", "gds_nvmeof"):
            if getattr(self, key) and self.vendor != "nvidia":
                raise ValueError(f"{key}: is a tool of NVIDIA's, and these are {self.vendor}'s")
        return self


class PcieLinks(Strict):
    """The links of PCIe devices: of one address, or of all with one vendor:device."""

    address: PciAddress | None = None
    device: PciId | None = None
    count: PositiveInt | None = None
    speed_gt_per_s: PositiveFloat | None = None
    width: PositiveInt | None = None

    @model_validator(mode="after")
    def _is_named(self) -> Self:
        if (self.address is None) == (self.device is None):
            raise ValueError("address: name one device by its address, or all of a kind (device), not both")
        if self.address is not None and self.count is not None:
            raise ValueError("count: belongs to a kind (device)")
        return self


class Software(Strict):
    """Versions. One that is not known never passes."""

    kernel: Text | None = None  # as `uname -r`; a part up to a dot or hyphen is enough
    rocm: Text | None = None
    cuda: Text | None = None
    cann: Text | None = None
    python: AbsolutePath | None = None  # which runs the engine; needed where several were asked
    packages: dict[Name, Text] = Field(default_factory=dict)  # of that Python: vllm, lmcache, torch, ...
    modules: dict[Text, Sha256] = Field(
        default_factory=dict
    )  # a module's file below its package, as lmcache/v1/x.py, and its hash
    native_ops: Literal["cuda", "rocm", "ascend", "cpu"] | None = None  # what LMCache's are built for


class Mount(Strict):
    """A file system."""

    target: AbsolutePath
    fstype: Text | None = None
    source: Name | None = None  # of which drives or subsystem of this list it is made
    options: Texts = ()
    writable: bool = True  # whether a write to it must succeed
    free_bytes_min: Bytes | None = None


class Raw(Strict):
    """A tier's raw speed and integrity by fio, in a scratch folder that a sentinel file marks as such."""

    scratch: Annotated[Text, AfterValidator(posixpath.normpath)]  # absolute, or below the site's work_dir
    size_bytes: Bytes = 1 << 30  # of each set of files: a stream's, the chunks', those that are verified
    runtime_s: Annotated[float, Field(ge=1, le=86_400, allow_inf_nan=False)] = 30.0  # of each read
    ramp_s: NonNegativeFloat = 5.0  # before it counts
    readers: Annotated[int, Field(gt=0, le=1024)] = 4
    model: Name | None = None  # whose chunks' size the chunk files have
    direct_io: bool = True
    # What it should give: the order's figures, or the line's rate. Limits are shares of it.
    line_bytes_per_s: BytesPerS | None = None
    sequential_read_bytes_per_s: BytesPerS | None = None
    random_read_bytes_per_s: BytesPerS | None = None
    chunk_read_bytes_per_s: BytesPerS | None = None
    sequential_write_bytes_per_s: BytesPerS | None = None
    random_read_p99_s: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] | None = None

    @model_validator(mode="after")
    def _chunks_have_a_size(self) -> Self:
        if self.chunk_read_bytes_per_s is not None and self.model is None:
            raise ValueError("chunk_read_bytes_per_s: name the model whose chunks' size the files have (model)")
        return self


class Bom(Strict):
    """All that was ordered."""

    host: Host | None = None
    drives: dict[Name, Drives] = Field(default_factory=dict)
    subsystems: dict[Name, Subsystem] = Field(default_factory=dict)
    ports: dict[Name, RocePort] = Field(default_factory=dict)
    accelerators: dict[Name, Accelerators] = Field(default_factory=dict)
    pcie: dict[Name, PcieLinks] = Field(default_factory=dict)
    software: Software | None = None
    mounts: dict[Name, Mount] = Field(default_factory=dict)
    raw: dict[Name, Raw] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _sources_exist(self) -> Self:
        for name, mount in self.mounts.items():
            if mount.source is not None and mount.source not in {*self.drives, *self.subsystems}:
                raise ValueError(f"mounts.{name}.source: '{mount.source}' is none of drives or subsystems")
        if both := set(self.drives) & set(self.subsystems):
            raise ValueError(f"subsystems.{sorted(both)[0]}: a group of drives has this name, too")
        serials = [serial for drives in self.drives.values() for serial in drives.serials]
        if len(set(serials)) != len(serials):
            raise ValueError("drives: one serial number in two groups")
        nqns = [subsystem.nqn for subsystem in self.subsystems.values()]
        if len(set(nqns)) != len(nqns):
            raise ValueError("subsystems: one NQN twice")
        return self
