"""JSON as evidence is to be: no key twice, no NaN or infinity, and lines that fit in memory.

Of two equal keys every reader may take another one, so that the same bytes would show two runs.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from pydantic_core import from_json

from workloads import plain
from workloads.plain import EvidenceError

Json = dict[str, Any]

# Of a line, and of a file that is one document. A prompt set's line names each of its chunk files, 200 bytes at most.
BYTES_MAX = 1 << 26
_BLOCK_BYTES = 1 << 15  # what is parsed from it stays in the processor's cache
_COLON, _QUOTE, _BLANK = b':" '
_TOO_DEEP = "recursion limit exceeded"
_TOO_MUCH = "too much for the parser of JSON"
_TOO_LONG = f"longer than {BYTES_MAX >> 20} MiB, which nothing that a run records is"


def read_json(path: Path) -> Json:
    """Return the JSON object in `path`. Raises EvidenceError naming the file."""
    try:
        with plain.open_plain(path) as f:
            content = f.read(BYTES_MAX + 1)
        if len(content) > BYTES_MAX:
            raise EvidenceError(f"{path}: {_TOO_LONG}")
        value = _exactly(content)
    except FileNotFoundError:
        raise EvidenceError(f"{path}: missing") from None
    except EvidenceError:
        raise
    except (OSError, ValueError) as error:
        raise EvidenceError(f"{path}: {_prefix(error)}{error}") from None
    if not isinstance(value, dict):
        raise EvidenceError(f"{path}: not a JSON object")
    return value


def read_jsonl(path: Path) -> Iterator[Json]:
    """Yield the objects of a JSONL file. Raises EvidenceError naming file and line.

    A float of more than a double holds (1e999) may come out infinite, as it may where it was computed: to look at every
    digit would take longer than all the rest, so whoever takes floats looks at them.
    """
    try:
        with plain.open_plain(path) as f:
            before = 0
            for block in _blocks(f, path):
                lines = block.split(b"\n")[:-1]
                values, fault = _parsed(lines, path, before)
                if len(values) < len(lines) or not _no_key_twice(block, values):
                    for number, (line, value) in enumerate(zip(lines, values, strict=False), start=before + 1):
                        _look(line, value, f"{path}:{number}")
                        yield value
                else:
                    yield from values
                if fault is not None:
                    raise fault
                before += len(lines)
    except OSError as error:
        raise EvidenceError(f"{path}: {error.strerror or error}") from None


def once(pairs: Sequence[tuple[str, Any]]) -> Json:
    """Return the object of these pairs, as `object_pairs_hook` wants it. Raises ValueError: a key twice."""
    value = dict(pairs)
    if len(value) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise KeyTwiceError(f"key {key[:80]!r} stands there twice")
            seen.add(key)
    return value


class KeyTwiceError(ValueError):
    """A key that an object has twice."""


def _blocks(f: BinaryIO, path: Path) -> Iterator[bytes]:
    """Yield the file in pieces of whole lines, each with its line feed. Raises EvidenceError, OSError."""
    parts: list[bytes] = []  # of a line that has not ended yet
    held_bytes = lines = 0
    while piece := f.read(_BLOCK_BYTES):
        begun = piece.find(b"\n")
        if held_bytes + (begun if begun >= 0 else len(piece)) > BYTES_MAX:
            raise EvidenceError(f"{path}:{lines + 1}: {_TOO_LONG}")
        if begun < 0:
            parts.append(piece)
            held_bytes += len(piece)
            continue
        end = piece.rfind(b"\n") + 1
        yield b"".join((*parts, piece[:end]))
        lines += piece.count(b"\n")
        parts, held_bytes = [piece[end:]], len(piece) - end
    if held_bytes:
        raise EvidenceError(f"{path}:{lines + 1}: cut off in the middle of a line")


def _parsed(lines: Sequence[bytes], path: Path, before: int) -> tuple[list[Json], EvidenceError | None]:
    """Return the objects up to the first line that is none, and what is wrong with that."""
    values: list[Json] = []
    for line in lines:
        try:
            # Many times faster than the standard library's, which counts with millions of records.
            value = from_json(line, allow_inf_nan=False)
        except ValueError as error:
            return values, EvidenceError(f"{path}:{before + len(values) + 1}: {_why(line) or f'not JSON: {error}'}")
        except BaseException as error:
            if type(error).__name__ != "PanicException":  # the parser's own, which no module names
                raise
            return values, EvidenceError(f"{path}:{before + len(values) + 1}: {_TOO_MUCH}")
        if type(value) is not dict:
            return values, EvidenceError(f"{path}:{before + len(values) + 1}: not a JSON object")
        values.append(value)
    return values, None


def _no_key_twice(block: bytes, values: Sequence[Json]) -> bool:
    """Return whether it is certain that no object of the block has a key twice: what is not must be looked at closely.

    Every key of the text has a quote and a colon behind it, also one that was dropped since another followed. Where
    there are no more such pairs than keys that came out, none was dropped, if no blank parts the two. Keys that are not
    counted, and strings that hold such a pair, make it uncertain; nothing makes it seem certain.
    """
    if 9 in block or 13 in block:
        return False
    text = np.frombuffer(block, dtype=np.uint8)
    before, colon = text[:-1], text[1:] == _COLON
    if np.any((before == _BLANK) & colon):
        return False
    keys = sum(map(len, values))
    for name in [name for name, inner in values[0].items() if type(inner) is dict]:
        keys += sum([len(inner) for inner in [value.get(name) for value in values] if type(inner) is dict])
    return int(np.count_nonzero((before == _QUOTE) & colon)) <= keys


def _look(line: bytes, value: Json, where: str) -> None:
    """Raise EvidenceError if an object of the line has a key twice."""
    certain = line.count(b'":') <= _keys(value) and not (9 in line or 13 in line or b" :" in line)
    if not certain:
        try:
            _exactly(line)
        except ValueError as error:
            raise EvidenceError(f"{where}: {_prefix(error)}{error}") from None


def _keys(value: Json) -> int:
    return len(value) + sum([_keys(inner) for inner in value.values() if type(inner) is dict])


def _exactly(content: bytes) -> Any:
    """Return the value, or raise ValueError: what is wrong, in words that no version of Python puts otherwise."""
    try:
        value = json.loads(
            content.decode(),
            object_pairs_hook=once,
            parse_constant=_no_constant,
            parse_float=_finite,
            parse_int=_whole,
        )
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 at byte {error.start + 1}") from None
    except (json.JSONDecodeError, RecursionError):
        raise ValueError(_said(content) or "nested too deep") from None
    if (told := _said(content)).startswith(_TOO_DEEP):  # how deep the standard library goes is the version's own
        raise ValueError(told)
    return value


def _said(content: bytes) -> str:
    """Return what the pinned parser says against it: where a text ends to be JSON, and how deep it may be nested."""
    try:
        from_json(content, allow_inf_nan=False)
    except ValueError as error:
        return str(error)
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # the parser's own, which no module names
            raise
        return _TOO_MUCH
    return ""


def _why(line: bytes) -> str:
    """Return why a line is not JSON; empty where all takes it."""
    try:
        _exactly(line)
    except ValueError as error:
        return f"{_prefix(error)}{error}"
    return ""


def _prefix(error: Exception) -> str:
    return "" if isinstance(error, KeyTwiceError) else "not JSON: "


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no measured value")


def _whole(digits: str) -> int:
    try:
        return int(digits)
    except ValueError:
        raise ValueError(f"a number of {len(digits)} digits") from None


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"{digits[:40]} is more than a number can be")
    return value
