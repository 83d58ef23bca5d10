"""The report page: says what verdict.json says, of the evidence beside it, to a reader who has nothing but the file."""

from __future__ import annotations

import copy
import itertools
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from markupsafe import escape

from gates.verdict import judge, to_bytes
from reports.__main__ import main
from reports.text import clean, decimals, number
from reports.view import VERDICTS, load_view
from reports.words import Words, languages
from tests.reporting import (  # noqa: F401  fixtures are found by their names
    BIDI,
    BIDI_SHOWN,
    DECLARED,
    ESTIMATE,
    MARK,
    ROW,
    SCRIPT,
    Page,
    _pictures_on_request,
    judged,
    page,
    pages,
    pictures,
    recorded,
)
from workloads.evidence import MANIFEST, Run, write_whole

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


@pytest.mark.parametrize("said", [None, "no", 0])
def test_what_does_not_say_that_it_is_no_rehearsal_is_one(judged: Callable[..., Path], said: object) -> None:
    assert MARK in page(judged(rehearsal=said))


def test_a_part_of_a_gate_is_no_acceptance(judged: Callable[..., Path]) -> None:
    for facts in ({"kind": "smoke"}, {"selection": {"collected": 9, "selected": 8}}, {"selection": None}):
        html = page(judged(rehearsal=False, **facts))
        assert "acceptance: false" in html and Words("en")("partial.says") in html
    assert "acceptance: true" in page(judged(rehearsal=False, selection={"collected": 9, "selected": 11}))


def test_only_the_judge_grants_an_acceptance(judged: Callable[..., Path]) -> None:
    for verdict, said in (("PASS", False), ("PASS", None), ("PASS", 1), ("FAIL", True)):
        html = page(judged(verdict, judgement_changes={"acceptance": said}, rehearsal=False))
        assert "acceptance: false" in html and "acceptance: true" not in html


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


def _change_a_file(run: Path) -> None:
    with (run / "criteria.toml").open("ab") as f:
        f.write(b"#\n")


def _change_a_request(run: Path) -> None:
    file = next(run.glob("raw/candidate/c*/b*/requests.jsonl"))
    file.write_bytes(file.read_bytes().replace(b'"ok"', b'"ok" ', 1))


def _change_the_verdict(key: str, value: object) -> Callable[[Path], None]:
    def change(run: Path) -> None:
        said = json.loads((run / "verdict.json").read_text())
        (run / "verdict.json").write_text(json.dumps({**said, key: value}))

    return change


@pytest.mark.parametrize(
    ("tamper", "named"),
    [
        (_change_a_file, "criteria.toml: changed since it was sealed"),
        (_change_a_request, "requests.jsonl: changed since it was sealed"),
        (lambda run: (run / "raw" / "more.txt").write_text("x"), "raw/more.txt: added since the run was sealed"),
        (lambda run: next(run.glob("blocks/b01.json")).unlink(), "blocks/b01.json: missing"),
        (lambda run: (run / MANIFEST).unlink(), "nothing seals this run"),
        (_change_the_verdict("manifest_sha256", "0" * 64), "another manifest"),
        (_change_the_verdict("criteria_sha256", None), "the same criteria"),
        (_change_the_verdict("gate", "g4"), "the same gate"),
        (_change_the_verdict("rehearsal", False), "disagree on whether this was a rehearsal"),
    ],
)
def test_a_verdict_that_does_not_fit_the_evidence_is_announced(
    judged: Callable[..., Path], tamper: Callable[[Path], object], named: str
) -> None:
    run = judged("PASS", rehearsal=True)
    tamper(run)
    html = page(run)
    heading = re.search(r"<h1>(.*?)<small>", html)
    assert heading is not None and heading[1] == "UNVERIFIED"
    assert named in html and "acceptance: false" in html and MARK in html
    assert Words("en")("stop_loss.PASS") not in html and 'class="state v-PASS"' not in html


def test_reports_are_not_part_of_the_evidence(judged: Callable[..., Path]) -> None:
    run = judged()
    pages(run, languages())
    assert load_view(run).trusted


@pytest.mark.usefixtures("pictures")
def test_a_killed_run_is_reported_all_the_same(judged: Callable[..., Path]) -> None:
    run = judged("INVALID", [], {"blocks": {"valid": [], "invalid": []}})
    for part in ("raw", "blocks"):
        shutil.rmtree(run / part)
    (run / "incidents.jsonl").write_text('{"kind": "interrup')
    html = page(run)
    assert "UNVERIFIED" in html and "incidents.jsonl:1: cut off in the middle of a line" in html
    assert Words("en")("pictures.none") in html


