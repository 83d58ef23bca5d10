"""Whether the measurement can be trusted: blocks, the client's bias, breaches, incidents."""

from __future__ import annotations

from reports.document import Block, Cell, Heading, Para, Section, Table
from reports.loose import Json, items, numeric
from reports.pages.cells import code, heads, number, quote, text
from reports.rows import utc
from reports.text import leaf
from reports.text import number as digits
from reports.view.model import ReportView
from reports.words import Words

BREACHES_SHOWN = 100
REASONS_SHOWN = 4


def validity(view: ReportView, t: Words) -> Section:
    """Return what was found of the measurement's own soundness."""
    blocks: list[Block] = [Para(_says(view, t))]
    if view.blocks:
        blocks.append(_blocks(view, t))
    if not view.imported and view.gate != "g1":
        blocks += [Heading("calibration", t("calibration.title")), Para(t("calibration.says")), _calibration(view, t)]
    blocks += [Heading("breaches", t("breaches.title")), *_breaches(view, t)]
    return Section("validity", t("validity.title"), tuple(blocks))


def faults(view: ReportView, t: Words) -> Section:
    """Return what went wrong, whose it was, and when: injected faults and others alike."""
    return Section("faults", t("incidents.title"), (Para(t("incidents.says"), soft=True), _incidents(view, t)))


def _says(view: ReportView, t: Words) -> str:
    if view.imported:
        return t("imported.validity", n=len(view.thrown_out))
    if view.gate == "g1" and not view.blocks:
        return t("validity.declared")
    return t("validity.says", total=len(view.blocks), valid=len(view.counted), bad=len(view.thrown_out))


def _blocks(view: ReportView, t: Words) -> Table:
    head = heads(
        t("validity.block"), t("validity.state"), t("validity.order"), t("validity.steps"), t("validity.set"),
        t("col.reason"), numbers=(0, 4),
    )  # fmt: skip
    return Table("validity", head, tuple(_block(block, view, t) for block in view.blocks), (1, 2, 3.2, 1.4, 1.2, 5))


def _block(block: Json, view: ReportView, t: Words) -> tuple[Cell, ...]:
    number_of = block.get("block")
    state = t("validity.ok") if number_of in view.counted else t("validity.not_judged")
    reasons = view.thrown_out.get(number_of, ()) if isinstance(number_of, int) else ()
    if isinstance(number_of, int) and number_of in view.thrown_out:
        state = t("validity.thrown_out")
    if block.get("replaces") is not None:
        state = t("validity.replaces", state=state, block=leaf(block["replaces"]))
    said = "\n".join(reasons[:REASONS_SHOWN])
    more = t("reasons.more", n=len(reasons) - REASONS_SHOWN) if len(reasons) > REASONS_SHOWN else ""
    return (
        number(leaf(number_of)),
        text(state),
        text(" · ".join(leaf(arm) for arm in items(block.get("order")))),
        text(", ".join(leaf(step) for step in items(block.get("steps")))),
        number(leaf(block.get("prompt_set"))),
        Cell(said or t("all.none"), "quote", more),
    )


def _calibration(view: ReportView, t: Words) -> Block:
    if not view.calibration:
        return Para(t("calibration.none"))
    head = heads(
        t("calibration.step"), t("calibration.n"), t("calibration.p50"), t("calibration.p99"), t("calibration.budget"),
        t("calibration.clock"), numbers=range(5),
    )  # fmt: skip
    rows = tuple(
        (
            number(leaf(row.get("step"))),
            number(leaf(row.get("n"))),
            *(number(_milliseconds(row.get(key), t)) for key in ("p50_s", "p99_s", "budget_s")),
            text(leaf(row.get("clock"))),
        )
        for row in view.calibration
    )
    return Table("calibration", head, rows)


def _milliseconds(value: object, t: Words) -> str:
    """Return a time in milliseconds, to the microsecond that the clocks tell."""
    known = numeric(value)
    return t("all.no_data") if known is None else digits(known * 1e3, 3)


def _breaches(view: ReportView, t: Words) -> list[Block]:
    if not view.breaches:
        return [Para(t("breaches.none"))]
    head = heads(t("breaches.trial"), t("breaches.check"), t("incidents.whose"), t("col.reason"))
    rows = tuple(
        (
            code(leaf(breach.get("trial"))),
            code(leaf(breach.get("check"))),
            text(leaf(breach.get("whose"))),
            quote(leaf(breach.get("reason"))),
        )
        for breach in view.breaches[:BREACHES_SHOWN]
    )
    rest = len(view.breaches) - BREACHES_SHOWN
    found: list[Block] = [Table("breaches", head, rows, (2.4, 1.6, 1.6, 6))]
    return [*found, Para(t("breaches.more", n=rest))] if rest > 0 else found


def _incidents(view: ReportView, t: Words) -> Block:
    if not view.incidents:
        return Para(t("incidents.none"))
    head = heads(
        t("incidents.when"), t("incidents.whose"), t("incidents.kind"), t("incidents.where"), t("incidents.message")
    )
    return Table("faults", head, tuple(_incident(incident, t) for incident in view.incidents), (2.6, 1.6, 2, 2.4, 5))


def _incident(incident: Json, t: Words) -> tuple[Cell, ...]:
    where = [leaf(incident["arm"])] if incident.get("arm") is not None else []
    where += [f"c{leaf(incident['step'])}"] if incident.get("step") is not None else []
    where += [f"{t('validity.block')} {leaf(incident['block'])}"] if incident.get("block") is not None else []
    return (
        text(utc(str(incident.get("t_utc") or ""))),
        text(leaf(incident.get("whose"))),
        code(leaf(incident.get("kind"))),
        text(" · ".join(where) or t("all.none")),
        quote(leaf(incident.get("message"))),
    )
