"""Can a trial be trusted? Checked without looking at the outcome; each breach says what was expected and found.

Whose fault decides what a breach does: the candidate's own is a FAIL, any other makes the trial INVALID.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from gates.metrics import NS, e2e_s
from gates.nodata import NoData
from gates.readers.prometheus import Exposition, ReadError, delta
from scenarios.model import CANDIDATE, stored_tokens
from workloads.evidence import EvidenceError, Run, Trial

Json = dict[str, Any]

AGREEMENT = 0.05  # tier bytes and books agree within this share
CLOCK_STEP_NS = 5_000_000  # more than the kernel slews in a trial, less than any step that matters
# Between the engine's own clock for a request and the client's lie HTTP and scheduling on a busy machine.
BOOK_FLOOR_S_PER_REQUEST = 0.02

HOST = "host"


@dataclass(frozen=True)
class Breach:
    """One reason not to trust a trial, or to hold something against the candidate."""

    check: str
    whose: str  # an arm's name, "host" or "harness"
    reason: str
    trial: str

    def to_json(self) -> Json:
        """Return the breach as written to blocks/b<nn>.json."""
        return asdict(self)


@dataclass(frozen=True)
class _Expected:
    """What the run's own description says that a trial must show."""

    prompt_tokens: int
    output_tokens: int
    chunk_tokens: int
    kv_bytes_per_token: int
    lag_budget_s: float
    has_tier: bool
    populated_files: int | None

    @property
    def stored_tokens(self) -> int:
        return stored_tokens(self.prompt_tokens, self.chunk_tokens) if self.has_tier else 0

    @property
    def chunk_aligned_tokens(self) -> int:
        return self.prompt_tokens // self.chunk_tokens * self.chunk_tokens if self.has_tier else 0


def check_trial(run: Run, trial: Trial) -> list[Breach]:
    """Return every breach of one trial; an empty list means that it can be trusted."""
    name = f"{trial.facts.get('arm')}/c{trial.facts.get('step')}/b{int(trial.facts.get('block') or 0):02d}"
    arm = str(trial.facts.get("arm"))
    found: list[Breach] = []

    def breach(check: str, whose: str, reason: str) -> None:
        found.append(Breach(check, whose, reason, name))

    if trial.facts.get("completed") is not True:
        breach("complete", "harness", f"not carried through: {trial.facts.get('error')}")
        return found
    try:
        expected = _expected(run, arm)
        requests, snapshots = list(trial.requests()), list(trial.counters())
        waves = _waves(trial, requests, snapshots, breach)
        for wave in waves:
            _requests(wave, arm, expected, breach)
            _identity(wave, run, trial, breach)
            if any(r["status"] != "ok" for r in wave.requests):
                continue  # the books of a wave with failures cannot close; the failures have been told
            _books(wave, breach)
            _cold(wave, arm, expected, breach)
            _tier_bytes(wave, expected, breach)
        _clock(requests, snapshots, breach)
    except (EvidenceError, ReadError) as error:
        breach("readable", "harness", str(error))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        # Evidence of another shape than the format says: whatever it holds, it proves nothing.
        breach("readable", "harness", f"a record lacks a field or holds a wrong one: {error!r}")
    return found


@dataclass(frozen=True)
class _Wave:
    number: int
    step: int
    requests: list[Json]
    before: Json
    after: Json

    def engine(self) -> tuple[Exposition, Exposition]:
        return _exposition(self.before, "engine_metrics"), _exposition(self.after, "engine_metrics")

    def lmcache(self) -> tuple[Exposition, Exposition]:
        return _exposition(self.before, "lmcache_metrics"), _exposition(self.after, "lmcache_metrics")


def _exposition(snapshot: Json, key: str) -> Exposition:
    text = snapshot[key]
    if not isinstance(text, str):
        raise ReadError(f"{key} {snapshot.get('when')} wave {snapshot.get('wave')} could not be scraped")
    return Exposition(text)


