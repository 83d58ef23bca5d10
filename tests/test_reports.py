"""The report page: says what verdict.json says, of the evidence beside it, to a reader who has nothing but the file."""

from __future__ import annotations

import itertools
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reports.__main__ import main
from reports.text import clean, decimals, number
from reports.view import VERDICTS, load_view
from reports.words import Words, languages
from tests.reporting import (  # noqa: F401  fixtures are found by their names
    BIDI,
    BIDI_SHOWN,
    ESTIMATE,
    MARK,
    ROW,
    SCRIPT,
    Page,
    _pictures_on_request,
    change_the_verdict,
    judged,
    page,
    page_of,
    pictures,
    recorded,
)

# ruff: noqa: F811  a fixture's name is an argument's, too
Json = dict[str, Any]


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("verdict", VERDICTS)
def test_each_verdict_is_said_in_words_and_shape(judged: Callable[..., Path], verdict: str, language: str) -> None:
    html = page(judged(verdict), language)
    words = Words(language)
    heading = re.search(r"<h1>(.*?)<small>", html)
    assert heading is not None and heading[1] == words(f"verdict.{verdict}.word")
    assert words(f"verdict.{verdict}.says") in html
    assert f'lang="{words("lang")}"' in html
    assert f'class="state v-{verdict}"' in html


def test_the_four_verdicts_have_four_shapes(judged: Callable[..., Path]) -> None:
    shapes = set()
    for verdict in VERDICTS:
        found = re.search(r'<div class="verdict [^>]*>\s*<svg[^>]*>(.*?)</svg>', page(judged(verdict)), re.S)
        assert found is not None
        shapes.add(found[1])
    assert len(shapes) == len(VERDICTS)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_rehearsal_is_marked_and_nothing_else_is(judged: Callable[..., Path], language: str) -> None:
    mark, says = 'class="watermark"', Words(language)("rehearsal.says")
    html = page(judged(rehearsal=True), language)
    assert mark in html and MARK in html and says in html and "acceptance: false" in html
    html = page(judged(rehearsal=False), language)
    assert mark not in html and MARK not in html and says not in html and "acceptance: true" in html


def test_what_was_thrown_out_is_said(judged: Callable[..., Path]) -> None:
    breach = {"trial": "baseline/c2/b01", "check": "books", "whose": "host", "reason": "19 % apart"}
    changes = {
        "blocks": {"valid": [2], "invalid": [{"block": 1, "reasons": ["books do not close"]}]},
        "breaches": [breach] * 101,
        "reasons": [f"reason {n}" for n in range(7)],
    }
    text = Page(page(judged("INVALID", judgement_changes=changes))).text
    assert "1 count, 1 were found invalid" in text and "books do not close" in text
    assert text.count("19 % apart") == 100 and "and 1 more in verdict.json" in text
    assert "reason 4" in text and "reason 5" not in text and "and 2 more in verdict.json" in text


@pytest.mark.usefixtures("pictures")
def test_hostile_text_stays_text(judged: Callable[..., Path]) -> None:
    script, bidi, long = SCRIPT, BIDI, "x" * 10_000
    row = {**ROW, "id": script, "reason": bidi + long, "flags": [script]}
    run = judged("FAIL", [{**row, "verdict": "FAIL"}], model={"name": script + bidi + long, "files": {script: bidi}},
                 host={"hostname": script}, overrides={script: bidi}, seed=script)  # fmt: skip
    for language in languages():
        seen = Page(page(run, language))
        assert "script" not in seen.tags
        assert not [a for a in seen.attributes if a[1].startswith("on")]
        assert script in seen.text and long in seen.text and "{{ 7*7 }}" in seen.text
        assert BIDI_SHOWN in seen.text
        assert not set("\u202e\u2066\x00") & set(seen.text)


