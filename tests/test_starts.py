"""Each start is its arm's own, and a lab run starts every arm anew for each block: what is not so is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gates import validity, verdict
from scenarios.load import load_site
from scenarios.tiers import adapter_config
from tests.synthetic import make_run
from tests.synthetic_truth import Truth, only, put
from workloads.evidence import Run

Json = dict[str, Any]
CANDIDATE = {"arm": "candidate"}


def told(folder: Path, check: str, **truth: Any) -> list[str]:
    truth = {"blocks": 1, **truth}
    found = validity.check_run(Run(make_run(folder, Truth(**truth))))
    assert all(b.whose in ("harness", "host") for b in found)
    return [b.reason for b in found if b.check == check]


def adapter(tier: str, folder: str) -> str:
    return json.dumps(adapter_config(load_site("rehearsal").value.tiers[tier], Path(folder)))


def as_baseline(facts: Json) -> None:
    """The candidate's start.json with what the baseline's own process was started with."""
    facts["lmcache"]["argv"][-1] = adapter("local-nvme", "/srv/runs/r/local-nvme")


def slower(facts: Json) -> None:
    config = json.loads(facts["lmcache"]["argv"][-1])
    config["adapter_params"]["read_bytes_per_s"] = 1
    facts["lmcache"]["argv"][-1] = json.dumps(config)


def at_port(port: int) -> Any:
    return lambda f: f["engine"]["argv"].__setitem__(-1, f["engine"]["argv"][-1].replace("1203", str(port)))


FAULTS: dict[str, tuple[Any, str]] = {
    "the baseline's engine": (lambda f: f["engine"].update(pid=1102, pid_started=15), "engine of candidate/start-01 is the very process (1102, 15) that is engine of baseline/start-01"),
    "the baseline's LMCache": (lambda f: f["lmcache"].update(pid=1103, pid_started=16), "lmcache of candidate/start-01 is the very process (1103, 16) that is lmcache of baseline/start-01"),
    "the baseline's adapter": (as_baseline, "candidate/start-01: LMCache was started with "),
    "the baseline's path": (lambda f: f["tier"].update(path="/srv/runs/r/local-nvme"), "its tier lies in /srv/runs/r/local-nvme, 'fx100' is the site's 'fx100'"),
    "the baseline's folder, by LMCache itself": (lambda f: f["lmcache_config"]["storage_manager"]["l2_adapter_config"]["adapters"][0].update(base_path="/srv/runs/r/local-nvme"), "LMCache says that it keeps its chunks in /srv/runs/r/local-nvme, not in /srv/runs/r/fx100"),
    "not configured, by its word": (put(lmcache_config=None), "candidate/start-01: no data on LMCache's configuration"),
    "another medium": (slower, "where the site has "),
    "a second adapter": (lambda f: f["lmcache"]["argv"].extend(["--l2-adapter", adapter("local-nvme", "/x")]), "arguments, "),
    "an adapter in one word": (lambda f: f["lmcache"]["argv"].append("--l2-adapter=" + adapter("local-nvme", "/x")), "arguments, "),
    "connected to the baseline's LMCache": (at_port(1103), "the engine was started with"),
    "another model": (lambda f: f["engine"]["argv"].__setitem__(f["engine"]["argv"].index("kvgate-toy"), "small"), "the engine was started with 'small' where the site has 'kvgate-toy'"),
    "of another folder": (put(arm="baseline"), "candidate/start-01: its start.json is of arm 'baseline', start 1"),
    "of another number": (put(start=2), "candidate/start-01: its start.json is of arm 'candidate', start 2"),
    "ready before it began": (put(ready_s=-30.0), "ready after -30.0 s, which no start is"),
    "ready at no time": (put(ready_s=None), "ready after None s"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_start_that_is_not_the_arms_own_is_told(tmp_path: Path, name: str) -> None:
    change, reason = FAULTS[name]
    found = told(tmp_path, "starts", start=only(CANDIDATE, change))
    assert any(reason in line for line in found), found


def test_an_adapter_that_all_arms_add_to_the_sites_is_told(tmp_path: Path) -> None:
    """Arms with the same second adapter differ in nothing that is compared, and serve from the same place."""
    more = adapter("local-nvme", "/x")

    def add(facts: Json) -> None:
        if facts["lmcache"] is not None:
            facts["lmcache"]["argv"] += ["--l2-adapter", more]

    found = told(tmp_path, "starts", start=add)
    assert len([line for line in found if "by the site" in line]) == 2


def test_tiers_within_each_other_are_told(tmp_path: Path) -> None:
    def nested(facts: Json) -> None:
        path = "/srv/runs/r/local-nvme/fx100"
        facts["lmcache"]["argv"][-1] = adapter("fx100", path)
        facts["lmcache_config"] = None
        facts["tier"]["path"] = path

    found = told(tmp_path, "starts", start=only(CANDIDATE, nested))
    assert [line for line in found if "do not lie apart" in line]


def test_a_process_number_of_two_arms_at_once_is_told_whenever_it_was_started(tmp_path: Path) -> None:
    found = told(
        tmp_path,
        "starts",
        start=only(CANDIDATE, lambda f: f["engine"].update(pid=1102, pid_started=99)),
        blocks=2,
    )
    assert any("were up at the same time with the same process 1102" in line for line in found), found


def test_the_candidate_in_the_baselines_place_never_passes(tmp_path: Path) -> None:
    """All of it at once: processes, adapter and path are the baseline's, and snapshots say so, too."""

    def process(facts: Json) -> None:
        facts["engine"].update(pid=1102, pid_started=15)
        facts["lmcache"].update(pid=1103, pid_started=16)
        facts["tier"]["path"] = "/srv/runs/r/local-nvme"
        as_baseline(facts)

    seen = put(engine_pid=1102, engine_pid_started=15, lmcache_pid=1103, lmcache_pid_started=16)
    path = make_run(tmp_path, Truth(start=only(CANDIDATE, process), snapshot=only(CANDIDATE, seen)))
    assert verdict.judge(Run(path))["verdict"] == "INVALID"