def _expected(run: Run, arm: str) -> _Expected:
    scenario, site = run.facts["scenario"], run.facts["site"]
    load = scenario["workload"]
    has_tier = bool(scenario["arms"][arm]["tiers"])
    populated = [len(line["files"]) for line in run.populated(arm)]
    return _Expected(
        prompt_tokens=load["prompt_tokens"],
        output_tokens=load["output_tokens"],
        chunk_tokens=site["lmcache"]["chunk_tokens"],
        kv_bytes_per_token=site["models"][scenario["model"]]["kv_bytes_per_token"],
        lag_budget_s=load["client_lag_budget_s"],
        has_tier=has_tier,
        populated_files=sum(populated) if populated else None,
    )


def _waves(trial: Trial, requests: list[Json], snapshots: list[Json], breach: Any) -> list[_Wave]:
    """Pair requests and counters by wave; say what is missing, doubled or too much."""
    count = int(trial.facts["waves_discarded"]) + int(trial.facts["waves_measured"])
    step = int(trial.facts["step"])
    ids = [r["id"] for r in requests]
    if len(set(ids)) != len(ids):
        breach("requests", "harness", "a request is recorded twice")
    waves = []
    for number in range(count):
        mine = [r for r in requests if r["wave"] == number]
        before = [s for s in snapshots if s["wave"] == number and s["when"] == "before"]
        after = [s for s in snapshots if s["wave"] == number and s["when"] == "after"]
        if len(mine) != step or sorted(r["prompt_index"] for r in mine) != list(range(step)):
            breach(
                "requests", "harness", f"wave {number} has {len(mine)} requests, {step} of different prompts expected"
            )
            continue
        if len(before) != 1 or len(after) != 1:
            breach(
                "counters", "harness", f"wave {number} has {len(before)}+{len(after)} counter snapshots, 1+1 expected"
            )
            continue
        measured = number >= int(trial.facts["waves_discarded"])
        if any(r["measured"] is not measured or r["prompt_set"] != trial.facts["prompt_set"] for r in mine):
            breach("requests", "harness", f"wave {number} is marked as another kind, or holds another prompt set")
        waves.append(_Wave(number, step, mine, before[0], after[0]))
    if len(requests) != count * step or len(snapshots) != 2 * count:
        breach(
            "requests",
            "harness",
            f"{len(requests)} requests and {len(snapshots)} snapshots, {count * step} and {2 * count} expected",
        )
    return waves


def _requests(wave: _Wave, arm: str, expected: _Expected, breach: Any) -> None:
    """Errors, lengths, the order of time stamps and the client's lag."""
    failed = [r for r in wave.requests if r["status"] != "ok"]
    if failed:
        breach(
            "errors",
            arm,
            f"wave {wave.number}: {len(failed)} of {len(wave.requests)} requests failed: {failed[0]['error']}",
        )
    for r in wave.requests:
        if r["status"] != "ok":
            continue
        usage = r["usage"]
        if (usage["prompt_tokens"], r["prompt_tokens_expected"]) != (expected.prompt_tokens,) * 2:
            breach(
                "lengths",
                "harness",
                f"{r['id']}: {usage['prompt_tokens']} prompt tokens, {expected.prompt_tokens} ordered",
            )
        if (usage["completion_tokens"], r["output_tokens_expected"]) != (expected.output_tokens,) * 2:
            breach(
                "lengths",
                "harness",
                f"{r['id']}: {usage['completion_tokens']} output tokens, {expected.output_tokens} ordered",
            )
        if not r["t_intended_ns"] <= r["t_sent_ns"] <= r["t_first_ns"] <= r["t_last_ns"]:
            breach("clock", "harness", f"{r['id']}: intended, sent, first and last are not in this order")
        lag_s = (r["t_sent_ns"] - r["t_intended_ns"]) * NS
        if lag_s > expected.lag_budget_s:
            breach(
                "client-lag",
                "harness",
                f"{r['id']}: sent {lag_s * 1e3:.0f} ms late, {expected.lag_budget_s * 1e3:.0f} ms allowed",
            )


