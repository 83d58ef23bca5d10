"""Right answers at rest: a chunk file that was stored and confirmed must stay what it was, byte for byte."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from gates.validity.breach import HARNESS, HOST, Tell
from gates.validity.records import Sketch
from scenarios.model import BASELINE, CANDIDATE
from scenarios.tiers import OF_THE_TIER
from workloads.chunks import sample
from workloads.evidence import Run, Trial, read_json

Json = dict[str, Any]

CHECK = "chunks-at-rest"
_SHA256 = re.compile(r"[0-9a-f]{64}")
SHOWN_MAX = 3
ZEROS_MAX_BYTES = 1 << 32


def check_stored(run: Run, tell: Tell) -> None:
    """Tell where a prompt set's sample was not hashed whole after it was stored. Raises what is in MISSHAPEN.

    Not to be able to look is the arm's fault where its tier itself says that its data is gone or broken.
    """
    for name, arm in run.facts["scenario"]["arms"].items():
        for line in run.populated(name) if arm["tiers"] else ():
            place = f"arm '{name}': prompt set {line['prompt_set']}"
            wanted = sample(int(run.facts["seed"]), int(line["prompt_set"]), line["files"])
            stored = line["chunks"]
            if not isinstance(stored, dict) or sorted(stored["hashes"]) != wanted:
                tell(CHECK, HARNESS, f"{place}: the files hashed are not the sample that the run's seed makes")
                continue
            for file in wanted:
                sha, size = stored["hashes"][file], stored["bytes"][file]
                if not isinstance(sha, str) or not _SHA256.fullmatch(sha) or size != line["files"][file]:
                    told = f"hashed {size} bytes of {file[-24:]}, {line['files'][file]} were stored"
                    fault = stored["faults"].get(file, "no fault")
                    tell(CHECK, name if fault in OF_THE_TIER else HOST, f"{place}: {told}: {fault}")
                    break


def check_at_rest(run: Run, trial: Trial, arm: str, ended_ns: int | None, tell: Tell) -> None:
    """Tell which sampled files of the trial's prompt set are not what was stored. Raises what is in MISSHAPEN.

    That is the arm's own fault: a tier that does not keep what it has confirmed serves wrong KV, or none. `ended_ns`:
    of the trial's last counter snapshot, before which nothing may be hashed.
    """
    lines = [line for line in run.populated(arm) if line["prompt_set"] == trial.facts["prompt_set"]]
    if len(lines) != 1:
        return  # told of the run as a whole
    if not (trial.path / "chunks.json").is_file():
        tell(CHECK, HARNESS, "no data: its chunk files were not hashed again after it")
        return
    found, stored, files = read_json(trial.path / "chunks.json"), lines[0]["chunks"], lines[0]["files"]
    wanted = sample(int(run.facts["seed"]), int(trial.facts["prompt_set"]), files)
    if sorted(found["hashes"]) != wanted:
        tell(CHECK, HARNESS, "the files hashed after it are not the sample that the run's seed makes")
        return
    if type(found["t_begin_ns"]) is not int or ended_ns is None or found["t_begin_ns"] < ended_ns:
        tell(CHECK, HARNESS, "its chunk files were hashed while it was measured")
    changed: list[str] = []
    unseen: list[str] = []
    chunk_bytes = _chunk_bytes(run)
    for file in wanted:
        fault, size, was = found["faults"].get(file), found["bytes"][file], files[file]
        if fault is not None and fault not in OF_THE_TIER:
            unseen.append(f"{file[-24:]} ({fault})")
        elif found["hashes"][file] != stored["hashes"][file]:
            much = len(changed) >= SHOWN_MAX
            what = "" if much else _what(fault, size, was, found["hashes"][file], chunk_bytes)
            changed.append(f"{file[-24:]} {what}")
    for whose, told in ((HOST, unseen), (arm, changed)):
        if told:
            shown = ", ".join(told[:SHOWN_MAX]) + (", ..." if len(told) > SHOWN_MAX else "")
            what = "changed after the store was confirmed" if whose == arm else "could not be read"
            tell(CHECK, whose, f"{len(told)} of {len(wanted)} sampled chunk files {what}: {shown}")


def check_outside(run: Run, trials: Sequence[Sketch], tell: Tell) -> None:
    """Tell if files were hashed within the window of any trial: reading them disturbs what is measured."""
    windows = [(t.begin_ns, t.end_ns, t.name) for t in trials if t.begin_ns is not None and t.end_ns is not None]
    for file in sorted(run.path.glob("raw/*/c*/b*/chunks.json")):
        found = read_json(file)
        begin_ns, end_ns = int(found["t_begin_ns"]), int(found["t_end_ns"])
        name = next((name for begin, end, name in windows if begin_ns < end and begin < end_ns), None)
        if name is not None or end_ns < begin_ns:
            tell(CHECK, HARNESS, f"{'/'.join(file.parts[-4:-1])}: files were hashed during {name or 'no time at all'}")


def compare_stores(run: Run, tell: Tell) -> list[str]:
    """Return a line on whether baseline and candidate hold the same bytes for the same chunks.

    Both stored prompts that were computed one at a time. On a processor that gives the same bits each time (the
    rehearsal's generated model), so that a difference is a fault between computing and the first hash; which of the
    two tiers is wrong nobody can say. Elsewhere it is only told. Raises what is in MISSHAPEN.
    """
    mine, theirs = (_hashes(run, arm) for arm in (CANDIDATE, BASELINE))
    both = mine.keys() & theirs.keys()
    if not both:
        return ["no chunk name is the same in both stores: their bytes were not compared"] if mine and theirs else []
    odd = sorted(file for file in both if mine[file] != theirs[file])
    line = f"the stores: {len(both) - len(odd)} of {len(both)} sampled chunks are equal in {BASELINE} and {CANDIDATE}"
    served = run.facts["site"]["models"][run.facts["scenario"]["model"]]
    if odd and served["source"] == "generated":
        tell("stores-equal", HARNESS, f"{line}, all expected; the first that is not: {odd[0][-24:]}")
    return [line]


def _hashes(run: Run, arm: str) -> Mapping[str, str]:
    """Return the hashes of what was stored; one that could not be made is told of the arm."""
    stored = (line["chunks"]["hashes"] for line in run.populated(arm))
    return {file: sha for hashes in stored for file, sha in hashes.items() if sha is not None}


def _what(fault: str | None, size: object, was: int, sha: object, chunk_bytes: int) -> str:
    if fault is not None:
        return f"is missing ({fault})" if fault == "ENOENT" else f"cannot be read ({fault})"
    if size != was:
        return f"holds {size} bytes, {was} were stored"
    # Of another size than a chunk's is told elsewhere; to hash as many zeros as a record says might never end.
    zeroed = was == chunk_bytes <= ZEROS_MAX_BYTES and sha == _zeros(was)
    return "holds nothing but zeros" if zeroed else "holds other bytes"


@lru_cache(maxsize=1)
def _zeros(size: int) -> str:
    """Return the SHA-256 of so many zeros."""
    zeros, piece = hashlib.sha256(), bytes(1 << 20)
    for begin in range(0, size, len(piece)):
        zeros.update(piece[: size - begin])
    return zeros.hexdigest()


def _chunk_bytes(run: Run) -> int:
    """Return what a whole chunk holds. Raises what is in MISSHAPEN."""
    site, name = run.facts["site"], run.facts["scenario"]["model"]
    return int(site["lmcache"]["chunk_tokens"]) * int(site["models"][name]["kv_bytes_per_token"])
