"""The first page: the verdict's rows and key figure, attempts, scope, deviations, and who signs."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reports.__main__ import main
from reports.view import load_view
from reports.words import Words
from tests.reporting import (  # noqa: F401  fixtures are found by their names
    DECLARED,
    ESTIMATE,
    ROW,
    SCRIPT,
    Page,
    _pictures_on_request,
    judged,
    page,
    page_of,
    pictures,
    recorded,
)

# ruff: noqa: F811  a fixture's name is an argument's, too
Json = dict[str, Any]


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


def test_local_times_are_those_of_the_host_that_measured(judged: Callable[..., Path]) -> None:
    host = {"hostname": "lab", "zone": "Asia/Shanghai"}
    assert "+08:00 (Asia/Shanghai)" in page(judged(host=host))
    assert "(Nowhere" not in page(judged(host={**host, "zone": "Nowhere/../Asia"}))


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


def test_an_engine_whose_version_nobody_knows_is_not_told_as_another(judged: Callable[..., Path]) -> None:
    told = Page(page(judged(software={"python": "3.11.2", "vllm": None, "lmcache": "0.5.2"}))).text
    assert f"vllm {Words('en')('all.unknown')}, lmcache 0.5.2" in told
