"""A bundle is opened from a folder or a tar, and nothing in it is trusted."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workloads import bundle
from workloads.bundle import Bundle, BundleError, Output, files_of, of_files, open_bundle, read_files

SAMPLES = Path(os.environ.get("KVGATE_SHARED", Path(__file__).resolve().parent.parent.parent / "shared")) / "samples"
HEAD = "name\trc\tseconds\tcommand\tnote\n"
FILES = {
    "INDEX.tsv": (HEAD + "uname\t0\t0.1\tuname -a\t\nnvme\t127\t0.0\tnvme list\tno such tool\n").encode(),
    "uname.stdout": b"Linux\n", "uname.stderr": b"", "uname.rc": b"0\n",
    "nvme.stdout": b"", "nvme.stderr": b"not found\n", "nvme.rc": b"127\n",
}  # fmt: skip
WANTED = (
    Output("uname", ("uname", "-a"), b"Linux\n", b"", 0, "", "uname.stdout"),
    Output("nvme", ("nvme", "list"), b"", b"not found\n", 127, "no such tool", "nvme.stdout"),
)
Change = Callable[[tarfile.TarInfo], None]


def tar_of(files: dict[str, bytes], top: str = "", change: dict[str, Change] | None = None) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(top + name)
            member.size = len(content)
            if change and name in change:
                change[name](member)
            tar.addfile(member, io.BytesIO(content))
    return data.getvalue()


def put(tmp_path: Path, data: bytes, name: str = "b.tar") -> Path:
    path = tmp_path / name
    path.write_bytes(data)
    return path


def refused(path: Path) -> str:
    with pytest.raises(BundleError) as error:
        open_bundle(path)
    assert "\n" not in str(error.value) and str(error.value).startswith(f"{path}: ")
    return str(error.value)


def test_a_folder(tmp_path: Path) -> None:
    for name, data in FILES.items():
        (tmp_path / name).write_bytes(data)
    assert open_bundle(tmp_path).outputs == WANTED


@pytest.mark.parametrize("top", ["", "./", "cn01/", "./a/b/"])
def test_a_tar_with_or_without_a_folder_around_it(tmp_path: Path, top: str) -> None:
    data = tar_of(FILES, top)
    if top == "./a/b/":
        assert "holds no INDEX.tsv" in refused(put(tmp_path, data))
    else:
        assert open_bundle(put(tmp_path, data)).outputs == WANTED


@pytest.mark.parametrize("kind", ["gz", "xz", "bz2"])
def test_a_compressed_tar_whatever_its_name(tmp_path: Path, kind: str) -> None:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode=f"w:{kind}") as tar:
        for name, content in FILES.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    assert open_bundle(put(tmp_path, data.getvalue(), "b")).outputs == WANTED


def test_commands_are_found_by_their_words() -> None:
    told = Bundle((*WANTED, Output("again", ("uname", "-a"), b"later", b"", 0)))
    found = told.find("uname", "-a")
    assert found is not None and found.stdout == b"later"
    assert told.find("uname") is None
    assert [output.name for output in told.matching("uname")] == ["uname", "again"]
    assert told.matching("nvme", "list", "-v") == []
    assert (WANTED[0].command, WANTED[0].file, told.outputs[2].file) == ("uname -a", "uname.stdout", "again.stdout")


def test_words_are_those_of_a_shell_or_else_split_at_blanks() -> None:
    index = HEAD + "a\t0\t\tx 'two words' \"$y\"\t\nb\t0\t\tit's broken\t\n"
    told = of_files({"INDEX.tsv": index.encode(), "a.stdout": b"", "b.stdout": b""}, Path("x"))
    assert [output.argv for output in told.outputs] == [("x", "two words", "$y"), ("it's", "broken")]


def test_what_is_no_commands_may_be_one_file() -> None:
    files = {"INDEX.tsv": (HEAD + "sysfs.txt\t0\t7.5\twalk of /sys/block/nvme*\t\n").encode(), "sysfs.txt": b"x"}
    (output,) = of_files(files, Path("x")).outputs
    assert (output.stdout, output.file, output.argv[-1]) == (b"x", "sysfs.txt", "/sys/block/nvme*")


def test_of_two_commands_with_one_name_the_later_left_its_files() -> None:
    index = HEAD + "v\t1\t\tfio -v\t\nw\t0\t\tw\t\nv\t0\t\tfio --version\t\n"
    told = of_files({"INDEX.tsv": index.encode(), "v.stdout": b"3", "v.rc": b"0\n", "w.stdout": b""}, Path("x"))
    assert [(output.name, output.argv[-1], output.status) for output in told.outputs] == [
        ("w", "w", 0), ("v", "--version", 0),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("status", "wanted"),
    [
        ("0", 0),
        (" 124 ", 124),
        ("-9", -9),
        ("", None),
        ("-", None),
        ("--5", None),
        ("\u0663", None),
        ("9" * 5000, None),
    ],
)
def test_a_status_that_is_no_number_is_not_known(status: str, wanted: int | None) -> None:
    files = {"INDEX.tsv": (HEAD + f"a\t{status}\t\ta\t\n").encode(), "a.stdout": b""}
    assert of_files(files, Path("x")).outputs[0].status == wanted


@pytest.mark.parametrize(
    ("index", "why"),
    [
        (None, "holds no INDEX.tsv"),
        (b"", "INDEX.tsv:1: must be 'name rc seconds command note'"),
        (b"name rc seconds command note\n", "INDEX.tsv:1: must be"),
        (b"\xff\xfe\n", "INDEX.tsv:1: must be"),
        (HEAD.encode() + b"uname\t0\tuname -a\n", "INDEX.tsv:2: has 3 columns of 5"),
        (HEAD.encode() + b"gone\t0\t0.1\tgone\t\n", "INDEX.tsv:2: 'gone.stdout' is not in the bundle"),
        (HEAD.encode() + b"uname\t1\t0.1\tuname -a\t\n", "INDEX.tsv:2: status '1', but 'uname.rc' says b'0"),
        (HEAD.encode() + b"../x\t0\t0.1\tx\t\n", "INDEX.tsv:2: '../x' is no name of a file"),
        (HEAD.encode() + b"\t0\t0.1\tx\t\n", "INDEX.tsv:2: '' is no name of a file"),
        (HEAD.encode() + b"\n" * 30_000, "more than a host has commands"),
    ],
)
def test_an_index_that_does_not_fit(tmp_path: Path, index: bytes | None, why: str) -> None:
    files = {name: data for name, data in FILES.items() if name != "INDEX.tsv"}
    if index is not None:
        files["INDEX.tsv"] = index
    assert why in refused(put(tmp_path, tar_of(files)))
    folder = tmp_path / "folder"
    folder.mkdir()
    for name, data in files.items():
        (folder / name).write_bytes(data)
    assert why in refused(folder)


def of_type(kind: bytes, link: str = "") -> Change:
    def change(member: tarfile.TarInfo) -> None:
        member.type, member.linkname, member.size = kind, link, 0

    return change


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_are_no_files(tmp_path: Path, kind: bytes) -> None:
    data = tar_of(FILES, change={"uname.stdout": of_type(kind, "/etc/passwd")})
    assert "'uname.stdout' is not in the bundle" in refused(put(tmp_path, data))


def test_a_link_in_a_folder_is_no_file(tmp_path: Path) -> None:
    folder = tmp_path / "b"
    folder.mkdir()
    for name, data in FILES.items():
        (folder / name).write_bytes(data)
    (folder / "uname.stdout").unlink()
    (folder / "uname.stdout").symlink_to("/etc/hostname")
    assert "'uname.stdout' is not in the bundle" in refused(folder)


@pytest.mark.parametrize("name", ["/etc/x", "../x", "a/../../x", "..", "a/.."])
def test_a_path_that_leads_out(tmp_path: Path, name: str) -> None:
    assert "would lie outside the bundle" in refused(put(tmp_path, tar_of({**FILES, name: b"x"})))


@pytest.mark.parametrize("name", ["uname.stdout", "./uname.stdout", ".//uname.stdout"])
def test_a_name_twice(tmp_path: Path, name: str) -> None:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        for each in [*FILES, name]:
            member = tarfile.TarInfo(each)
            member.size = len(FILES.get(each, b"other"))
            tar.addfile(member, io.BytesIO(FILES.get(each, b"other")))
    assert "is in it twice" in refused(put(tmp_path, data.getvalue()))


def test_a_sparse_file(tmp_path: Path) -> None:
    data = tar_of(FILES)
    sparse = tarfile.TarInfo("huge.stdout")
    sparse.type = tarfile.GNUTYPE_SPARSE
    header = bytearray(sparse.tobuf(tarfile.GNU_FORMAT))
    header[483:495] = b"77777777777\0"  # the size it claims to have
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    assert "is a sparse file" in refused(put(tmp_path, bytes(header) + data))


@pytest.mark.parametrize("limit", ["FILE_BYTES_MAX", "BUNDLE_BYTES_MAX", "FILES_MAX"])
def test_more_than_a_host_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    monkeypatch.setattr(bundle, limit, 2)
    assert "it is none of ours" in refused(put(tmp_path, tar_of(FILES)))
    folder = tmp_path / "folder"
    folder.mkdir()
    for name, data in FILES.items():
        (folder / name).write_bytes(data)
    assert "more or larger files than a host tells" in refused(folder)


def test_a_small_file_that_unpacks_to_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle, "BUNDLE_BYTES_MAX", 1 << 20)
    path = put(tmp_path, gzip.compress(tar_of({**FILES, "big.stdout": b"\0" * (4 << 20)})), "b.tar.gz")
    assert path.stat().st_size < 1 << 16
    assert "more than 1048576 bytes" in refused(path)


@pytest.mark.parametrize("data", [b"", b"x" * 5000, b"\0" * 10240, b"\x1f\x8b", b"\x1f\x8bxxxxxxxxxxxx", b"BZhxxxxxx",
                                  b"\xfd7zXZ\x00xxxxxxx", b"PK\x03\x04" + b"\0" * 600])  # fmt: skip
def test_what_is_no_tar(tmp_path: Path, data: bytes) -> None:
    refused(put(tmp_path, data))


def test_no_file_a_device_and_a_folder_that_is_none(tmp_path: Path) -> None:
    assert "No such file" in refused(tmp_path / "none.tar")
    assert "holds no INDEX.tsv" in refused(tmp_path)


@pytest.mark.parametrize("packed", [False, True])
def test_a_tar_cut_anywhere_is_never_taken_for_less(tmp_path: Path, packed: bool) -> None:
    """What is cut is refused, unless all that the index names is still there."""
    whole = tar_of(FILES)
    data = gzip.compress(whole) if packed else whole
    for end in range(0, len(data), 97 if packed else 256):
        path = put(tmp_path, data[:end])
        try:
            found = open_bundle(path)
        except BundleError:
            continue
        assert not packed
        assert [(output.stdout, output.status) for output in found.outputs] == [(b"Linux\n", 0), (b"", 127)]


def test_what_is_written_is_what_is_read() -> None:
    wanted = (*WANTED, Output("x.json", ("sh", "-c", "a b; 'c'"), b"\xff", b"e", None, "cut at 7"))
    assert [
        (found.name, found.argv, found.stdout, found.stderr, found.status, found.note)
        for found in of_files(files_of(wanted), Path("x")).outputs
    ] == [(each.name, each.argv, each.stdout, each.stderr, each.status, each.note) for each in wanted]
    with pytest.raises(ValueError, match="no other output's"):
        files_of((*wanted, WANTED[0]))
    with pytest.raises(ValueError, match="must be a file's name"):
        files_of([Output("../x", ("x",), b"", b"", 0)])


STATES = ["healthy", "path-down-port", "all-paths-lost", "local-critical-warning", "fs-full"]


@pytest.mark.parametrize("state", STATES)
def test_every_state_of_the_lab_opens_as_folder_and_as_tar(tmp_path: Path, state: str) -> None:
    folder = SAMPLES / "nvmeof-lab" / state
    if not folder.is_dir():
        pytest.skip(f"no samples in {folder}")
    found = open_bundle(folder)
    rows = (folder / "INDEX.tsv").read_text().splitlines()[1:]
    assert len(found.outputs) == len({row.split("\t")[0] for row in rows}) > 10
    with tarfile.open(tmp_path / "b.tar.gz", "w:gz") as tar:
        tar.add(folder, arcname=state)
    assert open_bundle(tmp_path / "b.tar.gz") == found
    for output in found.outputs:
        assert output.stdout == (folder / output.file).read_bytes()
    blocked = [output for output in found.outputs if output.status == bundle.TIMED_OUT]
    assert bool(blocked) == (state == "all-paths-lost") and all("killed after" in output.note for output in blocked)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=3000))
def test_any_index_raises_nothing_else(index: bytes) -> None:
    for data in (index, HEAD.encode() + index):
        try:
            of_files({**FILES, "INDEX.tsv": data}, Path("x"))
        except BundleError as error:
            assert "\n" not in str(error)


WHOLE = tar_of(FILES)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, len(WHOLE)), st.binary(max_size=40), st.booleans())
def test_any_tar_raises_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, at: int, put_in: bytes, packed: bool
) -> None:
    data = WHOLE[:at] + put_in + WHOLE[at + len(put_in) :]
    path = tmp_path_factory.getbasetemp() / "any.tar"
    path.write_bytes(gzip.compress(data, 1) if packed else data)
    try:
        of_files(read_files(path), path)
    except BundleError as error:
        assert "\n" not in str(error)


FIELDS = st.sampled_from(
    [(0, 100), (100, 24), (124, 12), (136, 12), (156, 1), (157, 100), (257, 8), (345, 155), (482, 13)]
)


@settings(max_examples=200, deadline=None)
@given(
    FIELDS,
    st.binary(min_size=1, max_size=20),
    st.sampled_from([b"0", b"x", b"g", b"L", b"K", b"S", b"1", b"2", b"5", b"\xff"]),
)
def test_any_header_with_its_right_checksum_raises_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, field: tuple[int, int], value: bytes, kind: bytes
) -> None:
    header = bytearray(WHOLE[:512])
    start, size = field
    header[156:157] = kind
    header[start : start + min(len(value), size)] = value[:size]
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    path = tmp_path_factory.getbasetemp() / "header.tar"
    path.write_bytes(bytes(header) + WHOLE[512:])
    try:
        of_files(read_files(path), path)
    except BundleError as error:
        assert "\n" not in str(error)


def test_a_status_that_its_own_note_denies_is_refused() -> None:
    index = b"name\trc\tseconds\tcommand\tnote\nw\t0\t4.0\tdd of=/m/.w\tkilled after 4 s\n"
    with pytest.raises(BundleError, match="status 0, but its note says 'killed after 4 s'"):
        of_files({"INDEX.tsv": index, "w.stdout": b"", "w.rc": b"0\n"}, Path("b"))


def test_headers_upon_headers_are_no_bundle(tmp_path: Path) -> None:
    member = tarfile.TarInfo("x")
    member.type, member.size = tarfile.XHDTYPE, 0
    (tmp_path / "deep.tar").write_bytes(member.tobuf(tarfile.USTAR_FORMAT) * 5000)
    with pytest.raises(BundleError, match="no whole tar"):
        open_bundle(tmp_path / "deep.tar")
