"""Deltas of counters: known where they can be, NoData with a reason where not, never 0 for what is missing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gates.nodata import NoData
from gates.readers.counters import deltas, total

COUNTS = st.dictionaries(st.sampled_from("abcd"), st.integers(0, 1 << 64), max_size=4)
BOOT = "11111111-2222-3333-4444-555555555555"


def test_what_rose_and_what_stood_still() -> None:
    assert deltas({"a": 5, "b": 7}, {"a": 9, "b": 7}) == {"a": 4, "b": 0}


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ({"a": 9}, {"a": 5}, "fell from 9 to 5"),
        ({"a": (1 << 32) - 1}, {"a": 0}, "reset, or it wrapped"),
        ({"a": (1 << 64) - 1}, {"a": 3}, "reset, or it wrapped"),
        ({}, {"a": 5}, "missing before"),
        ({"a": 5}, {}, "missing after"),
    ],
)
def test_what_cannot_be_told(before: dict[str, int], after: dict[str, int], words: str) -> None:
    found = deltas(before, after)["a"]
    assert isinstance(found, NoData) and words in found.reason and "a " in found.reason


def test_a_counter_that_neither_look_has_is_unknown() -> None:
    found = deltas({}, {}, names=["gone"])["gone"]
    assert isinstance(found, NoData) and "missing before and after" in found.reason
    assert deltas({"a": 1, "b": 1}, {"a": 2, "b": 3}, names=["b"]) == {"b": 2}


@pytest.mark.parametrize("ids", [(BOOT, BOOT[::-1]), (BOOT, None), (None, BOOT), (None, None), ("", BOOT), (BOOT, " ")])
def test_another_boot_or_an_unknown_one_leaves_nothing(ids: tuple[str | None, str | None]) -> None:
    found = deltas({"a": 1, "b": 1}, {"a": 5, "b": 0}, boot_ids=ids)
    assert all(isinstance(value, NoData) and "boot" in value.reason for value in found.values()) and len(found) == 2


def test_the_same_boot_as_files_tell_it() -> None:
    assert deltas({"a": 1}, {"a": 5}, boot_ids=(f"{BOOT}\n", BOOT)) == {"a": 4}


@given(COUNTS, COUNTS)
def test_a_delta_is_exact_or_it_is_none(before: dict[str, int], after: dict[str, int]) -> None:
    found = deltas(before, after)
    assert found.keys() == before.keys() | after.keys()
    for name, value in found.items():
        if isinstance(value, int):
            assert value >= 0 and before[name] + value == after[name]
        else:
            assert name not in before or name not in after or after[name] < before[name]


def test_a_total_is_missing_if_a_part_is() -> None:
    assert total([1, 2, 0]) == 3
    assert total([1, NoData("why")]) == NoData("why")
    assert isinstance(total([]), NoData)
