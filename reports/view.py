"""A run's verdict and facts as the report shows them. Nothing is judged and nothing estimated here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from gates import criteria as criteria_files
from reports import imported
from reports.arms import ArmSettings, arm_settings
from reports.samples import ArmStep, Unreadable, arm_steps
from reports.text import flatten
from reports.words import ReportError
from scenarios.load import ConfigError
from scenarios.model import BASELINE
from workloads.evidence import MANIFEST, EvidenceError, Run, read_json, sha256_of, verify

Json = dict[str, Any]
T = TypeVar("T")
VERDICTS = ("PASS", "FAIL", "INCONCLUSIVE", "INVALID")
VERDICT_SCHEMA = 1


@dataclass(frozen=True)
class Estimate:
    """A measured value with its interval, as verdict.json states it."""

    point: float
    low: float | None
    high: float | None
    confidence: float | None
    n: int | None
    method: str


@dataclass(frozen=True)
class Requirement:
    """One line of verdict.json: a requirement at a step, and what became of it."""

    id: str
    metric: str
    arms: tuple[str, ...]
    step: int | None
    limit: float | None
    unit: str
    estimate: Estimate | None
    verdict: str
    reason: str
    flags: tuple[str, ...]
    operator: str
    tolerance: float
    compare: str  # "reduction", "gain" or "count", from the sealed criteria; empty where they cannot be read
    band_high: float | None  # from the sealed criteria

    @property
    def relaxed_limit(self) -> float | None:
        """Return the limit with its tolerance, as agreed before the run; None without either."""
        if self.limit is None or not self.tolerance:
            return None
        return self.limit - self.tolerance if self.operator == ">=" else self.limit + self.tolerance


@dataclass(frozen=True)
class Misfit:
    """One way in which the verdict does not belong to the evidence beside it: a key of the strings, and details."""

    key: str
    detail: str = ""


@dataclass(frozen=True)
class Origin:
    """One effective setting and where it came from."""

    key: str
    value: str
    origin: str


@dataclass(frozen=True)
class ReportView:
    """Everything that a report shows, in no language yet."""

    folder: str
    facts: Json  # run.json
    judged: Json  # verdict.json
    verdict: str
    requirements: tuple[Requirement, ...]
    misfits: tuple[Misfit, ...]  # empty: the verdict belongs to this evidence
    rehearsal: bool
    partial: bool  # smoke, or a selection of the gate: no acceptance, whatever it says
    started_utc: str
    ended_utc: str | None
    blocks: tuple[Json, ...]
    counted: tuple[int, ...]  # the blocks that the judge found valid
    thrown_out: Mapping[int, tuple[str, ...]]  # the blocks that he did not, and why
    reasons: tuple[str, ...]  # against the run as a whole
    breaches: tuple[Json, ...]
    calibration: tuple[Json, ...]  # the client's own bias at each concurrency, as the judge found it
    incidents: tuple[Json, ...]
    attempts: tuple[Json, ...] | None  # None: the run carries no extract of a ledger
    arms: ArmSettings
    arm_steps: tuple[ArmStep, ...]
    unreadable: tuple[Unreadable, ...]  # parts of the evidence that this report lacks
    settings: tuple[Origin, ...]
    imported: bool  # files of others instead of a run
    claims: tuple[tuple[str, ...], ...]  # what imported files state, unverified
    manifest_sha256: str | None
    criteria_sha256: str | None

    @property
    def trusted(self) -> bool:
        """Return whether the verdict belongs to the evidence."""
        return not self.misfits

    @property
    def acceptance(self) -> bool:
        """Return whether this is an acceptance: the judge says so, and nothing here speaks against it."""
        said = self.judged.get("acceptance") is True and self.verdict == "PASS"
        return said and self.trusted and not self.rehearsal and not self.partial

    def not_passed(self) -> list[Requirement]:
        """Return the requirements that did not pass, worst first."""
        worst = {name: place for place, name in enumerate(("FAIL", "INVALID", "INCONCLUSIVE"))}
        return sorted((r for r in self.requirements if r.verdict != "PASS"), key=lambda r: worst.get(r.verdict, 0))

    def arm_title(self, arm: str) -> str:
        """Return the arm's title from the scenario, or its name."""
        return str(_dig(self.facts, "scenario", "arms", arm, "title") or arm)

    def tier(self, arm: str) -> Json | None:
        """Return the site's description of the tier that the arm uses; None for recompute."""
        names = _dig(self.facts, "scenario", "arms", arm, "tiers")
        found = _dig(self.facts, "site", "tiers", names[0]) if isinstance(names, list) and names else None
        return found if isinstance(found, dict) else None

    def one_local_drive(self) -> bool:
        """Return whether the baseline is one local drive."""
        return bool((self.tier(BASELINE) or {}).get("one_local_drive"))


