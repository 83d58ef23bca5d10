"""What all peers share: how a generator is installed in a virtual environment of its own, run, and reported of."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from bench.peers.failed import PeerFailed, explain, last_line, tail
from bench.peers.kept import keep

ROOT = Path(__file__).resolve().parent.parent.parent

# Measured: 1.5 GB (GuideLLM) and 3.5 GB (vLLM) installed; pip needs about as much again while it unpacks.
FREE_BYTES = 8_000_000_000
# The builds of these on the default index do not fit the CPU build of torch and break the import of transformers.
UNFIT = ("torchvision", "torchaudio", "torchcodec")
# Part of what marks a finished installation: raise it when the steps of `install` change.
RECIPE = 1

_NUMBER = re.compile(r"\s*r(\d{7})\b")

# Run by the generator's own Python. Arguments: the folder of this project, the folder to write.
_WRITE_TOKENIZER = """
import pathlib, sys
sys.path.insert(0, sys.argv[1])
from scenarios import toy_model
folder = pathlib.Path(sys.argv[2])
folder.mkdir(exist_ok=True)
toy_model._write_tokenizer(folder)
"""


@dataclass(frozen=True)
class PeerRequest:
    """What a generator reported of one request. All durations are in seconds, by the generator's own clock."""

    text: str  # as generated; empty where the request failed before its first token
    ok: bool  # the generator counts it as a success
    ttft_s: float | None  # None where the generator has no first token
    itl_s: tuple[float, ...] | None  # gaps between chunks in order; None where the generator reports none
    mean_gap_s: float | None  # (last - first) / (n - 1), the generator's own n; None below two tokens
    started_s: float | None  # start by the generator's own clock (its zero is its own): for order only
    error: str  # one line, empty where ok


@dataclass(frozen=True)
class PeerResult:
    """One run of a generator, whole."""

    name: str
    version: str
    requests: tuple[PeerRequest, ...]  # in the order of the generator's own report
    wall_s: float  # from start to end of the generator's process: its start-up is in it
    cpu_s: float  # user + system of the whole process tree, its start-up included
    argv: tuple[str, ...]


@dataclass(frozen=True)
class Load:
    """What a generator is asked to send."""

    base_url: str
    model: str
    concurrency: int
    requests: int
    output_tokens: int
    prompt_tokens: int
    seed: int


