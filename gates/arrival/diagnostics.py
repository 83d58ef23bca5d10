"""What vendors' own diagnostics say of the accelerators: only where the site asks for it, since they take time."""

from __future__ import annotations

from functools import partial

from gates.arrival.check import Collector, Finding, Plan, finding, unseen
from gates.arrival.host import Host
from gates.arrival.limits import Limits
from gates.nodata import NoData
from gates.readers import diagnostics
from scenarios.bom import Accelerators, Bom

DIAG = ("dcgmi", "diag")
GDSCHECK = (("gdscheck", "-p"), ("gdscheck.py", "-p"))


def plan(bom: Bom, limits: Limits) -> Plan:
    """Return the checks of the declared diagnostics."""
    gathered = Collector()
    for name, wanted in bom.accelerators.items():
        at = f"accelerators.{name}"
        diag = "every test of DCGM passes" if wanted.diagnostics else None
        gathered.add(at, "diagnostics", diag, partial(_diagnostics, wanted))
        gds = "GPUDirect Storage over NVMe-oF" if wanted.gds_nvmeof else None
        gathered.add(at, "gds_nvmeof", gds, _gds)
    return gathered.plan()


def _diagnostics(wanted: Accelerators, host: Host) -> Finding:
    """Judge every test of every run: one that was skipped, or only warned, has not passed."""
    runs = host.read_all(diagnostics.dcgm_diag, *DIAG)
    if not runs:
        return unseen("`dcgmi diag` was not collected (probes.py --diagnostics)")
    faults: list[str] = []
    unknown: list[str] = []
    raw: list[str] = []
    passed = 0
    for _, seen in runs:
        raw += seen.raw
        if isinstance(seen.value, NoData):
            unknown.append(seen.value.reason)
            continue
        for test in seen.value.tests:
            said = f"{test.category}: {test.name}: {test.status}" + (f" ({test.notes[0]})" if test.notes else "")
            passed += test.status == diagnostics.PASS
            if test.status == diagnostics.FAIL:
                faults.append(said)
            elif test.status != diagnostics.PASS:
                unknown.append(f"{said}: no pass")
    told = f"{passed} tests passed" if passed else ""
    return finding(faults, told or "no test passed", told, raw, unknown)


def _gds(host: Host) -> Finding:
    seen = host.read(diagnostics.gds, *GDSCHECK)
    if isinstance(seen.value, NoData):
        return unseen(seen.value, seen.raw)
    direct = seen.value.paths["NVMeOF"]
    if direct is None:
        return unseen("gdscheck: what it says of NVMeOF is not known", seen.raw)
    told = f"NVMeOF is {'supported' if direct else 'not supported'}"
    return finding([] if direct else [f"gdscheck: {told}"], told, told, seen.raw)
