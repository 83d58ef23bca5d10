"""What a report shows. Nothing is judged and nothing estimated here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from reports.arms import ArmSettings
from reports.deviations import Deviations
from reports.loose import Json, dig, mapping
from reports.samples import ArmStep, Unreadable
from reports.served import Moment, Served
from scenarios.model import BASELINE

VERDICTS = ("PASS", "FAIL", "INCONCLUSIVE", "INVALID")
# What a run is asked for: a site, a scenario and a folder are named by every lab.
CHOICES = frozenset({"site", "scenario", "runs", "langs", "nonce", "from", "bundle"})
WORST_FIRST = ("FAIL", "INVALID", "INCONCLUSIVE", "PASS")


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
    compare: (
        str  # "reduction", "gain", "increase" or "count", from the sealed criteria; empty where they are unreadable
    )
    band_high: float | None  # from the sealed criteria
    declared: str | None = None  # what the site said (G1), in text
    found: str | None = None  # what was there (G1), in text
    raw: tuple[str, ...] = ()  # the raw output that tells it (G1)

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
    judged_bytes: bytes  # the same, as it lies there
    verdict: str
    requirements: tuple[Requirement, ...]
    not_declared: tuple[Requirement, ...]  # what the site does not declare, so that nothing was held against it
    misfits: tuple[Misfit, ...]  # empty: the verdict belongs to this evidence
    not_judged_again: str  # why the judge was not asked again, as a key of the strings; empty: he was
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
    served: tuple[Served, ...]
    moments: tuple[Moment, ...]
    unreadable: tuple[Unreadable, ...]  # parts of the evidence that this report lacks
    settings: tuple[Origin, ...]
    deviations: Deviations
    files: tuple[tuple[str, str], ...]  # (name, SHA-256) as the manifest lists them
    signatures: tuple[str, ...]  # files that sign the manifest; whether they hold is not looked at
    imported: bool  # files of others instead of a run
    claims: tuple[tuple[str, ...], ...]  # what imported files state, unverified
    manifest_sha256: str | None
    criteria_sha256: str | None

    @property
    def gate(self) -> str:
        """Return the gate's name as run.json has it, in lower case."""
        return str(self.facts.get("gate", "")).lower()

    @property
    def run_id(self) -> str:
        """Return the run's id, or its folder's name where run.json tells none."""
        return str(self.facts.get("run_id") or self.folder)

    @property
    def trusted(self) -> bool:
        """Return whether the verdict belongs to the evidence."""
        return not self.misfits

    @property
    def shown(self) -> str:
        """Return the verdict as a report may state it: UNTRUSTED where it does not belong to the evidence."""
        return self.verdict if self.trusted else "UNTRUSTED"

    @property
    def dirty(self) -> bool:
        """Return whether nobody can look the suite up: it differs from its commit, or is of none that is known."""
        return dig(self.facts, "suite", "dirty") is not False or not dig(self.facts, "suite", "commit")

    @property
    def overridden(self) -> bool:
        """Return whether the command line or the environment changed a setting; what was to be run is none."""
        return bool(set(mapping(self.facts.get("overrides"))) - CHOICES)

    @property
    def acceptance(self) -> bool:
        """Return whether this is an acceptance: the judge says so, and nothing here speaks against it."""
        said = self.judged.get("acceptance") is True and self.verdict == "PASS"
        doubted = self.rehearsal or self.partial or self.dirty or bool(self.not_judged_again)
        return said and self.trusted and not doubted

    def not_passed(self) -> list[Requirement]:
        """Return the requirements that did not pass, worst first."""
        return sorted((r for r in self.requirements if r.verdict != "PASS"), key=lambda r: WORST_FIRST.index(r.verdict))

    def arm_title(self, arm: str) -> str:
        """Return the arm's title from the scenario, or its name."""
        return str(dig(self.facts, "scenario", "arms", arm, "title") or arm)

    def tier(self, arm: str) -> Json | None:
        """Return the site's description of the tier that the arm uses; None for recompute."""
        names = dig(self.facts, "scenario", "arms", arm, "tiers")
        found = dig(self.facts, "site", "tiers", str(names[0])) if isinstance(names, list) and names else None
        return found if isinstance(found, dict) else None

    def one_local_drive(self) -> bool:
        """Return whether the baseline is one local drive."""
        return bool((self.tier(BASELINE) or {}).get("one_local_drive"))


def worst(verdicts: list[str]) -> str:
    """Return the worst of some verdicts, for one line that stands for several; INVALID where there is none."""
    return next((verdict for verdict in WORST_FIRST if verdict in verdicts), "INVALID")
