"""The kernel's log: what it says of drives, fabrics, RDMA, PCIe and file systems in trouble, and what is over since.

Forms: `dmesg` with any time format, `-x`, `-r`, `-J`; /dev/kmsg; `journalctl -k`, plain or `-o json`. A line that is
not known as trouble is none, so nearly all lines must have the form that the command asks for: what has another one is
no log, and says nothing of trouble. Messages: the kernel's drivers/nvme/{host,target}, mlx5_core, drivers/pci/pcie,
fs/ext4, fs/xfs, fs/btrfs, drivers/md, 5.4 to 6.17.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from gates.readers.error import ReaderError, answer, documents_of, integer, shown, whole_lines
from workloads.bundle import Output

BOOT_LINES = 20  # among which a log that begins with the boot tells the kernel's version
LINE_MAX = 1_000  # characters of a line that are looked at: the kernel's own limit for one record

_PCI = r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"
_NVME = r"\bnvme (?P<subject>nvme\d+): "
_BLOCK = r"(?P<subject>(?:nvme|sd|dm-|md|vd)[\w-]*)"
_MLX5 = rf"\bmlx5_core (?P<subject>{_PCI})"

# What precedes a message: a /dev/kmsg record, `dmesg -x` or `-r`, times in brackets or ISO 8601, a caller, a host.
_KMSG = re.compile(r"(\d+),\d+,\d+,[^;]{0,80};")
_DECODED = re.compile(r"([a-z]+[0-9]*) *:(?:emerg|alert|crit|err|warn|notice|info|debug) *: ")
_RAW = re.compile(r"<(\d+)>")
FORM_SHARE_MIN = 0.9  # of the lines that do not begin with a blank, which continue one before
_SECONDS, _ISO = r"\[ *\d+\.\d+\] ", r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d) "
# By what dmesg's --time-format takes.
_TIMES = {
    "iso": _ISO,
    "ctime": r"\[\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4}\] ",
    "reltime": r"\[(?:\w{3} ?\d\d? \d\d:\d\d| *[+<]? *\d+\.\d+>?)\] ",
    "delta": r"\[(?: *\d+\.\d+ )?< *\d+\.\d+>\] ",
    "raw": _SECONDS,
    "notime": "",
}
_TIME_OPTIONS = {"T": "ctime", "e": "reltime", "H": "reltime", "d": "delta", "t": "notime"}
_TIME_OPTIONS |= {
    "--ctime": "ctime",
    "--reltime": "reltime",
    "--human": "reltime",
    "--show-delta": "delta",
    "--notime": "notime",
}
# A journal, or syslog's file: time, host, who wrote it. And what stands between the entries of a journal.
_JOURNAL = (
    rf"(?:\w{{3}} [ \d]\d \d\d:\d\d:\d\d(?:\.\d+)? |{_ISO}|{_SECONDS}|\w{{3}} \d{{4}}-\d\d-\d\d [\d:.]+ \S+ )"
    r"\S+ \S+: |-- "
)

# In this order; the first that fits a line names its kind.
_TROUBLES = tuple(
    (kind, re.compile(pattern))
    for kind, pattern in (
        # block devices above NVMe paths
        ("path-lost", r"\bblock (?P<subject>nvme\d+n\d+): no usable path - requeuing I/O"),
        ("io-failed", r"\bblock (?P<subject>nvme\d+n\d+): no available path - failing I/O"),
        # NVMe controllers
        ("controller-down", _NVME + r"(?:controller is down; will reset|.*\bfatal\b)"),
        ("timeout", _NVME + r"(?:I/O (?:tag )?\d+ .*\bQID \d+ timeout|queue \d+: timeout request|ANATT timeout)"),
        (
            "reset-failed",
            _NVME
            + r"(?:Disabling device after reset failure: |Removing after probe failure|"
            + r"Device (?:not ready|shutdown incomplete); abort|reset failed)",
        ),
        ("keep-alive", _NVME + r"(?:failed nvme_keep_alive_end_io|.*\bkeep-alive.*\b(?:expired|fail))"),
        ("keep-alive", r"\b(?P<subject>nvmet: ctrl \d+) keep-alive timer \(\d+ seconds\) expired"),
        ("target-error", r"\b(?P<subject>nvmet: ctrl \d+) fatal error occurred"),
        (
            "recovery",
            _NVME
            + r"(?:starting error recovery|resetting controller due to|"
            + r"NVME-FC\{\d+\}: (?:controller connectivity lost|transport association (?:error|event)|io failed))",
        ),
        (
            "reconnect",
            _NVME + r"(?:(?:NVME-FC\{\d+\}: )?Reconnect(?:ing| attempt) in \d+ seconds|Failed reconnect attempt \d+)",
        ),
        ("removed", _NVME + r"Removing controller(?: \(-?\d+\))?\.\.\."),
        (
            "connect",
            _NVME
            + r"(?:Connect rejected|[Cc]onnect (?:command failed|Invalid)|failed to connect (?:socket|queue)|"
            + r"rdma connection establishment failed|(?:address|route) resol\w+ error|rdma_resolve_addr failed)",
        ),
        (
            "transport",
            _NVME
            + r"(?:(?:RECV|SEND|MEMREG|LOCAL_INV|\w+) for CQE 0x[0-9a-f]+ failed with status|"
            + r"queue \d+: .*(?:error|failed)|receive failed|.*data digest (?:error|mismatch)|.*genctr mismatch)",
        ),
        ("critical", _NVME + r".*\bcritical\b"),
        ("namespace", _NVME + r"(?:identifiers changed for nsid|(?:globally )?duplicate IDs |failed to get ANA log)"),
        # block layer
        ("io-error", rf"\b{_BLOCK}: .{{1,40}}@ LBA \d+, .*\(sct 0x[0-9a-f]+ / sc 0x[0-9a-f]+\)"),
        ("io-error", rf"\b(?:I/O|critical (?:medium|target|nexus|space allocation)) error, dev {_BLOCK}, sector \d+"),
        ("io-error", r"\bBuffer I/O error on dev (?:ice )?(?P<subject>[\w-]+), logical block \d+"),
        ("io-error", r"\battempt to access beyond end of device"),
        ("hung-task", r"\bINFO: task (?P<subject>\S+) blocked for more than \d+ seconds"),
        # file systems
        ("fs-read-only", r"(?:\((?:device )?(?P<subject>[^)]+)\): )?Remounting filesystem read-only"),
        ("fs-error", r"(?:\((?:device )?(?P<subject>[^)]+)\): )?I/O error while writing superblock"),
        ("fs-error", r"\bEXT[234]-fs (?:error|critical)\b(?: \(device (?P<subject>[^)]+)\))?"),
        ("fs-error", r"\bEXT[234]-fs warning \(device (?P<subject>[^)]+)\): ext4_end_bio:.*I/O error"),
        ("fs-error", r"\bAborting journal on device (?P<subject>[\w-]+)"),
        ("fs-error", r"\bThis should not happen!! *Data will be lost"),
        (
            "fs-error",
            r"\bXFS \((?P<subject>[^)]+)\): .*(?:metadata I/O error|log I/O error|[Cc]orruption|Internal error|"
            r"[Ss]hutting down filesystem|[Ff]ilesystem has been shut down|writeback error)",
        ),
        ("fs-error", r"\bBTRFS:? (?:error|critical)\b(?: \(device (?P<subject>[^):]+)[^)]*\))?"),
        # RAID
        (
            "raid",
            r"\bmd/raid\d*:?(?P<subject>md\w+)?: Disk failure on (?P<also>[\w-]+)(?: detected)?, "
            r"(?:failing array|disabling device)",
        ),
        # RDMA and network cards
        ("rdma-error", r"\binfiniband (?P<subject>\S+): .*(?:WC error|error cqe|handle_error_cqe)"),
        ("module", _MLX5 + r".*Port module event\[(?:error|warning)\]: module \d+, Cable error, (?!Low Signal)"),
        ("module", r"Port module event.*High Temperature"),
        ("module", _MLX5 + r".*High temperature on sensors"),
        ("slot-power", rf"\bmlx5_core(?: (?P<subject>{_PCI}))?: .*insufficient power on the PCIe slot \(\d+W\)"),
        ("access-reg", rf"(?:\bmlx5_core (?P<subject>{_PCI}): )?mlx5_cmd_out_err:?.* ACCESS_REG.* failed"),
        (
            "nic-health",
            _MLX5
            + r".*(?:health compromised|[Ff]atal error|print_health_info|handling bad device|health recovery failed|"
            + r"assert_var|[Ff]irmware.*(?:timeout|fail|error|aborting)|wait_func:.*timeout|cmd_work_handler:.*fail)",
        ),
        ("peer-memory", r"\b(?P<subject>nvidia-peermem) .*ERROR detected invalid context"),
        ("tx-timeout", r"\bNETDEV WATCHDOG: (?:CPU: \d+: )?(?P<subject>\S+?):? .*transmit queue"),
        ("tx-timeout", _MLX5 + r"(?: \S+)?: .*TX timeout"),
        ("link-down", r"\b(?P<subject>[\w.@-]+): (?:NIC )?[Ll]ink is [Dd]own"),
        ("link-down", rf"\b\w+ {_PCI} (?P<subject>[\w.@-]+): Link down"),
        ("link-down", r"\binfiniband (?P<subject>\w+): set down"),
        ("link-down", r"\(slave (?P<subject>[\w.@-]+)\): link status (?:definitely )?down"),
        # PCIe
        (
            "aer-uncorrected",
            r"AER: (?:Multiple )?Uncorrect\w+ (?:\([\w-]+\) )?error (?:message )?received:? (?:from )?"
            rf"(?P<subject>{_PCI})",
        ),
        (
            "aer-corrected",
            rf"AER: (?:Multiple )?Correct\w+ error (?:message )?received:? (?:from )?(?P<subject>{_PCI})",
        ),
        ("aer-uncorrected", rf"(?P<subject>{_PCI}): (?:AER: )?PCIe Bus Error: severity=(?:Uncorrect|Fatal|Non-Fatal)"),
        ("aer-corrected", rf"(?P<subject>{_PCI}): (?:AER: )?PCIe Bus Error: severity=Correct"),
        ("aer-uncorrected", rf"(?P<subject>{_PCI}): (?:AER: [Dd]evice recovery failed|DPC: containment event)"),
        ("pcie-link", rf"pcieport (?P<subject>{_PCI}): pciehp: Slot\(\S+\): (?:Link Down|Card not present)"),
        ("pcie-bandwidth", rf"(?P<subject>{_PCI})(?: \S+)?: .*available PCIe bandwidth, limited by"),
    )
)
_RECOVERIES = tuple(
    re.compile(pattern)
    for pattern in (
        _NVME + r"(?:Successfully reconnected|NVME-FC\{\d+\}: controller connect complete)",
        _NVME + r"\d+/\d+/\d+ default/read/poll queues",  # a reset of a PCIe controller that succeeded
        r"\b(?P<subject>[\w.@-]+): (?:NIC )?[Ll]ink is [Uu]p",
        rf"\b\w+ {_PCI} (?P<subject>[\w.@-]+): Link up",
        r"\(slave (?P<subject>[\w.@-]+)\): link status (?:definitely )?up",
        r"\bADDRCONF\(NETDEV_CHANGE\): (?P<subject>[\w.@-]+): link becomes ready",
        r"\binfiniband (?P<subject>\w+): set active",
        rf"(?P<subject>{_PCI}): AER: [Dd]evice recovery successful",
        rf"pcieport (?P<subject>{_PCI}): pciehp: Slot\(\S+\): Link Up",
        _MLX5 + r".*health recovery succe",
    )
)
_NEW = re.compile(_NVME + r'new ctrl: (?:NQN )?"(?P<nqn>[^"]*)", addr (?P<addr>[^\s,]+)')
_PCI_OF = re.compile(_NVME + rf"pci function (?P<pci>{_PCI})")

# A connection that fails is trouble of a path that was there. One that never was is missed elsewhere, or is somebody's
# try of an address.
_ONLY_OF_TROUBLED = "connect"
# What ends without a word of its own, as soon as every controller that was in trouble is back.
_ENDS_WITH_CONTROLLERS = ("path-lost", "io-failed")
_OF_CONTROLLERS = ("recovery", "reconnect", "removed", "keep-alive", "controller-down", "reset-failed", "connect")
_IS_PCI = re.compile(_PCI)
_NOT_KERNEL = ""


@dataclass(frozen=True)
class Trouble:
    """One message of trouble."""

    kind: str
    # As nvme3, nvme3n1, fab0, mlx5_0, 0000:5c:00.0; None: the message names none.
    subject: str | None
    line: str  # as printed
    # Other names of the subject: PCI addresses in the line, and what the log says elsewhere of the controller: its PCI
    # address, or its subsystem's NQN and the target's address. A controller's name may belong to another one later.
    names: tuple[str, ...] = ()
    over: bool = False  # whether the log itself tells later that this subject is well again


@dataclass(frozen=True)
class KernelLog:
    """The troubles in a log, in its order, and how many messages it has."""

    troubles: tuple[Trouble, ...]
    messages: int
    from_boot: bool = False  # whether it begins with the boot: else it may have lost its beginning, or was cleared


def kernel_log(output: Output) -> KernelLog:
    """Return the troubles in a kernel log. Raises ReaderError: empty, of another form, or it may not be read."""
    lines = list(_messages(output))
    if not lines:
        raise ReaderError(f"{output.command}: holds no message")
    found: list[tuple[int, Trouble]] = []
    recovered: list[tuple[int, str]] = []
    known: dict[str, tuple[str, ...]] = {}
    ways: dict[tuple[str, ...], str] = {}  # to a subsystem, and the controller that had each last
    for at, line in enumerate(lines):
        if trouble := _trouble(line, known):
            found.append((at, trouble))
        elif match := _first(_RECOVERIES, line):
            recovered.append((at, match["subject"]))
        elif match := _NEW.search(line):
            way = (match["nqn"], match["addr"])
            recovered += [(at, name) for name in {match["subject"], ways.get(way, match["subject"])}]
            known[match["subject"]], ways[way] = way, match["subject"]
        elif match := _PCI_OF.search(line):
            known[match["subject"]] = (match["pci"],)
    lost = {
        trouble.subject for _, trouble in found if trouble.kind in _OF_CONTROLLERS and trouble.kind != _ONLY_OF_TROUBLED
    }
    kept = [(at, each) for at, each in found if each.kind != _ONLY_OF_TROUBLED or each.subject in lost]
    from_boot = any("Linux version " in line for line in lines[:BOOT_LINES])
    return KernelLog(tuple(_ended(kept, recovered)), len(lines), from_boot)


def _ended(found: list[tuple[int, Trouble]], recovered: list[tuple[int, str]]) -> Iterator[Trouble]:
    """Yield the troubles with what is over marked as such."""
    last = {name: at for at, name in recovered}
    controllers = {each.subject: at for at, each in found if each.kind in _OF_CONTROLLERS}
    all_back_at = (
        max((last.get(name or "", -1) for name in controllers), default=-1)
        if all(last.get(name or "", -1) > at for name, at in controllers.items())
        else -1
    )
    for at, each in found:
        over = last.get(each.subject or "", -1) > at
        if each.kind in _ENDS_WITH_CONTROLLERS:
            over = all_back_at > at
        yield Trouble(each.kind, each.subject, each.line, each.names, over)


def _trouble(line: str, known: dict[str, tuple[str, ...]]) -> Trouble | None:
    for kind, pattern in _TROUBLES:
        if match := pattern.search(line):
            subject = match.groupdict().get("subject")
            also = match.groupdict().get("also")
            names = (*_IS_PCI.findall(line), *known.get(subject or "", ()), *((also,) if also else ()))
            return Trouble(kind, subject, line, tuple(dict.fromkeys(name for name in names if name != subject)))
    return None


def _first(patterns: tuple[re.Pattern[str], ...], line: str) -> re.Match[str] | None:
    return next((match for pattern in patterns if (match := pattern.search(line))), None)


def _messages(output: Output) -> Iterator[str]:
    """Yield the lines of the kernel itself, and an empty one for each that a program wrote into its log."""
    printed = answer(output)
    if printed.lstrip().startswith("{"):
        yield from _of_json(printed, output)
        return
    lines = whole_lines(printed, output)
    _must_be_a_log(lines, output)
    for line in lines:
        if re.match(r"(?:dmesg|journalctl|cat): ", line):  # the tool's own error, where both streams went into one
            raise ReaderError(f"{output.command}: {shown(line)}")
        # A line that begins with a blank continues a record of /dev/kmsg: " SUBSYSTEM=pci". Some logs indent all.
        if line.strip() and not re.match(r" [A-Z_]+=", line):
            yield line.strip()[:LINE_MAX] if _facility(line) in (None, "kern") else _NOT_KERNEL


def _must_be_a_log(lines: list[str], output: Output) -> None:
    """Raise ReaderError where not nearly all lines have the form that the command asks for."""
    form = _form(output.argv)
    whole = [line for line in lines if line and not line[0].isspace()]
    others = [line for line in whole if not form.match(line[:LINE_MAX])]
    if form.pattern and (not whole or len(others) > (1 - FORM_SHARE_MIN) * len(whole)):
        told = shown(next(iter(others or [line for line in lines if line.strip()]), ""))
        raise ReaderError(f"{output.command}: {len(others)} of {len(whole)} lines are no messages of a kernel: {told}")


def _form(argv: tuple[str, ...]) -> re.Pattern[str]:
    """Return what the lines of a log must begin with: what dmesg's options ask for, else any form with a time."""
    at = next((number for number, word in enumerate(argv) if word.rsplit("/", 1)[-1] == "dmesg"), len(argv))
    before, time, asked = "", "", ""
    for word in argv[at + 1 :]:
        letters = tuple(word[1:]) if re.fullmatch(r"-[A-Za-z]+", word) else ()
        if word == "--decode" or "x" in letters:
            before = _DECODED.pattern
        if word == "--raw" or "r" in letters:
            before = _RAW.pattern
        named = word.removeprefix("--time-format=") if asked != "--time-format" else word
        time = next((_TIME_OPTIONS[each] for each in (word, *letters) if each in _TIME_OPTIONS), time)
        time, asked = named if named in _TIMES else time, word
    if time == "notime":
        return re.compile(before)
    if time:
        return re.compile(before + _TIMES[time])
    known = "|".join(each for each in _TIMES.values() if each)
    optional = f"(?:{_RAW.pattern}|{_DECODED.pattern})?"
    return re.compile(rf"(?:{before or optional}(?:{known})|{_KMSG.pattern}|{_JOURNAL})")


