"""What a tier adds to an arm: connector arguments, the LMCache server's, clearing, usage."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scenarios.model import LMCache, Tier

EMULATED = Path(__file__).resolve().parent / "emulated"


# By these the kernel says that a tier is gone or broken (block/blk-core.c, NFS and FUSE among its sources). Any other
# reason why a file or folder of it cannot be looked at (rights, open files, memory) is the host's or our own.
OF_THE_TIER = frozenset({
    "ENOENT", "EIO", "ESTALE", "EUCLEAN", "EBADMSG", "ENODATA", "EREMOTEIO", "EILSEQ", "ENODEV", "ENXIO", "ENOLINK",
    "ENOTCONN", "ETIMEDOUT",
})  # fmt: skip


class TierError(RuntimeError):
    """One line: which server or folder did not do what was asked."""


class TierFailed(TierError):
    """One line: the kernel says that the tier itself is gone or broken. That is the arm's own fault."""


def is_of_the_tier(error: OSError) -> bool:
    """Return whether the error, met at a file or folder of a tier, is the tier's own."""
    return errno.errorcode.get(error.errno or 0) in OF_THE_TIER


def adapter_config(tier: Tier, folder: Path) -> dict[str, Any]:
    """Return the value of `lmcache server --l2-adapter` for this tier."""
    if tier.medium is None:
        return {"type": "fs", "base_path": str(folder), "use_odirect": tier.direct_io}
    return {
        "type": "plugin",
        "module_path": "kvgate_emulated_tier",
        "class_name": "EmulatedTier",
        "config_class_name": "EmulatedConfig",
        "adapter_params": {
            "base_path": str(folder),
            "read_bytes_per_s": tier.medium.read_bytes_per_s,
            "read_latency_s": tier.medium.read_latency_s,
            "fault": tier.medium.fault,
        },
    }


def server_argv(lmcache: LMCache, tier: Tier, folder: Path, port: int, http_port: int) -> list[str]:
    """Return the arguments that follow the site's own LMCache command."""
    return [
        "--host", "127.0.0.1", "--port", str(port), "--http-host", "127.0.0.1", "--http-port", str(http_port),
        "--l1-size-gb", f"{lmcache.dram_gb:g}", "--chunk-size", str(lmcache.chunk_tokens),
        *lmcache.args, "--l2-adapter", json.dumps(adapter_config(tier, folder)),
    ]  # fmt: skip


def server_env(tier: Tier) -> dict[str, str]:
    """Return what the LMCache server's environment needs for this tier."""
    return {"PYTHONPATH": str(EMULATED)} if tier.kind == "emulated" else {}


def connector_argv(port: int) -> list[str]:
    """Return the engine's arguments that put the LMCache server on `port` under it."""
    config = {
        "kv_connector": "LMCacheMPConnector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {"lmcache.mp.host": "tcp://127.0.0.1", "lmcache.mp.port": port},
    }
    return ["--kv-transfer-config", json.dumps(config)]


@dataclass(frozen=True)
class Cache:
    """The LMCache server's control interface."""

    url: str  # http://host:port

    def healthy(self) -> bool:
        """Return whether the server answers its health check."""
        try:
            http_text(f"{self.url}/healthcheck", timeout_s=2.0)
        except TierError:
            return False
        return True

    def clear_dram(self) -> None:
        """Empty the cache above the tier (L1); the tier keeps what it has. Raises TierError."""
        answer = self._json("/cache/clear", method="POST")
        if answer.get("status") != "ok":
            raise TierError(f"{self.url}/cache/clear: the server did not clear its DRAM: {answer}")

    def pending(self) -> int:
        """Return how many chunks and tasks are on their way into the tier. Raises TierError."""
        status = self._json("/status")
        try:
            controllers = status["storage_manager"]["store_controllers"].values()
            return sum(int(c["pending_keys_count"]) + int(c["in_flight_task_count"]) for c in controllers)
        except (KeyError, TypeError, ValueError) as error:
            raise TierError(f"{self.url}/status: does not tell what is pending ({error!r})") from None

    def config(self) -> dict[str, Any]:
        """Return the configuration that the server says it runs. Raises TierError."""
        return self._json("/config")

    def metrics(self) -> str:
        """Return the server's metrics as exposition text. Raises TierError."""
        return http_text(f"{self.url}/metrics", timeout_s=10.0)

    def _json(self, path: str, method: str = "GET") -> dict[str, Any]:
        text = http_text(self.url + path, timeout_s=30.0, method=method)
        try:
            value = json.loads(text)
        except ValueError:
            raise TierError(f"{self.url}{path}: answered something that is not JSON") from None
        if not isinstance(value, dict):
            raise TierError(f"{self.url}{path}: answered no JSON object")
        return value


def http_text(url: str, timeout_s: float, method: str = "GET") -> str:
    """Return the body of a 200 answer. Raises TierError naming the URL."""
    request = urllib.request.Request(url, method=method, data=b"" if method == "POST" else None)  # noqa: S310
    try:
        with _DIRECT.open(request, timeout=timeout_s) as answer:
            body: bytes = answer.read()
            return body.decode("utf-8", "replace")
    except (urllib.error.URLError, OSError, ValueError) as error:
        raise TierError(f"{url}: {getattr(error, 'reason', error)}") from None


# A proxy of the environment must never stand between us and a process on this machine.
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def chunk_files(folder: Path) -> dict[str, int]:
    """Return bytes by file name of the chunks that lie in a tier's folder; files being written are left out.

    Raises TierFailed: the tier says that it is gone or broken. OSError: it cannot be listed for another reason.
    """
    found: dict[str, int] = {}
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.endswith(".data") and entry.is_file(follow_symlinks=False):
                    with contextlib.suppress(FileNotFoundError):  # it went after it was listed
                        found[entry.name] = entry.stat(follow_symlinks=False).st_size
    except OSError as error:
        if is_of_the_tier(error):
            raise TierFailed(f"{folder}: the tier cannot be listed: {error.strerror}") from None
        raise
    return found
