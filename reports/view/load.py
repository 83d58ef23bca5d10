"""A run folder read into a ReportView: sealed evidence and the verdict beside it, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from reports import imported
from reports.again import Again, judged_again
from reports.arms import arm_settings
from reports.deviations import NONE, Deviations, deviations
from reports.loose import Json, dig, items, mapping, numeric, objects, whole
from reports.samples import Unreadable, arm_steps
from reports.served import moments, served
from reports.text import flatten
from reports.view.model import VERDICTS, Misfit, Origin, ReportView, Requirement, worst
from reports.view.requirements import requirements
from reports.words import ReportError
from workloads import seal
from workloads.evidence import MANIFEST, EvidenceError, Run, read_json, sha256_of, verify

T = TypeVar("T")
VERDICT_SCHEMA = 1


def load_view(path: Path, waivers: Path | None = None) -> ReportView:
    """Return the view of a run, with the deviations in `waivers` or those sealed into it.

    Raises ReportError: not a run, or not judged yet; a damaged file is named.
    """
    if not path.is_dir():
        raise ReportError(f"{path}: no such run folder")
    try:
        run = Run(path)
        if not (path / "verdict.json").exists():
            raise ReportError(f"{path}: not judged yet: make rejudge RUN={path}")
        return _view(run, read_json(path / "verdict.json"), waivers)
    except EvidenceError as error:
        raise ReportError(str(error)) from None
    except OSError as error:
        raise ReportError(f"{error.filename or path}: {error.strerror or error}") from None


def _view(run: Run, judged: Json, waivers: Path | None) -> ReportView:
    path, facts = run.path, run.facts
    if judged.get("schema") != VERDICT_SCHEMA or judged.get("verdict") not in VERDICTS:
        raise ReportError(
            f"{path / 'verdict.json'}: schema {judged.get('schema')!r}, verdict {judged.get('verdict')!r}: "
            f"this version reads schema {VERDICT_SCHEMA} and {', '.join(VERDICTS)}"
        )
    manifest, criteria = _hash(path / MANIFEST), _hash(path / "criteria.toml")
    arms = [str(name) for name in mapping(dig(facts, "scenario", "arms"))]
    steps = [step for step in items(dig(facts, "scenario", "steps")) if whole(step) is not None]
    damaged: list[Unreadable] = []
    blocks = _readable(run.blocks, "blocks", damaged) or []
    incidents = _readable(run.incidents, "incidents.jsonl", damaged) or []
    settings = _readable(lambda: arm_settings(run, arms), "start.json", damaged)
    attempts = _readable(lambda: _attempts(path), "LEDGER.extract.json", damaged)
    judged_blocks = mapping(judged.get("blocks"))
    counted = [number for number in items(judged_blocks.get("valid")) if whole(number) is not None]
    # Of a run without a block that counts, what was recorded is drawn to find the cause.
    seen_blocks = counted or [n for block in blocks if (n := whole(block.get("block"))) is not None]
    drawn, unreadable = arm_steps(run, arms, steps, seen_blocks)
    rows, not_declared = requirements(path, judged)
    misfits = [*_misfits(run, judged, manifest, criteria), *incoherent(judged["verdict"], rows)]
    again = judged_again(run, judged) if not misfits else Again()  # what does not fit need not be judged to be known
    misfits += [Misfit("misfit.judged", line) for line in again.differences]
    is_import = imported.is_import(facts)
    claims = _readable(lambda: imported.claims(run), "raw/import", damaged) if is_import else None
    seen = _readable(lambda: deviations(path, waivers), "waivers.toml", damaged) if waivers is None else None
    return ReportView(
        folder=path.resolve().name,
        facts=facts,
        judged=judged,
        judged_bytes=(path / "verdict.json").read_bytes(),
        verdict=judged["verdict"],
        requirements=rows,
        not_declared=not_declared,
        misfits=tuple(misfits),
        not_judged_again=again.not_asked,
        rehearsal=not is_import and _rehearsal(facts, judged),
        partial=facts.get("kind") != "gate" or not _whole(mapping(facts.get("selection"))),
        started_utc=str(facts.get("created_utc", "")),
        ended_utc=_readable(lambda: _ended(run), "counters.jsonl", damaged),
        blocks=tuple(blocks),
        counted=tuple(counted),
        thrown_out={
            entry["block"]: tuple(str(reason) for reason in items(entry.get("reasons")))
            for entry in objects(judged_blocks.get("invalid"))
            if whole(entry.get("block")) is not None
        },
        reasons=tuple(str(reason) for reason in items(judged.get("reasons"))),
        breaches=objects(judged.get("breaches")),
        calibration=objects(judged.get("calibration")),
        incidents=tuple(incidents),
        attempts=attempts,
        arms=settings or arm_settings(run, ()),
        arm_steps=tuple(drawn),
        served=tuple(served(run, arms, steps, seen_blocks)),
        moments=tuple(moments(run, drawn)),
        unreadable=(*damaged, *unreadable),
        settings=tuple(_settings(facts)),
        deviations=(seen or NONE) if waivers is None else _named(path, waivers),
        files=tuple(_files(path)),
        signatures=tuple(name for name in SIGNATURES if (path / name).is_file()),
        imported=is_import,
        claims=tuple(claims or ()),
        manifest_sha256=manifest,
        criteria_sha256=criteria,
    )


SIGNATURES = (f"{MANIFEST}.sig", f"{MANIFEST}.witness.sig")


def _named(path: Path, waivers: Path) -> Deviations:
    """Return the deviations of a file that was named by hand: what is wrong with it has to be mended first."""
    try:
        return deviations(path, waivers)
    except EvidenceError as error:
        raise ReportError(str(error)) from None


def _whole(selection: Json) -> bool:
    collected, selected = numeric(selection.get("collected")), numeric(selection.get("selected"))
    return collected is not None and selected is not None and 0 < collected <= selected


def _rehearsal(facts: Json, judged: Json) -> bool:
    """Return True unless everything that speaks of it says that this was no rehearsal."""
    said = (facts.get("rehearsal"), judged.get("rehearsal"), dig(facts, "site", "rehearsal"))
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


def incoherent(verdict: str, rows: Sequence[Requirement]) -> Iterator[Misfit]:
    """Yield where a verdict contradicts its own rows: nobody needs to judge again to see that."""
    comes_to = worst([row.verdict for row in rows])
    if verdict != comes_to and (verdict, comes_to) != ("INCONCLUSIVE", "PASS"):  # a part of a gate never passes
        yield Misfit("misfit.rows", f"{comes_to} ≠ {verdict}")


def _readable(read: Callable[[], T], where: str, damaged: list[Unreadable]) -> T | None:
    """Return what is read, or None and an entry in `damaged`: a killed run is reported all the same."""
    try:
        return read()
    except EvidenceError as error:
        damaged.append(Unreadable(where, str(error)))
    except (KeyError, TypeError, ValueError, AttributeError, LookupError) as error:
        damaged.append(Unreadable(where, f"not as the format says: {error!r}"))
    return None


def _settings(facts: Json) -> Iterator[Origin]:
    origins = mapping(facts.get("origins"))
    for part in ("scenario", "site"):
        inner = mapping(origins.get(part)) or origins
        for key, value in flatten(facts.get(part)).items():
            found = inner.get(key, inner.get(f"{part}.{key}"))
            yield Origin(f"{part}.{key}", value, str(found) if found is not None else "–")
    for key, value in flatten(mapping(facts.get("overrides"))).items():
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
    if not stamps:
        return str(run.facts["ended_utc"]) if isinstance(run.facts.get("ended_utc"), str) else None
    return datetime.fromtimestamp(max(stamps) / 1e9, UTC).isoformat()


def _attempts(path: Path) -> tuple[Json, ...] | None:
    file = path / "LEDGER.extract.json"
    return objects(read_json(file).get("attempts")) if file.exists() else None


def _files(path: Path) -> list[tuple[str, str]]:
    try:
        manifest = seal.parse((path / MANIFEST).read_bytes())
    except (OSError, ValueError):
        return []
    return sorted(manifest.digests.items())


def _hash(path: Path) -> str | None:
    return sha256_of(path) if path.is_file() else None
