"""Ask every tool of a host what it has to tell, and keep it as it was printed: the arrival check judges it elsewhere.

One file of standard-library Python, 3.6 or newer, to be copied to a host that has nothing else:

    python3 probes.py OUT.tar [--path /mnt/tier] [--python /opt/venv/bin/python] [--diagnostics] [--only NAME ...]

No root is needed, but more is told to root. Nothing on the host is changed, but for one small file that is written,
read back and removed below each --path. OUT.tar appears whole or not at all: INDEX.tsv, and NAME.stdout, NAME.stderr,
NAME.rc of each command.
"""
# It must run under an old Python, and it is a program as well as a module.
# ruff: noqa: B905, RUF005, SIM105, T201, UP006, UP035, UP045

import argparse
import errno
import fnmatch
import hashlib
import io
import json
import os
import queue
import re
import selectors
import shlex
import signal
import stat
import struct
import subprocess
import sys
import tarfile
import threading
import time
from typing import IO, Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

TIMED_OUT, REFUSED, MISSING = 124, 126, 127  # as timeout(1) and the shell say it
STREAM_BYTES_MAX = 8 << 20
DEADLINE_S = 15.0
WORKERS = 8  # so that many dead devices do not take as many deadlines
KILLED_WAIT_S = 2.0  # how long a killed child may take to go
DRAIN_S = 0.5  # how long pipes may stay open after the child that wrote to them ended

# Tools of an administrator and of vendors are often not in a user's PATH.
MORE_PATH = (
    "/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin", "/opt/rocm/bin",
    "/usr/local/cuda/bin", "/usr/local/cuda/gds/tools", "/usr/local/Ascend/driver/tools",
)  # fmt: skip


class Ran(NamedTuple):
    """What one command printed, and how it ended."""

    argv: Tuple[str, ...]
    stdout: bytes
    stderr: bytes
    status: int  # 128 + n: ended by signal n; 124: given up at its deadline; 126: cannot be run; 127: no such tool
    seconds: float
    note: str


class Task(NamedTuple):
    """One command of the collection."""

    name: str
    argv: Tuple[str, ...]
    deadline_s: float = DEADLINE_S
    words: Tuple[str, ...] = ()  # what the index tells as the command, where it is not argv
    device: str = ""  # commands of one device run one after the other, and none after one that did not end


