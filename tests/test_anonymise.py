"""Request logs to traces: what repeats is kept, what was said is not."""

from __future__ import annotations

import builtins
import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workloads import __main__ as cli
from workloads import anonymise as module
from workloads.anonymise import Reading, anonymise, load_tokenizer, read_log
from workloads.traces import Trace, TraceError, TraceRequest

Json = dict[str, Any]
SECONDS = Reading(block_tokens=4, time_unit="s")


def log_of(folder: Path, *lines: Json) -> Path:
    path = folder / "log.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def asked(at: float | str = 1.0, **change: Any) -> Json:
    return {"timestamp": at, "output_tokens": 7, **change}


@pytest.fixture
def bytes_as_tokens(monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand in for a model's tokenizer: every byte of the text is a token."""
    monkeypatch.setattr(module, "load_tokenizer", lambda folder: lambda text: list(text.encode()))
    return Path("model")


def test_blocks_are_numbered_by_first_appearance_and_chained_by_prefix(tmp_path: Path) -> None:
    log = log_of(
        tmp_path,
        asked(100.0, prompt=[9, 9, 9, 9, 8, 8, 8, 8, 7]),
        asked(100.5, prompt=[9, 9, 9, 9, 8, 8, 8, 8, 6]),
        asked(102.0, prompt=[8, 8, 8, 8]),  # a block that was seen, but after another beginning
        asked(102.0, prompt=[9, 9, 9, 9, 8, 8]),
        asked(103.0, prompt=[9, 9, 9, 9, 8, 8, 8, 8, 7]),
    )
    assert list(read_log(log, SECONDS)) == [
        TraceRequest(0, 9, 7, (0, 1, 2)),
        TraceRequest(500, 9, 7, (0, 1, 3)),
        TraceRequest(2000, 4, 7, (4,)),
        TraceRequest(2000, 6, 7, (0, 5)),
        TraceRequest(3000, 9, 7, (0, 1, 2)),
    ]


def test_lengths_alone_share_nothing(tmp_path: Path) -> None:
    log = log_of(tmp_path, *(asked(input_tokens=9) for _ in range(3)), asked(prompt=[1]))
    ids = [r.block_ids for r in read_log(log, SECONDS)]
    assert ids == [(0, 1, 2), (3, 4, 5), (6, 7, 8), (9,)]


def test_the_log_may_be_out_of_order_and_gzipped(tmp_path: Path) -> None:
    lines = [asked(5.0, prompt=[1, 1]), asked(3.0, prompt=[2, 2]), asked(5.0, prompt=[3])]
    log = tmp_path / "log"
    log.write_bytes(gzip.compress("".join(json.dumps(v) + "\n" for v in lines).encode()))
    out = tmp_path / "out.jsonl.gz"
    trace = anonymise(log, out, SECONDS)
    assert [(r.timestamp_ms, r.input_tokens, r.block_ids) for r in trace.requests] == [
        (0, 2, (0,)),
        (2000, 2, (1,)),
        (2000, 1, (2,)),
    ]
    assert Trace.read(out, block_tokens=4).requests == trace.requests


@pytest.mark.parametrize(
    ("first", "second", "unit", "apart_ms"),
    [
        (1_700_000_000, 1_700_000_002.5, "s", 2500),
        (1_700_000_000_000, 1_700_000_000_250, "ms", 250),
        ("2026-03-29T00:59:59Z", "2026-03-29T03:00:00.25+02:00", None, 1250),
        ("2026-01-01T00:00:00+08:00", "2025-12-31T16:00:00.001+00:00", None, 1),
    ],
)
def test_times(tmp_path: Path, first: Any, second: Any, unit: Any, apart_ms: int) -> None:
    log = log_of(tmp_path, asked(first, prompt=[1]), asked(second, prompt=[2]))
    requests = list(read_log(log, Reading(time_unit=unit)))
    assert [r.timestamp_ms for r in requests] == [0, apart_ms]


@pytest.mark.parametrize("name", ["timestamp", "time", "created", "created_at", "start_time"])
def test_the_time_field_is_the_one_that_is_there(tmp_path: Path, name: str) -> None:
    log = log_of(tmp_path, {name: 5, "prompt": [1], "output_length": 1})
    assert len(list(read_log(log, SECONDS))) == 1


def test_a_time_field_may_be_named(tmp_path: Path) -> None:
    log = log_of(tmp_path, asked(prompt=[1], meta={"at": 3.5}), asked(prompt=[1], meta={"at": 4.0}))
    reading = Reading(time_unit="s", time_field="meta.at")
    assert [r.timestamp_ms for r in read_log(log, reading)] == [0, 500]


@pytest.mark.parametrize(
    "length",
    [
        {"output_length": 3},
        {"output_tokens": 3},
        {"completion_tokens": 3},
        {"usage": {"completion_tokens": 3}},
        {"output_length": 3, "usage": {"completion_tokens": 3}},
    ],
)
def test_output_lengths(tmp_path: Path, length: Json) -> None:
    log = log_of(tmp_path, {"time": 1, "prompt": [1], **length})
    assert next(read_log(log, SECONDS)).output_tokens == 3


@pytest.mark.parametrize(
    "length",
    [{"input_length": 5}, {"prompt_tokens": 5}, {"usage": {"prompt_tokens": 5}}, {"prompt": None, "input_tokens": 5}],
)
def test_input_lengths(tmp_path: Path, length: Json) -> None:
    assert next(read_log(log_of(tmp_path, asked(**length)), SECONDS)).input_tokens == 5


def test_text_is_counted_in_the_tokens_of_the_tokenizer(tmp_path: Path, bytes_as_tokens: Path) -> None:
    chat = [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": [{"type": "text", "text": "hel"}, {"type": "text", "text": "lo"}]},
    ]
    longer = [*chat, {"role": "assistant", "content": None, "tool_calls": [{"name": "f"}]}]
    log = log_of(
        tmp_path, asked(prompt="你好"), asked(prompt_token_ids=[1, 2]), asked(messages=chat), asked(messages=longer)
    )
    text, ids, short, long = read_log(log, Reading(block_tokens=4, time_unit="s", tokenizer=bytes_as_tokens))
    assert (text.input_tokens, ids.input_tokens) == (6, 2)
    assert short.input_tokens == len("system\nbe brief\nuser\nhello\n")
    assert long.block_ids[: short.input_tokens // 4] == short.block_ids[: short.input_tokens // 4]
    assert long.input_tokens > short.input_tokens


NUMBER = "timestamp is a number of unknown unit: state it with --time-unit s or ms"


@pytest.mark.parametrize(
    ("line", "reading", "told"),
    [
        (asked(prompt=[1]), Reading(), NUMBER),
        ({"prompt": [1], "output_tokens": 1}, SECONDS, "no time of timestamp, time, created, created_at, start_time: name the field"),
        (asked(prompt=[1], created=5), SECONDS, "several times, timestamp and created: name the field with --time-field"),
        (asked("2026-01-01T00:00:00", prompt=[1]), SECONDS, "timestamp has no zone: write it as in"),
        (asked("yesterday", prompt=[1]), SECONDS, "timestamp is no ISO 8601 time: write it as in"),
        (asked(True, prompt=[1]), SECONDS, "timestamp is no time"),
        (asked(-1, prompt=[1]), SECONDS, "timestamp is no time"),
        (asked(2**53, prompt=[1]), SECONDS, "timestamp is no time"),
        (asked(float("nan"), prompt=[1]), SECONDS, "timestamp is no time"),
        (asked(10**400, prompt=[1]), SECONDS, "timestamp is no time"),
        ({"time": None, "prompt": [1], "output_tokens": 1}, SECONDS, "time is no time"),
        ({"time": 1, "prompt": [1]}, SECONDS, "no output length: give one of output_length, output_tokens"),
        ({"time": 1, "prompt": [1], "usage": 5}, SECONDS, "no output length"),
        (asked(prompt=[1], completion_tokens=8), SECONDS, "output_tokens and completion_tokens differ"),
        (asked(prompt=[1], output_tokens=0), SECONDS, "output_tokens is no whole number of tokens, 1 to 10000000: mend or drop"),
        (asked(prompt=[1], output_tokens=True), SECONDS, "output_tokens is no whole number"),
        (asked(input_tokens="5"), SECONDS, "input_tokens is no whole number"),
        (asked(), SECONDS, "neither a prompt nor its length: give one of prompt, prompt_token_ids, messages, input_length"),
        (asked(prompt=[1], messages=[]), SECONDS, "prompt and messages in one request"),
        (asked(prompt="SECRET"), SECONDS, "is text: name the model's folder with --tokenizer, or give token ids"),
        (asked(prompt=["SECRET"]), SECONDS, "prompt is neither text nor a list of token ids"),
        (asked(prompt=[1, True]), SECONDS, "prompt is neither text nor"),
        (asked(prompt=[-1]), SECONDS, "prompt is neither text nor"),
        (asked(prompt=[2**63]), SECONDS, "prompt is neither text nor"),
        ({**asked(), "prompt_token_ids": "SECRET"}, SECONDS, "prompt_token_ids is neither text nor"),
        (asked(prompt=[]), SECONDS, "prompt holds no token: drop the line"),
        (asked(prompt="SECRET\ud800"), SECONDS, "half a character"),
        (asked(messages="SECRET"), SECONDS, "messages is not a list of objects"),
        (asked(messages=[{"role": "user", "content": [{"type": "image_url", "image_url": "SECRET"}]}]), SECONDS, "content other than text"),
        (asked(messages=[{"role": "user", "content": 5}]), SECONDS, "content other than text"),
        (asked(messages=[{"role": "user", "content": [{"type": "text"}]}]), SECONDS, "content other than text"),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) else "",
)  # fmt: skip
def test_a_wrong_line_is_told_without_its_content(tmp_path: Path, line: Json, reading: Reading, told: str) -> None:
    good = {**asked(prompt=[1]), "timestamp": line.get("timestamp", 1)}
    lines = [line] if "timestamp" not in line or told == NUMBER or "time" in told.split(":")[0] else [good, line]
    log, out = log_of(tmp_path, *lines), tmp_path / "out.jsonl"
    with pytest.raises(TraceError) as caught:
        anonymise(log, out, reading)
    message = str(caught.value)
    assert re.match(rf"{re.escape(str(log))}:{len(lines)}: ", message), message
    assert told in message
    assert "\n" not in message
    assert "SECRET" not in message
    assert not out.exists()


def test_times_of_two_kinds_are_refused(tmp_path: Path) -> None:
    log = log_of(tmp_path, asked(prompt=[1]), asked("2026-01-01T00:00:00Z", prompt=[1]))
    with pytest.raises(TraceError, match=":2: timestamp is of another kind than before"):
        list(read_log(log, SECONDS))


def test_a_log_is_never_overwritten_by_its_trace(tmp_path: Path) -> None:
    log = log_of(tmp_path, asked(prompt=[1]))
    with pytest.raises(TraceError, match="would be overwritten"):
        anonymise(log, tmp_path / "." / "log.jsonl", SECONDS)
    with pytest.raises(TraceError, match="its folder does not exist"):
        anonymise(log, tmp_path / "nope" / "out", SECONDS)
    with pytest.raises(ValueError, match="at least 1"):
        anonymise(log, tmp_path / "out", Reading(block_tokens=0, time_unit="s"))


def test_a_real_tokenizer_is_read_from_the_models_folder(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    words = {"[UNK]": 0, "the": 1, "cache": 2}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))  # noqa: S106
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.enable_truncation(2)
    made.enable_padding(length=8)
    made.save(str(tmp_path / "tokenizer.json"))
    assert load_tokenizer(tmp_path)("the cache the other") == [1, 2, 1, 0]
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(TraceError, match=r"tokenizer\.json: is no tokenizer"):
        load_tokenizer(tmp_path)


def test_what_is_missing_for_text_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TraceError, match=r"tokenizer\.json: no such file: name a model's folder"):
        load_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "tokenizers":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(TraceError, match="needs the package tokenizers: pip install tokenizers"):
        load_tokenizer(tmp_path)


