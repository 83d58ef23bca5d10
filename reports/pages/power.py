"""How often the rule decides what at the site's noise, as it was simulated and sealed when the run began."""

from __future__ import annotations

from reports.document import Para, Section, Table
from reports.loose import Json, dig, numeric, objects
from reports.pages.cells import heads, number, text
from reports.text import leaf
from reports.view.model import ReportView
from reports.words import Words


def power(view: ReportView, t: Words) -> Section | None:
    """Return the known error rates of the run; None where none were recorded."""
    # Spelt out, so that a missing or an unused string is found.
    effects = {
        "r2": t("power.r2"), "aa": t("power.aa"), "short": t("power.short"), "limit": t("power.limit"),
        "beyond": t("power.beyond"),
    }  # fmt: skip
    outcomes = [one for one in objects(dig(view.facts, "power", "outcomes")) if str(one.get("effect")) in effects]
    if not outcomes:
        return None
    noise, runs = (leaf(dig(view.facts, "power", key)) for key in ("noise", "repetitions"))
    head = heads(
        t("power.effect"), t("verdict.PASS.word"), t("verdict.FAIL.word"), t("verdict.INCONCLUSIVE.word"),
        t("power.blocks"), numbers=(1, 2, 3, 4),
    )  # fmt: skip
    rows = tuple(
        (
            text(effects[str(one["effect"])]),
            *(number(_share(one, verdict)) for verdict in ("pass", "fail", "inconclusive")),
            number(_blocks(one)),
        )
        for one in outcomes
    )
    said = Para(t("power.says", noise=noise, runs=runs))
    return Section("power", t("power.title"), (said, Table("power", head, rows, (4, 1.2, 1.2, 1.2, 1.2))))


def _share(outcome: Json, key: str) -> str:
    value = numeric(outcome.get(key))
    return "–" if value is None else f"{value * 100:.1f}\u00a0%"


def _blocks(outcome: Json) -> str:
    value = numeric(outcome.get("blocks"))
    return "–" if value is None else f"{value:.1f}"
