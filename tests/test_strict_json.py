"""JSON of the evidence: no key twice, no number that is none, no line that no machine can hold."""

from __future__ import annotations

import json
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workloads import strict_json
from workloads.evidence import EvidenceError
from workloads.strict_json import once, read_json, read_jsonl

Json = dict[str, Any]
SOUND = b'{"id":"a","text":"x","usage":{"a":1},"n":[1,2]}\n'

TWICE: dict[str, tuple[bytes, str]] = {
    "at the top": (b'{"id":1,"id":2}', "id"),
    "with blanks": (b'{"id" :1,"id" : 2}', "id"),
    "with a tab": (b'{"id"\t:1,"id":2}', "id"),
    "with a carriage return": (b'{"id"\r:1,"id":2}', "id"),
    "inside": (b'{"usage":{"a":1,"a":2}}', "a"),
    "deep inside": (b'{"usage":{"a":{"b":{"c":1,"c":1}}}}', "c"),
    "in a list": (b'{"requests":[{"id":1},{"id":1,"id":2}]}', "id"),
    "in a list of lists": (b'{"n":[[[{"k":1,"k":2}]]]}', "k"),
    "written otherwise": (b'{"id":1,"\\u0069d":2}', "id"),
    "with a colon": (b'{"a\\":":1,"a\\":":2}', 'a":'),
    "the empty one": (b'{"":1,"":2}', ""),
    "of which one is an object": (b'{"usage":{"a":1,"b":2},"usage":1}', "usage"),
    "behind a text that looks like keys": (b'{"text":"\\":\\":","id":1,"id":2}', "id"),
    "and less elsewhere": (b'{"id":"a","id":"a","text":"x","usage":{}}', "id"),
}  # fmt: skip


@pytest.mark.parametrize("before", [0, 1, 2000])
@pytest.mark.parametrize("name", TWICE)
def test_a_key_that_stands_twice_is_named(tmp_path: Path, name: str, before: int) -> None:
    """Alone, and behind others that are read with it or before it, which come out as they are."""
    line, key = TWICE[name]
    lines, document = tmp_path / "r.jsonl", tmp_path / "r.json"
    lines.write_bytes(SOUND * before + line + b"\n" + SOUND)
    document.write_bytes(line)
    found: list[Json] = []
    with pytest.raises(EvidenceError) as told:
        found += read_jsonl(lines)
    assert str(told.value) == f"{lines}:{before + 1}: key {key!r} stands there twice"
    with pytest.raises(EvidenceError) as told:
        read_json(document)
    assert str(told.value) == f"{document}: key {key!r} stands there twice"


def test_what_stands_before_a_bad_line_is_read(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    for bad in (b"{nope}\n", b'{"a":1,"a":2}\n', b"[]\n", b'{"a":'):
        path.write_bytes(SOUND * 3 + bad)
        found: list[Json] = []
        with pytest.raises(EvidenceError, match=":4: "):
            for value in read_jsonl(path):
                found.append(value)
        assert found == [json.loads(SOUND)] * 3


KEYS = st.sampled_from(["a", "b", 'a"', 'a":', ":", "", "\u00e9", "a b", 'a" :'])
TEXTS = st.sampled_from(['"', "x", '":', '": {"a" :', "\\", "\t", '\\":'])
LEAVES = st.none() | st.booleans() | st.integers(-5, 5) | TEXTS
BLANKS = st.sampled_from(["", "", "", " ", "\t", "\r", "  "])


@st.composite
def pairs(draw: st.DrawFn, inner: st.SearchStrategy[str]) -> str:
    """The text of an object, with keys that may stand twice, blanks anywhere and letters written either way."""
    parts = []
    for key in draw(st.lists(KEYS, max_size=4)):
        name = json.dumps(key, ensure_ascii=draw(st.booleans()))
        if draw(st.booleans()):
            name = name.replace("a", "\\u0061")
        parts.append(draw(BLANKS) + name + draw(BLANKS) + ":" + draw(BLANKS) + draw(inner) + draw(BLANKS))
    return "{" + ",".join(parts) + "}"


VALUES = st.recursive(
    LEAVES.map(json.dumps),
    lambda inner: pairs(inner) | st.lists(inner, max_size=3).map(lambda held: f"[{','.join(held)}]"),
    max_leaves=12,
)


def exactly(line: str) -> Json | None:
    try:
        value: Json = json.loads(line, object_pairs_hook=once)
    except strict_json.KeyTwiceError:
        return None
    return value


@settings(max_examples=150, deadline=None)
@given(st.lists(pairs(VALUES), min_size=1, max_size=4))
def test_the_fast_way_finds_what_the_exact_one_finds(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str]
) -> None:
    path = tmp_path_factory.getbasetemp() / "fast.jsonl"
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())
    wanted = [exactly(line) for line in lines]
    found: list[Json | None] = []
    try:
        for value in read_jsonl(path):
            found.append(value)
    except EvidenceError as error:
        assert f":{len(found) + 1}: key " in str(error) and "stands there twice" in str(error)
        found.append(None)
    assert found == wanted[: len(found)]
    assert len(found) == len(wanted) if None not in wanted else found[-1] is None