def resident(facts: Json) -> None:
    facts["site"]["engine"]["policy"] = "resident"


def test_a_lab_run_that_starts_every_arm_anew_is_sound(tmp_path: Path) -> None:
    path = make_run(tmp_path, Truth(blocks=2, rehearsal=False))
    assert validity.check_run(Run(path)) == []
    assert len(Run(path).starts("candidate")) == 3  # one to store, one for each block


def test_a_lab_run_with_resident_engines_is_invalid(tmp_path: Path) -> None:
    result = verdict.judge(Run(make_run(tmp_path / "a", Truth(rehearsal=False, run=resident))))
    assert (result["verdict"], result["acceptance"]) == ("INVALID", False)
    assert any("do not sample the variance between engine starts" in reason for reason in result["reasons"])
    assert told(tmp_path / "b", "policy") == []  # a rehearsal may


def test_exclusive_starts_that_are_not_anew_are_told(tmp_path: Path) -> None:
    again = only({"arm": "candidate", "block": 2}, put(start=2))
    found = told(tmp_path / "a", "policy", blocks=2, rehearsal=False, trial=again)
    assert found == ["start 2 of 'candidate' was measured in the blocks 1, 2: each needs its own"]
    mixed = only({"arm": "candidate", "block": 2, "step": 4}, put(start=2))
    found = told(tmp_path / "b", "policy", blocks=2, rehearsal=False, trial=mixed)
    assert "block 2: 'candidate' was measured in 2 starts, one expected" in found
    stored = only({"arm": "candidate"}, put(start=2))
    found = told(tmp_path / "c", "policy", blocks=1, rehearsal=False, populate=stored)
    assert found == ["start 2 of 'candidate' stored prompt sets and was measured, too"]
    earlier = only({"arm": "candidate", "start": 2}, lambda f: f["engine"].update(pid_started=3))
    found = told(tmp_path / "d", "policy", blocks=1, rehearsal=False, start=earlier)
    assert found == [
        "start 2 of 'candidate' began at 3 ticks, start 1 before it at 15: they are not one after the other"
    ]


@pytest.mark.parametrize("said", [{"dirty": True}, {"dirty": None}, {"commit": None}])
def test_a_changed_suite_accepts_nothing_and_changes_no_verdict(tmp_path: Path, said: Json) -> None:
    result = verdict.judge(Run(make_run(tmp_path, Truth(rehearsal=False, run=lambda f: f["suite"].update(said)))))
    assert (result["verdict"], result["acceptance"]) == ("PASS", False)
    assert result["reasons"] == [
        "no acceptance: the suite was changed (dirty tree), or is of no known commit: nobody can look up its code"
    ]
