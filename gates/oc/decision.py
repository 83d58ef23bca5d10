"""docs/decision.md: the rule in words, and its error rates against the bars that it has to hold.

Each figure is computed from the very command line that is printed beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from gates import criteria
from gates.oc import show
from gates.oc.document import Document, number, per_cent
from gates.oc.residuals import NAMED
from gates.oc.residuals import load as load_residuals
from gates.oc.simulation import Outcome, compared
from gates.stats import Estimate
from scenarios.load import ConfigError
from workloads.evidence import write_whole

TEMPLATE = Path(__file__).with_name("decision.template.md")
WRONG, BLOCKS, PUBLISHED, AT_HALF, AT_NOISY = 0.005, 8.5, 0.85, 0.065, 0.009
R2 = "--ttft-ratios 0.74 0.68 0.7375 --gains 1.29 1.40 1.33"


def write(path: Path, repetitions: int) -> list[str]:
    """Write the document and return what to print: each bar that was not held."""
    noises = [name for name in NAMED if _there(name)]
    document = Document(repetitions, noises)
    text = TEMPLATE.read_text(encoding="utf-8")
    for name, section in SECTIONS.items():
        text = text.replace(f"[[{name}]]", "\n".join(section(document)))
    absent = [name for name in NAMED if name not in noises]
    text = text.replace("[[verdict]]", "\n".join(_verdict(document, absent)))
    write_whole(path, text.encode())
    return [f"{path}: {document.bars} bars, {len(document.missed)} not held", *document.missed]


def _there(name: str) -> bool:
    try:
        load_residuals(name)
    except ConfigError:
        return False
    return True


def _verdict(document: Document, absent: Sequence[str]) -> list[str]:
    if not document.missed:
        found = [f"**All {document.bars} bars are held.**"]
    else:
        found = [f"**{len(document.missed)} of {document.bars} bars are not fully held:**", ""]
        found += [f"- {line}" for line in document.missed]
    if absent:
        found += ["", f"**Not shown: {', '.join(absent)}.** The shared data was not there when this was made."]
    return found


def _laws(document: Document, *, in_time: bool = False) -> list[tuple[str, str]]:
    """Return (name, options) of each law of noise, at an sd of one precision."""
    found = [("t5", "")] + [(name, f" --noise {name} --sd 0.03") for name in document.noises]
    if in_time:
        # A run has more slots than there are nights, so nights in time would meet themselves.
        found += [(f"{n}, in time", f" --noise {n} --sd 0.03 --in-time") for n in document.noises if n != "nightly"]
    return found


def _ids() -> list[str]:
    return [c.id for c in compared(criteria.load(criteria.default_file("g3")))]


def _wrong(outcome: Outcome, away: float) -> Estimate:
    return outcome.pass_ if away < 0 else outcome.fail


def _side(away: float) -> str:
    return f"{abs(away):g} {'short: wrong PASS' if away < 0 else 'inside: wrong FAIL'}"


def _wrong_rows(
    document: Document, what: str, wanted: Iterable[tuple[str, str, float]], bar: float | None, blocks: float | None
) -> list[str]:
    """Return a table of wrong verdicts for (name, options, away)."""
    head = ["noise and row", "truth", "wrong", *(["bar"] if bar else []), "INCONCLUSIVE", "blocks", "command"]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for name, options, away in wanted:
        line = f"{options} --away {away:g}".strip()
        found = document.outcome(line)
        wrong, where = _wrong(found, away), f"{what}, {name}, {_side(away)}"
        judged = [document.at_most(where, wrong, bar, per_cent)] if bar else []
        average = f"{found.mean_blocks.point:.2f}"
        if blocks:
            average += f", {document.at_most(f'{where}: blocks', found.mean_blocks, blocks, number)}"
        cells = [name, _side(away), show.share(wrong), *judged, show.share(found.inconclusive), average]
        lines.append(f"| {' | '.join([*cells, document.told(line)])} |")
    return lines


def _alone(document: Document, extra: str = "", *, in_time: bool = False) -> list[tuple[str, str, float]]:
    """Return each criterion alone at one step, on both sides, under every law of noise."""
    return [
        (f"{law}: {name}", f"--only {name} --steps 1{options}{extra}", away)
        for law, options in _laws(document, in_time=in_time)
        for name in _ids()
        for away in (-1.0, 1.0)
    ]


def _whole(document: Document, extra: str = "") -> list[tuple[str, str, float]]:
    return [
        (f"{law}: gate", f"--steps 3{options}{extra}", away) for law, options in _laws(document) for away in (-1.0, 1.0)
    ]


def _criterion(document: Document) -> list[str]:
    return _wrong_rows(document, "one criterion", _alone(document, in_time=True), WRONG, BLOCKS)


def _gate(document: Document) -> list[str]:
    return _wrong_rows(document, "", _whole(document), None, None)


def _near(document: Document) -> list[str]:
    name = _ids()[0]
    half = [(f"t5: {name}", f"--only {name} --steps 1", away) for away in (-0.5, 0.5)]
    noisy = [(f"t5, sd 0.051: {name}", f"--only {name} --steps 1 --sd 0.051", away) for away in (-1.0, 1.0)]
    options = f"--only {name} --steps 1 --away 0"
    even = document.outcome(options)
    return [
        *_wrong_rows(document, "half a precision away", half, AT_HALF, None),
        *_wrong_rows(document, "sd of 1.7 precisions", noisy, AT_NOISY, None)[2:],
        "",
        f"Exactly on the limit: PASS {show.share(even.pass_)}, FAIL {show.share(even.fail)}: {document.told(options)}",
    ]


def _weak(document: Document) -> list[str]:
    lines = ["| noise | truth | PASS | bar | FAIL | command |", "|---|---|---|---|---|---|"]
    for law, options in _laws(document):
        for truth, given in (("A/A", "1 --gains 1"), ("0.85, 1.15", "0.85 --gains 1.15")):
            line = f"--ttft-ratios {given}{options}"
            found = document.outcome(line)
            # The bar is a count in so many runs, not a share of all runs there might be.
            count = replace(found.pass_, low=found.pass_.point, high=found.pass_.point)
            judged = document.at_most(f"{truth}, {law}: PASS", count, 0.0, per_cent)
            cells = f"{law} | {truth} | {show.share(found.pass_)} | {judged} | {show.share(found.fail)}"
            lines.append(f"| {cells} | {document.told(line)} |")
    return lines


def _published(document: Document) -> list[str]:
    lines = ["| noise | sd | policy | PASS | bar | FAIL | INCONCLUSIVE | blocks | command |", "|---" * 9 + "|"]
    for law, noise in _laws(document):
        for sd in ("0.02", "0.015"):
            for policy in ("measured", "proven"):
                line = f"{R2} --policy {policy}{noise.replace(' --sd 0.03', '')} --sd {sd}"
                found, judged = document.outcome(line), ""
                if policy == "measured":
                    judged = document.at_most(
                        f"published R2, {law}, sd {sd}: not PASS", _other(found.pass_), 1 - PUBLISHED, per_cent
                    )
                shares = " | ".join(map(show.share, (found.fail, found.inconclusive)))
                cells = f"{law} | {sd} | {policy} | {show.share(found.pass_)} | {judged} | {shares}"
                lines.append(f"| {cells} | {found.mean_blocks.point:.2f} | {document.told(line)} |")
    return lines


def _drift(document: Document) -> list[str]:
    alone = _wrong_rows(document, "drift, balanced order", _alone(document, " --drift 0.02"), WRONG, None)
    return [*alone, "", *_wrong_rows(document, "", _whole(document, " --drift 0.02"), None, None)]


def _fixed(document: Document) -> list[str]:
    wanted = [
        (f"{law}: {name}, {first} first", f"--only {name} --steps 1{options} --drift 0.02 --fixed-order {first}", away)
        for law, options in _laws(document)
        for name in _ids()
        for first, away in (("candidate", -1.0), ("baseline", 1.0))
    ]
    return _wrong_rows(document, "", wanted, None, None)


def _between(document: Document) -> list[str]:
    alone = _wrong_rows(document, "between-start noise", _alone(document, " --between 10"), WRONG, BLOCKS)
    return [*alone, "", *_wrong_rows(document, "", _whole(document, " --between 10"), None, None)]


def _waves(document: Document) -> list[str]:
    return _wrong_rows(document, "", _alone(document, " --between 10 --count-waves"), None, None)


def _common(document: Document) -> list[str]:
    wanted = [
        (f"t5, common share {part:g}: gate", f"--steps 3 --common {part:g}", away)
        for part in (0.5, 1.0)
        for away in (-1.0, 1.0)
    ]
    return _wrong_rows(document, "", wanted, None, None)


def _guards(document: Document) -> list[str]:
    wanted = [(f"t5, guards' sd {sd}: gate", f"--steps 3 --guard-sd {sd}", 1.0) for sd in ("0.05", "0.1")]
    return _wrong_rows(document, "", wanted, None, None)


def _attempts(document: Document) -> list[str]:
    head = "| policy | truth | PASS at attempt 1 | 2 | 3 | PASS in one of the three | command of the last |"
    lines, name = [head, "|---" * 7 + "|"], _ids()[0]
    for policy in ("measured", "proven"):
        for away in (-1.0, -0.5, 0.0):
            options = [f"--only {name} --steps 1 --policy {policy} --away {away:g} --attempt {k}" for k in (1, 2, 3)]
            found = [document.outcome(line).pass_ for line in options]
            never = 1.0
            for each in found:
                never *= 1 - each.point
            truth = f"{abs(away):g} short" if away else "on the limit"
            cells = [policy, truth, *map(show.share, found), per_cent(1 - never), document.told(options[-1])]
            lines.append(f"| {' | '.join(cells)} |")
    return lines


def _other(share: Estimate) -> Estimate:
    return Estimate(1 - share.point, 1 - share.high, 1 - share.low, share.confidence, share.n, share.method)


SECTIONS: dict[str, Callable[[Document], list[str]]] = {
    "criterion": _criterion,
    "gate": _gate,
    "near": _near,
    "weak": _weak,
    "published": _published,
    "drift": _drift,
    "fixed": _fixed,
    "between": _between,
    "waves": _waves,
    "common": _common,
    "guards": _guards,
    "attempts": _attempts,
}
