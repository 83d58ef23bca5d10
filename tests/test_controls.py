"""The table of live controls; the controls themselves run on the real engine."""

from __future__ import annotations

import dataclasses

import pytest

from controls.__main__ import CONTROLS, SCENARIO, SHORT, SITE, Outcome, changed, table
from scenarios.load import load_toml
from scenarios.model import Scenario, Site

GOOD = next(control for control in CONTROLS if control.name == "good")
WRONG = next(control for control in CONTROLS if control.name == "wrong-kv")


@pytest.mark.parametrize("control", CONTROLS, ids=lambda control: control.name)
def test_what_a_control_changes_is_a_site_and_a_scenario(control: object, tmp_path: object) -> None:
    site, scenario = tmp_path / "site.toml", tmp_path / "scenario.toml"  # type: ignore[operator]
    site.write_text(changed(SITE.read_text("utf-8"), *control.site), encoding="utf-8")  # type: ignore[attr-defined]
    scenario.write_text(changed(SCENARIO.read_text("utf-8"), *SHORT), encoding="utf-8")
    assert load_toml(site, Site).value.rehearsal
    assert load_toml(scenario, Scenario).value.steps == (2,)


def test_a_control_without_anything_to_change_is_told() -> None:
    with pytest.raises(ValueError, match="nothing to change"):
        changed("a", ("b", "c"))


@pytest.mark.parametrize(
    ("given", "reason", "holds"),
    [
        ("FAIL", "candidate: 4 of 20 first tokens are not recompute's", True),
        ("FAIL", "the whole interval misses 25.0 %", False),  # the right verdict for another reason
        ("PASS", "", False),
        ("INVALID", "first tokens", False),
        ("no verdict", "first tokens", False),
    ],
)
def test_a_control_holds_by_its_verdict_and_its_reason(given: str, reason: str, holds: bool) -> None:
    outcome = Outcome(WRONG, given, reason, 60.0)
    assert outcome.holds is holds
    (line,) = table([outcome])[2:]
    assert (f"**{given}**" in line) is not holds


def test_the_table_keeps_its_columns_whatever_the_reason() -> None:
    outcome = Outcome(dataclasses.replace(GOOD, what="a|b"), "PASS", "x|y", 61.0)
    assert table([outcome])[2].replace("\\|", "").count("|") == 7
