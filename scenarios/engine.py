"""The life of one arm's processes: an LMCache server over the arm's tier, and a vLLM engine over that."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from scenarios import diagnose, tiers
from scenarios.model import PROBE, Arm, ServedModel, Site, Tier
from scenarios.process import (
    Activity,
    Kept,
    StartFailed,
    clean_environment,
    free_ports,
    port_is_free,
    started_ticks,
    tree_usage,
)

HOST = "127.0.0.1"
POLL_S = 0.5
# A run whose cache must survive a restart needs the same hashes in every process.
COMMON_ENV = {"PYTHONHASHSEED": "0", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1",
              "DO_NOT_TRACK": "1", "LMCACHE_TRACK_USAGE": "false"}  # fmt: skip


@dataclass(frozen=True)
class ArmPlan:
    """All that is needed to start one arm: nothing here is chosen later, so two arms can be compared by it."""

    name: str
    arm: Arm
    site: Site
    model_name: str
    model: ServedModel
    model_folder: Path
    tier_name: str | None
    tier: Tier | None
    tier_folder: Path | None
    compile_cache: Path  # kept over runs: compiling its kernels costs a fresh engine half a minute


@dataclass(frozen=True)
class LiveArm:
    """An arm that is up: its addresses, its processes, and what start.json says of it."""

    name: str
    base_url: str  # http://host:port of the engine
    model_name: str
    engine: Kept
    lmcache: Kept | None
    cache: tiers.Cache | None
    tier: Tier | None
    tier_folder: Path | None
    start: int
    facts: Mapping[str, Any]  # what start.json says
    stop: Callable[[], None]

    def fault(self) -> str | None:
        """Return one line if one of the arm's processes has ended, else None."""
        for kept in (self.lmcache, self.engine):
            if kept is not None and (status := kept.exit_status()) is not None:
                lines = diagnose.telling_lines(read_log(kept.log))
                return diagnose.one_line(f"{kept.name} of arm '{self.name}' ended with status {status}", lines)
        return None


Say = Callable[[str], None]


@contextlib.contextmanager
def running(plan: ArmPlan, logs: Path, start: int, say: Say = lambda _line: None) -> Iterator[LiveArm]:
    """Bring the arm up, yield it ready to serve, and end all of it on the way out, whatever the reason.

    Logs go to `logs`. Raises StartFailed with the cause in one sentence.
    """
    live = bring_up(plan, logs, start, say)
    try:
        yield live
    finally:
        live.stop()


def bring_up(
    plan: ArmPlan, logs: Path, start: int, say: Say = lambda _line: None, cancel: threading.Event | None = None
) -> LiveArm:
    """Return the arm, ready to serve; its `stop` ends it. Raises StartFailed, with nothing of it left running.

    A set `cancel` gives the start up within a second.
    """
    try:
        return _bring_up(plan, logs, start, say, cancel or threading.Event())
    except StartFailed as error:
        error.arm = plan.name
        raise


def _bring_up(plan: ArmPlan, logs: Path, start: int, say: Say, cancel: threading.Event) -> LiveArm:
    with contextlib.ExitStack() as stack:
        began_s = time.monotonic()
        began_utc = datetime.now(UTC).isoformat(timespec="seconds")
        kept_lmcache: Kept | None = None
        cache: tiers.Cache | None = None
        connector: list[str] = []
        facts: dict[str, Any] = {
            "arm": plan.name,
            "start": start,
            "started_utc": began_utc,
            "tier": None,
            "lmcache": None,
        }
        if plan.tier is not None and plan.tier_folder is not None:
            _make(plan.tier_folder)
            kept_lmcache, cache, port = _start_lmcache(plan, logs, stack, facts, cancel)
            connector = tiers.connector_argv(port)
            facts["tier"] = {"name": plan.tier_name, "path": str(plan.tier_folder)}
            facts["lmcache_config"] = cache.config()
        else:
            facts["lmcache_config"] = None
        kept, base_url = _start_engine(plan, logs, stack, connector, facts, kept_lmcache, cache, say, cancel)
        facts["ready_s"] = round(time.monotonic() - began_s, 3)
        facts["engine_info"] = _engine_info(base_url)
        return LiveArm(
            name=plan.name, base_url=base_url, model_name=plan.model_name, engine=kept, lmcache=kept_lmcache,
            cache=cache, tier=plan.tier, tier_folder=plan.tier_folder, start=start, facts=facts,
            stop=stack.pop_all().close,
        )  # fmt: skip


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        whose = None if tiers.is_of_the_tier(error) else "host"
        raise StartFailed(f"the tier's folder {folder} cannot be used: {error.strerror}", whose=whose) from None


def _start_lmcache(
    plan: ArmPlan, logs: Path, stack: contextlib.ExitStack, facts: dict[str, Any], cancel: threading.Event
) -> tuple[Kept, tiers.Cache, int]:
    settings = plan.site.lmcache
    assert plan.tier is not None and plan.tier_folder is not None  # noqa: S101  # the caller has looked
    port, http_port = _ports((settings.port, "lmcache.port"), (settings.http_port, "lmcache.http_port"))
    argv = [*own_python(settings.command), *tiers.server_argv(settings, plan.tier, plan.tier_folder, port, http_port)]
    env = {**COMMON_ENV, **tiers.server_env(plan.tier), **settings.env}
    kept = Kept(
        "LMCache server", argv, {**clean_environment(), **env}, logs / "lmcache.log", plan.site.engine.stop_deadline_s
    )
    stack.callback(kept.stop)
    facts["lmcache"] = {
        "argv": argv,
        "env": env,
        "pid": kept.pid,
        "pid_started": started_ticks(kept.pid),
        "port": port,
        "http_port": http_port,
    }
    cache = tiers.Cache(f"http://{HOST}:{http_port}")
    _await(kept, cache.healthy, settings.ready_deadline_s, plan.site.engine.stall_s, cancel)
    return kept, cache, port