def load_view(path: Path) -> ReportView:
    """Return the view of a run. Raises ReportError: not a run, or not judged yet; a damaged file is named."""
    if not path.is_dir():
        raise ReportError(f"{path}: no such run folder")
    try:
        run = Run(path)
        if not (path / "verdict.json").exists():
            raise ReportError(f"{path}: not judged yet: make rejudge RUN={path}")
        judged = read_json(path / "verdict.json")
        return _view(run, judged)
    except EvidenceError as error:
        raise ReportError(str(error)) from None


def _view(run: Run, judged: Json) -> ReportView:
    path, facts = run.path, run.facts
    if judged.get("schema") != VERDICT_SCHEMA or judged.get("verdict") not in VERDICTS:
        raise ReportError(
            f"{path / 'verdict.json'}: schema {judged.get('schema')!r}, verdict {judged.get('verdict')!r}: "
            f"this version reads schema {VERDICT_SCHEMA} and {', '.join(VERDICTS)}"
        )
    manifest, criteria = _hash(path / MANIFEST), _hash(path / "criteria.toml")
    arms = [str(name) for name in _mapping(_dig(facts, "scenario", "arms"))]
    steps = [step for step in _list(_dig(facts, "scenario", "steps")) if isinstance(step, int)]
    damaged: list[Unreadable] = []
    blocks = _readable(run.blocks, "blocks", damaged) or []
    incidents = _readable(run.incidents, "incidents.jsonl", damaged) or []
    judged_blocks = _mapping(judged.get("blocks"))
    counted = [number for number in _list(judged_blocks.get("valid")) if isinstance(number, int)]
    drawn, unreadable = arm_steps(run, arms, steps, counted)
    known = _known(path)
    claims = _readable(lambda: imported.claims(run), "raw/import", damaged) if imported.is_import(facts) else None
    return ReportView(
        folder=path.resolve().name,
        facts=facts,
        judged=judged,
        verdict=judged["verdict"],
        requirements=tuple(_requirement(path, row, known) for row in _list(judged.get("criteria"))),
        misfits=tuple(_misfits(run, judged, manifest, criteria)),
        rehearsal=not imported.is_import(facts) and _rehearsal(facts, judged),
        partial=facts.get("kind") != "gate" or not _whole(_mapping(facts.get("selection"))),
        started_utc=str(facts.get("created_utc", "")),
        ended_utc=_readable(lambda: _ended(run), "counters.jsonl", damaged),
        blocks=tuple(blocks),
        counted=tuple(counted),
        thrown_out={
            entry["block"]: tuple(str(reason) for reason in _list(entry.get("reasons")))
            for entry in _list(judged_blocks.get("invalid"))
            if isinstance(entry, dict) and isinstance(entry.get("block"), int)
        },
        reasons=tuple(str(reason) for reason in _list(judged.get("reasons"))),
        breaches=tuple(breach for breach in _list(judged.get("breaches")) if isinstance(breach, dict)),
        calibration=tuple(row for row in _list(judged.get("calibration")) if isinstance(row, dict)),
        incidents=tuple(incidents),
        attempts=_attempts(path),
        arms=arm_settings(run, arms),
        arm_steps=tuple(drawn),
        unreadable=(*damaged, *unreadable),
        settings=tuple(_settings(facts)),
        imported=imported.is_import(facts),
        claims=tuple(claims or ()),
        manifest_sha256=manifest,
        criteria_sha256=criteria,
    )


def _whole(selection: Json) -> bool:
    collected, selected = _number(selection.get("collected")), _number(selection.get("selected"))
    return collected is not None and selected is not None and 0 < collected <= selected


def _rehearsal(facts: Json, judged: Json) -> bool:
    """Return True unless everything that speaks of it says that this was no rehearsal."""
    said = (facts.get("rehearsal"), judged.get("rehearsal"), _dig(facts, "site", "rehearsal"))
    return any(value is not False for value in said)


