"""The report over all gates, and the history of many runs."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pypdf
import pytest

from reports.__main__ import main
from reports.history import changes, collect, is_worse, write_history
from reports.programme import programme, standings
from reports.view import load_view
from reports.words import ReportError, Words, languages
from tests.reporting import DECLARED, ESTIMATE, ROW, SCRIPT, Page, _pictures_on_request, judged, recorded  # noqa: F401

# ruff: noqa: F811  a fixture's name is an argument's, too
Json = dict[str, Any]


@pytest.fixture
def gates(judged: Callable[..., Path]) -> Callable[..., list[Path]]:
    """Return a maker of one run per named gate: `make(g1="PASS", g3="FAIL")`, in order of time."""

    def make(rehearsal: bool = False, **verdicts: str) -> list[Path]:
        runs = []
        for day, (name, verdict) in enumerate(verdicts.items(), start=1):
            gate = name[:2]
            rows = [{**DECLARED, "verdict": verdict}] if gate == "g1" else [{**ROW, "verdict": verdict}]
            facts = {"gate": gate, "run_id": name, "created_utc": f"2026-02-0{day}T00:00:00+00:00"}
            runs.append(judged(verdict, rows, name=name, rehearsal=rehearsal, **facts))
        return runs

    return make


def state_of(runs: list[Path]) -> tuple[str, str, bool]:
    """Return the programme's state, what its first page says, and whether it is an acceptance."""
    found = programme(standings([load_view(run) for run in runs]), Words("en"))
    return found.front.state, found.front.says, found.acceptance == "acceptance: true"


def test_four_passed_gates_pass(gates: Callable[..., list[Path]]) -> None:
    state, says, accepted = state_of(gates(g1="PASS", g2="PASS", g3="PASS", g4="PASS"))
    assert (state, says, accepted) == ("PASS", "All four gates are passed.", True)
    state, _, accepted = state_of(gates(rehearsal=True, g1="PASS", g2="PASS", g3="PASS", g4="PASS"))
    assert state == "PASS" and not accepted


@pytest.mark.parametrize(
    ("verdicts", "state", "told"),
    [
        ({"g1": "PASS", "g2": "PASS", "g3": "FAIL"}, "FAIL", "ends at G3"),
        ({"g1": "PASS", "g2": "PASS", "g3": "INVALID"}, "INVALID", "stands at G3"),
        ({"g1": "PASS", "g2": "INCONCLUSIVE"}, "INCONCLUSIVE", "stands at G2"),
        ({"g1": "PASS", "g3": "PASS"}, "INCONCLUSIVE", "G2 has not been run"),
        ({"g3": "FAIL"}, "FAIL", "ends at G3"),
        # Running again until it passes is no pass; an invalid run may be repeated.
        ({"g1": "PASS", "g2": "PASS", "g3": "FAIL", "g3again": "PASS", "g4": "PASS"}, "FAIL", "ends at G3"),
        ({"g1": "PASS", "g2": "PASS", "g3": "INVALID", "g3again": "PASS", "g4": "PASS"}, "PASS", "All four"),
    ],
)
def test_the_stop_loss_runs_through_the_gates(
    gates: Callable[..., list[Path]], verdicts: Json, state: str, told: str
) -> None:
    found = state_of(gates(**verdicts))
    assert found[0] == state and told in found[1] and found[2] == (state == "PASS")


def test_a_verdict_that_does_not_fit_stops_the_programme(gates: Callable[..., list[Path]]) -> None:
    runs = gates(g1="PASS", g2="PASS", g3="PASS", g4="PASS")
    (runs[2] / "run.json").write_bytes((runs[2] / "run.json").read_bytes() + b" ")
    assert state_of(runs)[0] == "UNTRUSTED" and not state_of(runs)[2]
    views = [load_view(run) for run in runs]
    assert not programme(standings(views), Words("en")).front.signatures, "nothing to sign"


def test_a_damaged_run_is_not_mended_by_a_later_pass(gates: Callable[..., list[Path]]) -> None:
    """It may have been a FAIL."""
    runs = gates(g1="PASS", g2="PASS", g3="FAIL", g3again="PASS", g4="PASS")
    (runs[2] / "run.json").write_bytes((runs[2] / "run.json").read_bytes() + b" ")
    assert state_of(runs)[0] == "UNTRUSTED"


