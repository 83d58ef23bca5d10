"""Effective configurations: as the scenario says, and different in the tier alone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from gates.validity.breach import HARNESS, Tell
from workloads.evidence import Run

Json = dict[str, Any]

# What LMCache says of itself that belongs to the tier, or to this one process.
_OF_THE_TIER = re.compile(r"l2_adapter_config|(http_)?port|(\w+_)?instance_id")


def check_arms_equal(run: Run, tell: Tell) -> None:
    """Compare every start of every arm with the first of its kind. Raises what is in MISSHAPEN."""
    engines: dict[str, Json] = {}
    caches: dict[str, Json] = {}
    for name, arm in run.facts["scenario"]["arms"].items():
        for start in run.starts(name):
            key = f"{name}, start {start['start']}"
            tier = (start["tier"] or {"name": None})["name"]
            wanted = arm["tiers"][0] if arm["tiers"] else None
            if tier != wanted or (start["lmcache"] is None) != (wanted is None):
                tell("as-configured", HARNESS, f"{key} has the tier {tier!r}, {wanted!r} is the scenario's")
            argv, connector = _split(start["engine"]["argv"], {"--port"}, "--kv-transfer-config")
            engines[key] = {"argv": argv, "env": start["engine"]["env"], "info": start["engine_info"]}
            if start["lmcache"] is not None:
                argv, _ = _split(start["lmcache"]["argv"], {"--port", "--http-port"}, "--l2-adapter")
                caches[key] = {
                    "argv": argv,
                    # The path of the adapter that an emulated tier is made of.
                    "env": {k: v for k, v in start["lmcache"]["env"].items() if k != "PYTHONPATH"},
                    "config": _without_tier(start["lmcache_config"]),
                    "connector": re.sub(r'("lmcache\.mp\.port": )\d+', r"\1PORT", connector),
                }
    for kind, found in (("engine", engines), ("LMCache", caches)):
        first = next(iter(found.items()), None)
        for name, configuration in found.items():
            if first is not None and configuration != first[1]:
                where = next(k for k in configuration if configuration[k] != first[1][k])
                tell("arms-equal", HARNESS, f"{kind} of {name} differs from {first[0]} in its {where}")


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


def _without_tier(value: object) -> object:
    if isinstance(value, Mapping):
        return {k: _without_tier(v) for k, v in value.items() if not _OF_THE_TIER.fullmatch(k)}
    return [_without_tier(v) for v in value] if isinstance(value, list) else value
