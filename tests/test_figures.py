"""`figures` of what is no load's records: one line with file, line, key and what to do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gates.figures import GIVE, figures
from workloads.evidence import EvidenceError

Json = dict[str, Any]
RECORD: Json = {
    "id": "r1", "status": "ok", "clock": "kernel", "first_shared_read": False, "prompt_tokens_expected": 10,
    "output_tokens_expected": 2, "usage": {"prompt_tokens": 10, "completion_tokens": 2}, "t_intended_ns": 0,
    "t_sent_ns": 1_000_000, "t_first_ns": 2_000_000, "t_last_ns": 3_000_000, "chunk_ns": [2_000_000, 3_000_000],
    "chunk_tokens": [1, 1],
}  # fmt: skip


def refused(folder: Path, *records: Json) -> str:
    (folder / "requests.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    with pytest.raises(EvidenceError) as caught:
        figures(folder)
    return str(caught.value).removeprefix(f"{folder / 'requests.jsonl'}:")


def test_a_sound_record_is_taken(tmp_path: Path) -> None:
    (tmp_path / "requests.jsonl").write_text(json.dumps(RECORD) + "\n")
    assert figures(tmp_path)[0].endswith("1, 0 of them failed")


@pytest.mark.parametrize("key", [key for key in RECORD if key != "id"])
def test_a_missing_key_is_named_with_its_line(tmp_path: Path, key: str) -> None:
    told = refused(tmp_path, RECORD, {name: value for name, value in RECORD.items() if name != key})
    assert told == f"2: not a request's record: key '{key}' is missing: {GIVE}"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"t_sent_ns": "soon"}, "key 't_sent_ns' is 'soon', a whole number wanted"),
        ({"status": "failed", "t_sent_ns": "soon"}, "key 't_sent_ns' is 'soon', a whole number or null wanted"),
        ({"usage": None}, "key 'usage' is 'None', an object wanted"),
        ({"usage": {"prompt_tokens": 1}}, "key 'usage.completion_tokens' is 'None', a whole number wanted"),
        ({"chunk_tokens": ["a"]}, "key 'chunk_tokens' holds something else than whole numbers"),
    ],
)
def test_a_value_of_the_wrong_kind_is_named_with_its_key(tmp_path: Path, change: Json, told: str) -> None:
    assert refused(tmp_path, RECORD | change) == f"1: not a request's record: {told}: {GIVE}"


def test_where_nothing_is_it_says_what_to_give(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nowhere", tmp_path / "requests.jsonl"):
        with pytest.raises(EvidenceError, match="no such file: give the folder that"):
            figures(path)
