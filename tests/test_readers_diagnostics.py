"""Vendor diagnostics: what was skipped or not run has not passed, and a verified platform proves no path."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gates.readers import diagnostics
from gates.readers.diagnostics import FAIL, NOT_RUN, PASS, SKIP, WARN
from tests.reader_samples import SAMPLES, Reader, refused, refuses_what_did_not_run, said, sample, survives


def v4(*tests: dict[str, Any], **root: Any) -> dict[str, Any]:
    return {
        "DCGM Diagnostic": {"test_categories": [{"category": "Hardware", "tests": list(tests)}], **root},
        "metadata": {"version": "4.2.3", "Driver Version Detected": "580.82.09"},
        "entity_groups": [{"entity_group": "GPU", "entity_group_id": 1, "entities": [{"entity_id": 0}]}],
    }


def ran(name: str, *statuses: str, summary: str | None = None, **more: Any) -> dict[str, Any]:
    results = [
        {"entity_group": "GPU", "entity_group_id": 1, "entity_id": entity, "status": status, **more}
        for entity, status in enumerate(statuses)
    ]
    end = {} if summary is None else {"test_summary": {"status": summary}}
    return {"name": name, **({"results": results} if results else {}), **end}


def diag(document: Any, status: int = 0) -> diagnostics.Diagnostic:
    return diagnostics.dcgm_diag(said(json.dumps(document), "dcgmi", "diag", "-r", "3", "-j", status=status))


def test_level_1_of_version_3() -> None:
    found = diagnostics.dcgm_diag(sample("dcgm/DCGMIDiag_r1_results.json"))
    assert found.passed and len(found.tests) == 9 and {test.category for test in found.tests} == {"Deployment"}


def test_level_3_of_version_3_holds_a_skipped_test() -> None:
    found = diagnostics.dcgm_diag(sample("dcgm/DCGMIDiag_r3_results.json"))
    assert not found.passed
    assert [(test.name, test.category) for test in found.of_status(SKIP)] == [("EUD Test", "Hardware")]
    assert len(found.of_status(PASS)) == len(found.tests) - 1 == 15
    (pcie,) = [test for test in found.tests if test.name == "PCIe"]
    assert "bidirectional bandwidth" in pcie.notes[0]


def test_a_list_in_place_of_the_result_is_no_form_of_dcgm() -> None:
    refused(diagnostics.dcgm_diag, sample("dcgm/DCGMIIncorrectresults.json"))


def test_version_4() -> None:
    found = diag(v4(ran("memory", PASS, PASS, summary=PASS), ran("pcie", PASS, PASS, summary=PASS)))
    assert found.passed and (found.version, found.driver) == ("4.2.3", "580.82.09")
    assert [test.passed_devices for test in found.tests] == [2, 2]


@pytest.mark.parametrize(
    ("test", "status"),
    [
        (ran("memory", PASS, FAIL, summary=FAIL), FAIL),
        (ran("memory", PASS, FAIL), FAIL),
        (ran("memory", PASS, SKIP, summary=PASS), SKIP),
        (ran("memory", summary=SKIP), SKIP),
        (ran("memory"), NOT_RUN),
        (ran("memory", PASS, "Not Run"), NOT_RUN),
        (ran("memory", PASS, WARN), WARN),
        (ran("memory", PASS, PASS, summary=FAIL), FAIL),
        (ran("memory", PASS, ""), NOT_RUN),
        (ran("memory", PASS, "Excellent"), "Excellent"),
        (ran("memory", "PASS"), PASS),
        (ran("memory", "Skipped"), SKIP),
    ],
)
def test_the_worst_of_all_devices_counts(test: dict[str, Any], status: str) -> None:
    found = diag(v4(ran("software", PASS), test), status=226)
    assert found.tests[1].status == status and found.passed is (status == PASS)


@pytest.mark.parametrize(
    ("warnings", "notes"),
    [
        ("no library", ("no library",)),
        (["one", "two", "one"], ("one", "two")),
        ([{"warning": "Persistence mode is off", "error_id": 29}], ("Persistence mode is off",)),
        ({"warning": "x"}, ("x",)),
        (7, ()),
    ],
)
def test_warnings_in_every_form(warnings: object, notes: tuple[str, ...]) -> None:
    assert diag(v4(ran("software", FAIL, warnings=warnings))).tests[0].notes == notes


def test_several_iterations() -> None:
    good = v4(ran("memory", PASS))
    assert diag({"iterations": [good, good], "Overall Result": "Pass"}).passed
    found = diag({"iterations": [good, v4(ran("memory", FAIL))], "Overall Result": "Pass"})
    assert not found.passed and len(found.tests) == 2
    given_up = diag({"iterations": [good], "Overall Result": "Fail", "Warning": "Timeout"})
    assert not given_up.passed and given_up.of_status(FAIL)[0].notes == ("Timeout",)
    refused(diagnostics.dcgm_diag, said(json.dumps({"iterations": [good, None], "Overall Result": "Fail"})))


@pytest.mark.parametrize(
    "document",
    [
        v4(),
        v4({"results": []}),
        v4(runtime_error="Error: Unable to complete diagnostic"),
        {"DCGM Diagnostic": {"version": "4.2.3", "runtime_error": "Error: Unsupported entities are indicated."}},
        {"DCGM Diagnostic": {"test_categories": []}},
        {"DCGM Diagnostic": {"test_categories": "none"}},
        {"DCGM Diagnostic": {"test_categories": [{"category": "Hardware", "tests": [None]}]}},
        {"iterations": [], "Overall Result": "Pass"},
        [],
        {},
    ],
)
def test_a_diagnostic_without_a_test_is_none(document: Any) -> None:
    refused(diagnostics.dcgm_diag, said(json.dumps(document)))


def test_health() -> None:
    found = diagnostics.dcgm_health(sample("dcgm/DCGMIHealthCheckResults.json"))
    assert (found.overall, found.incidents) == ("Healthy", ())
    entry = {"value": "Warning", "children": {"Errors": {"children": {"PCIe system": {"value": "Warning"}}}}}
    body = {"Overall Health": {"value": "Warning"}, "GPU": {"children": {"0": entry}}}
    found = diagnostics.dcgm_health(said(json.dumps({"body": body, "header": []})))
    assert (found.overall, found.incidents) == ("Warning", ("GPU 0: PCIe system: Warning",))
    refused(diagnostics.dcgm_health, said("Error: Health watches not enabled. Please enable watches. \n"))
    refused(diagnostics.dcgm_health, said('{"body": {}}'))


def test_discovery() -> None:
    (gpu,) = diagnostics.dcgm_discovery(sample("dcgm/DCGMIDiscoveryResults.txt"))
    assert (gpu.index, gpu.name, gpu.bus_id) == (0, "Tesla T4", "0001:00:00.0")
    text = sample("dcgm/DCGMIDiscoveryResults.txt").stdout.decode()
    newer = text.replace("1 GPU found.", "1 GPU found (Active).").replace(
        "| 0      | Name", "| 0      | Status: Active  |\n|        | Name"
    )
    assert diagnostics.dcgm_discovery(said(newer))[0].name == "Tesla T4"
    refused(diagnostics.dcgm_discovery, said(text.replace("1 GPU found", "8 GPUs found")))
    refused(diagnostics.dcgm_discovery, said("0 GPUs found.\n"))
    refused(diagnostics.dcgm_discovery, said("Error: Cannot get GPU list from remote node. Return: x\n"))


GDS = """\
 GDS release version: 1.14.0.30
 nvidia_fs version:  2.24 libcufile version: 2.12
 Platform: x86_64
 ============
 ENVIRONMENT:
 ============
 =====================
 DRIVER CONFIGURATION:
 =====================
 NVMe P2PDMA        : Unsupported
 NVMe               : Supported
 NVMeOF             : {nvmeof}
 NFS                : Unsupported
 Userspace RDMA     : Unsupported
 --Mellanox PeerDirect : Enabled
 --rdma library        : Not Loaded (libcufile_rdma.so)
 =====================
 CUFILE CONFIGURATION:
 =====================
 properties.use_pci_p2pdma : false
 properties.use_compat_mode : {compat}
 ==============
 PLATFORM INFO:
 ==============
 IOMMU: disabled
 Platform: AS -4124GS-TNR, Arch: x86_64(Linux 4.18.0)
 Platform verification succeeded
