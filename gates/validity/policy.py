"""Does the run sample what differs from start to start? An engine start is what a block repeats."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from gates.validity.breach import HARNESS, Tell
from gates.validity.records import Sketch
from workloads.evidence import Run

CHECK = "policy"


def check_policy(run: Run, trials: Sequence[Sketch], tell: Tell) -> None:
    """Tell of a lab run whose policy does not start every arm anew for each block, and of starts that were not anew.

    With any other policy than `exclusive` the intervals lack the variance between starts, which would have to come
    from G2's record; there is no rule for that yet. A rehearsal is no acceptance, so it may. Raises what is in
    MISSHAPEN.
    """
    policy = run.facts["site"]["engine"]["policy"]
    if policy != "exclusive":
        if run.facts["rehearsal"] is not True:
            told = f"the policy is {policy!r}: its blocks do not sample the variance between engine starts"
            tell(CHECK, HARNESS, f"{told}, so that a lab run proves nothing: 'exclusive' is needed")
        return
    blocks: dict[tuple[str, int], set[int]] = {}
    starts: dict[tuple[str, int], set[int]] = {}
    for trial in trials:
        blocks.setdefault((trial.arm, trial.start), set()).add(trial.block)
        starts.setdefault((trial.arm, trial.block), set()).add(trial.start)
    for (arm, start), found in sorted(blocks.items()):
        if len(found) > 1:
            shown = ", ".join(map(str, sorted(found)))
            tell(CHECK, HARNESS, f"start {start} of '{arm}' was measured in the blocks {shown}: each needs its own")
    for (arm, block), numbers in sorted(starts.items()):
        if len(numbers) > 1:
            tell(CHECK, HARNESS, f"block {block}: '{arm}' was measured in {len(numbers)} starts, one expected")
    for arm in run.facts["scenario"]["arms"]:
        used = {int(line["start"]) for line in run.populated(arm)}
        for start in sorted(used & {start for name, start in blocks if name == arm}):
            tell(CHECK, HARNESS, f"start {start} of '{arm}' stored prompt sets and was measured, too")
        ticks = [(int(s["start"]), s["engine"]["pid_started"]) for s in run.starts(arm)]
        for (one, was), (other, now) in pairwise(ticks):
            if type(was) is int and type(now) is int and now <= was:
                told = f"start {other} of '{arm}' began at {now} ticks, start {one} before it at {was}"
                tell(CHECK, HARNESS, f"{told}: they are not one after the other")
