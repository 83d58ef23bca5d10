"""What a host runs: kernel, distribution, processor, memory, modules, packages, versions of tools."""

from __future__ import annotations

import json

import pytest

from gates.readers import versions
from tests.reader_samples import SAMPLES, Reader, of_lab, refused, refuses_what_did_not_run, said, sample, survives

CPU = (
    "Architecture:        aarch64\nCPU(s):              192\nSocket(s):           -\nModel name:          Kunpeng-920\n"
)


@pytest.mark.parametrize(
    ("text", "release", "build", "machine"),
    [
        (
            "Linux cn01 6.1.0-57-amd64 #1 SMP PREEMPT_DYNAMIC Debian 6.1.192-3 (2026-11-26) x86_64 GNU/Linux\n",
            "6.1.0-57-amd64",
            "#1 SMP PREEMPT_DYNAMIC Debian 6.1.192-3 (2026-11-26)",
            "x86_64",
        ),
        (
            "Linux n1 4.19.36-vhulk1907.1.0.h1665.eulerosv2r8.aarch64 #1 SMP Sun Nov 10 aarch64 aarch64 aarch64 GNU/Linux\n",
            "4.19.36-vhulk1907.1.0.h1665.eulerosv2r8.aarch64",
            "#1 SMP Sun Nov 10",
            "aarch64",
        ),
        ("Linux n1 6.6.1 #1-Alpine SMP x86_64 Linux\n", "6.6.1", "#1-Alpine SMP", "x86_64"),
        ("5.14.0-427.13.1.el9_4.x86_64\n", "5.14.0-427.13.1.el9_4.x86_64", None, None),
    ],
)
def test_kernels(text: str, release: str, build: str | None, machine: str | None) -> None:
    found = versions.kernel(said(text))
    assert (found.release, found.build, found.machine) == (release, build, machine)
    assert found.host == (text.split()[1] if text.startswith("Linux") else None)


def test_distributions() -> None:
    text = 'NAME="openEuler"\nVERSION_ID="22.03"\nID="openEuler"\nPRETTY_NAME=\'openEuler 22.03 (LTS-SP3)\'\n# x\n'
    wanted = versions.Distribution("openEuler", "22.03", "openEuler 22.03 (LTS-SP3)")
    assert versions.distribution(said(text)) == wanted
    assert versions.distribution(said("ID=arch\n")).version_id is None
    assert versions.distribution(said('ID=x\nVERSION_ID="1\n')).id == "x"
    refused(versions.distribution, said("NAME=x\n"))


def test_processors() -> None:
    found = versions.processor(said(CPU + "NUMA node(s): 8\nFlags: fp asimd\n"))
    assert (found.architecture, found.model, found.cpus, found.sockets) == ("aarch64", "Kunpeng-920", 192, None)
    assert (found.numa_nodes, found.flags) == (8, {"fp", "asimd"})
    nested = [
        {"field": "Architecture:", "data": "x86_64", "children": [{"field": "Byte Order:", "data": "Little Endian"}]},
        {"field": "CPU(s):", "data": "2"},
        {"field": "Vendor ID:", "data": "x", "children": [{"field": "Model name:", "data": "EPYC", "children": []}]},
    ]
    found = versions.processor(said(json.dumps({"lscpu": nested})))
    assert (found.architecture, found.cpus, found.model, found.flags) == ("x86_64", 2, "EPYC", None)
    assert "LC_ALL=C" in refused(versions.processor, said("Architektur: x86_64\nCPU(en): 2\n"))
    refused(versions.processor, said('{"lscpu": [{"field": "CPU(s):", "data": "two"}]}'))
    refused(versions.processor, said('{"lscpu": {}}'))


def test_memory() -> None:
    text = "MemTotal:        2974840 kB\nMemAvailable:    2645412 kB\nHugePages_Total:      16\nHugepagesize:       2048 kB\n"
    assert versions.memory(said(text)) == versions.Memory(2974840 * 1024, 2645412 * 1024, 16, 2048 * 1024)
    refused(versions.memory, said("MemFree: 1 kB\n"))
    refused(versions.memory, said("MemTotal:        29748"))  # cut off within the number
    refused(versions.memory, said("MemTotal:        0 kB\n"))