class _Kept:
    """The beginning of a stream, and how long it was."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes, self.total_bytes = most_bytes, 0
        self.parts: List[bytes] = []

    def add(self, data: bytes) -> None:
        room = self.most_bytes - self.total_bytes
        if room > 0:
            self.parts.append(data[:room])
        self.total_bytes += len(data)

    def cut(self, name: str) -> List[str]:
        over = self.total_bytes > self.most_bytes
        return [f"{name} cut at {self.most_bytes} of {self.total_bytes} bytes"] if over else []


_running: "Set[subprocess.Popen[bytes]]" = set()
_abandoned: "List[subprocess.Popen[bytes]]" = []  # kept: nobody can wait for them


def run_tool(argv: Sequence[str], deadline_s: float, most_bytes: int = STREAM_BYTES_MAX, cwd: str = "/") -> Ran:
    """Return what the command printed, its status, and a note on what went wrong. Never raises for the tool's sake.

    A tool that does not end by its deadline is killed with its process group; one that cannot be killed, as it is
    blocked in the kernel, is abandoned and named. Either way the status is 124 and what it had printed is kept.
    """
    begin = time.monotonic()
    # The shell looks the tool up and becomes it: a PATH or a program on a dead file system blocks the child, not us.
    # It looks first: told of a folder of PATH that it may not read, exec takes a missing tool for a forbidden one.
    become = f'command -v "$1" >/dev/null || {{ echo "$1: not found" >&2; exit {MISSING}; }}; exec "$@"'
    child = subprocess.Popen(
        ["/bin/sh", "-c", become, "sh"] + list(argv),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=_environment(),
        cwd=cwd,
        start_new_session=True,
    )
    assert child.stdout is not None and child.stderr is not None  # noqa: S101  # for the type checker
    kept = {child.stdout: _Kept(most_bytes), child.stderr: _Kept(most_bytes)}
    _running.add(child)
    try:
        held = _follow(child, kept, begin + deadline_s)
        notes = ["a process that it left behind holds its output open"] if held else []
        status = child.poll()
        if status is None:
            status = TIMED_OUT
            notes = [_end(child, kept, deadline_s)]
        elif status < 0:
            notes.append(f"ended by signal {-status}")
            status = 128 - status
        elif status == MISSING:
            notes.append(f"no such tool: {argv[0]}")
        elif status == REFUSED:
            notes.append(f"cannot be executed: {argv[0]}")
    except BaseException:
        _kill(child)
        _follow(child, kept, time.monotonic() + KILLED_WAIT_S)
        if child.poll() is None:
            _abandoned.append(child)
        raise
    finally:
        _running.discard(child)
        child.stdout.close()
        child.stderr.close()
    out, err = kept[child.stdout], kept[child.stderr]
    notes += out.cut("stdout") + err.cut("stderr")
    return Ran(
        tuple(argv), b"".join(out.parts), b"".join(err.parts), status, time.monotonic() - begin, "; ".join(notes)
    )


def _follow(child: "subprocess.Popen[bytes]", kept: "Dict[IO[bytes], _Kept]", end: float) -> bool:
    """Keep what the child prints until it ends, or until `end`. Returns whether others hold its output open."""
    drained: Optional[float] = None
    with selectors.DefaultSelector() as ready:
        for stream in kept:
            os.set_blocking(stream.fileno(), False)
            ready.register(stream, selectors.EVENT_READ)
        while True:
            left = (end if drained is None else drained) - time.monotonic()
            if left <= 0:
                return drained is not None
            if not ready.get_map():
                try:
                    child.wait(timeout=left)
                except subprocess.TimeoutExpired:
                    pass
                return False
            for key, _ in ready.select(min(left, 0.05)):
                try:
                    data = os.read(key.fd, 1 << 16)
                except BlockingIOError:
                    continue
                if data:
                    kept[key.fileobj].add(data)  # type: ignore[index]
                else:
                    ready.unregister(key.fileobj)
            if drained is None and child.poll() is not None:
                drained = time.monotonic() + DRAIN_S


def _end(child: "subprocess.Popen[bytes]", kept: "Dict[IO[bytes], _Kept]", deadline_s: float) -> str:
    """Kill a child that ran past its deadline, or abandon it. Returns the note on it."""
    _kill(child)
    _follow(child, kept, time.monotonic() + KILLED_WAIT_S)
    if child.poll() is not None:
        return f"killed after {deadline_s:g} s"
    _abandoned.append(child)
    stays = f"process {child.pid} is still there {KILLED_WAIT_S:g} s after SIGKILL (state {_state(child.pid)})"
    return f"abandoned after {deadline_s:g} s: {stays}"


def _kill(child: "subprocess.Popen[bytes]") -> None:
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except OSError:  # it is gone, or it became another user's
        pass


def _state(pid: int) -> str:
    # Not cmdline: to read that of a blocked process may block, too.
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0].decode("ascii", "replace")
    except (OSError, IndexError):
        return "unknown"


def _environment() -> Dict[str, str]:
    found = [part for part in os.environ.get("PATH", "").split(":") if part.startswith("/")]
    path = ":".join(found + [part for part in MORE_PATH if part not in found])
    return dict(os.environ, PATH=path, LC_ALL="C", LANG="C", LANGUAGE="C")


# What is asked on every host: the name in the index, and the command.
FIXED = """
nvme-version             nvme version
nvme-list.json           nvme list -o json
nvme-list-v.json         nvme list -v -o json
nvme-list-subsys.json    nvme list-subsys -o json
nvme-list-subsys-v.json  nvme list-subsys -v -o json
hostnqn                  cat /etc/nvme/hostnqn
lsblk-O.json             lsblk -J -b -O
findmnt.json             findmnt -J
findmnt-b.json           findmnt -J -b -o TARGET,SOURCE,FSTYPE,OPTIONS,SIZE,USED,AVAIL,USE%,MAJ:MIN,UUID
proc-mounts              cat /proc/mounts
proc-mountinfo           cat /proc/self/mountinfo
proc-diskstats           cat /proc/diskstats
proc-mdstat              cat /proc/mdstat
df                       df -B1 --output
smartctl-version         smartctl -V
smartctl-scan.json       smartctl --scan -j
rdma-version             rdma -V
rdma-link.json           rdma -j link show
rdma-link-d.json         rdma -d -j link show
rdma-dev.json            rdma -j dev show
rdma-statistic.json      rdma -j statistic show
ibstat                   ibstat
ibv_devices              ibv_devices
ibv_devinfo-v            ibv_devinfo -v
ethtool-version          ethtool --version
ip-link.json             ip -j -d link show
ip-link-s.json           ip -j -s -s link show
ip-addr.json             ip -j addr show
ip-route.json            ip -j route show table all
lspci-vvv-nn             lspci -D -vvv -nn -k
lspci-vmmk               lspci -D -vmmk -nn
dmesg-x-iso              dmesg -x --time-format=iso
uptime                   cat /proc/uptime
uname                    uname -a
os-release               cat /etc/os-release
lscpu.json               lscpu -J
lscpu                    lscpu
numactl-H                numactl -H
proc-meminfo             cat /proc/meminfo
lsmod                    lsmod
proc-cmdline             cat /proc/cmdline
boot-id                  cat /proc/sys/kernel/random/boot_id
date                     date -u +%Y-%m-%dT%H:%M:%SZ
fio-version              fio --version
python-version           python3 --version
rocm-version             cat /opt/rocm/.info/version
amdgpu-version           cat /sys/module/amdgpu/version
cuda-version.json        cat /usr/local/cuda/version.json
nvidia-version           cat /proc/driver/nvidia/version
cann-version             cat /usr/local/Ascend/ascend-toolkit/latest/version.cfg
ascend-driver-version    cat /usr/local/Ascend/driver/version.info
ascend-firmware-version  cat /usr/local/Ascend/firmware/version.info
"""
# They load a driver's library and ask every card: slower by far. One field that a version does not know spoils the
# whole query of nvidia-smi, so what old ones lack is asked apart.
SLOW_DEADLINE_S = 60.0
SLOW = """
amd-smi-version.json       amd-smi version --json
amd-smi-list.json          amd-smi list --json
amd-smi-static.json        amd-smi static --json
amd-smi-firmware.json      amd-smi firmware --json
amd-smi-metric.json        amd-smi metric --json
rocm-smi.json              rocm-smi --showid --showproductname --showserial --showuniqueid --showbus {ROCM_MORE}
nvidia-smi-L               nvidia-smi -L
nvidia-smi-query.csv       nvidia-smi --query-gpu={NVIDIA} --format=csv
nvidia-smi-query-more.csv  nvidia-smi --query-gpu={NVIDIA_MORE} --format=csv
nvidia-smi-topo            nvidia-smi topo -m
npu-smi-info               npu-smi info
npu-smi-info-l             npu-smi info -l
npu-smi-info-m             npu-smi info -m
gdscheck                   gdscheck -p
"""
LONG_WORDS = {
    "ROCM_MORE": "--showdriverversion --showfwinfo --showmeminfo vram --showtemp --json",
    "NVIDIA": "index,name,uuid,serial,pci.bus_id,pci.device_id,driver_version,vbios_version,memory.total,memory.used,"
    "temperature.gpu,ecc.mode.current,mig.mode.current,pcie.link.gen.current,pcie.link.gen.max,"
    "pcie.link.width.current,pcie.link.width.max",
    "NVIDIA_MORE": "index,uuid,persistence_mode,compute_mode,ecc.errors.corrected.volatile.total,"
    "ecc.errors.uncorrected.volatile.total,ecc.errors.uncorrected.aggregate.total,retired_pages.pending",
}
# {0}: the device. A device's commands run in this order, and none after one that did not end.
CONTROLLER = """
nvme-smart-log.{0}.json  nvme smart-log /dev/{0} -o json
nvme-id-ctrl.{0}.json    nvme id-ctrl /dev/{0} -o json
nvme-error-log.{0}.json  nvme error-log /dev/{0} -e 8 -o json
nvme-fw-log.{0}.json     nvme fw-log /dev/{0} -o json
nvme-ana-log.{0}.json    nvme ana-log /dev/{0} -o json
smartctl-a.{0}.json      smartctl -j -a /dev/{0}
"""
NAMESPACE = """
nvme-smart-log.{0}.json  nvme smart-log /dev/{0} -o json
nvme-id-ns.{0}.json      nvme id-ns /dev/{0} -o json
smartctl-a.{0}.json      smartctl -j -a /dev/{0}
"""
# These read sysfs alone, and answer where the drive does not.
NAMESPACE_PATHS = """
nvme-list-subsys.{0}.json    nvme list-subsys /dev/{0} -o json
nvme-list-subsys-v.{0}.json  nvme list-subsys -v /dev/{0} -o json
"""
DISK = """
smartctl-a.{0}.json  smartctl -j -a /dev/{0}
"""
PORT = """
ethtool.{0}           ethtool {0}
ethtool-S.{0}         ethtool -S {0}
ethtool-i.{0}         ethtool -i {0}
ethtool-k.{0}         ethtool -k {0}
ethtool-g.{0}         ethtool -g {0}
ethtool-a.{0}         ethtool -a {0}
ethtool-show-fec.{0}  ethtool --show-fec {0}
dcb-pfc.{0}.json      dcb -j pfc show dev {0}
dcb-apptrust.{0}.json  dcb -j apptrust show dev {0}
dcb-app.{0}.json      dcb -j app show dev {0}
mlnx_qos.{0}          mlnx_qos -i {0}
ethtool-m.{0}         ethtool -m {0}
"""
SYSFS_ROOTS = (
    "/sys/class/nvme-fabrics /sys/class/nvme-subsystem /sys/class/nvme /sys/class/nvme-generic /sys/class/infiniband"
    " /sys/class/net /sys/class/infiniband_verbs /sys/class/infiniband_mad /sys/block/nvme*"
)
MODULES = ("vllm", "lmcache", "vllm_ascend", "lmcache_ascend")
NATIVES = ("lmcache", "lmcache_ascend")


def _listed(table: str, deadline_s: float = DEADLINE_S, device: str = "", group: str = "") -> List[Task]:
    """Return the tasks of one table; its words in braces are filled in."""
    rows = (line.split(None, 1) for line in table.strip().splitlines())
    return [
        Task(name.format(device), tuple(command.format(device, **LONG_WORDS).split()), deadline_s, (), group)
        for name, command in rows
    ]


def plan(paths: Sequence[str], pythons: Sequence[str], diagnostics: bool, sys_root: str = "/sys") -> List[Task]:
    """Return the commands to run on this host: the fixed ones, then those of the devices that are there."""
    tasks = _listed(FIXED) + _listed(SLOW, SLOW_DEADLINE_S)
    if diagnostics:
        tasks.append(Task("dcgmi-diag.json", ("dcgmi", "diag", "-r", "1", "--json"), 900.0))
    roots = SYSFS_ROOTS.split()
    tasks.append(_own("sysfs.txt", ("walk", "of", *roots), ("sysfs", *roots), 120.0))
    tasks += _of_devices(sys_root)
    for path in paths:
        label = path.strip("/").replace("/", "-") or "root"
        tasks += [
            Task("df." + label, ("df", "-B1", "--output", path), device=path),
            Task("df-i." + label, ("df", "-i", path), device=path),
            Task("stat-f." + label, ("stat", "-f", path), device=path),
            _own("write." + label, ("write-probe", path), ("write", path), 30.0)._replace(device=path),
        ]
    for number, python in enumerate(pythons):
        more = f".{number}" if number else ""
        pip = (python, "-m", "pip", "list", "--format=freeze", "--disable-pip-version-check")
        tasks += [
            Task("python-version-of" + more, (python, "--version")),
            Task("pip-list" + more, pip, 60.0),
            _own("packages" + more, ("packages-of", python), ("packages",), 60.0, (python, "-B")),
            _own("module-hashes" + more, ("module-hashes-of", python), ("hashes",) + MODULES, 600.0, (python, "-B")),
            _own("native-ops.json" + more, ("native-ops-of", python), ("natives",) + NATIVES, 180.0, (python, "-B")),
        ]
    return tasks


# A part of this file that needs nothing of what is installed.
BARE = (sys.executable, "-B", "-I", "-S")


def _own(
    name: str, words: Tuple[str, ...], asked: Tuple[str, ...], deadline_s: float, python: Tuple[str, ...] = BARE
) -> Task:
    """Return the task of running a part of this file in a child of its own, by a Python that may have more in it."""
    return Task(name, (*python, os.path.abspath(__file__), "--child", *asked), deadline_s, words)


def _of_devices(sys_root: str) -> List[Task]:
    tasks: List[Task] = []
    for name in _names(sys_root + "/class/nvme", r"nvme\d+"):
        tasks += _listed(CONTROLLER, device=name, group=name)
    for name in _names(sys_root + "/block", r"nvme\d+n\d+"):
        tasks += _listed(NAMESPACE_PATHS, device=name) + _listed(NAMESPACE, device=name, group=name)
    for name in _names(sys_root + "/block", r"[shv]d[a-z]+"):
        tasks += _listed(DISK, device=name, group=name)
    for name in _ports(sys_root):
        tasks += _listed(PORT, device=name, group="net " + name)
    return tasks


def _names(folder: str, pattern: str) -> List[str]:
    try:
        found = [name for name in os.listdir(folder) if re.match(pattern + r"\Z", name)]
    except OSError:
        return []
    return sorted(found, key=lambda name: [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)])


def _ports(sys_root: str) -> List[str]:
    """Return the network devices with hardware, and those that are made of such: bonds and VLANs."""
    folder = sys_root + "/class/net"
    return [
        name
        for name in _names(folder, r"[A-Za-z0-9][\w.@:-]*")
        if any(os.path.exists(os.path.join(folder, name, part)) for part in ("device", "bonding"))
        or os.path.exists("/proc/net/vlan/" + name)
    ]


def run_all(tasks: Sequence[Task], workers: int = WORKERS, run: Callable[..., Ran] = run_tool) -> List[Ran]:
    """Return what each task printed, in the order of the tasks. What belongs to one device runs in order, on its own.

    After a command that did not end, the device's further ones are not run: they would take a deadline each.
    """
    groups: Dict[str, List[int]] = {}
    for number, task in enumerate(tasks):
        groups.setdefault(task.device or f"alone {number}", []).append(number)
    todo: queue.Queue[List[int]] = queue.Queue()
    for group in groups.values():
        todo.put(group)
    done: List[Optional[Ran]] = [None] * len(tasks)

    def work() -> None:
        while True:
            try:
                group = todo.get_nowait()
            except queue.Empty:
                return
            stuck = ""
            for number in group:
                task = tasks[number]
                if stuck:
                    ran = Ran(task.argv, b"", b"", TIMED_OUT, 0.0, f"not run: {stuck} did not end")
                else:
                    try:
                        ran = run(task.argv, task.deadline_s)
                    except Exception as error:  # noqa: BLE001  # no process left, no descriptor left: told, the rest goes on
                        ran = Ran(task.argv, b"", str(error).encode(), REFUSED, 0.0, "could not be started")
                    stuck = " ".join(task.words or task.argv) if ran.status == TIMED_OUT else ""
                done[number] = ran

    # Daemons: nothing waits for them where the collection is interrupted.
    threads = [threading.Thread(target=work, daemon=True) for _ in range(min(workers, len(groups)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():
            thread.join(0.2)
    return [ran for ran in done if ran is not None]


def pack(out: str, tasks: Sequence[Task], results: Sequence[Ran]) -> None:
    """Write the bundle to `out`, whole or not at all; a name that ends in gz is compressed. Raises OSError."""
    part = out + ".part"
    zipped = out.endswith("gz")
    try:
        with open(part, "wb") as file:
            with tarfile.open(fileobj=file, mode="w:gz" if zipped else "w", format=tarfile.GNU_FORMAT) as tar:
                for name, data in files_of(tasks, results):
                    member = tarfile.TarInfo(name)
                    member.size, member.mtime, member.mode = len(data), int(time.time()), 0o644
                    tar.addfile(member, io.BytesIO(data))
            file.flush()
            os.fsync(file.fileno())
        os.rename(part, out)
    except BaseException:
        try:
            os.unlink(part)
        except OSError:
            pass
        raise


def files_of(tasks: Sequence[Task], results: Sequence[Ran]) -> Iterator[Tuple[str, bytes]]:
    """Yield the files of the bundle, the index first."""
    index = ["name\trc\tseconds\tcommand\tnote"]
    files: List[Tuple[str, bytes]] = []
    used: Set[str] = set()
    for task, ran in zip(tasks, results):
        name = plain = re.sub(r"[^A-Za-z0-9._+-]", "_", task.name).lstrip(".") or "unnamed"
        number = 2
        while name in used:
            name, number = f"{plain}-{number}", number + 1
        used.add(name)
        command = " ".join(shlex.quote(word) for word in task.words or task.argv)
        row = (name, str(ran.status), f"{ran.seconds:.2f}", command, ran.note)
        index.append("\t".join(" ".join(field.split()) for field in row))
        files += [(name + ".stdout", ran.stdout), (name + ".stderr", ran.stderr)]
        files.append((name + ".rc", f"{ran.status}\n".encode()))
    yield "INDEX.tsv", ("\n".join(index) + "\n").encode("utf-8", "replace")
    yield from files


# What runs in children of its own.


class _Reader:
    """A process that reads files for us: one that blocks in the kernel is left behind, and another one goes on."""

    def __init__(self) -> None:
        ask_out, self.ask_in = os.pipe()
        self.told_out, told_in = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.ask_in)
            os.close(self.told_out)
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, 1)  # a reader that is left behind must not hold our output open
            os.dup2(null, 2)
            _read_for_others(ask_out, told_in)
        os.close(ask_out)
        os.close(told_in)

    def read(self, path: str, patience_s: float) -> Optional[Tuple[int, bytes]]:
        """Return (0, content) or (errno, nothing); None: no answer in time, and this reader is of no more use."""
        end = time.monotonic() + patience_s
        data = b""
        os.write(self.ask_in, os.fsencode(path) + b"\n")
        with selectors.DefaultSelector() as ready:
            ready.register(self.told_out, selectors.EVENT_READ)
            while len(data) < 8 or len(data) < 8 + struct.unpack("=ii", data[:8])[1]:
                more = os.read(self.told_out, 1 << 16) if ready.select(max(0.0, end - time.monotonic())) else b""
                if not more:
                    self.leave()
                    return None
                data += more
        return struct.unpack("=ii", data[:8])[0], data[8:]

    def leave(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.close(self.ask_in)
        os.close(self.told_out)


def _read_for_others(asked: int, told: int) -> None:
    with os.fdopen(asked, "rb") as paths:
        for line in paths:
            number, data = 0, b""
            try:
                file = os.open(line[:-1], os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
                try:
                    data = os.read(file, 1 << 16)
                finally:
                    os.close(file)
            except OSError as error:
                number, data = error.errno or errno.EIO, b""
            answer = struct.pack("=ii", number, len(data)) + data
            while answer:
                answer = answer[os.write(told, answer) :]
    os._exit(0)


class Walk:
    """A walk of sysfs that reads what can be read without changing or blocking anything, one attribute a line.

    A link is told as `a -> b`, an attribute as `path: 'value'`, one that cannot be read as `path: ERRNO n text`.
    """

    # Large, or of no interest, or told elsewhere.
    SKIPPED_FOLDERS = ("power", "msi_irqs", "queues", "mq", "trace", "integrity", "holders", "slaves", "subsystem")
    # Not settings but doings, or such whose reading asks the device's slow or fragile side.
    SKIPPED_FILES = ("uevent", "config", "rom", "vpd", "remove", "rescan", "delete_controller")
    SECRETS = ("dhchap_secret", "dhchap_ctrl_secret", "tls_key", "tls_configured_key", "tls_keyring")
    DEPTH_MAX = 8
    BLOCKED_MAX = 10

    def __init__(self, say: Callable[[str], None], patience_s: float = 2.0) -> None:
        self.say, self.patience_s = say, patience_s
        self.seen: Set[str] = set()
        self.blocked = 0
        self.reader: Optional[_Reader] = None

    def roots(self, roots: Sequence[str]) -> None:
        """Walk what the links in these folders lead to, then the PCI devices behind it."""
        devices: List[str] = []
        for root in roots:
            folder, _, pattern = root.rpartition("/") if "*" in root else (root, "", "*")
            for name in sorted(fnmatch.filter(self._entries(folder), pattern)):
                path = folder + "/" + name
                if os.path.islink(path):
                    self.link(path)
                    self.folder(os.path.realpath(path))
                    devices.append(os.path.realpath(path + "/device"))
                elif os.path.isfile(path):
                    self.file(path)
        for device in devices:
            self.pci(device)

    def pci(self, device: str) -> None:
        """Tell a device's own attributes, and the link attributes of the ports above it."""
        if not os.path.exists(device + "/vendor") or device in self.seen:
            return
        self.seen.add(device)
        for name in self._entries(device):
            if os.path.isfile(device + "/" + name) and not os.path.islink(device + "/" + name):
                self.file(device + "/" + name)
            elif name in ("driver", "subsystem"):
                self.link(device + "/" + name)
        port = os.path.dirname(device)
        while os.path.exists(port + "/current_link_speed") and port not in self.seen:
            self.seen.add(port)
            for name in ("current_link_speed", "current_link_width", "max_link_speed", "max_link_width",
                         "class", "vendor", "device"):  # fmt: skip
                self.file(port + "/" + name)
            port = os.path.dirname(port)

    def folder(self, path: str, depth: int = 0) -> None:
        if path in self.seen or depth > self.DEPTH_MAX:
            return
        self.seen.add(path)
        for name in self._entries(path):
            inner = path + "/" + name
            if os.path.islink(inner):
                self.link(inner)
            elif os.path.isdir(inner):
                if name not in self.SKIPPED_FOLDERS:
                    self.folder(inner, depth + 1)
            else:
                self.file(inner)

    def link(self, path: str) -> None:
        try:
            self.say(f"{path} -> {os.readlink(path)}")
        except OSError:
            pass

    def file(self, path: str) -> None:
        name = os.path.basename(path)
        skipped = name in self.SKIPPED_FILES + self.SECRETS or name.startswith(("resource", "reset"))
        try:
            readable = os.lstat(path).st_mode & (stat.S_IRUSR | stat.S_IRGRP | stat.S_IROTH)
        except OSError:
            return
        if skipped or not readable or self.blocked > self.BLOCKED_MAX:
            return
        if self.reader is None:
            self.reader = _Reader()
        answer = self.reader.read(path, self.patience_s)
        if answer is None:
            self.reader, self.blocked = None, self.blocked + 1
            answer = errno.ETIMEDOUT, b""
        number, data = answer
        # A GID table has hundreds of empty places.
        empty = data.strip() == b"0000:0000:0000:0000:0000:0000:0000:0000" or number == errno.EINVAL
        if empty and re.search(r"/gids/|/gid_attrs/", path):
            return
        value = f"ERRNO {number} {os.strerror(number)}" if number else _quoted(data)
        self.say(f"{path}: {value}")

    def _entries(self, folder: str) -> List[str]:
        try:
            return sorted(os.listdir(folder))
        except OSError:
            return []


