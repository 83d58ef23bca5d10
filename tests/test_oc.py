"""The simulated gate: known answers, the same numbers for the same seed, and the document that is made of them."""

from __future__ import annotations

import math
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from scipy import stats as scipy_stats

from gates import __main__ as gates_main
from gates import compare, criteria, stats
from gates.oc import (
    Noise,
    Outcome,
    Requirement,
    Residuals,
    command,
    decision,
    p_pass,
    requirements,
    residuals,
    show,
    simulate,
)
from gates.oc.orders import slots
from gates.oc.simulation import away_from_limit, with_policy
from scenarios.load import ConfigError

ROOT = Path(__file__).resolve().parent.parent
G3 = criteria.load(criteria.default_file("g3"))
R2 = (0.74, 0.68, 0.7375), (1.29, 1.40, 1.33)
LAW = Residuals("ugly", np.array([[-1.0, 2.0], [-0.5, 0.5], [0.0, 0.0], [0.5, -1.0], [1.0, -1.5]]))


def ends(found: Outcome) -> tuple[float, float, float]:
    return found.pass_.point, found.fail.point, found.inconclusive.point


def one_row(sd: float = 0.03) -> list[Requirement]:
    return requirements(G3, [0.75], [1.29], sd, sd)[:1]


def of(options: str) -> Outcome:
    return command.case(command.parse(shlex.split(options))).run()


@pytest.mark.parametrize(
    ("ratios", "gains", "expected"),
    [
        ([0.74, 0.68], [1.28, 1.40], (1, 0, 0)),
        ([0.74, 0.76], [1.28, 1.40], (0, 1, 0)),
        ([0.74, 0.68], [1.26, 1.40], (0, 1, 0)),
        ([1.0], [1.0], (0, 1, 0)),
        ([0.85], [1.15], (0, 1, 0)),
    ],
)
@pytest.mark.parametrize("policy", ["measured", "proven"])
def test_without_noise_the_truth_decides_at_the_first_look(
    ratios: list[float], gains: list[float], expected: tuple[float, ...], policy: str
) -> None:
    found = p_pass(with_policy(G3, policy), ratios, gains, 0.0, 0.0, repetitions=50)
    assert ends(found) == expected
    assert found.mean_blocks.point == 5


def test_the_same_seed_gives_the_same_numbers() -> None:
    first, again, other = (p_pass(G3, *R2, repetitions=3000, seed=seed) for seed in (7, 7, 8))
    assert first == again
    assert first != other


def test_shares_add_up_and_lie_in_their_intervals() -> None:
    found = p_pass(G3, *R2, repetitions=2000)
    assert sum(ends(found)) == pytest.approx(1)
    for share in (found.pass_, found.fail, found.inconclusive):
        assert share.low <= share.point <= share.high
        assert (share.confidence, share.n) == (0.95, 2000)
    assert 5 <= found.mean_blocks.low <= found.mean_blocks.high <= 12


def test_one_row_of_normal_noise_agrees_with_the_t_test() -> None:
    """With one look and `proven`, a PASS on the limit is the t test's error: known without any simulation."""
    looks = G3.looks.model_copy(update={"blocks": (5,), "alpha": (0.025,)})
    judged = with_policy(G3, "proven").model_copy(update={"looks": looks})
    normal = Residuals("normal", np.random.default_rng(3).normal(size=(20_000, 2)))
    row = away_from_limit(requirements(judged, [0.75], [1.29], 0.03, 0.03)[:1], 0.0)
    found = simulate(row, judged, Noise(normal), 20_000, 1)
    assert scipy_stats.binomtest(round(found.pass_.point * 20_000), 20_000, 0.025).pvalue > 0.001
    assert scipy_stats.binomtest(round(found.fail.point * 20_000), 20_000, 0.025).pvalue > 0.001


@pytest.mark.parametrize("away", [-1.0, -0.5, 0.5, 1.0])
@pytest.mark.parametrize("policy", ["measured", "proven"])
def test_the_simulation_does_what_the_judge_does_look_by_look(away: float, policy: str) -> None:
    """The same draws, judged run by run by the judge's own function, end the same way after the same blocks."""
    judged = with_policy(G3, policy)
    row = away_from_limit(requirements(judged, [0.75], [1.29], 0.04, 0.04)[:1], away)
    repeats = 200
    draws = Noise().draw(np.random.default_rng(5), repeats, judged.looks.blocks, row)[:, :, 0] + row[0].truth
    seen = {"PASS": 0, "FAIL": 0, "INCONCLUSIVE": 0}
    used = []
    for values in draws:
        for blocks, alpha in zip(judged.looks.blocks, judged.looks.alpha, strict=True):
            end, _ = compare._by_policy(judged.criterion[0], stats.mean_interval(-values[:blocks], alpha))
            if end != "INCONCLUSIVE":
                break
        seen[end] += 1
        used.append(blocks)
    found = simulate(row, judged, Noise(), repeats, 5)
    assert ends(found) == tuple(seen[name] / repeats for name in ("PASS", "FAIL", "INCONCLUSIVE"))
    assert found.mean_blocks.point == pytest.approx(np.mean(used))


