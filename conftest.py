"""pytest glue: options, the one run behind a gate's tests, exit status, terminal summary."""

from __future__ import annotations

import os
import secrets
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gates import baseline, criteria, fit, plan, validity, verdict
from gates.arrival import judge as arrival
from gates.arrival import limits
from gates.arrival.check import Check
from gates.arrival.plan import plan as arrival_plan
from gates.cautions import cautions
from reports.words import ReportError
from reports.write import write_reports
from scenarios import preflight
from scenarios.load import ConfigError, Loaded, load_scenario, load_site
from scenarios.model import Scenario, Site
from workloads import arrival_run, attempts, gate_run, ledger, provenance, resume
from workloads.bundle import BundleError
from workloads.evidence import MANIFEST, EvidenceError, Run, read_json, sha256_of, verify, write_whole
from workloads.progress import Progress
from workloads.prompts import seed_of_nonce

OPTIONS = ("site", "scenario", "runs", "langs", "nonce")
DEFAULTS = {"site": "rehearsal", "scenario": "rehearsal", "runs": "runs", "langs": "zh,en", "nonce": ""}
LANGUAGES = ("zh", "en")
# The gates that have a suite; G2 and G4 join here.
GATE_FILES = {"test_g1.py": "g1", "test_g3.py": "g3"}


@dataclass
class Session:
    """What one pytest session knows of the gate that it runs."""

    gate: str
    kind: str
    site: Loaded[Site]
    scenario: Loaded[Scenario] | None  # G1 has none
    criteria_file: Path
    baseline_record: Path | None
    resume: Path | None
    cases: Sequence[criteria.Case | Check]
    overrides: dict[str, str]
    options: dict[str, str]
    bundle: Path | None = None  # G1's, collected elsewhere
    path: Path | None = None
    verdict: dict[str, Any] | None = None
    problem: str | None = None
    reports: list[Path] = field(default_factory=list)


SESSION = pytest.StashKey[Session]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("kvgate")
    group.addoption("--site", help="a name in scenarios/sites or a TOML path (KVGATE_SITE; default: rehearsal)")
    group.addoption("--scenario", help="a name in scenarios/catalog or a TOML path (KVGATE_SCENARIO)")
    group.addoption("--runs", help="folder of the runs (KVGATE_RUNS; default: runs)")
    group.addoption("--langs", help="languages of the reports (KVGATE_LANGS; default: zh,en)")
    group.addoption("--nonce", help="text that seeds prompts and order, named late by whom it convinces (KVGATE_NONCE)")
    group.addoption("--from", dest="bundle", metavar="BUNDLE", help="judge what `make probe` collected on another host")
    group.addoption("--resume", metavar="RUN", help="go on with an interrupted run, at the boundary of a block")
    group.addoption("--selfcheck", action="store_true", help="a control of the suite itself: judged, never accepted")
    group.addoption("--smoke", action="store_true", help="one wave per arm and step, every validity check, no verdict")


def pytest_configure(config: pytest.Config) -> None:
    """Load all that the gate named on the command line needs, so that a mistake shows before anything starts."""
    files = {Path(str(arg).split("::")[0]).name for arg in config.args}
    gates = sorted({GATE_FILES[name] for name in files if name in GATE_FILES})
    if len(gates) > 1 or (gates and len(files) > 1):
        raise pytest.UsageError("kvgate: one gate at a time, and nothing beside it")
    if gates:
        config.stash[SESSION] = _session(config, gates[0])


def pytest_pycollect_makeitem(collector: pytest.Collector, name: str, obj: object) -> list[pytest.Item] | None:
    """Leave out the half of a gate's suite that this kind of run has nothing for."""
    session = collector.config.stash.get(SESSION, None)
    if collector.path.name in GATE_FILES and callable(obj) and name.startswith("test_"):
        wanted = "test_smoke" if session is not None and session.kind == "smoke" else "test_criterion"
        return None if session is not None and name == wanted else []
    return None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    session = metafunc.config.stash.get(SESSION, None)
    if session is None:
        return
    if "criterion" in metafunc.fixturenames:
        metafunc.parametrize("criterion", session.cases, ids=[case.id for case in session.cases])
    if "trial" in metafunc.fixturenames and session.scenario is not None:
        scenario = session.scenario.value
        trials = [(arm, step) for arm in scenario.arms for step in scenario.steps]
        metafunc.parametrize("trial", trials, ids=[f"{arm}-c{step}" for arm, step in trials])


