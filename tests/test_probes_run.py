"""The collector runs its tools: each one ends, whatever it does, and what it printed is kept."""

from __future__ import annotations

import ast
import os
import shutil
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from tests.probe_lab import FILE, PYTHON, UNKILLABLE, gone, python, unkillable_can_be_made
from workloads import probes
from workloads.probes import Ran, Task, run_all, run_tool


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
