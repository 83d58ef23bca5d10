"""A complete, sealed G3 run without an engine, as in docs/evidence.md: each record in its file, in a run's order."""

from __future__ import annotations

import contextlib
import math
import random
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

from gates import criteria
from scenarios.load import load_scenario, load_site
from scenarios.model import PROBE, Scenario, Site
from tests.synthetic_facts import of_block, of_run, of_start, of_trial, recorded_baseline
from tests.synthetic_host import Host
from tests.synthetic_requests import alone, calibrated, of_wave
from tests.synthetic_stored import exchanged, hashed, populated, recalled
from tests.synthetic_truth import Truth
from workloads import calibrate
from workloads.attempts import enter, enter_end
from workloads.blocks import plan_blocks
from workloads.evidence import RunDir, sha256_of
from workloads.ledger import EXTRACT
from workloads.resume import Position

Json = dict[str, Any]


def make_run(folder: Path, truth: Truth | None = None) -> Path:
    """Write the run below `folder` and return its path. By default every check holds and the verdict is PASS."""
    # A hundred files that wait for the disk would be most of the time of the tests.
    with mock.patch("os.fsync"):
        return _Writer(folder, truth or Truth()).write()


def _described(truth: Truth) -> tuple[Site, Scenario]:
    site = load_site("rehearsal")
    scenario = load_scenario("rehearsal", site).value
    workload = scenario.workload.model_copy(update=dict(truth.load))
    steps = tuple(truth.steps) or scenario.steps
    return site.value, scenario.model_copy(update={"steps": steps, "workload": workload})


