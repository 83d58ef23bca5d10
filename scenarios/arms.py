"""From site and scenario to a plan per arm, and to the fleet that gives the arms out."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from scenarios import toy_model
from scenarios.engine import ArmPlan, Say
from scenarios.fleet import Exclusive, Fleet, Logs, Resident, Started
from scenarios.model import Scenario, Site
from scenarios.process import ROOT, StartFailed

MODEL_DEADLINE_S = 300.0


def model_folder(site: Site, scenario: Scenario, work: Path) -> Path:
    """Return the folder of the scenario's model; the rehearsal's is generated on first use, in a process of its own.

    Raises StartFailed when it cannot be generated.
    """
    served = site.models[scenario.model]
    if served.path is not None:
        return Path(served.path)
    # Absolute: with a relative path the names of the chunk files begin with a dot, and globs miss them.
    folder = (work / "models" / f"{scenario.model}-{toy_model.FORMAT}").resolve()
    if not toy_model.is_complete(folder):
        done = subprocess.run(
            [sys.executable, "-m", "scenarios.toy_model", str(folder)],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=MODEL_DEADLINE_S,
            check=False,
        )
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or ["no output"])[-1]
            raise StartFailed(f"the rehearsal's model cannot be generated: {last}")
    return folder


def arm_plans(site: Site, scenario: Scenario, model: Path, work: Path, scratch: Path) -> dict[str, ArmPlan]:
    """Return the plan of every arm; tiers with a relative path lie below `scratch`, which belongs to one run."""
    plans = {}
    for name, arm in scenario.arms.items():
        tier_name = arm.tiers[0] if arm.tiers else None
        tier = site.tiers[tier_name] if tier_name is not None else None
        plans[name] = ArmPlan(
            name=name,
            arm=arm,
            site=site,
            model_name=scenario.model,
            model=site.models[scenario.model],
            model_folder=model,
            tier_name=tier_name,
            tier=tier,
            tier_folder=(scratch / tier.path).resolve() if tier is not None else None,
            compile_cache=(work / "compile").resolve(),
        )
    return plans


def fleet(
    site: Site, plans: dict[str, ArmPlan], logs: Logs, started: Started, say: Say, starts: Mapping[str, int]
) -> Fleet:
    """Return the fleet that the site's policy asks for; `starts` says how often each arm was started before."""
    kind = Resident if site.engine.policy == "resident" else Exclusive
    return kind(plans, logs, started, say, starts)