def _session(config: pytest.Config, gate: str) -> Session:
    options, overrides = _options(config)
    kind = "smoke" if config.getoption("smoke") else "selfcheck" if config.getoption("selfcheck") else "gate"
    try:
        languages = [lang.strip() for lang in options["langs"].split(",") if lang.strip()]
        options["langs"] = ",".join(languages)
        if not languages or not set(languages) <= set(LANGUAGES):
            raise ConfigError(f"languages {','.join(languages)!r}: choose from {', '.join(LANGUAGES)}")
        if "site" not in overrides and (found := preflight.accelerators()):
            raise ConfigError(
                f"an accelerator is visible ({found[0]}): name the site, as in `make gate-{gate} SITE=...`"
            )
        site = load_site(options["site"])
        if kind == "selfcheck" and not site.value.rehearsal:
            raise ConfigError(f"{site.path}: --selfcheck: a lab's own runs are gates; controls belong to a rehearsal")
        if gate == arrival.GATE:
            return _arrival_session(config, kind, site, overrides, options)
        if config.getoption("bundle"):
            raise ConfigError(f"--from: {gate} measures this host; a bundle is for g1")
        scenario = load_scenario(options["scenario"], site)
        if scenario.value.gate != gate:
            raise ConfigError(f"{scenario.path}: gate: a scenario of {scenario.value.gate}, not of {gate}")
        file = criteria.file_for(gate, site)
        loaded = criteria.load(file)
        fit.check(site, scenario, loaded, file)
        record = site.path.parent / site.value.baseline_record if site.value.baseline_record else None
        if record is not None:
            baseline.read(record)
        resumed = _resumed(config, kind, site, scenario, file)
    except (ConfigError, EvidenceError, BundleError) as error:
        raise pytest.UsageError(f"kvgate: {error}") from None
    if kind == "smoke":
        scenario = Loaded(gate_run.one_wave(scenario.value), scenario.path, scenario.origins)
    cases = criteria.cases(loaded, scenario.value.steps)
    return Session(gate, kind, site, scenario, file, record, resumed, cases, overrides, options)


def _arrival_session(
    config: pytest.Config, kind: str, site: Loaded[Site], overrides: dict[str, str], options: dict[str, str]
) -> Session:
    """Return the session of a G1. Raises ConfigError, BundleError: nothing could be checked."""
    for option in ("smoke", "selfcheck", "resume", "nonce", "scenario"):
        if config.getoption(option):
            raise ConfigError(f"--{option}: {arrival.GATE} has nothing for it: leave it out")
    file = criteria.file_for(arrival.GATE, site)
    checks = arrival_plan(site.value.bom, limits.load(file)).checks
    if not checks:
        raise ConfigError(f"{site.path}: bom: declares nothing that could be checked: see docs/g1.md")
    bundle = Path(config.getoption("bundle")) if config.getoption("bundle") else None
    if bundle is not None:
        arrival_run.refuse_foreign(bundle)
    return Session(arrival.GATE, kind, site, None, file, None, None, checks, overrides, options, bundle)


