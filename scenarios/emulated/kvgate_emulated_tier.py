"""A tier of known speed over real files, loaded by the LMCache server as a plugin adapter.

Every chunk is really read, around the page cache, by LMCache's own file-system adapter; then the read is held back
until a medium of the given bandwidth and latency would have delivered it. All reads share one budget, as they share
one drive. Writing is not held back: populating is no part of what is measured.

For the suite's own controls it can be told to be faulty: to serve wrong bytes, or to store nothing and say that it did.

This folder alone goes on the server's PYTHONPATH; nothing of the harness is imported here.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
from lmcache.v1.distributed.l2_adapters.config import L2AdapterConfigBase
from lmcache.v1.distributed.l2_adapters.fs_l2_adapter import FSL2Adapter, FSL2AdapterConfig

FAULTS = ("none", "wrong-kv", "stores-nothing")


class Medium:
    """Hands out the moments at which a medium of fixed bandwidth would have delivered each read."""

    def __init__(self, read_bytes_per_s: float, read_latency_s: float) -> None:
        self._read_bytes_per_s = read_bytes_per_s
        self._read_latency_s = read_latency_s
        self._lock = threading.Lock()
        self._free_at_s = 0.0

    def reserve(self, size_bytes: int, now_s: float) -> float:
        """Return the time (same clock as `now_s`) at which a read of that size, asked for now, is complete."""
        with self._lock:
            begin_s = max(now_s, self._free_at_s)
            self._free_at_s = begin_s + size_bytes / self._read_bytes_per_s
            return self._free_at_s + self._read_latency_s


class EmulatedConfig(L2AdapterConfigBase):  # type: ignore[misc]  # LMCache carries no types
    """Folder, bandwidth in bytes/s and latency in seconds of the emulated medium, and its fault."""

    def __init__(self, base_path: str, read_bytes_per_s: float, read_latency_s: float, fault: str) -> None:
        self.base_path = base_path
        self.read_bytes_per_s = read_bytes_per_s
        self.read_latency_s = read_latency_s
        self.fault = fault

    @classmethod
    def from_dict(cls, d: dict[str, Any]) -> EmulatedConfig:
        """Return the configuration. Raises KeyError or ValueError for a missing or senseless one."""
        speed, latency = float(d["read_bytes_per_s"]), float(d["read_latency_s"])
        if not speed > 0 or not latency >= 0:
            raise ValueError("read_bytes_per_s must be above 0 and read_latency_s not below 0")
        if d["fault"] not in FAULTS:
            raise ValueError(f"fault must be one of {', '.join(FAULTS)}")
        return cls(str(d["base_path"]), speed, latency, str(d["fault"]))

    @classmethod
    def help(cls) -> str:
        """Return the fields in words."""
        numbers = "read_bytes_per_s (number above 0), read_latency_s (number, 0 or more)"
        return f"base_path (str), {numbers}, fault (one of {', '.join(FAULTS)})"


class EmulatedTier(FSL2Adapter):  # type: ignore[misc]  # LMCache carries no types
    """LMCache's file-system adapter behind a medium of known speed."""

    def __init__(self, config: EmulatedConfig, l1_memory_desc: object = None) -> None:
        super().__init__(FSL2AdapterConfig(config.base_path, use_odirect=True))
        self._medium = Medium(config.read_bytes_per_s, config.read_latency_s)
        self._fault = config.fault

    def _read_with_odirect(self, file_path: Path, dst_buf: bytearray | memoryview | bytes) -> int:
        done_s = self._medium.reserve(len(dst_buf), time.monotonic())
        count: int = super()._read_with_odirect(file_path, dst_buf)
        # A chunk that is not there costs a look-up, not a transfer; the time is kept all the same, since the
        # missing chunk makes the trial invalid anyway.
        time.sleep(max(0.0, done_s - time.monotonic()))
        if self._fault == "wrong-kv":
            # An exponent bit of every value in the chunk's first quarter, as of a drive that returns another's data.
            served = np.frombuffer(dst_buf, dtype=np.uint8)
            served[1 : served.size // 4 : 2] ^= 0x20
        return count

    async def _execute_store(self, keys: list[Any], objects: list[Any], task_id: Any) -> None:
        if self._fault == "stores-nothing":
            keys, objects = [], []
        await super()._execute_store(keys, objects, task_id)
