"""Right answers at rest: which files are looked at, that looking warms nothing, and whose a changed file is."""

from __future__ import annotations

import ctypes
import hashlib
import mmap
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gates import verdict
from tests.synthetic import make_run
from tests.synthetic_host import CHUNK_BYTES
from tests.synthetic_truth import Truth, only
from workloads import chunks
from workloads.evidence import Run

Json = dict[str, Any]
FIRST = "m@0@0007.data"


def judged(folder: Path, **truth: Any) -> Json:
    return verdict.judge(Run(make_run(folder, Truth(**truth))))


def told(result: Json, check: str = "chunks-at-rest") -> list[Json]:
    return [b for b in result["breaches"] if b["check"] == check]


def resident_pages(path: Path) -> int:
    """Return how many pages of the file lie in the page cache."""
    libc = ctypes.CDLL(None, use_errno=True)
    with path.open("r+b") as f, mmap.mmap(f.fileno(), 0) as mapped:
        pages = -(-len(mapped) // mmap.PAGESIZE)
        found = (ctypes.c_ubyte * pages)()
        view = ctypes.c_char.from_buffer(mapped)
        assert libc.mincore(ctypes.byref(view), ctypes.c_size_t(len(mapped)), found) == 0
        del view
        return sum(page & 1 for page in found)


def test_the_seed_alone_chooses_the_sample_and_small_sets_are_taken_whole() -> None:
    names = [f"{i}.data" for i in range(500)]
    mine = chunks.sample(7, 0, names)
    assert len(mine) == len(set(mine)) == 64
    assert mine == chunks.sample(7, 0, reversed(names)) == sorted(mine)
    assert mine != chunks.sample(8, 0, names)
    assert mine != chunks.sample(7, 1, names)
    assert chunks.sample(7, 0, names[:64]) == sorted(names[:64])


@pytest.mark.parametrize("size", [0, 1, 4096, 3 << 20, (1 << 20) + 5000])
def test_a_file_is_hashed_whole_and_not_a_page_of_it_stays(tmp_path: Path, size: int) -> None:
    content = os.urandom(size)
    file = tmp_path / "a.data"
    file.write_bytes(content)
    with file.open("rb") as f:
        os.fsync(f.fileno())
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    assert chunks.hash_file(file)[:2] == (hashlib.sha256(content).hexdigest(), size)
    if size:
        assert resident_pages(file) == 0


def test_without_direct_io_what_was_read_is_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.open

    def refuse(path: Any, flags: int, *rest: Any, **more: Any) -> int:
        if flags & os.O_DIRECT:
            raise OSError(22, "no direct I/O here")
        return real(path, flags, *rest, **more)

    file = tmp_path / "a.data"
    file.write_bytes(bytes(1 << 20))
    monkeypatch.setattr(os, "open", refuse)
    found = chunks.look(tmp_path, ["a.data"])
    monkeypatch.undo()
    assert found["hashes"]["a.data"] == hashlib.sha256(bytes(1 << 20)).hexdigest()
    assert found["direct_io"] is False
    assert resident_pages(file) == 0


def test_a_file_that_is_not_there_is_told_and_not_raised(tmp_path: Path) -> None:
    found = chunks.look(tmp_path, ["gone.data"])
    assert (found["hashes"], found["bytes"]) == ({"gone.data": None}, {"gone.data": None})
    assert found["faults"] == {"gone.data": "ENOENT"}


def changed(**values: Any) -> Callable[[Json], None]:
    def change(found: Json) -> None:
        for key, value in values.items():
            found[key][FIRST] = value

    return change


FAULTS = {
    "other bytes": (changed(hashes="1" * 64), "holds other bytes"),
    "truncated": (changed(hashes="1" * 64, bytes=4096), "holds 4096 bytes, 1048576 were stored"),
    "zeroed": (changed(hashes=hashlib.sha256(bytes(CHUNK_BYTES)).hexdigest()), "holds nothing but zeros"),
    "missing": (changed(hashes=None, bytes=None, faults="ENOENT"), "is missing (ENOENT)"),
    "broken": (changed(hashes=None, bytes=None, faults="EIO"), "cannot be read (EIO)"),
}


@pytest.mark.parametrize(("change", "words"), FAULTS.values(), ids=FAULTS.keys())
def test_a_file_of_the_candidate_that_changed_fails(tmp_path: Path, change: Callable[[Json], None], words: str) -> None:
    result = judged(tmp_path, chunks=only({"arm": "candidate", "block": 3}, change))
    assert {(b["whose"], b["trial"]) for b in told(result)} == {("candidate", f"candidate/c{c}/b03") for c in (2, 4)}
    assert (
        f"1 of 64 sampled chunk files changed after the store was confirmed: {FIRST} {words}"
        == told(result)[0]["reason"]
    )
    assert result["verdict"] == "FAIL"
    assert {r["id"] for r in result["criteria"] if r["verdict"] == "FAIL"} == {"tier-faults"}


def test_the_baselines_is_invalid(tmp_path: Path) -> None:
    result = judged(tmp_path, chunks=only({"arm": "baseline", "block": 3}, changed(hashes="1" * 64)))
    assert {b["whose"] for b in told(result)} == {"baseline"}
    assert result["verdict"] != "PASS"
    assert [b["block"] for b in result["blocks"]["invalid"]] == [3]


def test_a_file_that_the_harness_may_not_read_is_no_fault_of_the_tier(tmp_path: Path) -> None:
    change = changed(hashes=None, bytes=None, faults="EACCES")
    result = judged(tmp_path, chunks=only({"arm": "candidate", "block": 3}, change))
    assert {b["whose"] for b in told(result)} == {"host"}
    assert result["verdict"] != "PASS"


@pytest.mark.parametrize(("fault", "whose", "verdict"), [("EIO", "candidate", "FAIL"), ("EACCES", "host", "INVALID")])
def test_what_was_just_stored_and_cannot_be_read_is_the_tiers_fault_where_it_says_so(
    tmp_path: Path, fault: str, whose: str, verdict: str
) -> None:
    def lost(line: Json) -> None:
        stored = line["chunks"]
        name = next(iter(stored["hashes"]))
        stored["hashes"][name] = stored["bytes"][name] = None
        stored["faults"][name] = fault

    result = judged(tmp_path, populate=only({"arm": "candidate", "prompt_set": 0}, lost))
    first = next(b for b in told(result) if "prompt set 0" in b["reason"])
    assert (first["whose"], first["reason"][-len(fault) :]) == (whose, fault)
    assert result["verdict"] == verdict


def test_hashes_of_another_sample_or_of_none_are_no_data(tmp_path: Path) -> None:
    fewer = judged(tmp_path / "a", chunks=only({"arm": "candidate"}, lambda f: f["hashes"].pop(FIRST, None)))
    assert {b["whose"] for b in told(fewer)} == {"harness"}
    assert fewer["verdict"] == "INVALID"
    stored = judged(
        tmp_path / "b", populate=only({"arm": "candidate"}, lambda line: line["chunks"]["hashes"].popitem())
    )
    assert ("harness", "run") in {(b["whose"], b["trial"]) for b in told(stored)}
    assert stored["verdict"] == "INVALID"


def test_trials_whose_files_nobody_looked_at_again_are_invalid(tmp_path: Path) -> None:
    path = make_run(tmp_path, Truth(seal=False))
    for file in path.glob("raw/candidate/c2/*/chunks.json"):
        file.unlink()
    result = verdict.judge(Run(path))
    assert {b["reason"] for b in told(result)} == {"no data: its chunk files were not hashed again after it"}
    assert result["verdict"] == "INVALID"


def test_hashing_while_something_is_measured_is_told(tmp_path: Path) -> None:
    def early(found: Json) -> None:
        found["t_begin_ns"] -= 30_000_000_000

    result = judged(tmp_path, chunks=only({"arm": "candidate", "block": 2}, early))
    assert any("hashed while it was measured" in b["reason"] for b in told(result))
    assert any("files were hashed during candidate/c" in b["reason"] for b in told(result))
    assert result["verdict"] == "INVALID"


def test_stores_that_differ_are_a_fault_only_where_computing_gives_the_same_bits(tmp_path: Path) -> None:
    def other(line: Json) -> None:
        if (line["arm"], line["prompt_set"]) == ("candidate", 0):
            line["chunks"]["hashes"][FIRST] = "1" * 64

    def again(found: Json) -> None:
        if found["arm"] == "candidate" and FIRST in found["hashes"]:
            found["hashes"][FIRST] = "1" * 64

    result = judged(tmp_path / "a", populate=other, chunks=again)
    assert [b["whose"] for b in told(result, "stores-equal")] == ["harness"]
    assert result["verdict"] == "INVALID"
    lab = judged(tmp_path / "b", populate=other, chunks=again, rehearsal=False)
    assert told(lab, "stores-equal") == []
    assert "the stores: 127 of 128 sampled chunks are equal in baseline and candidate" in lab["outputs"]
