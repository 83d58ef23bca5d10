"""Every start is its arm's own: its folder, its processes and ports, its tier, the site's own commands.

Otherwise one arm could be measured under the name of another, and the comparison would compare nothing.
"""

from __future__ import annotations

import json
import math
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from gates.validity.breach import HARNESS, HOST, Tell
from gates.validity.records import Sketch
from scenarios import tiers
from scenarios.model import Site
from workloads.evidence import Run, read_json

Json = dict[str, Any]

CHECK = "starts"
PARTS = ("engine", "lmcache")
ADDRESS = "127.0.0.1"  # that every engine listens on


def check_starts(run: Run, tell: Tell) -> None:
    """Look at each start.json by itself, then at processes and tiers that two of them share.

    Raises what is in MISSHAPEN.
    """
    site = Site.model_validate(run.facts["site"])
    processes: dict[tuple[int, int], str] = {}
    paths: dict[str, tuple[str, str]] = {}  # tier -> (path, start)
    for folder, start in _starts(run):
        place = f"{folder.parts[-2]}/{folder.name}"
        if (start["arm"], f"start-{start['start']:02d}") != (folder.parts[-2], folder.name):
            tell(CHECK, HARNESS, f"{place}: its start.json is of arm {start['arm']!r}, start {start['start']}")
        if type(start["ready_s"]) not in (int, float) or not 0 < start["ready_s"] < math.inf:
            tell(CHECK, HARNESS, f"{place}: ready after {start['ready_s']!r} s, which no start is")
        for part in PARTS:
            _own_process(place, part, start, processes, tell)
        wanted = run.facts["scenario"]["arms"][folder.parts[-2]]["tiers"]
        _as_the_site_says(place, site, run.facts["scenario"]["model"], start, wanted[0] if wanted else None, tell)
        if start["tier"] is not None:
            name, path = str(start["tier"]["name"]), posixpath.normpath(str(start["tier"]["path"]))
            was, first = paths.setdefault(name, (path, place))
            if path != was:
                tell(CHECK, HARNESS, f"{place}: tier '{name}' lies in {path}, but in {was} for {first}")
    for (one, (mine, _)), (other, (theirs, _)) in combinations(paths.items(), 2):
        if _within(mine, theirs) or _within(theirs, mine):
            tell(CHECK, HARNESS, f"the tiers '{one}' ({mine}) and '{other}' ({theirs}) do not lie apart")


def check_apart(run: Run, trials: Sequence[Sketch], tell: Tell) -> None:
    """Tell if two arms that were up at the same time had the same process number or port: one stood in for the other.

    Up is a start at least from the first counter snapshot that was taken of it to the last. Raises what is in
    MISSHAPEN.
    """
    up: dict[tuple[str, int], tuple[int, int]] = {}
    for trial in trials:
        if trial.begin_ns is not None and trial.end_ns is not None:
            begin, end = up.get((trial.arm, trial.start), (trial.begin_ns, trial.end_ns))
            up[trial.arm, trial.start] = min(begin, trial.begin_ns), max(end, trial.end_ns)
    starts = {(str(start["arm"]), int(start["start"])): start for _, start in _starts(run)}
    known = [key for key in up if key in starts]
    for one, other in combinations(known, 2):
        if up[one][1] <= up[other][0] or up[other][1] <= up[one][0]:
            continue
        shared = _held(starts[one]) & _held(starts[other])
        if shared:
            what = " and ".join(f"{kind} {number}" for kind, number in sorted(shared))
            where = f"{one[0]}, start {one[1]}, and {other[0]}, start {other[1]}"
            tell(CHECK, HARNESS, f"{where}, were up at the same time with the same {what}")


def _starts(run: Run) -> Iterator[tuple[Path, Json]]:
    for arm in run.facts["scenario"]["arms"]:
        for file in sorted(run.path.glob(f"raw/{arm}/start-*/start.json")):
            yield file.parent, read_json(file)