# What a reader of the trace must not find. Digits and marks are part of every trace, so they cannot tell.
LETTERS = st.characters(exclude_characters='0123456789[]{},:" \n', exclude_categories=("Cs",))
TEXTS = st.text(LETTERS, max_size=30)
FIELDS = "timestamp input_length output_length hash_ids"


@settings(deadline=None)  # files are written to disk
@given(st.lists(st.tuples(TEXTS.filter(bool), TEXTS, st.integers(0, 10**6)), min_size=1, max_size=8), st.booleans())
def test_no_text_leaves(tmp_path_factory: pytest.TempPathFactory, said: list[tuple[str, str, int]], chat: bool) -> None:
    folder = tmp_path_factory.mktemp("log")
    lines = []
    for text, note, at in said:
        content: Json = {"messages": [{"role": "user", "content": text}]} if chat else {"prompt": text}
        lines.append(asked(at, note=note, user=note, **content))
    log, out = log_of(folder, *lines), folder / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "load_tokenizer", lambda folder: lambda text: list(text.encode()))
        anonymise(log, out, Reading(block_tokens=2, time_unit="ms", tokenizer=folder))
    left = out.read_text(encoding="utf-8")
    for text in {t for said_text, note, _ in said for t in (said_text, note)}:
        pieces = {text[i : i + 4] for i in range(len(text) - 3)}
        assert not [p for p in pieces if (p in left or json.dumps(p)[1:-1] in left) and p not in FIELDS]
    for line in left.splitlines():
        fields = json.loads(line)
        assert " ".join(fields) == FIELDS
        assert all(type(v) is int for v in (*list(fields.values())[:3], *fields["hash_ids"]))