@pytest.mark.parametrize(
    ("away", "noise"), [(a, n) for a in (-1.0, 1.0) for n in (Noise(), Noise(drift_per_slot=0.02))]
)
def test_wrong_verdicts_are_rare_one_precision_from_the_limit(away: float, noise: Noise) -> None:
    found = simulate(away_from_limit(one_row(), away), G3, noise, 20_000, 1)
    assert (found.pass_ if away < 0 else found.fail).high <= 0.005


def test_a_fixed_order_under_drift_favours_the_first_arm() -> None:
    short, inside = away_from_limit(one_row(), -1.0), away_from_limit(one_row(), 1.0)
    candidate, baseline = (Noise(drift_per_slot=0.02, order=order) for order in ("candidate-first", "baseline-first"))
    assert simulate(short, G3, candidate, 4000, 1).pass_.low > 0.05
    assert simulate(inside, G3, baseline, 4000, 1).fail.low > 0.05


def test_counting_waves_is_wrong_more_often_than_blocks() -> None:
    row = away_from_limit(one_row(), -1.0)
    blocks, waves = (simulate(row, G3, Noise(between=10, count_waves=c), 8000, 1) for c in (False, True))
    assert blocks.pass_.high < 0.005 < waves.pass_.low
    assert waves.mean_blocks.point < 5.5


def test_orders_are_balanced_at_every_look() -> None:
    candidate, baseline = slots(G3.looks.blocks, "random")
    first = candidate < baseline
    for look in G3.looks.blocks:
        assert np.abs(2 * first[:, :look].sum(axis=1) - look).max() <= 1
    assert len(np.unique(first, axis=0)) > 50


@pytest.mark.parametrize(
    "noise",
    [Noise(), Noise(common=0.5), Noise(between=10), Noise(LAW), Noise(LAW, common=1.0), Noise(LAW, in_time=True)],
    ids=["t5", "common", "starts", "residuals", "common residuals", "in time"],
)
def test_a_block_has_the_sd_that_was_stated(noise: Noise) -> None:
    rows = requirements(G3, [0.75] * 2, [1.29] * 2, 0.03, 0.05)
    drawn = noise.draw(np.random.default_rng(2), 20_000, (5, 8), rows)
    assert drawn.shape == (20_000, 8, 4)
    assert drawn.std(axis=(0, 1)) == pytest.approx([0.03, 0.03, 0.05, 0.05], rel=0.05)
    assert drawn.mean(axis=(0, 1)) == pytest.approx([0.0] * 4, abs=0.002)


def test_real_noise_keeps_ttft_and_throughput_of_a_block_together() -> None:
    rows = requirements(G3, [0.75] * 2, [1.29] * 2, 0.03, 0.03)
    drawn = Noise(LAW).draw(np.random.default_rng(2), 5000, (5,), rows).reshape(-1, 4)
    expected = np.corrcoef(LAW.values.T)[0, 1]
    found = np.corrcoef(drawn.T)
    assert found[0, 2] == pytest.approx(expected, abs=0.02)  # TTFT and throughput at the first step
    assert abs(found[0, 1]) < 0.05  # TTFT at two steps
    assert found[0, 3] == pytest.approx(0, abs=0.05)


def test_common_noise_is_common() -> None:
    rows = requirements(G3, [0.75] * 2, [1.29] * 2, 0.03, 0.03)
    drawn = Noise(common=1.0).draw(np.random.default_rng(2), 50, (5,), rows)
    assert np.ptp(drawn, axis=2).max() == pytest.approx(0)


def test_guards_are_judged_where_asked_for() -> None:
    without, with_guards = (requirements(G3, [0.6], [1.6], 0.01, 0.01, sd) for sd in (None, 0.01))
    assert (len(without), len(with_guards)) == (2, 5)
    assert ends(simulate(with_guards, G3, Noise(), 200, 1))[0] == 1
    noisy = requirements(G3, [0.6], [1.6], 0.01, 0.01, 0.5)
    assert simulate(noisy, G3, Noise(), 500, 1).pass_.point < 0.5


def with_own(alpha: float, min_blocks: int) -> criteria.Criteria:
    """Return the criteria with an error of its own for the TTFT, outside the looks."""
    ttft, *others = G3.criterion
    own = ttft.model_copy(update={"alpha": alpha, "min_blocks": min_blocks})
    return G3.model_copy(update={"criterion": (own, *others)})


