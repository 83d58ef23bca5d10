"""A host as its tools tell of it, made up: an array over two RDMA paths, two local drives, two ports, two mounts.

In the formats of nvme-cli 2.3, util-linux 2.38, iproute2 6.1. `Lab` holds the truth; a fault is a change of it.
"""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workloads.bundle import Bundle, of_files

Json = dict[str, Any]

NQN = "nqn.2030-01.example:array"
PYTHON = "/opt/venv/bin/python"
SITE = """\
schema = 1
name = "made-up"
title = "made up"
[engine]
policy = "exclusive"
command = ["vllm"]
ready_deadline_s = 60.0
[lmcache]
command = ["lmcache"]
dram_gb = 1.0
[models.any]
source = "path"
path = "/srv/model"
kv_bytes_per_token = 4096
vocabulary_tokens = 1024
max_context_tokens = 16384
[tiers.array]
title = "array"
kind = "fs"
path = "/srv/array/kv"
[bom.host]
architecture = "x86_64"
cpu_model = "Example CPU"
cores_min = 8
memory_bytes_min = 8_000_000_000
[bom.software]
kernel = "6.1"
native_ops = "rocm"
[bom.software.packages]
vllm = "0.32.0"
[bom.software.modules]
"lmcache/v1/x.py" = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
[bom.drives.local]
serials = ["L1", "L2"]
model = "Local 4T"
firmware = "F1"
size_bytes = 4_000_000_000
sector_bytes = 512
controllers = 1
scheduler = "none"
io_timeout_s = 30.0
[bom.subsystems.array]
nqn = "nqn.2030-01.example:array"
product = "FX100"
serial = "A1"
model = "Example FX100"
firmware = "R2"
namespaces = 1
size_bytes = 1_000_000_000
sector_bytes = 4096
transport = "rdma"
path = [
  { traddr = "192.0.2.1", trsvcid = "4420", ana = "optimized" },
  { traddr = "192.0.2.2", trsvcid = "4420", ana = "non-optimized" },
]
optimized_min = 1
io_policy = "round-robin"
ctrl_loss_tmo_s = 600
fast_io_fail_tmo_s = 5
reconnect_delay_s = 2
scheduler = "none"
[bom.ports.fab0]
netdev = "fab0"
device = "rdma0"
speed_gbit_per_s = 100.0
mtu_bytes = 9000
active_mtu_bytes = 4096
gid_type = "RoCE v2"
gid_ipv4 = true
pfc_priority = 3
trust = "dscp"
ecn = true
driver = "mlx5_core"
firmware = "28.1"
[bom.mounts.array]
target = "/srv/array"
fstype = "xfs"
source = "array"
options = ["rw", "noatime"]
free_bytes_min = 100_000_000
[bom.mounts.local]
target = "/srv/local"
fstype = "ext4"
source = "local"
options = ["rw"]
[bom.pcie.l1]
address = "0000:01:00.0"
speed_gt_per_s = 16.0
width = 4
[bom.accelerators.gpus]
vendor = "nvidia"
count = 2
model = "H20"
pci_device = "10de:2329"
memory_bytes_min = 90_000_000_000
firmware = "96.00"
driver = "570.1"
ecc = true
mig = false
diagnostics = true
gds_nvmeof = true
"""


def smart(**changes: Any) -> Json:
    """Return a health log as `nvme smart-log -o json` prints one."""
    return {
        "critical_warning": 0, "temperature": 310, "avail_spare": 100, "spare_thresh": 10, "percent_used": 1,
        "data_units_read": "9", "data_units_written": "5", "host_read_commands": "216", "host_write_commands": "23",
        "controller_busy_time": "0", "power_cycles": "3", "power_on_hours": "40", "unsafe_shutdowns": "0",
        "media_errors": "0", "num_err_log_entries": "0", **changes,
    }  # fmt: skip


