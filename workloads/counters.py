"""Snapshots of what engine, LMCache and kernel count, raw. Reading them is the judge's business."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from scenarios import tiers
from scenarios.engine import LiveArm
from scenarios.process import started_ticks
from workloads import kernel_time

Json = dict[str, Any]

# The families that are read when judging; all others would only fill the disk.
ENGINE_FAMILIES = (
    "process_start_time_seconds",
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
    "vllm:prompt_tokens",
    "vllm:generation_tokens",
    "vllm:prefix_cache_",
    "vllm:external_prefix_cache_",
    "vllm:request_success",
    "vllm:e2e_request_latency_seconds",
    "vllm:time_to_first_token_seconds",
)
LMCACHE_FAMILIES = (
    "process_start_time_seconds",
    "lmcache_mp_lookup",
    "lmcache_mp_l1_read",
    "lmcache_mp_l2_",
    "lmcache_mp_event_bus",
)
# Histogram buckets are not read, and are most of the text.
_LEFT_OUT = ("_bucket", "_created")
SYS = Path("/sys")
SECTOR_BYTES = 512  # the unit of /sys/block/<device>/stat, whatever the device's own sectors are
PORT_WORD_BYTES = 4  # the unit of port_rcv_data


def snapshot(live: LiveArm, wave: int, measured: bool, when: str, sys: Path = SYS) -> Json:
    """Return one line of counters.jsonl (docs/evidence.md). What cannot be read is null, never 0.

    Raises TierFailed: the arm's tier says that it is gone or broken.
    """
    t_ns, realtime_ns = kernel_time.both_clocks_ns()
    files = _chunk_files(live.tier_folder) if live.tier_folder is not None else None
    cache_pid = live.lmcache.pid if live.lmcache is not None else None
    return {
        "wave": wave,
        "measured": measured,
        "when": when,
        "t_ns": t_ns,
        "realtime_ns": realtime_ns,
        "engine_metrics": _scrape(f"{live.base_url}/metrics", ENGINE_FAMILIES),
        "lmcache_metrics": _scrape(f"{live.cache.url}/metrics", LMCACHE_FAMILIES) if live.cache is not None else None,
        "lmcache_pending": _pending(live.cache) if live.cache is not None else None,
        "engine_pid": live.engine.pid,
        "engine_pid_started": started_ticks(live.engine.pid),
        "lmcache_pid": cache_pid,
        "lmcache_pid_started": started_ticks(cache_pid) if cache_pid is not None else None,
        "tier_read_bytes": _read_bytes(cache_pid) if cache_pid is not None else None,
        "tier_files": len(files) if files is not None else None,
        "tier_bytes": sum(files.values()) if files is not None else None,
        "device_read_bytes": {n: device_read_bytes(n, sys) for n in live.tier.block_devices} if live.tier else {},
        "port_receive_bytes": {n: port_receive_bytes(n, sys) for n in live.tier.rdma_ports} if live.tier else {},
    }


def settled(live: LiveArm, wave: int, measured: bool, before: Json, requests: int, deadline_s: float = 3.0) -> Json:
    """Return the snapshot after a wave, taken once the counters have caught up with its `requests`.

    The engine and LMCache book a request a moment after its last byte is out. When the books do not close within
    the deadline, the snapshot says what they said then.
    """
    end_s = time.monotonic() + deadline_s
    goal = _finished(before["engine_metrics"]) + requests
    last: Json | None = None
    while True:
        now = snapshot(live, wave, measured, "after")
        same = last is not None and all(
            now[k] == last[k] for k in ("engine_metrics", "lmcache_metrics", "tier_read_bytes")
        )
        if (same and _finished(now["engine_metrics"]) >= goal) or time.monotonic() > end_s:
            return now
        last = now
        time.sleep(0.05)


def families_of(text: str, prefixes: tuple[str, ...]) -> str:
    """Return the lines of an exposition that belong to families with these prefixes."""
    kept = []
    for line in text.splitlines():
        name = line.split(" ", 3)[2] if line.startswith("# TYPE ") else line
        sample = name.split("{", 1)[0].split(" ", 1)[0]
        if name.startswith(prefixes) and not sample.endswith(_LEFT_OUT):
            kept.append(line)
    return "\n".join(kept) + "\n"


def device_read_bytes(device: str, sys: Path = SYS) -> int | None:
    """Return what has been read from a block device since boot, in bytes; None where /sys does not tell."""
    fields = (_text(sys / "block" / device / "stat") or "").split()
    return int(fields[2]) * SECTOR_BYTES if len(fields) > 2 and fields[2].isdecimal() else None


def port_receive_bytes(port: str, sys: Path = SYS) -> int | None:
    """Return what an RDMA port ("<device>/<number>") has received, headers included, in bytes; None where not told."""
    device, _, number = port.partition("/")
    text = (_text(sys / "class/infiniband" / device / "ports" / number / "counters/port_rcv_data") or "").strip()
    return int(text) * PORT_WORD_BYTES if text.isdecimal() else None


def _chunk_files(folder: Path) -> dict[str, int] | None:
    try:
        return tiers.chunk_files(folder)
    except OSError:
        return None


def _text(file: Path) -> str | None:
    try:
        return file.read_text(encoding="ascii")
    except (OSError, ValueError):
        return None


def _scrape(url: str, prefixes: tuple[str, ...]) -> str | None:
    try:
        return families_of(tiers.http_text(url, timeout_s=10.0), prefixes)
    except tiers.TierError:
        return None


def _pending(cache: tiers.Cache) -> int | None:
    try:
        return cache.pending()
    except tiers.TierError:
        return None


def _read_bytes(pid: int) -> int | None:
    """Return what the process has read from storage, page cache left out (/proc/<pid>/io); None where not told."""
    try:
        lines = Path(f"/proc/{pid}/io").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    values = dict(line.split(": ", 1) for line in lines if ": " in line)
    return int(values["read_bytes"]) if values.get("read_bytes", "").isdecimal() else None


def _finished(engine_metrics: str | None) -> float:
    """Return how many requests the engine has booked, only to know when to stop waiting."""
    for line in (engine_metrics or "").splitlines():
        if line.startswith("vllm:e2e_request_latency_seconds_count"):
            return float(line.rsplit(" ", 1)[1])
    return 0.0