def _resumed(
    config: pytest.Config, kind: str, site: Loaded[Site], scenario: Loaded[Scenario], criteria_file: Path
) -> Path | None:
    """Return the run to go on with. Raises ConfigError, EvidenceError: it cannot be gone on with as it began."""
    if not config.getoption("resume"):
        return None
    path = Path(config.getoption("resume"))
    if not path.is_dir():
        raise ConfigError(f"{path}: no such run")
    if config.getoption("nonce"):
        raise ConfigError(f"{path}: --resume: its prompts are made of its own nonce: leave out NONCE=")
    wanted = {
        "kind": kind,
        "site": site.value.model_dump(mode="json", by_alias=True),
        "scenario": scenario.value.model_dump(mode="json", by_alias=True),
        "criteria_sha256": sha256_of(criteria_file),
        "suite": provenance.suite(),
    }
    if different := resume.differences(path, wanted):
        raise ConfigError(f"{path}: --resume: {different[0]}: start a new run instead")
    if (path / MANIFEST).exists():
        # Files that a killed run had not sealed yet are no fault; those that it had must be as they were.
        changed = [fault for fault in verify(path) if not fault.endswith("added since the run was sealed")]
        if changed:
            raise ConfigError(f"{path}: --resume: {changed[0]}")
    judged = read_json(path / "verdict.json") if (path / "verdict.json").exists() else {}
    if judged.get("verdict") in (verdict.PASS, verdict.FAIL):
        raise ConfigError(f"{path}: --resume: it has been decided: {judged['verdict']}")
    return path


def _options(config: pytest.Config) -> tuple[dict[str, str], dict[str, str]]:
    """Return (effective options, those not at their default with where they come from). Flag > environment."""
    effective, overrides = dict(DEFAULTS), {}
    for name in OPTIONS:
        flag, variable = config.getoption(name), os.environ.get(f"KVGATE_{name.upper()}")
        value, origin = (flag, "command line") if flag else (variable, "environment")
        if value:
            effective[name] = value
            overrides[name] = f"{value} ({origin})"
    return effective, overrides


@pytest.fixture(scope="session")
def gate_session(request: pytest.FixtureRequest) -> Iterator[Session]:
    """The gate's run, carried out once, sealed, judged and reported."""
    config = request.config
    session = config.stash[SESSION]
    capture = config.pluginmanager.getplugin("capturemanager")
    reporter = config.pluginmanager.getplugin("terminalreporter")

    def write(line: str) -> None:
        with capture.global_and_fixture_disabled():
            reporter.ensure_newline()
            reporter.write_line(line)
            sys.stdout.flush()

    previous = signal.signal(signal.SIGTERM, _interrupt)
    carry_out = _carry_out if session.scenario is not None else _carry_out_arrival
    try:
        carry_out(session, len(request.session.items), Progress(write, sys.stdout.isatty()))
    finally:
        signal.signal(signal.SIGTERM, previous)
    yield session


def _interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


def _carry_out(session: Session, selected: int, progress: Progress) -> None:
    site, scenario = session.site.value, session.scenario.value
    runs = Path(session.options["runs"])
    refusal = preflight.refusal(preflight.look(site, scenario, runs, Path(site.work_dir)))
    if refusal is not None:
        pytest.exit(f"kvgate: {refusal}", returncode=4)
    loaded = criteria.load(session.criteria_file)
    looks = {"blocks": list(loaded.looks.blocks), "alpha": list(loaded.looks.alpha)}
    if session.kind == "smoke":
        looks = {"blocks": [1], "alpha": looks["alpha"][:1]}
    recorded = Run(session.resume).facts if session.resume is not None else None
    nonce = session.options["nonce"] or None
    fresh = seed_of_nonce(nonce) if nonce else secrets.randbits(48)
    power = None
    if session.kind != "smoke" and recorded is None:
        progress.line(f"plan: {plan.one_line(session.site, scenario, loaded)}; `make plan` tells what it can decide")
        for told in cautions(site, scenario, loaded):
            progress.line(f"note: {told}")
        power = plan.recorded(session.site, scenario, loaded)
        if "unknown" in power:
            progress.line(f"what the run can decide is not known: {power['unknown']}")
    request = gate_run.Request(
        gate=session.gate,
        kind=session.kind,
        site=session.site,
        scenario=session.scenario,
        runs=runs,
        criteria_file=session.criteria_file,
        baseline_record=session.baseline_record,
        looks=looks,
        seed=fresh if recorded is None else int(recorded["seed"]),
        nonce=nonce if recorded is None else recorded["nonce"],
        selection={"collected": len(session.cases), "selected": selected},
        overrides=session.overrides,
        power=power,
        resume=session.resume,
    )

    def announce(path: Path) -> None:
        session.path = path

    try:
        session.problem = gate_run.carry_out(request, _check, _decide(session.kind), progress, announce)
    except (resume.ResumeError, ledger.LedgerError) as error:
        pytest.exit(f"kvgate: {error}", returncode=4)
    finally:
        _judge(session, progress)
    if session.problem:
        progress.line(session.problem)
    _report(session, progress)