def _own_process(place: str, part: str, start: Json, seen: dict[tuple[int, int], str], tell: Tell) -> None:
    """A process number and the moment at which it was started name one process of a boot: no two starts have both."""
    if start[part] is None or type(start[part]["pid_started"]) is not int:
        return  # told of the trials
    key = start[part]["pid"], start[part]["pid_started"]
    other = seen.setdefault(key, f"{part} of {place}")
    if other != f"{part} of {place}":
        tell(CHECK, HARNESS, f"{part} of {place} is the very process {key} that is {other}")


def _held(start: Json) -> set[tuple[str, int]]:
    found = {("process", start[part]["pid"]) for part in PARTS if start[part] is not None}
    return found | {("port", start[part]["port"]) for part in PARTS if start[part] is not None}


def _as_the_site_says(place: str, site: Site, model: str, start: Json, name: str | None, tell: Tell) -> None:
    """Compare what was started with the site's commands, and the tier's folder with the site's path."""
    connector: list[str] = []
    if name is not None and start["lmcache"] is not None and start["tier"] is not None:
        if start["lmcache_config"] is None:
            tell(CHECK, HOST, f"{place}: no data on LMCache's configuration: it was asked and did not say")
        tier, path, lmcache = site.tiers[name], str(start["tier"]["path"]), start["lmcache"]
        if not _ends_as(path, tier.path):
            tell(CHECK, HARNESS, f"{place}: its tier lies in {path}, '{tier.path}' is the site's '{name}'")
        argv = tiers.server_argv(site.lmcache, tier, Path(path), lmcache["port"], lmcache["http_port"])
        _same_argv(f"{place}: LMCache", lmcache["argv"], [*site.lmcache.command, *argv], tell)
        elsewhere = sorted(set(_base_paths(start["lmcache_config"])) - {path})
        if elsewhere:
            tell(CHECK, HARNESS, f"{place}: LMCache says that it keeps its chunks in {elsewhere[0]}, not in {path}")
        connector = tiers.connector_argv(lmcache["port"])
    served = site.models[model]
    argv = [
        *site.engine.command, "--model", str(Path(served.path)) if served.path else _ANY,
        "--served-model-name", model, "--host", ADDRESS, "--port", str(start["engine"]["port"]), *site.engine.args,
        *connector,
    ]  # fmt: skip
    _same_argv(f"{place}: the engine", start["engine"]["argv"], argv, tell)


_ANY = "{any}"  # as `{python}` in a site's command: what only the recording machine knew


def _same_argv(what: str, found: Sequence[str], wanted: Sequence[str], tell: Tell) -> None:
    for part, expected in zip(found, wanted, strict=False):
        if not _fits(part, expected):
            tell(CHECK, HOST, f"{what} was started with {part[:200]!r} where the site has {expected[:200]!r}")
            return
    if len(found) != len(wanted):
        tell(CHECK, HOST, f"{what} was started with {len(found)} arguments, {len(wanted)} by the site")


def _fits(part: str, expected: str) -> bool:
    if expected.startswith('{"'):  # JSON, in which nothing but its meaning counts
        try:
            return bool(json.loads(part) == json.loads(expected))
        except ValueError:
            return False
    pattern = re.escape(expected).replace(re.escape("{python}"), ".+").replace(re.escape(_ANY), ".+")
    return re.fullmatch(pattern, part, re.DOTALL) is not None


def _base_paths(value: object) -> Iterator[str]:
    """Yield every folder that LMCache's own description of itself names for chunks."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if key == "base_path":
                yield str(inner)
            else:
                yield from _base_paths(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _base_paths(inner)


def _ends_as(path: str, wanted: str) -> bool:
    """Return whether an absolute path is the site's, or ends in the site's relative one."""
    found, last = posixpath.normpath(path), posixpath.normpath(wanted)
    if posixpath.isabs(last):
        return found == last
    return posixpath.isabs(found) and found.endswith(f"/{last}")


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")
