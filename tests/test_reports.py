"""The report page: says what verdict.json says, of the evidence beside it, to a reader who has nothing but the file."""

from __future__ import annotations

import copy
import itertools
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from markupsafe import escape

from gates import criteria
from gates.verdict import judge, to_bytes
from reports import plots
from reports.__main__ import main
from reports.html import GLOSSARY, write_reports
from reports.samples import ArmStep
from reports.text import clean, decimals, number
from reports.view import VERDICTS, load_view
from reports.words import ReportError, Words, languages
from tests.synthetic import make_run
from workloads.evidence import MANIFEST, Run, RunDir, sha256_of, write_whole

Json = dict[str, Any]
ROOT = Path(__file__).resolve().parent.parent
CHROMIUM = Path("/usr/bin/chromium")
MARK = "REHEARSAL - NOT AN ACCEPTANCE / 排练，不作验收"
ESTIMATE = {"point": 0.3312, "low": 0.3101, "high": 0.3523, "confidence": 0.98, "n": 5, "method": "paired t"}
ROW = {
    "id": "ttft-p50-reduction",
    "metric": "ttft_p50_s",
    "arms": ["candidate", "baseline"],
    "step": 2,
    "operator": ">=",
    "limit": 0.25,
    "tolerance": 0.02,
    "unit": "share",
    "estimate": ESTIMATE,
    "verdict": "PASS",
    "reason": "the interval clears the limit",
    "flags": [],
}


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole sealed run; to be copied, never written to."""
    return Path(make_run(tmp_path_factory.mktemp("synthetic") / "run"))


@pytest.fixture
def pictures() -> None:
    """Ask for the pictures: they take most of a page's time, and few tests look at them."""