@dataclass
class Lab:
    """What stands there. Device names are on purpose not those that a first boot would give."""

    drives: dict[str, Json] = field(
        default_factory=lambda: {
            "L1": {"subsystem": 7, "controller": "nvme3", "pci": "0000:01:00.0", "bytes": 4_000_000_000},
            "L2": {"subsystem": 2, "controller": "nvme9", "pci": "0000:02:00.0", "bytes": 4_000_000_000},
        }
    )
    drive: dict[str, Json] = field(default_factory=dict)  # by serial: other model, firmware
    smart: dict[str, Json] = field(default_factory=lambda: {"L1": smart(), "L2": smart()})
    array: Json = field(default_factory=lambda: {"model": "Example FX100", "firmware": "R2", "bytes": 1_000_000_000})
    namespaces: list[int] = field(default_factory=lambda: [2])  # after a reconnect the first is not always n1
    io_policy: str = "round-robin"
    paths: list[Json] = field(
        default_factory=lambda: [
            {"controller": "nvme5", "traddr": "192.0.2.1", "state": "live", "ana": "optimized", "transport": "rdma"},
            {
                "controller": "nvme4",
                "traddr": "192.0.2.2",
                "state": "live",
                "ana": "non-optimized",
                "transport": "rdma",
            },
        ]
    )
    timeouts: dict[str, str] = field(
        default_factory=lambda: {"ctrl_loss_tmo": "600", "fast_io_fail_tmo": "5", "reconnect_delay": "2"}
    )
    interface: Json = field(
        default_factory=lambda: {
            "ifname": "fab0", "flags": ["BROADCAST", "UP", "LOWER_UP"], "mtu": 9000, "operstate": "UP",
        }
    )  # fmt: skip
    ethtool: dict[str, str] = field(default_factory=lambda: {"Speed": "100000Mb/s", "Link detected": "yes"})
    rdma: Json = field(
        default_factory=lambda: {
            "ifname": "rdma0", "port": 1, "state": "ACTIVE", "physical_state": "LINK_UP", "netdev": "fab0",
        }
    )  # fmt: skip
    active_mtu: str = "4096 (5)"
    gids: list[str] = field(default_factory=lambda: ["fe80::1, RoCE v2", "::ffff:192.0.2.9, RoCE v2"])
    pfc: str = "0 0 0 1 0 0 0 0"
    trust: str = "dscp"
    ecn: str = "1"
    nic: dict[str, str] = field(
        default_factory=lambda: {"driver": "mlx5_core", "firmware-version": "28.1", "bus-info": "0000:5c:00.0"}
    )
    dcb: list[bool] = field(default_factory=lambda: [priority == 3 for priority in range(8)])
    queues: dict[str, tuple[str, str]] = field(default_factory=dict)  # block device: scheduler, timeout in ms
    carried: dict[str, int] = field(default_factory=dict)  # sectors by controller since boot
    diag: dict[str, str] = field(default_factory=lambda: {"Denylist": "Pass", "NVML Library": "Pass"})
    gds: str = "Supported"
    link: str = "16GT/s, Width x4"
    mounts: list[Json] = field(
        default_factory=lambda: [
            {"target": "/", "source": "/dev/vda", "fstype": "ext4", "options": "rw"},
            {"target": "/srv/array", "source": "/dev/nvme1n2", "fstype": "xfs", "options": "rw,noatime"},
            {"target": "/srv/local", "source": "/dev/nvme7n1p1", "fstype": "ext4", "options": "rw"},
        ]
    )
    df: dict[str, tuple[int, int, int, int]] = field(  # target: used, available, inodes used, free
        default_factory=lambda: {"/srv/array": (10**8, 9 * 10**8, 10, 90), "/srv/local": (10**8, 9 * 10**8, 10, 90)}
    )
    writes: dict[str, tuple[int, str]] = field(
        default_factory=lambda: {"/srv/array": (0, ""), "/srv/local": (0, "")}
    )  # target: status, error
    log: list[str] = field(default_factory=list)
    gpus: list[list[str]] = field(
        default_factory=lambda: [
            [str(n), "NVIDIA H20", f"0000000{n}:0A:00.0", "0x232910DE", "570.1", "96.00", "97871 MiB", "Enabled", "Disabled", "0"]
            for n in range(2)
        ]
    )  # fmt: skip
    kernel: str = "6.1.0-57-amd64"
    cpus: str = "16"
    packages: str = "vllm==0.32.0\nlmcache==0.5.6\n# 2 packages\n"
    patch: str = "a" * 64  # the SHA-256 of a patched module
    native: Json = field(
        default_factory=lambda: {"file": "lmcache/c_ops.so", "built_for": ["rocm"], "sha256": "b" * 64, "loads": True}
    )

    def copy(self) -> Lab:
        """Return one that can be changed alone."""
        return copy.deepcopy(self)

    def outputs(self) -> dict[str, tuple[str, int, str]]:
        """Return command -> (stdout, status, stderr)."""
        found: dict[str, tuple[str, int, str]] = {}

        def tells(command: str, printed: object, status: int = 0, error: str = "") -> None:
            found[command] = (printed if isinstance(printed, str) else json.dumps(printed, indent=2), status, error)

        tells("nvme list -o json", {"Devices": self._flat()})
        tells("nvme list -v -o json", {"Devices": [{"HostNQN": "nqn.host", "Subsystems": self._nested()}]})
        tells("nvme list-subsys -o json", [{"HostNQN": "nqn.host", "Subsystems": self._subsystems(ana=False)}])
        for nsid in self.namespaces:
            told = [s for s in self._subsystems(ana=True) if s["NQN"] == NQN]
            tells(f"nvme list-subsys /dev/nvme1n{nsid} -o json", [{"HostNQN": "nqn.host", "Subsystems": told}])
        for serial, drive in self.drives.items():
            tells(f"nvme smart-log /dev/{drive['controller']} -o json", self.smart[serial])
        tells("walk of /sys/class/nvme /sys/class/nvme-subsystem /sys/class/net", self._sysfs())
        tells("rdma -j link show", [self.rdma])
        tells("ibv_devinfo -v", self._verbs())
        tells("ip -j -d link show", [{"ifname": "lo", "flags": ["UP"], "mtu": 65536}, self.interface])
        settings = "".join(f"\t{key}: {value}\n" for key, value in self.ethtool.items())
        tells("ethtool fab0", f"Settings for fab0:\n\tDuplex: Full\n{settings}")
        tells("ethtool -i fab0", "".join(f"{key}: {value}\n" for key, value in self.nic.items()))
        told = "\tpriority    0   1   2   3   4   5   6   7\n"
        told += "\tenabled     " + "   ".join(self.pfc.split()) + "\n"
        tells(
            "mlnx_qos -i fab0",
            f"DCBX mode: OS controlled\nPriority trust state: {self.trust}\nPFC configuration:\n{told}",
        )
        tells("dcb -j pfc show dev fab0", {"pfc_cap": 8, "macsec_bypass": False, "delay": 0, "prio_pfc": self.dcb})
        tells("dcb -j apptrust show dev fab0", {"order": [self.trust]})
        tests = [{"name": name, "results": [{"gpu_ids": "0,1", "status": told}]} for name, told in self.diag.items()]
        diag = {"version": "3.3.5", "test_categories": [{"category": "Deployment", "tests": tests}]}
        tells("dcgmi diag -r 1 --json", {"DCGM GPU Diagnostic": diag})
        rule = "=" * 22
        config = f" NVMe               : Supported\n NVMeOF             : {self.gds}\n"
        tells(
            "gdscheck -p",
            f" GDS release version: 1.7.1.12\n {rule}\n DRIVER CONFIGURATION:\n {rule}\n{config} {rule}\n",
        )
        tells("lspci -D -vvv -nn -k", self._lspci())
        tells("findmnt -J", {"filesystems": self.mounts})
        tells("lsblk -J -b -O", {"blockdevices": self._blocks()})
        tells("df -B1 --output", self._df())
        for target, (status, error) in self.writes.items():
            tells(f"dd if=/dev/zero of={target}/.w bs=1M count=1 conv=fsync", "", status, error)
        tells(
            "dmesg -x --time-format=iso",
            "".join(f"kern  :warn  : 2030-01-01T00:00:00,000000+00:00 {line}\n" for line in ["booted", *self.log]),
        )
        tells("uname -a", f"Linux node {self.kernel} #1 SMP x86_64 GNU/Linux\n")
        cpu = {"Architecture:": "x86_64", "CPU(s):": self.cpus, "Model name:": "Example CPU 9000"}
        tells("lscpu -J", {"lscpu": [{"field": field, "data": data} for field, data in cpu.items()]})
        tells("cat /proc/meminfo", "MemTotal:       16000000 kB\nMemAvailable: 1000 kB\n")
        tells(f"packages-of {PYTHON}", self.packages)
        hashed = f"# lmcache is /opt/venv/lib/lmcache\n{self.patch}  7  lmcache/v1/x.py\n# 1 files\n"
        tells(f"module-hashes-of {PYTHON}", hashed)
        plain = {"file": "lmcache/fs.so", "built_for": [], "sha256": "c" * 64, "loads": True}
        tells(f"native-ops-of {PYTHON}", {"modules": ["lmcache"], "libraries": [self.native, plain], "torch": {}})
        fields = "index,name,pci.bus_id,pci.device_id,driver_version,vbios_version,memory.total,ecc.mode.current,mig.mode.current,ecc.errors.uncorrected.aggregate.total"
        head = fields.replace("memory.total", "memory.total [MiB]").replace(",", ", ")
        tells(
            f"nvidia-smi --query-gpu={fields} --format=csv",
            "\n".join([head, *(", ".join(row) for row in self.gpus), ""]),
        )
        return found

    def files(self) -> dict[str, bytes]:
        """Return the files of the bundle."""
        return files_of(self.outputs())

    def bundle(self) -> Bundle:
        """Return the bundle."""
        return of_files(self.files(), Path("made-up"))

    def _identity(self, serial: str) -> Json:
        found = {"model": "Local 4T", "firmware": "F1", **self.drive.get(serial, {})}
        return {"SerialNumber": serial, "ModelNumber": found["model"], "Firmware": found["firmware"]}

    def _of_array(self) -> Json:
        return {"SerialNumber": "A1", "ModelNumber": self.array["model"], "Firmware": self.array["firmware"]}

    def _size(self, size_bytes: int, sector: int) -> Json:
        return {
            "UsedBytes": size_bytes,
            "MaximumLBA": size_bytes // sector,
            "PhysicalSize": size_bytes,
            "SectorSize": sector,
        }

    def _flat(self) -> list[Json]:
        rows = [
            {
                "NameSpace": 1,
                "DevicePath": f"/dev/nvme{d['subsystem']}n1",
                **self._identity(s),
                **self._size(d["bytes"], 512),
            }
            for s, d in self.drives.items()
        ]
        return rows + [
            {
                "NameSpace": n,
                "DevicePath": f"/dev/nvme1n{n}",
                **self._of_array(),
                **self._size(self.array["bytes"], 4096),
            }
            for n in self.namespaces
        ]

    def _nested(self) -> list[Json]:
        found = []
        for serial, d in self.drives.items():
            space = {"NameSpace": f"nvme{d['subsystem']}n1", "NSID": 1, **self._size(d["bytes"], 512)}
            controller = {
                "Controller": d["controller"],
                **self._identity(serial),
                "Transport": "pcie",
                "Address": d["pci"],
            }
            found.append(
                {"Subsystem": f"nvme-subsys{d['subsystem']}", "SubsystemNQN": f"nqn.local:{serial}",
                 "Controllers": [{**controller, "Namespaces": [space], "Paths": []}], "Namespaces": []}
            )  # fmt: skip
        controllers = [
            {"Controller": p["controller"], **self._of_array(), "Transport": p["transport"],
             "Address": f"traddr={p['traddr']},trsvcid=4420", "Namespaces": [], "Paths": []}
            for p in self.paths
        ]  # fmt: skip
        spaces = [
            {"NameSpace": f"nvme1n{n}", "NSID": n, **self._size(self.array["bytes"], 4096)} for n in self.namespaces
        ]
        found.append(
            {"Subsystem": "nvme-subsys1", "SubsystemNQN": NQN, "Controllers": controllers, "Namespaces": spaces}
        )
        return found

    def _subsystems(self, *, ana: bool) -> list[Json]:
        found: list[Json] = [
            {"Name": f"nvme-subsys{d['subsystem']}", "NQN": f"nqn.local:{serial}",
             "Paths": [{"Name": d["controller"], "Transport": "pcie", "Address": d["pci"], "State": d.get("state", "live")}]}
            for serial, d in self.drives.items()
        ]  # fmt: skip
        paths = []
        for p in self.paths:
            path = {
                "Name": p["controller"],
                "Transport": p["transport"],
                "Address": f"traddr={p['traddr']},trsvcid=4420",
                "State": p["state"],
            }
            paths.append({**path, "ANAState": p["ana"]} if ana and p["ana"] else path)
        found.append({"Name": "nvme-subsys1", "NQN": NQN, "Paths": paths, "IOPolicy": self.io_policy})
        return found

    def _sysfs(self) -> str:
        lines = []
        for p in self.paths:
            at = f"/sys/class/nvme/{p['controller']}"
            told = {"subsysnqn": NQN, "state": p["state"], "transport": p["transport"], **self.timeouts}
            told["address"] = f"traddr={p['traddr']},trsvcid=4420"
            lines += [f"{at}/{key}: {value!r}" for key, value in told.items()]
            path = f"{at}/nvme1c{p['controller'].removeprefix('nvme')}n2"
            sectors = self.carried.get(p["controller"], 0)
            lines += [f"{path}/stat: '1 0 {sectors} 0 0 0 0 0 0 0 0'", f"{path}/queue/iostats: '1'"]
        names = [*(f"nvme{d['subsystem']}n1" for d in self.drives.values()), *(f"nvme1n{n}" for n in self.namespaces)]
        for name in names:
            scheduler, timeout_ms = self.queues.get(name, ("[none] mq-deadline kyber", "30000"))
            for key, value in (("logical_block_size", "512"), ("scheduler", scheduler), ("io_timeout", timeout_ms)):
                lines.append(f"/sys/block/{name}/queue/{key}: {value!r}")
        for side in ("roce_np", "roce_rp"):
            lines.append(f"/sys/class/net/fab0/ecn/{side}/enable/3: {self.ecn!r}")
        return "\n".join([*lines, ""])

    def _verbs(self) -> str:
        gids = "".join(f"\t\t\tGID[  {number}]:\t\t{gid}\n" for number, gid in enumerate(self.gids))
        return (
            "hca_id:\trdma0\n\ttransport:\t\t\tInfiniBand (0)\n\t\tport:\t1\n\t\t\tstate:\t\t\tPORT_ACTIVE (4)\n"
            f"\t\t\tactive_mtu:\t\t{self.active_mtu}\n\t\t\tlink_layer:\t\tEthernet\n{gids}\n"
        )

    def _lspci(self) -> str:
        return (
            "0000:01:00.0 Non-Volatile memory controller [0108]: Example Device [1b36:0010] (rev 02)\n"
            "\t\tLnkCap:\tPort #0, Speed 16GT/s, Width x4, ASPM not supported\n"
            f"\t\tLnkSta:\tSpeed {self.link}\n\tKernel driver in use: nvme\n"
        )

    def _blocks(self) -> list[Json]:
        found: list[Json] = [
            {"name": f"nvme{d['subsystem']}n1", "type": "disk", "size": d["bytes"], "serial": serial, "mountpoints": [None],
             "children": [{"name": f"nvme{d['subsystem']}n1p1", "type": "part", "size": d["bytes"], "mountpoints": [None]}]}
            for serial, d in self.drives.items()
        ]  # fmt: skip
        spaces = [
            {"name": f"nvme1n{n}", "type": "disk", "serial": "A1", "mountpoints": [None]} for n in self.namespaces
        ]
        return [*found, *spaces, {"name": "vda", "type": "disk", "mountpoints": ["/"]}]

    def _df(self) -> str:
        head = "Filesystem Type Inodes IUsed IFree IUse% 1B-blocks Used Avail Use% File Mounted on\n"
        sources = {mount["target"]: mount["source"] for mount in self.mounts}
        return head + "".join(
            f"{sources.get(target, 'none')} xfs {iu + free} {iu} {free} 1% {used + left} {used} {left} 1% - {target}\n"
            for target, (used, left, iu, free) in self.df.items()
        )


def files_of(outputs: dict[str, tuple[str, int, str]]) -> dict[str, bytes]:
    """Return a bundle's files from command -> (stdout, status, stderr)."""
    index = ["name\trc\tseconds\tcommand\tnote"]
    files: dict[str, bytes] = {}
    for number, (command, (printed, status, error)) in enumerate(outputs.items()):
        name = f"c{number:02d}"
        index.append(f"{name}\t{status}\t0.1\t{command}\t")
        files |= {
            f"{name}.stdout": printed.encode(),
            f"{name}.stderr": error.encode(),
            f"{name}.rc": f"{status}\n".encode(),
        }
    return {"INDEX.tsv": ("\n".join(index) + "\n").encode(), **files}
