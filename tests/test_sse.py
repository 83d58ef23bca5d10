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
