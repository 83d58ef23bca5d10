"""Everything that is started ends with us, however we end."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from scenarios.process import Activity, Kept, StartFailed, free_ports, port_is_free, started_ticks

ROOT = Path(__file__).resolve().parent.parent

# A stand-in for an engine: a child of its own session, a grandchild whose parent goes away, a shared segment.
PROGRAM = """
import os, signal, subprocess, sys, time
from multiprocessing import resource_tracker, shared_memory
segment = shared_memory.SharedMemory(name=sys.argv[1], create=True, size=4096)
resource_tracker.unregister(segment._name, "shared_memory")  # as a killed engine would leave it
if "stubborn" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
import multiprocessing
lock = multiprocessing.get_context("spawn").Lock()  # its name is linked after it was mapped under another
resource_tracker.unregister(lock._semlock.name, "semaphore")
print("sem." + lock._semlock.name.lstrip("/"), flush=True)
child = subprocess.Popen([sys.executable, "-c", "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True)"])
child.wait()
print("up", flush=True)
if "dies" in sys.argv:
    time.sleep(3)
    os._exit(7)
time.sleep(600)
"""


def eventually(holds: Callable[[], bool], deadline_s: float = 20.0) -> bool:
    end_s = time.monotonic() + deadline_s
    while time.monotonic() < end_s:
        if holds():
            return True
        time.sleep(0.1)
    return False


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "engine.py"
    path.write_text(PROGRAM, encoding="utf-8")
    return path


def start(program: Path, segment: str, *flags: str) -> Kept:
    kept = Kept(
        "engine", [sys.executable, str(program), segment, *flags], dict(os.environ), program.with_suffix(".log"), 1.0
    )
    assert eventually(lambda: b"up" in program.with_suffix(".log").read_bytes())
    return kept


def segment_exists(name: str) -> bool:
    return Path(f"/dev/shm/{name}").exists()


@pytest.mark.parametrize("flags", [(), ("stubborn",)])
def test_stopping_ends_the_tree_and_its_segments(program: Path, flags: tuple[str, ...]) -> None:
    name = f"kvgate_test_{os.getpid()}_{len(flags)}"
    kept = start(program, name, *flags)
    tree = kept.tree()
    assert len(tree) >= 2  # the engine and the orphaned grandchild
    semaphore = kept.log.read_text(encoding="utf-8").splitlines()[0]
    assert segment_exists(name)
    assert segment_exists(semaphore)
    assert kept.exit_status() is None
    kept.stop()
    assert not any(process.is_running() for process in tree)
    assert not segment_exists(name)
    assert not segment_exists(semaphore)


def test_a_process_that_dies_takes_its_tree_along(program: Path) -> None:
    name = f"kvgate_test_{os.getpid()}_d"
    kept = start(program, name, "dies")
    tree = kept.tree()
    assert eventually(lambda: kept.exit_status() == 7)
    assert eventually(lambda: not any(process.is_running() for process in tree))
    assert not segment_exists(name)
    kept.stop()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_harness_that_is_killed_leaves_nothing(program: Path, number: int) -> None:
    name = f"kvgate_test_{os.getpid()}_{number}"
    harness = subprocess.Popen(
        [
            sys.executable, "-c",
            "import os, sys, time; from pathlib import Path; from scenarios.process import Kept;"
            f"k = Kept('engine', [sys.executable, {str(program)!r}, {name!r}, 'stubborn'], dict(os.environ), Path({str(program.with_suffix('.log'))!r}), 1.0);"
            "print(k.pid, flush=True); time.sleep(600)",
        ],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert harness.stdout is not None
    engine = psutil.Process(int(harness.stdout.readline()))
    assert eventually(lambda: segment_exists(name) and len(engine.parent().children(recursive=True)) >= 2)
    keeper = engine.parent()
    tree = keeper.children(recursive=True)
    harness.send_signal(number)
    harness.wait()
    harness.stdout.close()
    assert eventually(lambda: not any(p.is_running() for p in (*tree, keeper)))
    assert not segment_exists(name)


def test_a_keeper_that_is_killed_does_not_leave_the_engine(program: Path) -> None:
    kept = start(program, f"kvgate_test_{os.getpid()}_k")
    engine = psutil.Process(kept.pid)
    engine.parent().kill()
    assert eventually(lambda: not engine.is_running())
    kept.stop()
    for process in psutil.process_iter(["cmdline"]):
        if process.info["cmdline"] and "time.sleep(600)" in " ".join(process.info["cmdline"]):
            process.kill()
    Path(f"/dev/shm/kvgate_test_{os.getpid()}_k").unlink(missing_ok=True)


def test_the_scratch_folder_goes_too(tmp_path: Path) -> None:
    log = tmp_path / "log"
    kept = Kept(
        "x",
        [sys.executable, "-c", "import os, time; print(os.environ['TMPDIR'], flush=True); time.sleep(60)"],
        dict(os.environ),
        log,
        1.0,
    )
    assert eventually(lambda: log.read_text(encoding="utf-8").endswith("\n"))
    scratch = Path(log.read_text(encoding="utf-8").strip())
    assert scratch.is_dir()
    kept.stop()
    assert not scratch.exists()


def test_a_command_that_does_not_exist_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(StartFailed, match="engine: cannot be started: /nowhere/vllm: No such file"):
        Kept("engine", ["/nowhere/vllm"], dict(os.environ), tmp_path / "log", 1.0)


def test_free_ports_differ_and_a_taken_one_is_seen() -> None:
    ports = free_ports(5)
    assert len(set(ports)) == 5
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen()
        assert not port_is_free(s.getsockname()[1])
    assert port_is_free(ports[0])


def test_started_ticks_tell_processes_apart() -> None:
    assert started_ticks(os.getpid()) == started_ticks(os.getpid())
    assert started_ticks(2**22 - 1) is None


@pytest.mark.parametrize(
    ("name", "found"), [("ENOENT", None), ("ESRCH", None), ("EMFILE", "EMFILE"), ("EACCES", "EACCES")]
)
def test_not_to_be_able_to_look_is_not_to_find_a_process_gone(
    monkeypatch: pytest.MonkeyPatch, name: str, found: str | None
) -> None:
    def refuse(*_args: object, **_more: object) -> str:
        raise OSError(getattr(errno, name), "no")

    monkeypatch.setattr(Path, "read_text", refuse)
    assert started_ticks(os.getpid()) == found


def test_a_stall_is_no_cpu_no_io_and_no_new_line() -> None:
    def verdicts(*samples: tuple[float, int, int]) -> list[bool]:
        activity = Activity(30.0, now_s=0.0)
        return [activity.stalled(*sample, now_s=10.0 * (i + 1)) for i, sample in enumerate(samples)]

    idle = [(5.0 + 0.1 * i, 1000, 40) for i in range(6)]
    assert verdicts(*idle) == [False, False, False, True, True, True]
    busy = [(5.0 + 2.0 * i, 1000, 40) for i in range(6)]
    assert not any(verdicts(*busy))
    reading = [(5.0, 10_000_000 * i, 40) for i in range(6)]
    assert not any(verdicts(*reading))
    talking = [(5.0, 0, 40 + i) for i in range(6)]
    assert not any(verdicts(*talking))