@pytest.mark.parametrize(
    "text",
    [
        "Package    Version\n---------- -------\nvLLM       0.8.5\ntorch_npu  2.5.1+cpu\n",
        "vllm==0.8.5\ntorch-npu==2.5.1+cpu\n",
        '[{"name": "vllm", "version": "0.8.5"}, {"name": "Torch.NPU", "version": "2.5.1+cpu"}]\n',
        "WARNING: pip is being invoked by an old script wrapper.\nvllm==0.8.5\ntorch-npu==2.5.1+cpu\n",
    ],
)
def test_packages_in_every_form(text: str) -> None:
    assert versions.packages(said(text)) == {"vllm": "0.8.5", "torch-npu": "2.5.1+cpu"}


def test_packages_without_a_version() -> None:
    text = (
        "-e git+ssh://git@srv/x@0123#egg=lmcache\n"
        "vllm @ file:///srv/vllm-0.8.5.whl\n"
        "# Editable install with no version control (kvgate==0.1.0)\n"
        "aiohttp[speedups]==3.9\n"
    )
    found = versions.packages(said(text))
    assert found == {"lmcache": None, "vllm": None, "kvgate": "0.1.0", "aiohttp": "3.9"}
    editable = "Package Version Editable project location\n------- ------- -----\nkvgate  0.1.0   /srv/kvgate\n"
    assert versions.packages(said(editable)) == {"kvgate": "0.1.0"}
    refused(versions.packages, said("Package Version\n------- -------\n"))


def test_modules() -> None:
    text = "filename:       /lib/modules/6.1/x.ko.xz\nversion:        23.10-0.5.5\nsrcversion:     0A1B\nvermagic:       6.1.0 SMP mod_unload\nname:           mlx5_core\n"
    assert versions.module(said(text)) == versions.ModuleInfo("mlx5_core", "23.10-0.5.5", "6.1.0", "0A1B")
    assert versions.module(said("filename: /lib/x.ko\nname: nvme\n")).version is None
    refused(versions.module, said("", status=1, stderr=b"modinfo: ERROR: Module x not found.\n"))
    assert versions.modules(said("nvme_rdma 45056 0 - Live 0x0\n")) == {"nvme_rdma"}
    assert versions.modules(said("Module                  Size  Used by\n")) == frozenset()


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("fio-3.33\n", "3.33"),
        ("fio-3.36-5-gb1a2c\n", "3.36-5-gb1a2c"),
        ("nvme version 2.3 (git 2.3)\nlibnvme version 1.3 (git 1.3)\n", "2.3"),
        ("nvme version 1.12\n", "1.12"),
        ("smartctl 7.3 2022-02-28 r5338 [x86_64-linux-6.1.0-57-amd64] (local build)\n", "7.3"),
        ("ethtool version 6.1\n", "6.1"),
        ("ip utility, iproute2-6.1.0, libbpf 1.1.0\n", "6.1.0"),
        ("lspci version 3.9.0\n", "3.9.0"),
        ("MLNX_OFED_LINUX-23.10-0.5.5.0:\n", "23.10-0.5.5.0"),
        ("6.2.0-66\n", "6.2.0-66"),
        ("Python 3.11.2\n", "3.11.2"),
        ("535.161.07\n", "535.161.07"),
        ("INFO 11-30 10:00:00 [__init__.py:239] Found platform 1.2\n0.8.5.post1\n", "0.8.5.post1"),
        ("dcgmi  version: 3.3.5\n", "3.3.5"),
        ("v1.14.2\n", "1.14.2"),
    ],
)
def test_versions_that_tools_print(text: str, version: str) -> None:
    assert versions.version(said(text)) == version


@pytest.mark.parametrize("text", ["no version here\n", "1\n", "...\n", "x86_64\n"])
def test_no_version_is_no_version(text: str) -> None:
    refused(versions.version, said(text))


