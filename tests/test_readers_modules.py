"""What is installed for a Python: versions, hashes, native libraries; half of a list is none."""

from __future__ import annotations

import json

import pytest

from gates.readers import modules
from tests.reader_samples import Reader, cuts, refused, refuses_what_did_not_run, said, survives

PACKAGES = "Jinja2==3.1.6\nvllm==0.32.0+rocm64\n# 2 packages\n"
HASHES = (
    f"# lmcache is /opt/v/lmcache\n{'a' * 64}  7  lmcache/__init__.py\n{'b' * 64}  0  lmcache/v1/a b.py\n"
    f"# vllm is /opt/v/vllm\n{'c' * 64}  9  vllm/x.py\n# 3 files\n"
)
NATIVES = json.dumps(
    {
        "modules": ["lmcache"],
        "torch": {"version": "2.9.0"},
        "libraries": [
            {
                "file": "lmcache/c_ops.so",
                "built_for": ["rocm"],
                "sha256": "",
                "loads": False,
                "error": "ImportError: x",
            },
            {"file": "lmcache/fs.so", "built_for": [], "sha256": "", "loads": True},
        ],
    }
)
READERS = ((modules.packages, PACKAGES), (modules.hashes, HASHES), (modules.natives, NATIVES))


def test_packages() -> None:
    assert modules.packages(said(PACKAGES)) == {"jinja2": "3.1.6", "vllm": "0.32.0+rocm64"}
    assert modules.packages(said("# 0 packages\n")) == {}
    refused(modules.packages, said("a==1\na==2\n# 2 packages\n"))
    refused(modules.packages, said("a==1\nA==1\n# 2 packages\n"))
    refused(modules.packages, said("hello world\n# 1 packages\n"))


def test_hashes() -> None:
    found = modules.hashes(said(HASHES))
    assert found.folders == {"lmcache": ("/opt/v/lmcache",), "vllm": ("/opt/v/vllm",)}
    assert found.sha256["lmcache/v1/a b.py"] == "b" * 64
    refused(modules.hashes, said(f"{'a' * 64}  7  m/x\n{'b' * 64}  7  m/x\n# 2 files\n"))
    assert modules.hashes(said("# 0 files\n")).folders == {}


def test_native_libraries() -> None:
    found = modules.natives(said(f"a line that an import printed\n\n{NATIVES}\n"))
    assert found.modules == ("lmcache",)
    assert found.libraries[0] == modules.Library("lmcache/c_ops.so", frozenset({"rocm"}), False, "ImportError: x")
    for part in ('"loads": true', '"built_for": []', '"modules": ["lmcache"]'):
        refused(modules.natives, said(NATIVES.replace(part, '"x": 1')))


@pytest.mark.parametrize(("reader", "text"), READERS, ids=("packages", "hashes", "natives"))
def test_nothing_else_and_nothing_cut(reader: Reader, text: str) -> None:
    refuses_what_did_not_run(reader)
    survives(reader, said(text))
    assert [at for at, _ in cuts(reader, "x", text.encode()) if at < len(text.strip())] == []