def _start_engine(
    plan: ArmPlan,
    logs: Path,
    stack: contextlib.ExitStack,
    connector: list[str],
    facts: dict[str, Any],
    lmcache: Kept | None,
    cache: tiers.Cache | None,
    say: Say,
    cancel: threading.Event,
) -> tuple[Kept, str]:
    settings = plan.site.engine
    (port,) = _ports((settings.port, "engine.port"))
    argv = [
        *own_python(settings.command), "--model", str(plan.model_folder), "--served-model-name", plan.model_name,
        "--host", HOST, "--port", str(port), *settings.args, *connector,
    ]  # fmt: skip
    env = {**COMMON_ENV, "TORCHINDUCTOR_CACHE_DIR": str(plan.compile_cache), **settings.env}
    kept = Kept("engine", argv, {**clean_environment(), **env}, logs / "engine.log", settings.stop_deadline_s)
    stack.callback(kept.stop)
    facts["engine"] = {"argv": argv, "env": env, "pid": kept.pid, "pid_started": started_ticks(kept.pid), "port": port}
    base_url = f"http://{HOST}:{port}"
    say(f"{plan.name}: engine starting")

    def healthy() -> bool:
        try:
            tiers.http_text(f"{base_url}/health", timeout_s=2.0)
        except tiers.TierError:
            return False
        return True

    began_s = time.monotonic()
    _await(kept, healthy, settings.ready_deadline_s, settings.stall_s, cancel, lmcache, cache)
    _complete_once(kept, plan, base_url, max(settings.ready_deadline_s - (time.monotonic() - began_s), 5.0))
    fault = diagnose.silent_fault(read_log(kept.log))
    if fault:
        raise StartFailed(fault, diagnose.telling_lines(read_log(kept.log)), kept.log)
    return kept, base_url


def _await(
    kept: Kept,
    ready: Callable[[], bool],
    deadline_s: float,
    stall_s: float,
    cancel: threading.Event,
    lmcache: Kept | None = None,
    cache: tiers.Cache | None = None,
) -> None:
    """Wait until `ready`; raise StartFailed when the process ends, hangs, or takes longer than its deadline."""
    began_s = time.monotonic()
    activity = Activity(stall_s)
    looked_s = began_s
    while True:
        exit_status = kept.exit_status()
        if exit_status is None and ready():
            return
        now_s = time.monotonic()
        stalled = False
        if now_s - looked_s >= 2.0:
            looked_s = now_s
            cpu_s, io_bytes = tree_usage(kept.tree())
            stalled = activity.stalled(cpu_s, io_bytes, diagnose.progress_lines(read_log(kept.log)), now_s)
        cache_status = lmcache.exit_status() if lmcache is not None else None
        late = now_s - began_s >= deadline_s
        if exit_status is not None or stalled or late or cache_status is not None:
            log = read_log(kept.log)
            facts = diagnose.StartFacts(
                program=kept.name,
                waited_s=now_s - began_s,
                exit_status=exit_status,
                stalled=stalled,
                cache_exit_status=cache_status,
                cache_answers=cache.healthy() if cache is not None and cache_status is None else None,
            )
            raise StartFailed(diagnose.cause(log, facts), diagnose.telling_lines(log), kept.log)
        if cancel.wait(POLL_S):
            raise StartFailed(f"{kept.name}: start given up, since another one failed")


def _complete_once(kept: Kept, plan: ArmPlan, base_url: str, deadline_s: float) -> None:
    """Ask for one token: a server can be healthy and yet unable to serve."""
    import openai  # half a second that whoever starts no engine would wait for

    with openai.OpenAI(base_url=f"{base_url}/v1", api_key="none", max_retries=0, timeout=deadline_s) as client:
        try:
            answer = client.completions.create(
                model=plan.model_name, prompt=list(PROBE), max_tokens=1, temperature=0, extra_body={"ignore_eos": True}
            )
        except openai.OpenAIError as error:
            log = read_log(kept.log)
            cause = f"engine: healthy, but a completion of one token failed: {' '.join(str(error).split())[:200]}"
            raise StartFailed(cause, diagnose.telling_lines(log), kept.log) from None
        if answer.usage is None or answer.usage.completion_tokens != 1:
            raise StartFailed("engine: healthy, but a completion of one token brought none", (), kept.log)


def _ports(*wanted: tuple[int, str]) -> list[int]:
    free = iter(free_ports(len(wanted)))
    chosen = []
    for port, key in wanted:
        if port and not port_is_free(port):
            told = f"port {port} is taken: free it, or set {key} to 0 in the site file to have one chosen"
            raise StartFailed(told, whose="host")
        chosen.append(port or next(free))
    return chosen


def own_python(command: Sequence[str]) -> list[str]:
    """Return the command with `{python}` replaced by the interpreter that runs the harness."""
    return [part.replace("{python}", sys.executable) for part in command]


def _engine_info(base_url: str) -> dict[str, str]:
    """Return the labels of vllm:cache_config_info: what the engine says of its own cache."""
    from prometheus_client.parser import text_string_to_metric_families

    text = tiers.http_text(f"{base_url}/metrics", timeout_s=10.0)
    for family in text_string_to_metric_families(text):
        if family.name == "vllm:cache_config":
            return dict(family.samples[0].labels)
    return {}


def read_log(path: Path) -> str:
    """Return the log's last megabyte as text; empty if there is none yet."""
    try:
        with path.open("rb") as f:
            f.seek(max(0, path.stat().st_size - 1_000_000))
            return f.read().decode("utf-8", "replace")
    except OSError:
        return ""