def test_a_failed_attempt_that_was_left_out_is_found_in_the_ledger(
    gates: Callable[..., list[Path]],
) -> None:
    views = [load_view(run) for run in gates(g1="PASS", g2="PASS", g3="PASS", g4="PASS")]
    views[2] = replace(views[2], attempts=({"run": "hidden", "verdict": "FAIL"}, {"run": "g3", "verdict": None}))
    found = programme(standings(views), Words("en"))
    assert found.front.state == "FAIL" and found.acceptance == "acceptance: false"
    assert any("hidden" in cell.text for notice in found.front.notices for cell in notice.items)


@pytest.mark.parametrize("changed", [{"site": {"name": "other", "rehearsal": False}}, {"model": {"name": "other"}}])
def test_runs_that_do_not_belong_together_are_no_acceptance(gates: Callable[..., list[Path]], changed: Json) -> None:
    views = [load_view(run) for run in gates(g1="PASS", g2="PASS", g3="PASS", g4="PASS")]
    views[2] = replace(views[2], facts={**views[2].facts, **changed})
    found = programme(standings(views), Words("en"))
    assert found.front.state == "PASS" and found.acceptance == "acceptance: false"
    assert found.front.says == Words("en")("programme.not_accepted")
    assert any("other" in cell.text for notice in found.front.notices for cell in notice.items)


def test_runs_are_ordered_by_time_and_not_by_its_spelling(gates: Callable[..., list[Path]]) -> None:
    views = [load_view(run) for run in gates(g1="PASS", g3="INVALID", g3again="PASS")]
    late, early = "2026-02-05T00:30:00+00:00", "2026-02-05T01:00:00+08:00"
    views[1:] = [replace(views[1], started_utc=late), replace(views[2], started_utc=early)]
    assert standings(views)[2].state == "INVALID"


def test_a_gate_that_was_begun_too_early_is_told(gates: Callable[..., list[Path]]) -> None:
    runs = gates(g1="PASS", g3="PASS", g2="PASS", g4="PASS")
    found = programme(standings([load_view(run) for run in runs]), Words("en"))
    told = [cell.text for notice in found.front.notices for cell in notice.items]
    assert told == ["G3 was begun before G2 was passed."]


