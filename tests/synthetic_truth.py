"""What a made-up G3 run is made to show, and its faults: each one argument or one `change`; none by default."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gates import criteria

Json = dict[str, Any]
Change = Callable[[Json], None]

ROWS = 2 * len(criteria.load(criteria.default_file("g3")).criterion)  # at two steps


@dataclass
class Truth:
    """What the run is made to show."""

    ttft_s: Mapping[str, float] = field(
        default_factory=lambda: {"recompute": 3.0, "baseline": 1.2, "candidate": 0.6}
    )  # one request's; a wave's is longer with its step
    ttft_at_s: Mapping[tuple[str, int], float] = field(default_factory=dict)  # (arm, step): instead of ttft_s there
    ttft_in_s: Mapping[tuple[str, int], float] = field(default_factory=dict)  # (arm, block): before all the others
    steps: Sequence[int] = ()  # instead of the rehearsal's
    load: Mapping[str, object] = field(default_factory=dict)  # of the scenario's workload: instead of the rehearsal's
    decode_s: float = 0.2
    decode_at_s: Mapping[str, float] = field(default_factory=dict)  # by arm: instead of decode_s there
    late_s: Mapping[str, float] = field(default_factory=dict)  # by arm: more TTFT for one request of each wave
    stall_s: Mapping[str, float] = field(default_factory=dict)  # by arm: before the last token of each request
    record: Change | None = None  # of G2's record of the baseline; None: a lab has a fitting one, a rehearsal none
    noise: float = 0.01  # sd of a trial's log time
    blocks: int = 5
    seed: int = 1
    criteria: str | None = None  # the file's text, instead of the shipped one; the looks stay
    kind: str = "gate"
    rehearsal: bool = True
    attempt: int = 1  # of a lab run
    extract: Change = lambda _extract: None  # of the ledger, as the run carries it
    selection: Mapping[str, int] = field(default_factory=lambda: {"collected": ROWS, "selected": ROWS})
    request: Change = lambda _record: None
    snapshot: Change = lambda _snapshot: None
    trial: Change = lambda _facts: None
    start: Change = lambda _facts: None
    populate: Change = lambda _line: None
    chunks: Change = lambda _found: None  # of chunks.json, with the arm and the block
    control: Change = lambda _facts: None
    needles: Change = lambda _facts: None
    block: Change = lambda _facts: None
    run: Change = lambda _facts: None
    calibration: Change = lambda _record: None  # of the client's side; the truth is 40 ms
    server: Change = lambda _line: None  # of the other side
    incidents: Sequence[Json] = ()
    leave_out: Sequence[str] = ()  # trials, as <arm>/c<step>/b<nn>, that were never recorded
    block_devices: Mapping[str, Sequence[str]] = field(default_factory=dict)  # tier: names; each counts its share
    rdma_ports: Mapping[str, Sequence[str]] = field(default_factory=dict)
    seal: bool = True


def only(where: Mapping[str, object], change: Change) -> Change:
    """Return `change` limited to records that have these values."""

    def limited(record: Json) -> None:
        if all(record.get(key) == value for key, value in where.items()):
            change(record)

    return limited


def put(**values: object) -> Change:
    """Return the change that sets these fields."""
    return lambda record: record.update(values)
