"""Result files of others are read strictly: whatever the bytes, a reader says what it is or refuses it in one line."""

from __future__ import annotations

import json
import math
import re
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gates import __main__ as program
from gates.imports.checks import contradictions, differences
from gates.imports.documents import Document, documents
from gates.imports.judge import failed
from gates.imports.vllm_bench import Result, read
from tests.import_lab import DATA, LOOSE, result, values
from workloads.evidence import EvidenceError

Json = dict[str, Any]

GUIDE = json.dumps({"metadata": {}, "args": {}, "benchmarks": []}).encode()
PLAIN = (DATA / "plain.json").read_bytes()
REFUSED: dict[str, tuple[bytes, str]] = {
    "empty": (b" \n", "empty"),
    "cut off": (PLAIN[:500], ":1: result 1 is cut off"),
    "second cut off": (PLAIN + b"\n" + PLAIN[:90], ":2: result 2 is cut off"),
    "foreign": (GUIDE, "looks like GuideLLM's report"),
    "jsonl of others": (b'{"id": 1}\n{"id": 2}\n', ":1: not a result of `vllm bench serve`"),
    "list": (b"[]", "a JSON list where a result should begin"),
    "not text": (b"\xff\xfe{}", "byte 1 is not UTF-8"),
    "twice": (b'{"a": 1, "a": 2}', "key 'a' stands there twice"),
    "deep": (b'{"a":' * 100_000, "nested too deeply"),
    "digits": (b'{"a": ' + b"1" * 5000 + b"}", "digits"),
    "kind": (PLAIN.replace(b'"num_prompts": 8', b'"num_prompts": "8"'), "key num_prompts: '8' is not a whole number"),
    "nan count": (PLAIN.replace(b'"failed": 0', b'"failed": NaN'), "key failed: nan is not a whole number"),
    "huge": (re.sub(rb'"duration": [0-9.]+', b'"duration": ' + b"9" * 400, PLAIN), "key duration"),
    "nothing generated": (PLAIN.replace(b'"rtfx"', b'"total_input_sequences"'), "embeddings"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_result_is_one_line_and_leaves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    content, told = REFUSED[name]
    path, runs = tmp_path / "x.json", tmp_path / "runs"
    path.write_bytes(content)
    status = program.main(["import", "vllm-bench", str(DATA / "baseline.json"), str(path), "--out", str(runs)])
    out, err = capsys.readouterr()
    assert (status, out, runs.exists()) == (4, "", False)
    assert err.startswith(f"kvgate: {path}") and err.count("\n") == 1 and told in err


def test_a_key_twice_among_many_is_found_at_once() -> None:
    held = ",".join(f'"k{i}":0' for i in range(200_000))
    began = time.process_time()
    with pytest.raises(EvidenceError, match="f:1: result 1: key 'k199999' stands there twice"):
        list(documents(f'{{{held},"k199999":0}}'.encode(), "f"))
    assert time.process_time() - began < 5  # by comparing each with each it takes a quarter of an hour


# Property tests: whatever the bytes, a reader says what it is or refuses it in one line.
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from(sorted(values("stopped.json")))


def read_all(content: bytes) -> list[Result] | None:
    """Return the results, or None where they were refused in one line that names the file."""
    try:
        return [read(document, "candidate", "f", alone=False) for document in documents(content, "f")]
    except EvidenceError as error:
        assert str(error).startswith("f:") and "\n" not in str(error)
        return None


@LOOSE
@given(st.binary(max_size=200) | JSON_VALUES.map(lambda value: json.dumps(value).encode()))
def test_any_bytes(content: bytes) -> None:
    assert read_all(content) is None


@LOOSE
@given(st.sampled_from(["stopped.json", "appended-baseline.json"]), st.floats(0, 1, exclude_max=True))
def test_a_file_cut_anywhere_is_refused_or_holds_whole_results(name: str, share: float) -> None:
    content = (DATA / name).read_bytes()
    whole = read_all(content)
    found = read_all(content[: int(share * len(content))])
    assert found is None or (whole is not None and [r.values for r in found] == [r.values for r in whole[: len(found)]])


@LOOSE
@given(
    st.lists(st.dictionaries(st.text(max_size=4), JSON_VALUES, max_size=3), min_size=1, max_size=4),
    st.sampled_from(["", "\n", " \r\n\t"]),
)
def test_documents_in_one_file(held: list[Json], between: str) -> None:
    text = between + between.join(json.dumps(value) for value in held)
    found = list(documents(text.encode(), "f"))
    assert [json.dumps(document.value) for document in found] == [json.dumps(value) for value in held]
    assert [document.number for document in found] == list(range(1, len(held) + 1))


@LOOSE
@given(st.dictionaries(KEYS, JSON_VALUES | st.floats() | st.integers(-3, 20), max_size=3), st.sets(KEYS, max_size=3))
def test_a_result_changed_anywhere_is_refused_or_checked(changes: Json, gone: set[str]) -> None:
    held = {key: value for key, value in (values("stopped.json") | changes).items() if key not in gone}
    found = read_all(json.dumps(held).encode())
    if found is not None:
        lines = contradictions(found[0]) + differences(result(values("baseline.json"), "baseline"), found[0])
        assert all("\n" not in line for line in lines)
        assert failed(found[0]) is None or 0 <= (failed(found[0]) or 0) <= 12 or lines


def test_a_document_knows_its_line_and_hash() -> None:
    first, second = documents(b'{"a": 1}\n\n {"a": NaN}', "f")
    assert isinstance(first, Document) and (first.line, second.line) == (1, 3)
    assert first.sha256 != second.sha256 and math.isnan(second.value["a"])
