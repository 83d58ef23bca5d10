"""A failed start is told in one sentence that names the cause."""

from __future__ import annotations

import pytest

from scenarios import diagnose
from scenarios.diagnose import StartFacts, cause

BROADCAST = "(APIServer pid=1) INFO 11-30 04:52:31 [shm_broadcast.py:542] No available shared memory broadcast block found in 60 seconds.\n"


def facts(**change: object) -> StartFacts:
    return StartFacts(**{"program": "engine", "waited_s": 60.0, "exit_status": None, **change})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("log", "given", "told"),
    [
        (BROADCAST, facts(cache_answers=True, stalled=True), "hangs in start-up: nothing moves any more after 60 s: the LMCache server answers its health check but never completed the engine's registration"),
        ("INFO: Registering kv caches\nINFO: Engine KV Format: X\n", facts(cache_answers=True, stalled=True), "the LMCache server answers its health check but never completed"),
        ("INFO: Registering kv caches\n" + "INFO: more\n" * 20, facts(cache_answers=True, stalled=True), "hangs in start-up: nothing moves any more after 60 s"),
        (BROADCAST, facts(cache_answers=False), "the LMCache server does not answer, and the engine waits for it"),
        ("", facts(cache_exit_status=-9), "the LMCache server that it waits for has ended (killed by signal 9"),
        ("OSError: [Errno 98] Address already in use", facts(exit_status=1), "its port is taken: free it"),
        ("python: No module named 'vllm'", facts(exit_status=1), "vLLM is not installed"),
        ("Failed to initialize LMCacheManager components", facts(exit_status=1), "recompute everything without a word"),
        ("Traceback (most recent call last):\n  File x\nValueError: To serve at least one request, 9 GB are needed", facts(exit_status=1), "ValueError: To serve at least one request, 9 GB are needed"),
        ("(EngineCore pid=9) ERROR 11-30 [core.py:1] \x1b[0mRuntimeError: nope\n", facts(exit_status=1), "RuntimeError: nope"),
        ("", facts(exit_status=-9), "killed by signal 9, as the kernel does when memory runs out"),
        ("", facts(exit_status=3), "exit status 3): its log does not say why"),
        ("loading\n", facts(), "not ready within its deadline after 60 s; a large model needs a longer ready_deadline_s"),
        ("api_server.py: error: unrecognized arguments: --foo", facts(exit_status=2), "does not know one of the arguments"),
    ],
)  # fmt: skip
def test_causes(log: str, given: StartFacts, told: str) -> None:
    sentence = cause(log, given)
    assert told in sentence
    assert "\n" not in sentence


def test_heartbeats_are_no_progress() -> None:
    assert diagnose.progress_lines(BROADCAST * 5 + "INFO: GET /health HTTP/1.1\n") == 0
    assert diagnose.progress_lines("Loading weights\n" + BROADCAST) == 1


def test_telling_lines_are_the_errors_and_else_the_last() -> None:
    log = "a\nERROR: one\n  File x, line 3\nb\nValueError: two\nc\n"
    assert diagnose.telling_lines(log) == ["ERROR: one", "ValueError: two"]
    assert diagnose.telling_lines("a\nb\n") == ["a", "b"]
    assert diagnose.telling_lines("") == []


def test_a_healthy_server_whose_tier_does_not_work_is_a_fault() -> None:
    assert "recompute everything" in (diagnose.silent_fault("x Failed to initialize LMCacheManager components y") or "")
    assert diagnose.silent_fault("fine") is None