def _carry_out_arrival(session: Session, selected: int, progress: Progress) -> None:
    request = arrival_run.Request(
        site=session.site,
        runs=Path(session.options["runs"]),
        criteria_file=session.criteria_file,
        bundle=session.bundle,
        selection={"collected": len(session.cases), "selected": selected},
        overrides=session.overrides,
    )

    def announce(path: Path) -> None:
        session.path = path

    try:
        arrival_run.carry_out(request, progress, announce)
    except (ledger.LedgerError, BundleError, OSError) as error:
        if session.path is None:
            pytest.exit(f"kvgate: {error}", returncode=4)
        raise
    finally:
        _judge(session, progress)
    _report(session, progress)


def _judge(session: Session, progress: Progress) -> None:
    if session.path is not None and session.kind in verdict.JUDGED_KINDS:
        session.verdict = verdict.judge(Run(session.path))
        write_whole(session.path / "verdict.json", verdict.to_bytes(session.verdict))
        attempts.end(session.path, Run(session.path).facts, session.verdict, progress.line)


def _report(session: Session, progress: Progress) -> None:
    if session.verdict is not None and session.path is not None:
        try:
            session.reports, problems = write_reports(session.path, session.options["langs"].split(","))
            for problem in problems:
                progress.line(f"no report: {problem}")
        except ReportError as error:
            # The verdict stands without its report; `make report` writes it once the cause is gone.
            progress.line(f"no report: {error}")


def _check(path: Path, trial: str) -> Sequence[dict[str, Any]]:
    run = Run(path)
    arm, step, block = trial.split("/")
    found = run.trial(arm, int(step[1:]), int(block[1:]))
    if found is None:
        raise RuntimeError(f"{trial} was just measured and is not recorded")
    return [breach.to_json() for breach in validity.check_trial(run, found)]


def _decide(kind: str) -> Any:
    if kind == "smoke":
        return lambda _path, _blocks: "measured"
    return lambda path, blocks: verdict.decide(Run(path), blocks)


@pytest.hookimpl(tryfirst=True)
def pytest_report_teststatus(report: pytest.TestReport | pytest.CollectReport) -> tuple[str, str, str] | None:
    outcome = dict(report.user_properties).get("verdict") if isinstance(report, pytest.TestReport) else None
    if report.when == "call" and outcome in ("INCONCLUSIVE", "INVALID"):
        return str(outcome).lower(), str(outcome)[2], str(outcome)
    return None


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    mine = session.config.stash.get(SESSION, None)
    if mine is None or exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        return
    if mine.verdict is not None:
        session.exitstatus = verdict.EXIT_STATUS[mine.verdict["verdict"]]
    elif exitstatus == pytest.ExitCode.TESTS_FAILED or (mine.kind != "smoke" and not session.config.option.collectonly):
        session.exitstatus = verdict.EXIT_STATUS["INVALID"]


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    session = config.stash.get(SESSION, None)
    if session is None or session.path is None:
        return
    write = terminalreporter.write_line
    terminalreporter.section(f"{session.gate.upper()} on site {session.site.value.name}")
    if session.verdict is not None:
        for line in verdict.summary_lines(session.verdict):
            write(line)
        if session.site.value.rehearsal:
            write("rehearsal: real software on emulated tiers; this is no acceptance, whatever the verdict")
    elif session.kind == "smoke":
        write("smoke: every validity check, no verdict")
    write(f"evidence  {session.path}")
    for report in session.reports:
        write(f"report    {report}")
