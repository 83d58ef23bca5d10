"""Judged runs for the tests of the reports: a recorded one with changed facts, sealed again, and a verdict of our own."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from html.parser import HTMLParser
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from reports.again import Again
from reports.write import write_reports
from tests.synthetic import make_run
from workloads.evidence import MANIFEST, Run, RunDir, sha256_of

Json = dict[str, Any]
ROOT = Path(__file__).resolve().parent.parent
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
# What a script tag, Typst's markup, a template, bidi controls and an unpaired surrogate would do if they were obeyed.
SCRIPT = "<script>alert(1)</script>\"'{{ 7*7 }}</style>"
TYPST = '#read("/etc/passwd") *b* _i_ `c` $x^2$ // c <label> @ref \\ ~ #{ 7 * 7 } #import "x"'
BIDI = "abc\u202egnp.exe\u2066\x00\ud800"
BIDI_SHOWN = "abc<U+202E>gnp.exe<U+2066><U+0000>"
# A bill of materials: rows as the judge of G1 writes them.
DECLARED = {
    "id": "array.product",
    "metric": "declared",
    "arms": [],
    "step": None,
    "verdict": "PASS",
    "reason": "as declared",
    "flags": [],
    "declared": "FX100",
    "found": "FX100 rev 2",
    "raw": ["nvme-list-subsys.stdout"],
}


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole sealed run; to be copied, never written to."""
    return Path(make_run(tmp_path_factory.mktemp("synthetic") / "run"))


@pytest.fixture
def judged(recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Return a maker of judged runs: `make(verdict, rows, changes of verdict.json, name=folder, **changes of run.json)`.

    Their verdicts are of our own, so that nobody asks the judge again.
    """
    monkeypatch.setattr("reports.view.load.judged_again", lambda run, on_file: Again())

    def make(
        verdict: str = "PASS",
        rows: list[Json] | None = None,
        judgement_changes: Json = MappingProxyType({}),  # type: ignore[assignment]
        name: str = "run",
        **facts: Any,
    ) -> Path:
        path = tmp_path / name
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


@pytest.fixture
def pictures() -> None:
    """Ask for the pictures: they take most of a page's time, and few tests look at them."""


@pytest.fixture(autouse=True)
def _pictures_on_request(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "pictures" not in request.fixturenames:
        monkeypatch.setattr("reports.pages.whole.pictures", lambda view, t: [])


def page(run: Path, language: str = "en") -> str:
    """Return the page that is written for the run."""
    (path,) = pages(run, [language])
    return path.read_text(encoding="utf-8")


def pages(run: Path, languages: Sequence[str]) -> list[Path]:
    """Write the run's pages, one per language, and return where they are."""
    return write_reports(run, languages, ["html"])[0]


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


def page_of(run: Path) -> str:
    """Return the English page as it lies there."""
    return (run / "report.en.html").read_text(encoding="utf-8")


def change_the_verdict(key: str, value: object) -> Callable[[Path], None]:
    """Return what sets a key of the run's verdict.json by hand."""

    def change(run: Path) -> None:
        said = json.loads((run / "verdict.json").read_text())
        (run / "verdict.json").write_text(json.dumps({**said, key: value}))

    return change
