"""Scrapes: what they say, that nothing else is raised, and that reading on from an earlier one changes nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gates.nodata import NoData
from gates.readers import prometheus
from gates.readers.prometheus import Exposition, ReadError, delta

TEXT = '# TYPE a counter\na_total{x="1"} 2.0\na_total{x="2"} 3.0\n'


def test_counters_are_sums_and_deltas() -> None:
    scrape = Exposition(TEXT)
    assert scrape.total("a_total") == 5.0
    assert scrape.total("a_total", {"x": "2"}) == 3.0
    assert delta(Exposition(""), scrape, "a_total") == 5.0


def test_what_is_absent_nan_or_reset_is_no_data() -> None:
    assert isinstance(Exposition("").total("a_total"), NoData)
    assert isinstance(Exposition("a_total NaN\n").total("a_total"), NoData)
    assert isinstance(Exposition("a_total +Inf\n").total("a_total"), NoData)
    assert isinstance(delta(Exposition(TEXT), Exposition(""), "a_total"), NoData)
    reset = delta(Exposition(TEXT), Exposition("a_total 1\n"), "a_total")
    assert isinstance(reset, NoData)
    assert "it was reset" in reset.reason


@given(st.text(max_size=200))
def test_arbitrary_text_raises_nothing_but_read_errors(text: str) -> None:
    try:
        Exposition(text).total("a")
    except ReadError as error:
        assert "\n" not in str(error)


# Lines that a scrape may hold, "%" for the value, and others that look like them.
LINES = [
    "# TYPE a counter", "# TYPE h histogram", "# HELP a some words 5", "#", "", "# EOF", "# TYPE", " # TYPE a gauge",
    "a_total %", 'a_total{x="1"} %', 'a_total{x="1"} % 7', "a_total % 1700000000000", "a_total 0 %", "a_total 0 # %",
    'a{x="1 2"} %', 'a{x="}",y="# 3"} %', 'a{x="\\""} %', 'a{x=" %', "a\t%", "a  %", "  a %", "a %  ", "a", "%", " %",
    'h_bucket{le="0.1"} %', 'h_bucket{le="+Inf"} %', "h_sum %", "h_count %", '{__name__="a"} %', "a %\r", 'a{x="é"} %',
]  # fmt: skip
VALUES = [
    "0",
    "1",
    "2.5",
    "1e5",
    "-3",
    "NaN",
    "+Inf",
    "1_0",
    "0x1",
    "",
    "1000000",
    "9" * 400,
    "1e999",
    ".5",
    "٣",
    "5 6",
]


def said(text: str) -> object:
    """Return all that a scrape says, or what is wrong with it."""
    try:
        found = Exposition(text)
    except ReadError as error:
        return str(error)
    return [(name, [(labels, repr(found._values[at])) for labels, at in each]) for name, each in found._series.items()]


@given(data=st.data(), lines=st.lists(st.sampled_from(LINES), max_size=6))
def test_a_later_scrape_says_what_it_says_alone(data: st.DataObject, lines: list[str]) -> None:
    texts = ["\n".join(line.replace("%", data.draw(st.sampled_from(VALUES))) for line in lines) for _ in range(3)]
    prometheus._series_of.cache_clear()
    together = [said(text) for text in texts]
    with pytest.MonkeyPatch.context() as alone:
        alone.setattr(prometheus, "_again", lambda _: None)
        assert together == [said(text) for text in texts]


def test_the_parser_is_asked_anew_only_of_other_series(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    parser = prometheus.text_string_to_metric_families
    prometheus._series_of.cache_clear()
    monkeypatch.setattr(prometheus, "text_string_to_metric_families", lambda text: asked.append(text) or parser(text))
    for value in range(5):
        assert Exposition(TEXT.replace("2.0", f"{value}.0")).total("a_total") == value + 3
    assert len(asked) == 2
    assert Exposition(TEXT + "b 1\n").total("b") == 1
    assert len(asked) > 2