PROMPTS = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=14), min_size=1, max_size=8)


@settings(deadline=None)  # files are written to disk
@given(PROMPTS, st.integers(1, 5))
def test_sharing_is_the_longest_common_prefix_in_whole_blocks(
    tmp_path_factory: pytest.TempPathFactory, prompts: list[list[int]], block: int
) -> None:
    log = log_of(tmp_path_factory.mktemp("log"), *(asked(prompt=p) for p in prompts))
    requests = list(read_log(log, Reading(block_tokens=block, time_unit="s")))
    for i, (a, x) in enumerate(zip(prompts, requests, strict=True)):
        assert (x.input_tokens, len(x.block_ids)) == (len(a), -(-len(a) // block))
        for b, y in zip(prompts[:i], requests[:i], strict=True):
            same = next((n for n, (p, q) in enumerate(zip(a, b, strict=False)) if p != q), min(len(a), len(b)))
            # The short last block counts where the prompts are equal to their ends.
            expected = len(x.block_ids) if a == b else same // block
            shared = [p == q for p, q in zip(x.block_ids, y.block_ids, strict=False)]
            assert shared == [True] * expected + [False] * (len(shared) - expected)


@settings(deadline=None)  # files are written to disk
@given(PROMPTS, st.integers(1, 10**9), st.integers(0, 10**6))
def test_other_tokens_at_another_time_give_the_same_bytes(
    tmp_path_factory: pytest.TempPathFactory, prompts: list[list[int]], other: int, later: int
) -> None:
    folder = tmp_path_factory.mktemp("log")
    left = []
    for shift, wait in ((0, 0), (other, later)):
        lines = (asked(i + wait, prompt=[t * 7 + shift for t in p]) for i, p in enumerate(prompts))
        anonymise(log_of(folder, *lines), folder / "out", SECONDS)
        left.append((folder / "out").read_bytes())
    # Nothing but lengths, gaps and what repeats can have gone into it.
    assert left[0] == left[1]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["role", "content", "type", "text", "completion_tokens"]), inner, max_size=3)
    ),
    max_leaves=6,
)
NAMES = ["timestamp", "created", "prompt", "prompt_token_ids", "messages", "usage", "input_tokens", "output_tokens"]


