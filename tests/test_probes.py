"""The collector of a host: one file that runs everywhere, ends whatever the tools do, and keeps what they print."""

from __future__ import annotations

import ast
import csv
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from workloads import host, probes
from workloads.bundle import open_bundle
from workloads.probes import Ran, Task, run_all, run_tool

FILE = Path(probes.__file__)
PYTHON = sys.executable


def python(code: str, *args: str) -> tuple[str, ...]:
    return (PYTHON, "-S", "-c", textwrap.dedent(code), *args)


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "KILLED_WAIT_S", 0.3)


# One tool.


def test_output_status_and_time_are_kept_apart() -> None:
    ran = run_tool(python("import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"), 20)
    assert (ran.stdout, ran.stderr, ran.status, ran.note) == (b"out\n", b"err\n", 3, "")
    assert 0 < ran.seconds < 20


def test_the_locale_is_c_nothing_is_read_and_the_folder_is_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "zh_CN.UTF-8")
    monkeypatch.setenv("LANGUAGE", "zh")
    code = "import os, sys; e = os.environ; print(e['LC_ALL'], e['LANG'], e['LANGUAGE'], repr(sys.stdin.read()), os.getcwd())"
    assert run_tool(python(code), 20).stdout == b"C C C '' /\n"


def test_arguments_are_words_and_no_shell_reads_them() -> None:
    words = ("a b", "$HOME", "`id`", "x;y", "'", '"', "*", "")
    ran = run_tool(python("import sys; print(sys.argv[1:])", *words), 20)
    assert ast.literal_eval(ran.stdout.decode()) == list(words)


def test_a_missing_tool_is_status_127_with_its_name() -> None:
    ran = run_tool(("no-such-tool-here", "-x"), 20)
    assert (ran.status, ran.note, ran.stdout) == (127, "no such tool: no-such-tool-here", b"")
    assert run_tool(("/no/such/tool",), 20).status == 127


