"""What a made-up run says of the stored prompts: written, hashed, exchanged on purpose, and asked for needles."""

from __future__ import annotations

import hashlib
from typing import Any

from tests.synthetic_host import CHUNK_BYTES, Host
from tests.synthetic_requests import alone, likely, storing
from workloads import control
from workloads.chunks import sample
from workloads.needles import needles

Json = dict[str, Any]


def populated(host: Host, arm: str, prompt_set: int) -> Json:
    """Return the line of a set that was stored just now."""
    prompts = host.scenario.largest_step()
    requests = [storing(host, arm, prompt_set, index) for index in range(prompts)]
    for request in requests:
        host.book(arm, request, stored=False)
    files = files_of(host, prompt_set)
    line: Json = {
        "arm": arm,
        "prompt_set": prompt_set,
        "start": 1,
        "prompts": prompts,
        "expected_chunks": len(files),
        "files": files,
        "pending": 0,
        "confirmed": True,
        "requests": requests,
        "chunks": hashed(host, prompt_set),
    }
    host.truth.populate(line)
    return line


def files_of(host: Host, prompt_set: int) -> dict[str, int]:
    """Return the set's files in the tier and their sizes in bytes."""
    return {f"m@{prompt_set}@{i:04d}.data": CHUNK_BYTES for i in range(16 * host.scenario.largest_step())}


def hashed(host: Host, prompt_set: int) -> Json:
    """Return what `workloads.chunks.look` would say of the set's sample: each file holds its own name."""
    files = files_of(host, prompt_set)
    names = sample(host.truth.seed, prompt_set, files)
    return {
        "t_begin_ns": host.now_ns,
        "t_end_ns": host.now_ns,
        "direct_io": True,
        "hashes": {name: hashlib.sha256(name.encode()).hexdigest() for name in names},
        "bytes": {name: files[name] for name in names},
        "faults": {},
    }


def exchanged(host: Host, run_id: str) -> Json:
    """Return what the negative control found: each exchange of two chunks changes what is answered."""
    asked, spare = control.prompts(host.truth.seed, run_id, host.scenario.workload.prompt_tokens, 256, 1024)
    pair = ["m@control@a.data", "m@control@b.data"]
    sound = {name: hashlib.sha256(name.encode()).hexdigest() for name in pair}
    facts: Json = {
        "arm": "baseline", "start": 1, "run_id": run_id, "error": None,
        "files": {"stored": [pair[0]], "spare": [pair[1]]},
        "exchanges": [
            {
                "pair": pair,
                "hashes": {
                    "sound": sound, "exchanged": dict(zip(pair, reversed(sound.values()), strict=True)),
                    "restored": sound,
                },
            }
            for _ in range(control.EXCHANGES)
        ],
        "requests": [
            {
                "id": f"baseline-control-{role}", "role": role, "prompt_seed": prompt.prompt_seed(),
                "first_logprobs": likely(9 if role.startswith("exchanged") else 7), **alone(host, prompt.tokens, 8),
                "status": "ok", "error": None,
            }
            for role, prompt in (
                ("stored", asked), ("spare", spare), ("sound", asked),
                *((f"exchanged-{i}", asked) for i in range(control.EXCHANGES)), ("restored", asked),
            )
        ],
    }  # fmt: skip
    for request in facts["requests"]:
        host.book("baseline", request, stored=False)
    host.truth.control(facts)
    return facts


def recalled(host: Host, run_id: str, arm: str) -> Json:
    """Return what was asked for needles; a rehearsal's model cannot find any and is not asked."""
    facts: Json = {"arm": arm, "start": host.starts[arm], "skipped": None, "expected": {}}
    facts |= {"computed": [], "read": []}
    if host.truth.rehearsal:
        facts["skipped"] = "generated"
    else:
        _ask(host, run_id, arm, facts)
    host.truth.needles(facts)
    return facts


def _ask(host: Host, run_id: str, arm: str, facts: Json) -> None:
    """Let every needle be found, in its text and, by an arm with a tier, in what was read back."""
    tokens = host.scenario.workload.prompt_tokens
    made = needles(host.truth.seed, run_id, tokens)
    facts["expected"] = {str(needle.number): needle.expected for needle in made}
    for role in ("computed", "read") if host.scenario.arms[arm].tiers else ("computed",):
        facts["before"] = host.counters(arm, 0, False, "before")
        for needle in made:
            sent_ns, host.now_ns = host.now_ns, host.now_ns + 5_000_000_000
            record: Json = {
                "id": f"{arm}-needle-{role}-{needle.number}", "arm": arm, "role": role, "needle": needle.number,
                "text": needle.expected, "status": "ok", "error": None, "t_sent_ns": sent_ns,
                "t_first_ns": host.now_ns, "t_last_ns": host.now_ns, "prompt_tokens_expected": tokens,
                "output_tokens_expected": 16, "usage": {"prompt_tokens": tokens, "completion_tokens": 16},
            }  # fmt: skip
            host.book(arm, record, stored=role == "read")
            facts[role].append(record)
        facts["after"] = host.counters(arm, 0, False, "after")