def _facility(line: str) -> str | None:
    """Return who wrote a line, where its prefix says so: the number of a record holds facility times 8 plus level."""
    if found := _KMSG.match(line) or _RAW.match(line):
        return "kern" if len(found[1]) < 4 and int(found[1]) < 8 else "other"
    decoded = _DECODED.match(line)
    return decoded[1] if decoded else None


def _of_json(printed: str, output: Output) -> Iterator[str]:
    """Yield the messages of `dmesg -J`, one document, or of `journalctl -o json`, a document a line."""
    for found in documents_of(printed, output):
        rows = found.get("dmesg", [found]) if isinstance(found, dict) else None
        if not isinstance(rows, list):
            raise ReaderError(f"{output.command}: its JSON is no kernel log: {shown(str(found))}")
        for row in rows:
            message = row.get("msg", row.get("MESSAGE")) if isinstance(row, dict) else None
            if isinstance(message, list):  # journald's form of what is no UTF-8
                message = bytes(each for each in message if isinstance(each, int) and 0 <= each < 256).decode(
                    "utf-8", "replace"
                )
            if not isinstance(message, str):
                raise ReaderError(f"{output.command}: its JSON holds no message: {shown(str(row))}")
            level, facility = integer(row.get("pri")), row.get("fac", row.get("SYSLOG_FACILITY", "0"))
            if (level is None or level < 8) and facility in ("kern", "0", 0) and message.strip():
                yield message.strip()[:LINE_MAX]
            else:
                yield _NOT_KERNEL
