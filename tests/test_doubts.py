"""Dishonest opponents: a slow recompute and a sick baseline void the comparisons that use them, and no others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gates import baseline, verdict
from gates.nodata import NoData
from scenarios.load import ConfigError
from tests.synthetic import make_run
from tests.synthetic_truth import Truth, put
from workloads.evidence import Run, RunDir

Json = dict[str, Any]
NEAR = {"recompute": 3.0, "baseline": 1.2, "candidate": 0.84}  # a gain inside the band
RECORD: Json = {
    "schema": 1, "site": "s", "model": "m", "made_utc": "2026-01-01", "run_id": "g2", "manifest_sha256": "0" * 64,
    "noise": {"ttft_p50_s": 0.02}, "levels": [{"step": 2, "metric": "ttft_p50_s", "day_values": [1.0, 1.1, 1.2]}],
}  # fmt: skip


def judged(folder: Path, **truth: Any) -> dict[tuple[str, str], list[Json]]:
    """Rows by the arm that the candidate is compared with."""
    result = verdict.judge(Run(make_run(folder, Truth(**truth))))
    found: dict[str, list[Json]] = {}
    for row in result["criteria"]:
        found.setdefault(row["arms"][-1], []).append(row)
    return found  # type: ignore[return-value]


def verdicts(rows: list[Json]) -> set[str]:
    return {row["verdict"] for row in rows}


def roofline(tokens_per_s: float | None) -> Any:
    def change(facts: Json) -> None:
        facts["site"]["models"]["kvgate-toy"]["prefill_roofline_tokens_per_s"] = tokens_per_s

    return change


def test_a_recompute_under_its_share_of_the_roofline_voids_only_what_uses_it(tmp_path: Path) -> None:
    rows = judged(tmp_path, run=roofline(20_000.0))
    assert verdicts(rows["recompute"]) == {"INVALID"}
    assert "too slow to be an honest opponent" in rows["recompute"][0]["reason"]
    assert rows["recompute"][0]["estimate"] is None
    assert verdicts(rows["baseline"]) == {"PASS"}


def test_a_recompute_at_its_share_counts(tmp_path: Path) -> None:
    assert verdicts(judged(tmp_path, run=roofline(5000.0))["recompute"]) == {"PASS"}


def test_a_lab_that_declares_no_roofline_cannot_compare_with_recompute(tmp_path: Path) -> None:
    rows = judged(tmp_path, rehearsal=False, run=roofline(None))
    assert verdicts(rows["recompute"]) == {"INVALID"}
    assert "declares no prefill_roofline_tokens_per_s" in rows["recompute"][0]["reason"]


def test_a_lab_with_a_fitting_record_may_be_above_the_band(tmp_path: Path) -> None:
    rows = judged(tmp_path, rehearsal=False)
    assert verdicts(rows["baseline"]) == {"PASS"}
    assert any("explain" in row["flags"] for row in rows["baseline"])


def without_record(folder: Path, **truth: Any) -> list[Json]:
    """Return the rows against the baseline of a lab run whose record was taken away before it was sealed."""
    path = make_run(folder, Truth(rehearsal=False, seal=False, **truth))
    (path / "baseline.json").unlink()
    RunDir(path).seal("end")
    return [row for row in verdict.judge(Run(path))["criteria"] if row["arms"] == ["candidate", "baseline"]]


def test_above_the_band_without_a_record_is_invalid_in_a_lab(tmp_path: Path) -> None:
    rows = without_record(tmp_path)
    assert verdicts(rows) == {"INVALID"}
    assert "no record of G2" in rows[0]["reason"]


def test_a_record_that_the_site_names_is_missed_within_the_band_too(tmp_path: Path) -> None:
    def named(facts: Json) -> None:
        facts["site"]["baseline_record"] = "g2/baseline.json"

    rows = without_record(tmp_path, ttft_s=NEAR, run=named)
    assert verdicts(rows) == {"INVALID"}
    assert "names a record of its baseline, g2/baseline.json, but the run holds no baseline.json" in rows[0]["reason"]


@pytest.mark.parametrize("factor", [0.7, 1.4])
@pytest.mark.parametrize("ttft_s", [NEAR, {**NEAR, "candidate": 0.6}], ids=["in the band", "above it"])
def test_a_baseline_that_g2_does_not_know_is_invalid_in_either_direction(
    tmp_path: Path, factor: float, ttft_s: dict[str, float]
) -> None:
    def other(record: Json) -> None:
        for level in record["levels"]:
            level["day_values"] = [value * factor for value in level["day_values"]]

    rows = judged(tmp_path, ttft_s=ttft_s, record=other)
    assert verdicts(rows["baseline"]) == {"INVALID"}
    assert "it is not the baseline that G2 has recorded" in rows["baseline"][0]["reason"]
    assert verdicts(rows["recompute"]) == {"PASS"}


RECORD_FAULTS: dict[str, tuple[Any, str]] = {
    "of another site": (put(site="elsewhere"), "is of site 'elsewhere'"),
    "a step missing": (lambda r: r.update(levels=r["levels"][:2]), "has no ttft_p50_s at concurrency 4"),
}


@pytest.mark.parametrize("name", RECORD_FAULTS)
def test_a_record_that_does_not_fit_is_invalid(tmp_path: Path, name: str) -> None:
    change, told = RECORD_FAULTS[name]
    rows = judged(tmp_path, ttft_s=NEAR, record=change)
    assert any(told in row["reason"] and row["verdict"] == "INVALID" for row in rows["baseline"])


def test_a_baseline_slower_than_recompute_makes_a_good_ratio(tmp_path: Path) -> None:
    rows = judged(tmp_path, ttft_s={"recompute": 1.0, "baseline": 1.5, "candidate": 0.6})
    assert verdicts(rows["baseline"]) == {"INVALID"}
    assert "slower than recompute" in rows["baseline"][0]["reason"]


def test_a_prediction_interval_holds_the_variance_between_days() -> None:
    record = baseline.Record.model_validate(RECORD)
    found = baseline.predicted(record, "ttft_p50_s", 2)
    assert not isinstance(found, NoData)
    # By hand: logs 0, 0.09531, 0.18232; mean 0.09254, sd 0.09119; t(0.995, 2) = 9.9248; x sqrt(4/3).
    assert (found.point, found.low, found.high) == pytest.approx((1.09696, 0.38573, 3.11957), rel=1e-3)
    assert isinstance(baseline.predicted(record, "ttft_p50_s", 4), NoData)


WRONG: dict[str, tuple[Any, str]] = {
    "two days": (lambda r: r["levels"][0].update(day_values=[1.0, 2.0]), "levels.0.day_values"),
    "no time": (lambda r: r["levels"][0].update(day_values=[1.0, 2.0, 0.0]), "greater than 0"),
    "newer": (put(schema=2), "schema"),
    "foreign key": (put(more=1), "more"),
    "hash": (put(manifest_sha256="x"), "manifest_sha256"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_record_that_is_none_is_refused_in_one_line(tmp_path: Path, name: str) -> None:
    change, told = WRONG[name]
    record = json.loads(json.dumps(RECORD))
    change(record)
    path = tmp_path / "baseline.json"
    path.write_text(json.dumps(record), encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        baseline.read(path)
    assert told in str(caught.value) and str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@given(st.binary(max_size=200))
def test_anything_is_a_record_or_refused(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "baseline.json"
    path.write_bytes(data)
    with pytest.raises(ConfigError):
        baseline.read(path)
