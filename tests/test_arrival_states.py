"""Other states of the real lab, by edits of its healthy capture that all its tools agree on; and such that disagree.

Each must fail where its fault is, lack data where that lacks, and nowhere else.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from tests.arrival_judging import REAL_SITE, judged
from tests.reader_samples import lab
from workloads.bundle import Bundle, Output

RAW = """
[bom.raw.fx100]
scratch = "/mnt/fx100"
size_bytes = 16_777_216
"""
ORDER = REAL_SITE.replace(
    "optimized_min = 1\n",
    'optimized_min = 1\nio_policy = "numa"\nctrl_loss_tmo_s = 600\nreconnect_delay_s = 2\nscheduler = "none"\n',
    1,
).replace("active_mtu_bytes = 4096\n", 'active_mtu_bytes = 4096\ngid_type = "RoCE v2"\ndriver = "virtio_net"\n')
SITE = ORDER + RAW


class Real:
    """The lab's healthy outputs, to be changed."""

    def __init__(self) -> None:
        self.outputs = list(lab("healthy").outputs)

    def sub(self, old: str, new: str, *commands: str, times: int = 0) -> Real:
        """Replace a pattern in the outputs of commands that begin so, all of them where none is named; it must occur."""
        count = 0
        for number, output in enumerate(self.outputs):
            if commands and not output.command.startswith(commands):
                continue
            text, found = re.subn(old.encode(), new.encode(), output.stdout, count=times, flags=re.DOTALL)
            count += found
            self.outputs[number] = replace(output, stdout=text)
        assert count, old
        return self

    def drop(self, *commands: str) -> Real:
        """Leave out what begins so."""
        kept = [output for output in self.outputs if not output.command.startswith(commands)]
        assert len(kept) < len(self.outputs)
        self.outputs = kept
        return self

    def put(self, command: str, stdout: str, status: int = 0, stderr: str = "") -> Real:
        """Set what a command printed."""
        argv = tuple(command.split())
        at = [number for number, output in enumerate(self.outputs) if output.argv == argv]
        assert at, command
        for number in at:
            old = self.outputs[number]
            self.outputs[number] = replace(old, stdout=stdout.encode(), stderr=stderr.encode(), status=status)
        return self

    def add(self, command: str, stdout: str, status: int = 0) -> Real:
        """Add an output."""
        self.outputs.append(Output(f"more-{len(self.outputs)}", tuple(command.split()), stdout.encode(), b"", status))
        return self

    def json(self, change: Callable[[object], None], *commands: str) -> Real:
        """Change every object in the JSON of these commands."""
        for number, output in enumerate(self.outputs):
            if output.command.startswith(commands) and output.stdout[:1] in (b"[", b"{"):
                document = json.loads(output.stdout)
                _walk(document, change)
                self.outputs[number] = replace(output, stdout=json.dumps(document).encode())
        return self

    def log(self, *lines: str) -> Real:
        """Let the kernel say more."""
        said = "".join(f"kern  :err   : 2026-11-30T05:00:00,000000+00:00 {line}\n" for line in lines)
        return self.sub(r"\Z", said, "dmesg -x", times=1)

    def bundle(self) -> Bundle:
        """Return what was collected."""
        return Bundle(tuple(self.outputs))


def _walk(value: object, change: Callable[[object], None]) -> None:
    change(value)
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _walk(each, change)


def verdicts(bundle: Bundle, site: str = SITE) -> dict[str, str]:
    return {name: found.verdict for name, found in judged(bundle, site).items() if found.verdict != "PASS"}


FX, PATHS = "subsystems.fx100", "subsystems.fx100.paths"
PATH_0, PATH_1 = f"{FX}.path.192.168.50.2-4420", f"{FX}.path.192.168.51.2-4420"
TCP = "subsystems.tcp01.path.192.168.51.2-4421"
F, N = "FAIL", "INVALID"
LIST, SUBSYS = "nvme list", "nvme list-subsys"


