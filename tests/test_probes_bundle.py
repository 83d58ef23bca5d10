"""The bundle that the collector writes: one file, whole or not at all, however the collection ends."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import signal
import subprocess
import tarfile
import textwrap
import time
from pathlib import Path

import pytest

from tests.probe_lab import FILE, PYTHON, UNKILLABLE, gone, unkillable_can_be_made
from workloads import probes
from workloads.bundle import open_bundle
from workloads.probes import Ran, Task


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