def test_a_trial_that_is_not_as_the_format_says_is_named(judged: Callable[..., Path]) -> None:
    run = judged()
    trial = next(run.glob("raw/candidate/c*/b*"))
    (trial / "requests.jsonl").write_text('{"id": 1}\n')
    assert "/".join(trial.parts[-3:]) in page(run).split('id="pictures"')[1].split("</section>")[0]


def test_commands_are_safe_to_paste(judged: Callable[..., Path], tmp_path: Path) -> None:
    run = judged().rename(tmp_path / "a run; rm -rf x")
    assert "make verify RUN=&#39;runs/a run; rm -rf x&#39;" in page(run)


def test_the_command_prints_paths(judged: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    run = judged()
    assert main([str(run), "--lang", "en", "--form", "html", "--zone", "Asia/Shanghai"]) == 0
    assert capsys.readouterr().out == f"{run / 'report.en.html'}\n"
    assert "2026-01-01 08:00:00 " in (run / "report.en.html").read_text() and "+08:00 (Asia/Shanghai)" in page_of(run)


def page_of(run: Path) -> str:
    """Return the English page as it lies there."""
    return (run / "report.en.html").read_text(encoding="utf-8")


def test_the_command_refuses_in_one_line(
    judged: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unjudged, damaged, newer = judged(), tmp_path / "damaged", tmp_path / "newer"
    shutil.copytree(unjudged, damaged)
    shutil.copytree(unjudged, newer)
    (unjudged / "verdict.json").unlink()
    (damaged / "verdict.json").write_text("{")
    _change_the_verdict("schema", 2)(newer)
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


@pytest.mark.usefixtures("pictures")
def test_a_run_that_the_judge_has_judged(recorded: Path, tmp_path: Path) -> None:
    """Not a verdict of our own, but gates' on the synthetic run: it fits, and every row has its words."""
    run = tmp_path / recorded.name
    shutil.copytree(recorded, run)
    said = judge(Run(run))
    write_whole(run / "verdict.json", to_bytes(said))
    view = load_view(run)
    assert view.trusted and view.verdict == said["verdict"] and not view.unreadable
    for language in languages():
        html, words = page(run, language), Words(language)
        assert all(str(escape(words(f"criterion.{row['id']}"))) in html for row in said["criteria"])
        assert html.count('role="img"') == 6


def test_the_view_does_not_change_the_verdict(judged: Callable[..., Path]) -> None:
    run = judged("FAIL", [{**ROW, "verdict": "FAIL"}])
    before = copy.deepcopy(json.loads((run / "verdict.json").read_text()))
    view = load_view(run)
    pages(run, ["en"])
    assert json.loads((run / "verdict.json").read_text()) == before == view.judged


def test_the_first_page_has_a_row_per_criterion_and_a_column_per_step(judged: Callable[..., Path]) -> None:
    rows = [{**ROW, "step": step} for step in (2, 4)] + [{**ROW, "id": "throughput-gain", "step": 4, "verdict": "FAIL"}]
    front = page(judged("FAIL", rows)).split('<h2 id="judged">')[1].split("</table>")[0]
    assert front.count("<tr>") == 3 and "c = 2" in front and "c = 4" in front
    assert front.count('class="state v-PASS"') == front.count('class="state v-FAIL"') == 1
    assert "n\u00a0=\u00a05" in front


def test_many_steps_show_the_least_favourable_one_alone(judged: Callable[..., Path]) -> None:
    front = page(judged("PASS", [{**ROW, "step": step} for step in (1, 2, 4, 8, 16)]))
    assert "c = 16" not in front.split('<h2 id="judged">')[1].split("</table>")[0]


def test_the_key_figure_is_the_step_with_the_least_margin(judged: Callable[..., Path]) -> None:
    better = {**ROW, "step": 4, "estimate": {**ESTIMATE, "point": 0.41, "low": 0.39, "high": 0.43}}
    found = re.search(r'<p class="key">(.*?)</p>', page(judged("PASS", [better, ROW])), re.S)
    assert found is not None and "33.1\u00a0%" in found[1] and "c = 2" in found[1] and "limit ≥\u00a025" in found[1]


def test_the_stop_loss_is_stated(judged: Callable[..., Path]) -> None:
    words = Words("en")
    lab: Json = {"rehearsal": False}
    assert words("stop_loss.PASS") in page(judged("PASS", **lab))
    assert words("stop_loss.PASS") not in page(judged("PASS", rehearsal=True)), "a rehearsal leads nowhere"
    rows = [{**ROW, "verdict": "FAIL", "step": step} for step in (2, 4)]
    html = page(judged("FAIL", [*rows, {**ROW, "id": "throughput-gain"}], **lab))
    assert "ends here. Not met: TTFT p50 reduced against the baseline (c = 2, 4)." in html
    assert "Not trusted: the run as a whole." in page(judged("INVALID", [{**ROW, "verdict": "INVALID"}], **lab))


@pytest.mark.parametrize(
    ("facts", "mark"),
    [
        ({"kind": "smoke"}, "partial.mark"),
        ({"suite": {"version": "0.1.0", "commit": "0" * 40, "dirty": True}}, "dirty.mark"),
        ({"overrides": {"engine.args": "x"}}, "overrides.mark"),
    ],
)
def test_what_limits_the_scope_is_written_across_the_page(judged: Callable[..., Path], facts: Json, mark: str) -> None:
    html = page(judged(rehearsal=False, **facts))
    assert 'class="watermark"' in html and Words("en")(mark) in html


def test_attempts_are_on_the_first_page(judged: Callable[..., Path]) -> None:
    run = judged("PASS", rehearsal=False)
    ledger = {
        "attempts": [
            {"attempt": 1, "utc": "2026-01-01T00:00:00+00:00", "run": "before", "verdict": "FAIL"},
            {"attempt": 2, "utc": "2026-01-02T00:00:00+00:00", "run": "killed", "verdict": None},
            {"attempt": 3, "utc": "2026-01-03T00:00:00+00:00", "run": load_view(run).run_id, "verdict": None},
        ]
    }
    (run / "LEDGER.extract.json").write_text(json.dumps(ledger))
    text = Page(page(run)).text
    assert "1 (2026-01-01): FAIL; 2 (2026-01-02): no end entered; 3 (2026-01-03): this run" in text
    assert "3 attempts in the ledger" in text


@pytest.mark.parametrize("language", ["en", "zh"])
def test_an_arrival_check_shows_what_was_declared_and_found(judged: Callable[..., Path], language: str) -> None:
    missing = {**DECLARED, "id": "array.paths", "verdict": "INVALID", "declared": 4, "found": None, "raw": []}
    other = {**DECLARED, "id": "array.firmware", "verdict": "FAIL", "declared": "3.1", "found": {"version": "3.0"}}
    apart = {**DECLARED, "id": "pfc.priority", "flags": ["not-declared"], "declared": None, "found": 3}
    run = judged("FAIL", [DECLARED, missing, other, apart], gate="g1", scenario={}, model={})
    html, words = page(run, language), Words(language)
    front = html.split('<h2 id="judged">')[1].split("</table>")[0]
    assert front.index("array.firmware") < front.index("array.paths") < front.index("array.product")
    assert "version: 3.0" in front and words("all.no_data") in front and "pfc.priority" not in front
    rest = html.split('<h2 id="requirements">')[1].split("</section>")[0]
    assert "nvme-list-subsys.stdout" in rest
    assert "pfc.priority" in rest.split('id="undeclared"')[1] and words("key.declared_value", passed=1, all=3) in html


def test_a_long_bill_of_materials_leaves_room_for_the_signatures(judged: Callable[..., Path]) -> None:
    rows = [{**DECLARED, "id": f"drive.{n}"} for n in range(60)]
    html = page(judged("PASS", rows, gate="g1"))
    assert "46 more requirements" in html.split('<h2 id="judged">')[1].split("</table>")[0]
    assert "drive.59" in html and html.count("name, signature, date") >= 3


def test_deviations_are_signed_by_name(judged: Callable[..., Path], tmp_path: Path) -> None:
    run, file = judged("PASS", rehearsal=False), tmp_path / "waivers.toml"
    entry = 'kind = "waiver"\nwhat = "one port at 50 Gbit/s"\nwhy = "<b>spare</b>"\ncriterion = "ttft-p50-reduction"\n'
    file.write_text(f'schema = 1\n[[deviation]]\n{entry}signed_by = ["A. Tester, customer"]\ndate = 2026-11-30\n')
    assert main([str(run), "--lang", "en", "--form", "html", "--waivers", str(file)]) == 0
    html = page_of(run)
    assert "A. Tester, customer" in html and "&lt;b&gt;spare" in html and "not sealed with the run" in html
    assert load_view(run, file).verdict == "PASS" and load_view(run, file).trusted
    shutil.copy(file, run / "waivers.toml")
    assert not load_view(run).trusted, "a file that was laid into a sealed run is no evidence"


@pytest.mark.parametrize(
    "entry",
    [
        'what = "x"\nwhy = "y"\nsigned_by = []\ndate = 2026-11-30\n',
        'what = "x"\nwhy = "y"\nsigned_by = ["A"]\n',
        'kind = "waiver"\nwhat = "x"\nwhy = "y"\nsigned_by = ["A"]\ndate = 2026-11-30\n',
        'what = "x"\nwhy = "y"\nsigned_by = [" "]\ndate = 2026-11-30\n',
        "= 1\n",
    ],
)
def test_a_waiver_that_nobody_signed_is_refused(
    judged: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], entry: str
) -> None:
    file = tmp_path / "waivers.toml"
    file.write_text(f"schema = 1\n[[deviation]]\n{entry}")
    assert main([str(judged()), "--waivers", str(file)]) == 4
    assert "waivers.toml" in capsys.readouterr().err


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


def test_local_times_are_those_of_the_host_that_measured(judged: Callable[..., Path]) -> None:
    host = {"hostname": "lab", "zone": "Asia/Shanghai"}
    assert "+08:00 (Asia/Shanghai)" in page(judged(host=host))
    assert "(Nowhere" not in page(judged(host={**host, "zone": "Nowhere/../Asia"}))


def _really_judged(recorded: Path, tmp_path: Path) -> Path:
    run = tmp_path / "judged"
    shutil.copytree(recorded, run)
    write_whole(run / "verdict.json", to_bytes(judge(Run(run))))
    return run


def _row(**changes: object) -> Callable[[Json], None]:
    return lambda said: said["criteria"][0].update(changes)


@pytest.mark.parametrize(
    ("edit", "named"),
    [
        (lambda said: said.update(verdict="FAIL"), "PASS ≠ FAIL"),
        (lambda said: said.update(acceptance=True), "acceptance: true on file, false when judged again"),
        (_row(limit=0.1), "limit: 0.1 on file, 0.25 when judged again"),
        (_row(flags=["explain"]), "flags"),
        (lambda said: said["criteria"][0]["estimate"].update(point=0.6), "estimate.point: 0.6 on file"),
        (lambda said: said["criteria"].pop(), "criteria: "),
        (lambda said: said.update(more=1), "more: 1 on file, nothing when judged again"),
        (lambda said: said.pop("breaches"), "breaches: nothing on file"),
        (lambda said: said.update(reasons=["x" * 9000]), "reasons: "),
    ],
)
def test_a_verdict_that_was_edited_by_hand_is_not_shown_as_one(
    recorded: Path, tmp_path: Path, edit: Callable[[Json], object], named: str
) -> None:
    """It cites the right hashes; but the judge does not say it of this evidence."""
    run = _really_judged(recorded, tmp_path)
    assert load_view(run).trusted and Words("en")("sign.customer") in Page(page(run)).text
    said = json.loads((run / "verdict.json").read_text())
    edit(said)
    (run / "verdict.json").write_text(json.dumps(said))
    text = Page(page(run)).text
    assert load_view(run).shown == "UNTRUSTED" and "UNVERIFIED" in text and named in text
    front = page(run).split('<h2 id="judged">')[1].split("</table>")[0]
    assert "[" not in front, "no number of it on the first page"
    assert Words("en")("sign.customer") not in text, "and nothing to sign"


def test_a_verdict_of_another_version_of_the_suite_is_no_acceptance(recorded: Path, tmp_path: Path) -> None:
    """It cannot be judged again here, so that nobody may forge one by naming another version."""
    run = _really_judged(recorded, tmp_path)
    said = json.loads((run / "verdict.json").read_text())
    (run / "verdict.json").write_text(json.dumps({**said, "suite": "0.0.9", "acceptance": True}))
    for language in languages():
        html, words = page(run, language), Words(language)
        assert words("again.suite") in html and "acceptance: false" in html and "acceptance: true" not in html


def test_much_evidence_is_judged_again_for_an_acceptance_alone(
    recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = _really_judged(recorded, tmp_path)
    monkeypatch.setattr("reports.again.SIZE_MAX_BYTES", 1)
    assert load_view(run).not_judged_again == "again.size"
    said = json.loads((run / "verdict.json").read_text())
    (run / "verdict.json").write_text(json.dumps({**said, "acceptance": True}))
    assert load_view(run).misfits and not load_view(run).not_judged_again


def test_a_suite_of_no_known_commit_is_no_acceptance(judged: Callable[..., Path]) -> None:
    for suite in ({}, {"dirty": False, "commit": ""}, {"dirty": "no", "commit": "0" * 40}, None):
        html = page(judged(rehearsal=False, suite=suite))
        assert "acceptance: false" in html and Words("en")("dirty.mark") in html


@pytest.mark.parametrize("language", ["en", "zh"])
def test_what_is_invalid_shows_no_number(judged: Callable[..., Path], language: str) -> None:
    text = Page(page(judged("INVALID", [{**ROW, "verdict": "INVALID"}]), language)).text
    assert "33.1" not in text and "31.0" not in text and Words(language)("all.no_data") in text
    assert 'class="key"' not in page(judged("INVALID", [ROW, {**ROW, "step": 4, "verdict": "INVALID"}]), language)


def test_the_key_figure_looks_no_better_than_the_verdict(judged: Callable[..., Path]) -> None:
    missed = {**ROW, "id": "guard-itl-p99", "operator": "<=", "verdict": "FAIL", "estimate": {**ESTIMATE, "point": 0.9}}
    found = re.search(r'<p class="key">(.*?)</p>', page(judged("FAIL", [ROW, missed])), re.S)
    assert found is not None and "90.0" in found[1] and "33.1" not in found[1]
    unknown = {**ROW, "step": 8, "verdict": "FAIL", "estimate": None}
    found = re.search(r'<p class="key">(.*?)</p>', page(judged("FAIL", [{**ROW, "verdict": "FAIL"}, unknown])), re.S)
    assert found is not None and Words("en")("all.no_data") in found[1], "no number is less than any margin"


def test_attempts_that_are_not_listed_are_counted_by_their_ends(judged: Callable[..., Path]) -> None:
    run = judged("PASS", judgement_changes={"attempt": 30}, rehearsal=False)
    ends = ["FAIL"] * 20 + [None] * 3 + ["<b>"] + ["INVALID"] * 5 + [None]
    attempts = [{"attempt": n, "utc": "2026-01-01T00:00:00+00:00", "run": f"r{n}", "verdict": end}
                for n, end in enumerate(ends, start=1)]  # fmt: skip
    attempts[-1]["run"] = load_view(run).run_id
    (run / "LEDGER.extract.json").write_text(json.dumps({"attempts": attempts}))
    text = Page(page(run)).text
    assert "24 earlier ones (20 × FAIL; 4 × no end entered)" in text and "error divided by 30" in text


@pytest.mark.parametrize("language", ["en", "zh"])
def test_an_arrival_check_tells_which_host_was_looked_at(judged: Callable[..., Path], language: str) -> None:
    said = {"collected": {"host": SCRIPT, "boot_id": None, "utc": "2026-01-01T00:00:00Z"}}
    text = Page(page(judged("PASS", [DECLARED], said, gate="g1"), language)).text
    assert f"{SCRIPT} · {Words(language)('all.unknown')} · 2026-01-01 00:00:00 UTC" in text


def test_json_of_any_kind_is_no_crash(judged: Callable[..., Path]) -> None:
    huge = 10**400
    rows = [{**ROW, "tolerance": huge, "step": huge, "estimate": {**ESTIMATE, "n": huge}}]
    changes = {"calibration": [{"step": 1, "p50_s": huge}], "attempt": huge}
    facts: Json = {"power": {"outcomes": ["x", {"effect": [1]}, {"effect": "aa", "pass": huge}]}, "model": "m"}
    assert "UNVERIFIED" not in page(judged("PASS", rows, changes, **facts))


def test_an_engine_whose_version_nobody_knows_is_not_told_as_another(judged: Callable[..., Path]) -> None:
    told = Page(page(judged(software={"python": "3.11.2", "vllm": None, "lmcache": "0.5.2"}))).text
    assert f"vllm {Words('en')('all.unknown')}, lmcache 0.5.2" in told
