"""What all readers share: their one error, and the careful first steps from bytes to values."""

from __future__ import annotations

import json
import math
import re
from typing import Any

from workloads.bundle import MISSING, TIMED_OUT, Output

TEXT_BYTES_MAX = 1 << 24
INTEGER_MAX = 1 << 128  # SMART counters have 128 bits


class ReaderError(ValueError):
    """One line: which command, what is wrong with what it printed."""

    def __init__(self, message: str) -> None:
        """Keep it one printable line: a command's words come from outside, too."""
        super().__init__("".join(c if c.isprintable() else "?" for c in message))


def text(output: Output, *, empty_is_fine: bool = False) -> str:
    """Return what a tool printed, whatever its status. Raises ReaderError: missing, timed out, nothing printed."""
    if output.status == MISSING:
        raise ReaderError(f"{output.command}: no such tool on the host")
    if output.status == TIMED_OUT:
        raise ReaderError(f"{output.command}: did not end within its deadline{_after(output)}")
    if len(output.stdout) > TEXT_BYTES_MAX:
        raise ReaderError(f"{output.command}: printed {len(output.stdout)} bytes, more than any host has to tell")
    found = output.stdout.decode("utf-8", "replace")
    if not found.strip() and not empty_is_fine:
        raise ReaderError(f"{output.command}: printed nothing{_after(output)}")
    return found


def document(output: Output) -> Any:
    """Return the one JSON object or array among what a tool printed, lines before and after it left out.

    Raises ReaderError: as `text`, none, several, cut off, nested too deeply, NaN or infinity in it.
    """
    return document_of(text(output), output)


def document_of(found: str, output: Output) -> Any:
    """Return the one JSON document in `found`. Raises ReaderError as `document` does."""
    documents = documents_of(found, output)
    if not documents:
        raise ReaderError(f"{output.command}: printed no JSON, but {shown(found)}")
    if len(documents) > 1:
        raise ReaderError(f"{output.command}: printed {len(documents)} JSON documents, one is wanted")
    return documents[0]


def documents_of(found: str, output: Output) -> list[Any]:
    """Return every JSON object or array that begins a line. Raises ReaderError: cut off, too deep, NaN in it."""
    decoder = json.JSONDecoder(parse_constant=_no_number)
    documents, at = [], 0
    while (at := _next_start(found, at)) is not None:  # type: ignore[assignment]
        try:
            value, at = decoder.raw_decode(found, at)
        except RecursionError:
            raise ReaderError(f"{output.command}: its JSON is nested too deeply") from None
        except json.JSONDecodeError as error:
            raise ReaderError(f"{output.command}: its JSON is broken at line {error.lineno}: {error.msg}") from None
        except ValueError as error:  # NaN, or an integer of thousands of digits
            raise ReaderError(f"{output.command}: its JSON holds no number: {shown(str(error))}") from None
        documents.append(value)
    return documents


def integer(value: object) -> int | None:
    """Return a whole number from 0 up, as tools write one: 7, 7.0, "7", "1,234"; None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        digits = value.strip().replace(",", "")
        value = int(digits) if digits.isascii() and digits.isdecimal() and len(digits) < 40 else None
    if isinstance(value, float):
        value = int(value) if math.isfinite(value) and value == int(value) else None
    return value if isinstance(value, int) and 0 <= value < INTEGER_MAX else None


def word(value: object) -> str | None:
    """Return a string without blanks around it; None for an empty one, another type, or a tool's word for unknown."""
    if not isinstance(value, str):
        return None
    stripped = " ".join(value.split())
    return None if stripped.upper() in ("", "N/A", "[N/A]", "NOT SUPPORTED", "[NOT SUPPORTED]") else stripped


def decimal(value: object) -> float | None:
    """Return a finite number from 0 up, as tools write one: 7, 98.5, "98.5"; None for anything else."""
    if isinstance(value, str) and len(value) < 40 and value.strip().replace(".", "", 1).isdecimal():
        value = float(value) if value.isascii() else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value < INTEGER_MAX and math.isfinite(value) else None


def identity(value: object) -> int | None:
    """Return the number of an id: 29858, "0x74A2"; None for anything else. Digits without 0x are decimal."""
    if isinstance(value, str) and value.strip().lower().startswith("0x") and len(value) < 40:
        digits = value.strip()[2:]
        return int(digits, 16) if digits and all(c in "0123456789abcdefABCDEF" for c in digits) else None
    return integer(value)


def answer(output: Output, *, empty_is_fine: bool = False) -> str:
    """Return what a tool printed that ended well. Raises ReaderError: as `text`, and for a status other than 0.

    A status that is not known is let pass: a saved output need not come with one.
    """
    found = text(output, empty_is_fine=empty_is_fine or bool(output.status))
    if output.status:
        said = f" (it printed {shown(found)})" if found.strip() else _after(output)
        raise ReaderError(f"{output.command}: ended with status {output.status}{said}")
    return found


def whole_lines(found: str, output: Output) -> list[str]:
    """Return the lines of a text. A last one that does not end is left out, but where the tool ended with status 0."""
    lines = found.split("\n")
    last = lines.pop()
    if last and output.status == 0:
        lines.append(last)
    return [line.rstrip("\r") for line in lines]


def objects(value: object, output: Output) -> list[dict[str, Any]]:
    """Return a JSON list of objects, an empty object in it left out. Raises ReaderError for anything else."""
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise ReaderError(f"{output.command}: its JSON must be a list of objects, not {type(value).__name__}")
    return [item for item in value if item]


def shown(found: str, most: int = 80) -> str:
    """Return the beginning of a text as one printable line, for an error."""
    line = " ".join(found.split())
    line = "".join(c if c.isprintable() else "?" for c in line)
    return repr(line if len(line) <= most else line[:most] + "...")


def _after(output: Output) -> str:
    said = output.stderr.decode("utf-8", "replace")
    hint = "; run as root" if re.search(r"not permitted|[Pp]ermission denied|must be root|be run as root", said) else ""
    return f" (it said {shown(said)}{hint})" if said.strip() else ""


def _next_start(found: str, at: int) -> int | None:
    """Return where the next line begins with { or [ followed by what JSON allows there, from `at` on."""
    while at < len(found):
        end = found.find("\n", at)
        end = len(found) if end < 0 else end
        line = found[at:end].lstrip()
        if line[:1] == "{" or (line[:1] == "[" and line[1:].lstrip()[:1] in ("", "{", "[", "]", '"')):
            return end - len(line)
        at = end + 1
    return None


def _no_number(name: str) -> Any:
    raise ValueError(name)
