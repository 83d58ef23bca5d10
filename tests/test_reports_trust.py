"""A report shows no verdict as more than the evidence, the judge and the suite make of it."""

from __future__ import annotations

import copy
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from markupsafe import escape

from gates.verdict import judge, to_bytes
from reports.view import load_view
from reports.words import Words, languages
from tests.reporting import (  # noqa: F401  fixtures are found by their names
    ESTIMATE,
    MARK,
    ROW,
    Page,
    _pictures_on_request,
    change_the_verdict,
    judged,
    page,
    pages,
    pictures,
    recorded,
)
from workloads.evidence import MANIFEST, Run, write_whole

# ruff: noqa: F811  a fixture's name is an argument's, too
Json = dict[str, Any]


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


def _change_a_file(run: Path) -> None:
    with (run / "criteria.toml").open("ab") as f:
        f.write(b"#\n")


def _change_a_request(run: Path) -> None:
    file = next(run.glob("raw/candidate/c*/b*/requests.jsonl"))
    file.write_bytes(file.read_bytes().replace(b'"ok"', b'"ok" ', 1))


@pytest.mark.parametrize(
    ("tamper", "named"),
    [
        (_change_a_file, "criteria.toml: changed since it was sealed"),
        (_change_a_request, "requests.jsonl: changed since it was sealed"),
        (lambda run: (run / "raw" / "more.txt").write_text("x"), "raw/more.txt: added since the run was sealed"),
        (lambda run: next(run.glob("blocks/b01.json")).unlink(), "blocks/b01.json: missing"),
        (lambda run: (run / MANIFEST).unlink(), "nothing seals this run"),
        (change_the_verdict("manifest_sha256", "0" * 64), "another manifest"),
        (change_the_verdict("criteria_sha256", None), "the same criteria"),
        (change_the_verdict("gate", "g4"), "the same gate"),
        (change_the_verdict("rehearsal", False), "disagree on whether this was a rehearsal"),
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