def test_a_row_with_an_error_of_its_own_is_simulated_as_it_is_judged() -> None:
    usual = p_pass(G3, *R2, 0.04, 0.04, repetitions=4000)
    assert ends(p_pass(with_own(0.01, 3), [0.75], [1.0], 0.0, 0.0, repetitions=50)) == (0, 1, 0)
    stricter = p_pass(with_own(0.0001, 3), *R2, 0.04, 0.04, repetitions=4000)
    assert stricter.pass_.high < usual.pass_.low


def test_nothing_is_decided_for_a_row_before_it_has_its_blocks() -> None:
    sure = [0.5], [1.6], 0.01, 0.01
    assert p_pass(G3, *sure, repetitions=200).mean_blocks.point == 5
    assert p_pass(with_own(0.01, 8), *sure, repetitions=200).mean_blocks.point == 8
    never = p_pass(with_own(0.01, 13), *sure, repetitions=200)
    assert ends(never) == (0, 0, 1)


def test_a_later_attempt_passes_less_often() -> None:
    first, third = (of(f"--only throughput-gain --steps 1 --away 0 --policy proven --attempt {k}") for k in (1, 3))
    assert third.pass_.high < first.pass_.low


@pytest.mark.parametrize(
    ("ratios", "gains", "sd"),
    [([], [], 0.03), ([0.7], [1.3, 1.3], 0.03), ([0.0], [1.3], 0.03), ([0.7], [math.nan], 0.03), ([0.7], [1.3], -1.0)],
)
def test_a_truth_that_is_none_is_refused(ratios: list[float], gains: list[float], sd: float) -> None:
    with pytest.raises(ValueError, match="ratio"):
        p_pass(G3, ratios, gains, sd, sd)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("--only nope", "'nope' is not one of ttft-p50-reduction, throughput-gain"),
        ("--noise nowhere.csv", "nowhere.csv: cannot be read"),
        ("--in-time", "--in-time needs --noise"),
        ("--count-waves", "--count-waves needs --between"),
        ("--between 10 --common 0.5", "leave out --common"),
        ("--common 1.5", "--common is a share"),
        ("--away nan", "--away is a number"),
        ("--attempt 0", "counted from 1"),
        ("--ttft-ratios 0.7 0.8 --gains 1.3 1.3 1.3", "each step needs one"),
        ("--ttft-ratios 0.7 0.8 0.7 --steps 2", "--steps 2: give one ratio and one gain, or 2 of each"),
        ("--away 0 --ttft-ratios 0.7", "give one of them"),
        ("--away 0 --gains 1.3", "give one of them"),
        ("--away 1e300", "--away is a number"),
        ("--between 1e300", "--between one that is not negative"),
        ("--steps 0", "--steps is a number from 1"),
        ("--steps 1000000000", "--steps is a number from 1"),
        ("--seed -1", "--seed is a whole number"),
        ("--sd 1e300", "an sd is not negative and at most 3"),
        ("--sd-throughput nan", "an sd is not negative and at most 3"),
        ("--guard-sd 1e300", "an sd is not negative and at most 3"),
        (f"--attempt 1{'0' * 400}", "--attempt is at most"),
        ("--out /dev/null/x", "--out: /dev/null/x: cannot be made: Not a directory"),
        ("--decision /nowhere/decision.md", "/nowhere/decision.md: cannot be written"),
        ("--decision /tmp", "/tmp: cannot be written"),
        ("--decision decision.md --repetitions 0", "--repetitions is counted from 1"),
        ("--decision decision.md --sd 0.05 --fixed-order", "leave out --sd, --fixed-order"),
    ],
)
def test_options_that_make_no_sense_are_one_line(options: str, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert gates_main.main(["oc", *shlex.split(options)]) == 4
    printed = capsys.readouterr()
    assert printed.out == ""
    assert told in printed.err
    assert len(printed.err.splitlines()) == 1


def test_noise_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "aa.csv"
    pairs = [(0.02, -0.01), (-0.03, 0.02), (0.01, 0.0), (0.04, -0.02), (0.0, 0.01)]
    file.write_text("block,log_ttft_ratio,log_throughput_ratio\n" + "".join(f"1,{t},{x}\n" for t, x in pairs))
    law = residuals.load(str(file))
    assert law.values.mean(axis=0) == pytest.approx([0, 0])
    assert np.corrcoef(law.values.T)[0, 1] > 0.8  # turned: a block slow in TTFT is slow in throughput
    assert law.values[1, 0] > 0  # a shorter TTFT is better
    own = command.case(command.parse(["--noise", str(file)])).rows
    assert (own[0].sd, own[3].sd) == pytest.approx(law.sd())
    stated = command.case(command.parse(["--noise", str(file), "--sd", "0.03"])).rows
    assert {row.sd for row in stated} == {0.03}


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("a,b\n1,2\n", "needs a column log_ttft_ratio"),
        ("log_ttft_ratio\n0.1\nx\n", ":3: log_ttft_ratio: 'x' is no number"),
        ("log_ttft_ratio\n0.1\nnan\n", ":3: log_ttft_ratio: 'nan' is no number"),
        ("log_ttft_ratio\n0.1\n0.2\n", "2 rows of noise, 5 needed"),
        ("log_ttft_ratio\n" + "0.1\n" * 6, "does not vary"),
        ("log_ttft_ratio\n0.1\n1e308\n", ":3: log_ttft_ratio: 1e+308 is no log ratio"),
        ("", "needs a column"),
    ],
)
def test_a_bad_noise_file_is_named(tmp_path: Path, content: str, told: str) -> None:
    (tmp_path / "aa.csv").write_text(content)
    with pytest.raises(ConfigError, match=r"aa\.csv") as error:
        residuals.load(str(tmp_path / "aa.csv"))
    assert told in str(error.value)


