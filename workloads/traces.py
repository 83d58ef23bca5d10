"""Request traces in Mooncake's format (docs/load.md): read, checked, cut, written.

Everything that can be wrong with a file is told before any load starts, in one line: `FILE:LINE: what is wrong:
what to do`.
"""

from __future__ import annotations

import gzip
import json
import math
import zlib
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, Self

from workloads.evidence import write_whole
from workloads.prompts import ComposedPrompt, Part, declared_sharing

BLOCK_TOKENS = 512  # what the published traces use
_FIELDS = ("timestamp", "input_length", "output_length", "hash_ids")
_LONGEST_LINE_BYTES = 64 << 20  # a file without line ends must not fill the memory
TOKENS_MAX = 10_000_000  # of one prompt or answer: more than any model's window
LATEST_MS = 2**53  # up to here a float holds every whole millisecond


class TraceError(ValueError):
    """One line: the file, the line in it, what is wrong and what to do."""

    def __init__(self, path: Path, line: int | None, reason: str) -> None:
        place = f"{path}:{line}" if line else str(path)
        super().__init__(" ".join(f"{place}: {reason}".splitlines()))


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """One request: prompts that begin with the same block ids share those blocks; the last block may be a short one."""

    timestamp_ms: float
    input_tokens: int
    output_tokens: int
    block_ids: tuple[int, ...]
    line: int = field(default=0, compare=False)  # where it stood in its file; 0: in none


@dataclass(frozen=True)
class TraceFacts:
    """What a trace holds. `shared_tokens`: prompt tokens that a cache without limit would have by prefix."""

    requests: int
    prompt_tokens: int
    output_tokens: int
    shared_tokens: int
    longest_tokens: int  # prompt and output of one request
    duration_s: float  # from the first request to the last

    @property
    def share(self) -> float:
        """Return shared_tokens / prompt_tokens."""
        return self.shared_tokens / self.prompt_tokens if self.prompt_tokens else 0.0


@dataclass(frozen=True)
class Trace:
    """The requests of one file in order of time; those of the same time in the file's order."""

    path: Path
    block_tokens: int
    requests: tuple[TraceRequest, ...]

    @classmethod
    def read(cls, path: Path, block_tokens: int = BLOCK_TOKENS) -> Self:
        """Return the whole trace. Raises TraceError: unreadable, empty, or any line of it wrong."""
        requests = sorted(read_requests(path, block_tokens), key=lambda r: r.timestamp_ms)
        return cls(path, block_tokens, tuple(requests))

    def window(
        self, *, first: int | None = None, from_s: float = 0.0, to_s: float | None = None, speed: float = 1.0
    ) -> Self:
        """Return the requests from `from_s` to before `to_s` after the trace's first one, of these the `first` ones.

        Their times count from `from_s` and are divided by `speed`: 2.0 sends twice as fast. Raises TraceError:
        no request is left; ValueError: `speed` is not a positive number.
        """
        if not (speed > 0 and math.isfinite(speed)):
            raise ValueError(f"a speed of {speed} is no positive number")
        start_ms = self.requests[0].timestamp_ms + from_s * 1000
        end_ms = math.inf if to_s is None else self.requests[0].timestamp_ms + to_s * 1000
        chosen = [r for r in self.requests if start_ms <= r.timestamp_ms < end_ms][:first]
        if not chosen:
            last_s = (self.requests[-1].timestamp_ms - self.requests[0].timestamp_ms) / 1000
            raise TraceError(self.path, None, f"no request in this window: the last one comes after {last_s:g} s")
        moved = (replace(r, timestamp_ms=(r.timestamp_ms - start_ms) / speed) for r in chosen)
        return replace(self, requests=tuple(moved))

    def check_context(self, max_context_tokens: int) -> None:
        """Raise TraceError for the first request whose prompt and output do not fit into the model's window."""
        for r in self.requests:
            if r.input_tokens + r.output_tokens > max_context_tokens:
                raise TraceError(
                    self.path,
                    r.line,
                    f"prompt and output of {r.input_tokens} + {r.output_tokens} tokens exceed the model's "
                    f"{max_context_tokens}: use a model with a longer window or a trace without such requests",
                )

    def prompts(self, seed: int, vocabulary_tokens: int) -> Iterator[ComposedPrompt]:
        """Yield a prompt for each request; two of them share exactly the leading blocks that their ids declare."""
        for r in self.requests:
            whole, rest = divmod(r.input_tokens, self.block_tokens)
            sizes = [self.block_tokens] * whole + [rest] * (rest > 0)
            parts = tuple(Part(f"block/{b}", size) for b, size in zip(r.block_ids, sizes, strict=True))
            yield ComposedPrompt(seed, parts, vocabulary_tokens)

    def facts(self, counted_from: int = 0) -> TraceFacts:
        """Return what the trace holds; requests before index `counted_from` only warm the imagined cache."""
        # Sharing follows from the parts alone, so any seed and vocabulary will do.
        sharing = declared_sharing(self.prompts(seed=0, vocabulary_tokens=2), counted_from)
        counted = self.requests[counted_from:]
        return TraceFacts(
            requests=len(counted),
            prompt_tokens=sharing.tokens,
            output_tokens=sum(r.output_tokens for r in counted),
            shared_tokens=sharing.shared_tokens,
            longest_tokens=max((r.input_tokens + r.output_tokens for r in counted), default=0),
            duration_s=(counted[-1].timestamp_ms - counted[0].timestamp_ms) / 1000 if counted else 0.0,
        )


