"""A start that was cut off stays as it is: nothing that a later session starts writes into its sealed logs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gates import criteria
from scenarios import fleet
from scenarios.load import Loaded, load_scenario, load_site
from tests.synthetic import make_run
from tests.synthetic_truth import Truth
from workloads import gate_run
from workloads import run as loop
from workloads.evidence import RunDir, verify
from workloads.progress import Progress

SITE = load_site("rehearsal")
SCENARIO = load_scenario("rehearsal", SITE)
EXCLUSIVE = Loaded(
    SITE.value.model_copy(update={"engine": SITE.value.engine.model_copy(update={"policy": "exclusive"})}),
    SITE.path,
    SITE.origins,
)


def request(site: Any, runs: Path) -> gate_run.Request:
    return gate_run.Request(
        gate="g3", kind="gate", site=site, scenario=SCENARIO, runs=runs, criteria_file=criteria.default_file("g3"),
        baseline_record=None, looks={"blocks": [5, 8, 12], "alpha": [0.01, 0.015, 0.025]}, seed=1, nonce=None,
        selection={"collected": 1, "selected": 1}, overrides={},
    )  # fmt: skip


def session(path: Path, site: Any, patch: pytest.MonkeyPatch, interrupted: bool) -> None:
    """Start the candidate once, as the loop does, and stop; an interruption comes while its engine starts."""

    def bring_up(plan: Any, logs: Path, start: int, *_more: Any) -> Any:
        with (logs / "engine.log").open("ab") as log:  # as the keeper opens it
            log.write(b"loading model\n")
        if interrupted:
            raise KeyboardInterrupt
        facts = {"arm": plan.name, "start": start}
        return SimpleNamespace(name=plan.name, start=start, facts=facts, stop=lambda: None)

    @contextlib.contextmanager
    def running(*args: Any) -> Iterator[Any]:
        yield bring_up(*args)

    def measure(_run: Any, arms: fleet.Fleet, *_args: Any) -> None:
        with arms.arm("candidate"):
            pass

    patch.setattr(fleet, "running", running)
    patch.setattr(fleet, "bring_up", bring_up)
    patch.setattr(loop, "measure", measure)
    recorded = RunDir(path)
    plans: Any = {"candidate": SimpleNamespace(name="candidate")}
    with contextlib.suppress(KeyboardInterrupt):
        gate_run._measure(
            request(site, path.parent),
            recorded,
            plans,
            lambda *_a: [],
            lambda *_a: "",
            Progress(lambda _l: None, False),
            None,
        )
    recorded.seal("end")


@pytest.mark.parametrize(("site", "first"), [(EXCLUSIVE, 5), (SITE, 2)], ids=["exclusive", "resident"])
def test_each_start_has_a_folder_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, site: Any, first: int
) -> None:
    """A lab's has been populated and measured in three blocks, a rehearsal was started once."""
    path = make_run(tmp_path, replace(Truth(blocks=3), rehearsal=site is SITE))
    cut_off, after = (path / f"raw/candidate/start-{first + n:02d}" for n in range(2))
    session(path, site, monkeypatch, interrupted=True)
    assert [file.name for file in cut_off.iterdir()] == ["engine.log"]
    assert not after.exists() and verify(path) == []
    session(path, site, monkeypatch, interrupted=False)
    assert (cut_off / "engine.log").read_bytes() == b"loading model\n"
    assert sorted(file.name for file in after.iterdir()) == ["engine.log", "start.json"]
    assert verify(path) == []


def test_a_folder_that_is_there_is_never_written_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make_run(tmp_path, Truth(blocks=3, rehearsal=False))
    monkeypatch.setattr(gate_run, "starts_begun", lambda *_args: 3)  # the fourth is measured and sealed
    with pytest.raises(FileExistsError):
        session(path, EXCLUSIVE, monkeypatch, interrupted=False)
