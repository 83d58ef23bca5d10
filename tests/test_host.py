"""The host before and after a run."""

from __future__ import annotations

from workloads import host


def test_the_host_of_a_run_is_told_as_text() -> None:
    assert host.probe(("echo", "x")) == "$ echo x\nx\n[status 0]\n"
    assert host.probe(("sh", "-c", "echo e >&2; exit 3")) == "$ sh -c echo e >&2; exit 3\n[stderr]\ne\n[status 3]\n"
    assert host.probe(("no-such-tool",)).endswith("[status 127]\n[no such tool: no-such-tool]\n")
    assert all(argv for argv in host.HOST_PROBES.values())