@pytest.mark.usefixtures("pictures")
def test_the_page_needs_nothing_but_itself(judged: Callable[..., Path]) -> None:
    for language in languages():
        html = page(judged(), language)
        seen = Page(html)
        links = [a for a in seen.attributes if a[1] in {"src", "href", "xlink:href", "srcset", "action", "data"}]
        assert all(value.startswith("#") for _, _, value in links)
        assert not re.search(r"https?://", html), "no address at all, and so none that is followed"
        assert "@import" not in html and not re.search(r"url\((?!#)", html)
        assert not {"script", "iframe", "link", "object", "embed", "img", "form"} & set(seen.tags)


@pytest.mark.usefixtures("pictures")
def test_ids_are_unique_and_every_reference_has_its_target(judged: Callable[..., Path]) -> None:
    html = page(judged())
    ids = [value for _, name, value in Page(html).attributes if name == "id"]
    assert len(ids) == len(set(ids))
    labels = [v for _, name, value in Page(html).attributes if name == "aria-labelledby" for v in value.split()]
    used = set(re.findall(r'(?:href="#|url\(#)([^")]+)', html)) | set(labels)
    assert used <= set(ids)


def test_headings_do_not_skip_and_columns_have_scopes(judged: Callable[..., Path]) -> None:
    seen = Page(page(judged()))
    levels = [int(tag[1]) for tag in seen.tags if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
    assert seen.tags.count("th") == sum(1 for tag, name, _ in seen.attributes if (tag, name) == ("th", "scope"))


@pytest.mark.parametrize("language", ["en", "zh"])
def test_no_data_is_said_and_is_no_zero(judged: Callable[..., Path], language: str) -> None:
    row = {
        **ROW,
        "estimate": None,
        "verdict": "INVALID",
        "reason": "no requests",
        "limit": None,
        "step": None,
        "tolerance": 0,
    }
    html = page(judged("INVALID", [row]), language)
    rows = html.split('<h2 id="requirements">')[1].split("<tbody>")[1].split("</tbody>")[0]
    cells = re.findall(r'<td class="num"><bdi>(.*?)</bdi></td>', rows)
    words = Words(language)
    assert cells == [words("all.steps"), words("all.none"), words("all.no_data"), words("all.none")]


def test_values_that_are_no_numbers_are_no_data(judged: Callable[..., Path]) -> None:
    for point in (None, "0.3", True):
        html = page(judged("INVALID", [{**ROW, "verdict": "INVALID", "estimate": {**ESTIMATE, "point": point}}]))
        assert Words("en")("all.no_data") in html


def test_an_empty_verdict_is_rendered(judged: Callable[..., Path]) -> None:
    assert Words("en")("requirements.none") in page(judged("INVALID", []))


def test_no_digits_beyond_the_interval(judged: Callable[..., Path]) -> None:
    wide = {**ESTIMATE, "point": 0.331234, "low": 0.21, "high": 0.45}
    html = page(judged("PASS", [ROW, {**ROW, "id": "wide", "estimate": wide}]))
    assert "33.1\u00a0%" in html and "[31.0, 35.2]" in html
    assert "≥\u00a025\u00a0%" in html and "23\u00a0% with tolerance" in html
    assert "33\u00a0%" in html and "[21, 45]" in html


@pytest.mark.parametrize(
    ("value", "half", "expected"),
    [(1.23456, 0.0123, 3), (149.5, 12.0, 0), (0.5, 0.0, 3), (12.0, None, 1), (0.0, None, 0), (1e9, None, 0)],
)
def test_decimals(value: float, half: float | None, expected: int) -> None:
    assert decimals(value, half) == expected


def test_numbers() -> None:
    assert number(-0.0004, 2) == "0.00"
    assert number(-1.5, 1) == "\u22121.5"
    assert number(0.5, 1, signed=True) == "+0.5"
    assert number(float("inf"), 1) == "+∞"
    assert clean("排练 ok") == "排练 ok"


def test_commands_are_safe_to_paste(judged: Callable[..., Path], tmp_path: Path) -> None:
    run = judged().rename(tmp_path / "a run; rm -rf x")
    assert "make verify RUN=&#39;runs/a run; rm -rf x&#39;" in page(run)


def test_the_command_prints_paths(judged: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    run = judged()
    assert main([str(run), "--lang", "en", "--form", "html", "--zone", "Asia/Shanghai"]) == 0
    assert capsys.readouterr().out == f"{run / 'report.en.html'}\n"
    assert "2026-01-01 08:00:00 " in (run / "report.en.html").read_text() and "+08:00 (Asia/Shanghai)" in page_of(run)


def test_the_command_refuses_in_one_line(
    judged: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unjudged, damaged, newer = judged(), tmp_path / "damaged", tmp_path / "newer"
    shutil.copytree(unjudged, damaged)
    shutil.copytree(unjudged, newer)
    (unjudged / "verdict.json").unlink()
    (damaged / "verdict.json").write_text("{")
    change_the_verdict("schema", 2)(newer)
    for arguments in (
        [str(tmp_path / "nowhere")], [str(tmp_path)], [str(unjudged)], [str(damaged)], [str(newer)],
        [str(newer), "--lang", "xx"], [str(newer), "--lang", ","], [str(newer), "--form", "doc"],
        [str(newer), "--zone", "Mars/Base"], [str(newer), str(newer)], ["--history", str(tmp_path / "nowhere")],
        ["--programme", str(tmp_path / "nowhere")], [str(unjudged), "--waivers", str(tmp_path / "none.toml")],
    ):  # fmt: skip
        assert main(arguments) == 4
        seen = capsys.readouterr()
        assert seen.out == "" and seen.err.count("\n") == 1 and "Traceback" not in seen.err
    assert main([]) == 4


def test_files_are_listed_with_their_hashes(judged: Callable[..., Path]) -> None:
    run = judged()
    html = page(run)
    assert load_view(run).files and all(digest in html for _, digest in load_view(run).files[:400])


def test_published_figures_stand_beside_what_fits_alone(judged: Callable[..., Path]) -> None:
    model = {"name": "Qwen3-Coder-480B-FP8", "files": {}}
    rows = [{**ROW, "id": "throughput-gain", "step": step} for step in (8, 4)]
    fits = (
        page(judged("PASS", rows, rehearsal=False, model=model)).split('<h2 id="published">')[1].split("</section>")[0]
    )
    assert fits.count("c = 8: +33.1\u00a0%") == 1 and "c = 4:" not in fits and "c = 16:" not in fits
    for facts in ({"rehearsal": True, "model": model}, {"rehearsal": False}):
        other = page(judged("PASS", rows, **facts)).split('<h2 id="published">')[1].split("</section>")[0]
        assert "33.1" not in other and "not comparable" in other


def test_what_the_run_could_decide_is_told_where_it_was_recorded(judged: Callable[..., Path]) -> None:
    outcomes = [{"effect": "aa", "pass": 0.0, "fail": 0.9985, "inconclusive": 0.0015, "blocks": 5.04}]
    power = {"noise": "sd 0.03, stated by the site", "repetitions": 2000, "outcomes": outcomes}
    for language in languages():
        words = Words(language)
        text = Page(page(judged(power=power), language)).text
        assert words("power.title") in text and words("power.aa") in text
        assert "0.0\u00a0%" in text and "99.9\u00a0%" in text and "5.0" in text
        assert words("power.title") not in Page(page(judged(), language)).text


def test_json_of_any_kind_is_no_crash(judged: Callable[..., Path]) -> None:
    huge = 10**400
    rows = [{**ROW, "tolerance": huge, "step": huge, "estimate": {**ESTIMATE, "n": huge}}]
    changes = {"calibration": [{"step": 1, "p50_s": huge}], "attempt": huge}
    facts: Json = {"power": {"outcomes": ["x", {"effect": [1]}, {"effect": "aa", "pass": huge}]}, "model": "m"}
    assert "UNVERIFIED" not in page(judged("PASS", rows, changes, **facts))
