"""One gate run from beginning to end: describe it, bring the arms up, measure, seal. Judges nothing."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from scenarios import arms, tiers, toy_model
from scenarios.engine import ArmPlan, LiveArm
from scenarios.load import Loaded
from scenarios.model import Scenario, Site
from scenarios.process import StartFailed
from workloads import attempts, client, kernel_time, populate, provenance, run, signing
from workloads.evidence import SCHEMA, EvidenceError, Run, RunDir, sha256_of
from workloads.progress import Progress
from workloads.resume import Position, ResumeError, check_unchanged, position, starts_begun, write_unfinished

Json = dict[str, Any]


@dataclass(frozen=True)
class Request:
    """What was asked for: everything that run.json says of it."""

    gate: str
    kind: str  # "gate", "smoke", or "selfcheck": a control of the suite itself
    site: Loaded[Site]
    scenario: Loaded[Scenario]
    runs: Path
    criteria_file: Path
    baseline_record: Path | None  # G2's
    looks: Mapping[str, Sequence[float]]  # as in the criteria: blocks, alpha
    seed: int
    nonce: str | None  # the text that made the seed
    selection: Mapping[str, int]
    overrides: Mapping[str, str]
    power: Json | None = None  # what the run can decide, by simulation
    resume: Path | None = None  # a run that was interrupted


def one_wave(scenario: Scenario) -> Scenario:
    """Return the scenario cut down to one measured wave per arm and step: a smoke run."""
    load = scenario.workload.model_copy(
        update={"waves_discarded": 0, "waves_measured": 1, "recompute_blocks": 1, "recompute_waves": 1}
    )
    return scenario.model_copy(update={"workload": load})


def carry_out(
    request: Request, check: run.Check, decide: run.Decide, progress: Progress, announce: Callable[[Path], None]
) -> str | None:
    """Carry the run out and seal it; return None, or why it could not be finished. `announce` gets its folder at once.

    Whatever happens, the evidence so far is sealed and every process is ended. KeyboardInterrupt is recorded as an
    incident and raised again. LedgerError and ResumeError come before anything is measured: this run must not begin, or
    cannot go on.
    """
    recorded = RunDir.create(request.runs, request.gate) if request.resume is None else RunDir.reopen(request.resume)
    at = _resumed(request, recorded, progress) if request.resume is not None else None
    site, scenario = request.site.value, request.scenario.value
    work = Path(site.work_dir)
    scratch = work / "runs" / recorded.run_id
    facts: Json | None = None
    if request.resume is None:
        recorded.write_bytes("criteria.toml", request.criteria_file.read_bytes())
        if request.baseline_record is not None:
            recorded.write_bytes("baseline.json", request.baseline_record.read_bytes())
        facts = _facts(request, recorded, progress)
        attempts.begin(recorded, facts, progress.line)
        recorded.write_json("run.json", facts)
    else:
        attempts.resume(recorded, Run(recorded.path).facts, progress.line)
    announce(recorded.path)
    progress.line(f"run {recorded.path}")
    if unsigned := signing.try_key():
        progress.line(f"the manifest will not be signed: {unsigned}")
    problem: str | None = None
    keep = False  # what lies in the run's own tiers, for it to go on with
    try:
        try:
            model = arms.model_folder(site, scenario, work)
            if facts is not None:
                facts["model"]["files"] = _model_files(site, scenario, model)
                recorded.write_json("run.json", facts)
            _measure(
                request, recorded, arms.arm_plans(site, scenario, model, work, scratch), check, decide, progress, at
            )
        except (run.AbortedError, StartFailed) as error:
            problem = str(error)
            if isinstance(error, StartFailed):
                recorded.incident(whose="host", kind="start-failed", message=problem)
        except client.ClientError as error:
            problem = str(error)
            recorded.incident(whose="harness", kind="client-failed", message=problem)
        except KeyboardInterrupt:
            keep = True
            recorded.incident(whose="harness", kind="interrupted", message="stopped by a signal before the end")
            raise
        except BaseException as error:
            recorded.incident(whose="harness", kind="crashed", message=f"{type(error).__name__}: {error}")
            raise
    finally:
        recorded.seal("end")
        if unsigned := signing.problem(recorded.path):
            progress.line(f"the manifest is not signed: {unsigned}")
        if not keep:
            shutil.rmtree(scratch, ignore_errors=True)
    return problem


def _resumed(request: Request, recorded: RunDir, progress: Progress) -> Position:
    """Return where the run stands. Raises ResumeError before anything is started that could not bring it to its end."""
    site, scenario = request.site.value, request.scenario.value
    work = Path(site.work_dir)
    try:
        model = arms.model_folder(site, scenario, work)
        now = {
            "host": provenance.host(),
            "software": provenance.software(site, progress.line),
            "model": {"name": scenario.model, "files": _model_files(site, scenario, model)},
        }
        recorded_so_far = Run(recorded.path)
        check_unchanged(recorded_so_far, now, kernel_time.clock_offset_ns())
        at = position(recorded_so_far, scenario, [int(n) for n in request.looks["blocks"]], request.seed)
        for plan in arms.arm_plans(site, scenario, model, work, work / "runs" / recorded.run_id).values():
            populate.still_there(recorded, plan)
    except (EvidenceError, StartFailed, tiers.TierFailed, populate.PopulateFailed) as error:
        raise ResumeError(str(error)) from None
    except (LookupError, TypeError, AttributeError) as error:
        told = f"a record of it is of another shape than a run writes ({type(error).__name__})"
        raise ResumeError(f"{recorded.path}: {told}: start a new run instead") from None
    write_unfinished(recorded, at)
    return at


def _model_files(site: Site, scenario: Scenario, model: Path) -> dict[str, str]:
    return toy_model.fingerprint(model) if site.models[scenario.model].path is None else {}


def _measure(
    request: Request,
    recorded: RunDir,
    plans: Mapping[str, ArmPlan],
    check: run.Check,
    decide: run.Decide,
    progress: Progress,
    at: Position | None,
) -> None:
    site, scenario = request.site.value, request.scenario.value

    def begin(arm: str, number: int) -> Path:
        folder = recorded.path / f"raw/{arm}/start-{number:02d}"
        folder.mkdir(parents=True)  # never one that is there: its logs may be sealed
        return folder

    def started(live: LiveArm) -> None:
        recorded.write_json(f"raw/{live.name}/start-{live.start:02d}/start.json", dict(live.facts))

    fleet = arms.fleet(
        site,
        dict(plans),
        begin,
        started,
        progress.line,
        {arm: starts_begun(recorded.path, arm) for arm in plans},
    )
    served = site.models[scenario.model]
    settings = run.Settings(
        scenario=scenario,
        looks=[int(n) for n in request.looks["blocks"]],
        seed=request.seed,
        chunk_tokens=site.lmcache.chunk_tokens,
        chunk_bytes=site.lmcache.chunk_tokens * served.kv_bytes_per_token,
        vocabulary_tokens=served.vocabulary_tokens,
        generated_model=served.source == "generated",
    )
    try:
        run.measure(recorded, fleet, settings, check, decide, progress, at)
    finally:
        progress.line("stopping the engines")
        fleet.stop()


def _facts(request: Request, recorded: RunDir, progress: Progress) -> Json:
    site, scenario = request.site, request.scenario
    return {
        "schema": SCHEMA,
        "run_id": recorded.run_id,
        "gate": request.gate,
        "kind": request.kind,
        "rehearsal": site.value.rehearsal,
        "created_utc": datetime.now(UTC).isoformat(timespec="seconds"),
        "site": site.value.model_dump(mode="json", by_alias=True),
        "scenario": scenario.value.model_dump(mode="json", by_alias=True),
        "origins": {
            **{f"site.{key}": origin for key, origin in site.origins.items()},
            **{f"scenario.{key}": origin for key, origin in scenario.origins.items()},
        },
        "overrides": dict(request.overrides),
        "seed": request.seed,
        "nonce": request.nonce,
        "looks": {key: list(values) for key, values in request.looks.items()},
        "selection": dict(request.selection),
        "power": request.power,
        "tester": provenance.tester(),
        "criteria_sha256": sha256_of(recorded.path / "criteria.toml"),
        "suite": provenance.suite(),
        "software": provenance.software(site.value, progress.line),
        "model": {"name": scenario.value.model, "files": {}},
        "host": provenance.host(),
    }
