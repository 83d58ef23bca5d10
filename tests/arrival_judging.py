"""What G1's checks find on a host, made up or of the real lab."""

from __future__ import annotations

import functools
import tomllib
from pathlib import Path

from gates.arrival import limits
from gates.arrival.check import Finding, Plan
from gates.arrival.host import Host
from gates.arrival.plan import plan
from scenarios.model import Site
from tests.arrival_lab import SITE
from workloads.bundle import Bundle

ROOT = Path(__file__).resolve().parent.parent
CRITERIA = ROOT / "gates/criteria/g1.toml"
REAL_SITE = (ROOT / "tests/data/nvmeof-lab.toml").read_text(encoding="utf-8")


@functools.cache
def planned(site: str = SITE) -> Plan:
    return plan(Site.model_validate(tomllib.loads(site)).bom, limits.load(CRITERIA))


def judged(bundle: Bundle, site: str = SITE, after: Bundle | None = None) -> dict[str, Finding]:
    """Return the finding of each check."""
    host = Host(bundle, "host/before", after=Host(after, "host/after") if after is not None else None)
    return {check.id: check.look(host) for check in planned(site).checks}


def failed(found: dict[str, Finding]) -> set[str]:
    return {name for name, finding in found.items() if finding.verdict == "FAIL"}
