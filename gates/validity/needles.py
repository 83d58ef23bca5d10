"""What a model found in a text when it computed the text, it must find again when it reads it from the tier."""

from __future__ import annotations

from typing import Any

from gates.nodata import NoData
from gates.readers.prometheus import Exposition, delta
from gates.validity.books import SOURCE, shown
from gates.validity.breach import HARNESS, HOST, Tell
from gates.validity.tokens import FAILED, OK, check_status
from scenarios.model import RECOMPUTE, stored_tokens
from workloads.evidence import Run, read_json
from workloads.needles import needles

Json = dict[str, Any]

CHECK = "needles"


def check_needles(run: Run, tell: Tell) -> list[str]:
    """Tell of needles lost, and of arms that were not asked; return a line per arm. Raises what is in MISSHAPEN.

    A needle says something only where recompute finds it and the arm itself found it while computing: then an arm
    that misses it in what it reads back was given wrong KV. Where recompute finds none, or the arm none of recompute's,
    the check is blind.
    """
    scenario, site = run.facts["scenario"], run.facts["site"]
    generated = site["models"][scenario["model"]]["source"] == "generated"
    made = needles(int(run.facts["seed"]), str(run.facts["run_id"]), int(scenario["workload"]["prompt_tokens"]))
    expected = {str(needle.number): needle.expected for needle in made}
    found: dict[str, Json] = {}
    for arm in scenario["arms"]:
        file = run.path / "raw" / arm / "needles.json"
        if file.is_file():
            found[arm] = read_json(file)
        elif any(trial.facts["arm"] == arm for trial in run.trials()):
            tell(CHECK, HARNESS, f"{arm}: no data: it was not asked for needles")
    for arm, facts in found.items():
        if facts["skipped"] is not None and not generated:
            tell(CHECK, HARNESS, f"{arm}: needles were left out, though the model is not generated")
        elif facts["skipped"] is None and facts["expected"] != expected:
            tell(CHECK, HARNESS, f"{arm}: the needles are not those that this run makes")
    if RECOMPUTE not in found or any(facts["skipped"] is not None for facts in found.values()):
        return []
    known = _hits(found[RECOMPUTE], "computed")
    if not known:
        tell(CHECK, HARNESS, f"{RECOMPUTE} found none of {len(found[RECOMPUTE]['expected'])} needles: it shows nothing")
    lines = []
    for arm, facts in found.items():
        if arm == RECOMPUTE:
            continue
        for role in ("computed", "read"):
            _answered(arm, role, facts, tell)
        _from_the_tier(arm, facts, int(site["lmcache"]["chunk_tokens"]), tell)
        asked = known & _hits(facts, "computed")
        lost = sorted(asked - _hits(facts, "read"))
        if known and not asked:
            told = f"{arm} found none of the {len(known)} needles that {RECOMPUTE} found, when it computed them"
            tell(CHECK, HARNESS, f"{told}: what it reads back shows nothing")
        lines.append(f"{arm}: {len(asked) - len(lost)} of {len(asked)} needles were found in what was read back")
        if lost:
            tell(CHECK, arm, f"{lines[-1]}; needle {lost[0]} was found when it was computed")
    return lines


def _answered(arm: str, role: str, facts: Json, tell: Tell) -> None:
    """Tell of needles that failed, which is the arm's; and of those whose record does not say, or that have none."""
    for r in facts[role]:
        check_status(r, tell)
    if len(facts[role]) != len(facts["expected"]):
        told = f"{len(facts[role])} needles are recorded as {role}, {len(facts['expected'])} expected"
        tell(CHECK, HARNESS, f"{arm}: no data on the others: {told}")
    failed = [r["error"] for r in facts[role] if r["status"] == FAILED]
    if failed:
        tell(CHECK, arm, f"{arm}: {len(failed)} of {len(facts[role])} needles failed: {failed[0]}")


def _hits(facts: Json, role: str) -> set[str]:
    return {
        str(r["needle"])
        for r in facts[role]
        if r["status"] == "ok" and str(facts["expected"][str(r["needle"])]) in str(r["text"])
    }


def _from_the_tier(arm: str, facts: Json, chunk_tokens: int, tell: Tell) -> None:
    """Tell if the needles' second readings did not come from the tier: then they say nothing of it.

    One that failed may have read all of its tokens, or none.
    """
    texts = [facts[when]["engine_metrics"] for when in ("before", "after")]
    if not all(isinstance(text, str) for text in texts):
        tell(CHECK, HOST, f"{arm}: no data on where its needles were read from")
        return
    external = delta(Exposition(texts[0]), Exposition(texts[1]), SOURCE, {"source": "external_kv_transfer"})
    tokens: dict[bool, int] = {True: 0, False: 0}  # by whether the needle was answered
    for r in facts["read"]:
        length = r["usage"]["prompt_tokens"] if r["status"] == OK else r["prompt_tokens_expected"]
        tokens[r["status"] == OK] += stored_tokens(int(length), chunk_tokens)
    wanted = tokens[True], tokens[True] + tokens[False]
    if isinstance(external, NoData) or not wanted[0] <= external <= wanted[1]:
        told = external.reason if isinstance(external, NoData) else f"{external:g}"
        tell(CHECK, HOST, f"{arm}: {told} tokens of its needles came from the tier, {shown(wanted)} expected")
