"""Every string of the reports: there in both languages, used, and translated; and the judge's reasons."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gates import criteria
from gates.verdict import judge
from reports import fonts, reasons
from reports.history import WATCHED
from reports.pages.words import GLOSSARY, LIMITS
from reports.served import PLACES
from reports.shapes import STATES
from reports.words import ReportError, Words, languages
from tests.reporting import ROOT
from tests.synthetic import make_run
from tests.synthetic_truth import Truth
from workloads.evidence import Run

UNTRANSLATED = {
    "fact_of",
    "fact.rocm",
    "fact.cuda",
    "fact.cann",
    "words.verdicts.term",
    "history.group",
    "lang",
    "title",
    "words.itl.term",
    "rehearsal.mark",
    "partial.mark",
    "untrusted.mark",
}


def _keys_in_use() -> set[str]:
    """Return the keys that code names whole. Raises AssertionError where one of them is missing."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "reports").rglob("*.py"))
    known = set(Words("en").texts)
    called = set(re.findall(r"\bt\(\s*[\"']([a-zA-Z0-9_.]+)[\"']\s*[,)]", text))
    assert called <= known, f"missing strings: {sorted(called - known)}"
    return {key for key in re.findall(r"[\"']([a-zA-Z0-9_.]+)[\"']", text) if key in known}


def _facts() -> set[str]:
    """Return the keys of those facts that the arrival check or the bill of materials names."""
    sources = [*(ROOT / "gates" / "arrival").glob("*.py"), ROOT / "scenarios" / "bom.py"]
    text = "\n".join(path.read_text(encoding="utf-8") for path in sources if path.exists())
    return {key for key in Words("en").texts if key.startswith("fact.") and re.search(rf"\b{key[5:]}\b", text)}


def _family_members() -> set[str]:
    """Return the keys that code puts together."""
    members = {f"verdict.{s}.{part}" for s in STATES for part in ("word", "says")}
    members |= {f"stop_loss.{s}" for s in STATES} | {f"gate.g{n}" for n in (1, 2, 3, 4)}
    members |= {f"programme.at_{s}" for s in STATES if s != "PASS"}
    members |= {f"criterion.{c.id}" for c in criteria.load(criteria.default_file("g3")).criterion} | {"flag.explain"}
    members |= {f"paired.{what}_{part}" for what in ("ttft", "throughput") for part in ("title", "x")}
    members |= {f"served.{place}" for place in PLACES} | {f"history.what_{what}" for what in WATCHED}
    members |= {f"published.{quality}" for quality in ("stated", "derived", "inferred")}
    members |= {f"limits.{key}" for key in LIMITS} | _facts()
    return members | {f"words.{term}.{part}" for term in GLOSSARY for part in ("term", "says")}


def test_no_string_is_missing_unused_or_untranslated() -> None:
    whole = _keys_in_use()
    known = {language: Words(language).texts for language in languages()}
    assert set(known) == {"en", "zh"}
    for language, texts in known.items():
        assert set(texts) == whole | _family_members(), language
        assert all(text.strip() for text in texts.values())
    for key, english in known["en"].items():
        fields = [sorted(set(re.findall(r"\{(\w+)\}", known[language][key]))) for language in ("en", "zh")]
        assert fields[0] == fields[1], key
        if re.search(r"[A-Za-z]{3}", english) and not re.search("[一-鿿]", known["zh"][key]):
            assert key in UNTRANSLATED, f"{key} is not translated"


def test_a_missing_string_is_an_error_and_no_blank() -> None:
    with pytest.raises(ReportError, match=r"nothing\.like\.this"):
        Words("en")("nothing.like.this")


# Truths that the judge decides in each of its five ways: (TTFT at two users, at four, sd of a trial's log time).
NEAR = ((0.888, 1.824, 0.01), (0.6, 2.3, 0.01), (0.895, 1.79, 0.03))
GROUNDS = (
    "the whole interval clears", "the point reaches", "and is too wide", "the point misses", "the whole interval misses",
)  # fmt: skip


def test_the_judges_words_on_an_interval_are_translated_wholly(tmp_path: Path) -> None:
    """Its own words, from runs that it has judged: a sentence that is put otherwise must be translated anew."""
    said: set[str] = set()
    for place, (two, four, noise) in enumerate(NEAR):
        ttft = {("candidate", 2): two, ("candidate", 4): four / 2}
        run = make_run(tmp_path / str(place), Truth(ttft_at_s=ttft, noise=noise))
        rows = judge(Run(run))["criteria"]
        said |= {row["reason"] for row in rows if row["estimate"] and row["unit"] == "share"}
    assert all(any(ground in reason for reason in said) for ground in GROUNDS), said
    for reason in said:
        translated = reasons.translation(reason, "zh")
        assert translated is not None, f"not translated: {reason}"
        assert "n = " in translated and not re.search(r"\b(interval|point|blocks)\b", translated)


def test_a_reason_that_is_not_wholly_known_stays_as_it_is() -> None:
    t = Words("zh")
    for reason in ("something new", "0 of 60 requests failed; something new", "0 of 60 requests failed, really"):
        cell = reasons.told(reason, t)
        assert (cell.text, cell.kind, cell.more) == (reason, "quote", "")
    known = reasons.told("0 of 60 requests failed", t)
    assert known.text == "60 个请求中有 0 个失败" and known.more == "0 of 60 requests failed"
    assert reasons.told("0 of 60 requests failed", Words("en")).kind == "quote"


def test_the_reports_own_words_can_be_printed() -> None:
    for language in languages():
        assert fonts.missing(Words(language).texts.values()) == []
    published = (ROOT / "reports" / "published.toml").read_text(encoding="utf-8")
    assert fonts.missing([published, (ROOT / "reports" / "reasons.zh.toml").read_text(encoding="utf-8")]) == []
    assert fonts.missing(["a\U00012000"]) == ["U+12000 CUNEIFORM SIGN A"]
