"""Every requirement with its reason, and what the site does not declare."""

from __future__ import annotations

from reports import imported
from reports.document import Block, Cell, Heading, Para, Section, Table
from reports.pages.cells import code, heads, number, state, text
from reports.reasons import told
from reports.rows import measured_rows, requirement_name
from reports.view.model import ReportView, Requirement
from reports.words import Words


def results(view: ReportView, t: Words) -> Section:
    """Return the section of the requirements, a row per criterion and step."""
    blocks: list[Block] = []
    if not view.requirements:
        blocks.append(Para(t("requirements.none")))
    elif view.gate == "g1":
        blocks.append(_declared(view, t))
    else:
        blocks.append(_measured(view, t))
    blocks.append(Para(t("requirements.reasons"), soft=True))
    if view.not_declared:
        blocks += [Heading("undeclared", t("requirements.not_declared"))]
        blocks += [Para(t("requirements.not_declared_says", n=len(view.not_declared))), _undeclared(view, t)]
    return Section("requirements", t("requirements.title"), tuple(blocks))


def stated(view: ReportView, t: Words) -> Section | None:
    """Return what imported files state of themselves; None for a run."""
    if not view.claims:
        return None
    head = heads(
        t("imported.where"), t("compared.arm_title"), *imported.STATED, numbers=range(2, 2 + len(imported.STATED))
    )
    rows = tuple((text(row[0]), text(row[1]), *(number(cell) for cell in row[2:])) for row in view.claims)
    return Section("stated", t("imported.stated"), (Para(t("imported.stated_says")), Table("stated", head, rows)))


def _measured(view: ReportView, t: Words) -> Table:
    head = heads(
        t("col.requirement"), t("col.step"), t("col.limit"), t("col.measured"), t("col.n"), t("col.verdict"),
        t("col.reason"), numbers=range(1, 5),
    )  # fmt: skip
    rows = []
    before = None
    for r in measured_rows(view.requirements, t):
        # What is wrong with the run as a whole is the reason of every row: it is told once.
        reason = text(t("requirements.as_above")) if before == (r.reason, r.flags) else _reason(r.reason, r.flags, t)
        before = r.reason, r.flags
        rows.append(
            (
                Cell(r.name, more=r.id, more_kind="code"),
                number(r.step),
                number(r.limit, r.relaxed),
                number(r.measured, r.interval),
                number(r.n),
                state(r.verdict, t, trusted=view.trusted),
                reason,
            )
        )
    return Table("requirements", head, tuple(rows), (3.2, 1.1, 1.8, 2.6, 0.9, 2.2, 5))


def _declared(view: ReportView, t: Words) -> Table:
    head = heads(
        t("col.requirement"), t("col.declared"), t("col.found"), t("col.verdict"), t("col.reason"), t("col.raw")
    )
    rows = tuple(
        (
            _name(r, t),
            text(r.declared if r.declared is not None else t("all.none")),
            text(r.found if r.found is not None else t("all.no_data")),
            state(r.verdict, t, trusted=view.trusted),
            _reason(r.reason, tuple(t.either(f"flag.{flag}", flag) for flag in r.flags), t),
            code("\n".join(r.raw) or t("all.none")),
        )
        for r in view.requirements
    )
    return Table("requirements", head, rows, (3, 2.6, 2.6, 2.2, 3.4, 3.6))


def _undeclared(view: ReportView, t: Words) -> Table:
    rows = tuple((text(requirement_name(r, t)), code(r.id)) for r in view.not_declared)
    return Table("undeclared", heads(t("col.requirement"), t("col.id")), rows, (4, 5))


def _name(requirement: Requirement, t: Words) -> Cell:
    name = requirement_name(requirement, t)
    return Cell(name, more=requirement.id if name != requirement.id else "", more_kind="code")


def _reason(reason: str, flags: tuple[str, ...], t: Words) -> Cell:
    cell = told(reason, t)
    if not flags:
        return cell
    marked = t("stop_loss.separator").join(flags)
    return Cell(f"{marked} {cell.text}".strip(), cell.kind, cell.more, cell.more_kind)
