"""Traces: what the published ones hold, what is refused and how, and prompts that share what is declared."""

from __future__ import annotations

import gzip
import json
import os
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workloads import __main__ as cli
from workloads.traces import Trace, TraceError, TraceRequest, read_objects, read_requests, write_trace

ROOT = Path(__file__).resolve().parent.parent
DATA = Path(os.environ.get("KVGATE_SHARED", ROOT.parent / "shared")) / "data"

LINE = {"timestamp": 27, "input_length": 1100, "output_length": 5, "hash_ids": [1, 2, 3]}


def published(name: str) -> Path:
    path = DATA / f"mooncake_{name}_trace.jsonl.gz"
    if not path.is_file():
        pytest.skip(f"{path} is not here")
    return path


def line(**change: Any) -> bytes:
    fields = {**LINE, **change}
    return json.dumps({k: v for k, v in fields.items() if v is not None}).encode() + b"\n"


def written(tmp_path: Path, content: bytes) -> Path:
    path = tmp_path / "t.jsonl"
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("name", "requests", "prompt_tokens", "output_tokens", "longest", "share", "second_half"),
    [
        ("conversation", 12_031, 144_793_823, 4_122_048, 126_527, 0.374, 0.3981),
        ("synthetic", 3_993, 61_194_628, 595_432, 191_386, 0.6512, 0.86275),
    ],
)
def test_published_traces_are_read_whole(
    name: str, requests: int, prompt_tokens: int, output_tokens: int, longest: int, share: float, second_half: float
) -> None:
    trace = Trace.read(published(name))
    facts = trace.facts()
    assert (facts.requests, facts.prompt_tokens, facts.output_tokens) == (requests, prompt_tokens, output_tokens)
    assert facts.longest_tokens == longest
    # The share comes from the prompts that would be sent; what is published was counted over block ids by others.
    assert facts.share == pytest.approx(share, abs=0.0005)
    assert trace.facts(counted_from=requests // 2).share == pytest.approx(second_half, abs=0.00005)


def test_prompts_of_a_published_trace_share_its_blocks_token_by_token() -> None:
    trace = Trace.read(published("conversation")).window(first=60)
    prompts = list(trace.prompts(seed=1, vocabulary_tokens=150_000))
    ids = [p.token_ids() for p in prompts]
    for i, a in enumerate(trace.requests):
        assert len(ids[i]) == a.input_tokens
        for k, b in enumerate(trace.requests[:i]):
            same = next((n for n, (x, y) in enumerate(zip(a.block_ids, b.block_ids, strict=False)) if x != y), None)
            expected = min(len(ids[i]), len(ids[k])) if same is None else same * 512
            assert ids[i][:expected] == ids[k][:expected]
            # One id more may agree by chance, ten will not.
            assert ids[i][: expected + 10] != ids[k][: expected + 10] or expected == min(len(ids[i]), len(ids[k]))


def test_what_a_line_holds(tmp_path: Path) -> None:
    path = written(tmp_path, line(more="ignored") + line(timestamp=30.5).rstrip())
    first, second = read_requests(path)
    assert first == TraceRequest(27.0, 1100, 5, (1, 2, 3))
    assert (first.line, second.line) == (1, 2)
    assert second.timestamp_ms == 30.5
    assert [p.tokens for p in next(Trace.read(path).prompts(1, 100)).parts] == [512, 512, 76]


def test_blocks_of_another_size(tmp_path: Path) -> None:
    path = written(tmp_path, line(input_length=130))
    trace = Trace.read(path, block_tokens=64)
    assert [p.tokens for p in next(trace.prompts(1, 100)).parts] == [64, 64, 2]
    with pytest.raises(TraceError, match="hash_ids has 3 entries, but 130 tokens are 1 blocks of 512"):
        Trace.read(path)


@pytest.mark.parametrize("name", ["t.jsonl", "t.jsonl.gz", "t"])
@pytest.mark.parametrize("packed", [False, True])
def test_gzip_is_told_by_content_not_by_name(tmp_path: Path, name: str, packed: bool) -> None:
    path = tmp_path / name
    path.write_bytes(gzip.compress(line()) if packed else line())
    assert len(Trace.read(path).requests) == 1


@pytest.mark.parametrize(
    ("content", "place", "told"),
    [
        (b"", 1, "holds no request: give a file with one JSON object a line"),
        (b"\n \n", 1, "holds no request"),
        (line() + line()[:30], 2, "cut off in the middle of a line: copy the file again"),
        (line() + line()[:30] + b"\n", 2, "not JSON"),
        (line() + b"[1]\n", 2, "not a JSON object"),
        (line() + b'{"a": "\xff"}\n', 2, "not UTF-8 at byte 8 of the line"),
        (line().decode().encode("utf-16"), 1, "not UTF-8"),
        (b"[" * 100_000 + b"\n", 1, "not JSON"),
        (b'{"timestamp": ' + b"9" * 5000 + b"}\n", 1, "not JSON"),
        (b'{"requests": []}\n', 1, "'timestamp' is missing: a line holds timestamp, input_length, output_length, hash_ids"),
        (line(hash_ids=None), 1, "'hash_ids' is missing"),
        (line(timestamp=float("nan")), 1, "timestamp is NaN: give milliseconds"),
        (line(timestamp=float("inf")), 1, "timestamp is Infinity"),
        (line(timestamp=-1), 1, "timestamp is -1"),
        (line(timestamp=10**30), 1, "timestamp is 1000"),
        (line(timestamp=True), 1, "timestamp is true"),
        (line(timestamp="27"), 1, 'timestamp is "27"'),
        (line(input_length=0), 1, "input_length is 0: give a whole number of tokens, 1 or more"),
        (line(input_length=-5), 1, "input_length is -5"),
        (line(input_length=1100.0), 1, "input_length is 1100.0"),
        (line(input_length=True), 1, "input_length is true"),
        (line() + line(output_length=0), 2, "output_length is 0"),
        (line(output_length="9" * 99), 1, 'output_length is "99999999999999999999999999999999999999…:'),
        (line(hash_ids=[1, 2]), 1, "hash_ids has 2 entries, but 1100 tokens are 3 blocks of 512"),
        (line(hash_ids=[1, 2, 3, 4]), 1, "hash_ids has 4 entries"),
        (line(hash_ids=[1, 2, True]), 1, "hash_ids is not a list of whole numbers"),
        (line(hash_ids={"1": 2}), 1, "hash_ids is not a list"),
        (gzip.compress(line() * 3)[:-9], 4, "the gzip data is cut off or damaged: copy the file again"),
        (gzip.compress(line())[:9], 1, "the gzip data is cut off"),
        (gzip.compress(line()) + b"tail", 2, "the gzip data is cut off or damaged"),
    ],
    ids=lambda value: "" if isinstance(value, bytes) else None,
)  # fmt: skip
def test_a_wrong_trace_is_told_in_one_line_with_its_place(
    tmp_path: Path, content: bytes, place: int, told: str
) -> None:
    path = written(tmp_path, content)
    with pytest.raises(TraceError) as caught:
        Trace.read(path)
    message = str(caught.value)
    assert "\n" not in message
    assert told in message
    found = re.match(rf"{re.escape(str(path))}:(\d+): ", message)
    assert found, message
    assert int(found[1]) == place


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"nope: No such file or directory: give a file that can be read$"):
        Trace.read(tmp_path / "nope")
    with pytest.raises(TraceError, match="Is a directory"):
        Trace.read(tmp_path)