def read_requests(path: Path, block_tokens: int = BLOCK_TOKENS) -> Iterator[TraceRequest]:
    """Yield the requests in the file's order, read as a stream. Raises TraceError, ValueError (block_tokens < 1)."""
    if block_tokens < 1:
        raise ValueError(f"blocks of {block_tokens} tokens: give at least 1")
    for line, fields in read_objects(path):
        yield _request(path, line, fields, block_tokens)


def read_objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line number from 1, JSON object) of a JSONL file, plain or gzipped, skipping blank lines.

    Raises TraceError: unreadable, damaged, not UTF-8, a line that is no JSON object, or no object at all.
    """
    number = objects = 0
    try:
        with path.open("rb") as raw:
            # By content: a name says nothing about a file that was copied or unpacked under way.
            packed = raw.peek(2)[:2] == b"\x1f\x8b"
            with gzip.GzipFile(fileobj=raw) if packed else nullcontext(raw) as stream:
                for number, text in _lines(path, stream):
                    objects += 1
                    yield number, _object(path, number, text)
    except (EOFError, gzip.BadGzipFile, zlib.error):
        raise TraceError(path, number + 1, "the gzip data is cut off or damaged: copy the file again") from None
    except OSError as error:
        raise TraceError(path, None, f"{error.strerror or error}: give a file that can be read") from None
    if not objects:
        raise TraceError(path, 1, "holds no request: give a file with one JSON object a line")


def write_trace(path: Path, requests: Iterable[TraceRequest]) -> None:
    """Write the requests as a trace, gzipped where the name ends in .gz; whole or not at all. Raises OSError."""
    lines = []
    for r in requests:
        time_ms = int(r.timestamp_ms) if float(r.timestamp_ms).is_integer() else r.timestamp_ms
        values = (time_ms, r.input_tokens, r.output_tokens, r.block_ids)
        lines.append(json.dumps(dict(zip(_FIELDS, values, strict=True)), allow_nan=False) + "\n")
    content = "".join(lines).encode()
    # Without a time of its own, the same trace gives the same bytes.
    write_whole(path, gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)


def _lines(path: Path, stream: IO[bytes] | gzip.GzipFile) -> Iterator[tuple[int, bytes]]:
    number = 0
    while line := stream.readline(_LONGEST_LINE_BYTES):
        number += 1
        if len(line) == _LONGEST_LINE_BYTES:
            raise TraceError(
                path, number, f"a line of more than {_LONGEST_LINE_BYTES >> 20} MiB: give one JSON object a line"
            )
        if number == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")
        if line.strip():
            yield number, line


def _object(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        value = json.loads(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise TraceError(path, number, f"not UTF-8 at byte {error.start + 1} of the line: convert the file") from None
    except (ValueError, RecursionError):
        if not line.endswith(b"\n"):
            raise TraceError(path, number, "cut off in the middle of a line: copy the file again") from None
        raise TraceError(path, number, "not JSON: give one JSON object a line") from None
    if not isinstance(value, dict):
        raise TraceError(path, number, "not a JSON object: give one JSON object a line")
    return value


def _request(path: Path, line: int, fields: dict[str, Any], block_tokens: int) -> TraceRequest:
    def refuse(reason: str) -> TraceError:
        return TraceError(path, line, reason)

    for name in _FIELDS:
        if name not in fields:
            raise refuse(f"'{name}' is missing: a line holds {', '.join(_FIELDS)}")
    timestamp, block_ids = fields["timestamp"], fields["hash_ids"]
    if type(timestamp) not in (int, float) or not 0 <= timestamp <= LATEST_MS:
        raise refuse(f"timestamp is {shown(timestamp)}: give milliseconds as a number from 0 on")
    for name in ("input_length", "output_length"):
        if type(fields[name]) is not int or not 1 <= fields[name] <= TOKENS_MAX:
            raise refuse(f"{name} is {shown(fields[name])}: give a whole number of tokens, 1 or more (to {TOKENS_MAX})")
    if not isinstance(block_ids, list) or any(type(b) is not int for b in block_ids):
        raise refuse("hash_ids is not a list of whole numbers: give one id for each block of the prompt")
    needed = -(-fields["input_length"] // block_tokens)
    if len(block_ids) != needed:
        raise refuse(
            f"hash_ids has {len(block_ids)} entries, but {fields['input_length']} tokens are {needed} blocks of "
            f"{block_tokens}: state the trace's own block size"
        )
    return TraceRequest(float(timestamp), fields["input_length"], fields["output_length"], tuple(block_ids), line)


def shown(value: object) -> str:
    """Return the value as JSON would have it, in at most 40 characters: enough to find it in its line."""
    try:
        text = json.dumps(value)
    except (ValueError, RecursionError):
        text = "…"
    return text if len(text) <= 40 else f"{text[:39]}…"
