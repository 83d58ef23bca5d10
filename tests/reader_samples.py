"""What the tests of the readers share: outputs made by hand, from samples and captures, and everything that is wrong."""

from __future__ import annotations

import copy
import functools
import json
import os
import random
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gates.readers.error import ReaderError
from workloads.bundle import Bundle, Output, open_bundle

ROOT = Path(__file__).resolve().parent.parent
SAMPLES = Path(os.environ.get("KVGATE_SHARED", ROOT.parent / "shared")) / "samples"
LAB_STATES = ("healthy", "path-down-port", "all-paths-lost", "fs-full", "local-critical-warning")

Reader = Callable[[Output], Any]

# Deep, large, empty; and what makes a careless pattern look at every part of a line again and again.
HOSTILE = (
    "[" * 100_000,
    '{"a":' * 100_000,
    "[1e999]",
    '[{"a": NaN}]',
    "[" + "9" * 5000 + "]",
    "[]",
    "{}",
    "[null]",
    *(part * 10_000 for part in (" ", "\t:", "1", "1.", "a ", "|", "=", "\n", "\n|", "(UUID: ")),
)


def said(text: str | bytes, *argv: str, status: int | None = 0, stderr: str | bytes = b"", note: str = "") -> Output:
    """Return what a tool printed. One word with blanks in it is a whole command."""
    stdout = text.encode() if isinstance(text, str) else text
    errors = stderr.encode() if isinstance(stderr, str) else stderr
    return Output("said", _words(argv) or ("tool", "--option"), stdout, errors, status, note)


def sample(name: str, *argv: str) -> Output:
    """Return a shared sample with the status and the error output beside it; the test is skipped without it."""
    path = SAMPLES / name
    if not path.is_file():
        pytest.skip(f"{path} is not here")
    base = path.with_suffix("") if path.suffix == ".stdout" else path
    status, stderr = Path(f"{base}.rc"), Path(f"{base}.stderr")
    return Output(
        path.name,
        _words(argv) or ("tool",),
        path.read_bytes(),
        stderr.read_bytes() if stderr.is_file() else b"",
        int(status.read_text()) if status.is_file() else 0,
    )


def _words(argv: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(shlex.split(argv[0])) if len(argv) == 1 else argv


@functools.cache
def lab(state: str) -> Bundle:
    """Return the lab's bundle of a state; the test is skipped without it."""
    path = SAMPLES / "nvmeof-lab" / state
    if not path.is_dir():
        pytest.skip(f"{path} is not here")
    return open_bundle(path)


def printed(bundle: Bundle, command: str) -> Output:
    """Return the output of a command that the bundle must hold."""
    found = bundle.find(*shlex.split(command))
    assert found is not None, command
    return found


def of_lab(command: str) -> Iterator[tuple[str, Output]]:
    """Yield the output of a command in every state of the lab that has it."""
    for state in LAB_STATES:
        if (output := lab(state).find(*command.split())) is not None:
            yield state, output


def refused(reader: Reader, output: Output) -> str:
    """Return why a reader refuses an output: one line that names the command."""
    with pytest.raises(ReaderError) as caught:
        reader(output)
    reason = str(caught.value)
    assert reason.startswith(output.command) and "\n" not in reason
    return reason


def refuses_what_did_not_run(reader: Reader) -> None:
    """Check what every reader must refuse: no tool, no end, nothing printed, an error in place of an answer."""
    assert "no such tool" in refused(reader, said("", status=127))
    assert "deadline" in refused(reader, said("half of it", status=124))
    assert "printed nothing" in refused(reader, said(" \n"))
    refused(reader, said("Permission denied\n"))
    refused(reader, said("Permission denied\n", status=1))
    refused(reader, said(b"\xff\xfe\x00 fehlgeschlagen: Datei oder Verzeichnis nicht gefunden\n"))


def tried(reader: Reader, output: Output) -> Any:
    """Return what the reader makes of it, None where it refuses with one line; anything else it raises fails the test."""
    try:
        return reader(output)
    except ReaderError as error:
        assert "\n" not in str(error)
        return None


def cuts(reader: Reader, command: str, whole: bytes, step: int = 1) -> list[tuple[int, Any]]:
    """Return what the reader makes of the text cut off at every `step`-th byte, where it does not refuse."""
    found = ((at, tried(reader, said(whole[:at], command))) for at in range(0, len(whole), step))
    return [(at, value) for at, value in found if value is not None]


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


def survives(reader: Reader, *outputs: Output, seed: int = 0) -> None:
    """Check that nothing but ReaderError is raised on any bytes, on cut and on damaged outputs."""

    def of(stdout: bytes, output: Output, status: int | None = 0) -> None:
        tried(reader, Output(output.name, output.argv, stdout, output.stderr, status))

    @settings(max_examples=60, deadline=None, database=None)
    @given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
    def any_bytes(stdout: bytes) -> None:
        of(stdout, outputs[0])

    any_bytes()
    draw = random.Random(seed)
    for output in outputs:
        stdout = output.stdout[:20_000]
        for _ in range(40):
            of(stdout[: draw.randrange(len(stdout) + 1)], output, draw.choice((0, None)))
            damaged = bytearray(stdout)
            for _ in range(draw.randrange(1, 6)):
                damaged[draw.randrange(len(damaged))] = draw.randrange(256)
            of(bytes(damaged), output)
        for document in _mutations(output.stdout, draw):
            of(document, output)
    for text in HOSTILE:
        of(text.encode(), outputs[0])
        of(outputs[0].stdout[: draw.randrange(200)] + text.encode(), outputs[0])


def _mutations(stdout: bytes, draw: random.Random) -> Iterator[bytes]:
    """Yield a JSON document with values of other types in it; nothing where it is none."""
    try:
        json.loads(stdout)
    except ValueError:
        return
    for _ in range(40):
        document = json.loads(stdout)
        holder, key = draw.choice(list(_places(document)) or [({}, "")])
        holder[key] = draw.choice((None, True, -1, 1.5, 10**30, "", "N/A", "x", [], {}, [None], {"a": 1}, [[]], [{}]))
        yield json.dumps(document).encode()


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    pending = [value]
    while pending:
        holder = pending.pop()
        keys = holder.keys() if isinstance(holder, dict) else range(len(holder)) if isinstance(holder, list) else ()
        for key in list(keys):
            yield holder, key
            pending.append(holder[key])