def _quoted(data: bytes) -> str:
    return repr(data.decode("utf-8", "backslashreplace").rstrip("\n\0"))


def walk_sysfs(roots: Sequence[str]) -> int:
    """Print the attributes below the roots. Returns 0."""
    walk = Walk(lambda line: print(line.encode("ascii", "backslashreplace").decode("ascii"), flush=True))
    walk.roots(roots)
    for module in _names("/sys/module", r"(nvme|mlx5|bnxt|ice|irdma|rdma|ib_|amdgpu|nvidia)\w*"):
        for name in walk._entries("/sys/module/" + module + "/parameters"):
            walk.file("/sys/module/" + module + "/parameters/" + name)
        walk.file("/sys/module/" + module + "/version")
    return 0


def write_probe(folder: str, size: int = 1 << 20) -> int:
    """Write, fsync, read back and remove one small file in the folder; tell the seconds of each as JSON. Returns 0.

    Raises OSError; then the file is removed where that is possible.
    """
    path = os.path.join(folder, f".kvgate-probe-{os.getpid()}-{os.urandom(4).hex()}")
    told: Dict[str, Any] = {"path": folder, "file": path, "bytes": size, "removed": False}
    data = os.urandom(size)
    clock = [time.monotonic()]

    def lap(name: str) -> None:
        clock.append(time.monotonic())
        told[name] = round(clock[-1] - clock[-2], 6)

    print(f"writes {path}", file=sys.stderr, flush=True)  # it is left behind where this process is abandoned
    file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(file, view) :]
        lap("write_s")
        os.fsync(file)
        lap("fsync_s")
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)  # so that the device is read, not the page cache
        os.lseek(file, 0, os.SEEK_SET)
        found = b""
        while len(found) < size:
            more = os.read(file, size - len(found))
            if not more:
                break
            found += more
        lap("read_s")
        told["same"] = found == data
    finally:
        os.close(file)
        os.unlink(path)
    told["removed"] = True
    lap("remove_s")
    print(json.dumps(told))
    return 0 if told["same"] else 1


