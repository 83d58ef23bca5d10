"""What readers of tools are tried with: outputs made by hand, the shared samples, and everything that is wrong."""

from __future__ import annotations

import copy
import json
import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from gates.readers.error import ReaderError
from workloads.bundle import Bundle, Output, open_bundle

ROOT = Path(__file__).resolve().parents[1]
SAMPLES = Path(os.environ.get("KVGATE_SHARED", ROOT.parent / "shared")) / "samples"

Reader = Callable[[Output], Any]


def out(command: str, stdout: str | bytes, status: int | None = 0, stderr: str = "", note: str = "") -> Output:
    """Return an output as a bundle would hold it."""
    printed = stdout.encode() if isinstance(stdout, str) else stdout
    return Output("some", tuple(shlex.split(command)), printed, stderr.encode(), status, note)


def sample(name: str, command: str) -> Output:
    """Return the shared sample with that name (folder/file) with its .stderr and .rc; skip the test where there is none."""
    file = SAMPLES / name
    if not file.exists():
        pytest.skip(f"needs the shared sample {name}")
    rest = {suffix: file.with_name(f"{file.name.removesuffix('.stdout')}.{suffix}") for suffix in ("rc", "stderr")}
    status = int(rest["rc"].read_text()) if rest["rc"].exists() else 0
    stderr = rest["stderr"].read_bytes() if rest["stderr"].exists() else b""
    return Output(file.name, tuple(shlex.split(command)), file.read_bytes(), stderr, status)


def lab(state: str) -> Bundle:
    """Return the capture of the NVMe-oF lab in that state; skip the test where there is none."""
    folder = SAMPLES / "nvmeof-lab" / state
    if not folder.exists():
        pytest.skip(f"needs the shared capture {state}")
    return open_bundle(folder)


def printed(bundle: Bundle, command: str) -> Output:
    """Return the output of a command that the bundle must hold."""
    found = bundle.find(*shlex.split(command))
    assert found is not None, command
    return found


def survives(reader: Reader, output: Output) -> Any:
    """Return what the reader makes of it, None where it refuses with one line; anything else it raises fails the test."""
    try:
        return reader(output)
    except ReaderError as error:
        assert "\n" not in str(error)
        return None


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 130), 1 << 130)
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["", "0x04", "nvme0", "1e999", "9" * 5000, "\ud800", "-1", "N/A"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@st.composite
def mutated(draw: st.DrawFn, document: str | bytes) -> bytes:
    """Return the document with one value, somewhere in it, replaced, dropped or doubled."""
    found = copy.deepcopy(json.loads(document))
    at: Any = found
    while True:
        keys: list[Any] = list(at) if isinstance(at, dict) else list(range(len(at)))
        if not keys:
            return json.dumps(draw(JSON)).encode()
        key = draw(st.sampled_from(keys))
        if isinstance(at[key], dict | list) and at[key] and draw(st.booleans()):
            at = at[key]
            continue
        how = draw(st.sampled_from(["replace", "drop", "rename"]))
        if how == "replace":
            at[key] = draw(JSON)
        elif how == "drop":
            del at[key]
        elif isinstance(at, dict):
            at[draw(st.text(max_size=8))] = at.pop(key)
        return json.dumps(found).encode()


def hostile_bytes() -> st.SearchStrategy[bytes]:
    """Return arbitrary bytes, and what looks like a beginning of something."""
    starts = st.sampled_from(
        [b"", b"{", b"[", b'{"Devices":', b"[" * 5000, b'{"a":' * 3000, b"\xff\xfe{}", b'{"a":NaN}', b"\x00"]
    )
    return st.tuples(starts, st.binary(max_size=200)).map(b"".join)


def cuts(reader: Reader, command: str, whole: bytes, step: int = 1) -> list[tuple[int, Any]]:
    """Return what the reader makes of the text cut off at every `step`-th byte, where it does not refuse."""
    found = ((at, survives(reader, out(command, whole[:at]))) for at in range(0, len(whole), step))
    return [(at, value) for at, value in found if value is not None]
