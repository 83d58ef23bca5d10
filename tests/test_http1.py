"""Requests to bytes, and answers back, however the network cuts them."""

from __future__ import annotations

import itertools
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.http1 import Body, Head, ProtocolError, Read, head, may_end, pieces, post

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n%b\r\n\r\n"
CHUNKED = HEAD % b"Transfer-Encoding: chunked"


def cut(data: bytes, places: list[int]) -> list[Read]:
    """The data as reads, cut at these places, each stamped by its number."""
    edges = [0, *sorted({p % (len(data) + 1) for p in places}), len(data)]
    parts = [data[a:b] for a, b in itertools.pairwise(edges) if a < b]
    return [Read(i, part) for i, part in enumerate(parts)]


def taken(reads: list[Read]) -> tuple[Head, bytes, bool]:
    found = head(b"".join(read.data for read in reads))
    assert found is not None
    body = Body(found)
    payload = b"".join(piece.data for piece in pieces(found, body, reads))
    return found, payload, body.complete


@given(st.lists(st.binary(min_size=1, max_size=60), max_size=8), st.lists(st.integers(0, 1000)), st.booleans())
def test_a_chunked_body_comes_back_whole_however_it_is_cut(
    parts: list[bytes], places: list[int], extended: bool
) -> None:
    extension = b";x=1" if extended else b""
    wire = b"".join(b"%x%b\r\n%b\r\n" % (len(p), extension, p) for p in parts) + b"0\r\n\r\n"
    reads = cut(CHUNKED + wire, places)
    found, payload, complete = taken(reads)
    assert (payload, complete) == (b"".join(parts), True)
    assert may_end(found, len(CHUNKED + wire), wire)


@given(st.lists(st.binary(min_size=1, max_size=60), min_size=1, max_size=8), st.data())
def test_a_chunked_body_that_breaks_off_is_not_complete(parts: list[bytes], data: st.DataObject) -> None:
    wire = b"".join(b"%x\r\n%b\r\n" % (len(p), p) for p in parts) + b"0\r\n\r\n"
    short = wire[: data.draw(st.integers(0, len(wire) - 1))]
    _, payload, complete = taken([Read(0, CHUNKED + short)])
    assert not complete
    assert b"".join(parts).startswith(payload)


@given(st.binary(max_size=200), st.lists(st.integers(0, 1000)))
def test_a_body_of_known_length(content: bytes, places: list[int]) -> None:
    reads = cut(HEAD % (b"Content-Length: %d" % len(content)) + content + b"more", places)
    assert taken(reads)[1:] == (content, True)


def test_a_body_without_framing_ends_with_the_connection() -> None:
    found = head(HEAD % b"X: y")
    assert found is not None
    body = Body(found)
    assert [p.data for p in pieces(found, body, [Read(0, HEAD % b"X: y" + b"abc")])] == [b"abc"]
    assert not body.complete
    body.close()
    assert body.complete


def test_each_piece_has_the_time_of_its_read() -> None:
    reads = [Read(1, CHUNKED), Read(2, b"3\r\nabc\r\n"), Read(3, b"2\r\nd"), Read(4, b"e\r\n0\r\n\r\n")]
    found = head(CHUNKED)
    assert found is not None
    assert list(pieces(found, Body(found), reads)) == [Read(2, b"abc"), Read(3, b"d"), Read(4, b"e")]


def test_what_comes_before_the_answer_proper_is_left_out() -> None:
    found = head(b"HTTP/1.1 100 Continue\r\n\r\n" + CHUNKED)
    assert found == Head(200, True, None, 25 + len(CHUNKED))
    assert head(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 2") is None


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", "no HTTP/1.1: b'SSH-2.0"),
        (b"HTTP/1.1 OK\r\n\r\n", "no HTTP/1.1"),
        (b"HTTP/1.1 2000 OK\r\n\r\n", "no HTTP/1.1"),
        (HEAD % b"Content-Length: -4", "Content-Length is '-4'"),
        (HEAD % b"Content-Encoding: gzip", "encoded as 'gzip'"),
        (b"HTTP/1.1 200 OK\r\n" + b"x" * 70_000, "longer than"),
    ],
)
def test_an_answer_that_is_none(answer: bytes, told: str) -> None:
    with pytest.raises(ProtocolError, match=told):
        head(answer)


@pytest.mark.parametrize("wire", [b"zz\r\nabc\r\n", b"-1\r\nabc", b"x" * 2000, b" \x00\r\n"])
def test_a_broken_framing_is_told(wire: bytes) -> None:
    with pytest.raises(ProtocolError):
        taken([Read(0, CHUNKED + wire)])


@given(st.binary(max_size=300), st.lists(st.integers(0, 1000)))
def test_anything_at_all_is_an_answer_or_told(data: bytes, places: list[int]) -> None:
    for wire in (data, CHUNKED + data, HEAD % b"Content-Length: 7" + data):
        try:
            found = head(wire)
            if found is not None:
                list(pieces(found, Body(found), cut(wire, places)))
        except ProtocolError as error:
            assert "\n" not in str(error)


def test_a_request_names_host_path_and_length() -> None:
    lines = post(urlsplit("http://user@h:80/base/"), "/v1/completions", b"{}", {"X-Request-Id": "r"}).split(b"\r\n")
    assert lines[0] == b"POST /base/v1/completions HTTP/1.1"
    assert {b"Host: h:80", b"Content-Length: 2", b"Connection: close", b"X-Request-Id: r"} <= set(lines)
    assert lines[-2:] == [b"", b"{}"]


def test_a_header_cannot_break_the_request_apart() -> None:
    with pytest.raises(ProtocolError):
        post(urlsplit("http://h"), "/", b"", {"X-Request-Id": "a\r\nHost: evil"})
