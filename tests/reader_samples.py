"""What the tests of the readers share: outputs from samples and from text, and what a reader may raise on any bytes."""

from __future__ import annotations

import functools
import json
import os
import random
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


def said(text: str | bytes, *argv: str, status: int | None = 0, stderr: bytes = b"") -> Output:
    """Return what a tool printed."""
    stdout = text.encode() if isinstance(text, str) else text
    return Output("said", argv or ("tool", "--option"), stdout, stderr, status)


def sample(name: str, *argv: str) -> Output:
    """Return a shared sample with the status and the error output beside it; the test is skipped without it."""
    path = SAMPLES / name
    if not path.is_file():
        pytest.skip(f"{path} is not here")
    base = path.with_suffix("") if path.suffix == ".stdout" else path
    status, stderr = Path(f"{base}.rc"), Path(f"{base}.stderr")
    return Output(
        name,
        argv or ("tool",),
        path.read_bytes(),
        stderr.read_bytes() if stderr.is_file() else b"",
        int(status.read_text()) if status.is_file() else 0,
    )


@functools.cache
def lab(state: str) -> Bundle:
    """Return the lab's bundle of a state; the test is skipped without it."""
    path = SAMPLES / "nvmeof-lab" / state
    if not path.is_dir():
        pytest.skip(f"{path} is not here")
    return open_bundle(path)


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


def survives(reader: Reader, *outputs: Output, seed: int = 0) -> None:
    """Check that nothing but ReaderError is raised on any bytes, on cut and on damaged outputs."""

    def tried(stdout: bytes, output: Output, status: int | None = 0) -> None:
        try:
            reader(Output(output.name, output.argv, stdout, output.stderr, status))
        except ReaderError as error:
            assert "\n" not in str(error)

    @settings(max_examples=60, deadline=None, database=None)
    @given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
    def any_bytes(stdout: bytes) -> None:
        tried(stdout, outputs[0])

    any_bytes()
    draw = random.Random(seed)
    for output in outputs:
        stdout = output.stdout[:20_000]
        for _ in range(40):
            tried(stdout[: draw.randrange(len(stdout) + 1)], output, draw.choice((0, None)))
            damaged = bytearray(stdout)
            for _ in range(draw.randrange(1, 6)):
                damaged[draw.randrange(len(damaged))] = draw.randrange(256)
            tried(bytes(damaged), output)
        for document in _mutations(output.stdout, draw):
            tried(document, output)
    for text in HOSTILE:
        tried(text.encode(), outputs[0])
        tried(outputs[0].stdout[: draw.randrange(200)] + text.encode(), outputs[0])


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
