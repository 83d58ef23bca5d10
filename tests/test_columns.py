"""A wave looked at as a whole says what its records say one by one, whatever one of them holds."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gates import columns, metrics
from gates.validity import digest
from gates.validity.packed import Packed
from tests.synthetic import make_run
from tests.synthetic_truth import Truth
from workloads.evidence import EvidenceError, Run, Trial

Json = dict[str, Any]
Place = tuple[str | int, ...]

ABSENT = "nothing"
ODD: list[Any] = [
    ABSENT, None, True, False, 0, 1, 2, -1, 17, 1.0, 2.0, 0.5, "x", "", "ok", "failed", "user", "kernel", "stop",
    [], [0], [True], [1.0], ["a"], {}, {"a": -1.0}, {"a": "b"}, {"a": True}, 2**53, 2**63, -(2**63), 2**200, 2**2000, 1e300, 1e999,
]  # fmt: skip
SCALED: list[Callable[[Any], Any]] = [float, bool, str, lambda v: v + 1, lambda v: v - 1, lambda v: v * 2, lambda v: -v]


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Trial:
    run = Run(make_run(tmp_path_factory.mktemp("run"), Truth(blocks=1)))
    found = run.trial("candidate", 2, 1)
    assert found is not None
    return found


def run_of(trial: Trial) -> Run:
    return Run(trial.path.parents[3])


def places(value: Any, at: Place = ()) -> Iterator[Place]:
    """Yield where something stands in a record: each field, and what is inside of it."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in inside:
        yield (*at, key)
        yield from places(inner, (*at, key))


def change(record: Json, place: Place, new: Any) -> None:
    *way, last = place
    inside: Any = record
    for key in way:
        inside = inside[key]
    if new is ABSENT:
        del inside[last]
    else:
        inside[last] = new(inside[last]) if callable(new) else new


def read(trial: Trial, records: list[Json], by_columns: bool) -> digest.Digest:
    lines = copy.deepcopy(records)
    with mock.patch.object(Trial, "requests", lambda _: iter(lines)):
        if by_columns:
            return digest._read(run_of(trial), trial)
        with mock.patch.object(digest, "columns_of", lambda _: None):
            return digest._read(run_of(trial), trial)


def told(found: digest.Digest) -> list[Any]:
    """Return all that was found, in a form that compares."""
    shown: list[Any] = [found.breaches, found.times]
    for part in (found._sketch, found._values, found._answers):
        if isinstance(part, EvidenceError):
            shown.append(str(part))
        elif isinstance(part, Packed):
            values = [getattr(part, field.name) for field in fields(part)]
            shown.append([v.tobytes() if isinstance(v, np.ndarray) else v for v in values])
        else:
            shown.append(part)
    return shown


@given(data=st.data(), again=st.booleans())
def test_a_wave_says_what_its_records_say(trial: Trial, data: st.DataObject, again: bool) -> None:
    records = copy.deepcopy(list(trial.requests()))
    for _ in range(1 + again):
        record = data.draw(st.sampled_from(records))
        place = data.draw(st.sampled_from(list(places(record))))
        new = copy.deepcopy(data.draw(st.sampled_from([*ODD, *SCALED])))
        try:
            change(record, place, new)
        except (TypeError, ValueError, OverflowError):
            continue
    assert told(read(trial, records, True)) == told(read(trial, records, False))


@given(data=st.data())
def test_chunks_of_several_tokens_say_the_same_as_a_wave(trial: Trial, data: st.DataObject) -> None:
    records = copy.deepcopy(list(trial.requests()))
    tokens = records[0]["usage"]["completion_tokens"]
    for r in records:
        sizes = []
        while (left := tokens - sum(sizes)) > 0:
            sizes.append(data.draw(st.integers(1, left)))
        length_ns = r["t_last_ns"] - r["t_first_ns"] if len(sizes) > 1 else 0
        r["t_last_ns"] = r["t_first_ns"] + length_ns
        within = data.draw(st.lists(st.integers(0, length_ns), min_size=len(sizes), max_size=len(sizes)))
        r["chunk_ns"], r["chunk_tokens"] = sorted([0, *within[2:], length_ns])[: len(sizes)], sizes
    by_wave = read(trial, records, True)
    assert told(by_wave) == told(read(trial, records, False))
    assert not any(b.check == "tokens" for b in by_wave.breaches)
    assert not any(columns.columns_of(wave) is None for _, wave in metrics.waves(records))


@given(kinds=st.lists(st.booleans(), min_size=12, max_size=12))
def test_failed_and_unmeasured_requests_are_as_they_are_one_by_one(trial: Trial, kinds: list[bool]) -> None:
    records = copy.deepcopy(list(trial.requests()))
    for record, odd in zip(records, kinds, strict=True):
        if odd:
            record |= {"status": "failed", "error": "refused", "t_first_ns": None, "t_last_ns": None, "usage": None}
    assert told(read(trial, records, True)) == told(read(trial, records, False))


@pytest.mark.parametrize(
    ("place", "new"),
    [
        (("chunk_ns", 0), False), (("chunk_tokens", 0), True), (("output_token_ids", 1), True),
        (("output_token_ids", 1), 5.0), (("chunk_ns", 1), 13.0), (("measured",), 1), (("prompt_index",), False),
        (("usage", "completion_tokens"), 4.0), (("t_sent_ns",), True), (("error",), ""), (("status",), "OK"),
        (("first_logprobs",), None), (("clock",), None), (("output_token_ids",), []), (("chunk_tokens",), {}),
        (("prompt_seed",), 2**60),
    ],
)  # fmt: skip
def test_one_odd_record_leaves_its_wave_to_be_read_one_by_one(trial: Trial, place: Place, new: Any) -> None:
    wave = next(wave for _, wave in metrics.waves(trial.requests()))
    assert columns.columns_of(wave) is not None
    change(wave[1], place, new)
    assert columns.columns_of(wave) is None


def test_a_wave_of_nobody_has_no_columns() -> None:
    assert columns.columns_of([]) is None
