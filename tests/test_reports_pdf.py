"""The PDF: the same facts as the page, tagged, with the verdict in it, and the same bytes every time."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pypdf
import pytest

from gates.verdict import judge, to_bytes
from reports import fonts
from reports.__main__ import main
from reports.pages import document
from reports.pdf import to_pdf, to_png
from reports.view import VERDICTS, load_view
from reports.words import ReportError, Words, languages
from reports.write import write_reports
from tests.reporting import (  # noqa: F401  fixtures are found by their names
    BIDI,
    BIDI_SHOWN,
    DECLARED,
    MARK,
    ROOT,
    ROW,
    SCRIPT,
    TYPST,
    _pictures_on_request,
    judged,
    pictures,
    recorded,
)
from workloads.evidence import Run, write_whole

# ruff: noqa: F811  a fixture's name is an argument's, too
Json = dict[str, Any]
POPPLER = shutil.which("pdftotext") is not None


def pdf(run: Path, language: str = "en") -> bytes:
    """Return the run's PDF."""
    t = Words(language)
    view = load_view(run)
    return to_pdf(document(view, t), view.judged_bytes, t("attached"))


def short(run: Path, language: str = "en") -> bytes:
    """Return a PDF of the first page and two sections: enough for what is on every page."""
    found = document(load_view(run), Words(language))
    return to_pdf(replace(found, sections=found.sections[:2]))


def text(made: bytes) -> str:
    """Return what a reader's search would find, without breaks of lines and without spaces."""
    if POPPLER:
        read = subprocess.run(["pdftotext", "-", "-"], input=made, capture_output=True, check=True).stdout.decode()
    else:
        read = "".join(page.extract_text() for page in pypdf.PdfReader(io.BytesIO(made)).pages)
    return squeezed(read)


def first_page(made: bytes) -> str:
    """Return the same of the first page."""
    return squeezed(pypdf.PdfReader(io.BytesIO(made)).pages[0].extract_text())


def squeezed(value: str) -> str:
    """Return the text without white space: where a line breaks is no part of what is said."""
    return "".join(value.split())


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("verdict", VERDICTS)
def test_each_verdict_is_said(judged: Callable[..., Path], verdict: str, language: str) -> None:
    run, t = judged(verdict, reason="x"), Words(language)
    seen = text(pdf(run, language))
    for key in (f"verdict.{verdict}.word", f"verdict.{verdict}.says", "sign.customer", "limits.title", "files.title"):
        assert squeezed(t(key)) in seen, key
    view = load_view(run)
    assert view.run_id in seen and (view.manifest_sha256 or "?") in seen and squeezed(t("rehearsal.says")) in seen
    assert "acceptance:false" in seen


def test_every_page_carries_the_run_and_its_number(judged: Callable[..., Path]) -> None:
    run = judged()
    pages = pypdf.PdfReader(io.BytesIO(short(run))).pages
    assert len(pages) > 1
    for number, page in enumerate(pages, start=1):
        seen = squeezed(page.extract_text())
        assert load_view(run).run_id in seen and f"page{number}of{len(pages)}" in seen


@pytest.mark.usefixtures("pictures")
@pytest.mark.parametrize("language", ["en", "zh"])
def test_it_is_tagged_archived_and_carries_the_verdict(judged: Callable[..., Path], language: str) -> None:
    run = judged("FAIL")
    made = pdf(run, language)
    reader = pypdf.PdfReader(io.BytesIO(made))
    root: Any = reader.trailer["/Root"]
    assert bool(root["/MarkInfo"]["/Marked"]) and "/StructTreeRoot" in root
    assert root["/Lang"].startswith({"en": "en", "zh": "zh"}[language])
    said = root["/Metadata"].get_object().get_data()
    assert b"pdfuaid:part" in said and b"pdfaid:part>3<" in said.replace(b" ", b"")
    assert list(reader.attachments) == ["verdict.json"]
    assert reader.attachments["verdict.json"][0] == (run / "verdict.json").read_bytes()
    for page in reader.pages:
        for font in page["/Resources"].get("/Font", {}).values():
            for inner in font.get_object()["/DescendantFonts"]:
                described = inner.get_object()["/FontDescriptor"]
                assert {"/FontFile2", "/FontFile3"} & set(described), "a font that is not embedded"