def tell_packages() -> int:
    """Print NAME==VERSION of what this Python would import, of environments without pip, too. Returns 0.

    Of one that is installed twice the first on the path counts. How many there are stands at the end.
    """
    import importlib.metadata as metadata

    found: Dict[str, str] = {}
    for one in metadata.distributions():
        name = one.metadata["Name"]
        if name:  # a broken installation has none
            found.setdefault(re.sub(r"[-_.]+", "-", name).lower(), f"{name}=={one.version}")
    for line in sorted(found.values()):
        print(line)
    print(f"# {len(found)} packages")
    return 0


def _module_folders(modules: Sequence[str]) -> Iterator[Tuple[str, str]]:
    import importlib.util

    for module in modules:
        try:
            spec = importlib.util.find_spec(module)  # does not run the package
        except (ImportError, ValueError):
            spec = None
        for folder in (spec.submodule_search_locations or []) if spec else []:
            yield module, folder


def tell_hashes(modules: Sequence[str]) -> int:
    """Print `SHA256  BYTES  MODULE/FILE` of every file of the modules, compiled caches left out. Returns 0.

    How many there are stands at the end.
    """
    count = 0
    for module, top in _module_folders(modules):
        print(f"# {module} is {top}")
        for folder, folders, files in os.walk(top):
            folders[:] = sorted(name for name in folders if name != "__pycache__")
            for name in sorted(files):
                path = os.path.join(folder, name)
                if os.path.islink(path) and not os.path.isfile(path):
                    continue
                digest, size = hashlib.sha256(), 0
                with open(path, "rb") as file:
                    for block in iter(lambda: file.read(1 << 20), b""):
                        digest.update(block)
                        size += len(block)
                print(f"{digest.hexdigest()}  {size}  {module}/{os.path.relpath(path, top)}")
                count += 1
    print(f"# {count} files")
    return 0