def test_records_as_they_are_written_need_no_second_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Millions are read: what takes a run's own records for uncertain would double the time."""
    monkeypatch.setattr(strict_json, "_exactly", lambda _: pytest.fail("looked at twice"))
    path = tmp_path / "r.jsonl"
    record = {"id": "a", "text": "a: b", "usage": {"a": 1}, "likely": {"token_id:1": -0.5}, "n": [1], "error": None}
    path.write_bytes(b"".join(json.dumps(record, separators=(",", ":")).encode() + b"\n" for _ in range(2000)))
    assert len(list(read_jsonl(path))) == 2000
    quoted = {**record, "text": 'it said " : and went on'}
    path.write_bytes(
        path.read_bytes() + json.dumps(quoted, separators=(",", ":")).encode().replace(b" :", b":") + b"\n"
    )
    with pytest.raises(pytest.fail.Exception):
        list(read_jsonl(path))


@pytest.mark.parametrize("number", [b"1e999", b"-1e999", b"9" * 400 + b".0", b"NaN", b"Infinity"])
def test_a_document_with_a_number_that_is_none_is_refused(tmp_path: Path, number: bytes) -> None:
    path = tmp_path / "r.json"
    path.write_bytes(b'{"a": ' + number + b"}")
    with pytest.raises(EvidenceError, match=r"not JSON: .*(more than a number can be|no measured value)"):
        read_json(path)


@pytest.mark.parametrize("content", [b'\xff\xfe{\x00"\x00}\x00', b'{"a": "\xff"}', "{}".encode("utf-16")])
def test_another_encoding_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "r.json"
    path.write_bytes(content)
    with pytest.raises(EvidenceError, match="not JSON"):
        read_json(path)


def sparse(path: Path, begin: bytes, size_bytes: int, end: bytes) -> None:
    with path.open("wb") as f:
        f.write(begin)
        f.truncate(size_bytes)
        f.seek(0, 2)
        f.write(end)


def test_a_line_that_no_run_records_is_named_and_not_held(tmp_path: Path) -> None:
    """16 GiB in one line: read to its end it would fill the memory."""
    path, document = tmp_path / "r.jsonl", tmp_path / "r.json"
    sparse(path, SOUND * 2 + b'{"x":"', 1 << 34, b'"}\n')
    sparse(document, b"{", 1 << 34, b"}")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(EvidenceError) as told:
        list(read_jsonl(path))
    assert str(told.value) == f"{path}:3: longer than 64 MiB, which nothing that a run records is"
    with pytest.raises(EvidenceError, match=r"r\.json: longer than 64 MiB"):
        read_json(document)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < (1 << 28) // 1024  # KiB


@pytest.mark.parametrize("length", [1 << 20, (1 << 20) + 1])
@pytest.mark.parametrize("before", [0, 3])
def test_the_longest_line_is_still_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, length: int, before: int
) -> None:
    monkeypatch.setattr(strict_json, "BYTES_MAX", 1 << 20)
    path = tmp_path / "r.jsonl"
    path.write_bytes(SOUND * before + b'{"x":"' + b"x" * (length - 8) + b'"}\n' + SOUND)
    if length > strict_json.BYTES_MAX:
        with pytest.raises(EvidenceError, match=f":{before + 1}: longer than"):
            list(read_jsonl(path))
    else:
        assert [len(value["x"]) for value in read_jsonl(path) if "x" in value] == [length - 8]


def test_a_line_of_a_hundred_thousand_file_names_is_read(tmp_path: Path) -> None:
    files = {f"{'m' * 100}@{i:064x}@0.data": 1 << 20 for i in range(100_000)}
    path = tmp_path / "populate.jsonl"
    path.write_text(json.dumps({"prompt_set": 0, "files": files}) + "\n", encoding="utf-8")
    (line,) = read_jsonl(path)
    assert line["files"] == files


def panics(_: bytes, **__: object) -> Any:
    raise type("PanicException", (BaseException,), {})("capacity overflow")


def interrupts(_: bytes, **__: object) -> Any:
    raise KeyboardInterrupt


@pytest.mark.parametrize(("parse", "raised"), [(panics, EvidenceError), (interrupts, KeyboardInterrupt)])
def test_a_parser_that_panics_is_told_and_nothing_else_is_held_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parse: Callable[..., Any], raised: type[BaseException]
) -> None:
    monkeypatch.setattr(strict_json, "from_json", parse)
    path = tmp_path / "r.jsonl"
    path.write_bytes(SOUND)
    with pytest.raises(raised) as told:
        list(read_jsonl(path))
    assert raised is KeyboardInterrupt or str(told.value) == f"{path}:1: too much for the parser of JSON"


def test_of_many_keys_the_one_that_stands_twice_is_found_at_once() -> None:
    pairs_of_it = [(f"k{i}", 0) for i in range(200_000)]
    with pytest.raises(ValueError, match="key 'k199999' stands there twice"):
        once([*pairs_of_it, pairs_of_it[-1]])


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b'{"a":1,}', "not JSON: trailing comma at line 1 column 8"),
        (b"{" + b'"a":{' * 300 + b"}" * 301, "not JSON: recursion limit exceeded"),
        (b'{"a":"\xff"}', "not JSON: not UTF-8 at byte 7"),
        (b'{"a":' + b"1" * 5000 + b"}", "not JSON: a number of 5000 digits"),
        (b'{"a":NaN}', "not JSON: NaN is no measured value"),
    ],
)
def test_a_fault_is_told_in_words_that_are_not_the_pythons(tmp_path: Path, content: bytes, told: str) -> None:
    """Of the same bytes every Python says the same, also where its own parser would take what another's does not."""
    path = tmp_path / "run.json"
    path.write_bytes(content)
    with pytest.raises(EvidenceError) as caught:
        read_json(path)
    assert str(caught.value).startswith(f"{path}: {told}")
