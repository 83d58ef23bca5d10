"""G1's checks never pass, nor fail, without data: what is not told, not known or not to be told apart is INVALID."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.arrival_judging import failed, judged
from tests.arrival_lab import PYTHON, SITE, Lab, files_of, smart
from workloads.bundle import of_files

SPOILT = {
    "missing": ("", 127, "sh: not found"),
    "timed out": ("", 124, ""),
    "nothing": ("", 0, ""),
    "an error with status 0": ("Error: permission denied\n", 0, ""),
    "another language": ("Fehler: Zugriff verweigert, Gerät nicht gefunden\n", 1, "Zugriff verweigert"),
    "JSON of another kind": ('{"error": "Permission denied"}', 0, ""),
}


@pytest.mark.parametrize("how", [*SPOILT, "half", "not collected"])
@pytest.mark.parametrize("command", Lab().outputs())
def test_a_command_that_tells_nothing_makes_nothing_pass_or_fail(command: str, how: str) -> None:
    outputs = Lab().outputs()
    whole = judged(Lab().bundle())
    if how == "not collected":
        del outputs[command]
    elif how == "half":
        printed, _, _ = outputs[command]
        outputs[command] = (printed[: len(printed) // 2], 0, "")
    else:
        outputs[command] = SPOILT[how]
    found = judged(of_files(files_of(outputs), Path("spoilt")))
    # A write that did not end, or was refused, is what there is to find.
    tried = command.startswith("dd ") and how != "missing"
    if not tried:
        assert failed(found) == set()
    assert set(found) == set(whole)
    told = {name for name, finding in found.items() if finding.verdict == "INVALID"}
    assert all(found[name].reason.startswith("no data: ") for name in told)
    if command not in TOLD_ELSEWHERE and how != "half" and not tried:
        assert told, "nothing depends on this command"


# What another command tells, too.
TOLD_ELSEWHERE = {
    "nvme list -o json", "nvme list -v -o json", "nvme list-subsys /dev/nvme1n2 -o json", "rdma -j link show", "lsblk -J -b -O",
    "mlnx_qos -i fab0", "dcb -j pfc show dev fab0", "dcb -j apptrust show dev fab0",
}  # fmt: skip


COMMANDS = list(Lab().outputs())


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_whatever_a_host_tells_no_check_raises(data: st.DataObject) -> None:
    outputs = Lab().outputs()
    for command in data.draw(st.lists(st.sampled_from(COMMANDS), min_size=1, max_size=4, unique=True)):
        printed, _, _ = outputs[command]
        begin = data.draw(st.integers(0, len(printed)))
        end = data.draw(st.integers(begin, min(len(printed), begin + 40)))
        printed = (
            printed[:begin]
            + data.draw(st.sampled_from(["", "null", "-1", "[]", "{}", '"', "0", "1e400", "é\n"]))
            + printed[end:]
        )
        outputs[command] = printed, data.draw(st.sampled_from([0, 0, 0, 1, 124, 127])), ""
    found = judged(of_files(files_of(outputs), Path("mutated")))
    assert all(finding.verdict in ("PASS", "FAIL", "INVALID") for finding in found.values())
    assert all(finding.found is not None for finding in found.values() if finding.verdict != "INVALID")


def test_no_data_of_one_drive_leaves_the_others_alone() -> None:
    lab = Lab()
    del lab.smart["L1"]["temperature"]
    found = judged(lab.bundle())
    assert {n for n, f in found.items() if f.verdict != "PASS"} == {"drives.local.temperature"}
    assert "L1" in found["drives.local.temperature"].reason


def test_a_fault_counts_before_what_is_not_known() -> None:
    lab = Lab()
    del lab.smart["L1"]["critical_warning"]
    lab.smart["L2"]["critical_warning"] = 1
    assert judged(lab.bundle())["drives.local.critical_warning"].verdict == "FAIL"


def test_a_blank_health_log_says_nothing() -> None:
    lab = Lab()
    lab.smart["L1"] = dict.fromkeys(smart(), 0)
    found = judged(lab.bundle())
    assert found["drives.local.critical_warning"].verdict == "INVALID"
    assert "L1" in found["drives.local.critical_warning"].reason


@pytest.mark.parametrize("status", ["Skip", "Not Run", "Warn", "???"])
def test_a_test_that_did_not_pass_is_no_pass(status: str) -> None:
    lab = Lab()
    lab.diag["Denylist"] = status
    found = judged(lab.bundle())
    assert {name for name, finding in found.items() if finding.verdict != "PASS"} == {"accelerators.gpus.diagnostics"}
    assert found["accelerators.gpus.diagnostics"].verdict == "INVALID"


OTHER_PYTHON = "/usr/bin/python3"


def test_which_python_is_meant_must_be_known() -> None:
    outputs = Lab().outputs()
    outputs[f"packages-of {OTHER_PYTHON}"] = ("vllm==0.31.0\n# 1 packages\n", 0, "")
    mixed = of_files(files_of(outputs), Path("mixed"))
    found = judged(mixed)
    of_python = {"software.packages.vllm", "software.modules.lmcache-v1-x.py", "software.native_ops"}
    assert {name for name, finding in found.items() if finding.verdict != "PASS"} == of_python
    assert all(found[name].verdict == "INVALID" and OTHER_PYTHON in found[name].reason for name in of_python)
    named = SITE.replace("[bom.software]\n", f'[bom.software]\npython = "{PYTHON}"\n')
    assert failed(judged(mixed, named)) == set() and judged(mixed, named)["software.packages.vllm"].verdict == "PASS"
    other = SITE.replace("[bom.software]\n", f'[bom.software]\npython = "{OTHER_PYTHON}"\n')
    assert failed(judged(mixed, other)) == {"software.packages.vllm"}
    nobody = SITE.replace("[bom.software]\n", '[bom.software]\npython = "/opt/other/python"\n')
    assert "no software of /opt/other/python was collected" in judged(mixed, nobody)["software.native_ops"].reason


def test_what_df_tells_of_one_file_system_alone_is_used() -> None:
    outputs = Lab().outputs()
    whole = outputs.pop("df -B1 --output")[0].splitlines()
    for line in whole[1:]:
        target = line.split()[-1]
        outputs[f"df -B1 --output {target}"] = (f"{whole[0]}\n{line}\n", 0, "")
    found = judged(of_files(files_of(outputs), Path("single")))
    assert {name for name, finding in found.items() if finding.verdict != "PASS"} == set()