# What a native library is linked against says which accelerator it was built for.
LIBRARIES = {"cuda": b"libcudart.so", "rocm": b"libamdhip64.so", "cann": b"libascendcl.so", "xpu": b"libsycl.so"}


def tell_natives(modules: Sequence[str]) -> int:
    """Print as JSON which native libraries modules have, what they were built for, and whether they load. Returns 0."""
    import importlib

    told: Dict[str, Any] = {"modules": [], "libraries": [], "torch": None}
    try:
        torch = importlib.import_module("torch")
        version = torch.version
        told["torch"] = {
            "version": str(torch.__version__),
            "cuda": getattr(version, "cuda", None),
            "hip": getattr(version, "hip", None),
            "device": "cuda" if torch.cuda.is_available() else None,
            "devices": torch.cuda.device_count(),
        }
    except Exception as error:  # noqa: BLE001  # whatever a broken installation raises is what is to be told
        told["torch"] = {"error": _one_line(error)}
    for module, top in _module_folders(modules):
        told["modules"].append(module)
        for folder, folders, files in os.walk(top):
            folders.sort()
            for name in sorted(files):
                if not re.search(r"\.so(\.|$)", name):
                    continue
                path = os.path.join(folder, name)
                with open(path, "rb") as file:
                    content = file.read()
                entry: Dict[str, Any] = {
                    "file": f"{module}/{os.path.relpath(path, top)}",
                    "built_for": sorted(key for key, mark in LIBRARIES.items() if mark in content),
                    "sha256": hashlib.sha256(content).hexdigest(),
                }
                inner = os.path.relpath(folder, top).replace(os.sep, ".")
                dotted = ".".join(part for part in (module, inner if inner != "." else "", name.split(".")[0]) if part)
                try:
                    importlib.import_module(dotted)
                    entry["loads"] = True
                except Exception as error:  # noqa: BLE001
                    entry["loads"], entry["error"] = False, _one_line(error)
                told["libraries"].append(entry)
    # Importing may print: the JSON stands on a line of its own, at the end.
    print("\n" + json.dumps(told))
    return 0


