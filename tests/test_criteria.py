"""Criteria files: the shipped one says what the documents state; a wrong one is refused with its place."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from gates import criteria
from scenarios.load import ConfigError, load_site

TEXT = criteria.default_file("g3").read_text(encoding="utf-8")


def test_the_shipped_limits() -> None:
    found = {c.id: c for c in criteria.load(criteria.default_file("g3")).criterion}
    ttft, gain = found["ttft-p50-reduction"], found["throughput-gain"]
    assert (ttft.limit, ttft.tolerance, ttft.policy, ttft.precision) == (0.25, 0.0, "measured", 0.03)
    assert (gain.limit, gain.tolerance, gain.band_high) == (0.29, 0.02, 0.40)
    assert found["ttft-p50-vs-recompute"].alpha == 0.01
    assert all(c.rationale and c.source for c in found.values())


def test_the_rehearsals_file_differs_in_its_guards_alone() -> None:
    shipped = criteria.load(criteria.default_file("g3"))
    rehearsal = criteria.load(criteria.file_for("g3", load_site("rehearsal")))
    assert rehearsal.looks == shipped.looks
    for mine, theirs in zip(rehearsal.criterion, shipped.criterion, strict=True):
        if mine.id.startswith("guard-"):
            assert mine.limit > theirs.limit
            wide = {"limit": theirs.limit, "precision": theirs.precision, "source": theirs.source}
            assert mine.model_copy(update=wide) == theirs
        else:
            assert mine == theirs


def test_a_site_may_bring_a_criteria_file_of_its_own(tmp_path: Path) -> None:
    site = load_site("rehearsal")
    beside = dataclasses.replace(
        site, path=tmp_path / "site.toml", value=site.value.model_copy(update={"criteria": {"g3": "mine.toml"}})
    )
    with pytest.raises(ConfigError, match=r"criteria.g3: no such file: .*mine.toml"):
        criteria.file_for("g3", beside)
    (tmp_path / "mine.toml").write_text(TEXT, encoding="utf-8")
    assert criteria.file_for("g3", beside) == tmp_path / "mine.toml"


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
        ('arms = ["candidate", "baseline"]', 'arms = ["baseline", "candidate"]', "the first must be 'candidate'"),
        ('arms = ["candidate", "baseline"]', 'arms = ["candidate", "candidate"]', "the first must be 'candidate'"),
        ('compare = "reduction"', 'compare = "gain"', "'gain' belongs to a rate"),
        ('operator = "<="', 'operator = ">="', "increases have an upper limit"),
        ('requires = ["honest-recompute"]\n', '', "'honest-recompute' belongs to comparisons with 'recompute'"),
        ('policy = "exact"', 'policy = "proven"', "'exact' belongs to counts"),
        ("min_blocks = 3\n", "", "goes together with min_blocks"),
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
