"""What a host runs: kernel, distribution, processor, memory, modules, packages, and the version that any tool prints.

They read English: LC_ALL=C. What is not told is None, which no manifest equals.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import Any

from gates.readers.error import ReaderError, answer, document_of, integer, objects, shown, word
from workloads.bundle import Output

KIB = 1024

_VERSION = re.compile(r"(?<![\w.])[vV]?(\d+(?:\.\d+)+[0-9A-Za-z]*(?:[-+~._][0-9A-Za-z]+)*)")
_LINES_MOST, _LINE_MOST = 2000, 1000  # lines, and characters of one, in which a version is looked for
_MACHINES = ("x86_64", "aarch64", "ppc64le", "riscv64", "loongarch64", "s390x")
# Words of a line, and the key that stands for it; the version follows.
_NAMED: tuple[tuple[str, str], ...] = (
    ("NVIDIA-SMI", r"NVIDIA-SMI\s+(?:version\s*:\s*)?"),
    ("driver", r"(?:Driver Version|DRIVER version|KMD Version)\s*:\s*"),
    ("CUDA", r"CUDA (?:UMD )?[Vv]ersion\s*:\s*"),
    ("NVRM", r"NVRM version:.*?Kernel Module(?: for \S+)?\s+"),
    ("amd-smi", r"AMDSMI Tool:\s*"),
    ("amdsmi", r"AMDSMI Library version:\s*"),
    ("ROCm", r"ROCm version:\s*"),
    ("amdgpu", r"amdgpu version:\s*"),
    ("nvcc", r"Cuda compilation tools, release [\d.]+, V"),
    ("npu-smi", r"npu-smi v?(?=\d)"),
    ("npu-driver", r"\|.*npu-smi.*Version:\s*"),
    ("libnvme", r"libnvme version "),
    ("nvme-cli", r"nvme version "),
)


@dataclass(frozen=True)
class Kernel:
    """`uname -a`."""

    release: str
    build: str | None  # what distributors call its version
    machine: str | None
    host: str | None = None  # its name


@dataclass(frozen=True)
class Distribution:
    """/etc/os-release."""

    id: str
    version_id: str | None  # rolling distributions have none
    name: str | None


@dataclass(frozen=True)
class Processor:
    """`lscpu`."""

    architecture: str | None
    model: str | None
    cpus: int | None
    sockets: int | None
    cores_per_socket: int | None
    threads_per_core: int | None
    numa_nodes: int | None
    flags: frozenset[str] | None  # avx512f, amx_tile, ...; None: not told


@dataclass(frozen=True)
class Memory:
    """/proc/meminfo."""

    total_bytes: int
    available_bytes: int | None
    hugepages: int | None
    hugepage_bytes: int | None


@dataclass(frozen=True)
class ModuleInfo:
    """`modinfo`."""

    name: str | None
    version: str | None  # None: an in-tree module without its own
    kernel: str | None  # the release it was built for
    srcversion: str | None


def kernel(output: Output) -> Kernel:
    """Return what `uname -a` or `uname -r` tells. Raises ReaderError."""
    words = answer(output).split()
    if len(words) == 1 and len(words[0]) <= _LINE_MOST and _VERSION.fullmatch(words[0]):
        return Kernel(words[0], None, None)
    if len(words) < 4 or words[0] != "Linux":
        raise ReaderError(f"{output.command}: names no kernel, but {shown(answer(output))}")
    machine = next((one for one in reversed(words) if one in _MACHINES), None)
    rest = words[3:]
    while rest and rest[-1] in (*_MACHINES, "GNU/Linux", "Linux", "unknown"):
        rest.pop()
    return Kernel(words[2], " ".join(rest) or None, machine, words[1])


def distribution(output: Output) -> Distribution:
    """Return what /etc/os-release tells. Raises ReaderError: no ID in it."""
    told: dict[str, str] = {}
    for line in answer(output).splitlines():
        key, equals, value = line.partition("=")
        if equals and re.fullmatch(r"[A-Z_]+", key.strip()):
            told[key.strip()] = _unquoted(value)
    name = word(told.get("ID"))
    if name is None:
        raise ReaderError(f"{output.command}: has no ID, but {shown(answer(output))}")
    return Distribution(name, word(told.get("VERSION_ID")), word(told.get("PRETTY_NAME")))


def processor(output: Output) -> Processor:
    """Return what `lscpu` tells, as text or with -J. Raises ReaderError: not its fields, or not in English."""
    found = answer(output)
    told: dict[str, str] = {}
    if found.lstrip()[:1] == "{":
        document = document_of(found, output)
        _fields(document.get("lscpu") if isinstance(document, dict) else None, told, output)
    else:
        for line in found.splitlines():
            key, colon, value = line.partition(":")
            if colon:
                told.setdefault(key.strip(), value.strip())
    if integer(told.get("CPU(s)")) is None:
        raise ReaderError(f"{output.command}: tells no CPU(s) in English (LC_ALL=C), but {shown(found)}")
    return Processor(
        architecture=word(told.get("Architecture")),
        model=word(told.get("Model name")),
        cpus=integer(told.get("CPU(s)")),
        sockets=integer(told.get("Socket(s)")),
        cores_per_socket=integer(told.get("Core(s) per socket")),
        threads_per_core=integer(told.get("Thread(s) per core")),
        numa_nodes=integer(told.get("NUMA node(s)")),
        flags=frozenset(told["Flags"].split()) if told.get("Flags") else None,
    )


def memory(output: Output) -> Memory:
    """Return what /proc/meminfo tells. Raises ReaderError: no MemTotal."""
    told: dict[str, tuple[int, str]] = {}
    for line in answer(output).splitlines(keepends=True):
        if match := re.match(r"(\w+(?:\(\w+\))?):\s+(\d{1,18})(?: (kB))?\s", line):
            told.setdefault(match[1], (int(match[2]), match[3] or ""))

    def kilobytes(name: str) -> int | None:
        value, unit = told.get(name, (0, ""))
        return value * KIB if unit else None

    total = kilobytes("MemTotal")
    if not total:
        raise ReaderError(f"{output.command}: has no MemTotal, but {shown(answer(output))}")
    pages = told.get("HugePages_Total")
    return Memory(total, kilobytes("MemAvailable"), pages[0] if pages else None, kilobytes("Hugepagesize"))


def packages(output: Output) -> dict[str, str | None]:
    """Return what `pip list` (columns, freeze, json) or `pip freeze` tells: version by name, lower case with '-'.

    None: installed from a path or a repository, so pip tells no version. Raises ReaderError: no package.
    """
    found = answer(output)
    read: dict[str, str | None] = {}
    if found.lstrip()[:1] == "[":
        for item in objects(document_of(found, output), output):
            if (name := word(item.get("name"))) is not None:
                read[_normal(name)] = word(item.get("version"))
    else:
        for line in found.splitlines():
            if 0 < len(line) <= _LINE_MOST and (pair := _package(line)) is not None:
                read[_normal(pair[0])] = pair[1]
    if not read:
        raise ReaderError(f"{output.command}: tells no package, but {shown(found)}")
    return read


def module(output: Output) -> ModuleInfo:
    """Return what `modinfo NAME` tells. Raises ReaderError: no module ("not found" ends with status 1)."""
    told: dict[str, str] = {}
    for line in answer(output).splitlines():
        key, colon, value = line.partition(":")
        if colon:
            told.setdefault(key.strip(), value.strip())
    if "filename" not in told:
        raise ReaderError(f"{output.command}: tells of no module, but {shown(answer(output))}")
    built = told.get("vermagic", "").split()
    return ModuleInfo(
        word(told.get("name")), word(told.get("version")), built[0] if built else None, word(told.get("srcversion"))
    )


def modules(output: Output) -> frozenset[str]:
    """Return the modules that `lsmod` or /proc/modules lists. Raises ReaderError: neither."""
    lines = answer(output).splitlines()
    headed = lines[0].split() == ["Module", "Size", "Used", "by"] if lines else False
    names = [words[0] for line in lines[headed:] if len(words := line.split()) >= 3 and words[1].isdecimal()]
    if not headed and not names:
        raise ReaderError(f"{output.command}: lists no module, but {shown(answer(output))}")
    return frozenset(names)


def version(output: Output) -> str:
    """Return the version that a tool or a version file prints, as "3.33" of fio-3.33.

    A line that is nothing but a version goes before the first that merely holds one: tools log before they answer.
    Raises ReaderError: none.
    """
    lines = _short(answer(output))
    for line in lines:
        if match := _VERSION.fullmatch(line):
            return match[1]
    for line in lines:
        if match := _VERSION.search(re.sub(r"(?<=[A-Za-z])[-_](?=\d)", " ", line)):
            return match[1]
    raise ReaderError(f"{output.command}: tells no version, but {shown(answer(output))}")


def versions(output: Output) -> dict[str, str]:
    """Return the versions that one output tells by name: nvidia-smi, amd-smi, npu-smi, nvcc, nvme, and CANN's files.

    Of a file of key=value (CANN's install.info, version.cfg) every key that ends in "version".
    Raises ReaderError: none.
    """
    found = answer(output)
    read: dict[str, str] = {}
    if found.lstrip()[:1] == "[":
        for item in objects(document_of(found, output), output):
            for key, value in item.items():
                if key.endswith("version") and (told := word(value)) is not None:
                    read.setdefault(key, told)
    for line in _short(found):
        for name, before in _NAMED:
            if match := re.search(before + r"[vV]?(\d[\w.+~-]*)", line):
                read.setdefault(name, match[1])
        if match := re.match(r"([A-Za-z_]*[Vv]ersion)[ \t]*=[ \t]*\[?([^\s\[\]]+)", line):
            read.setdefault(match[1].lower(), match[2].strip("\"'"))
    if not read:
        raise ReaderError(f"{output.command}: names no version that is known, but {shown(found)}")
    return read


def _short(found: str) -> list[str]:
    """Return the lines, without blanks around them, that a person could have been meant to read."""
    lines = (line.strip() for line in found.splitlines()[:_LINES_MOST])
    return [line for line in lines if 0 < len(line) <= _LINE_MOST]


def _package(line: str) -> tuple[str, str | None] | None:
    """Return name and version of a line of pip's."""
    if match := re.fullmatch(r"# Editable.*\(([\w.-]+)==([^\s)]+)\)", line.strip()):
        return match[1], match[2]
    if match := re.fullmatch(r"([A-Za-z0-9][\w.-]*)(?:\[[\w,.-]*\])?(?:==(\S+)|\s+@\s+\S+)", line.strip()):
        return match[1], match[2]
    if match := re.match(r"-e .*#egg=([\w.-]+)", line):
        return match[1], None
    match = re.fullmatch(r"([A-Za-z0-9][\w.-]*)\s+(\d\S*)(?:\s+/\S.*)?\s*", line)
    return (match[1], match[2]) if match else None


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _unquoted(value: str) -> str:
    try:
        return " ".join(shlex.split(value))
    except ValueError:
        return value.strip()


def _fields(found: Any, told: dict[str, str], output: Output) -> None:
    """Take lscpu's fields, which newer versions nest."""
    pending = list(reversed(objects(found, output)))
    while pending:
        item = pending.pop()
        field, data = word(item.get("field")), word(item.get("data"))
        if field is not None and data is not None:
            told.setdefault(field.rstrip(":"), data)
        children = item.get("children")
        if children is not None:
            pending.extend(reversed(objects(children, output)))