def _one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]


def _child(asked: Sequence[str]) -> int:
    what, rest = asked[0], list(asked[1:])
    own = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [part for part in sys.path if os.path.abspath(part) != own]  # what lies beside this file is not meant
    try:
        if what == "sysfs":
            return walk_sysfs(rest)
        if what == "write":
            return write_probe(rest[0])
        if what == "packages":
            return tell_packages()
        return tell_hashes(rest) if what == "hashes" else tell_natives(rest)
    except (OSError, ImportError) as error:
        print(_one_line(error), file=sys.stderr)
        return 1


def collect(
    out: str, paths: Sequence[str], pythons: Sequence[str], diagnostics: bool = False, only: Sequence[str] = ()
) -> List[str]:
    """Run every command and write the bundle. Returns what did not end, one line each. Raises OSError, ValueError."""
    folder = os.path.dirname(os.path.abspath(out))
    if os.path.lexists(out):
        raise ValueError(f"{out} exists: name another file, or remove it")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ValueError(f"{folder} is no folder that can be written to: name OUT elsewhere")
    for path in paths:
        if not path.startswith("/"):
            raise ValueError(f"--path {path}: must begin with /")
    tasks = plan(paths, pythons, diagnostics)
    if only:
        tasks = [task for task in tasks if any(fnmatch.fnmatchcase(task.name, pattern) for pattern in only)]
    if not tasks:
        raise ValueError(f"--only {' '.join(only)}: no command of that name")
    results = run_all(tasks)
    pack(out, tasks, results)
    stuck = [(task, ran) for task, ran in zip(tasks, results) if ran.status == TIMED_OUT]
    return [f"{' '.join(task.words or task.argv)}: {ran.note}" for task, ran in stuck]