def test_hostile_text_stays_text(judged: Callable[..., Path]) -> None:
    long = "q" * 10_000
    name = SCRIPT + TYPST + BIDI
    row = {**ROW, "id": TYPST, "reason": SCRIPT + long, "flags": [TYPST], "verdict": "FAIL"}
    run = judged("FAIL", [row], model={"name": name + long, "files": {TYPST: SCRIPT}}, host={"hostname": TYPST},
                 overrides={TYPST: BIDI}, seed=SCRIPT, site={"name": TYPST, "title": name})  # fmt: skip
    for language in languages():
        seen = text(pdf(run, language))
        assert squeezed(SCRIPT) in seen and squeezed(TYPST) in seen and squeezed(BIDI_SHOWN) in seen
        assert seen.count("q") >= len(long) and "root:" not in seen and "\u202e" not in seen


def test_nothing_runs_over_the_edge(judged: Callable[..., Path]) -> None:
    """A word that is longer than a line is broken: none of it lies outside the page."""
    run = judged("FAIL", [{**ROW, "verdict": "FAIL", "reason": "w" * 2_000}])
    lines: list[tuple[float, str]] = []
    for page in pypdf.PdfReader(io.BytesIO(short(run))).pages:
        page.extract_text(visitor_text=lambda said, _cm, tm, _font, _size: lines.append((tm[4], said)))
    assert sum(said.count("w") for _, said in lines) >= 2_000
    assert all(0 <= x < 595 for x, said in lines if "www" in said)


