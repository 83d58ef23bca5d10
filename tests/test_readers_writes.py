"""Whether a write came through, whatever words stand around the command."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gates.readers.error import ReaderError
from gates.readers.writes import targets, write_probe
from tests.reader_samples import lab, said, tried
from workloads.bundle import Output

DD = "dd if=/dev/zero of=/mnt/fx/.w bs=1M count=1 conv=fsync"
COPIED = "1+0 records in\n1+0 records out\n1048576 bytes (1.0 MB, 1.0 MiB) copied, 0.03 s, 29 MB/s\n"
FULL = (
    "dd: error writing '/mnt/fx/.w': No space left on device\n1+0 records in\n0+0 records out\n0 bytes copied, 0.01 s\n"
)


@pytest.mark.parametrize(
    ("command", "path", "proves"),
    [
        (f"{DD} && rm -f /mnt/fx/.w", "/mnt/fx/.w", "data"),
        ("timeout 4 dd if=/dev/zero of=/mnt/fx/.w oflag=direct bs=4k count=1", "/mnt/fx/.w", "data"),
        ("dd if=/dev/zero of=/mnt/fx/.w bs=1M count=1", "/mnt/fx/.w", "cache"),
        ("touch /mnt/fx/.t && rm /mnt/fx/.t", "/mnt/fx/.t", "metadata"),
        ("sudo -n sh -c 'touch /mnt/fx/.t && rm /mnt/fx/.t'", "/mnt/fx/.t", "metadata"),
        ("bash -lc 'cd /; /usr/bin/touch /mnt/fx/.t; rm -f /mnt/fx/.t'", "/mnt/fx/.t", "metadata"),
        ("echo x > /mnt/fx/.t", "/mnt/fx/.t", "cache"),
        ("echo x >/mnt/fx/.t && rm /mnt/fx/.t", "/mnt/fx/.t", "cache"),
        ("cp /etc/hosts /mnt/fx/.t", "/mnt/fx/.t", "cache"),
        ("echo x | tee /mnt/fx/.t", "/mnt/fx/.t", "cache"),
        ("fallocate -l 1M /mnt/fx/.t", "/mnt/fx/.t", "metadata"),
    ],
)
def test_the_file_and_what_success_shows(command: str, path: str, proves: str) -> None:
    stderr = COPIED if "dd " in command else ""
    if "fallocate" in command:
        with pytest.raises(ReaderError):  # options that take a word are not known: 1M is no path, so the path is
            write_probe(said("", command.replace("/mnt/fx/.t", ".t")))
    found = write_probe(said("", command, stderr=stderr))
    assert (found.path, found.outcome, found.proves, found.reason) == (path, "written", proves, None)
    assert found.bytes == (1048576 if "dd " in command else None)


@pytest.mark.parametrize(
    "command",
    [
        "ls -la /mnt/fx",
        "rm -f /mnt/fx/.w",
        "cat /proc/mounts 2>/dev/null",
        "touch .t",
        "dd if=/mnt/fx/a",
        "df > /dev/null",
        "",
    ],
)
def test_what_writes_nowhere(command: str) -> None:
    assert targets(said("", command)) == ()
    with pytest.raises(ReaderError, match="writes to no file"):
        write_probe(said("", command))


@pytest.mark.parametrize("status", [124, 137, 143, -9])
def test_no_answer(status: int) -> None:
    found = write_probe(said("", DD, status=status, note="killed after 4 s"))
    assert (found.outcome, found.reason) == ("no answer", "killed after 4 s")
    assert write_probe(said("", DD, status=status)).reason


@pytest.mark.parametrize(
    ("command", "status", "stderr", "reason"),
    [
        (DD, 1, FULL, "No space left on device"),
        ("touch /m/.t", 1, "touch: cannot touch '/m/.t': Read-only file system\n", "Read-only file system"),
        ("echo x > /m/.t", 2, "sh: 1: cannot create /m/.t: Input/output error\n", "Input/output error"),
        ("echo x > /m/.t", 1, "bash: line 1: /m/.t: Permission denied\n", "Permission denied"),
        (
            "touch /m/.t; rm -f /m/.t",
            0,
            "touch: cannot touch '/m/.t': Read-only file system\n",
            "Read-only file system",
        ),
        ("touch /m/.t && rm /m/.t", 1, "rm: cannot remove '/m/.t': Input/output error\n", "Input/output error"),
        (
            "touch /m/.t",
            1,
            "touch: '/m/.t' kann nicht berührt werden: Das Dateisystem ist nur lesbar\n",
            "Das Dateisystem ist nur lesbar",
        ),
        ("touch /m/.t", 1, "", "status 1, and nothing was said"),
        (
            "dd if=/dev/zero of=/m/.w count=0",
            0,
            "0+0 records in\n0+0 records out\n0 bytes copied, 0 s\n",
            "0 bytes were written",
        ),
    ],
)
def test_refused_with_its_reason(command: str, status: int, stderr: str, reason: str) -> None:
    found = write_probe(said("", command, status=status, stderr=stderr))
    assert (found.outcome, found.reason) == ("refused", reason)


@pytest.mark.parametrize(
    "output",
    [
        said("", DD, status=None, stderr=COPIED),
        said("", DD, status=127, stderr="sh: dd: not found"),
        said("", DD, status=126, stderr="sh: dd: Permission denied"),
        said("", "touch /m/.t 2>/dev/null; rm -f /m/.t"),
        said("", "dd if=/dev/zero of=/m/.w status=none; true"),
    ],
)
def test_not_known(output: Output) -> None:
    with pytest.raises(ReaderError):
        write_probe(output)


def test_the_status_of_another_command_is_made_up_for_by_what_dd_counted() -> None:
    assert write_probe(said("", f"{DD}; rm -f /mnt/fx/.w", stderr=COPIED)).outcome == "written"
    chinese = "输入了 1+0 块记录\n输出了 1+0 块记录\n1048576 字节 (1.0 MB, 1.0 MiB) 已复制，0.03 s\n"
    assert write_probe(said("", DD, stderr=chinese)).bytes == 1048576


def test_the_probe_of_this_project() -> None:
    def told(stdout: str, status: int, stderr: str = "writes /mnt/fx/.kvgate-probe-1\n") -> Output:
        return said(stdout, "write-probe /mnt/fx", status=status, stderr=stderr)

    good = write_probe(told('{"path":"/mnt/fx","bytes":1048576,"same":true,"removed":true}', 0))
    assert (good.path, good.outcome, good.proves, good.bytes) == ("/mnt/fx", "written", "data", 1048576)
    changed = write_probe(told('{"bytes":1048576,"same":false}', 1))
    assert (changed.outcome, changed.reason) == ("refused", "what was read back is not what was written")
    full = write_probe(told("", 1, "writes /mnt/fx/.k\nOSError: [Errno 28] No space left on device\n"))
    assert (full.outcome, full.reason) == ("refused", "No space left on device")
    refused = write_probe(told("", 1, "OSError: [Errno 30] Read-only file system: '/mnt/fx/.k'\n"))
    assert refused.reason == "Read-only file system"
    assert write_probe(told("", 124)).outcome == "no answer"
    for stdout in ("", "{}", '{"same": 1}'):
        with pytest.raises(ReaderError):
            write_probe(told(stdout, 0))


@pytest.mark.parametrize(
    ("state", "array", "local"),
    [
        ("healthy", "written", "written"),
        ("path-down-port", "written", "written"),
        ("all-paths-lost", "no answer", "written"),
        ("fs-full", "refused", "refused"),
    ],
)
def test_lab(state: str, array: str, local: str) -> None:
    found = [write_probe(each) for each in lab(state).outputs if targets(each)]
    strongest = {each.path.split("/")[2]: each for each in sorted(found, key=lambda each: each.proves == "data")}
    assert (strongest["fx100"].outcome, strongest["local"].outcome) == (array, local)
    if state == "fs-full":
        assert strongest["fx100"].reason == "No space left on device"
        assert {each.outcome for each in found if each.proves == "metadata"} == {"written"}  # why touch is not enough


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.text(max_size=12), st.sampled_from(["dd", "of=/a", "touch", "/b", "&&", ";", ">", "sh", "-c", "'"])
        ),
        max_size=6,
    ),
    st.binary(max_size=80),
    st.sampled_from([0, 1, 124, 127, None]),
)
def test_nothing_else_is_raised(words: list[str], stderr: bytes, status: int | None) -> None:
    output = Output("some", tuple(words), b"", stderr, status)
    found = tried(write_probe, output)
    assert found is None or found.path == targets(output)[0]