def _identity(wave: _Wave, run: Run, trial: Trial, breach: Any) -> None:
    """The processes are the ones that were started for this arm, before and after."""
    starts = [s for s in run.starts(str(trial.facts["arm"])) if s["start"] == trial.facts["start"]]
    if len(starts) != 1:
        breach("identity", "harness", f"start {trial.facts['start']} of the arm is not recorded")
        return
    for key in ("engine", "lmcache"):
        start = starts[0][key] or {"pid": None, "pid_started": None}
        was = (start["pid"], start["pid_started"])
        seen = {(s[f"{key}_pid"], s[f"{key}_pid_started"]) for s in (wave.before, wave.after)}
        if seen != {was} or (was[0] is not None and was[1] is None):
            breach(
                "identity",
                HOST,
                f"wave {wave.number}: the {key} process is not the one that was started, or was restarted",
            )


def _books(wave: _Wave, breach: Any) -> None:
    """The client's books against the engine's: requests, tokens, time."""
    before, after = wave.engine()
    client_s = sum(float(s) for r in wave.requests if not isinstance(s := e2e_s(r), NoData))
    rows: tuple[tuple[str, str, float], ...] = (
        ("requests", "vllm:e2e_request_latency_seconds_count", len(wave.requests)),
        ("prompt tokens", "vllm:prompt_tokens_total", sum(r["usage"]["prompt_tokens"] for r in wave.requests)),
        ("output tokens", "vllm:generation_tokens_total", sum(r["usage"]["completion_tokens"] for r in wave.requests)),
    )
    for what, counter, client in rows:
        engine = delta(before, after, counter)
        if isinstance(engine, NoData):
            breach("books", HOST, f"wave {wave.number}: {engine.reason}")
        elif engine != client:
            breach("books", HOST, f"wave {wave.number}: the engine booked {engine:g} {what}, the client {client:g}")
    engine_s = delta(before, after, "vllm:e2e_request_latency_seconds_sum")
    if isinstance(engine_s, NoData):
        breach("books", HOST, f"wave {wave.number}: {engine_s.reason}")
    elif abs(engine_s - client_s) > max(AGREEMENT * client_s, BOOK_FLOOR_S_PER_REQUEST * len(wave.requests)):
        breach(
            "books",
            HOST,
            f"wave {wave.number}: the engine booked {engine_s:.3f} s of requests, the client {client_s:.3f} s",
        )


def _cold(wave: _Wave, arm: str, expected: _Expected, breach: Any) -> None:
    """0 tokens from the device cache, 0 from DRAM, and every whole chunk from the tier (recompute: none)."""
    before, after = wave.engine()
    source = "vllm:prompt_tokens_by_source_total"
    device = delta(before, after, source, {"source": "local_cache_hit"})
    external = delta(before, after, source, {"source": "external_kv_transfer"})
    _equals(wave, "device cache", device, 0, breach)
    if isinstance(external, NoData) or external >= wave.step * expected.stored_tokens or not expected.has_tier:
        _equals(wave, "external tier", external, wave.step * expected.stored_tokens, breach)
    else:
        _short(wave, arm, external, expected, breach)
    if not expected.has_tier:
        return
    before, after = wave.lmcache()
    _equals(wave, "DRAM (L1)", delta(before, after, "lmcache_mp_lookup_hit_l1_tokens_total"), 0, breach)
    if external == wave.step * expected.stored_tokens:
        tier = delta(before, after, "lmcache_mp_lookup_hit_l2_tokens_total")
        _equals(wave, "tier (L2)", tier, wave.step * expected.chunk_aligned_tokens, breach)
    if wave.before["lmcache_pending"] != 0:
        breach("cold", HOST, f"wave {wave.number}: stores still pending before it ({wave.before['lmcache_pending']})")