def state_of(real: Real, controller: str, state: str) -> Real:
    """Change a controller's state in nvme-cli and in /sys."""
    real.sub(rf'("Name":"{controller}",[^}}]*?"State":")live', rf"\g<1>{state}", SUBSYS)
    return real.sub(rf"({controller}/state: ')live", rf"\g<1>{state}", "walk of")


def link_down(real: Real) -> Real:
    def change(row: object) -> None:
        if isinstance(row, dict) and row.get("ifname") == "fab1" and "flags" in row:
            row.update(flags=["NO-CARRIER", "BROADCAST", "UP"], operstate="DOWN")
        if isinstance(row, dict) and row.get("ifname") == "rxe1" and "state" in row:
            row.update(state="DOWN", physical_state="DISABLED")

    real.json(change, "ip -j", "rdma -j link", "rdma -d -j link")
    real.sub("Speed: 100000Mb/s", "Speed: Unknown!", "ethtool fab1").sub(
        "detected: yes", "detected: no", "ethtool fab1"
    )
    real.sub(r"(hca_id:\trxe1.*?state:\t\t\t)PORT_ACTIVE \(4\)", r"\g<1>PORT_DOWN (1)", "ibv_devinfo")
    state_of(state_of(real, "nvme4", "connecting"), "nvme5", "connecting")
    return real.log(
        "infiniband rxe1: set down", "nvme nvme4: starting error recovery", "nvme nvme5: starting error recovery"
    )


def namespace_gone(real: Real) -> Real:
    real.sub(r'\{[^{}]*"DevicePath":"/dev/nvme3n1"[^{}]*\},?', "", "nvme list -o json")
    real.sub(r'\{[^{}]*"NameSpace":"nvme3n1"[^{}]*\}', "", "nvme list -v -o json").drop("nvme list-subsys /dev/nvme3n1")

    def change(row: object) -> None:
        if isinstance(row, dict) and "blockdevices" in row:
            row["blockdevices"] = [each for each in row["blockdevices"] if each["name"] != "nvme3n1"]

    real.json(change, "lsblk -J").sub(r"[^\n]*(?<=/)nvme3(?:c\dn1|n1)/[^\n]*\n", "", "walk of")
    for command in ("touch /mnt/fx100/.t && rm /mnt/fx100/.t",):
        real.put(command, "", 1, "touch: cannot touch '/mnt/fx100/.t': Input/output error\n")
    return real


def target_gone(real: Real) -> Real:
    namespace_gone(real)

    def change(row: object) -> None:
        for key in ("Subsystems",) if isinstance(row, dict) else ():
            if key in row:  # type: ignore[operator]
                row[key] = [each for each in row[key] if "fx100" not in json.dumps(each)]  # type: ignore[index]

    real.json(change, "nvme list-subsys -o json", "nvme list-subsys -v -o json", "nvme list -v -o json")
    return (
        real.sub(r"[^\n]*nvme-fabrics/ctl/nvme[34][^\n]*\n", "", "walk of")
        .sub(r"[^\n]*(?:nvme-subsys3|class/nvme/nvme[34])[^\n]*\n", "", "walk of")
        .log('nvme nvme3: Removing ctrl: NQN "nqn.2024-01.example.qlab:fx100"')
    )


def smart(device: str, **changes: object) -> Callable[[Real], Real]:
    """Return the change of a drive's log as both tools tell it."""
    names = {"temperature": 273, "percent_used": 0, "media_errors": 0, "avail_spare": 0, "spare_thresh": 0}
    smartctl = {
        "percent_used": "percentage_used",
        "avail_spare": "available_spare",
        "spare_thresh": "available_spare_threshold",
    }

    def edit(real: Real) -> Real:
        def by_nvme(row: object) -> None:
            if isinstance(row, dict) and "temperature" in row:
                row.update({key: value + names[key] for key, value in changes.items()})  # type: ignore[operator]

        def by_smartctl(row: object) -> None:
            log = row.get("nvme_smart_health_information_log") if isinstance(row, dict) else None
            if isinstance(log, dict):
                log.update({smartctl.get(key, key): value for key, value in changes.items()})

        real.json(by_nvme, f"nvme smart-log /dev/{device} ", f"nvme smart-log /dev/{device}n1 -o")
        return real.json(by_smartctl, f"smartctl -j -a /dev/{device}")

    return edit


