"""G1's plan: what is declared is checked, one id each, and what is collected is read or said to be for the eye."""

from __future__ import annotations

import re
from fnmatch import fnmatch
from pathlib import Path

from gates.arrival import limits
from gates.arrival.host import Host
from gates.arrival.plan import plan
from tests.arrival_judging import CRITERIA, ROOT, planned
from tests.arrival_lab import PYTHON, SITE
from workloads import probes
from workloads.bundle import Bundle, Output


class Watched(Bundle):
    """A bundle that notes what is asked of it."""

    def __init__(self, outputs: tuple[Output, ...], asked: set[str]) -> None:
        super().__init__(outputs)
        object.__setattr__(self, "asked", asked)

    def find(self, *words: str) -> Output | None:
        found = super().find(*words)
        self.asked.update([found.name] if found else [])  # type: ignore[attr-defined]
        return found

    def matching(self, *words: str) -> list[Output]:
        found = super().matching(*words)
        self.asked.update(output.name for output in found)  # type: ignore[attr-defined]
        return found


EVERYTHING = (
    SITE.replace('kernel = "6.1"\n', 'kernel = "6.1"\nrocm = "6"\ncuda = "12"\ncann = "8"\n')
    + """
[bom.accelerators.amd]
vendor = "amd"
count = 1
[bom.accelerators.npu]
vendor = "ascend"
count = 1
"""
)
# Asked of a device that was found, or in a way that is not watched here; other tests read them.
OF_WHAT_WAS_FOUND = (
    "nvme-smart-log.*",
    "smartctl-a.*",
    "rdma-statistic.json",
    "ethtool-S.*",
    "ip-link-s.json",
    "write.*",
    "proc-diskstats",
    "date",
    "boot-id",
)


def test_what_is_collected_is_read_or_said_to_be_for_the_eye(tmp_path: Path) -> None:
    for folder in ("class/nvme/nvme0", "block/nvme0n1", "block/sda", "class/net/fab0/device"):
        (tmp_path / folder).mkdir(parents=True)
    tasks = probes.plan(["/srv/array"], [PYTHON], True, str(tmp_path))
    asked: set[str] = set()
    outputs = tuple(Output(task.name, tuple(task.words or task.argv), b"", b"", 127) for task in tasks)
    host = Host(Watched(outputs, asked), "host/before")
    for check in planned(EVERYTHING).checks:
        assert check.look(host).verdict == "INVALID", check.id
    text = (ROOT / "docs/probes.md").read_text(encoding="utf-8")
    kept = re.findall(r"`([^`]+)`", text.split("## Kept for the eye")[1].split("Readers that no row uses")[0])
    unread = {output.name for output in outputs if output.name not in asked}
    unread -= {name for name in unread if any(fnmatch(name, pattern) for pattern in OF_WHAT_WAS_FOUND)}
    assert {name for name in unread if not any(fnmatch(name, pattern) for pattern in kept)} == set()
    assert {pattern for pattern in kept if not any(fnmatch(name, pattern) for name in unread)} == set()


def test_nothing_declared_is_nothing_checked() -> None:
    nothing = plan(None, limits.load(CRITERIA))
    assert nothing.checks == ()
    assert {metric for _, metric in nothing.not_declared} >= {"presence", "mounted", "link", "raw_speed"}


def test_ids_are_one_each_and_limits_are_of_their_metric() -> None:
    ids = [check.id for check in planned().checks]
    assert len(set(ids)) == len(ids)
    assert all(check.limit is None or check.limit.metric == check.metric for check in planned().checks)
