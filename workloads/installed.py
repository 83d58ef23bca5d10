"""What is installed for the Python that runs a command of the site: asked of that Python, never of our own."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath

from scenarios.engine import own_python
from scenarios.process import ROOT
from workloads.probes import run_tool

DEADLINE_S = 60.0
# What may stand before a program without changing more than where and how it runs. Whatever else does (`docker run`,
# a batch system) would be started for this alone, so that it is not asked.
WRAPPERS = ("env", "nice", "ionice", "chrt", "taskset", "numactl", "setarch")
ENTERING = (("docker", "exec"), ("podman", "exec"), ("nerdctl", "exec"))
_PYTHON = re.compile(r"python[0-9.]*")
_PIP_EXEC = "'''exec' "
_HEAD_BYTES = 4096
_ASK = """\
import importlib.metadata, json, sys
found = {}
for name in sys.argv[1:]:
    try:
        found[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        pass
print(json.dumps(found))
"""


class NotTold(RuntimeError):
    """One line: why the versions are not known."""


def versions(command: Sequence[str], env: Mapping[str, str], packages: Sequence[str]) -> dict[str, str]:
    """Return name -> version of those packages that are installed for the Python behind `command`.

    Raises NotTold: which Python it is cannot be seen, or it does not answer.
    """
    python = interpreter(own_python(command))
    settings = [f"{key}={value}" for key, value in env.items()]
    ran = run_tool(["env", "-u", "PYTHONPATH", *settings, *python, "-c", _ASK, *packages], DEADLINE_S, cwd=str(ROOT))
    lines = ran.stdout.decode("utf-8", "replace").splitlines()
    try:
        found = json.loads(lines[-1]) if ran.status == 0 and lines else None
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(isinstance(version, str) for version in found.values()):
        error = ran.stderr.decode("utf-8", "replace").strip().splitlines()
        why = ran.note or (error[-1][:200] if error else f"status {ran.status}, no answer")
        raise NotTold(f"{' '.join(python)}: {why}")
    return found


def interpreter(command: Sequence[str]) -> list[str]:
    """Return the words that start the Python of a command: what stands before it, and itself. Raises NotTold."""
    enters = tuple(command[:2]) in ENTERING
    wrapped = enters or PurePath(command[0]).name in WRAPPERS
    for position, word in enumerate(command if wrapped else command[:1]):
        if _PYTHON.fullmatch(PurePath(word).name):
            return list(command[: position + 1])
        # Within a container a script is another one than here.
        script = None if enters else shutil.which(word)
        if script is not None and (named := _named_by(Path(script))):
            return [*command[:position], *named]
    raise NotTold(f"'{command[0]}' does not show which Python it runs")


def _named_by(script: Path) -> list[str]:
    """Return the Python that the script's first line names; empty where there is none."""
    try:
        with script.open("rb") as f:
            first, second, *_ = [*f.read(_HEAD_BYTES).decode("utf-8", "replace").splitlines(), "", ""]
        words = shlex.split(first.removeprefix("#!")) if first.startswith("#!") else []
        # Where the path is too long for a first line, pip has a shell start the Python that the second one names.
        if words == ["/bin/sh"] and second.startswith(_PIP_EXEC):
            words = shlex.split(second.removeprefix(_PIP_EXEC))[:1]
    except (OSError, ValueError):
        return []
    return words if any(_PYTHON.fullmatch(PurePath(word).name) for word in words) else []
