"""What could never pass is refused before anything starts, by `plan` and by the gate itself, in one line."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gates import criteria, fit
from scenarios.load import ConfigError, load_scenario, load_site

ROOT = Path(__file__).resolve().parent.parent
LIMITS = criteria.default_file("g3").read_text(encoding="utf-8")
SCENARIO = (ROOT / "scenarios/catalog/rehearsal.toml").read_text(encoding="utf-8")
REHEARSAL = (ROOT / "scenarios/sites/rehearsal.toml").read_text(encoding="utf-8")
LAB = re.findall(r"```toml\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)[0]
OF_LAB = ('model = "kvgate-toy"', 'model = "qwen3-coder-480b"')
NAMED = ("\n[pace]", '\nbaseline_record = "g2.json"\n[pace]')
RECORD: dict[str, Any] = {
    "schema": 1, "site": "lab-a", "model": "qwen3-coder-480b", "made_utc": "2026-01-01T00:00:00+00:00",
    "run_id": "20260101T000000Z-g2-abcdef", "manifest_sha256": "0" * 64,
    "noise": {"ttft_p50_s": 0.01, "output_tokens_per_s": 0.01},
    "levels": [
        {"step": step, "metric": metric, "day_values": [1.0, 1.1, 1.2]}
        for step in (2, 4) for metric in ("ttft_p50_s", "output_tokens_per_s")
    ],
}  # fmt: skip
Change = tuple[str, str]


def changed(text: str, *changes: Change) -> str:
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    return text


def written(folder: Path, site: str, scenario: str, limits: str) -> list[str]:
    """Write a site with criteria of its own, and a scenario; return the options that name them."""
    lines = [line for line in site.splitlines() if not line.startswith("criteria = ")]
    lines.insert(lines.index("schema = 1") + 1, 'criteria = { g3 = "mine.toml" }')
    for name, text in (("site", "\n".join(lines)), ("scenario", scenario), ("mine", limits)):
        (folder / f"{name}.toml").write_text(text, encoding="utf-8")
    return ["--site", str(folder / "site.toml"), "--scenario", str(folder / "scenario.toml")]


def checked(folder: Path, site: str = REHEARSAL, scenario: str = SCENARIO, limits: str = LIMITS) -> None:
    written(folder, site, scenario, limits)
    found = load_site(str(folder / "site.toml"))
    file = criteria.file_for("g3", found)
    fit.check(found, load_scenario(str(folder / "scenario.toml"), found), criteria.load(file), file)


def refused(folder: Path, **texts: str) -> str:
    with pytest.raises(ConfigError) as caught:
        checked(folder, **texts)
    told = str(caught.value)
    assert "\n" not in told
    assert told.endswith("; as it is, the run could never pass")
    return told


GHOST = ('arms = ["candidate", "baseline"]\ncompare = "gain"', 'arms = ["candidate", "ghost"]\ncompare = "gain"')
OWN = ('precision = 0.03\nrationale = "Cold', 'precision = 0.03\nalpha = 0.01\nmin_blocks = 13\nrationale = "Cold')
WITHOUT_OWN = ("alpha = 0.01\nmin_blocks = 3\n", "")
BLOCKS_2, BLOCKS_20 = (("recompute_blocks = 3", f"recompute_blocks = {n}") for n in (2, 20))


@pytest.mark.parametrize(
    ("limits", "scenario", "line", "told"),
    [
        ((GHOST,), (), GHOST[1], "mine.toml:{}: criterion \"throughput-gain\": arms: 'ghost' is no arm of"),
        ((OWN,), (), "min_blocks = 13", 'mine.toml:{}: criterion "ttft-p50-reduction": min_blocks: it needs 13 blocks'),
        (
            (("min_blocks = 3", "min_blocks = 4"),), (), "min_blocks = 4",
            'mine.toml:{}: criterion "ttft-p50-vs-recompute": min_blocks: it needs 4 blocks with both arms, and '
            "workload.recompute_blocks of",
        ),
        ((), (BLOCKS_2,), "min_blocks = 3", 'mine.toml:{}: criterion "ttft-p50-vs-recompute": min_blocks: it needs 3'),
        (
            (("min_blocks = 3", "min_blocks = 13"),), (BLOCKS_20,), "min_blocks = 13",
            'mine.toml:{}: criterion "ttft-p50-vs-recompute": min_blocks: it needs 13 blocks with both arms, and the last',
        ),
        # Without min_blocks of its own a criterion waits for the first look, which recompute's three blocks never reach.
        ((WITHOUT_OWN,), (), None, 'criterion "ttft-p50-vs-recompute": min_blocks: it needs 5 blocks'),
    ],
)  # fmt: skip
def test_criteria_that_the_scenario_cannot_meet(
    tmp_path: Path, limits: tuple[Change, ...], scenario: tuple[Change, ...], line: str | None, told: str
) -> None:
    text = changed(LIMITS, *limits)
    found = refused(tmp_path, limits=text, scenario=changed(SCENARIO, *scenario))
    assert told.format(1 + text[: text.index(line)].count("\n") if line else "") in found


def test_a_last_look_before_recompute_has_its_blocks(tmp_path: Path) -> None:
    looks = ("blocks = [5, 8, 12]\nalpha = [0.010, 0.015, 0.025]", "blocks = [3]\nalpha = [0.05]")
    checked(tmp_path, limits=changed(LIMITS, looks))
    told = refused(tmp_path, limits=changed(LIMITS, looks, ("min_blocks = 3", "min_blocks = 4")))
    assert "it needs 4 blocks with both arms, and the last look gives 3" in told


def test_one_output_token_has_no_time_between_tokens(tmp_path: Path) -> None:
    one = changed(SCENARIO, ("output_tokens = 8", "output_tokens = 1"))
    line = 1 + one[: one.index("output_tokens = 1")].count("\n")
    told = refused(tmp_path, scenario=one)
    assert f"scenario.toml:{line}: workload.output_tokens: 1: 'guard-itl-p99' of " in told
    head, *rows = LIMITS.split("[[criterion]]")
    others = [row for row in rows if not re.search('metric = "(itl|tpot)_', row)]
    checked(tmp_path, scenario=one, limits="[[criterion]]".join([head, *others]))
    checked(tmp_path, scenario=changed(SCENARIO, ("output_tokens = 8", "output_tokens = 2")))


def test_a_prompt_shorter_than_a_chunk_is_refused_with_its_scenario(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"workload\.prompt_tokens: shorter than one chunk"):
        checked(tmp_path, scenario=changed(SCENARIO, ("prompt_tokens = 4096", "prompt_tokens = 200")))


@pytest.mark.parametrize("scenario", ["rehearsal", "short-context"])
def test_what_is_shipped_fits(scenario: str) -> None:
    site = load_site("rehearsal")
    file = criteria.file_for("g3", site)
    fit.check(site, load_scenario(scenario, site), criteria.load(file), file)


def test_the_lab_of_the_readme_fits(tmp_path: Path) -> None:
    checked(tmp_path, site=LAB, scenario=changed(SCENARIO, OF_LAB))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (('policy = "exclusive"', 'policy = "resident"'), "engine.policy: 'resident': its blocks do not sample"),
        (
            ("prefill_roofline_tokens_per_s", "# prefill_roofline_tokens_per_s"),
            "site.toml: models.qwen3-coder-480b.prefill_roofline_tokens_per_s: is missing: 'ttft-p50-vs-recompute' needs",
        ),
    ],
)
def test_a_lab_that_could_only_be_invalid(tmp_path: Path, change: Change, told: str) -> None:
    assert told in refused(tmp_path, site=changed(LAB, change), scenario=changed(SCENARIO, OF_LAB))


@pytest.mark.parametrize(
    ("record", "told"),
    [
        ({"site": "lab-b"}, "it is of site 'lab-b' and model 'qwen3-coder-480b': name the record of 'lab-a'"),
        ({"model": "other"}, "it is of site 'lab-a' and model 'other': name the record of"),
        ({"levels": RECORD["levels"][:3]}, "levels: no output_tokens_per_s at concurrency 4: "),
    ],
)
def test_a_record_of_another_baseline(tmp_path: Path, record: dict[str, Any], told: str) -> None:
    site, scenario = changed(LAB, NAMED), changed(SCENARIO, OF_LAB)
    (tmp_path / "g2.json").write_text(json.dumps(RECORD), encoding="utf-8")
    checked(tmp_path, site=site, scenario=scenario)
    (tmp_path / "g2.json").write_text(json.dumps(RECORD | record), encoding="utf-8")
    assert f"{tmp_path / 'g2.json'}: {told}" in refused(tmp_path, site=site, scenario=scenario)


@pytest.mark.parametrize(
    "command", [("gates", "plan"), ("pytest", "gates/test_g3.py", "-q"), ("pytest", "gates/test_g3.py", "--smoke")]
)
def test_plan_and_the_gate_itself_refuse_in_one_line(tmp_path: Path, command: tuple[str, ...]) -> None:
    options = written(tmp_path, REHEARSAL, SCENARIO, changed(LIMITS, GHOST))
    runs = ["--runs", str(tmp_path / "runs")] if command[0] == "pytest" else []
    argv = [sys.executable, "-m", *command, *options, *runs]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=120)
    told = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    assert (done.returncode, len(told)) == (4, 1)
    assert "kvgate: " in told[0] and "'ghost' is no arm of" in told[0]
    assert not (tmp_path / "runs").exists()
