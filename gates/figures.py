"""What a sent load showed, as a table: quantiles with their n. Nothing is judged."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from gates import metrics, stats
from gates.nodata import NoData
from workloads.evidence import EvidenceError, read_jsonl

Json = dict[str, Any]
SHARES = (0.5, 0.9, 0.99)
GIVE = "give the folder that `python -m workloads send` made, or its requests.jsonl"
# What is read of every record, and of a successful one besides: docs/evidence.md.
KEYS: dict[str, tuple[type, ...]] = {"status": (str,), "t_intended_ns": (int,), "t_sent_ns": (int, type(None))}
KEYS_OK: dict[str, tuple[type, ...]] = {
    "id": (str,), "clock": (str,), "first_shared_read": (bool,), "usage": (dict,), "prompt_tokens_expected": (int,),
    "output_tokens_expected": (int,), "t_sent_ns": (int,), "t_first_ns": (int,), "t_last_ns": (int,),
    "chunk_ns": (list,), "chunk_tokens": (list,),
}  # fmt: skip
IN_USAGE = ("prompt_tokens", "completion_tokens")


class Figures:
    """Collects values request by request, eight bytes each, so that millions of requests fit."""

    def __init__(self) -> None:
        names = ("TTFT", "TTFT from intended", "TPOT", "ITL", "E2E", "lag of sending")
        self.samples_s = {name: array("d") for name in names}
        self.requests = self.failed = self.shared = self.output_tokens = 0
        self.other_lengths = 0
        self.no_itl: list[str] = []
        self.clocks: dict[str, int] = {}
        self._first_ns: int | None = None
        self._last_ns: int | None = None

    def take(self, request: Json) -> None:
        """Take one record. Raises LookupError and TypeError for one of another shape."""
        self.requests += 1
        self.samples_s["TTFT"].append(metrics.ttft_s(request))
        self.samples_s["TTFT from intended"].append(metrics.ttft_intended_s(request))
        if request["t_sent_ns"] is not None:
            self.samples_s["lag of sending"].append((request["t_sent_ns"] - request["t_intended_ns"]) * metrics.NS)
            self._first_ns = min(request["t_sent_ns"], self._first_ns or request["t_sent_ns"])
        if request["status"] != "ok":
            self.failed += 1
            return
        self.clocks[request["clock"]] = self.clocks.get(request["clock"], 0) + 1
        self.shared += request["first_shared_read"]
        self.output_tokens += request["usage"]["completion_tokens"]
        found, ordered = request["usage"], (request["prompt_tokens_expected"], request["output_tokens_expected"])
        self.other_lengths += (found["prompt_tokens"], found["completion_tokens"]) != ordered
        self._last_ns = max(request["t_last_ns"], self._last_ns or request["t_last_ns"])
        for name, value in (("TPOT", metrics.tpot_s(request)), ("E2E", metrics.e2e_s(request))):
            if not isinstance(value, NoData):
                self.samples_s[name].append(value)
        gaps = metrics.itl_s(request)
        if isinstance(gaps, NoData):
            self.no_itl.append(gaps.reason)
        else:
            self.samples_s["ITL"].extend(gaps)

    def lines(self) -> list[str]:
        """Return the table. A quantile that rests on failed requests is shown as such, never as a number."""
        lines = [f"{'':20}{'n':>9}" + "".join(f"{f'p{share * 100:g}':>12}" for share in SHARES) + "   ms"]
        for name, values in self.samples_s.items():
            cells = [f"{len(values):>9}"]
            cells += [_cell(stats.quantile(values, share)) for share in SHARES] if values else [f"{'no data':>12}"]
            lines.append(f"{name:20}" + "".join(cells))
        window_s = ((self._last_ns or 0) - (self._first_ns or 0)) * metrics.NS
        rate = (
            f"{self.output_tokens / window_s:.1f} tokens/s over {window_s:.1f} s" if self.output_tokens else "no data"
        )
        clocks = ", ".join(f"{count} by the {clock}'s clock" for clock, count in sorted(self.clocks.items()))
        if self.no_itl:
            lines.append(f"ITL leaves out {len(self.no_itl)} requests (the first: {self.no_itl[0]})")
        return [
            f"requests            {self.requests}, {self.failed} of them failed",
            f"lengths             {self.other_lengths} had other prompt or output tokens, by usage, than was ordered",
            f"output throughput   {rate}",
            f"time stamps         {clocks}; {self.shared} first tokens came in one read with later ones",
            *lines,
        ]


def figures(path: Path) -> list[str]:
    """Return the lines on the records in `path`, a requests.jsonl or a folder that holds one.

    Raises EvidenceError: none there, or a record of another shape.
    """
    file = path / "requests.jsonl" if path.is_dir() else path
    if not file.exists() and (parts := sorted(path.glob("*.part"))):
        raise EvidenceError(f"{file}: not there: the load was killed; give what it left instead: {parts[0]}")
    if not file.exists():
        raise EvidenceError(f"{file}: no such file: {GIVE}")
    return of(read_jsonl(file), file).lines()


def of(records: Iterable[Json], file: Path) -> Figures:
    """Return the figures of these records. Raises EvidenceError naming `file` and the record's number."""
    found = Figures()
    for number, record in enumerate(records, start=1):
        try:
            found.take(record)
        except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError) as error:
            told = _fault(record) or f"a value is of the wrong kind ({type(error).__name__})"
            raise EvidenceError(f"{file}:{number}: not a request's record: {told}: {GIVE}") from None
    if not found.requests:
        raise EvidenceError(f"{file}: holds no request: {GIVE}")
    return found


def _fault(record: Json) -> str | None:
    """Return which key of a record is missing or of the wrong kind; None where that is not what is wrong."""
    wanted = KEYS | KEYS_OK if record.get("status") == "ok" else KEYS
    for key, kinds in wanted.items():
        if key not in record:
            return f"key '{key}' is missing"
        if type(record[key]) not in kinds:
            return f"key '{key}' is {str(record[key])[:40]!r}, {_names(kinds)} wanted"
    if "usage" in wanted:
        for key in IN_USAGE:
            if type(record["usage"].get(key)) is not int:
                return f"key 'usage.{key}' is {str(record['usage'].get(key))[:40]!r}, {_names((int,))} wanted"
        for key in ("chunk_ns", "chunk_tokens"):
            if not all(type(value) is int for value in record[key]):
                return f"key '{key}' holds something else than whole numbers"
    return None


def _names(kinds: tuple[type, ...]) -> str:
    names = {int: "a whole number", str: "text", bool: "true or false", list: "a list", dict: "an object"}
    return " or ".join(names.get(kind, "null") for kind in kinds)


def _cell(value_s: float) -> str:
    return f"{'failed':>12}" if math.isinf(value_s) else f"{value_s * 1e3:>12.2f}"