def sized(real: Real) -> Real:
    """The namespace was made larger."""
    for command in ("nvme list -o json", "nvme list -v -o json"):
        real.sub(r'(/?nvme3n1",.*?"PhysicalSize":)1073741824', r"\g<1>2147483648", command, times=1)
    return real


def renamed(real: Real) -> Real:
    """After it was removed and came back the namespace has another name."""
    return real.sub("nvme3n1", "nvme3n2").sub("nvme3c3n1", "nvme3c3n2").sub("nvme3c4n1", "nvme3c4n2")


def read_only(real: Real) -> Real:
    for old, new, command in (
        (r'("target": "/mnt/fx100",.*?"options": ")rw', r"\g<1>ro", "findmnt -J"),
        (r"(/mnt/fx100 ext4 )rw", r"\g<1>ro", "cat /proc/mounts"),
    ):
        real.sub(old, new, command, times=1)
    refused = "touch: cannot touch '/mnt/fx100/.t': Read-only file system\n"
    real.put("touch /mnt/fx100/.t && rm /mnt/fx100/.t", "", 1, refused)
    return real.log("EXT4-fs (nvme3n1): Remounting filesystem read-only")


def over_tcp(real: Real) -> Real:
    real.sub(r'("Name":"nvme4",\s*"Transport":")rdma', r"\g<1>tcp", SUBSYS)
    real.sub(r'("Controller":"nvme4",.*?"Transport":")rdma', r"\g<1>tcp", "nvme list -v -o json", times=1)
    return real.sub(r"(nvme4/transport: ')rdma", r"\g<1>tcp", "walk of")


def ana(controller: str, state: str) -> Callable[[Real], Real]:
    def edit(real: Real) -> Real:
        real.sub(rf'("Name":"{controller}",[^}}]*?"ANAState":")[\w-]+', rf"\g<1>{state}", SUBSYS)
        number = controller.removeprefix("nvme")
        return real.sub(rf"(nvme3c{number}n1/ana_state: ')[\w-]+", rf"\g<1>{state}", "walk of")

    return edit