def _short(wave: _Wave, arm: str, external: float, expected: _Expected, breach: Any) -> None:
    """Fewer tokens from the tier than were stored: only chunks that are gone are proven to be its own fault."""
    told = f"wave {wave.number}: {external:g} tokens from external tier, {wave.step * expected.stored_tokens} expected"
    files, stored = wave.after["tier_files"], expected.populated_files
    if files is not None and stored is not None and files < stored:
        breach("chunks-lost", arm, f"{told}: {files} chunk files are left of {stored} that were stored and confirmed")
    else:
        breach("cold", HOST, f"{told}, though no chunk file is missing")


def _equals(wave: _Wave, where: str, found: float | NoData, wanted: float, breach: Any) -> None:
    if isinstance(found, NoData):
        breach("cold", HOST, f"wave {wave.number}: tokens from {where}: {found.reason}")
    elif found != wanted:
        breach("cold", HOST, f"wave {wave.number}: {found:g} tokens from {where}, {wanted:g} expected")


def _tier_bytes(wave: _Wave, expected: _Expected, breach: Any) -> None:
    """What the tier's server read from storage against what the engine was given: none may come from a page cache."""
    if not expected.has_tier:
        return
    begin, end = wave.before["tier_read_bytes"], wave.after["tier_read_bytes"]
    if begin is None or end is None:
        breach("tier-bytes", HOST, f"wave {wave.number}: the bytes that the tier's server read are not told")
        return
    wanted = wave.step * expected.chunk_aligned_tokens * expected.kv_bytes_per_token
    if abs((end - begin) - wanted) > AGREEMENT * wanted:
        breach(
            "tier-bytes", HOST, f"wave {wave.number}: {end - begin} bytes read from storage, {wanted} are in the chunks"
        )


def _clock(requests: list[Json], snapshots: list[Json], breach: Any) -> None:
    """CLOCK_REALTIME minus CLOCK_MONOTONIC is constant unless somebody steps the clock."""
    offsets = [r["clock_offset_ns"] for r in requests] + [s["realtime_ns"] - s["t_ns"] for s in snapshots]
    if offsets and max(offsets) - min(offsets) > CLOCK_STEP_NS:
        breach(
            "clock",
            HOST,
            f"the clock was stepped by {(max(offsets) - min(offsets)) * NS * 1e3:.1f} ms within the trial",
        )


def check_run(run: Run) -> list[Breach]:
    """Return what makes the run as a whole untrustworthy, and what is held against the candidate for good."""
    found: list[Breach] = []

    def breach(check: str, whose: str, reason: str) -> None:
        found.append(Breach(check, whose, reason, "run"))

    try:
        _incidents(run, breach)
        _populated(run, breach)
        _arms_equal(run, breach)
        _same_prompts(run, breach)
    except EvidenceError as error:
        breach("readable", "harness", str(error))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        breach("readable", "harness", f"a record lacks a field or holds a wrong one: {error!r}")
    return found


def _incidents(run: Run, breach: Any) -> None:
    baseline_came_up = any(run.starts(name) for name in run.facts["scenario"]["arms"] if name != CANDIDATE)
    for incident in run.incidents():
        whose = str(incident["whose"])
        # Where nothing else came up either, the fault lies in what the arms share.
        if whose == CANDIDATE and incident["kind"] == "start-failed" and not baseline_came_up:
            whose = HOST
        breach(f"incident:{incident['kind']}", whose, str(incident["message"]))


