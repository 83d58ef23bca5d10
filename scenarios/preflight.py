"""What a gate needs from a machine: each refusal is one line with its remedy. As a program it tells all."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from scenarios.load import ConfigError, load_scenario, load_site
from scenarios.model import Scenario, Site
from scenarios.process import port_is_free

# What vLLM, LMCache and their logs take on the disk besides the tiers.
SPARE_BYTES = 1_000_000_000
# Measured on the rehearsal: an arm takes about 3.5 GB with its LMCache server.
MEMORY_BYTES_PER_ARM = 3_500_000_000


@dataclass(frozen=True)
class Finding:
    """One thing looked at: whether it holds, and if not what to do."""

    name: str
    holds: bool
    said: str


def look(
    site: Site, scenario: Scenario, runs: Path, work: Path, cpuinfo: Path = Path("/proc/cpuinfo")
) -> Iterator[Finding]:
    """Yield everything that a gate run of `scenario` on `site` needs from this machine."""
    try:
        yield from _look(site, scenario, runs, work, cpuinfo)
    except OSError as error:  # a tier's file system that is gone answers no question with yes or no
        yield Finding("files", False, f"{error.filename}: {error.strerror}: mend it, or correct the site file")


def _look(site: Site, scenario: Scenario, runs: Path, work: Path, cpuinfo: Path) -> Iterator[Finding]:
    yield _processor(site, cpuinfo)
    for module, what in (("vllm", "engine"), ("lmcache", "KV tier")):
        if "{python}" in (site.engine.command + site.lmcache.command):
            found = importlib.util.find_spec(module) is not None
            said = f"{module} found" if found else f"{module} is not installed ({what}): run `make engine`"
            yield Finding(f"package {module}", found, said)
    for command in (site.engine.command[0], site.lmcache.command[0]):
        if command != "{python}":
            found = shutil.which(command) is not None
            yield Finding(
                f"command {command}",
                found,
                "found" if found else f"'{command}' is not a command here: correct the site file",
            )
    for port, key in (
        (site.engine.port, "engine.port"),
        (site.lmcache.port, "lmcache.port"),
        (site.lmcache.http_port, "lmcache.http_port"),
    ):
        if port:
            free = port_is_free(port)
            said = (
                "free"
                if free
                else f"port {port} is taken: free it, or set {key} to 0 in the site file to have one chosen"
            )
            yield Finding(f"port {port}", free, said)
    if site.engine.policy == "resident" and (site.engine.port or site.lmcache.port or site.lmcache.http_port):
        yield Finding(
            "ports", False, "policy 'resident' runs several engines at once: leave the ports 0 in the site file"
        )
    if site.engine.policy != "exclusive" and not site.rehearsal:
        told = (
            f"policy '{site.engine.policy}' does not sample what differs from start to start: a lab needs 'exclusive'"
        )
        yield Finding("policy", False, told)
    yield from _apart(site, scenario)
    yield _runs_folder(runs)
    yield from _rooms(site, scenario, runs, work)
    yield _memory(site, scenario)
    model = site.models[scenario.model]
    if model.path is not None:
        there = (Path(model.path) / "config.json").is_file()
        yield Finding(
            "model",
            there,
            "found" if there else f"{model.path}: holds no config.json: correct models.{scenario.model}.path",
        )


def accelerators() -> list[str]:
    """Return the device files of accelerators that are visible here."""
    patterns = ("nvidia[0-9]*", "kfd", "davinci[0-9]*", "accel/accel[0-9]*")
    return sorted(str(p) for pattern in patterns for p in Path("/dev").glob(pattern))


def tier_bytes(site: Site, scenario: Scenario) -> int:
    """Return how many bytes of KV one tier is given: whole chunks of every prompt of every set."""
    load = scenario.workload
    tokens = load.prompt_tokens // site.lmcache.chunk_tokens * site.lmcache.chunk_tokens
    return tokens * scenario.largest_step() * load.prompt_sets * site.models[scenario.model].kv_bytes_per_token


def direct_io_works(folder: Path) -> bool:
    """Return whether files in `folder` can be opened around the page cache (tmpfs and some overlays refuse)."""
    probe = folder / f".kvgate-direct-{os.getpid()}"
    try:
        os.close(os.open(probe, os.O_CREAT | os.O_WRONLY | os.O_DIRECT, 0o600))
    except OSError:
        return False
    finally:
        with contextlib.suppress(OSError):
            probe.unlink()
    return True


def _processor(site: Site, cpuinfo: Path) -> Finding:
    if not site.rehearsal or platform.machine() != "x86_64":
        return Finding("processor", True, "not asked for")
    try:
        text = cpuinfo.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return Finding("processor", True, "cannot be read")
    flags = next((line for line in text.splitlines() if line.startswith("flags")), "")
    holds = not flags or "avx2" in flags.split()
    return Finding(
        "processor",
        holds,
        "AVX2" if holds else "this CPU has no AVX2, which the CPU build of vLLM needs: use a newer machine",
    )


def _runs_folder(runs: Path) -> Finding:
    existing = next(p for p in (runs.absolute(), *runs.absolute().parents) if p.exists())
    if not existing.is_dir():
        return Finding("runs", False, f"{existing}: not a folder: name another one for the runs (RUNS=)")
    holds = os.access(existing, os.W_OK)
    return Finding(
        "runs", holds, "writable" if holds else f"{existing}: cannot be written: name another folder (RUNS=)"
    )


def _rooms(site: Site, scenario: Scenario, runs: Path, work: Path) -> Iterator[Finding]:
    """Yield whether each file system that is written to has the room, several tiers on one counted together."""
    needed: dict[int, int] = {}
    names: dict[int, Path] = {}
    writers: dict[int, list[str]] = {}

    def add(who: str, folder: Path, size_bytes: int) -> None:
        existing = next(p for p in (folder, *folder.parents) if p.exists())
        device = existing.stat().st_dev
        needed[device] = needed.get(device, 0) + size_bytes
        names.setdefault(device, existing)
        writers.setdefault(device, []).append(who)

    add("runs", runs, SPARE_BYTES)
    folders = []
    for arm in scenario.arms.values():
        for name in arm.tiers:
            tier = site.tiers[name]
            folder = work / tier.path
            if tier.path.startswith("/") and not folder.is_dir():
                told = f"{folder}: no such folder: mount the tier or correct tiers.{name}.path"
                yield Finding(f"tier {name}", False, told)
                continue
            folders.append((name, folder, tier))
            add(f"tiers.{name}.path", folder, tier_bytes(site, scenario))
    for device, size_bytes in needed.items():
        free = shutil.disk_usage(names[device]).free
        said = f"{free / 1e9:.1f} GB free on {names[device]}, {size_bytes / 1e9:.1f} GB needed"
        said += f" ({', '.join(dict.fromkeys(writers[device]))})"
        yield Finding(
            "disk", free >= size_bytes, said if free >= size_bytes else f"no room on the disk: {said}: free some"
        )
    for name, folder, tier in folders:
        if tier.direct_io:
            existing = next(p for p in (folder, *folder.parents) if p.exists())
            works = direct_io_works(existing)
            said = (
                "direct I/O works"
                if works
                else f"{existing}: refuses direct I/O, so reads could come from the page cache: use a real disk"
            )
            yield Finding(f"tier {name}", works, said)


def _apart(site: Site, scenario: Scenario) -> Iterator[Finding]:
    """Yield what makes a lab's tiers other storage than their paths say, or one and the same."""
    devices: dict[int, str] = {}
    for name in dict.fromkeys(tier for arm in scenario.arms.values() for tier in arm.tiers):
        folder = Path(site.tiers[name].path)
        if site.rehearsal or not folder.is_dir():
            continue
        if folder.resolve() != folder:
            told = f"{folder}: leads to {folder.resolve()} by a link: set tiers.{name}.path to the folder itself"
            yield Finding(f"tier {name}", False, told)
        owner = devices.setdefault(folder.stat().st_dev, name)
        if owner != name:
            told = f"{folder}: lies on the same file system as tier '{owner}': compared with itself, it shows nothing"
            yield Finding(f"tier {name}", False, told)


