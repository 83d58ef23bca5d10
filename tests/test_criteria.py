"""Criteria files: the shipped one says what the documents state; a wrong one is refused with its place."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from gates import criteria, oc, verdict
from reports import reasons
from scenarios.load import ConfigError, load_site
from tests.synthetic import make_run
from tests.synthetic_truth import ROWS, Truth
from workloads.evidence import Run

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


def refused(tmp_path: Path, text: str) -> str:
    path = tmp_path / "g3.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        criteria.load(path)
    return str(caught.value).removeprefix(f"{path}:")


@pytest.mark.parametrize(
    ("criterion", "old", "new", "key"),
    [
        ("throughput-gain", "limit = 0.29", 'limit = "0.29"', "limit"),
        ("throughput-gain", "limit = 0.29", "limit = nan", "limit"),
        ("guard-tpot", "precision = 0.10", "precision = 0.10\nprecison = 1", "precison"),
        ("failed-requests", 'policy = "exact"', 'policy = "proven"', "policy"),
        ("tier-faults", 'id = "tier-faults"', 'id = "failed-requests"', "id"),
    ],
)
def test_a_fault_is_told_with_its_own_line_and_criterion(
    tmp_path: Path, criterion: str, old: str, new: str, key: str
) -> None:
    begin = TEXT.index(f'id = "{criterion}"')
    text = TEXT[:begin] + TEXT[begin:].replace(old, new, 1)
    told = refused(tmp_path, text)
    line = 1 + text[: text.index(f"{key} = ", begin)].count("\n")
    name = new.removeprefix("id = ") if key == "id" else f'"{criterion}"'
    assert told.startswith(f"{line}: criterion {name}: {key}: ")
    assert "\n" not in told


def test_a_missing_key_is_looked_for_in_the_criterion_that_lacks_it(tmp_path: Path) -> None:
    head, own = TEXT.split('id = "guard-itl-p99"\n')
    text = head + 'id = "guard-itl-p99"\n' + own.replace("precision = 0.10\n", "", 1)
    told = refused(tmp_path, text)
    line = head.count("\n")  # its [[criterion]]
    assert told.startswith(f'{line}: criterion "guard-itl-p99": precision: belongs to policy')


def test_a_criterion_without_an_id_is_told_by_its_number(tmp_path: Path) -> None:
    told = refused(tmp_path, TEXT.replace('id = "throughput-gain"\n', ""))
    line = TEXT[: TEXT.index('id = "throughput-gain"')].count("\n")  # its [[criterion]]
    assert told.startswith(f"{line}: criterion 2, which has no id: id: is missing")


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("blocks = [5, 8, 12]", "blocks = [1, 8, 12]", "looks.blocks: a look judges 3 to 100 blocks"),
        ("blocks = [5, 8, 12]", "blocks = [5, 8, 100000000]", "looks.blocks: a look judges 3 to 100 blocks"),
        ("alpha = [0.010,", "alpha = [1e-300,", "looks.alpha: "),
        ("tolerance = 0.02", "tolerance = 5", 'criterion "throughput-gain": tolerance: 5 lets nearly anything pass'),
        ("tolerance = 0.02", "tolerance = 0.11", 'criterion "throughput-gain": tolerance: '),
        ("band_high = 0.40", "band_high = 0.2", 'criterion "throughput-gain": band_high: 0.2 is not above the limit'),
        ("precision = 0.03", "precision = 1.1", 'criterion "ttft-p50-reduction": precision: 1.1 lets the point decide'),
        ("limit = 0.29", "limit = -0.9", 'criterion "throughput-gain": limit: below 0'),
        ("limit = 0.105", "limit = 1e9", 'criterion "guard-ttft-p99": limit: an increase'),
        ("limit = 0.105", "limit = 0.105\nband_high = 0.2", 'criterion "guard-ttft-p99": band_high: belongs to'),
        ('compare = "count"', 'compare = "count"\ntolerance = 0.1', 'criterion "failed-requests": limit: of a count'),
        ('unit = "events"', 'unit = "events"\nlimit = 2.0', 'criterion "tier-faults": limit: wrong answers'),
        ('unit = "events"', 'unit = "events"\nlimit = 1e-9', 'criterion "tier-faults": limit: wrong answers'),
        ("min_blocks = 3", "min_blocks = 1", 'criterion "ttft-p50-vs-recompute": min_blocks: 1: give a number from 3'),
    ],
)  # fmt: skip
def test_numbers_by_which_nothing_or_everything_would_pass_are_refused(
    tmp_path: Path, old: str, new: str, told: str
) -> None:
    assert old in TEXT
    head, text = TEXT.rsplit("limit = 0.0\n", 1) if "events" in old else ("", TEXT)  # that row's own limit goes
    line, _, rest = refused(tmp_path, head + text.replace(old, new, 1)).partition(": ")
    assert rest.startswith(told)
    assert int(line) > 1


def test_the_widest_numbers_that_are_allowed_can_be_simulated(tmp_path: Path) -> None:
    text = TEXT.replace("[5, 8, 12]", f"[{criteria.BLOCKS_MIN}, 8, {criteria.BLOCKS_MAX}]")
    text = text.replace("tolerance = 0.02", f"tolerance = {criteria.TOLERANCE_MAX}")
    text = text.replace("precision = 0.03", f"precision = {criteria.PRECISION_MAX}").replace("0.010", "0.0001")
    path = tmp_path / "g3.toml"
    path.write_text(text, encoding="utf-8")
    found = oc.p_pass(criteria.load(path), [0.75], [1.29], repetitions=20)
    assert found.pass_.n == 20


def without(*ids: str) -> str:
    """Return the shipped file without the criteria of these ids."""
    head, *rows = TEXT.split("[[criterion]]")
    kept = [row for row in rows if not any(f'id = "{one}"' in row for one in ids)]
    assert len(rows) - len(kept) == len(ids)
    return "[[criterion]]".join([head, *kept])


def test_a_file_by_which_wrong_answers_would_pass_is_refused(tmp_path: Path) -> None:
    told = refused(tmp_path, without("tier-faults"))
    assert re.match(r"\d+: criterion: none counts the candidate's tier_faults", told)
    assert 'add one with metric = "tier_faults" and limit = 0.0' in told
    assert "\n" not in told


def test_a_run_that_was_sealed_with_such_a_file_is_invalid(tmp_path: Path) -> None:
    result = verdict.judge(Run(make_run(tmp_path, Truth(criteria=without("tier-faults")))))
    assert (result["verdict"], result["criteria"]) == ("INVALID", [])
    assert "none counts the candidate's tier_faults" in result["reasons"][-1]


@pytest.mark.parametrize(
    ("gone", "told"),
    [
        ("ttft-p50-reduction", "no criterion compares ttft_p50_s with baseline as a reduction"),
        ("throughput-gain", "no criterion compares output_tokens_per_s with baseline as a gain"),
        ("ttft-p50-vs-recompute", "no criterion compares ttft_p50_s with recompute as a reduction"),
        ("throughput-vs-recompute", "no criterion compares output_tokens_per_s with recompute as a gain"),
        ("guard-ttft-p99", "no criterion compares ttft_p99_s with baseline"),
        ("guard-itl-p99", "no criterion compares itl_p99_s with baseline"),
        ("guard-tpot", "no criterion compares tpot_p50_s with baseline"),
        ("failed-requests", "no criterion counts failed_requests"),
    ],
)
def test_a_requirement_that_no_criterion_states_is_named(tmp_path: Path, gone: str, told: str) -> None:
    path = tmp_path / "g3.toml"
    path.write_text(without(gone), encoding="utf-8")
    assert criteria.lacking(criteria.load(path)) == [told]


@pytest.mark.parametrize("name", ["g3", "g3-rehearsal"])
def test_the_shipped_files_lack_nothing(name: str) -> None:
    assert criteria.lacking(criteria.load(criteria.default_file(name))) == []


def test_a_median_that_may_not_rise_much_is_no_reduction(tmp_path: Path) -> None:
    path = tmp_path / "g3.toml"
    path.write_text(
        TEXT.replace('compare = "reduction"\noperator = ">="\nlimit = 0.25', 'compare = "increase"\noperator = "<="\nlimit = 2.0'),
        encoding="utf-8",
    )  # fmt: skip
    assert criteria.lacking(criteria.load(path)) == ["no criterion compares ttft_p50_s with baseline as a reduction"]


def test_a_stricter_guard_and_weaker_limits_are_a_sites_to_choose(tmp_path: Path) -> None:
    path = tmp_path / "g3.toml"
    text = TEXT.replace("limit = 0.25", "limit = 0.0").replace("limit = 0.29", "limit = 0.1")
    guard = 'metric = "itl_p99_s"\narms = ["candidate", "baseline"]\ncompare = '
    text = text.replace(guard + '"increase"\noperator = "<="', guard + '"reduction"\noperator = ">="')
    path.write_text(text, encoding="utf-8")
    assert criteria.lacking(criteria.load(path)) == []


NEAR = {"recompute": 3.0, "baseline": 1.2, "candidate": 0.84}


@pytest.mark.parametrize(
    ("gone", "told"),
    [
        (("guard-itl-p99",), ["no criterion compares itl_p99_s with baseline"]),
        (
            ("ttft-p50-vs-recompute", "failed-requests"),
            ["no criterion compares ttft_p50_s with recompute as a reduction", "no criterion counts failed_requests"],
        ),
        ((), []),
    ],
)
def test_a_lab_run_that_asked_for_less_than_the_gate_may_pass_and_is_no_acceptance(
    tmp_path: Path, gone: tuple[str, ...], told: list[str]
) -> None:
    rows = ROWS - 2 * len(gone)
    path = make_run(
        tmp_path,
        Truth(rehearsal=False, ttft_s=NEAR, criteria=without(*gone), selection={"collected": rows, "selected": rows}),
    )
    result = verdict.judge(Run(path))
    assert (result["verdict"], result["acceptance"]) == ("PASS", not told)
    assert result["reasons"] == [f"no acceptance: {line}" for line in told]
    assert all(reasons.translation(reason, "zh") for reason in result["reasons"])
