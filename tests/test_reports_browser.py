"""The pages in a browser: what is in sight, what overflows, what leaves the page, and what it complains about."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reports.words import Words
from tests.reporting import DECLARED, ROW, SCRIPT, judged, pages, pictures, recorded  # noqa: F401

# ruff: noqa: F811  a fixture's name is an argument's, too
Json = dict[str, Any]
CHROMIUM = Path("/usr/bin/chromium")
OPTIONS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--hide-scrollbars", "--allow-file-access-from-files",
    "--window-size=1400,900", "--enable-logging=stderr", "--dump-dom",
)  # fmt: skip
PROBE = """<script>
const overlaps = [];
for (const parent of document.querySelectorAll('header, main, .front, .keys, dl.facts, section.sign')) {
  const boxes = [...parent.children].map(e => e.getBoundingClientRect()).filter(b => b.width && b.height);
  boxes.forEach((a, i) => boxes.slice(i + 1).forEach(b => {
    if (a.right - b.left > 1 && b.right - a.left > 1 && a.bottom - b.top > 1 && b.bottom - a.top > 1)
      overlaps.push([parent.tagName, a.top, b.top]);
  }));
}
document.title = JSON.stringify({
  width: document.documentElement.clientWidth, wide: document.documentElement.scrollWidth,
  verdict: document.querySelector('h1').getBoundingClientRect().bottom,
  stopLoss: document.querySelector('.keys').getBoundingClientRect().top,
  loaded: performance.getEntriesByType('resource').length, overlaps: overlaps.length,
  unnamed: [...document.querySelectorAll('[tabindex], table, svg[role]')].filter(e => !e.closest('[aria-label], [aria-labelledby]')).length,
});
</script></body>"""

pytestmark = [
    pytest.mark.skipif(not CHROMIUM.exists(), reason="no /usr/bin/chromium: layout not looked at"),
    pytest.mark.usefixtures("pictures"),
]


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("gate", ["g1", "g3"])
def test_a_browser_lays_the_page_out(judged: Callable[..., Path], tmp_path: Path, gate: str, language: str) -> None:
    """At 1280x800 the verdict is in sight; at 380 px nothing overflows the page and no part lies over another."""
    long = {"verdict": "INCONCLUSIVE", "reason": "y" * 400}
    rows = [{**(DECLARED if gate == "g1" else ROW), **long, "declared": "d" * 300, "found": "f" * 300}] * 12
    run = judged("INCONCLUSIVE", rows, gate=gate, model={"name": "m" * 3000 + SCRIPT, "files": {}})
    (path,) = pages(run, [language])
    # The page itself allows no script; the probe goes into a copy that does.
    text = re.sub(r"<meta http-equiv[^>]*>", "", path.read_text(encoding="utf-8"))
    inner = tmp_path / "inner.html"
    inner.write_text(text.replace("</body>", PROBE), encoding="utf-8")
    for width in (1280, 380):
        seen = _measured(inner, width, tmp_path / f"profile-{width}")
        assert seen["wide"] <= seen["width"] == width
        assert seen["verdict"] < 800 and (width < 800 or seen["stopLoss"] < 800)
        assert (seen["loaded"], seen["overlaps"], seen["unnamed"]) == (0, 0, 0)


def test_the_page_itself_says_nothing_on_the_console(judged: Callable[..., Path], tmp_path: Path) -> None:
    run = judged("FAIL", [{**ROW, "verdict": "FAIL", "reason": SCRIPT}], model={"name": SCRIPT, "files": {}})
    (path,) = pages(run, ["zh"])
    done = _run(path, tmp_path / "profile")
    assert "CONSOLE" not in done.stderr, done.stderr[-2000:]
    assert Words("zh")("verdict.FAIL.word") in done.stdout


def test_the_console_is_listened_to(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("<script>console.error('heard')</script>")
    assert "heard" in _run(page, tmp_path / "profile").stderr


def _measured(inner: Path, width: int, profile: Path) -> Json:
    """Return what the probe saw in a frame of that width: a window cannot be as narrow as a telephone."""
    outer = inner.with_name(f"outer-{width}.html")
    outer.write_text(
        f'<iframe src="{inner.name}" style="border:0;width:{width}px;height:800px"></iframe><script>onload = () =>'
        " { document.body.dataset.seen = frames[0].document.title }</script>"
    )
    done = _run(outer, profile)
    found = re.search(r'data-seen="([^"]*)"', done.stdout)
    assert found is not None, done.stderr[-2000:]
    seen: Json = json.loads(found[1].replace("&quot;", '"'))
    return seen


def _run(page: Path, profile: Path) -> subprocess.CompletedProcess[str]:
    argv = [str(CHROMIUM), *OPTIONS, f"--user-data-dir={profile}", page.as_uri()]
    return subprocess.run(argv, capture_output=True, text=True, timeout=120, check=True)