STATES: Mapping[str, tuple[Callable[[Real], Real], dict[str, str]]] = {
    "healthy": (lambda real: real, {}),
    "second path down": (
        lambda real: state_of(real, "nvme4", "connecting").log("nvme nvme4: starting error recovery", "nvme nvme4: Reconnecting in 2 seconds..."),
        {PATHS: F, PATH_1: F, f"{FX}.kernel_log": F},
    ),
    "resetting": (
        lambda real: state_of(real, "nvme3", "resetting").log("nvme nvme3: resetting controller"),
        {PATHS: F, PATH_0: F, f"{FX}.optimized": F},
    ),
    "a reset that is over": (
        lambda real: real.log("nvme nvme3: starting error recovery", "nvme nvme3: Successfully reconnected (1 attempts)"),
        {},
    ),
    "link down": (
        link_down,
        {
            PATHS: F, PATH_1: F, f"{FX}.kernel_log": F, "subsystems.tcp01.paths": F, TCP: F, "subsystems.tcp01.kernel_log": F,
            "ports.fab1.link": F, "ports.fab1.speed": N, "ports.fab1.kernel_log": F,
        },
    ),
    "wrong MTU": (
        lambda real: real.sub(r'("ifname":"fab0",.*?"mtu":)9000', r"\g<1>1500", "ip -j", times=1).sub(
            r"(hca_id:\trxe0.*?active_mtu:\t\t)4096 \(5\)", r"\g<1>1024 (3)", "ibv_devinfo"
        ),
        {"ports.fab0.mtu_bytes": F, "ports.fab0.active_mtu_bytes": F},
    ),
    "RoCE v1 alone": (lambda real: real.sub("RoCE v2", "RoCE v1", "ibv_devinfo -v"), {"ports.fab0.gid": F, "ports.fab1.gid": F}),
    "another drive in its place": (
        lambda real: real.sub("QLABLOCAL2", "QLABLOCAL9"),
        {
            "drives.local-2.presence": F,
            **{f"drives.local-2.{key}": N for key in (
                "model", "firmware", "size_bytes", "sector_bytes", "controllers", "critical_warning", "media_errors", "wear",
                "temperature", "spare_margin",
            )},
        },
    ),
    "drives exchanged": (
        lambda real: real.sub("QLABLOCAL2", "QLABLOCALX").sub("QLABLOCAL1", "QLABLOCAL2").sub("QLABLOCALX", "QLABLOCAL1"),
        {
            "drives.local-1.size_bytes": F, "drives.local-1.controllers": F, "drives.local-2.size_bytes": F,
            "drives.local-2.controllers": F, "mounts.local.source": F,
        },
    ),
    "a drive's other firmware": (
        lambda real: real.sub(r'("Firmware":")7\.2\.22("[^{}]*"SerialNumber":"QLABLOCAL2")', r"\g<1>7.2.19\2", "nvme list -o json")
        .sub(r'("SerialNumber":"QLABLOCAL2",[^{}]*"Firmware":")7\.2\.22', r"\g<1>7.2.19", "nvme list -v -o json"),
        {"drives.local-2.firmware": F},
    ),
    "the array's other firmware": (lambda real: real.sub(r"6\.1\.0-57\"", '6.1.0-58"', LIST), {f"{FX}.firmware": F, "subsystems.tcp01.firmware": F}),
    "another product": (lambda real: real.sub("QLAB FX100", "QLAB FX1000"), {f"{FX}.product": F, f"{FX}.model": F}),
    "a model that looks alike": (lambda real: real.sub("QEMU NVMe Ctrl", "QEMU NVMe \u0421trl"), {"drives.local-1.model": F, "drives.local-2.model": F}),
    "a serial in other case": (lambda real: real.sub("FX100SN0001", "fx100sn0001"), {f"{FX}.serial": F}),
    "trailing blanks": (lambda real: real.sub('QLAB FX100"', 'QLAB FX100      "', LIST), {}),
    "mounted read-only": (read_only, {"mounts.fx100.writable": F, "mounts.fx100.options": F, "mounts.fx100.kernel_log": F}),
    "media errors": (smart("nvme2", media_errors=3), {"drives.local-2.media_errors": F}),
    "hot": (smart("nvme2", temperature=81), {"drives.local-2.temperature": F}),
    "worn": (smart("nvme2", percent_used=97), {"drives.local-2.wear": F}),
    "no spare": (smart("nvme2", avail_spare=4, spare_thresh=10), {"drives.local-2.spare_margin": F}),
    "TCP in place of RDMA": (over_tcp, {f"{FX}.transport": F}),
    "namespace resized": (sized, {f"{FX}.size_bytes": F}),
    "namespace renamed": (renamed, {}),
    "namespace removed": (
        namespace_gone,
        {
            f"{FX}.namespaces": F, f"{FX}.size_bytes": N, f"{FX}.sector_bytes": N, f"{FX}.scheduler": N,
            PATH_0: N, PATH_1: N, f"{FX}.optimized": N, "mounts.fx100.writable": F,
        },
    ),
    "ANA inaccessible": (ana("nvme3", "inaccessible"), {PATH_0: F, f"{FX}.optimized": F}),
    "ANA in change": (ana("nvme4", "change"), {PATH_1: F}),
    "ANA exchanged": (lambda real: ana("nvme4", "optimized")(ana("nvme3", "non-optimized")(real)), {PATH_0: F, PATH_1: F}),
    "another I/O policy": (lambda real: real.sub(r"(nvme-subsys3/iopolicy: ')numa", r"\g<1>round-robin", "walk of"), {f"{FX}.io_policy": F}),
    "another timeout": (lambda real: real.sub(r"(ctl/nvme4/ctrl_loss_tmo: ')600", r"\g<1>off", "walk of"), {f"{FX}.ctrl_loss_tmo_s": F}),
    "target gone": (
        target_gone,
        {
            f"{FX}.presence": F, PATHS: F, PATH_0: F, PATH_1: F, f"{FX}.optimized": F, "mounts.fx100.writable": F,
            "mounts.fx100.source": N,
            **{f"{FX}.{key}": N for key in (
                "serial", "model", "firmware", "product", "namespaces", "size_bytes", "sector_bytes", "transport", "io_policy",
                "ctrl_loss_tmo_s", "reconnect_delay_s", "scheduler",
            )},
        },
    ),
    "an I/O error of the array": (
        lambda real: real.log("I/O error, dev nvme3n1, sector 8 op 0x1:(WRITE) flags 0x0"), {f"{FX}.kernel_log": F},
    ),
    "a file system mounted over it": (
        lambda real: real.sub(r'("target": "/mnt/fx100",\s*"source": ")/dev/nvme3n1', r"\g<1>/dev/vda", "findmnt -J"),
        {"mounts.fx100.source": F},
    ),
    "not mounted": (
        lambda real: real.sub('"target": "/mnt/fx100"', '"target": "/mnt/elsewhere"', "findmnt -J").sub(
            "/mnt/fx100", "/mnt/elsewhere", "df ", "cat /proc/mounts"
        ),
        {
            "mounts.fx100.mounted": F, "mounts.fx100.kernel_log": "PASS",
            **{f"mounts.fx100.{key}": N for key in ("fstype", "source", "options", "writable", "filesystem_use", "inode_use")},
            "raw.fx100.integrity": N,
        },
    ),
    "bytes that are others": (
        lambda real: real.sub(r'("jobname" : "wv",.*?"error" : )0', r"\g<1>84", "fio --output-format=json --directory=/mnt/fx100"),
        {"raw.fx100.integrity": F},
    ),
    "a fio of other figures": (
        lambda real: real.sub(r'("jobname" : "wv",.*?"read" : \{.*?"bw_bytes" : )\d+', r"\g<1>99999999999", "fio --output-format=json --directory=/mnt/fx100"),
        {"raw.fx100.integrity": N},
    ),
    "two hosts mixed": (
        lambda real: real.add("ip -j -d link show", "[]").add("ethtool fab0", "Settings for fab0:\n\tSpeed: 100000Mb/s\n"),
        {"ports.fab0.link": N, "ports.fab0.mtu_bytes": N, "ports.fab1.mtu_bytes": N},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", STATES)
def test_a_state_fails_where_it_should_and_nowhere_else(name: str) -> None:
    change, wanted = STATES[name]
    assert verdicts(change(Real()).bundle()) == {key: value for key, value in wanted.items() if value != "PASS"}


@functools.cache
def reasons(name: str) -> dict[str, str]:
    return {key: found.reason for key, found in judged(STATES[name][0](Real()).bundle(), SITE).items()}


@pytest.mark.parametrize(
    ("name", "row", "word"),
    [
        ("second path down", PATHS, "192.168.51.2"),
        ("link down", "ports.fab1.link", "fab1"),
        ("drives exchanged", "mounts.local.source", "QLABLOCAL2"),
        ("mounted read-only", "mounts.fx100.writable", "read-only"),
        ("media errors", "drives.local-2.media_errors", "QLABLOCAL2"),
        ("TCP in place of RDMA", f"{FX}.transport", "nvme4"),
        ("another timeout", f"{FX}.ctrl_loss_tmo_s", "192.168.51.2"),
        ("target gone", PATHS, "not connected"),
        ("not mounted", "raw.fx100.integrity", "/mnt/fx100 was declared"),
    ],
)
def test_what_is_at_fault_is_named(name: str, row: str, word: str) -> None:
    assert word in reasons(name)[row]


def outcome(bundle: Bundle, row: str, site: str = SITE) -> tuple[str, str]:
    found = judged(bundle, site)[row]
    return found.verdict, found.reason


def test_the_output_of_another_device_tells_nothing() -> None:
    fab1 = next(output for output in lab("healthy").outputs if output.command == "ethtool fab1")
    real = Real().put("ethtool fab0", fab1.stdout.decode().replace("100000", "25000"))
    assert "ports.fab0.speed" not in {k for k, v in verdicts(real.bundle()).items() if v == "FAIL"}
    local = next(o for o in lab("healthy").outputs if "--directory=/mnt/local" in o.argv and "--name=wv" in o.argv)
    real = Real()
    for number, output in enumerate(real.outputs):
        if "--directory=/mnt/fx100" in output.argv and "--name=wv" in output.argv:
            real.outputs[number] = replace(output, stdout=local.stdout)
    verdict, reason = outcome(real.bundle(), "raw.fx100.integrity")
    assert (verdict, "another job: directory is /mnt/local" in reason) == ("INVALID", True)


def test_a_drive_that_is_listed_twice_is_not_one_drive() -> None:
    row = r'(\{[^{}]*"DevicePath":"/dev/)nvme2n1("[^{}]*\})'
    real = Real().sub(row, r"\g<1>nvme2n1\2,\g<1>nvme9n1\2", "nvme list -o json").drop("nvme list -v -o json")
    assert outcome(real.bundle(), "drives.local-2.size_bytes")[0] == "FAIL"


def test_a_blank_or_zeroed_log_of_a_drive_is_no_health() -> None:
    zero = '{"critical_warning":0,"temperature":0,"avail_spare":0,"spare_thresh":0,"percent_used":0,"media_errors":0}'
    real = Real().drop("smartctl -j -a /dev/nvme2")
    real.put("nvme smart-log /dev/nvme2 -o json", zero).put("nvme smart-log /dev/nvme2n1 -o json", zero)
    found = verdicts(real.bundle())
    assert {key for key, value in found.items() if value == "INVALID"} == {
        f"drives.local-2.{key}" for key in ("critical_warning", "media_errors", "wear", "temperature", "spare_margin")
    }


def test_errors_that_come_under_the_load_are_seen() -> None:
    def after(real: Real) -> set[str]:
        found = judged(Real().bundle(), SITE, real.bundle())
        return {key for key, finding in found.items() if finding.verdict == "FAIL"}

    assert after(Real()) == set()
    assert after(smart("nvme2", media_errors=1)(Real())) == {"drives.local-2.media_errors"}
    assert after(state_of(Real(), "nvme4", "connecting")) == {PATHS}
    assert after(target_gone(Real())) == {PATHS}


def test_a_write_that_lies_about_its_end_is_no_write() -> None:
    real = Real().drop("touch /mnt/fx100").add("write-probe /mnt/fx100", "")
    assert outcome(real.bundle(), "mounts.fx100.writable")[0] == "INVALID"
    real = Real().drop("touch /mnt/fx100").add("write-probe /mnt/fx100", '{"bytes": 1048576, "same": false}', 1)
    assert outcome(real.bundle(), "mounts.fx100.writable")[0] == "FAIL"
    real = Real().drop("touch /mnt/fx100").add("write-probe /mnt/elsewhere", '{"bytes": 1048576, "same": true}')
    assert outcome(real.bundle(), "mounts.fx100.writable")[0] == "INVALID"


def test_another_hosts_bundle_is_told() -> None:
    name = lab("healthy").find("uname", "-a").stdout.split()[1].decode()  # type: ignore[union-attr]
    named = SITE.replace("[bom.host]\n", f'[bom.host]\nname = "{name}"\n')
    assert verdicts(Real().bundle(), named) == {}
    other = SITE.replace("[bom.host]\n", '[bom.host]\nname = "gpu-02"\n')
    assert verdicts(Real().bundle(), other) == {"host.name": "FAIL"}
    longer = SITE.replace("[bom.host]\n", f'[bom.host]\nname = "{name}.lab.example"\n')
    assert verdicts(Real().bundle(), longer) == {}


SPELLINGS = (
    ('model = "QEMU NVMe Ctrl"', 'model = "  QEMU  NVMe Ctrl "'),
    ('target = "/mnt/fx100"', 'target = "/mnt//fx100/"'),
    ('scratch = "/mnt/fx100"', 'scratch = "/mnt/fx100/."'),
)


@pytest.mark.parametrize(("old", "new"), SPELLINGS)
def test_other_spellings_of_the_same_order(old: str, new: str) -> None:
    assert SITE.count(old)
    assert verdicts(Real().bundle(), SITE.replace(old, new)) == {}
