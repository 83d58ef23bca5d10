"""The loop of a gate run: populate, then blocks of arms: measure, check, look, extend.

Nothing is judged here. `check` tells after each block which trials cannot be trusted, `decide` tells at each look
whether the evidence is enough; both are given by the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scenarios import tiers
from scenarios.engine import LiveArm
from scenarios.fleet import Fleet
from scenarios.model import BASELINE, RECOMPUTE, Scenario
from scenarios.process import StartFailed
from workloads import calibrate, control, host, needles, populate
from workloads.blocks import BlockPlan, plan_blocks
from workloads.evidence import RunDir
from workloads.progress import Progress
from workloads.prompts import PromptSpec, prompt_set
from workloads.resume import Position
from workloads.trial import TrialFailed, TrialPlan, run_trial

Json = dict[str, Any]

# Trial's folder below raw/ -> breaches [{"trial", "check", "whose", "reason"}]; empty when it can be trusted.
Check = Callable[[Path, str], Sequence[Json]]
# Run folder, number of valid blocks -> the gate's verdict on all blocks so far.
Decide = Callable[[Path, int], str]


class AbortedError(RuntimeError):
    """One line: why the run cannot go on. It has been recorded; the evidence says the rest."""


@dataclass(frozen=True)
class Settings:
    """What one run of the loop needs besides the arms."""

    scenario: Scenario
    looks: Sequence[int]
    seed: int
    chunk_tokens: int
    chunk_bytes: int
    vocabulary_tokens: int
    generated_model: bool


def measure(
    run: RunDir,
    fleet: Fleet,
    settings: Settings,
    check: Check,
    decide: Decide,
    progress: Progress,
    resumed: Position | None = None,
) -> None:
    """Populate and measure until a look decides or the last one is reached; a resumed run goes on after its last block.

    Raises AbortedError when the run cannot go on; the incident is recorded first. The run is sealed at every look, but
    not at the end: logs of engines that are still up are growing.
    """
    host.record_host(run, "before")
    sets = _prompt_sets(settings)
    try:
        if resumed is None:
            _calibrate(run, settings, sets, progress)
            _populate(run, fleet, settings, sets, progress)
        else:
            _still_stored(run, fleet, settings, progress)
        _blocks(run, fleet, settings, sets, check, decide, progress, resumed or Position())
    finally:
        host.record_host(run, "after")


def _prompt_sets(settings: Settings) -> list[list[PromptSpec]]:
    load, prompts = settings.scenario.workload, settings.scenario.largest_step()
    return [
        prompt_set(settings.seed, number, prompts, load.prompt_tokens, settings.vocabulary_tokens)
        for number in range(load.prompt_sets)
    ]


def _calibrate(run: RunDir, settings: Settings, sets: Sequence[Sequence[PromptSpec]], progress: Progress) -> None:
    progress.phase("calibrate the client", done=0, of=1)
    try:
        calibrate.calibrate(run, settings.scenario.steps, sets[0])
    except calibrate.CalibrationFailed as error:
        run.incident(whose="harness", kind="calibration-failed", message=str(error))
        raise AbortedError(str(error)) from None


def _populate(
    run: RunDir, fleet: Fleet, settings: Settings, sets: Sequence[Sequence[PromptSpec]], progress: Progress
) -> None:
    stored = [name for name, arm in settings.scenario.arms.items() if arm.tiers]
    for number, name in enumerate(stored):
        progress.phase(f"populate {name}", done=number, of=len(stored))
        try:
            with fleet.arm(name) as live:
                populate.populate(
                    run, live, sets, settings.chunk_tokens, settings.chunk_bytes,
                    settings.scenario.workload.request_deadline_s, settings.seed,
                )  # fmt: skip
                _ask_needles(run, live, settings)
                if name == BASELINE:
                    _control(run, live, settings)
        except StartFailed as error:
            raise _start_failed(run, error, name, None) from None
        except tiers.TierFailed as error:
            raise _tier_failed(run, error, name) from None
        except control.ControlFailed as error:
            run.incident(whose="harness", kind="control-failed", message=str(error), arm=name)
            raise AbortedError(str(error)) from None
        except (populate.PopulateFailed, TrialFailed, tiers.TierError) as error:
            # A store that was never confirmed cannot be held against the tier: the path to it may be at fault.
            run.incident(whose="host", kind="populate-failed", message=str(error), arm=name)
            raise AbortedError(str(error)) from None


def _ask_needles(run: RunDir, live: LiveArm, settings: Settings) -> None:
    load = settings.scenario.workload
    try:
        needles.ask(run, live, settings.seed, load.prompt_tokens, settings.generated_model, load.request_deadline_s)
    except tiers.TierFailed:
        raise
    except tiers.TierError as error:
        raise TrialFailed(f"arm '{live.name}': its needles: {error}") from None


def _control(run: RunDir, live: LiveArm, settings: Settings) -> None:
    load = settings.scenario.workload
    control.carry_out(
        run, live, settings.seed, load.prompt_tokens, load.output_tokens, settings.chunk_tokens,
        settings.vocabulary_tokens, load.request_deadline_s,
    )  # fmt: skip


def _still_stored(run: RunDir, fleet: Fleet, settings: Settings, progress: Progress) -> None:
    for name in [name for name, arm in settings.scenario.arms.items() if arm.tiers]:
        progress.phase(f"look at what {name} has stored", done=0, of=1)
        try:
            with fleet.arm(name) as live:
                populate.still_there(run, live)
        except StartFailed as error:
            raise _start_failed(run, error, name, None) from None
        except tiers.TierFailed as error:
            raise _tier_failed(run, error, name) from None
        except populate.PopulateFailed as error:
            run.incident(whose="host", kind="populate-lost", message=str(error), arm=name)
            raise AbortedError(str(error)) from None


def _blocks(
    run: RunDir,
    fleet: Fleet,
    settings: Settings,
    sets: Sequence[Sequence[PromptSpec]],
    check: Check,
    decide: Decide,
    progress: Progress,
    at: Position,
) -> None:
    plans = plan_blocks(settings.scenario, settings.looks, settings.seed)
    for look in settings.looks:
        if at.is_past(look):
            continue
        while at.valid < look:
            block = _block(
                run, fleet, settings, sets, check, progress, at.number + 1, plans[at.valid], at.replaces, look
            )
            invalid = at.take(block)
            if not invalid:
                continue
            twice = [key for key, times in at.seen.items() if times > 1]
            if twice:
                arm, check_name = twice[0]
                told = f"the same fault twice, {check_name} of arm '{arm}': {invalid[0]['reason']}"
                raise _stop(run, told, at.number)
            if at.has_replaced_too_many(look):
                told = f"{at.replaced} of {look} blocks had to be replaced: {invalid[0]['reason']}"
                raise _stop(run, told, at.number)
        run.seal(f"look-{look}", growing=growing_files(run))
        verdict = decide(run.path, at.valid)
        progress.line(f"look at {at.valid} blocks: {verdict}")
        if verdict != "INCONCLUSIVE":
            return


def _block(
    run: RunDir,
    fleet: Fleet,
    settings: Settings,
    sets: Sequence[Sequence[PromptSpec]],
    check: Check,
    progress: Progress,
    number: int,
    plan: BlockPlan,
    replaces: int | None,
    look: int,
) -> Json:
    facts: Json = {
        "block": number,
        "prompt_set": plan.prompt_set,
        "order": list(plan.order),
        "steps": list(plan.steps),
        "replaces": replaces,
        "complete": False,
        "breaches": [],
    }
    breaches: list[Json] = []
    load = settings.scenario.workload
    try:
        for position, name in enumerate(plan.order):
            progress.phase(f"block {number}: {name}", done=number - 1 + position / len(plan.order), of=look)
            try:
                with fleet.arm(name) as live:
                    for step in plan.steps:
                        discarded, measured = settings.scenario.waves(name)
                        trial = TrialPlan(
                            arm=name, step=step, block=number, position=position,
                            prompts=sets[plan.prompt_set][:step], output_tokens=load.output_tokens,
                            waves_discarded=discarded, waves_measured=measured,
                            request_deadline_s=load.request_deadline_s,
                        )  # fmt: skip
                        try:
                            run_trial(run, live, trial)
                            # Not before the blocks as the others: to have it up for this may cost a whole start.
                            if name == RECOMPUTE and not (run.path / f"raw/{name}/needles.json").exists():
                                _ask_needles(run, live, settings)
                        except TrialFailed as error:
                            run.incident(
                                whose=name, kind="engine-died" if live.fault() else "trial-failed", message=str(error),
                                arm=name, step=step, block=number,
                            )  # fmt: skip
                            raise AbortedError(str(error)) from None
                        breaches += check(run.path, trial.name)
            except StartFailed as error:
                raise _start_failed(run, error, name, number) from None
        facts["complete"] = True
    finally:
        run.write_json(f"blocks/b{number:02d}.json", {**facts, "breaches": breaches})
    return {**facts, "breaches": breaches}


def growing_files(run: RunDir) -> frozenset[str]:
    """Return the files that are still being written while engines are up."""
    logs = (p.relative_to(run.path).as_posix() for p in run.path.glob("raw/*/start-*/*.log"))
    return frozenset({*logs, run.of_session("incidents.jsonl")})


def _start_failed(run: RunDir, error: StartFailed, arm: str, block: int | None) -> AbortedError:
    # Only the candidate's start can be the candidate's fault; whether it is, the judge decides.
    arm = error.arm or arm
    run.incident(whose=error.whose or arm, kind="start-failed", message=error.cause, arm=arm, block=block)
    lines = "".join(f"\n    {line}" for line in error.lines)
    where = f"\n  log: {error.log}" if error.log else ""
    return AbortedError(f"arm '{arm}': {error.cause}{lines}{where}")


def _tier_failed(run: RunDir, error: tiers.TierFailed, arm: str) -> AbortedError:
    run.incident(whose=arm, kind="tier-failed", message=str(error), arm=arm)
    return AbortedError(f"arm '{arm}': {error}")


def _stop(run: RunDir, message: str, block: int) -> AbortedError:
    run.incident(whose="harness", kind="aborted", message=message, block=block)
    return AbortedError(message)