def test_the_command_writes_both_forms(
    gates: Callable[..., list[Path]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [str(run) for run in gates(g1="PASS", g3="FAIL")]
    assert main(["--programme", *runs, "--out", str(tmp_path / "out")]) == 0
    written = [Path(line) for line in capsys.readouterr().out.splitlines()]
    assert [p.name for p in written] == [
        "programme.zh.html",
        "programme.zh.pdf",
        "programme.en.html",
        "programme.en.pdf",
    ]
    reader = pypdf.PdfReader(io.BytesIO(written[1].read_bytes()))
    assert [run["run"] for run in json.loads(reader.attachments["programme.json"][0])["runs"]] == ["g1", "g3"]
    html = written[2].read_text()
    assert "ends at G3" in html and "array.product" in html and "not run" in html
    first = written[3].read_bytes()
    assert main(["--programme", *runs, "--lang", "en", "--out", str(tmp_path / "again")]) == 0
    assert (tmp_path / "again" / "programme.en.pdf").read_bytes() == first


def test_a_run_is_named_once(gates: Callable[..., list[Path]]) -> None:
    (run,) = gates(g1="PASS")
    with pytest.raises(ReportError, match="named twice"):
        standings([load_view(run), load_view(run)])


def history(judged: Callable[..., Path], *estimates: Json | None, **changed: Json) -> list[Path]:
    """Return a run per estimate, a day apart; `changed` gives facts of single runs, by r0, r1, …"""
    runs = []
    for day, estimate in enumerate(estimates, start=1):
        name = f"r{day - 1}"
        verdict = "INVALID" if estimate is None else "PASS" if estimate["point"] >= 0.25 else "FAIL"
        facts = {"run_id": name, "created_utc": f"2026-02-0{day}T00:00:00+00:00", **changed.get(name, {})}
        runs.append(judged(verdict, [{**ROW, "verdict": verdict, "estimate": estimate}], name=name, **facts))
    return runs


def estimate(low: float, high: float) -> Json:
    """Return an estimate with this interval."""
    return {**ESTIMATE, "point": (low + high) / 2, "low": low, "high": high}


@pytest.mark.parametrize("language", languages())
def test_a_regression_is_an_interval_on_the_worse_side(
    judged: Callable[..., Path], tmp_path: Path, language: str
) -> None:
    history(judged, estimate(0.31, 0.35), estimate(0.30, 0.34), None, estimate(0.26, 0.28))
    files = {p.name: p for p in write_history(tmp_path, languages())}
    html = files[f"history.{language}.html"].read_text(encoding="utf-8")
    t = Words(language)
    listed = html.split(t("history.regressions"))[1].split("</ul>")[0]
    assert listed.count("<li>") == 1 and "2026-02-04" in listed and "→" in listed, "against the last valid run"
    assert 'href="./r3/report.' in html and "<svg" in html
    assert t("history.no_regression") not in html


def test_a_lost_pass_is_told_though_the_intervals_overlap(judged: Callable[..., Path], tmp_path: Path) -> None:
    history(judged, estimate(0.20, 0.34), estimate(0.18, 0.30))
    (file,) = write_history(tmp_path, ["en"])
    assert "PASS → FAIL" in file.read_text(encoding="utf-8")


def test_a_guard_is_worse_when_it_rises(judged: Callable[..., Path]) -> None:
    rows = [{**ROW, "operator": "<=", "estimate": estimate(*bounds)} for bounds in ((0.0, 0.1), (0.2, 0.3))]
    low, high = (load_view(judged("PASS", [row])).requirements[0] for row in rows)
    assert is_worse(low, high) and not is_worse(high, low) and not is_worse(low, low)


def test_what_changed_between_runs_is_named(judged: Callable[..., Path], tmp_path: Path) -> None:
    same = estimate(0.31, 0.35)
    history(judged, same, same, same, r1={"software": {"vllm": "9"}}, r2={"software": {"vllm": "9"}})
    past, unread = collect(tmp_path)
    assert not unread and [changes(a, b) for a, b in pairwise(past)] == [["software"], []]
    (file,) = write_history(tmp_path, ["en"])
    assert Words("en")("history.no_regression") in file.read_text(encoding="utf-8")


def test_runs_of_other_scenarios_are_not_compared(judged: Callable[..., Path], tmp_path: Path) -> None:
    history(judged, estimate(0.31, 0.35), estimate(0.1, 0.2), r1={"scenario": {"name": "other"}})
    (file,) = write_history(tmp_path, ["en"])
    assert file.read_text(encoding="utf-8").count(Words("en")("history.no_regression")) == 2


def test_an_unreadable_run_and_a_false_verdict_are_told(judged: Callable[..., Path], tmp_path: Path) -> None:
    broken, other = history(judged, estimate(0.31, 0.35), estimate(0.31, 0.35))
    (broken / "verdict.json").write_text("{")
    (other / "MANIFEST.sha256").write_bytes((other / "MANIFEST.sha256").read_bytes() + b"\n")
    (file,) = write_history(tmp_path, ["en"])
    html = file.read_text(encoding="utf-8")
    assert "r0" in html and "not JSON" in html and "UNVERIFIED" in html


def test_what_cannot_be_trusted_is_not_drawn(judged: Callable[..., Path], tmp_path: Path) -> None:
    runs = history(judged, estimate(0.31, 0.35), estimate(0.61, 0.65), estimate(0.71, 0.75))
    (runs[1] / "MANIFEST.sha256").write_bytes((runs[1] / "MANIFEST.sha256").read_bytes() + b"\n")
    said = json.loads((runs[2] / "verdict.json").read_text())
    (runs[2] / "verdict.json").write_text(json.dumps({**said, "verdict": "FAIL"}))
    (file,) = write_history(tmp_path, ["en"])
    html = file.read_text(encoding="utf-8")
    assert "33.0" in html and "63.0" not in html and "73.0" not in html and html.count(">UNVERIFIED<") >= 2


def test_hostile_names_stay_text(judged: Callable[..., Path], tmp_path: Path) -> None:
    history(judged, estimate(0.3, 0.4), r0={"site": {"name": SCRIPT}, "run_id": SCRIPT})
    (file,) = write_history(tmp_path, ["en"])
    seen = Page(file.read_text(encoding="utf-8"))
    assert "script" not in seen.tags and SCRIPT in seen.text
    assert all(re.match(r"\./|#", value) for _, name, value in seen.attributes if name == "href")


def test_an_empty_folder_has_an_empty_history(tmp_path: Path) -> None:
    (file,) = write_history(tmp_path, ["en"])
    assert Words("en")("history.none") in file.read_text(encoding="utf-8")


def test_links_lead_from_another_folder(judged: Callable[..., Path], tmp_path: Path) -> None:
    history(judged, estimate(0.3, 0.4))
    (file,) = write_history(tmp_path, ["en"], tmp_path / "pages" / "deep")
    assert 'href="./../../r0/report.en.html"' in file.read_text(encoding="utf-8")
