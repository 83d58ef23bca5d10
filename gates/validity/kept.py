"""Evidence that must be there, whatever it says, and a run.json that describes a site and a scenario."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from gates.validity.breach import HARNESS, Tell
from gates.validity.records import name_of
from scenarios.model import Scenario, Site
from workloads.evidence import Run, read_json
from workloads.prompts import seed_of_nonce
from workloads.seal import unended


def check_described(run: Run, tell: Tell) -> None:
    """Tell if site or scenario of run.json is none that a run could have begun with: the budgets are in there.

    Raises KeyError where one is not there at all.
    """
    for key, model in (("site", Site), ("scenario", Scenario)):
        try:
            model.model_validate(run.facts[key])
        except ValidationError as error:
            fault = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(str(part) for part in (key, *fault["loc"]))
            tell("described", HARNESS, f"run.json: {place}: {' '.join(fault['msg'].split())}")
    for key in ("software", "host"):
        if not isinstance(run.facts[key], dict) or not run.facts[key]:
            tell("described", HARNESS, f"run.json: {key}: says nothing: nobody can tell what was measured with")
    _model_described(run, tell)
    if type(run.facts["seed"]) is not int:
        tell("described", HARNESS, f"run.json: seed: {run.facts['seed']!r} is no whole number")
    nonce = run.facts["nonce"]
    if nonce is not None and run.facts["seed"] != seed_of_nonce(str(nonce)):
        tell("described", HARNESS, f"run.json: seed: not the one that the nonce {str(nonce)[:60]!r} makes")


def _model_described(run: Run, tell: Tell) -> None:
    """A generated model is known by the hashes of its files alone: another one has another KV and another speed."""
    name = run.facts["scenario"]["model"]
    if run.facts["model"]["name"] != name:
        tell("described", HARNESS, f"run.json: model: of {run.facts['model']['name']!r}, {name!r} is the scenario's")
    if run.facts["site"]["models"][name]["source"] == "generated" and not run.facts["model"]["files"]:
        tell("described", HARNESS, "run.json: model.files: empty, though the model is generated")


def check_kept(run: Run, tell: Tell) -> None:
    """Tell of logs and host probes that are not there: what they would say of the run nobody can look up.

    An engine may have nothing to say during a trial, so that a log may be empty. The probes after the run are not
    asked for here, since a run is looked at while it goes on: see `unfinished`.
    """
    if not _any_probe(run, "before"):
        tell("kept", HARNESS, "host/before: no probe of the host was kept")
    for trial in run.trials():
        if trial.facts["completed"] is True and not (trial.path / "engine.log").is_file():
            tell("kept", HARNESS, f"{name_of(trial)}: its engine.log is missing")
    for file in sorted(run.path.glob("raw/*/start-*/start.json")):
        logs = ["engine.log"] + (["lmcache.log"] if read_json(file)["lmcache"] is not None else [])
        for log in logs:
            if not file.with_name(log).is_file():
                place = Path(*file.parts[-3:-1]).as_posix()
                tell("kept", HARNESS, f"{place}: {log} is missing")


def unfinished(run: Run) -> list[str]:
    """Return a line on what only a run that has come to its end holds, and this one does not."""
    return unended(run.path) + ([] if _any_probe(run, "after") else ["host/after: no probe of the host was kept"])


def _any_probe(run: Run, when: str) -> bool:
    return any(file.is_file() and file.stat().st_size > 0 for file in run.path.glob(f"host/{when}*/*"))
