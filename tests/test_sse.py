"""What counts as a token and as a failure, from bytes on the wire."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.sse import Read, events, outcome

USAGE = {"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 2}}
DONE = "data: [DONE]\n\n"


def chunk(text: str = "", reason: str | None = None, **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "text": text, "finish_reason": reason, **more}]}


def delta(reason: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": reason}]}


def line(value: dict[str, Any]) -> str:
    return f"data: {json.dumps(value)}\n\n"


def timed(*parts: dict[str, Any] | str) -> list[Read]:
    """One read per part, 10 ns apart."""
    return [
        Read(10 * (i + 1), (part if isinstance(part, str) else line(part)).encode()) for i, part in enumerate(parts)
    ]


def told(*parts: dict[str, Any] | str) -> dict[str, Any]:
    return outcome(events(timed(*parts)))


def test_a_plain_stream() -> None:
    record = told(chunk("a"), chunk("b", "length"), USAGE, DONE)
    assert record["status"] == "ok"
    assert (record["t_first_ns"], record["t_last_ns"], record["chunk_ns"]) == (10, 20, [0, 10])
    assert record["text"] == "ab"
    assert record["usage"] == {"prompt_tokens": 10, "completion_tokens": 2}
    assert record["first_shared_read"] is False


def test_a_role_only_first_chunk_is_no_token() -> None:
    record = told(delta(role="assistant", content=""), delta(content="x"), delta("stop"), USAGE, DONE)
    assert record["t_first_ns"] == 20


@pytest.mark.parametrize(
    "first",
    [{"reasoning": "hm"}, {"reasoning_content": "hm"}, {"tool_calls": [{"index": 0, "function": {"name": "f"}}]}],
)
def test_reasoning_and_tool_calls_are_tokens(first: dict[str, Any]) -> None:
    assert told(delta(**first), delta("stop", content="x"), USAGE, DONE)["t_first_ns"] == 10


def test_a_token_without_text_is_a_token() -> None:
    record = told(
        chunk("", logprobs={"tokens": ["token_id:7"], "top_logprobs": [{"token_id:7": -0.5}]}),
        chunk("b", "length"),
        USAGE,
        DONE,
    )
    assert record["t_first_ns"] == 10
    assert record["output_token_ids"] == [7]
    assert record["first_logprobs"] == {"token_id:7": -0.5}


def test_several_tokens_in_a_chunk_are_counted() -> None:
    assert told(chunk("abc", "length", token_ids=[1, 2, 3]), USAGE, DONE)["chunk_tokens"] == [3]


def test_a_first_token_that_shares_its_read_is_marked() -> None:
    assert told(line(chunk("a")) + line(chunk("b", "length")), USAGE, DONE)["first_shared_read"] is True


FAILURES = {
    "error inside the stream: out of blocks": [chunk("a"), {"error": {"message": "out of blocks"}}, DONE],
    "broke off without its end": [chunk("a", "length"), USAGE],
    "without a single token": [USAGE, DONE],
    "finished with reason 'error'": [chunk("a"), chunk("", "error"), USAGE, DONE],
    "without a finish reason": [chunk("a"), USAGE, DONE],
    "did not say how many tokens": [chunk("a", "length"), DONE],
    "not JSON": [chunk("a"), "data: <html>\n\n", DONE],
    "no chunk": [chunk("a"), "data: [1]\n\n", DONE],
}


@pytest.mark.parametrize("reason", FAILURES)
def test_failures(reason: str) -> None:
    record = told(*FAILURES[reason])
    assert record["status"] == "failed"
    assert reason in record["error"]


def test_an_empty_answer_is_a_failure() -> None:
    assert outcome([])["status"] == "failed"


@given(st.lists(st.integers(0, 400), max_size=30))
def test_where_the_bytes_are_cut_does_not_matter(cuts: list[int]) -> None:
    stream = "".join(
        [line(chunk("a")), ": ping\n\n", line(chunk("é\U0001f600")), line(chunk("", "length")), line(USAGE), DONE]
    ).encode()
    places = sorted({0, len(stream), *(c for c in cuts if c < len(stream))})
    reads = [Read(i, stream[a:b]) for i, (a, b) in enumerate(itertools.pairwise(places))]
    record = outcome(events(reads))
    assert (record["status"], record["text"]) == ("ok", "aé\U0001f600")


@given(st.lists(st.binary(max_size=60), max_size=8))
def test_arbitrary_bytes_never_raise_and_never_succeed(parts: list[bytes]) -> None:
    assert outcome(events([Read(i, part) for i, part in enumerate(parts)]))["status"] == "failed"


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=5), lambda x: st.lists(x, max_size=3) | st.dictionaries(
    st.sampled_from(["choices", "usage", "error", "delta", "text", "logprobs", "tokens", "token_ids", "top_logprobs", "finish_reason"]), x, max_size=4), max_leaves=15))  # fmt: skip
def test_any_json_in_a_chunk_is_survived(value: Any) -> None:
    outcome(events([Read(0, f"data: {json.dumps(value)}\n\n".encode()), Read(1, DONE.encode())]))


def test_what_follows_the_first_token_in_its_read_marks_it() -> None:
    for more in (": ping\n\n", "data: ", "event: x\n", line(chunk("b"))):
        (first, *_) = events([Read(10, (line(chunk("a")) + more).encode())])
        assert first.followed, more
    (alone,) = events([Read(10, (": ping\n\n" + line(chunk("a"))).encode())])
    assert not alone.followed


def test_a_byte_order_mark_is_no_part_of_the_stream() -> None:
    assert told("\ufeff" + line(chunk("a", "length")), USAGE, DONE)["t_first_ns"] == 10


def test_a_line_that_is_no_field_is_a_failure() -> None:
    record = told(chunk("a"), "d\0ta: {}\n\n", chunk("b", "length"), USAGE, DONE)
    assert record["status"] == "failed"
    assert "a line that is no event's" in record["error"]


@pytest.mark.parametrize(
    "error",
    [
        line({"object": "error", "message": "kv load failed"}),
        'event: error\ndata: {"message": "kv load failed"}\n\n',
        line({"error": "kv load failed"}),
    ],
)
def test_an_error_after_the_last_token_is_a_failure_whatever_its_shape(error: str) -> None:
    record = told(chunk("a", "length"), USAGE, error, DONE)
    assert (record["status"], record["error"]) == ("failed", "error inside the stream: kv load failed")


@pytest.mark.parametrize("end", ["data: [DONE] \n\n", "data:[DONE]\n", "data: [DONE]"])
def test_the_end_mark_counts_as_it_is_sent_out_there(end: str) -> None:
    assert told(chunk("a", "length"), USAGE, end)["status"] == "ok"


def test_an_event_that_is_not_the_end_mark_needs_its_blank_line() -> None:
    assert len(list(events([Read(1, b'data: {"a": 1}\n')]))) == 0


def test_another_choice_is_not_the_answer() -> None:
    other = {"choices": [{"index": 1, "text": "z", "finish_reason": None}]}
    record = told(other, chunk("a", "length"), USAGE, DONE)
    assert (record["text"], record["t_first_ns"]) == ("a", 20)


def test_tokens_held_back_come_with_the_next_chunk_that_carries_something() -> None:
    def counted(word: str, tokens: int, reason: str | None = None) -> dict[str, Any]:
        return {**delta(reason, content=word), "usage": {"prompt_tokens": 10, "completion_tokens": tokens}}

    record = told(counted("a", 1), counted("", 2), counted("bc", 3, "length"), DONE)
    assert record["chunk_tokens"] == [1, 2]
    assert sum(record["chunk_tokens"]) == record["usage"]["completion_tokens"]


def test_text_without_a_token_by_usage_is_a_contradiction() -> None:
    none = {"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 0}}
    assert "no output token" in told(chunk("a", "length"), none, DONE)["error"]


@pytest.mark.parametrize("number", ["-Infinity", "NaN", "-1e999", "1" + "0" * 400])
def test_a_log_probability_that_no_record_can_hold_is_left_out(number: str) -> None:
    text = (
        f'{{"choices": [{{"index": 0, "text": "a", "logprobs": {{"top_logprobs": [{{"a": {number}, "b": -1.5}}]}}}}]}}'
    )
    record = told(f"data: {text}\n\n", chunk("b", "length"), USAGE, DONE)
    assert (record["status"], record["first_logprobs"]) == ("ok", {"b": -1.5})
    json.dumps(record, allow_nan=False)


def test_ids_that_no_record_can_hold_are_left_out() -> None:
    named = chunk("a", logprobs={"tokens": ["token_id:" + "9" * 5000, "token_id:7"]})
    assert told(named, chunk("b", "length"), USAGE, DONE)["output_token_ids"] == [7]


def test_a_long_line_in_many_reads_is_put_together_once() -> None:
    whole = line(chunk("x" * 4_000_000)).encode()
    reads = [Read(i, whole[i : i + 16384]) for i in range(0, len(whole), 16384)]
    (event,) = events(reads)
    assert len(event.data) > 4_000_000
    assert event.t_ns == reads[-1].t_ns
