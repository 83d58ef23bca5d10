"""lsblk, findmnt, df and /proc/mounts by version."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gates.readers import block
from gates.readers.error import ReaderError
from tests.reader_samples import cuts, hostile_bytes, lab, mutated, printed, said, sample, tried

LSBLK, FINDMNT, DF, MOUNTS = "lsblk -J -b -O", "findmnt -J -b", "df -B1 --output", "cat /proc/mounts"
VOLUME = {"name": "/dev/mapper/vg-data", "type": "lvm", "size": 7, "mountpoint": "/data"}
DISKS: dict[str, Any] = {
    "blockdevices": [
        {
            "name": "nvme0n1",
            "type": "disk",
            "size": "1600321314816",
            "rota": "0",
            "ro": False,
            "model": "M  ",
            "serial": "S1",
            "tran": "nvme",
            "log-sec": 512,
            "phy-sec": "4096",
            "sched": "none",
            "mountpoints": [None],
            "children": [VOLUME],
        },
        {"name": "nvme1n1", "size": "63.9M", "rota": True, "mountpoint": "[SWAP]", "children": [VOLUME]},
    ]
}
TREE = {
    "filesystems": [
        {
            "target": "/",
            "source": "/dev/vda",
            "fstype": "ext4",
            "options": "rw,noatime",
            "size": 3094126592,
            "used": "810463232",
            "avail": "1.2T",
            "children": [{"target": "/data", "source": "/dev/mapper/vg-data[/kubelet]", "fstype": "xfs"}],
        }
    ]
}
TABLE = """\
Filesystem     Type       Inodes  IUsed    IFree IUse%    1B-blocks        Used       Avail Use% File Mounted on
udev           devtmpfs   369795    337   369458    1%   1514680320           0  1514680320   0% -    /dev
/dev/nvme3n1   ext4        65536     11    65525    1%   1020702720       24576   950214656   1% -    /mnt/fx 100
//nas/my share cifs            0      0        0     -   1000 900 100  90% -    /mnt/share
"""
MOUNTED = """\
sysfs /sys sysfs rw,nosuid 0 0
/dev/nvme3n1 /mnt/fx\\040100 ext4 rw,noatime 0 0
/dev/nvme4n1 /mnt/fx\\040100 xfs ro 0 0
"""


def devices(document: object) -> dict[str, block.BlockDevice]:
    return {each.name: each for each in block.block_devices(said(json.dumps(document), LSBLK))}


def test_lsblk_of_every_version() -> None:
    found = devices(DISKS)
    assert found["nvme0n1"] == block.BlockDevice(
        "nvme0n1", "disk", 1600321314816, (), None, "M", "S1", "nvme", 512, 4096, "none", False, False
    )
    rounded = found["nvme1n1"]
    assert (rounded.size_bytes, rounded.rotational, rounded.read_only, rounded.mountpoints) == (None, True, None, ())


def test_a_volume_of_two_disks_is_one_device() -> None:
    found = devices(DISKS)
    assert len(found) == 3
    assert found["vg-data"].parents == ("nvme0n1", "nvme1n1") and found["vg-data"].mountpoints == ("/data",)


@pytest.mark.parametrize(
    "document",
    [
        {},
        [],
        {"blockdevices": None},
        {"blockdevices": [{"size": 1}]},
        {"blockdevices": [{"name": "a", "children": {"name": "b"}}]},
    ],
)
def test_what_is_no_lsblk(document: object) -> None:
    with pytest.raises(ReaderError):
        devices(document)


def test_findmnt() -> None:
    root, data = block.findmnt(said(json.dumps(TREE), FINDMNT))
    assert root == block.FileSystem("/", "/dev/vda", None, "ext4", ("rw", "noatime"), 3094126592, 810463232, None)
    assert (data.source, data.root, data.options) == ("/dev/mapper/vg-data", "/kubelet", None)
    with pytest.raises(ReaderError, match="without target"):
        block.findmnt(said('{"filesystems":[{"source":"/dev/vda"}]}', FINDMNT))


def test_df_with_blanks_in_names() -> None:
    _, array, share = block.df(said(TABLE, DF))
    assert (array.target, array.source, array.fstype) == ("/mnt/fx 100", "/dev/nvme3n1", "ext4")
    assert (array.size_bytes, array.used_bytes, array.avail_bytes) == (1020702720, 24576, 950214656)
    assert (array.inodes, array.inodes_used, array.inodes_free) == (65536, 11, 65525)
    assert (share.source, share.target, share.size_bytes) == ("//nas/my share", "/mnt/share", 1000)


@pytest.mark.parametrize(
    ("header", "row", "size", "avail"),
    [
        ("1K-blocks Used Available Use%", "1000 24 976 3%", 1_024_000, 976 * 1024),
        ("1024-blocks Used Available Capacity", "1000 24 976 3%", 1_024_000, 976 * 1024),
        ("1M-blocks Used Available Use%", "10 0 10 0%", 10 << 20, 10 << 20),
        ("Size Used Avail Use%", "1.7T 427G 1.2T 24%", None, None),
        ("1B-blocks Used Avail Use%", "- - - -", None, None),
        ("Inodes IUsed IFree IUse%", "10 1 9 10%", None, None),
    ],
)
def test_df_in_other_units(header: str, row: str, size: int | None, avail: int | None) -> None:
    found = block.df(said(f"Filesystem {header} Mounted on\n/dev/a {row} /mnt\n", "df"))[0]
    assert (found.size_bytes, found.avail_bytes) == (size, avail)


def test_df_that_wraps_or_left_one_out() -> None:
    text = "Filesystem 1B-blocks Used Avail Use% Mounted on\n/dev/mapper/a-very-long-name\n   9 1 8 12% /mnt\n"
    found = block.df(said(text, DF, status=1, stderr="df: /mnt/x: Transport endpoint is not connected"))
    assert [(each.source, each.size_bytes) for each in found] == [("/dev/mapper/a-very-long-name", 9)]


@pytest.mark.parametrize(
    "text",
    [
        "Dateisystem 1B-Blöcke Benutzt Verfügbar Verw% Eingehängt auf\n/dev/a 9 1 8 12% /\n",
        "Filesystem 1B-blocks Used Avail Use% Mounted on\n/dev/a 9 1 8 /mnt\n",
        "Filesystem 1B-blocks Used Avail Use% Mounted on\n/dev/a 9 1 8 12% mnt\n",
        "df: unrecognized option\n",
    ],
)
def test_what_is_no_df(text: str) -> None:
    with pytest.raises(ReaderError):
        block.df(said(text, DF))


def test_proc_mounts_and_what_lies_on_top() -> None:
    found = block.mounts(said(MOUNTED, MOUNTS))
    assert (found[1].target, found[1].options) == ("/mnt/fx 100", ("rw", "noatime"))
    top = block.holding(found, "/mnt/fx 100/.w")
    assert top is not None and (top.source, top.fstype) == ("/dev/nvme4n1", "xfs")
    assert block.holding(found, "/mnt/fx 1000") is None
    assert block.holding(block.findmnt(said(json.dumps(TREE), FINDMNT)), "/home/a") is not None
    with pytest.raises(ReaderError):
        block.mounts(said("cat: /proc/mounts: No such file or directory\n", MOUNTS))


# Shared samples


def test_sample_lsblk_of_this_kind_of_host() -> None:
    found = {each.name: each for each in block.block_devices(sample("block/local.lsblk-2.41.5.J-b.stdout", LSBLK))}
    assert (found["vda"].size_bytes, found["vda"].scheduler, found["vda"].physical_sector_bytes) == (
        274877906944,
        "mq-deadline",
        4096,
    )


@pytest.mark.parametrize(
    ("number", "name", "parent", "mountpoint", "size"),
    [
        ("1", "nvme0n1p2", "nvme0n1", None, 959652560896),
        ("2", "vda1", "vda", "/", 24189139402240),
        ("3", "vda15", "vda", "/boot/efi", None),
        ("4", "sda2", "sda", "/boot", None),
        ("5", "nvme0n1p2", "nvme0n1", "/", 3200026411008),
        ("withlv", "md127", "sda2", "/", 1919211798528),
    ],
)
def test_sample_lsblk(number: str, name: str, parent: str, mountpoint: str | None, size: int | None) -> None:
    found = {each.name: each for each in block.block_devices(sample(f"block/lsblk.gpud.{number}.json", LSBLK))}
    assert found[name].parents[0] == parent and found[name].size_bytes == size
    assert mountpoint is None or mountpoint in found[name].mountpoints


def test_sample_of_a_mirror_and_of_text() -> None:
    found = {each.name: each for each in block.block_devices(sample("block/lsblk.gpud.withlv.json", LSBLK))}
    assert found["md127"].parents == ("sda2", "sdb2") and found["md127"].type == "raid1"
    for name in ("lsblk.centos7.txt", "lsblk-allcols.centos7.txt"):
        with pytest.raises(ReaderError, match="no JSON"):
            block.block_devices(sample(f"block/{name}", "lsblk"))


def test_sample_findmnt_of_a_part() -> None:
    found = block.findmnt(sample("block/findmnt.gpud.0.json", FINDMNT))[0]
    assert (found.source, found.root, found.size_bytes) == (
        "/dev/mapper/vgroot-lvroot",
        "/var/lib/lxc/ny2g2r14hh2-lxc/rootfs",
        None,
    )


# The lab


@pytest.mark.parametrize(
    ("state", "device", "full"),
    [
        ("healthy", "nvme3n1", False),
        ("path-down-port", "nvme3n1", False),
        ("all-paths-lost", "nvme3n1", False),
        ("fs-full", "nvme3n2", True),
    ],
)
def test_lab_mounts(state: str, device: str, full: bool) -> None:
    bundle = lab(state)
    disks = {each.name: each for each in block.block_devices(printed(bundle, "lsblk -J -b -O"))}
    assert disks[device].mountpoints == ("/mnt/fx100",) and disks[device].serial == "FX100SN0001"
    for reader, command in ((block.findmnt, "findmnt -J"), (block.mounts, MOUNTS), (block.df, DF)):
        found = block.holding(reader(printed(bundle, command)), "/mnt/fx100/.w")
        assert found is not None and (found.target, found.source) == ("/mnt/fx100", f"/dev/{device}")
        assert found.options in (None, ("rw", "noatime"))  # 'rw' in every state
        if reader is block.df:
            assert (found.avail_bytes == 0) is full and found.size_bytes == 1020702720
            assert found.inodes == 65536 and (found.inodes_free or 0) > 65000


def test_lab_inodes_alone() -> None:
    found = block.df(printed(lab("healthy"), "df -i /mnt/fx100 /mnt/local"))
    assert [(each.target, each.inodes, each.size_bytes) for each in found] == [
        ("/mnt/fx100", 65536, None),
        ("/mnt/local", 262144, None),
    ]


# Anything

EVERY = ((block.block_devices, LSBLK, json.dumps(DISKS)), (block.findmnt, FINDMNT, json.dumps(TREE)))


@settings(max_examples=100, deadline=None)
@given(st.data(), st.sampled_from(EVERY), st.sampled_from([0, 1, 124, 127, None]))
def test_nothing_else_is_raised(data: st.DataObject, what: tuple[Any, str, str], status: int | None) -> None:
    reader, command, document = what
    tried(reader, said(data.draw(st.one_of(hostile_bytes(), mutated(document))), command, status=status))


@settings(max_examples=100, deadline=None)
@given(st.sampled_from([(block.df, TABLE), (block.mounts, MOUNTED)]), st.binary(max_size=30), st.data())
def test_nothing_else_is_raised_by_text(what: tuple[Any, str], noise: bytes, data: st.DataObject) -> None:
    reader, text = what
    at = data.draw(st.integers(0, len(text)))
    tried(reader, said(text[:at].encode() + noise + text[at:].encode(), "df"))
    tried(reader, said(noise, "df"))


def test_deep_children_are_refused_or_read() -> None:
    deep: dict[str, Any] = {"name": "leaf"}
    for number in range(400):
        deep = {"name": f"n{number}", "children": [deep]}
    assert len(block.block_devices(said(json.dumps({"blockdevices": [deep]}), LSBLK))) == 401
    text = '{"blockdevices":[' + '{"name":"a","children":[' * 5000 + "]}" * 5000 + "]}"
    assert tried(block.block_devices, said(text, LSBLK)) is None


@pytest.mark.parametrize("what", EVERY, ids=lambda what: what[0].__name__)
def test_a_cut_document_is_refused(what: tuple[Any, str, str]) -> None:
    reader, command, document = what
    assert cuts(reader, command, document.encode(), 3) == []


def test_a_cut_table_has_no_wrong_figures() -> None:
    whole = {each.target: each for each in block.df(said(TABLE, DF))}
    for at in range(len(TABLE)):
        for each in tried(block.df, said(TABLE[:at], DF, status=None)) or ():
            assert whole[each.target] == each


def test_what_all_disks_moved() -> None:
    lines = (
        " 259 3 nvme2n1 51 0 2112 58 7 0 100 0 0 20 58 0 0 0 0 0 0\n 259 4 nvme2n1p1 51 0 2112 58 7 0 100 0 0 20 58\n"
    )
    assert block.disk_counters(said(lines, "cat /proc/diskstats")) == {"read": 2112 * 512, "written": 100 * 512}
    assert block.disk_counters(said("   7       0 loop0 0 0 0 0 0 0 0 0 0 0 0\n", "cat /proc/diskstats")) == {
        "read": 0,
        "written": 0,
    }
    for text in ("hello world\n", "1 2 x 1 2 3\n", "1 2 sda 0 0 -9 0 0 0 0 0 0 0 0\n", ""):
        with pytest.raises(ReaderError):
            block.disk_counters(said(text, "cat /proc/diskstats"))


def test_the_labs_disks() -> None:
    found = block.disk_counters(printed(lab("healthy"), "cat /proc/diskstats"))
    assert found["read"] == (113410 + 8562 + 2112 + 8530 + 2088) * 512
