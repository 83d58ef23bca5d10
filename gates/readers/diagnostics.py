"""Vendor diagnostics: `dcgmi diag -j`, `dcgmi health -c -j`, `dcgmi discovery -l`, `gdscheck -p`.

A test that was skipped or not run has not passed. Formats: DCGM's Diag.cpp, Health.cpp and Query.cpp, 2.x to 4.x.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gates.readers.accelerator import Accelerator
from gates.readers.error import ReaderError, answer, document, shown, text, word
from gates.readers.pci import bus_id
from workloads.bundle import Output

PASS, SKIP, NOT_RUN, WARN, FAIL = "Pass", "Skip", "Not Run", "Warn", "Fail"
_RANK = {PASS: 0, SKIP: 1, NOT_RUN: 2, WARN: 3, FAIL: 4}  # an unknown word is worse than Not Run, better than Warn
_NOT_GPUDIRECT = frozenset({"compat", ""})


@dataclass(frozen=True)
class DiagTest:
    """One test of a diagnostic, with the worst of its results over the devices."""

    category: str
    name: str
    status: str  # PASS, SKIP, NOT_RUN, WARN, FAIL, or DCGM's own other word
    passed_devices: int  # how many of its results are a pass
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Diagnostic:
    """What a diagnostic found."""

    version: str | None  # of DCGM
    driver: str | None
    tests: tuple[DiagTest, ...]  # never ()

    @property
    def passed(self) -> bool:
        """Return whether every test passed; a skipped one has not."""
        return all(test.status == PASS for test in self.tests)

    def of_status(self, *statuses: str) -> tuple[DiagTest, ...]:
        """Return the tests of these statuses."""
        return tuple(test for test in self.tests if test.status in statuses)


@dataclass(frozen=True)
class Health:
    """What DCGM's background health watches say."""

    overall: str  # Healthy, Warning, Failure
    incidents: tuple[str, ...]  # "GPU 0: PCIe system: Warning"


@dataclass(frozen=True)
class GpuDirect:
    """What GPUDirect Storage can do on a host, as `gdscheck -p` says. That the platform is verified proves no path."""

    release: str | None
    nvidia_fs: str | None
    paths: Mapping[str, bool | None]  # by storage, as "NVMeOF": whether data goes straight to the GPU; None: not told
    compat_mode: bool | None  # falls back to a copy through the host's memory, and says nothing
    platform_verified: bool | None


def dcgm_diag(output: Output) -> Diagnostic:
    """Return what `dcgmi diag -r N -j` found: of 2 and 3, of 4, and several iterations of it as one.

    Raises ReaderError: no test in it, another form, a run that DCGM itself gave up.
    """
    found = document(output)
    rounds = found.get("iterations") if isinstance(found, dict) else None
    parts = rounds if isinstance(rounds, list) and rounds else [found]
    tests: list[DiagTest] = []
    version = driver = None
    for part in parts:
        root = _root(part, output)
        metadata = part.get("metadata")
        told = metadata if isinstance(metadata, dict) else root
        version, driver = word(told.get("version")), word(told.get("Driver Version Detected"))
        before = len(tests)
        for category in _items(root, "test_categories", output):
            for item in _items(category, "tests", output):
                tests.append(_test(word(category.get("category")) or "", item, output))
        if len(tests) == before:
            raise ReaderError(f"{output.command}: holds no test")
    if isinstance(found, dict) and rounds is not None and found.get("Overall Result") != PASS:
        tests.append(DiagTest("", "iterations", FAIL, 0, (word(found.get("Warning")) or "the run was given up",)))
    return Diagnostic(version, driver, tuple(tests))


def dcgm_health(output: Output) -> Health:
    """Return what `dcgmi health -c -j` says. Raises ReaderError: no overall health, as where no watch is enabled."""
    found = document(output)
    body = _part(found, "body")
    overall = word(_part(body, "Overall Health").get("value"))
    if overall is None:
        raise ReaderError(f"{output.command}: tells no overall health: enable the watches with `dcgmi health -s a`")
    incidents = []
    for group, entities in body.items():
        for entity, entry in _part(entities, "children").items():
            systems = _part(_part(_part(entry, "children"), "Errors"), "children")
            for system, said in systems.items() or (("", entry),):
                incidents.append(f"{group} {entity}: {system}: {word(_part({'': said}, '').get('value'))}")
    return Health(overall, tuple(incidents))


