"""JSON documents that follow one another in one file, as `vllm bench serve --append-result` leaves them.

Python writes NaN and Infinity where a value is none; they are read as such, for a judge to refuse where they stand.
Nothing else beside the standard is let through: no cut-off end, no key twice, no other encoding.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from workloads.evidence import EvidenceError
from workloads.strict_json import once

Json = dict[str, Any]

_SPACE = re.compile(r"[ \t\r\n]*")
AGAIN = "give the file as `vllm bench serve --save-result` wrote it"


@dataclass(frozen=True)
class Document:
    """One JSON object of a file."""

    value: Json
    number: int  # from 1, in the file's order
    line: int  # where it begins, from 1
    sha256: str  # of its own text


def documents(content: bytes, name: str) -> Iterator[Document]:
    """Yield the objects in `content`, in order; whitespace may stand between them.

    Raises EvidenceError in one line that begins with `name` and the line: not UTF-8, no JSON, cut off, not an object,
    a key twice, nested too deeply, or nothing in it.
    """
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise EvidenceError(f"{name}: byte {error.start + 1} is not UTF-8: {AGAIN}") from None
    decoder = json.JSONDecoder(object_pairs_hook=once)
    position, number, line, counted = _skip(text, 0), 0, 1, 0
    while position < len(text):
        line += text.count("\n", counted, position)
        counted, number = position, number + 1
        try:
            value, end = decoder.raw_decode(text, position)
        except json.JSONDecodeError as error:
            raise EvidenceError(f"{name}:{error.lineno}: {_what_is_wrong(text, number, error)}") from None
        except (ValueError, RecursionError) as error:
            told = "nested too deeply" if isinstance(error, RecursionError) else str(error).partition(";")[0]
            raise EvidenceError(f"{name}:{line}: result {number}: {told}: {AGAIN}") from None
        if not isinstance(value, dict):
            raise EvidenceError(f"{name}:{line}: a JSON {_kind(value)} where a result should begin: {AGAIN}")
        yield Document(value, number, line, hashlib.sha256(text[position:end].encode()).hexdigest())
        position = _skip(text, end)
    if not number:
        raise EvidenceError(f"{name}: empty: {AGAIN}")


def _what_is_wrong(text: str, number: int, error: json.JSONDecodeError) -> str:
    """Return why it is no JSON. What does not end in a closing brace was not written to its end."""
    if not text.rstrip().endswith("}") and number > 0 and text.lstrip().startswith("{"):
        return f"result {number} is cut off: copy the file again, or leave out the run that was killed while it wrote"
    return f"result {number} is not JSON: {error.msg} at column {error.colno}: {AGAIN}"


def _skip(text: str, position: int) -> int:
    found = _SPACE.match(text, position)
    return found.end() if found else position


def _kind(value: object) -> str:
    if isinstance(value, list):
        return "list"
    return "string" if isinstance(value, str) else "null" if value is None else "value"