@pytest.fixture(autouse=True)
def _pictures_on_request(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "pictures" not in request.fixturenames:
        monkeypatch.setattr("reports.html.figures", lambda view, t: [])


@pytest.fixture
def judged(recorded: Path, tmp_path: Path) -> Callable[..., Path]:
    """Return a maker of judged runs: the recorded one with changed facts, sealed again, with a verdict of our own."""

    def make(
        verdict: str = "PASS",
        rows: list[Json] | None = None,
        judgement_changes: Json = MappingProxyType({}),  # type: ignore[assignment]
        **facts: Any,
    ) -> Path:
        path = tmp_path / "run"
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(recorded, path)
        run = RunDir(path)
        said = {**json.loads((path / "run.json").read_text()), **facts}
        said["site"] = {**said["site"], "rehearsal": said["rehearsal"]}
        run.write_bytes("run.json", json.dumps(said).encode())  # escaped: an unpaired surrogate is JSON, too
        (path / MANIFEST).unlink()
        manifest = run.seal("end")
        blocks = [block["block"] for block in Run(path).blocks()]
        judgement = {
            "schema": 1,
            "gate": said["gate"],
            "verdict": verdict,
            "rehearsal": said["rehearsal"],
            "acceptance": said["rehearsal"] is False and verdict == "PASS",
            "reasons": [],
            "criteria": [{**ROW, "verdict": verdict}] if rows is None else rows,
            "blocks": {"valid": blocks, "invalid": []},
            "breaches": [],
            "manifest_sha256": manifest,
            "criteria_sha256": sha256_of(path / "criteria.toml"),
            "suite": "0.1.0",
            **judgement_changes,
        }
        run.write_bytes("verdict.json", json.dumps(judgement).encode())
        return path

    return make


def page(run: Path, language: str = "en") -> str:
    """Return the page that is written for the run."""
    (path,) = write_reports(run, [language])
    return path.read_text(encoding="utf-8")


class Page(HTMLParser):
    """What a browser would see: text, and every attribute."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.text, self.tags, self.attributes, self._style = "", [], [], False
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        self._style = tag == "style"

    def handle_endtag(self, tag: str) -> None:
        self._style = False

    def handle_data(self, data: str) -> None:
        self.text += "" if self._style else data


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
    script = "<script>alert(1)</script>\"'{{ 7*7 }}</style>"
    bidi = "abc\u202egnp.exe\u2066\x00\ud800"
    long = "x" * 10_000
    row = {**ROW, "id": script, "reason": bidi + long, "flags": [script]}
    run = judged("FAIL", [{**row, "verdict": "FAIL"}], model={"name": script + bidi + long, "files": {script: bidi}},
                 host={"hostname": script}, overrides={script: bidi}, seed=script)  # fmt: skip
    for language in languages():
        seen = Page(page(run, language))
        assert "script" not in seen.tags
        assert not [a for a in seen.attributes if a[1].startswith("on")]
        assert script in seen.text and long in seen.text and "{{ 7*7 }}" in seen.text
        assert "abc<U+202E>gnp.exe<U+2066><U+0000>" in seen.text
        assert not set("\u202e\u2066\x00") & set(seen.text)


def test_a_hostile_arm_name_does_not_break_a_picture() -> None:
    sample = ArmStep("<b>$x^2$ & \u202e", 1, (0.1, 0.2), 2, ((1, 3.0),))
    svg = plots.ttft_ecdf([sample], title="<t>", x_label="x", y_label="y", failed="failed")
    assert svg is not None and "<b>" not in svg and "&lt;b&gt;$x^2$ &amp; &lt;U+202E&gt;" in svg and "&lt;t&gt;" in svg


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


@pytest.mark.usefixtures("pictures")
def test_pictures_are_in_the_page_and_named(judged: Callable[..., Path]) -> None:
    for language in languages():
        html = page(judged(), language)
        for key in ("ecdf.title", "throughput.title", "paired.ttft_title"):
            assert html.count(f">{Words(language)(key)}</title>") == 1
        assert html.count('role="img"') == 3


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
    cells = re.findall(r'<td class="num">(.*?)</td>', html.split("<tbody>")[1].split("</tbody>")[0])
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
        (lambda run: (run / MANIFEST).unlink(), "the run was never sealed"),
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


@pytest.mark.usefixtures("pictures")
def test_the_same_run_gives_the_same_bytes(judged: Callable[..., Path], tmp_path: Path) -> None:
    run = judged()
    write_reports(run, languages())
    first = {p.name: p.read_bytes() for p in run.glob("report.*")}
    other = tmp_path / "elsewhere" / "run"
    shutil.copytree(run, other)
    # Another process: nothing may hang on hash seeds or on what was drawn before.
    subprocess.run([sys.executable, "-m", "reports", str(other)], cwd=ROOT, check=True, capture_output=True)
    assert {p.name: p.read_bytes() for p in other.glob("report.*")} == first
    assert set(first) == {"report.en.html", "report.zh.html"}


def test_reports_are_not_part_of_the_evidence(judged: Callable[..., Path]) -> None:
    run = judged()
    write_reports(run, languages())
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
    assert main([str(run), "--lang", "en"]) == 0
    assert capsys.readouterr().out == f"{run / 'report.en.html'}\n"


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
        [str(newer), "--lang", "xx"], [str(newer), "--lang", ","],
    ):  # fmt: skip
        assert main(arguments) == 4
        seen = capsys.readouterr()
        assert seen.out == "" and seen.err.count("\n") == 1 and "Traceback" not in seen.err
    assert main([]) == 4


def _keys_in_use() -> tuple[set[str], set[str]]:
    """Return the keys that templates and code name whole, and the prefixes of those that they put together."""
    sources = [*(ROOT / "reports").glob("*.py"), *(ROOT / "reports" / "templates").glob("*.j2")]
    text = "\n".join(path.read_text(encoding="utf-8") for path in sources)
    known = set(Words("en").texts)
    whole = {key for key in re.findall(r'"([a-z0-9_.]+)"', text) if key in known}
    called = set(re.findall(r'\bt\(\s*"([^"]+)"\s*[,)]', text))
    assert called <= known, f"missing strings: {sorted(called - known)}"
    return whole, set(re.findall(r'f"([a-z_]+)\.\{', text)) | set(re.findall(r'\("([a-z_]+)\." ~', text))


def _family_members() -> set[str]:
    states = (*VERDICTS, "UNTRUSTED")
    members = {f"verdict.{s}.{part}" for s in states for part in ("word", "says")}
    members |= {f"stop_loss.{s}" for s in states} | {f"gate.g{n}" for n in (1, 2, 3, 4)}
    members |= {f"criterion.{c.id}" for c in criteria.load(criteria.default_file("g3")).criterion} | {"flag.explain"}
    members |= {f"paired.{what}_{part}" for what in ("ttft", "throughput") for part in ("title", "x")}
    members |= {f"words.{term}.{part}" for term in GLOSSARY for part in ("term", "says")}
    return members


def test_no_string_is_missing_unused_or_untranslated() -> None:
    whole, _ = _keys_in_use()
    known = {language: Words(language).texts for language in languages()}
    assert set(known) == {"en", "zh"}
    for language, texts in known.items():
        assert set(texts) == whole | _family_members(), language
        assert all(text.strip() for text in texts.values())
    for key, english in known["en"].items():
        fields = [sorted(set(re.findall(r"\{(\w+)\}", known[language][key]))) for language in ("en", "zh")]
        assert fields[0] == fields[1], key
        if re.search(r"[A-Za-z]{3}", english) and not re.search("[一-鿿]", known["zh"][key]):
            assert key in {"lang", "title", "words.itl.term"}, f"{key} is not translated"


def test_a_missing_string_is_an_error_and_no_blank() -> None:
    with pytest.raises(ReportError, match=r"nothing\.like\.this"):
        Words("en")("nothing.like.this")


@pytest.mark.skipif(not CHROMIUM.exists(), reason="no /usr/bin/chromium: layout not looked at")
@pytest.mark.usefixtures("pictures")
def test_a_browser_lays_the_page_out(judged: Callable[..., Path], tmp_path: Path) -> None:
    """At 1280x800 the verdict is in sight; at 380 px nothing overflows the page."""
    row = {**ROW, "verdict": "INCONCLUSIVE", "reason": "y" * 400}
    run = judged("INCONCLUSIVE", [row] * 12, model={"name": "m" * 3000, "files": {}})
    (path,) = write_reports(run, ["en"])
    probe = (
        "<script>document.title = JSON.stringify({w: document.documentElement.clientWidth,"
        " s: document.documentElement.scrollWidth, v: document.querySelector('h1').getBoundingClientRect().bottom})"
        "</script></body>"
    )
    # The page itself allows no script; the probe goes into a copy that does.
    text = re.sub(r"<meta http-equiv[^>]*>", "", path.read_text(encoding="utf-8"))
    inner = tmp_path / "inner.html"
    inner.write_text(text.replace("</body>", probe), encoding="utf-8")
    for width in (1280, 380):
        seen = _measured(inner, width, tmp_path / f"profile-{width}")
        assert seen["s"] <= seen["w"] == width
        assert seen["v"] < 800


def _measured(inner: Path, width: int, profile: Path) -> Json:
    """Return what the probe saw in a frame of that width: a window cannot be as narrow as a telephone."""
    outer = inner.with_name(f"outer-{width}.html")
    outer.write_text(
        f'<iframe src="{inner.name}" style="border:0;width:{width}px;height:800px"></iframe><script>onload = () =>'
        " { document.body.dataset.seen = frames[0].document.title }</script>"
    )
    done = subprocess.run(
        [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
         "--disable-background-networking", "--disable-component-update", "--disable-sync",
         "--hide-scrollbars", "--allow-file-access-from-files", f"--user-data-dir={profile}",
         "--window-size=1400,900", "--dump-dom",
         outer.as_uri()],
        capture_output=True, text=True, timeout=90, check=True,
    )  # fmt: skip
    found = re.search(r'data-seen="([^"]*)"', done.stdout)
    assert found is not None, done.stderr[-2000:]
    seen: Json = json.loads(found[1].replace("&quot;", '"'))
    return seen


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
        assert html.count('role="img"') == 4


def test_the_view_does_not_change_the_verdict(judged: Callable[..., Path]) -> None:
    run = judged("FAIL", [{**ROW, "verdict": "FAIL"}])
    before = copy.deepcopy(json.loads((run / "verdict.json").read_text()))
    view = load_view(run)
    write_reports(run, ["en"])
    assert json.loads((run / "verdict.json").read_text()) == before == view.judged