def test_a_character_that_no_font_has_is_named(judged: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    run = judged(model={"name": "model \U00012000", "files": {}})
    with pytest.raises(ReportError, match=r"U\+12000 CUNEIFORM SIGN A"):
        pdf(run)
    assert main([str(run), "--lang", "en"]) == 4
    seen = capsys.readouterr()
    assert seen.out == f"{run / 'report.en.html'}\n", "the page is there all the same"
    assert "U+12000" in seen.err and seen.err.count("\n") == 1 and not (run / "report.en.pdf").exists()


def test_without_its_font_there_is_no_pdf(judged: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fonts, "chinese", lambda: None)
    with pytest.raises(ReportError, match="manimgx-fonts-cjk"):
        pdf(judged())


@pytest.mark.usefixtures("pictures")
def test_the_same_run_gives_the_same_bytes(recorded: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(recorded, run)
    write_whole(run / "verdict.json", to_bytes(judge(Run(run))))
    assert write_reports(run, languages())[1] == []
    first = {p.name: p.read_bytes() for p in run.glob("report.*")}
    other = tmp_path / "elsewhere" / "run"
    shutil.copytree(run, other)
    # Another process elsewhere: nothing may hang on hash seeds, on what was drawn before, on zone, language or clock.
    env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "TZ": "Asia/Tokyo", "LC_ALL": "C", "HOME": str(tmp_path),
           "SOURCE_DATE_EPOCH": "1"}  # fmt: skip
    subprocess.run(
        [sys.executable, "-m", "reports", str(other)], cwd=tmp_path, env=env, check=True, capture_output=True
    )
    assert {p.name: p.read_bytes() for p in other.glob("report.*")} == first
    assert set(first) == {"report.en.html", "report.zh.html", "report.en.pdf", "report.zh.pdf"}
    assert load_view(run).trusted, "a report is no part of the evidence"


def test_a_verdict_that_does_not_fit_is_announced(judged: Callable[..., Path]) -> None:
    run = judged("PASS", rehearsal=False)
    with (run / "criteria.toml").open("ab") as f:
        f.write(b"#\n")
    seen, t = text(pdf(run)), Words("en")
    assert "UNVERIFIED" in seen and squeezed("criteria.toml: changed since it was sealed") in seen
    assert squeezed(t("stop_loss.PASS")) not in seen and "acceptance:false" in seen


def test_broken_runs_are_printed(judged: Callable[..., Path]) -> None:
    run = judged("INVALID", [], {"blocks": {"valid": [], "invalid": []}})
    for part in ("raw", "blocks"):
        shutil.rmtree(run / part)
    (run / "incidents.jsonl").write_text('{"kind": "interrup')
    assert squeezed("cut off in the middle of a line") in text(pdf(run))


def test_an_arrival_check_is_printed(judged: Callable[..., Path]) -> None:
    rows = [{**DECLARED, "id": f"drive.{n}", "verdict": "FAIL" if n == 7 else "PASS"} for n in range(40)]
    made = pdf(judged("FAIL", rows, gate="g1", scenario={}, model={}), "zh")
    first = first_page(made)
    assert first.index("drive.7") < first.index("drive.0") and squeezed(Words("zh")("sign.customer")) in first
    assert "drive.39" in text(made)


def test_the_first_page_holds_nine_criteria_at_three_steps(judged: Callable[..., Path]) -> None:
    ids = ["ttft-p50-reduction", "throughput-gain", "ttft-p50-vs-recompute", "throughput-vs-recompute",
           "guard-ttft-p99", "guard-itl-p99", "guard-tpot", "failed-requests", "tier-faults"]  # fmt: skip
    rows = [{**ROW, "id": id_, "step": step, "verdict": "FAIL"} for id_ in ids for step in (8, 16, 32)]
    run = judged("FAIL", rows, {"reasons": ["a reason against the run"] * 2})
    for language in languages():
        made = pdf(run, language)
        first = first_page(made)
        assert "tier-faults" in first and squeezed(Words(language)("sign.customer")) in first


@pytest.mark.skipif(not POPPLER, reason="no pdftoppm: pages were not drawn by another program")
@pytest.mark.parametrize("language", ["en", "zh"])
def test_two_readers_agree_and_turn_it_into_pages(judged: Callable[..., Path], tmp_path: Path, language: str) -> None:
    file = tmp_path / "report.pdf"
    file.write_bytes(pdf(judged("FAIL"), language))
    pages = pypdf.PdfReader(io.BytesIO(file.read_bytes())).pages
    assert squeezed(Words(language)("verdict.FAIL.says")) in squeezed(pages[0].extract_text())
    subprocess.run(["pdftoppm", "-r", "30", "-png", str(file), str(tmp_path / "page")], check=True)
    assert len(list(tmp_path.glob("page-*.png"))) == len(pages)


def test_pages_can_be_had_as_pictures(judged: Callable[..., Path]) -> None:
    found = document(load_view(judged()), Words("zh"))
    pages = to_png(found, 20)
    assert len(pages) > 3 and all(page.startswith(b"\x89PNG") for page in pages)


def test_a_run_that_tells_no_time_is_dated_by_none(judged: Callable[..., Path]) -> None:
    found = document(load_view(judged()), Words("en"))
    assert to_pdf(replace(found, date_utc="yesterday")) == to_pdf(replace(found, date_utc="yesterday"))


def test_the_mark_of_a_rehearsal_is_on_every_page(judged: Callable[..., Path]) -> None:
    pages = pypdf.PdfReader(io.BytesIO(short(judged()))).pages
    assert all(squeezed(MARK) in squeezed(page.extract_text()) for page in pages)
    lab = pypdf.PdfReader(io.BytesIO(short(judged(rehearsal=False)))).pages
    assert not any(squeezed(MARK) in squeezed(page.extract_text()) for page in lab)


def test_the_attachment_is_what_the_judge_wrote(judged: Callable[..., Path]) -> None:
    run = judged("INCONCLUSIVE")
    attached = pypdf.PdfReader(io.BytesIO(pdf(run))).attachments["verdict.json"][0]
    assert json.loads(attached)["verdict"] == "INCONCLUSIVE"