def _stop(number: int, _frame: Any) -> None:
    raise SystemExit(128 + number)


def main(argv: Sequence[str]) -> int:
    """Return the exit status: 0 the bundle is there, 1 it is not."""
    if argv[:1] == ["--child"]:
        return _child(argv[1:])
    parser = argparse.ArgumentParser(prog="probes.py", description="Collect what the tools of this host tell.")
    parser.add_argument("out", metavar="OUT.tar", help="the bundle to write; OUT.tar.gz is compressed")
    parser.add_argument("--path", action="append", default=[], help="folder to try one small write in")
    parser.add_argument("--python", action="append", default=[], help="Python that runs vLLM and LMCache")
    parser.add_argument("--diagnostics", action="store_true", help="also run `dcgmi diag -r 1`, minutes")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="only these, as in the index; * fits all")
    asked = parser.parse_args(list(argv))
    signal.signal(signal.SIGTERM, _stop)
    try:
        stuck = collect(asked.out, asked.path, asked.python, asked.diagnostics, asked.only)
    except (OSError, ValueError) as error:
        print(f"probes.py: {error}", file=sys.stderr)
        return 1
    finally:
        for child in list(_running):
            _kill(child)
    for line in stuck:
        print(f"probes.py: did not end: {line}", file=sys.stderr)
    print(f"probes.py: wrote {asked.out}")
    return 0


if __name__ == "__main__":
    status = 130
    try:
        status = main(sys.argv[1:])
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else 1
    except KeyboardInterrupt:
        print("probes.py: interrupted: nothing was written", file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # children that cannot be killed, and their threads, are not waited for