class Peer:
    """A load generator at a pinned version. `install` it, then `run` it as often as needed."""

    name: ClassVar[str]
    distribution: ClassVar[str]  # what `version` asks for
    requirements: ClassVar[tuple[str, ...]]

    def __init__(self) -> None:
        """Nothing is looked at or changed before `install`."""
        self._venv: Path | None = None

    def install(self, root: Path) -> Path:
        """Make `root/<name>` hold the generator and return that folder; reuse it where the pinned version is there.

        Raises:
            PeerFailed: in one line, with the remedy or the log.
        """
        venv = root.resolve() / self.name
        wanted = json.dumps({"recipe": RECIPE, "requirements": self.requirements, "python": sys.version})
        marker = venv / "kvgate-peer.json"
        self._venv = venv
        with contextlib.suppress(OSError):
            if marker.read_text(encoding="utf-8") == wanted and self._python.exists():
                return venv
        self._venv = None
        try:
            shutil.rmtree(venv, ignore_errors=True)
            venv.parent.mkdir(parents=True, exist_ok=True)
            free = shutil.disk_usage(venv.parent).free
        except OSError as error:
            raise PeerFailed(f"{self.name}: cannot make {venv}: {error.strerror}") from None
        if free < FREE_BYTES:
            raise PeerFailed(
                f"{self.name}: no room on the disk of {root}: {free / 1e9:.1f} GB free, "
                f"{FREE_BYTES / 1e9:.0f} GB needed to install"
            )
        log = venv.parent / f"{self.name}-install.log"
        log.write_bytes(b"")
        self._venv = venv
        try:
            self._step([sys.executable, "-m", "venv", str(venv)], log)
            pip = [str(self._python), "-m", "pip", "--disable-pip-version-check", "--no-input"]
            # Wheels only: an installation that has to compile is another one than the one that was measured.
            self._step([*pip, "install", "--only-binary=:all:", *self.requirements], log)
            self._step([*pip, "uninstall", "-y", *UNFIT], log)
            self._step([str(self._python), "-c", _WRITE_TOKENIZER, str(ROOT), str(self._tokenizer)], log)
            marker.write_text(wanted, encoding="utf-8")
        except BaseException:
            self._venv = None
            raise
        return venv

    def version(self) -> str:
        """Return the version that is installed, as its own metadata tell it. Raises PeerFailed."""
        ask = f"import importlib.metadata; print(importlib.metadata.version({self.distribution!r}))"
        try:
            done = subprocess.run([str(self._python), "-c", ask], capture_output=True, text=True, timeout=60.0)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise PeerFailed(f"{self.name}: its Python cannot be asked for the version: {error}") from None
        if done.returncode != 0:
            raise PeerFailed(f"{self.name}: {last_line(done.stderr) or 'tells no version'}")
        return done.stdout.strip()

    def run(
        self,
        base_url: str,
        model: str,
        concurrency: int,
        requests: int,
        output_tokens: int,
        prompt_tokens: int,
        work: Path,
        *,
        seed: int = 0,
        timeout_s: float = 600.0,
    ) -> PeerResult:
        """Send `requests` in a closed loop of `concurrency` and return what the generator reported.

        Each request asks `base_url`/v1/completions of `model` for exactly `output_tokens`, streamed, with a random
        prompt of about `prompt_tokens` tokens. `work` takes the generator's files and is its working folder, HOME
        and caches; give each run a folder of its own.

        Raises:
            PeerFailed: it could not be run, took longer than `timeout_s` seconds, no request succeeded, or its
                report is missing or odd.
        """
        if not (base_url.startswith(("http://", "https://"))):
            raise PeerFailed(f"{self.name}: base URL must begin with http:// or https://: {base_url}")
        version = self.version()
        work = work.resolve()
        work.mkdir(parents=True, exist_ok=True)
        report = work / "report.json"
        report.unlink(missing_ok=True)
        load = Load(base_url.rstrip("/"), model, concurrency, requests, output_tokens, prompt_tokens, seed)
        argv = self._argv(load, work, report)
        log = work / "output.log"
        usage = keep(self.name, argv, environment(os.environ, work), work, log, timeout_s)
        if usage.status != 0 or not report.is_file():
            said = last_line(tail(log))
            raise PeerFailed(f"{self.name}: ended with status {usage.status}: {said or 'no word'} (log: {log})")
        try:
            found = self.read(json.loads(report.read_text(encoding="utf-8")))
        except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
            raise PeerFailed(f"{self.name}: its report cannot be read: {error!r} ({report})") from None
        if not any(one.ok for one in found):
            said = found[0].error if found else "its report names no request"
            raise PeerFailed(f"{self.name}: no request succeeded: {said} (log: {log})")
        return PeerResult(self.name, version, found, usage.wall_s, usage.cpu_s, tuple(argv))

    @staticmethod
    def read(report: Mapping[str, Any]) -> tuple[PeerRequest, ...]:
        """Return the requests in the generator's own report. Raises KeyError, TypeError or ValueError."""
        raise NotImplementedError

    def _argv(self, load: Load, work: Path, report: Path) -> list[str]:
        raise NotImplementedError

    @property
    def _python(self) -> Path:
        if self._venv is None:
            raise PeerFailed(f"{self.name}: not installed yet")
        return self._venv / "bin" / "python"

    @property
    def _tokenizer(self) -> Path:
        if self._venv is None:
            raise PeerFailed(f"{self.name}: not installed yet")
        return self._venv / "tokenizer"

    def _step(self, argv: Sequence[str], log: Path) -> None:
        with log.open("ab") as out:
            # What shapes an import from outside must not reach into an environment that is to be like any other.
            env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")}
            done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, env=env)
        if done.returncode != 0:
            raise PeerFailed(f"{self.name}: {explain(tail(log))} (log: {log})")


def server_number(text: str) -> int | None:
    """Return n of a text that begins with the server's first token `r{n:07d} `, None for any other text."""
    found = _NUMBER.match(text)
    return int(found.group(1)) if found else None


def environment(ours: Mapping[str, str], work: Path) -> dict[str, str]:
    """Return the environment of a generator: offline, without reports home, its settings and caches in `work`.

    Whatever of `ours` could change its behaviour is left out: settings of its own, Python's, and proxies, through
    which it would measure the proxy.
    """
    shaping = ("PYTHON", "VIRTUAL_ENV", "VLLM_", "GUIDELLM_", "HF_", "TRANSFORMERS_", "XDG_", "OPENAI_")
    kept = {k: v for k, v in ours.items() if not k.startswith(shaping) and not k.lower().endswith("_proxy")}
    return {
        **kept,
        "HOME": str(work),
        "XDG_CACHE_HOME": str(work / "cache"),
        "XDG_CONFIG_HOME": str(work / "config"),
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "VLLM_TARGET_DEVICE": "cpu",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "PYTHONHASHSEED": "0",
        "PYTHONUNBUFFERED": "1",
    }


def duration_s(value: float) -> float:
    """Return a duration that a report tells. Raises ValueError where it is none: negative or not finite."""
    if not (math.isfinite(value) and value >= 0.0):
        raise ValueError(f"not a duration in seconds: {value!r}")
    return float(value)
