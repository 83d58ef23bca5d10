"""Why a start failed: from logs and facts to one sentence and the lines that tell it. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

# Printed for ever by an engine that waits; it is no progress.
HEARTBEAT = re.compile(
    r"shm_broadcast|No available shared memory broadcast block|Waiting for .* to (start|be ready)|GET /(health|metrics)"
)
_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_TELLING = re.compile(r"Error|ERROR|CRITICAL|Traceback|Failed|failed|No space|not supported|Killed|refused")
_STARTS_NOTHING = re.compile(r"^\s+(File|raise|return|await|self\.|\^+|~+)")
# The last line of a traceback; engines put "(EngineCore pid=1) ERROR ... " before it.
_RAISED = re.compile(r"(?:^|\s)((?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception): \S.*)$", re.MULTILINE)


@dataclass(frozen=True)
class StartFacts:
    """What is known of a start that did not succeed."""

    program: str  # "engine" or "LMCache server"
    waited_s: float
    exit_status: int | None  # None: still running when given up
    stalled: bool = False
    cache_exit_status: int | None = None  # of the LMCache server beside an engine; None: alive, or there is none
    cache_answers: bool | None = None  # whether it answers its health check; None: there is none


# What the log says, and what it means for the user. The first that matches is the cause.
_SIGNS: tuple[tuple[str, str], ...] = (
    (r"[Aa]ddress already in use|EADDRINUSE", "its port is taken: free it, or set the port to 0 in the site file"),
    (
        r"Failed to initialize LMCacheManager components",
        "its LMCache connector did not initialize, so it would recompute everything without a word: "
        "use the multi-process connector that fits this platform",
    ),
    (
        r"No module named '?vllm",
        "vLLM is not installed for this Python: run `make engine`, or name the lab's own in the site file",
    ),
    (
        r"No module named '?lmcache",
        "LMCache is not installed for this Python: run `make engine`, or name the lab's own in the site file",
    ),
    (r"No space left on device", "the disk or /dev/shm is full: free some room"),
    (
        r"Cannot allocate memory|out of memory|OutOfMemoryError|std::bad_alloc",
        "it ran out of memory: free some, or lower its cache size",
    ),
    (
        r"does not support.*CPU|is not supported on (the )?CPU",
        "it asks for something that the CPU platform does not have",
    ),
    (r"unrecognized arguments: .*", "it does not know one of the arguments in the site file"),
    (
        r"Can't load the configuration|is not a local folder|does not appear to have a file",
        "the model's folder is incomplete or missing",
    ),
)


def cause(log: str, facts: StartFacts) -> str:
    """Return one sentence: what failed, after how long, and why."""
    after = f"after {facts.waited_s:.0f} s"
    if facts.program == "engine" and facts.cache_exit_status is not None:
        return (
            f"engine: not ready {after}: the LMCache server that it waits for has ended "
            f"({_how_ended(facts.cache_exit_status)}); see lmcache.log beside engine.log"
        )
    sign = _sign(log)
    if facts.exit_status is not None:
        how = _how_ended(facts.exit_status)
        return f"{facts.program}: ended in start-up {after} ({how}): {sign or 'its log does not say why'}"
    hung = "hangs in start-up: nothing moves any more" if facts.stalled else "not ready within its deadline"
    if facts.program == "engine" and facts.cache_answers is False:
        return f"engine: {hung} {after}: the LMCache server does not answer, and the engine waits for it"
    if facts.program == "engine" and facts.cache_answers and _waits_for_cache(log):
        return (
            f"engine: {hung} {after}: the LMCache server answers its health check but never completed the engine's "
            "registration; on a CPU it must be started with `--supported-transfer-mode auto`"
        )
    if sign:
        return f"{facts.program}: {hung} {after}: {sign}"
    advice = "" if facts.stalled else "; a large model needs a longer ready_deadline_s in the site file"
    return f"{facts.program}: {hung} {after}{advice}"


def telling_lines(log: str, count: int = 6) -> list[str]:
    """Return up to `count` lines of the log that tell most, oldest first, without colour codes."""
    lines = [_ANSI.sub("", line).rstrip() for line in log.splitlines()]
    lines = [line for line in lines if line.strip()]
    telling = [line for line in lines if _TELLING.search(line) and not _STARTS_NOTHING.match(line)]
    return [line[:300] for line in (telling or lines)[-count:]]


def progress_lines(log: str) -> int:
    """Return how many lines of the log are more than a heartbeat."""
    return sum(1 for line in log.splitlines() if line.strip() and not HEARTBEAT.search(line))


def silent_fault(log: str) -> str | None:
    """Return the cause if a server that claims to be healthy has logged that its tier does not work, else None."""
    if re.search(r"Failed to initialize LMCacheManager components", log):
        return "engine: healthy, but " + _SIGNS[1][1]
    return None


def _waits_for_cache(log: str) -> bool:
    """Return whether the engine's last words are about registering with LMCache, or a heartbeat without end."""
    last = "\n".join([line for line in log.splitlines() if line.strip()][-10:])
    return bool(re.search(r"[Rr]egistering kv caches|No available shared memory broadcast block", last))


def _sign(log: str) -> str | None:
    for pattern, meaning in _SIGNS:
        if re.search(pattern, log):
            return meaning
    raised = _RAISED.findall(_ANSI.sub("", log))
    return raised[-1][:200] if raised else None


def _how_ended(status: int) -> str:
    if status == -9:
        return "killed by signal 9, as the kernel does when memory runs out"
    return f"killed by signal {-status}" if status < 0 else f"exit status {status}"


def one_line(cause_text: str, lines: Sequence[str]) -> str:
    """Return cause and last telling line as one line."""
    return cause_text + (f" | log: {lines[-1].strip()}" if lines else "")
