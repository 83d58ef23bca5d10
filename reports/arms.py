"""How the arms were started, side by side: what is the same, and what differs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from reports.text import flatten
from workloads.evidence import Run

Json = dict[str, Any]
ABSENT = "–"


@dataclass(frozen=True)
class Setting:
    """One setting and its value in each arm, in the order of the arms."""

    key: str
    values: tuple[str, ...]

    @property
    def differs(self) -> bool:
        """Return whether two arms have different values."""
        return len(set(self.values)) > 1


@dataclass(frozen=True)
class ArmSettings:
    """Every recorded setting of every arm's first start."""

    arms: tuple[str, ...]
    starts: tuple[int, ...]
    settings: tuple[Setting, ...]

    def differing(self) -> list[Setting]:
        """Return the settings in which arms differ."""
        return [s for s in self.settings if s.differs]

    def same(self) -> list[Setting]:
        """Return the settings that all arms share."""
        return [s for s in self.settings if not s.differs]


def arm_settings(run: Run, arms: Sequence[str]) -> ArmSettings:
    """Return the arms' settings from their start.json. Raises EvidenceError on a bad file."""
    starts = {name: run.starts(name) for name in arms}
    each = {name: _settings(found[0]) if found else {} for name, found in starts.items()}
    keys = dict.fromkeys(key for settings in each.values() for key in settings)
    return ArmSettings(
        arms=tuple(arms),
        starts=tuple(len(starts[name]) for name in arms),
        settings=tuple(Setting(key, tuple(each[name].get(key, ABSENT) for name in arms)) for key in keys),
    )


def _settings(start: Json) -> dict[str, str]:
    found = _given(start, "tier", "tier")
    for part in ("engine", "lmcache"):
        process = start.get(part)
        if isinstance(process, dict):
            found |= _options(process.get("argv"), part)
            found |= {f"{part} env {key}": value for key, value in flatten(process.get("env")).items() if key}
    return found | _given(start, "lmcache_config", "lmcache /config") | _given(start, "engine_info", "engine info")


def _given(start: Json, key: str, prefix: str) -> dict[str, str]:
    return {} if start.get(key) is None else flatten(start[key], prefix)


def _options(argv: object, part: str) -> dict[str, str]:
    """Split a command line into its command and its options; a JSON value into its leaves."""
    words = [str(word) for word in argv] if isinstance(argv, list) else []
    command: list[str] = []
    found: dict[str, str] = {}
    option: str | None = None
    for word in words:
        if word.startswith("--"):
            option, given, value = word.partition("=")
            found[f"{part} {option}"] = value if given else "true"
            option = None if given else option
        elif option is None:
            command.append(word)
        else:
            key = f"{part} {option}"
            before = found.get(key)
            found[key] = word if before == "true" else f"{before} {word}"
    whole = {f"{part} command": " ".join(command)} if command else {}
    for key, value in found.items():
        whole |= flatten(_maybe_json(value), key)
    return whole


def _maybe_json(value: str) -> object:
    if not value.startswith("{"):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value
