"""What was compared: how each arm was started, with the differences marked."""

from __future__ import annotations

from reports.document import Block, Heading, Para, Section, Table
from reports.pages.cells import code, heads, text
from reports.view.model import ReportView
from reports.words import Words

DIFFERS = "≠ "


def compared(view: ReportView, t: Words) -> Section | None:
    """Return the arms side by side; None where there are none to compare."""
    if view.imported or not view.arms.arms:
        return None
    rows = [
        (text(t("compared.arm_title")), *(text(view.arm_title(arm)) for arm in view.arms.arms)),
        (text(t("compared.tier")), *(text(_tier(view, arm, t)) for arm in view.arms.arms)),
        (text(t("compared.starts")), *(text(str(n)) for n in view.arms.starts)),
        *((code(DIFFERS + s.key), *(code(value) for value in s.values)) for s in view.arms.differing()),
    ]
    head = heads(t("compared.setting"), *view.arms.arms)
    blocks: list[Block] = [Table("compared", head, tuple(rows), (3, *(3 for _ in view.arms.arms)))]
    blocks.append(Para(t("compared.note", n=len(view.arms.differing())), soft=True))
    same = view.arms.same()
    if same:
        blocks.append(Heading("same", t("compared.same", n=len(same))))
        shared = tuple((code(s.key), code(s.values[0])) for s in same)
        blocks.append(Table("same", heads(t("compared.setting"), t("col.value")), shared, (3, 5)))
    return Section("compared", t("compared.title"), tuple(blocks))


def _tier(view: ReportView, arm: str, t: Words) -> str:
    return str((view.tier(arm) or {}).get("title", t("compared.no_tier")))