def dcgm_discovery(output: Output) -> tuple[Accelerator, ...]:
    """Return the GPUs that `dcgmi discovery -l` lists. Raises ReaderError: none, or not as many as it says."""
    found = answer(output)
    said = re.search(r"^(\d{1,4}) GPUs? found", found, re.MULTILINE)
    read: list[dict[str, str]] = []
    for line in found.splitlines():
        if re.match(r"\d+ (?!GPU)\S+ found", line):
            break
        match = re.match(r"\|\s*(\d{1,4})?\s*\|\s*(\w[\w ]*?)\s*: (.*?)\s*\|\s*$", line)
        if match and match[1]:
            read.append({"index": match[1]})
        if match and read:
            read[-1].setdefault(match[2], match[3].removesuffix("(last known)").strip())
    if said is None or int(said[1]) != len(read) or not read:
        told = f"{said[1]} are said to be there" if said else f"it prints {shown(found)}"
        raise ReaderError(f"{output.command}: lists {len(read)} GPUs, {told}")
    return tuple(
        Accelerator(
            vendor="NVIDIA",
            index=int(gpu["index"]),
            name=word(gpu.get("Name")),
            bus_id=bus_id(gpu.get("PCI Bus ID")),
            uuid=word(gpu.get("Device UUID")),
        )
        for gpu in read
    )


def gds(output: Output) -> GpuDirect:
    """Return what `gdscheck -p` says of each storage.

    1.x says Supported or Unsupported; from 1.16 on it lists the ways, and "compat" alone is none of GPUDirect.
    Raises ReaderError: no word on NVMe-oF, as in an output that only verifies the platform.
    """
    found = answer(output).replace("\r", "")
    section = re.search(r"DRIVER CONFIGURATION:[ \t]*\n[ \t]*=+[ \t]*\n(.*?)(?:\n[ \t]*=+|\Z)", found, re.DOTALL)
    paths: dict[str, bool | None] = {}
    for line in section[1].splitlines() if section else ():
        name, colon, value = line.partition(":")
        if colon and not name.strip().startswith("--"):
            paths.setdefault(name.strip(), _direct(value))
    if "NVMeOF" not in paths:
        raise ReaderError(f"{output.command}: says nothing of NVMeOF, but {shown(found)}")
    release = re.search(r"GDS release version:\s*([\w.+-]+)", found)
    module = re.search(r"nvidia_fs version:\s*([\w.+-]+)", found)
    compat = re.search(r"properties\.use_compat_mode\s*:\s*(true|false)\b", found)
    verified = re.search(r"Platform verification (succeeded|failed)", found)
    return GpuDirect(
        release=release[1] if release else None,
        nvidia_fs=module[1] if module else None,
        paths=paths,
        compat_mode=compat[1] == "true" if compat else None,
        platform_verified=verified[1] == "succeeded" if verified else None,
    )


def _root(part: object, output: Output) -> Mapping[str, Any]:
    """Return the object that holds the categories. Raises ReaderError: another form, an error in its place."""
    for key in ("DCGM Diagnostic", "DCGM GPU Diagnostic"):
        root = part.get(key) if isinstance(part, dict) else None
        if isinstance(root, dict):
            if (said := root.get("runtime_error")) is not None:
                raise ReaderError(f"{output.command}: did not run: {shown(word(said) or 'a runtime error')}")
            return root
    raise ReaderError(f"{output.command}: is no result of DCGM's diagnostic, but {shown(text(output))}")


def _items(holder: Mapping[str, Any], key: str, output: Output) -> list[dict[str, Any]]:
    found = holder.get(key)
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise ReaderError(f"{output.command}: has no list of {key}")
    return found


def _test(category: str, item: Mapping[str, Any], output: Output) -> DiagTest:
    name = word(item.get("name"))
    if name is None:
        raise ReaderError(f"{output.command}: a test of {category or 'no category'} has no name")
    results = list(_items(item, "results", output)) if "results" in item else []
    summary = item.get("test_summary")
    said = [*results, summary] if isinstance(summary, dict) else results
    statuses = [_status(one.get("status")) for one in said] or [NOT_RUN]
    notes = tuple(dict.fromkeys(note for one in said for key in ("warnings", "info") for note in _notes(one.get(key))))
    return DiagTest(
        category=category,
        name=name,
        status=max(statuses, key=lambda status: _RANK.get(status, 2.5)),
        passed_devices=sum(_status(one.get("status")) == PASS for one in results),
        notes=notes,
    )


def _status(found: object) -> str:
    told = word(found) or NOT_RUN
    words = {status.replace(" ", "").lower(): status for status in _RANK} | {"skipped": SKIP, "passed": PASS}
    return words.get(told.replace(" ", "").lower(), told)


def _notes(found: object) -> list[str]:
    """Return texts: a string, a list of them, or objects with the text in `warning`."""
    items = found if isinstance(found, list) else [found]
    texts = [word(item.get("warning")) if isinstance(item, dict) else word(item) for item in items]
    return [told for told in texts if told is not None]


def _part(found: object, key: str) -> Mapping[str, Any]:
    value = found.get(key) if isinstance(found, dict) else None
    return value if isinstance(value, dict) else {}


def _direct(found: str) -> bool | None:
    told = {word.strip().lower() for word in found.split(",")}
    if told == {"supported"} or told & {"nvfs", "p2pdma", "c2c"}:
        return True
    return False if told == {"unsupported"} or (told <= _NOT_GPUDIRECT and told != {""}) else None
