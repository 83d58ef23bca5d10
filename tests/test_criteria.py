"""Criteria files: the shipped one says what the documents state; a wrong one is refused with its place."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gates import criteria
from scenarios.load import ConfigError

TEXT = criteria.default_file("g3").read_text(encoding="utf-8")


def test_the_shipped_limits() -> None:
    found = {c.id: c for c in criteria.load(criteria.default_file("g3")).criterion}
    ttft, gain = found["ttft-p50-reduction"], found["throughput-gain"]
    assert (ttft.limit, ttft.tolerance, ttft.policy, ttft.precision) == (0.25, 0.0, "measured", 0.03)
    assert (gain.limit, gain.tolerance, gain.band_high) == (0.29, 0.02, 0.40)
    assert found["ttft-p50-vs-recompute"].alpha == 0.01
    assert all(c.rationale and c.source for c in found.values())


def test_a_case_per_criterion_and_step() -> None:
    loaded = criteria.load(criteria.default_file("g3"))
    cases = criteria.cases(loaded, (2, 4))
    assert [c.id for c in cases[:2]] == ["ttft-p50-reduction-c2", "ttft-p50-reduction-c4"]
    assert len(cases) == 2 * len(loaded.criterion)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("limit = 0.25", "limitt = 0.25", "unknown key; did you mean 'limit'?"),
        ("limit = 0.25", "limit = nan", "finite number"),
        ("limit = 0.25", "limit = 1.5", "a reduction is below 1"),
        ('policy = "measured"\nprecision = 0.03\nrationale = "Cold', 'policy = "measured"\nrationale = "Cold', "belongs to policy 'measured'"),
        ('id = "throughput-gain"', 'id = "ttft-p50-reduction"', "two of them have the same id"),
        ("alpha = [0.010, 0.015, 0.025]", "alpha = [0.010, 0.015]", "needs one value per look"),
        ("blocks = [5, 8, 12]", "blocks = [8, 5, 12]", "must rise"),
        ('policy = "exact"', 'policy = "proven"', "'exact' belongs to counts"),
        ("min_blocks = 3\nrationale = \"A tier that is slower", "rationale = \"A tier that is slower", "goes together with min_blocks"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_refused(tmp_path: Path, old: str, new: str, told: str) -> None:
    assert old in TEXT
    path = tmp_path / "g3.toml"
    path.write_text(TEXT.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        criteria.load(path)
    assert told in str(caught.value)
    assert re.match(rf"{re.escape(str(path))}:\d+: ", str(caught.value))