def _populated(run: Run, breach: Any) -> None:
    scenario, site = run.facts["scenario"], run.facts["site"]
    load = scenario["workload"]
    chunk_tokens = site["lmcache"]["chunk_tokens"]
    chunk_bytes = chunk_tokens * site["models"][scenario["model"]]["kv_bytes_per_token"]
    wanted = load["prompt_tokens"] // chunk_tokens * max(scenario["steps"])
    for name, arm in scenario["arms"].items():
        if not arm["tiers"]:
            continue
        sets = {line["prompt_set"]: line for line in run.populated(name)}
        for number in range(load["prompt_sets"]):
            line = sets.get(number)
            if line is None:
                breach("populate", HOST, f"arm '{name}': prompt set {number} was never stored")
                continue
            fitting = sum(size == chunk_bytes for size in line["files"].values())
            if line["confirmed"] is not True or line["pending"] != 0 or fitting < wanted:
                breach(
                    "populate",
                    HOST,
                    f"arm '{name}': prompt set {number}: {fitting} whole chunks stored, {wanted} expected",
                )


def _arms_equal(run: Run, breach: Any) -> None:
    """Effective configurations may differ in the tier alone."""
    engines: dict[str, Json] = {}
    caches: dict[str, Json] = {}
    for name in run.facts["scenario"]["arms"]:
        for start in run.starts(name):
            key = f"{name}, start {start['start']}"
            argv, connector = _split(start["engine"]["argv"], {"--port"}, "--kv-transfer-config")
            engines[key] = {"argv": argv, "env": start["engine"]["env"], "info": start["engine_info"]}
            if start["lmcache"] is not None:
                argv, _ = _split(start["lmcache"]["argv"], {"--port", "--http-port"}, "--l2-adapter")
                caches[key] = {
                    "argv": argv,
                    "env": {k: v for k, v in start["lmcache"]["env"].items() if k != "PYTHONPATH"},
                    "config": _without_tier(start["lmcache_config"]),
                    "connector": _without_port(connector),
                }
    for kind, found in (("engine", engines), ("LMCache", caches)):
        first = next(iter(found.items()), None)
        for name, configuration in found.items():
            if first is not None and configuration != first[1]:
                where = next(k for k in configuration if configuration[k] != first[1][k])
                breach("arms-equal", "harness", f"{kind} of {name} differs from {first[0]} in its {where}")


def _split(argv: list[str], volatile: set[str], apart: str) -> tuple[list[str], str]:
    """Return (argv without the volatile options and the one set apart, the value of that one)."""
    kept, value, skip = [], "", ""
    for part in argv:
        if skip:
            value = part if skip == apart else value
            skip = ""
        elif part in volatile or part == apart:
            skip = part
        else:
            kept.append(part)
    return kept, value


# What LMCache says of itself that belongs to the tier, or to this one process.
_OF_THE_TIER = re.compile(r"l2_adapter_config|(http_)?port|(\w+_)?instance_id")


def _without_tier(value: object) -> object:
    if isinstance(value, Mapping):
        return {k: _without_tier(v) for k, v in value.items() if not _OF_THE_TIER.fullmatch(k)}
    return [_without_tier(v) for v in value] if isinstance(value, list) else value


def _without_port(connector: str) -> str:
    return re.sub(r'("lmcache\.mp\.port": )\d+', r"\1PORT", connector)


def _same_prompts(run: Run, breach: Any) -> None:
    """Within a block every arm was sent the same prompts."""
    prompts: dict[tuple[int, int], dict[str, set[int]]] = {}
    for trial in run.trials():
        key = (int(trial.facts["block"]), int(trial.facts["step"]))
        seeds = {int(r["prompt_seed"]) for r in _quietly(trial)}
        prompts.setdefault(key, {})[str(trial.facts["arm"])] = seeds
    for (block, step), arms in prompts.items():
        if len({frozenset(seeds) for seeds in arms.values() if seeds}) > 1:
            breach(
                "same-prompts", "harness", f"block {block}, concurrency {step}: the arms were sent different prompts"
            )


def _quietly(trial: Trial) -> Iterator[Json]:
    """Yield what can be read; that the rest cannot is a breach of the trial itself."""
    try:
        yield from trial.requests()
    except EvidenceError:
        return