@settings(deadline=None)  # files are written to disk
@given(
    st.lists(
        st.dictionaries(st.sampled_from(NAMES), JSON)
        | st.builds(asked, prompt=JSON)
        | st.builds(asked, JSON, messages=JSON),
        max_size=3,
    ),
    st.sampled_from(["s", "ms", None]),
)
def test_any_log_is_read_or_told(tmp_path_factory: pytest.TempPathFactory, lines: list[Json], unit: Any) -> None:
    folder = tmp_path_factory.mktemp("log")
    log = log_of(folder, *lines)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "load_tokenizer", lambda folder: lambda text: list(text.encode()))
        try:
            trace = anonymise(log, folder / "out", Reading(block_tokens=2, time_unit=unit, tokenizer=folder))
        except TraceError as error:
            assert str(error).startswith(str(log))
            assert len(str(error).splitlines()) == 1
        else:
            assert Trace.read(folder / "out", block_tokens=2).requests == trace.requests


def test_the_command_writes_a_trace_that_the_other_command_reads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, out = log_of(tmp_path, asked(prompt=[1, 2]), asked(3.0, prompt=[1, 2])), tmp_path / "out.jsonl"
    assert cli.main(["anonymise", str(log), str(out), "--time-unit", "s"]) == 0
    told = capsys.readouterr().out
    assert f"{out}: 2 requests in 2.000 s" in told
    assert "50.0% of prompt tokens" in told
    assert cli.main(["trace", str(out)]) == 0
    assert capsys.readouterr().out == told
    assert cli.main(["anonymise", str(log), str(out)]) == 4
    assert capsys.readouterr().err == f"kvgate: {log}:1: {NUMBER}\n"
