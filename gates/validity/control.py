"""The positive control must have been carried out, and must have been seen: checks that are blind prove nothing."""

from __future__ import annotations

from typing import Any

from gates.validity.answers import distance
from gates.validity.breach import HARNESS, Tell
from scenarios.model import BASELINE
from workloads.control import exchanges, prompts
from workloads.evidence import Run, read_json

Json = dict[str, Any]

CHECK = "control"


def check_control(run: Run, allowed: float, tell: Tell) -> list[str]:
    """Return a line on what the exchanged chunks did; tell where that was not seen. Raises what is in MISSHAPEN.

    Seen is one: with the chunk exchanged the answer lies farther from the one that was computed than the `allowed`
    nats of any prompt, and before and after it does not. Nothing else than the exchange can have made that difference.
    Most of the exchanges must be seen.
    """
    file = run.path / "raw" / BASELINE / "control.json"
    if not file.is_file():
        if any(True for _ in run.trials()):
            tell(CHECK, HARNESS, "no data: no chunk was exchanged to see whether the answers show it")
        return []
    facts = read_json(file)
    if facts["error"] is not None:
        tell(CHECK, HARNESS, f"the control was not carried out: {facts['error']}")
        return []
    chunks = int(run.facts["scenario"]["workload"]["prompt_tokens"]) // int(
        run.facts["site"]["lmcache"]["chunk_tokens"]
    )
    swapped = [f"exchanged-{number}" for number in range(exchanges(chunks))]
    records = {str(r["role"]): r for r in facts["requests"]}
    wanted = ["stored", "spare", "sound", *swapped, "restored"]
    if [r["role"] for r in facts["requests"]] != wanted or len(facts["exchanges"]) != len(swapped) or not swapped:
        tell(CHECK, HARNESS, f"the control asked {', '.join(records)}; {', '.join(wanted)} expected")
        return []
    _carried_out(run, facts, records, tell)
    likely = {role: record["first_logprobs"] or {} for role, record in records.items()}
    far = {role: distance(likely[role], likely["stored"]) for role in wanted[2:]}
    line = "the control: " + ", ".join(f"{role} {value:.3f}" for role, value in far.items())
    line += f" nats from what was computed, {allowed:.3g} allowed"
    for role in ("sound", "restored"):
        if not far[role] <= allowed:
            tell(CHECK, HARNESS, f"{line}: the {role} answer is not the one that was computed")
            return [line]
    # An answer without a number differs from all, but not because a chunk was exchanged for a sound one.
    seen = sum(far[role] > allowed and bool(likely[role]) for role in swapped)
    if not 2 * seen > len(swapped):
        told = f"{seen} of {len(swapped)} exchanged chunks are seen: the checks are blind here"
        tell(CHECK, HARNESS, f"{line}: {told}")
    return [line]


def _carried_out(run: Run, facts: Json, records: dict[str, Json], tell: Tell) -> None:
    """Tell if the files or the prompts are not those of a control of this run."""
    if any(record["status"] != "ok" for record in records.values()):
        tell(CHECK, HARNESS, "the control: a request of it failed")
    load, site = run.facts["scenario"]["workload"], run.facts["site"]
    vocabulary = int(site["models"][run.facts["scenario"]["model"]]["vocabulary_tokens"])
    chunk_tokens = int(site["lmcache"]["chunk_tokens"])
    asked, spare = prompts(
        int(run.facts["seed"]), str(run.facts["run_id"]), int(load["prompt_tokens"]), chunk_tokens, vocabulary
    )
    for role, record in records.items():
        wanted = spare if role == "spare" else asked
        if (record["prompt_seed"], record["prompt_tokens_expected"]) != (wanted.prompt_seed(), wanted.tokens):
            tell(CHECK, HARNESS, f"the control: its prompt '{role}' is not the one that this run makes")
    others = {name for arm in run.facts["scenario"]["arms"] for line in run.populated(arm) for name in line["files"]}
    for exchange in facts["exchanges"]:
        one, two = exchange["pair"]
        sound, swapped, restored = (exchange["hashes"][when] for when in ("sound", "exchanged", "restored"))
        if {one, two} & others or one not in facts["files"]["stored"] or two not in facts["files"]["spare"]:
            tell(CHECK, HARNESS, "the control: its files are not its own")
        if None in sound.values() or sound[one] == sound[two] or swapped != {one: sound[two], two: sound[one]}:
            tell(CHECK, HARNESS, "the control: the two chunk files were not exchanged")
        if restored != sound:
            tell(CHECK, HARNESS, "the control: the two chunk files are not what they were before")
