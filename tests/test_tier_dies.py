"""A tier that dies under its arm: what the kernel says of it is the arm's own fault, what it says of us is not."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gates import verdict
from scenarios import engine, preflight, tiers
from scenarios.load import load_scenario, load_site
from scenarios.process import StartFailed
from tests.synthetic import make_run
from tests.synthetic_truth import Truth
from workloads import client, counters, populate
from workloads import run as loop
from workloads.blocks import plan_blocks
from workloads.evidence import Run, RunDir
from workloads.progress import Progress
from workloads.prompts import prompt_set

SITE = load_site("rehearsal").value
SCENARIO = load_scenario("rehearsal", load_site("rehearsal")).value
LOOKS = [5, 8, 12]
REAL = os.scandir
HOSTS = ("EACCES", "EPERM", "EMFILE", "ENFILE", "ENOMEM")


def failing(folder: Path, name: str) -> Callable[..., Any]:
    def scandir(path: Any = ".") -> Any:
        if Path(path) == folder:
            raise OSError(getattr(errno, name), os.strerror(getattr(errno, name)), str(path))
        return REAL(path)

    return scandir


def live(folder: Path, name: str) -> Any:
    log = folder / "engine.log"
    log.write_text("", encoding="utf-8")
    kept = SimpleNamespace(log=log, pid=os.getpid())
    tier = SimpleNamespace(block_devices=(), rdma_ports=())
    cache = SimpleNamespace(url="http://127.0.0.1:1", pending=lambda: 0, clear_dram=lambda: None)
    return SimpleNamespace(
        name=name, base_url="http://127.0.0.1:1", model_name="m", engine=kept, lmcache=kept, cache=cache, tier=tier,
        tier_folder=folder / "tier", start=1, fault=lambda: None,
    )  # fmt: skip


class Fleet:
    """Arms that are up and answer nothing."""

    def __init__(self, folder: Path) -> None:
        (folder / "tier").mkdir(exist_ok=True)
        self.folder = folder

    @contextlib.contextmanager
    def arm(self, name: str) -> Iterator[Any]:
        yield live(self.folder, name)

    def stop(self) -> None:
        pass


def settings(seed: int) -> loop.Settings:
    return loop.Settings(SCENARIO, LOOKS, seed, 256, 256 * 4096, 1024, True)


def quiet() -> Progress:
    return Progress(lambda _line: None, False)


def measured(folder: Path, arm: str, patch: pytest.MonkeyPatch, name: str) -> tuple[Path, str]:
    """A sixth block after five good ones, whose first arm is `arm`; every listing of its tier gives this error."""
    seed = next(s for s in range(1, 99) if plan_blocks(SCENARIO, LOOKS, s)[5].order[0] == arm)
    path = make_run(folder, Truth(blocks=5, seal=False, seed=seed))
    load = SCENARIO.workload
    sets = [prompt_set(seed, n, SCENARIO.largest_step(), load.prompt_tokens, 1024) for n in range(load.prompt_sets)]
    patch.setattr(client, "run_wave", lambda *_args, **_more: [])
    fleet = Fleet(folder)
    patch.setattr(tiers.os, "scandir", failing(folder / "tier", name))
    plan = plan_blocks(SCENARIO, LOOKS, seed)[5]
    with pytest.raises(loop.AbortedError) as aborted:
        loop._block(RunDir(path), fleet, settings(seed), sets, lambda *_args: [], quiet(), 6, plan, None, 8)
    patch.undo()
    RunDir(path).seal("end")
    return path, str(aborted.value)


@pytest.mark.parametrize("name", ["EIO", "ESTALE", "ENODEV", "ENOTCONN", "ENOENT"])
def test_a_candidate_whose_tier_dies_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    path, told = measured(tmp_path, "candidate", monkeypatch, name)
    assert "the tier cannot be listed: " + os.strerror(getattr(errno, name)) in told
    assert [(i["whose"], i["kind"]) for i in Run(path).incidents()] == [("candidate", "trial-failed")]
    judged = verdict.judge(Run(path))
    assert judged["verdict"] == "FAIL"
    assert {row["id"] for row in judged["criteria"] if row["verdict"] == "FAIL"} == {"tier-faults"}


def test_a_baseline_whose_tier_dies_makes_the_run_invalid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, _ = measured(tmp_path, "baseline", monkeypatch, "EIO")
    assert [(i["whose"], i["kind"]) for i in Run(path).incidents()] == [("baseline", "trial-failed")]
    assert verdict.judge(Run(path))["verdict"] == "INVALID"


@pytest.mark.parametrize("name", HOSTS)
def test_what_the_host_denies_is_null_and_nobodys_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    arm = live(tmp_path, "candidate")
    monkeypatch.setattr(tiers.os, "scandir", failing(tmp_path / "tier", name))
    found = counters.snapshot(arm, 0, True, "before")
    assert (found["tier_files"], found["tier_bytes"]) == (None, None)


def test_a_file_that_goes_while_it_is_looked_at_hides_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        (tmp_path / f"{number}.data").write_bytes(b"x" * number)

    class Entry:
        def __init__(self, entry: Any) -> None:
            self.entry, self.name = entry, entry.name

        def is_file(self, *, follow_symlinks: bool) -> bool:
            return bool(self.entry.is_file(follow_symlinks=follow_symlinks))

        def stat(self, *, follow_symlinks: bool) -> os.stat_result:
            if self.name == "1.data":
                raise FileNotFoundError(errno.ENOENT, "gone")
            return self.entry.stat(follow_symlinks=follow_symlinks)  # type: ignore[no-any-return]

    @contextlib.contextmanager
    def scandir(path: Path) -> Iterator[Any]:
        with REAL(path) as entries:
            yield [Entry(entry) for entry in entries]

    monkeypatch.setattr(tiers.os, "scandir", scandir)
    assert tiers.chunk_files(tmp_path) == {"0.data": 0, "2.data": 2}


@pytest.mark.parametrize(
    ("name", "whose", "kind"), [("EIO", "candidate", "tier-failed"), ("EMFILE", "host", "populate-failed")]
)
def test_while_it_is_filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, whose: str, kind: str) -> None:
    monkeypatch.setattr(loop, "BASELINE", "nobody")
    run = RunDir(make_run(tmp_path, Truth(blocks=0, seal=False)))
    for file in run.path.glob("raw/*/populate.jsonl"):
        file.unlink()
    only_candidate = SCENARIO.model_copy(update={"arms": {"candidate": SCENARIO.arms["candidate"]}})
    fleet = Fleet(tmp_path)
    monkeypatch.setattr(tiers.os, "scandir", failing(tmp_path / "tier", name))
    one = loop.Settings(only_candidate, LOOKS, 1, 256, 1, 1024, True)
    with pytest.raises(loop.AbortedError, match="cannot be listed"):
        loop._populate(run, fleet, one, [[]], quiet())
    assert [(i["whose"], i["kind"]) for i in Run(run.path).incidents()] == [(whose, kind)]


@pytest.mark.parametrize(("fault", "raises"), [("EIO", True), ("EMFILE", False), (None, False)])
def test_a_file_that_cannot_be_read_once_it_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str | None, raises: bool
) -> None:
    """Not to be found out hours later. What kept us from looking is told of the record, by the judge."""
    run = RunDir(make_run(tmp_path, Truth(blocks=0, seal=False)))
    (run.path / "raw/candidate/populate.jsonl").unlink()
    arm = live(tmp_path, "candidate")
    arm.tier_folder.mkdir()

    def send(*_args: Any) -> list[Any]:
        (arm.tier_folder / "a.data").write_bytes(b"x")
        return [{"status": "ok", "error": None}]

    monkeypatch.setattr(client, "run_wave", send)
    found = {"hashes": {"a.data": None}, "bytes": {"a.data": None}, "faults": {"a.data": fault} if fault else {}}
    monkeypatch.setattr(populate.chunks, "look", lambda *_args: found)
    (prompt,) = prompt_set(1, 0, 1, 256, 1024)
    with (
        pytest.raises(tiers.TierFailed, match=r"a.data: just stored, and cannot be read \(EIO\)")
        if raises
        else (contextlib.nullcontext())
    ):
        populate.populate(run, arm, [[prompt]], 256, 1, 1.0, 1)
    assert [line["chunks"]["faults"] for line in Run(run.path).populated("candidate")] == [found["faults"]]


@pytest.mark.parametrize(
    ("name", "whose", "kind"), [("ESTALE", "candidate", "tier-failed"), ("EACCES", "host", "populate-lost")]
)
def test_when_a_run_is_taken_up_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, whose: str, kind: str
) -> None:
    run = RunDir(make_run(tmp_path, Truth(blocks=1, seal=False)))
    only_candidate = SCENARIO.model_copy(update={"arms": {"candidate": SCENARIO.arms["candidate"]}})
    fleet = Fleet(tmp_path)
    monkeypatch.setattr(tiers.os, "scandir", failing(tmp_path / "tier", name))
    with pytest.raises(loop.AbortedError):
        loop._still_stored(run, fleet, loop.Settings(only_candidate, LOOKS, 1, 256, 1, 1024, True), quiet())
    assert [(i["whose"], i["kind"]) for i in Run(run.path).incidents()] == [(whose, kind)]
    with pytest.raises(tiers.TierFailed if whose == "candidate" else populate.PopulateFailed):
        populate.still_there(run, live(tmp_path, "candidate"))


def test_a_folder_that_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The start fails; whether the arm has a part in it, the error says."""
    for name, whose in (("EIO", "candidate"), ("EACCES", "host"), ("ENOSPC", "host")):

        def mkdir(path: Path, *_args: Any, name: str = name, **_more: Any) -> None:
            raise OSError(getattr(errno, name), os.strerror(getattr(errno, name)), str(path))

        with monkeypatch.context() as patched:
            patched.setattr(Path, "mkdir", mkdir)
            with pytest.raises(StartFailed, match="the tier's folder /srv/tier cannot be used") as failed:
                engine._make(Path("/srv/tier"))
        run = RunDir(make_run(tmp_path / name, Truth(blocks=1, seal=False)))
        loop._start_failed(run, failed.value, "candidate", 2)
        assert [(i["whose"], i["kind"], i["arm"]) for i in Run(run.path).incidents()] == [
            (whose, "start-failed", "candidate")
        ]


def test_a_port_that_somebody_holds_is_the_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "port_is_free", lambda _port: False)
    with pytest.raises(StartFailed) as failed:
        engine._ports((8000, "engine.port"))
    assert failed.value.whose == "host"


def test_before_a_run_it_is_a_refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_args: Any) -> Iterator[preflight.Finding]:
        raise OSError(errno.EIO, "Input/output error", "/mnt/fx100")

    monkeypatch.setattr(preflight, "_rooms", gone)
    told = preflight.refusal(f for f in preflight.look(SITE, SCENARIO, tmp_path, tmp_path) if f.name == "files")
    assert told == "/mnt/fx100: Input/output error: mend it, or correct the site file"


def test_one_word_for_the_same_error_everywhere() -> None:
    """What is the tier's own is nothing that the host is blamed for, and every word is one of the kernel's."""
    assert not tiers.OF_THE_TIER & set(HOSTS)
    assert all(isinstance(getattr(errno, name), int) for name in tiers.OF_THE_TIER)
