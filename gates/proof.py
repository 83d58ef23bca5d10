"""What proves a run to somebody who doubts it: is it as sealed, who signed it, which attempt was it.

Each function returns the lines to be shown and the exit status.
"""

from __future__ import annotations

import os
from pathlib import Path

from workloads import ledger, signing
from workloads.evidence import MANIFEST, EvidenceError, verify
from workloads.plain import shown

Told = tuple[list[str], int]


def verify_run(path: Path, allowed_signers: Path | None) -> Told:
    """Tell every file that is not as it was sealed, then every signature; 1 for a fault or a signature that is bad.

    Raises SigningError: the allowed signers cannot be read.
    """
    variable = os.environ.get(signing.SIGNERS_VARIABLE)
    allowed = allowed_signers or (Path(variable) if variable else None)
    faults = verify(path)
    lines = faults or [f"{path}: every file is as it was sealed"]
    try:
        signatures = signing.check(path, allowed)
    except (EvidenceError, OSError):
        # Told above; but what was signed was sealed, whatever has become of the manifest.
        signed = [name for name in signing.FILES.values() if (path / name).exists()]
        if signed and not (path / MANIFEST).exists():
            lines = [
                f"{MANIFEST}: missing, though {' and '.join(signed)} shows that the run was sealed: it was deleted"
            ]
        return lines, 1
    lines += [signature.line() for signature in signatures]
    if not any(signature.role == signing.OPERATOR for signature in signatures):
        reason = signing.problem(path)
        lines.append("not signed by its operator" + (f": {reason}" if reason else ""))
    bad = any(signature.state == signing.BAD for signature in signatures)
    return lines, 1 if faults or bad else 0


def sign_run(path: Path, key: Path | None, role: str) -> Told:
    """Sign the manifest of a run that is as it was sealed; a signature that fits is not overwritten.

    Raises SigningError, OSError.
    """
    variable = os.environ.get(signing.KEY_VARIABLE)
    key = key or (Path(variable) if variable else None)
    if key is None:
        raise signing.SigningError(f"name the key: --key KEY, or {signing.KEY_VARIABLE}")
    if faults := verify(path):
        return [*faults, f"{path}: not signed: it is not as it was sealed"], 1
    for signature in signing.check(path):
        if signature.role == role and signature.state != signing.BAD:
            told = f"{path}: already signed, {signature.told}: move {signing.FILES[role]} away first"
            raise signing.SigningError(told)
    signing.sign(path, key, role)
    (path / signing.UNSIGNED).unlink(missing_ok=True)
    return [signature.line() for signature in signing.check(path) if signature.role == role], 0


def show_ledger(runs: Path) -> Told:
    """Tell every attempt in the ledger of `runs` and whether its chain holds; 1 where it does not.

    Raises EvidenceError: there is no ledger. OSError.
    """
    if not (runs / ledger.LEDGER).exists():
        raise EvidenceError(f"{runs}: no {ledger.LEDGER} there: give the folder of the runs")
    try:
        lines = ledger.read(runs)
    except ledger.LedgerError as error:
        return [str(error)], 1
    outcome = {entry["run"]: entry["verdict"] for entry in ledger.attempts([line.values for line in lines])}
    told = []
    for line in lines:
        if line.values["event"] == ledger.START:
            start = line.values
            counts = f"attempt {start['attempt']}" if ledger.counted(start) else "rehearsal"
            what = f"{start['gate']} on {start['site']['name']}, scenario {start['scenario']['name']}"
            came = outcome[start["run"]] or "no end: it was killed, or still runs"
            told.append(shown(f"{start['utc']}  {start['run']}  {what}: {counts}: {came}"))
    missing = [f"{path.name}: its start is not in the ledger" for path, _ in ledger.unknown_runs(runs, lines)]
    if not missing:
        told.append(f"{runs / ledger.LEDGER}: {len(lines)} lines, every one follows the one before it")
        told.append(f"the next line will hold {ledger.last_hash(lines)}")
    return [*told, *map(shown, missing)], 1 if missing else 0