class _Writer:
    def __init__(self, folder: Path, truth: Truth) -> None:
        self.truth = truth
        self.run = RunDir.create(folder, "g3")
        site, self.scenario = _described(truth)
        source = criteria.default_file("g3")
        text = source.read_text(encoding="utf-8") if truth.criteria is None else truth.criteria
        self.run.write_bytes("criteria.toml", text.encode())
        looks = criteria.load(source).looks
        criteria_sha256 = sha256_of(self.run.path / "criteria.toml")
        self.facts = of_run(truth, self.run.run_id, site, self.scenario, looks, criteria_sha256)
        self.host = Host(truth, Site.model_validate(self.facts["site"]), self.scenario)
        self.plans = plan_blocks(self.scenario, looks.blocks, truth.seed)
        self.draw = random.Random(truth.seed)
        self.fresh = not truth.rehearsal  # every use of an arm is a start of its own
        self.at = Position()

    def write(self) -> Path:
        truth = self.truth
        truth.run(self.facts)
        self.run.write_json("run.json", self.facts)
        self._enter()
        if truth.record is not None or not truth.rehearsal:
            self.run.write_json("baseline.json", recorded_baseline(self.host))
        self._calibrate()
        self.run.write_bytes("host/before/uname.txt", b"$ uname -a\nLinux h 6.1\n[status 0]\n")
        for arm in self.scenario.arms:
            tiered = bool(self.scenario.arms[arm].tiers)
            if tiered or not self.fresh:
                self._start(arm)
            if tiered:
                for prompt_set in range(self.scenario.workload.prompt_sets):
                    self.run.append(f"raw/{arm}/populate.jsonl", populated(self.host, arm, prompt_set))
                self._recall(arm)
        self.run.write_json("raw/baseline/control.json", exchanged(self.host, self.run.run_id))
        for block in range(1, truth.blocks + 1):
            self._block(block)
        for incident in truth.incidents:
            self.run.incident(**incident)
        self.run.write_bytes("host/after/uname.txt", b"$ uname -a\nLinux h 6.1\n[status 0]\n")
        if truth.seal:
            self.run.seal("end")
        return self.run.path

    def _enter(self) -> None:
        """Write an extract of a ledger that holds the earlier attempts, too; none where the facts cannot be entered."""
        with tempfile.TemporaryDirectory() as folder, contextlib.suppress(LookupError, TypeError, ValueError):
            for number in range(1, self.truth.attempt):
                enter(Path(folder), {**self.facts, "run_id": f"earlier-{number}"})
                enter_end(Path(folder), f"earlier-{number}", "FAIL", "0" * 64)
            extract = enter(Path(folder), self.facts)
            self.truth.extract(extract)
            self.run.write_json(EXTRACT, extract)

    def _calibrate(self) -> None:
        t_ns = 1_000_000_000
        for step in self.scenario.steps:
            for wave in range(math.ceil(calibrate.REQUESTS_MIN / step)):
                for index in range(step):
                    record, line = calibrated(self.host, step, wave, index, t_ns)
                    self.run.append(f"calibration/c{step}/requests.jsonl", record)
                    self.run.append(f"calibration/c{step}/server.jsonl", line)
                t_ns += 100_000_000

    def _start(self, arm: str) -> None:
        self.host.start(arm)
        folder = f"raw/{arm}/start-{self.host.starts[arm]:02d}"
        self.run.write_json(f"{folder}/start.json", of_start(self.host, arm))
        self.host.book(arm, alone(self.host, len(PROBE), 1), stored=False)
        self.run.write_bytes(f"{folder}/engine.log", b"ready\n")
        if self.scenario.arms[arm].tiers:
            self.run.write_bytes(f"{folder}/lmcache.log", b"ready\n")

    def _recall(self, arm: str) -> None:
        self.run.write_json(f"raw/{arm}/needles.json", recalled(self.host, self.run.run_id, arm))

    def _block(self, number: int) -> None:
        plan = self.plans[min(self.at.valid, len(self.plans) - 1)]
        facts = of_block(plan, number, self.at.replaces)
        for position, arm in enumerate(plan.order):
            if self.fresh:
                self._start(arm)
            for step in plan.steps:
                if f"{arm}/c{step}/b{number:02d}" not in self.truth.leave_out:
                    self._trial(arm, step, number, position, plan.prompt_set)
                    if arm == "recompute" and not (self.run.path / "raw/recompute/needles.json").exists():
                        self._recall(arm)
        self.truth.block(facts)
        self.run.write_json(f"blocks/b{number:02d}.json", facts)
        with contextlib.suppress(LookupError, TypeError, ValueError):
            self.at.take(facts)

    def _trial(self, arm: str, step: int, block: int, position: int, prompt_set: int) -> None:
        discarded, measured = self.scenario.waves(arm)
        folder = f"raw/{arm}/c{step}/b{block:02d}"
        facts = of_trial(self.host, arm, step, block, position, prompt_set)
        self.run.write_json(f"{folder}/trial.json", facts)
        self.run.write_bytes(f"{folder}/engine.log", b"")
        factor = math.exp(self.draw.gauss(0.0, self.truth.noise))
        for wave in range(discarded + measured):
            self._snapshot(arm, folder, wave, wave >= discarded, "before")
            records = [
                of_wave(self.host, arm, step, block, wave, wave >= discarded, index, prompt_set, factor)
                for index in range(step)
            ]
            self.host.now_ns += 60_000_000_000
            for record in records:
                self.host.book(arm, record)
                self.truth.request(record)
            self.run.append_all(f"{folder}/requests.jsonl", records)
            self._snapshot(arm, folder, wave, wave >= discarded, "after")
        if self.scenario.arms[arm].tiers:
            found = {**hashed(self.host, prompt_set), "arm": arm, "block": block}
            self.truth.chunks(found)
            self.run.write_json(f"{folder}/chunks.json", found)

    def _snapshot(self, arm: str, folder: str, wave: int, measured: bool, when: str) -> None:
        snapshot = {**self.host.counters(arm, wave, measured, when), "arm": arm}
        self.truth.snapshot(snapshot)
        del snapshot["arm"]
        self.run.append(f"{folder}/counters.jsonl", snapshot)