def _memory(site: Site, scenario: Scenario) -> Finding:
    if not site.rehearsal:
        return Finding("memory", True, "not asked for")
    arms = len(scenario.arms) if site.engine.policy == "resident" else 1
    needed, there = arms * MEMORY_BYTES_PER_ARM, psutil.virtual_memory().available
    said = f"{there / 1e9:.1f} GB available, {needed / 1e9:.1f} GB needed"
    return Finding(
        "memory",
        there >= needed,
        said if there >= needed else f"not enough memory: {said}: close something, or use policy 'exclusive'",
    )


def refusal(findings: Iterator[Finding]) -> str | None:
    """Return the first thing that does not hold, as one line, or None."""
    return next((f.said for f in findings if not f.holds), None)


def main(argv: list[str], say: Callable[[str], None] = print) -> int:
    """Say what holds and what does not; return 0 if a gate could start."""
    site_name = argv[0] if argv else "rehearsal"
    scenario_name = argv[1] if len(argv) > 1 else "rehearsal"
    try:
        site = load_site(site_name)
        scenario = load_scenario(scenario_name, site)
    except ConfigError as error:
        say(f"kvgate: {error}")
        return 4
    fine = True
    for finding in look(site.value, scenario.value, Path("runs"), Path(site.value.work_dir)):
        fine = fine and finding.holds
        say(f"{'ok  ' if finding.holds else 'MISS'}  {finding.name}: {finding.said}")
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