def test_a_line_that_does_not_end_is_not_read_into_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workloads.traces._LONGEST_LINE_BYTES", 1 << 20)
    with pytest.raises(TraceError, match=":2: a line of more than 1 MiB"):
        Trace.read(written(tmp_path, line() + b" " * (2 << 20)))


def test_requests_are_sorted_by_time_and_stay_in_order_where_it_is_the_same(tmp_path: Path) -> None:
    times = [30, 10, 30, 10, 20]
    path = written(tmp_path, b"".join(line(timestamp=t, output_length=i + 1) for i, t in enumerate(times)))
    assert [r.output_tokens for r in Trace.read(path).requests] == [2, 4, 5, 1, 3]


def test_a_window_counts_from_the_first_request(tmp_path: Path) -> None:
    times = [5000, 6000, 7000, 8000]
    trace = Trace.read(written(tmp_path, b"".join(line(timestamp=t, output_length=t) for t in times)))

    def kept(**asked: Any) -> list[tuple[float, int]]:
        return [(r.timestamp_ms, r.output_tokens) for r in trace.window(**asked).requests]

    assert kept() == [(0, 5000), (1000, 6000), (2000, 7000), (3000, 8000)]
    assert kept(first=2) == [(0, 5000), (1000, 6000)]
    assert kept(from_s=0.5, to_s=3.0) == [(500, 6000), (1500, 7000)]
    assert kept(from_s=1.0, first=1) == [(0, 6000)]
    assert kept(first=2, speed=4.0) == [(0, 5000), (250, 6000)]
    with pytest.raises(TraceError, match="no request in this window: the last one comes after 3 s"):
        trace.window(from_s=3.5)
    for speed in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="no positive number"):
            trace.window(speed=speed)