def test_a_tool_is_missing_though_a_folder_of_path_may_not_be_read(tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    locked.mkdir(mode=0)
    code = f"import sys; sys.path.insert(0, {str(FILE.parent)!r}); import probes; print(probes.run_tool(('no-tool',), 9).status)"
    argv = ["sh", "-c", f'PATH={locked}:$PATH exec {PYTHON} -B -c "{code}"']
    if os.geteuid() == 0 and shutil.which("setpriv"):
        argv = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", *argv]  # root, without the power to read all
    done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
    assert (done.stdout, done.stderr) == ("127\n", "")


def test_a_file_that_may_not_be_run_is_status_126(tmp_path: Path) -> None:
    (tmp_path / "tool").write_text("#!/no/such/interpreter\n")
    (tmp_path / "tool").chmod(0o644)
    ran = run_tool((str(tmp_path / "tool"),), 20)
    assert ran.status in (126, 127) and ran.note.endswith(f": {tmp_path}/tool")


def test_a_tool_of_an_administrator_is_found_without_its_folder_in_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere:relative")
    assert run_tool(("uname",), 20).status == 0
    path = run_tool(("sh", "-c", "echo $PATH"), 20).stdout.decode().strip().split(":")
    assert path[0] == "/nowhere" and "/usr/sbin" in path and "relative" not in path


def test_a_signal_is_told_as_the_shell_does() -> None:
    ran = run_tool(python("import os, signal; os.kill(os.getpid(), signal.SIGABRT)"), 20)
    assert (ran.status, ran.note) == (134, "ended by signal 6")


def test_a_child_past_its_deadline_is_killed_with_its_group_and_what_it_printed_is_kept(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    code = """
        import os, signal, subprocess, sys, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        inner = subprocess.Popen([sys.executable, '-S', '-c', 'import time; time.sleep(60)'])
        open(sys.argv[1], 'w').write(str(inner.pid))
        print('so far', flush=True)
        time.sleep(60)
    """
    begin = time.monotonic()
    ran = run_tool(python(code, str(pid)), 1.5)
    assert time.monotonic() - begin < 5
    assert (ran.stdout, ran.status, ran.note) == (b"so far\n", 124, "killed after 1.5 s")
    inner = int(pid.read_text())
    for _ in range(50):
        if gone(inner):
            break
        time.sleep(0.05)
    assert gone(inner)


def test_a_grandchild_that_holds_the_output_open_does_not_hold_us() -> None:
    code = """
        import subprocess, sys
        inner = subprocess.Popen([sys.executable, '-S', '-c', 'import time; time.sleep(60)'], start_new_session=True)
        print(inner.pid, flush=True)
    """
    ran = run_tool(python(code), 30)
    os.kill(int(ran.stdout), signal.SIGKILL)
    assert ran.status == 0
    assert ran.note == "a process that it left behind holds its output open"
    assert ran.seconds < 10


def test_a_tool_that_closes_its_output_is_still_waited_for() -> None:
    code = "import os, time; print('x', flush=True); os.close(1); os.close(2); time.sleep(0.3); os._exit(5)"
    ran = run_tool(python(code), 20)
    assert (ran.stdout, ran.status) == (b"x\n", 5)
    late = run_tool(python("import os, time; os.close(1); os.close(2); time.sleep(60)"), 0.5)
    assert late.status == 124


def test_output_is_bounded_and_what_is_lost_is_told() -> None:
    ran = run_tool(
        python("import sys; sys.stdout.write('x' * 300_000); sys.stderr.write('y' * 100); sys.exit(4)"), 20, 1000
    )
    assert (len(ran.stdout), ran.stderr, ran.status) == (1000, b"y" * 100, 4)
    assert ran.note == "stdout cut at 1000 of 300000 bytes"


def test_an_endless_writer_is_ended() -> None:
    ran = run_tool(("yes",), 0.5, 1000)
    assert (len(ran.stdout), ran.status) == (1000, 124)
    assert ran.note.startswith("killed after 0.5 s; stdout cut at 1000 of ")


UNKILLABLE = """
    # SIGKILL ends this process, but who traces it does not look: for its parent it goes on, as one that is blocked
    # in the kernel does. A real process, and a real wait that does not end.
    import ctypes, os, sys, time
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    libc.prctl(0x59616d61, ctypes.c_ulong(-1).value, 0, 0, 0)  # PR_SET_PTRACER, any
    ready_out, ready_in = os.pipe()
    tracer = os.fork()
    if tracer == 0:
        os.setsid()
        done = libc.ptrace(0x4206, os.getppid(), None, None)  # PTRACE_SEIZE
        os.write(ready_in, b'1' if done == 0 else b'0')
        os.close(1), os.close(2)
        time.sleep(30)
        os._exit(0)
    if os.read(ready_out, 1) != b'1':
        print('cannot trace', flush=True)
        sys.exit(0)
    print(tracer, flush=True)
    time.sleep(60)
"""


def unkillable_can_be_made() -> bool:
    ran = run_tool(python(UNKILLABLE.replace("time.sleep(60)", "os.kill(tracer, 9)")), 10)
    return ran.stdout != b"cannot trace\n"


def test_a_child_that_sigkill_does_not_end_is_abandoned_and_named(quick: None) -> None:
    if not unkillable_can_be_made():
        pytest.skip("this host forbids to trace a process")
    begin = time.monotonic()
    ran = run_tool(python(UNKILLABLE), 1.5)
    assert time.monotonic() - begin < 10  # far less than the child would have taken
    child = probes._abandoned.pop()
    assert child.poll() is None
    assert ran.status == 124
    assert ran.note == f"abandoned after 1.5 s: process {child.pid} is still there 0.3 s after SIGKILL (state Z)"
    os.kill(int(ran.stdout), signal.SIGKILL)  # now its tracer looks away
    child.wait(timeout=20)


def test_a_child_whose_kill_is_withheld_is_abandoned_and_the_rest_goes_on(
    quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probes, "_kill", lambda child: None)
    tasks = [
        Task("a", ("echo", "1")),
        Task("b", ("sleep", "60"), 0.2),
        Task("c", ("echo", "3")),
    ]
    results = run_all(tasks, workers=1)
    (child,) = probes._abandoned
    probes._abandoned.clear()
    child.kill()
    child.wait()
    assert [ran.status for ran in results] == [0, 124, 0]
    assert (
        results[1].note.startswith(f"abandoned after 0.2 s: process {child.pid} is still there")
        and "(state S)" in results[1].note
    )


def test_control_c_ends_the_child_too() -> None:
    threading.Timer(0.4, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        run_tool(("sleep", "61.7"), 30)
    assert b"sleep 61.7" not in subprocess.run(["ps", "ax", "-o", "args"], capture_output=True, check=True).stdout
    assert not probes._running


# Many tools.


def test_dead_devices_cost_one_deadline_together_and_are_asked_once(quick: None) -> None:
    tasks = [
        Task(f"{what}.{number}", ("sleep", "60"), 0.6, (), f"nvme{number}")
        for number in range(8)
        for what in ("smart-log", "id-ctrl", "error-log")
    ]
    begin = time.monotonic()
    results = run_all(tasks, workers=8)
    assert time.monotonic() - begin < 4
    assert [ran.status for ran in results] == [124] * 24
    assert [ran.note for ran in results[:3]] == ["killed after 0.6 s", *["not run: sleep 60 did not end"] * 2]


def test_a_device_that_answers_badly_is_asked_on() -> None:
    tasks = [Task("a", ("sh", "-c", "exit 1"), 5, (), "d"), Task("b", ("echo", "x"), 5, (), "d")]
    assert [ran.status for ran in run_all(tasks)] == [1, 0]


def test_results_are_in_the_order_of_the_tasks() -> None:
    def run(argv: tuple[str, ...], deadline_s: float) -> Ran:
        time.sleep(0.02 * (int(argv[0]) % 3))
        return Ran(argv, argv[0].encode(), b"", 0, 0.0, "")

    results = run_all([Task(str(n), (str(n),)) for n in range(30)], run=run)
    assert [ran.stdout for ran in results] == [str(n).encode() for n in range(30)]


def test_a_tool_that_cannot_be_started_is_told_and_the_rest_goes_on() -> None:
    def run(argv: tuple[str, ...], deadline_s: float) -> Ran:
        if argv == ("b",):
            raise OSError(11, "Resource temporarily unavailable")
        return Ran(argv, b"", b"", 0, 0.0, "")

    results = run_all([Task(name, (name,)) for name in "abc"], workers=1, run=run)
    assert [(ran.status, ran.note) for ran in results] == [(0, ""), (126, "could not be started"), (0, "")]
    assert b"Resource temporarily unavailable" in results[1].stderr


# What is asked.


@pytest.fixture
def sysfs(tmp_path: Path) -> Path:
    root = tmp_path / "sys"
    for name in ("class/nvme/nvme0", "class/nvme/nvme10", "class/nvme/nvme2", "class/net/eth0/device", "class/net/lo",
                 "class/net/bond0/bonding", "class/net/-S/device", "block/nvme0n1", "block/nvme0n1p1", "block/nvme3c3n1",
                 "block/sda", "block/loop0"):  # fmt: skip
        (root / name).mkdir(parents=True)
    return root


def commands(tasks: list[Task]) -> list[str]:
    return [" ".join(task.words or task.argv) for task in tasks]


def test_each_device_is_asked_in_its_own_commands(sysfs: Path) -> None:
    told = commands(probes.plan([], [], False, str(sysfs)))
    for wanted in (
        "nvme list -v -o json", "nvme list-subsys -v -o json", "rdma -j link show", "rdma -j statistic show",
        "ip -j addr show", "lspci -D -vvv -nn -k", "lsblk -J -b -O", "dmesg -x --time-format=iso", "gdscheck -p",
        "cat /proc/self/mountinfo", "nvme smart-log /dev/nvme10 -o json", "nvme ana-log /dev/nvme2 -o json",
        "nvme list-subsys /dev/nvme0n1 -o json", "nvme id-ns /dev/nvme0n1 -o json", "smartctl -j -a /dev/sda",
        "ethtool -S eth0", "mlnx_qos -i eth0", "ethtool bond0",
    ):  # fmt: skip
        assert wanted in told, wanted
    assert not [line for line in told if line.split()[-1] in ("lo", "/dev/loop0", "/dev/nvme0n1p1", "-S")]
    assert not [line for line in told if "nvme3c3n1" in line or "dcgmi" in line or "write-probe" in line]
    assert len(set(told)) == len(told)
    devices = [task.device for task in probes.plan([], [], False, str(sysfs)) if task.argv[:2] == ("nvme", "id-ctrl")]
    assert devices == ["nvme0", "nvme2", "nvme10"]


def test_what_is_asked_for_alone(sysfs: Path) -> None:
    told = commands(probes.plan(["/srv/tier"], ["/opt/v/bin/python"], True, str(sysfs)))
    for wanted in ("dcgmi diag -r 1 --json", "write-probe /srv/tier", "module-hashes-of /opt/v/bin/python",
                   "native-ops-of /opt/v/bin/python", "packages-of /opt/v/bin/python"):  # fmt: skip
        assert wanted in told
    assert "/opt/v/bin/python -m pip list --format=freeze --disable-pip-version-check" in told


def test_nothing_of_the_plan_changes_the_host_but_the_write_that_was_asked_for(sysfs: Path) -> None:
    changing = {"format", "connect", "disconnect", "reset", "set-feature", "delete-ns", "mkfs", "rm", "sanitize", "set"}
    for task in probes.plan(["/srv/tier"], [], True, str(sysfs)):
        assert not changing & set(task.argv), task


# The walk of sysfs.


def test_the_walk_tells_links_attributes_and_errors_one_a_line(tmp_path: Path) -> None:
    device = tmp_path / "devices/pci0000:00/0000:00:01.0/0000:01:00.0"
    nvme = device / "nvme/nvme0"
    (nvme / "power").mkdir(parents=True)
    for name, text in (("model", "Some Drive\n"), ("pools", "a\nb\n"), ("power/control", "auto\n"), ("dhchap_secret", "DHHC-1:x\n"),
                       ("uevent", "X=1\n"), ("state", "it's\n")):  # fmt: skip
        (nvme / name).write_text(text)
    (nvme / "rescan_controller").write_text("")
    (nvme / "rescan_controller").chmod(0o200)
    (nvme / "device").symlink_to("../../../0000:01:00.0")
    (nvme / "unreadable").symlink_to("nowhere")
    (device / "vendor").write_text("0x1234\n")
    (device / "config").write_bytes(b"\0" * 64)
    for name in ("current_link_speed", "max_link_speed", "vendor"):
        (device.parent / name).write_text("16.0 GT/s PCIe\n")
    gids = nvme / "ports/1/gids"
    gids.mkdir(parents=True)
    (gids / "0").write_text("fe80:0000:0000:0000:0000:0000:0000:0001\n")
    (gids / "1").write_text("0000:0000:0000:0000:0000:0000:0000:0000\n")
    root = tmp_path / "class"
    root.mkdir()
    (root / "nvme0").symlink_to(os.path.relpath(nvme, root))
    lines: list[str] = []
    probes.Walk(lines.append).roots([str(root), str(tmp_path / "none"), str(root) + "/x*"])
    told = [line.replace(str(tmp_path), "") for line in lines]
    assert told[0] == "/class/nvme0 -> ../devices/pci0000:00/0000:00:01.0/0000:01:00.0/nvme/nvme0"
    inside = "/devices/pci0000:00/0000:00:01.0/0000:01:00.0"
    assert f"{inside}/nvme/nvme0/model: 'Some Drive'" in told
    assert f"{inside}/nvme/nvme0/pools: 'a\\nb'" in told
    assert f'{inside}/nvme/nvme0/state: "it\'s"' in told
    assert f"{inside}/nvme/nvme0/device -> ../../../0000:01:00.0" in told
    assert f"{inside}/nvme/nvme0/ports/1/gids/0: 'fe80:0000:0000:0000:0000:0000:0000:0001'" in told
    assert f"{inside}/vendor: '0x1234'" in told
    assert "/devices/pci0000:00/0000:00:01.0/max_link_speed: '16.0 GT/s PCIe'" in told
    for never in ("secret", "DHHC", "uevent", "power", "rescan", "config", "gids/1"):
        assert not [line for line in told if never in line], never
    assert len(set(told)) == len(told)


def test_an_attribute_that_blocks_is_told_as_such_and_the_walk_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_for_others(asked: int, told: int) -> None:
        with os.fdopen(asked, "rb") as paths:
            for line in paths:
                if b"blocked" in line:
                    time.sleep(60)
                os.write(told, probes.struct.pack("=ii", 0, 1) + b"7")
        os._exit(0)

    monkeypatch.setattr(probes, "_read_for_others", read_for_others)
    for name in ("a", "blocked", "c"):
        (tmp_path / name).write_text("7")
    lines: list[str] = []
    walk = probes.Walk(lines.append, patience_s=0.2)
    walk.folder(str(tmp_path))
    walk.reader.leave() if walk.reader else None
    told = [line.replace(str(tmp_path), "") for line in lines]
    assert told == ["/a: '7'", "/blocked: ERRNO 110 Connection timed out", "/c: '7'"]


def test_the_walk_of_this_host_ends() -> None:
    ran = run_tool((PYTHON, "-I", "-S", str(FILE), "--child", "sysfs", "/sys/class/net"), 60)
    assert (ran.status, ran.stderr) == (0, b"")
    assert b"/sys/class/net/lo -> " in ran.stdout and b"/mtu: '" in ran.stdout


# The write.


def test_the_write_probe_leaves_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert probes.write_probe(str(tmp_path), 10_000) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["bytes"], told["same"], told["removed"]) == (10_000, True, True)
    assert told["fsync_s"] >= 0
    assert not list(tmp_path.iterdir())


def test_a_refused_write_is_told_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert probes._child(["write", str(tmp_path / "none")]) == 1

    def full(*_args: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        probes.write_probe(str(tmp_path))
    assert not list(tmp_path.iterdir())


# Python's modules.


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    inside = tmp_path / "lmcache/v1"
    (inside / "__pycache__").mkdir(parents=True)
    (tmp_path / "lmcache/__init__.py").write_text("raise SystemExit('must not run')\n")
    (inside / "x.py").write_text("x = 1\n")
    (inside / "__pycache__/x.pyc").write_text("")
    (tmp_path / "lmcache/ops.so").write_bytes(b"\x7fELF libamdhip64.so.6 \0")
    return tmp_path


def test_modules_are_hashed_without_running_them(packages: Path) -> None:
    environ = {**os.environ, "PYTHONPATH": str(packages)}
    argv = [PYTHON, str(FILE), "--child", "hashes", "lmcache", "no_such_module"]
    done = subprocess.run(argv, env=environ, capture_output=True, text=True, check=True, timeout=60)
    lines = done.stdout.splitlines()
    assert lines[0] == f"# lmcache is {packages}/lmcache"
    assert [line.split()[2] for line in lines[1:-1]] == ["lmcache/__init__.py", "lmcache/ops.so", "lmcache/v1/x.py"]
    assert lines[-1] == "# 3 files"
    assert lines[3].split()[:2] == [probes.hashlib.sha256(b"x = 1\n").hexdigest(), "6"]


def test_native_libraries_tell_what_they_were_built_for_and_that_they_do_not_load(packages: Path) -> None:
    (packages / "lmcache/__init__.py").write_text("")
    (packages / "torch.py").write_text("raise RuntimeError('no\\ntorch')\n")
    environ = {**os.environ, "PYTHONPATH": str(packages)}
    argv = [PYTHON, "-S", str(FILE), "--child", "natives", "lmcache", "none"]
    done = subprocess.run(argv, env=environ, capture_output=True, text=True, check=True, timeout=60)
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["torch"] == {"error": "RuntimeError: no torch"}
    assert told["modules"] == ["lmcache"]
    (library,) = told["libraries"]
    assert (library["file"], library["built_for"], library["loads"]) == ("lmcache/ops.so", ["rocm"], False)
    assert library["error"]


def test_packages_are_told_without_pip() -> None:
    ran = run_tool((PYTHON, "-B", str(FILE), "--child", "packages"), 60)
    assert b"\npytest==" in ran.stdout
    lines = ran.stdout.decode().splitlines()
    assert lines[-1] == f"# {len(lines) - 1} packages"


def test_what_is_installed_is_told_of_the_collectors_own_python_too(sysfs: Path) -> None:
    tasks = [task for task in probes.plan([], [PYTHON], False, str(sysfs)) if task.words[:1] == ("packages-of",)]
    assert b"\npytest==" in run_tool(tasks[0].argv, 60).stdout


# The bundle.


def collected(tmp_path: Path, *more: str, name: str = "out.tar") -> subprocess.CompletedProcess[str]:
    copy = tmp_path / "copy"
    copy.mkdir(exist_ok=True)
    shutil.copy(FILE, copy / "probes.py")
    argv = [PYTHON, "-I", "-S", str(copy / "probes.py"), str(tmp_path / name), *more]
    return subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path)


def test_a_copy_of_the_file_alone_makes_a_bundle_that_opens(tmp_path: Path) -> None:
    target = tmp_path / "tier 1"
    target.mkdir()
    done = collected(
        tmp_path, "--path", str(target), "--only", "uname", "nvme-list.json", "write.*", "proc-*", "sysfs.txt"
    )
    assert (done.returncode, done.stderr) == (0, "")
    bundle = open_bundle(tmp_path / "out.tar")
    uname = bundle.find("uname", "-a")
    assert uname is not None and uname.stdout.startswith(b"Linux") and uname.status == 0
    nvme = bundle.find("nvme", "list", "-o", "json")
    assert nvme is not None and (nvme.status == 127) == (nvme.note == "no such tool: nvme")
    (written,) = bundle.matching("write-probe")
    assert written.argv == ("write-probe", str(target)) and json.loads(written.stdout)["removed"] is True
    (walk,) = bundle.matching("walk", "of")
    assert walk.argv[-1] == "/sys/block/nvme*" and b"/sys/class/net/lo -> " in walk.stdout
    assert not list(target.iterdir())
    assert sorted(found.name for found in tmp_path.iterdir()) == ["copy", "out.tar", "tier 1"]


def test_the_layout_is_an_index_and_three_files_a_command(tmp_path: Path) -> None:
    tasks = [
        Task("a.json", ("x", "two words"), words=()),
        Task("a.json", ("y",)),
        Task("../b/c", ("z",), words=("walk", "of *")),
    ]
    results = [
        Ran(("x",), b"1", b"2", 0, 1.234, ""),
        Ran(("y",), b"", b"", 124, 2.0, "a\tb\nc"),
        Ran(("z",), b"", b"", 1, 0, ""),
    ]
    out = tmp_path / "o.tar.gz"
    probes.pack(str(out), tasks, results)
    with tarfile.open(out, "r:gz") as tar:
        files = {member.name: (tar.extractfile(member) or io.BytesIO()).read() for member in tar}
    assert next(iter(files)) == "INDEX.tsv"
    rows = list(csv.reader(io.StringIO(files["INDEX.tsv"].decode()), delimiter="\t", quoting=csv.QUOTE_NONE))
    assert rows == [
        ["name", "rc", "seconds", "command", "note"],
        ["a.json", "0", "1.23", "x 'two words'", ""],
        ["a.json-2", "124", "2.00", "y", "a b c"],
        ["_b_c", "1", "0.00", "walk 'of *'", ""],
    ]
    assert (files["a.json.stdout"], files["a.json.stderr"], files["a.json.rc"]) == (b"1", b"2", b"0\n")
    assert len(files) == 1 + 3 * 3


def test_the_bundle_appears_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_file: int) -> None:
        assert [found.name for found in tmp_path.iterdir()] == ["o.tar.part"]
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        probes.pack(str(tmp_path / "o.tar"), [Task("a", ("a",))], [Ran(("a",), b"", b"", 0, 0, "")])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("more", "name", "why"),
    [
        (("--only", "no-such"), "o.tar", "--only no-such: no command of that name"),
        (("--path", "tier"), "o.tar", "--path tier: must begin with /"),
        ((), "none/o.tar", "is no folder that can be written to"),
        ((), "copy", "exists: name another file, or remove it"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_leaves_nothing(
    tmp_path: Path, more: tuple[str, ...], name: str, why: str
) -> None:
    done = collected(tmp_path, *more, name=name)
    assert done.returncode == 1 and why in done.stderr and done.stderr.count("\n") == 1
    assert [found.name for found in tmp_path.iterdir()] == ["copy"]


def test_an_interrupted_collection_leaves_nothing_and_nobody(tmp_path: Path) -> None:
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    (bin_ / "uname").write_text("#!/bin/sh\necho $$ > " + str(tmp_path / "pid") + "\nexec sleep 60\n")
    (bin_ / "uname").chmod(0o755)
    environ = {**os.environ, "PATH": f"{bin_}:{os.environ['PATH']}"}
    for sent in (signal.SIGINT, signal.SIGTERM):
        argv = [PYTHON, "-I", "-S", str(FILE), str(tmp_path / "o.tar"), "--only", "uname"]
        with subprocess.Popen(argv, env=environ, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as child:
            for _ in range(200):
                if (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip():
                    break
                time.sleep(0.05)
            child.send_signal(sent)
            assert child.wait(timeout=10) == 128 + sent
        inner = int((tmp_path / "pid").read_text())
        for _ in range(50):
            if gone(inner):
                break
            time.sleep(0.05)
        assert gone(inner)
        (tmp_path / "pid").unlink()
        assert [found.name for found in tmp_path.iterdir()] == ["bin"]


def test_a_collection_with_a_child_that_cannot_be_killed_is_written_and_names_it(tmp_path: Path) -> None:
    if not unkillable_can_be_made():
        pytest.skip("this host forbids to trace a process")
    script = tmp_path / "unkillable.py"
    script.write_text(textwrap.dedent(UNKILLABLE))
    code = f"""
        import os, sys
        sys.path.insert(0, {str(FILE.parent)!r})
        import probes
        probes.KILLED_WAIT_S = 0.3
        probes.plan = lambda *_: [
            probes.Task("stuck", ({PYTHON!r}, {str(script)!r}), 1.5),
            probes.Task("fine", ("echo", "fine")),
        ]
        status = probes.main([{str(tmp_path / "o.tar")!r}])
        sys.stderr.flush()
        os._exit(status)
    """
    begin = time.monotonic()
    done = subprocess.run(
        [PYTHON, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0 and time.monotonic() - begin < 20
    assert "did not end: " in done.stderr and "abandoned after 1.5 s: process " in done.stderr
    stuck, fine = open_bundle(tmp_path / "o.tar").outputs
    os.kill(int(stuck.stdout), signal.SIGKILL)
    assert (stuck.status, fine.stdout) == (124, b"fine\n")
    assert "abandoned" in stuck.note


# Old Pythons.


def test_the_file_is_python_3_6_and_imports_the_standard_library_alone() -> None:
    tree = ast.parse(FILE.read_text(encoding="utf-8"), feature_version=(3, 6))
    imported = {
        name.split(".")[0]
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names] if isinstance(node, ast.Import)
            else [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        )
    }  # fmt: skip
    assert imported <= set(sys.stdlib_module_names)
    # What came after 3.6, as far as it is easily used by mistake.
    assert "dataclasses" not in imported and "__future__" not in imported
    calls = {keyword.arg for node in ast.walk(tree) if isinstance(node, ast.Call) for keyword in node.keywords}
    assert not calls & {"capture_output", "text", "missing_ok", "dirs_exist_ok", "strict", "process_group"}
    methods = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert not methods & {"removeprefix", "removesuffix", "pidfd_open", "monotonic_ns", "waitstatus_to_exitcode"}


def old_pythons() -> Iterator[str]:
    for minor in (6, 7, 8, 9):
        found = [f"python3.{minor}", *map(str, Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python3.{minor}"))]
        for python_ in found:
            path = shutil.which(python_)
            if path and subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode == 0:
                yield path
                break


def test_it_runs_under_the_oldest_python_that_is_here(tmp_path: Path) -> None:
    oldest = next(old_pythons(), None)
    if oldest is None:
        pytest.skip("no Python before 3.10 on this host")
    argv = [
        oldest,
        "-I",
        "-S",
        str(FILE),
        str(tmp_path / "o.tar"),
        "--path",
        str(tmp_path),
        "--only",
        "uname",
        "write.*",
        "sysfs.txt",
    ]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert [output.status for output in open_bundle(tmp_path / "o.tar").outputs] == [0, 0, 0]


# The host before and after a run.


def test_the_host_of_a_run_is_told_as_text() -> None:
    assert host.probe(("echo", "x")) == "$ echo x\nx\n[status 0]\n"
    assert host.probe(("sh", "-c", "echo e >&2; exit 3")) == "$ sh -c echo e >&2; exit 3\n[stderr]\ne\n[status 3]\n"
    assert host.probe(("no-such-tool",)).endswith("[status 127]\n[no such tool: no-such-tool]\n")
    assert all(argv for argv in host.HOST_PROBES.values())
