"""Do site, scenario and criteria fit together? A run that could never pass is refused before anything starts."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from gates import baseline
from gates import criteria as criteria_files
from gates.criteria import Criteria
from scenarios.load import ConfigError, Loaded
from scenarios.model import RECOMPUTE, Scenario, Site

BETWEEN_TOKENS = ("itl_p99_s", "tpot_p50_s")
OUTPUT_TOKENS_MIN = 2  # of an answer that has a time between tokens


def check(site: Loaded[Site], scenario: Loaded[Scenario], criteria: Criteria, file: Path) -> None:
    """Refuse a run that no measurement could let pass; `file` is what the criteria were loaded from.

    Raises ConfigError: one line that names file, key and what to do.
    """
    for found in (_of_criteria(scenario, criteria, file), _of_site(site, scenario.value, criteria)):
        for told in found:
            raise ConfigError(f"{told}; as it is, the run could never pass")


def _of_criteria(scenario: Loaded[Scenario], criteria: Criteria, file: Path) -> Iterator[str]:
    """Yield what each criterion lacks in the scenario."""
    load, last = scenario.value.workload, criteria.looks.blocks[-1]
    for one in criteria.criterion:
        for arm in one.arms:
            if arm not in scenario.value.arms:
                place, known = criteria_files.where(file, criteria, one, "arms"), ", ".join(scenario.value.arms)
                yield f"{place}: '{arm}' is no arm of {scenario.path}: give one of {known}"
        joined = min(last, load.recompute_blocks) if RECOMPUTE in one.arms else last
        needed = one.min_blocks or criteria.looks.blocks[0]
        if len(one.arms) > 1 and needed > joined:
            place = criteria_files.where(file, criteria, one, "min_blocks")
            by = "the last look" if joined == last else f"workload.recompute_blocks of {scenario.path}"
            yield f"{place}: it needs {needed} blocks with both arms, and {by} gives {joined}: mend one of them"
        if one.metric in BETWEEN_TOKENS and load.output_tokens < OUTPUT_TOKENS_MIN:
            place = _place(scenario, "workload.output_tokens")
            yield f"{place}: {load.output_tokens}: '{one.id}' of {file} needs {OUTPUT_TOKENS_MIN} or more"


def _of_site(site: Loaded[Site], scenario: Scenario, criteria: Criteria) -> Iterator[str]:
    """Yield what a lab, or its record of the baseline, lacks for the measurement to be trusted."""
    value, name = site.value, scenario.model
    if not value.rehearsal and value.engine.policy != "exclusive":
        told = "its blocks do not sample the variance between engine starts: a lab needs 'exclusive'"
        yield f"{_place(site, 'engine.policy')}: '{value.engine.policy}': {told}"
    honest = next((one.id for one in criteria.criterion if "honest-recompute" in one.requires), None)
    if not value.rehearsal and honest and value.models[name].prefill_roofline_tokens_per_s is None:
        place = _place(site, f"models.{name}.prefill_roofline_tokens_per_s")
        yield f"{place}: is missing: '{honest}' needs to know what these accelerators could do at best"
    if value.baseline_record is not None:
        yield from _of_record(site.path.parent / value.baseline_record, value.name, scenario)


def _of_record(path: Path, site: str, scenario: Scenario) -> Iterator[str]:
    """Yield what a record of the baseline does not hold. Raises ConfigError where it is none."""
    record = baseline.read(path)
    if (record.site, record.model) != (site, scenario.model):
        told = f"it is of site '{record.site}' and model '{record.model}'"
        yield f"{path}: {told}: name the record of '{site}' and '{scenario.model}'"
    if record.made() > datetime.now(UTC):
        yield f"{path}: made_utc: {record.made_utc}: it is yet to come: correct it, or this host's clock"
    known = {(level.metric, level.step) for level in record.levels}
    for step in scenario.steps:
        for metric in ("ttft_p50_s", "output_tokens_per_s"):
            if (metric, step) not in known:
                yield f"{path}: levels: no {metric} at concurrency {step}: leave out that step, or let G2 record it"


def _place(loaded: Loaded[Site] | Loaded[Scenario], key: str) -> str:
    origin = loaded.origins.get(key, "default")
    return f"{loaded.path if origin == 'default' else origin}: {key}"