def _misfits(run: Run, judged: Json, manifest: str | None, criteria: str | None) -> Iterator[Misfit]:
    if judged.get("manifest_sha256") != manifest:
        yield Misfit("misfit.manifest")
    if judged.get("criteria_sha256") != criteria or run.facts.get("criteria_sha256") != criteria:
        yield Misfit("misfit.criteria")
    if judged.get("gate") != run.facts.get("gate"):
        yield Misfit("misfit.gate")
    if judged.get("rehearsal") != run.facts.get("rehearsal"):
        yield Misfit("misfit.rehearsal")
    for fault in verify(run.path):
        yield Misfit("misfit.file", fault)


def _known(path: Path) -> dict[str, criteria_files.Criterion]:
    """Return the sealed criteria by id; none where they cannot be read (the judge has said so in the verdict)."""
    try:
        return {criterion.id: criterion for criterion in criteria_files.load(path / "criteria.toml").criterion}
    except ConfigError:
        return {}


def _readable(read: Callable[[], T], where: str, damaged: list[Unreadable]) -> T | None:
    """Return what is read, or None and an entry in `damaged`: a killed run is reported all the same."""
    try:
        return read()
    except EvidenceError as error:
        damaged.append(Unreadable(where, str(error)))
        return None


def _requirement(path: Path, row: object, known: Mapping[str, criteria_files.Criterion]) -> Requirement:
    if not isinstance(row, dict) or row.get("verdict") not in VERDICTS:
        raise ReportError(f"{path / 'verdict.json'}: a criterion without one of {', '.join(VERDICTS)}")
    step, criterion = row.get("step"), known.get(str(row.get("id")))
    return Requirement(
        id=str(row.get("id", "")),
        metric=str(row.get("metric", "")),
        arms=tuple(str(arm) for arm in _list(row.get("arms"))),
        step=step if isinstance(step, int) else None,
        limit=_number(row.get("limit")),
        unit=str(row.get("unit") or ""),
        estimate=_estimate(row.get("estimate")),
        verdict=row["verdict"],
        reason=str(row.get("reason") or ""),
        flags=tuple(str(flag) for flag in _list(row.get("flags"))),
        operator=str(row.get("operator") or ""),
        tolerance=_number(row.get("tolerance")) or 0.0,
        compare=criterion.compare if criterion else "",
        band_high=criterion.band_high if criterion else None,
    )


def _estimate(value: object) -> Estimate | None:
    if not isinstance(value, dict):
        return None
    point = _number(value.get("point"))
    if point is None:
        return None
    n = value.get("n")
    return Estimate(
        point=point,
        low=_number(value.get("low")),
        high=_number(value.get("high")),
        confidence=_number(value.get("confidence")),
        n=n if isinstance(n, int) else None,
        method=str(value.get("method") or ""),
    )


def _settings(facts: Json) -> Iterator[Origin]:
    origins = _mapping(facts.get("origins"))
    overrides = _mapping(facts.get("overrides"))
    for part in ("scenario", "site"):
        inner = _mapping(origins.get(part)) or origins
        for key, value in flatten(facts.get(part)).items():
            found = inner.get(key, inner.get(f"{part}.{key}"))
            yield Origin(f"{part}.{key}", value, str(found) if found is not None else "–")
    for key, value in flatten(overrides).items():
        if key:
            yield Origin(key, value, "override")


def _ended(run: Run) -> str | None:
    """Return when the last counter of the last block was read: the end of measuring."""
    last = max((t.facts.get("block") or 0 for t in run.trials()), default=0)
    stamps = [
        snapshot["realtime_ns"]
        for trial in run.trials()
        if trial.facts.get("block") == last
        for snapshot in (trial.counters() if (trial.path / "counters.jsonl").exists() else ())
        if isinstance(snapshot.get("realtime_ns"), int)
    ]
    return datetime.fromtimestamp(max(stamps) / 1e9, UTC).isoformat() if stamps else None


def _attempts(path: Path) -> tuple[Json, ...] | None:
    file = path / "LEDGER.extract.json"
    if not file.exists():
        return None
    return tuple(row for row in _list(read_json(file).get("attempts")) if isinstance(row, dict))


def _hash(path: Path) -> str | None:
    return sha256_of(path) if path.is_file() else None


def _dig(value: object, *keys: str) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _mapping(value: object) -> Json:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