def test_a_request_longer_than_the_window_is_named_by_its_line(tmp_path: Path) -> None:
    path = written(tmp_path, line(timestamp=9) + line(timestamp=8, output_length=100))
    trace = Trace.read(path)
    trace.check_context(1200)
    with pytest.raises(
        TraceError, match=r"t\.jsonl:2: prompt and output of 1100 \+ 100 tokens exceed the model's 1199"
    ):
        trace.check_context(1199)
    trace.window(from_s=0.001).check_context(1199)


def test_facts_of_an_empty_part_are_zeros(tmp_path: Path) -> None:
    facts = Trace.read(written(tmp_path, line())).facts(counted_from=1)
    assert (facts.requests, facts.share, facts.duration_s, facts.longest_tokens) == (0, 0.0, 0.0, 0)


def a_request() -> st.SearchStrategy[TraceRequest]:
    def build(time_ms: float, tokens: int, output: int, draw: random.Random) -> TraceRequest:
        ids = tuple(draw.randrange(4) for _ in range(-(-tokens // 512)))
        return TraceRequest(time_ms, tokens, output, ids)

    times = st.one_of(st.integers(0, 2**53).map(float), st.floats(0, 2**53))
    return st.builds(build, times, st.integers(1, 3000), st.integers(1, 10**7), st.randoms(use_true_random=False))


@settings(deadline=None)  # files are written to disk
@given(st.lists(a_request(), min_size=1, max_size=20), st.sampled_from(["t.jsonl", "t.jsonl.gz"]))
def test_what_is_written_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, requests: list[TraceRequest], name: str
) -> None:
    path = tmp_path_factory.mktemp("trace") / name
    write_trace(path, requests)
    assert list(read_requests(path)) == requests
    content = path.read_bytes()
    assert (content[:2] == b"\x1f\x8b") == name.endswith(".gz")
    write_trace(path, read_requests(path))
    assert path.read_bytes() == content


def test_writing_fails_without_a_trace_of_it(tmp_path: Path) -> None:
    path = written(tmp_path, line())
    with pytest.raises(ValueError, match="JSON"):
        write_trace(path, [TraceRequest(float("inf"), 1, 1, (0,))])
    assert path.read_bytes() == line()
    assert [p.name for p in tmp_path.iterdir()] == ["t.jsonl"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
OBJECTS = st.fixed_dictionaries({}, optional={name: JSON | st.just(value) for name, value in LINE.items()})


def told_or_read(path: Path, read: Callable[[Path], object]) -> None:
    try:
        read(path)
    except TraceError as error:
        assert str(error).startswith(str(path))
        assert len(str(error).splitlines()) == 1


@settings(deadline=None)  # files are written to disk
@given(st.lists(OBJECTS | JSON, max_size=4))
def test_any_json_is_read_or_told(tmp_path_factory: pytest.TempPathFactory, values: list[object]) -> None:
    path = tmp_path_factory.mktemp("trace") / "t"
    path.write_text("".join(json.dumps(v) + "\n" for v in values), encoding="utf-8")
    told_or_read(path, Trace.read)


@settings(deadline=None)  # files are written to disk
@given(st.binary(max_size=200), st.booleans(), st.integers(0, 400))
def test_any_bytes_are_read_or_told(
    tmp_path_factory: pytest.TempPathFactory, noise: bytes, packed: bool, cut: int
) -> None:
    path = tmp_path_factory.mktemp("trace") / "t"
    content = line() + noise
    path.write_bytes((gzip.compress(content) if packed else content)[:cut])
    told_or_read(path, lambda p: list(read_objects(p)))
    told_or_read(path, Trace.read)


def test_the_command_says_what_a_trace_holds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, line() + line(timestamp=2027, hash_ids=[1, 2, 4]))
    assert cli.main(["trace", str(path)]) == 0
    out = capsys.readouterr().out
    assert f"{path}: 2 requests in 2.000 s" in out
    assert "46.5% of prompt tokens were sent before" in out


@pytest.mark.parametrize("options", [["--block-tokens", "64"], ["--max-context-tokens", "1000"]])
def test_the_command_tells_in_one_line_what_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str]
) -> None:
    path = written(tmp_path, line())
    assert cli.main(["trace", str(path), *options]) == 4
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith(f"kvgate: {path}:1: ")
    assert told.err.count("\n") == 1


@pytest.mark.parametrize(
    "argv",
    [[], ["trace"], ["trace", "x", "--block-tokens", "0"], ["nonsense"], ["trace", "x", "--block-tokens", "1.5"]],
)
def test_a_wrong_command_line_is_one_line(capsys: pytest.CaptureFixture[str], argv: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(argv)
    assert caught.value.code == 4
    assert capsys.readouterr().err.count("\n") == 1
