"""A made-up host: its clock, the processes of each arm, and what they and its devices have counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from scenarios.model import Scenario, Site, stored_tokens
from tests.synthetic_truth import Truth

Json = dict[str, Any]

EPOCH_OFFSET_NS = 1_700_000_000_000_000_000
CHUNK_BYTES = 256 * 4096


class Host:
    """What is true of the host at this moment of the run."""

    def __init__(self, truth: Truth, site: Site, scenario: Scenario) -> None:
        self.truth = truth
        self.site = site  # as the run describes it
        self.scenario = scenario
        self.now_ns = 10_000_000_000
        self.totals: dict[str, dict[str, float]] = {}  # by arm, since boot
        self.begun: dict[str, dict[str, float]] = {}  # the totals when the arm's processes were started
        self.starts: dict[str, int] = {}  # the latest of each arm

    def start(self, arm: str) -> None:
        """Start the processes of the arm: they count from 0."""
        self.starts[arm] = self.starts.get(arm, 0) + 1
        self.begun[arm] = dict(self._total(arm))

    def pid(self, arm: str) -> int:
        """Return the engine's; the server beside it has the next."""
        return 1000 + 100 * list(self.scenario.arms).index(arm) + 2 * self.starts[arm]

    def ticks(self, arm: str) -> int:
        """Return when the engine was started; the server beside it came a tick later."""
        return 5 + 10 * self.starts[arm]

    def book(self, arm: str, record: Json, stored: bool = True) -> None:
        """Count a request of the arm: where `stored`, the whole chunks of its prompt came from the tier."""
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

    def counters(self, arm: str, wave: int, measured: bool, when: str) -> Json:
        """Return the snapshot of one moment."""
        pid, ticks = self.pid(arm), self.ticks(arm)
        tier = arm != "recompute"
        total = {name: value - self.begun[arm][name] for name, value in self._total(arm).items()}
        load = self.scenario.workload
        files = 16 * self.scenario.largest_step() * load.prompt_sets
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

    def _total(self, arm: str) -> dict[str, float]:
        names = ("count", "sum", "first", "prompt", "output", "external", "l2", "bytes")
        return self.totals.setdefault(arm, dict.fromkeys(names, 0.0))

    def _counted(self, arm: str, named: Mapping[str, Sequence[str]], extra: float) -> dict[str, int]:
        """Return what each device or port of the arm's tier has counted since boot: an equal share of the bytes."""
        tiers = self.scenario.arms[arm].tiers
        names = named.get(tiers[0], ()) if tiers else ()
        return {name: 4096 + int(self._total(arm)["bytes"] * (1 + extra) / len(names)) for name in names}


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