def test_a_version_of_a_failed_command_is_none() -> None:
    refused(versions.version, said("bash 5.2.15: line 1: x\n", status=1))


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (
            "AMDSMI Tool: 24.6.2+2b02a07 | AMDSMI Library version: 24.6.2.0 | ROCm version: 6.2.0\n",
            {"amd-smi": "24.6.2+2b02a07", "amdsmi": "24.6.2.0", "ROCm": "6.2.0"},
        ),
        (
            '[{"tool": "AMDSMI Tool", "version": "24.6.2", "amdsmi_library_version": "24.6.2.0", "rocm_version": "6.2.0"}]',
            {"version": "24.6.2", "amdsmi_library_version": "24.6.2.0", "rocm_version": "6.2.0"},
        ),
        (
            "NVIDIA-SMI version  : 550.54.14\nNVML version        : 550.54\nDRIVER version      : 550.54.14\nCUDA Version        : 12.4\n",
            {"NVIDIA-SMI": "550.54.14", "driver": "550.54.14", "CUDA": "12.4"},
        ),
        (
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.161.07  Sat Feb 17 22:55:48 UTC 2024\n",
            {"NVRM": "535.161.07"},
        ),
        ("Cuda compilation tools, release 12.4, V12.4.131\n", {"nvcc": "12.4.131"}),
        (
            "package_name=Ascend-cann-toolkit\nversion=8.0.RC2\ninnerversion=V100R001C18SPC001\n",
            {"version": "8.0.RC2", "innerversion": "V100R001C18SPC001"},
        ),
        ("runtime_running_version=[7.3.0.1.231:8.0.RC2]\n", {"runtime_running_version": "7.3.0.1.231:8.0.RC2"}),
        ("Version=24.1.rc2\n", {"version": "24.1.rc2"}),
        (
            "| npu-smi 24.1.rc2                 Version: 24.1.rc2            |\n",
            {"npu-smi": "24.1.rc2", "npu-driver": "24.1.rc2"},
        ),
        ("nvme version 2.3 (git 2.3)\nlibnvme version 1.3 (git 1.3)\n", {"nvme-cli": "2.3", "libnvme": "1.3"}),
    ],
)
def test_versions_by_name(text: str, named: dict[str, str]) -> None:
    assert versions.versions(said(text)) == named


def test_versions_of_the_samples() -> None:
    for path in sorted((SAMPLES / "gpu-nvidia").glob("*.table.txt")):
        found = versions.versions(sample(f"gpu-nvidia/{path.name}"))
        assert found["driver"] in path.name and found["CUDA"].startswith("13.")
    refused(versions.versions, said("NVIDIA-SMI has failed because it couldn't communicate with the driver.\n"))


def test_the_lab() -> None:
    for _, output in of_lab("uname -a"):
        assert versions.kernel(output).release == "6.1.0-57-amd64"
    for _, output in of_lab("cat /etc/os-release"):
        assert versions.distribution(output) == versions.Distribution("debian", "12", "Debian GNU/Linux 12 (bookworm)")
    told = [versions.processor(output) for command in ("lscpu", "lscpu -J") for _, output in of_lab(command)]
    assert len(told) == 2 and told[0] == told[1]
    assert (told[0].cpus, told[0].numa_nodes, told[0].threads_per_core) == (2, 1, 1)
    for _, output in of_lab("cat /proc/meminfo"):
        assert versions.memory(output).total_bytes == 2974840 * 1024
    for _, output in of_lab("lsmod"):
        assert {"nvme_rdma", "rdma_rxe"} <= versions.modules(output) and "Module" not in versions.modules(output)
    wanted = {"fio --version": "3.33", "smartctl -V": "7.3", "nvme version": "2.3"}
    seen = {command: versions.version(output) for command in wanted for _, output in of_lab(command)}
    assert seen == wanted


ALL = [
    (versions.kernel, "Linux cn01 6.1.0-57-amd64 #1 SMP Debian x86_64 GNU/Linux\n"),
    (versions.distribution, 'ID=debian\nVERSION_ID="12"\n'),
    (versions.processor, CPU),
    (versions.processor, '{"lscpu": [{"field": "CPU(s):", "data": "2", "children": [{"field": "a", "data": "b"}]}]}'),
    (versions.memory, "MemTotal:        2974840 kB\nHugePages_Total:      16\n"),
    (versions.packages, "vllm==0.8.5\n"),
    (versions.packages, '[{"name": "vllm", "version": "0.8.5"}]'),
    (versions.module, "filename: /lib/x.ko\nname: nvme\n"),
    (versions.modules, "Module                  Size  Used by\nnvme 1 0\n"),
    (versions.version, "fio-3.33\n"),
    (versions.versions, "NVIDIA-SMI 590.48.01              Driver Version: 590.48.01      CUDA Version: 13.1\n"),
    (versions.versions, '[{"version": "24.6.2", "rocm_version": "6.2.0"}]'),
]


@pytest.mark.parametrize(("reader", "text"), ALL)
def test_any_bytes(reader: Reader, text: str) -> None:
    refuses_what_did_not_run(reader)
    survives(reader, said(text))