@pytest.mark.parametrize(("name", "rows"), [("kvct-nvme", 48), ("kvct-dram", 25), ("nightly", 16)])
def test_the_public_noise(name: str, rows: int) -> None:
    if not residuals.shared_data().is_dir():
        pytest.skip("the shared data is not here")
    law = residuals.load(name)
    assert law.values.shape == (rows, 2)
    assert min(law.sd()) > 0.03
    assert np.corrcoef(law.values.T)[0, 1] > 0.5


def test_the_command_prints_a_table_and_draws_the_same_picture_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder in ("a", "b"):
        assert gates_main.main(["oc", "--repetitions", "200", "--steps", "2", "--out", str(tmp_path / folder)]) == 0
    printed = capsys.readouterr().out
    assert "| A/A: no effect at all | 0 % " in printed
    assert "published R2" not in printed  # three steps, two were asked for
    for name in ("oc.md", "oc.svg"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert "INCONCLUSIVE" in (tmp_path / "a/oc.svg").read_text(encoding="utf-8")


@pytest.mark.parametrize("options", ["--sd 3 --guard-sd 3", "--away 1000 --between 1000", "--attempt 1000 --sd 0"])
def test_the_farthest_that_can_be_asked_for_is_simulated_without_a_warning(options: str) -> None:
    assert sum(ends(of(f"{options} --steps 1 --repetitions 50"))) == pytest.approx(1)


def test_a_file_of_oc_that_cannot_be_written_is_named_and_nothing_is_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "oc.md").mkdir()
    argv = ["oc", "--away", "0", "--steps", "1", "--repetitions", "10", "--out", str(tmp_path)]
    assert gates_main.main(argv) == 4
    told = capsys.readouterr().err
    assert f"{tmp_path / 'oc.md'}: cannot be written" in told and told.count("\n") == 1
    assert [p.name for p in tmp_path.iterdir()] == ["oc.md"]


def test_the_document_says_so_where_a_bar_is_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVGATE_SHARED", str(tmp_path))  # no real noise
    monkeypatch.setattr(decision, "WRONG", 1e-6)
    told = decision.write(tmp_path / "decision.md", 300)
    text = (tmp_path / "decision.md").read_text(encoding="utf-8")
    assert not re.search(r"\[\[\w+\]\]", text)
    assert "are not fully held:**" in text
    assert all(f"- {line}" in text for line in told[1:])
    assert len(told) > 1
    assert "**Not shown: kvct-nvme, kvct-dram, nightly.**" in text


@pytest.mark.parametrize(
    "options", ["--only ttft-p50-reduction --steps 1 --away -1", f"{decision.R2} --policy proven --sd 0.02"]
)
def test_the_shipped_document_holds_what_its_commands_give(options: str) -> None:
    text = (ROOT / "docs/decision.md").read_text(encoding="utf-8")
    command_line = f"`oc {options} --repetitions 100000`"
    (line,) = {line for line in text.splitlines() if line.startswith("|") and command_line in line}
    found = of(f"{options} --repetitions 100000")
    assert show.share(found.pass_) in line
    assert show.share(found.inconclusive) in line
    assert f"{found.mean_blocks.point:.2f}" in line


def test_the_shipped_document_is_made_of_the_template() -> None:
    text = (ROOT / "docs/decision.md").read_text(encoding="utf-8").splitlines()
    template = decision.TEMPLATE.read_text(encoding="utf-8").splitlines()
    assert [line for line in template if "[[" not in line and line not in text] == []


def test_the_document_names_no_policy_that_no_site_can_have() -> None:
    text = decision.TEMPLATE.read_text(encoding="utf-8")
    assert "`resident`" in text and "`exclusive`" in text
    assert "`swap`" not in text
