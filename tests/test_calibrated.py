"""A calibration must be this run's own: every way in which it could be another's, or could not have happened, is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gates import validity, verdict
from gates.validity.calibrated import check_calibrated
from gates.validity.digest import digests
from tests.synthetic import make_run
from tests.synthetic_truth import Truth, only, put
from workloads import calibrate
from workloads.evidence import Run, RunDir
from workloads.prompts import prompt_set

Json = dict[str, Any]
FIRST = "calibration-c2-w0-0"
MS = 1_000_000


def told(folder: Path, **truth: Any) -> list[str]:
    found = validity.check_run(Run(make_run(folder, Truth(blocks=1, **truth))))
    assert all(b.whose in ("harness", "host") for b in found)
    return [b.reason for b in found]


def moved(by_ns: int, *keys: str) -> Any:
    return lambda record: record.update({key: record[key] + by_ns for key in keys})


STAMPS = ("t_intended_ns", "t_sent_ns", "t_first_ns", "t_last_ns")


def served_later(by_ns: int) -> Any:
    def change(line: Json) -> None:
        line["t_received_ns"] += by_ns
        line["t_sent_ns"] = [stamp + by_ns for stamp in line["t_sent_ns"]]

    return change


FAULTS: dict[str, tuple[Json, str]] = {
    "another clock": ({"calibration": put(clock="kernel")}, "stamped by the clock kernel, the trials by user"),
    "two clocks": ({"calibration": only({"id": FIRST}, put(clock="kernel"))}, "stamped by the clock kernel and user, the trials by user"),
    "another id": ({"calibration": only({"id": FIRST}, put(id="calibration-c2-w9-0"))}, "request 0 of its calibration has the id"),
    "another step": ({"calibration": only({"id": FIRST}, put(step=4))}, "request 0 of its calibration has the step 4, not 2"),
    "another wave": ({"calibration": only({"id": FIRST}, put(wave=3))}, "request 0 of its calibration has the wave 3, not 0"),
    "prompts of another run": ({"calibration": only({"step": 4}, put(prompt_seed=7))}, "has the prompt_seed 7, not "),
    "shorter prompts": ({"calibration": put(prompt_tokens_expected=16)}, "prompt_tokens_expected 16, not 4096"),
    "lines of nobody": ({"server": only({"id": FIRST}, put(id="x"))}, "is not in the server's log"),
    "received before it was sent": ({"server": only({"id": FIRST}, lambda s: s.update(t_received_ns=s["t_received_ns"] - 2 * MS))}, "calibration-c2-w0-0: sent, received, answered and seen are not in this order"),
    "answered after it was seen": ({"server": only({"id": FIRST}, served_later(2 * MS))}, "are not in this order"),
    "answered before it was received": ({"server": only({"id": FIRST}, lambda s: s.update(t_received_ns=s["t_sent_ns"][0] + 2 * MS))}, "are not in this order"),
    "tokens back in time": ({"server": only({"id": FIRST}, lambda s: s["t_sent_ns"].reverse())}, "are not in this order"),
    "fewer tokens": ({"server": only({"id": FIRST}, lambda s: s["t_sent_ns"].pop())}, "the server sent 3 tokens, 4 ordered"),
    "of another boot": ({"calibration": moved(-(10**15), "clock_offset_ns"), "server": served_later(-(10**15))}, "the clock was stepped by 1000000000.0 ms between the calibration at concurrency 2 and "),
    "after the first trial": ({"calibration": moved(10**12, *STAMPS), "server": served_later(10**12)}, "after the first prompt was measured"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_calibration_that_is_not_this_runs_is_told(tmp_path: Path, name: str) -> None:
    truth, reason = FAULTS[name]
    found = told(tmp_path, **truth)
    assert any(reason in line for line in found), found


def test_requests_one_after_the_other_are_no_wave(tmp_path: Path) -> None:
    """What a client with one connection would show: it says nothing of its bias at a higher concurrency."""

    def one_by_one(by_ns: int) -> Any:
        def change(record: Json) -> None:
            wave, index = (int(part) for part in record["id"].rpartition("-w")[2].split("-"))
            delay_ns = (wave * 300 + index * 80) * MS if "-c4-" in record["id"] else 0
            if "t_received_ns" in record:
                served_later(delay_ns)(record)
            else:
                moved(delay_ns, *STAMPS)(record)

        return change

    found = told(tmp_path, calibration=one_by_one(MS), server=one_by_one(MS))
    assert any("wave 0 of its calibration was not sent at once" in line for line in found), found


def test_steps_and_waves_follow_one_another(tmp_path: Path) -> None:
    back = -5_000 * MS
    at_once = {
        "calibration": only({"step": 4}, moved(back, *STAMPS)),
        "server": lambda line: served_later(back)(line) if "-c4-" in line["id"] else None,
    }
    found = told(tmp_path / "a", **at_once)
    assert any("concurrency 4: was calibrated while concurrency 2 still was" in line for line in found), found
    same = {
        "calibration": only({"wave": 1}, moved(-90 * MS, *STAMPS)),
        "server": lambda line: served_later(-90 * MS)(line) if "-w1-" in line["id"] else None,
    }
    found = told(tmp_path / "b", **same)
    assert any("wave 1 of its calibration was sent before wave 0 had ended" in line for line in found), found


def test_lines_that_were_added_to_the_servers_log_are_told(tmp_path: Path) -> None:
    path = make_run(tmp_path, Truth(blocks=1, seal=False))
    run = RunDir(path)
    run.append("calibration/c2/server.jsonl", {"number": 100, "id": "more", "t_received_ns": 1, "t_sent_ns": [2]})
    found = [b.reason for b in validity.check_run(Run(path))]
    assert any("101 lines in the server's log, 100 requests in the client's" in line for line in found)


def test_a_calibration_of_another_run_never_passes(tmp_path: Path) -> None:
    result = verdict.judge(Run(make_run(tmp_path, Truth(calibration=put(prompt_seed=7)))))
    assert result["verdict"] == "INVALID"
    assert {row["verdict"] for row in result["criteria"]} == {"INVALID"}


def test_what_the_real_client_records_against_the_real_server_is_sound(tmp_path: Path) -> None:
    run = RunDir(make_run(tmp_path, Truth(blocks=0, seal=False)))
    for file in run.path.glob("calibration/*/*"):
        file.unlink()
    calibrate.calibrate(run, [2, 4], prompt_set(1, 0, 4, 4096, 1024))
    for file in run.path.glob("raw/*/populate.jsonl"):
        file.unlink()  # which are of another boot
    found: list[str] = []
    recorded = Run(run.path)
    check_calibrated(
        recorded, [read.sketch() for _, read in digests(recorded)], lambda _check, _whose, reason: found.append(reason)
    )
    assert found == []