"""


def gds(nvmeof: str, compat: str = "true") -> diagnostics.GpuDirect:
    return diagnostics.gds(said(GDS.format(nvmeof=nvmeof, compat=compat), "gdscheck", "-p"))


@pytest.mark.parametrize(
    ("nvmeof", "direct"),
    [
        ("Supported", True),
        ("Unsupported", False),
        ("nvfs, compat", True),
        ("p2pdma, compat", True),
        ("c2c, nvfs, compat", True),
        ("compat", False),
        ("", None),
        ("perhaps", None),
        ("Supported, perhaps", None),
    ],
)
def test_gds_of_nvmeof(nvmeof: str, direct: bool | None) -> None:
    found = gds(nvmeof)
    assert found.paths["NVMeOF"] is direct and found.platform_verified is True
    assert found.paths["NVMe"] is True and found.paths["NVMe P2PDMA"] is False
    assert "--rdma library" not in found.paths


def test_gds_versions_and_modes() -> None:
    found = gds("Supported", "false")
    assert (found.release, found.nvidia_fs, found.compat_mode) == ("1.14.0.30", "2.24", False)
    text = GDS.format(nvmeof="Supported", compat="true").replace(" Platform verification succeeded\n", "")
    assert diagnostics.gds(said(text)).platform_verified is None


def test_a_verified_platform_alone_is_no_answer() -> None:
    text = GDS.format(nvmeof="Supported", compat="true")
    assert "NVMeOF" in refused(diagnostics.gds, said(text[text.index(" CUFILE") :]))
    assert "NVMeOF" in refused(diagnostics.gds, said(text.replace("NVMeOF", "SCSI")))


ALL = [
    (diagnostics.dcgm_diag, json.dumps(v4(ran("memory", PASS, FAIL, warnings=[{"warning": "x"}], summary=FAIL)))),
    (diagnostics.dcgm_diag, json.dumps({"iterations": [v4(ran("memory", PASS))], "Overall Result": "Pass"})),
    (diagnostics.dcgm_health, json.dumps({"body": {"Overall Health": {"value": "Healthy"}, "GPU": {"children": {}}}})),
    (
        diagnostics.dcgm_discovery,
        "1 GPU found.\n| 0      | Name: Tesla T4     |\n|        | PCI Bus ID: 00000001:00:00.0 |\n",
    ),
    (diagnostics.gds, GDS.format(nvmeof="Supported", compat="true")),
]


@pytest.mark.parametrize(("reader", "text"), ALL)
def test_any_bytes(reader: Reader, text: str) -> None:
    refuses_what_did_not_run(reader)
    survives(reader, said(text))


@pytest.mark.parametrize("path", sorted((SAMPLES / "dcgm").glob("*")), ids=lambda path: path.name)
def test_damaged_samples(path: Any) -> None:
    for reader in (diagnostics.dcgm_diag, diagnostics.dcgm_health, diagnostics.dcgm_discovery):
        survives(reader, sample(f"dcgm/{path.name}"))
