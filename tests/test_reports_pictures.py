"""The pictures: drawn from samples, with the intervals of the verdict, and readable by who cannot see them."""

from __future__ import annotations

import itertools
import json
import re
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gates import metrics
from reports import plots, samples
from reports.plots.ecdf import POINTS_MAX, TAIL, thinned
from reports.records import records
from reports.samples import ArmStep
from reports.served import Served
from reports.view import load_view
from reports.words import Words, languages
from tests.reporting import ESTIMATE, ROW, judged, page, pictures, recorded  # noqa: F401
from workloads.evidence import EvidenceError, Run, Trial

# ruff: noqa: F811  a fixture's name is an argument's, too
Json = dict[str, Any]
KEYS = ("ecdf.title", "throughput.title", "paired.ttft_title", "served.title", "order.title")


def test_a_hostile_arm_name_does_not_break_a_picture() -> None:
    sample = ArmStep("<b>$x^2$ & \u202e", 1, (0.1, 0.2), 2, ((1, 3.0),))
    svg = plots.ttft_ecdf([sample], title="<t>", x_label="x", y_label="y", failed="failed")
    assert svg is not None and "<b>" not in svg and "&lt;b&gt;$x^2$ &amp; &lt;U+202E&gt;" in svg and "&lt;t&gt;" in svg


@pytest.mark.usefixtures("pictures")
def test_pictures_are_in_the_page_and_named(judged: Callable[..., Path]) -> None:
    for language in languages():
        html = page(judged(), language)
        for key in KEYS:
            assert html.count(f">{Words(language)(key)}</title>") == 1
        assert html.count('role="img"') == len(KEYS) == html.count('class="only-read"')


@pytest.mark.parametrize("n", [1, 2, 380, 381, 1000, 5_000_000])
def test_a_thinned_curve_is_the_curve(n: int) -> None:
    """Both ends are drawn whole, and no gap between two drawn points is higher than a line is thick."""
    ranks = thinned(n)
    assert ranks[0] == 0 and ranks[-1] == n - 1 and ranks == sorted(set(ranks))
    assert len(ranks) <= POINTS_MAX + 2 * TAIL
    assert ranks[:TAIL] == list(range(min(n, TAIL))) and ranks[-min(n, TAIL) :] == list(range(n))[-TAIL:]
    assert all(after - before <= max(1, 1 + n / (POINTS_MAX - 1)) for before, after in itertools.pairwise(ranks))


def test_a_curve_of_millions_is_small_and_keeps_its_tail() -> None:
    times = array("d", sorted([0.1 + i * 1e-7 for i in range(1_000_000)] + [9.0]))
    svg = plots.ttft_ecdf(
        [ArmStep("candidate", 8, times, len(times), ())], title="t", x_label="x", y_label="y", failed="failed"
    )
    assert svg is not None and len(svg) < 60_000
    assert "n=1000001" in svg and "failed" not in svg


def test_a_large_run_is_read_as_a_small_one(recorded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In processes of their own and without the chunks: the same samples, failed requests and odd lines included."""
    run = Run(recorded)
    arms, steps = list(run.facts["scenario"]["arms"]), run.facts["scenario"]["steps"]
    expected = samples.arm_steps(run, arms, steps, [1, 2])
    monkeypatch.setattr("gates.metrics._known", {})
    monkeypatch.setattr("gates.parallel.SHARED_FROM_BYTES", 0)
    monkeypatch.setattr("gates.parallel.os.cpu_count", lambda: 2)
    assert samples.arm_steps(run, arms, steps, [1, 2]) == expected
    assert any(s.requests for s in expected[0])


ODD = [
    {"status": "failed", "error": "gone", "t_first_ns": None, "t_last_ns": None, "usage": None, "finish_reason": None},
    {"text": '","wave":7,"measured":false,"status":"failed","usage":{"prompt_tokens":1,"completion_tokens":9},'},
    {"first_logprobs": {'"usage":': -1.0, "wave": -2.0}},
    {"run": 'a "quoted" run'},
    {},
]


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("spaced", [False, True])
def test_a_record_is_read_as_it_stands(recorded: Path, tmp_path: Path, odd: Json, spaced: bool) -> None:
    source = next(recorded.glob("raw/candidate/c*/b01"))
    lines = [json.loads(line) for line in (source / "requests.jsonl").read_text().splitlines()]
    lines[-1] |= odd
    gaps = (", ", ": ") if spaced else (",", ":")
    (tmp_path / "requests.jsonl").write_text("".join(json.dumps(line, separators=gaps) + "\n" for line in lines))
    trial, seen = Trial(tmp_path, {}), metrics.Collector()
    for _, wave in metrics.waves(records(trial)):
        seen.take(wave, None)
    whole = metrics.values_of(trial)
    for name in samples.DRAWN:
        assert seen.values().by_name[name] == whole.by_name[name]
    assert (seen.values().ttft_s, seen.values().failed) == (whole.ttft_s, whole.failed)


@pytest.mark.parametrize("line", [b"{", b'{"id": 1}', b"[]\n", b'{"id": NaN}\n'])
def test_a_bad_record_is_refused(tmp_path: Path, line: bytes) -> None:
    (tmp_path / "requests.jsonl").write_bytes(line)
    with pytest.raises(EvidenceError, match=r"requests\.jsonl:1"):
        list(records(Trial(tmp_path, {})))


def test_failed_requests_never_arrive() -> None:
    svg = plots.ttft_ecdf(
        [ArmStep("candidate", 8, (1.0, 2.0), 4, ())], title="t", x_label="x", y_label="y", failed="failed"
    )
    assert svg is not None and "n=4  failed=2" in svg


def test_the_interval_is_the_verdicts(judged: Callable[..., Path]) -> None:
    """Another interval in verdict.json gives another picture: none is computed from the samples."""
    wide = {**ROW, "estimate": {**ESTIMATE, "low": 0.2}}
    drawn = []
    for row in (ROW, wide):
        (requirement,) = load_view(judged("PASS", [row])).requirements
        words = ("block", "interval", "limit", "relaxed")
        drawn.append(plots.paired([(requirement, ())], name="p", title="t", x_label="x", scale=100.0, words=words))
    assert None not in drawn and drawn[0] != drawn[1]


def test_where_tokens_came_from_is_told_by_the_counters(recorded: Path, judged: Callable[..., Path]) -> None:
    shares = {(s.arm, s.step): s.tokens for s in load_view(judged()).served}
    assert shares, "the recorded run has counters"
    for (arm, _), (device, dram, tier, computed) in shares.items():
        assert device == dram == 0
        assert (tier == 0 < computed) if arm == "recompute" else computed < tier


def test_a_split_is_told_apart_without_colour() -> None:
    svg = plots.served([Served("candidate", 8, (1.0, 2.0, 3.0, 4.0))], title="t", x_label="x", places=tuple("abcd"))
    assert svg is not None and len(set(re.findall(r"url\(#(served-\w+)\)", svg))) >= 3, "hatches, not colours alone"


def test_a_run_without_a_block_that_counts_is_drawn_and_says_so(judged: Callable[..., Path]) -> None:
    run = judged("INVALID", [{**ROW, "verdict": "INVALID"}], {"blocks": {"valid": [], "invalid": []}})
    assert load_view(run).arm_steps and any(s.requests for s in load_view(run).arm_steps)


@pytest.mark.usefixtures("pictures")
def test_such_pictures_are_marked(judged: Callable[..., Path]) -> None:
    run = judged("INVALID", [{**ROW, "verdict": "INVALID"}], {"blocks": {"valid": [], "invalid": []}})
    assert Words("en")("pictures.uncounted") in page(run)
