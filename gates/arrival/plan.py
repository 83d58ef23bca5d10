"""What G1 checks of a site: known from its bill of materials alone, before anything is looked at."""

from __future__ import annotations

from gates.arrival import (
    accelerators,
    diagnostics,
    health,
    machine,
    mounts,
    nvme,
    paths,
    pcie,
    queues,
    raw,
    roce,
    software,
)
from gates.arrival.check import Plan
from gates.arrival.limits import Limits
from scenarios.bom import Bom

FAMILIES = (machine, nvme, paths, queues, health, mounts, roce, pcie, accelerators, diagnostics, software, raw)


def plan(bom: Bom | None, limits: Limits) -> Plan:
    """Return every check of a bill of materials in the order of the report, and what it does not declare."""
    declared = bom or Bom()
    plans = [family.plan(declared, limits) for family in FAMILIES]
    return Plan(
        tuple(check for each in plans for check in each.checks),
        tuple(item for each in plans for item in each.not_declared),
    )
