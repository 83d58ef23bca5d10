"""The collector is one file that runs under whatever Python a host has, back to 3.6."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.probe_lab import FILE
from workloads.bundle import open_bundle


def test_the_file_is_python_3_6_and_imports_the_standard_library_alone() -> None:
    tree = ast.parse(FILE.read_text(encoding="utf-8"), feature_version=(3, 6))
    imported = {
        name.split(".")[0]
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names] if isinstance(node, ast.Import)
            else [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        )
    }  # fmt: skip
    assert imported <= set(sys.stdlib_module_names)
    # What came after 3.6, as far as it is easily used by mistake.
    assert "dataclasses" not in imported and "__future__" not in imported
    calls = {keyword.arg for node in ast.walk(tree) if isinstance(node, ast.Call) for keyword in node.keywords}
    assert not calls & {"capture_output", "text", "missing_ok", "dirs_exist_ok", "strict", "process_group"}
    methods = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert not methods & {"removeprefix", "removesuffix", "pidfd_open", "monotonic_ns", "waitstatus_to_exitcode"}


def old_pythons() -> Iterator[str]:
    for minor in (6, 7, 8, 9):
        found = [f"python3.{minor}", *map(str, Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python3.{minor}"))]
        for python_ in found:
            path = shutil.which(python_)
            if path and subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode == 0:
                yield path
                break


def test_it_runs_under_the_oldest_python_that_is_here(tmp_path: Path) -> None:
    oldest = next(old_pythons(), None)
    if oldest is None:
        pytest.skip("no Python before 3.10 on this host")
    argv = [
        oldest,
        "-I",
        "-S",
        str(FILE),
        str(tmp_path / "o.tar"),
        "--path",
        str(tmp_path),
        "--only",
        "uname",
        "write.*",
        "sysfs.txt",
    ]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert [output.status for output in open_bundle(tmp_path / "o.tar").outputs] == [0, 0, 0]
