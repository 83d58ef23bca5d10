"""The Makefile: what is given to a target arrives as it was given, whatever a path is made of."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import install

ROOT = Path(__file__).resolve().parent.parent
ODD = 'w/i ru\'ns/"x" $(touch pwned) `y` $HOME *'


def arrives(folder: Path, *args: str) -> list[str]:
    """Return the arguments of the Python that the target would start."""
    python = folder / "python"
    python.write_text(f"#!{sys.executable}\nimport json, sys\nprint(json.dumps(sys.argv[1:]))\n")
    python.chmod(0o755)
    argv = ["make", "-s", *args, "PYTHON=true", f"PY={python}"]
    clean = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL")}
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, env=clean, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    found: list[str] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(
    ("target", "given", "expected"),
    [
        ("verify", ["RUN"], ["-m", "gates", "verify", ODD]),
        ("sign", ["RUN"], ["-m", "gates", "sign", ODD]),
        ("rejudge", ["RUN"], ["-m", "gates", "rejudge", ODD]),
        ("explain", ["RUN"], ["-m", "gates", "explain", ODD]),
        ("ledger", ["RUNS"], ["-m", "gates", "ledger", ODD]),
        ("ledger", [], ["-m", "gates", "ledger", "runs"]),
        ("draft-site", ["FROM"], ["-m", "gates", "draft-site", ODD]),
        ("plan", ["SITE", "SCENARIO"], ["-m", "gates", "plan", "--site", ODD, "--scenario", ODD]),
        ("doctor", ["SITE"], ["-m", "scenarios.preflight", ODD, "rehearsal"]),
        ("gate-g1", ["SITE", "FROM"], ["-m", "pytest", "gates/test_g1.py", "--site", ODD, "--langs", "zh,en", "--from", ODD]),
        ("gate-g3", ["NONCE", "RUN"], ["-m", "pytest", "gates/test_g3.py", "--nonce", ODD, "--langs", "zh,en", "--resume", ODD]),
        ("report", ["RUN", "WAIVERS"], ["-m", "reports", ODD, "--waivers", ODD, "--lang", "zh,en"]),
        ("history", ["RUNS", "OUT"], ["-m", "reports", "--history", ODD, "--out", ODD, "--lang", "zh,en"]),
        ("smoke", [], ["-m", "pytest", "gates/test_g3.py", "--smoke", "--langs", "zh,en"]),
    ],
)  # fmt: skip
def test_what_is_given_arrives_as_it_was_given(
    tmp_path: Path, target: str, given: list[str], expected: list[str]
) -> None:
    assert arrives(tmp_path, target, *(f"{name}={ODD}" for name in given)) == expected
    assert not (ROOT / "pwned").exists()


def test_a_programme_is_of_several_runs(tmp_path: Path) -> None:
    assert arrives(tmp_path, "report", "RUNS=runs/a runs/b") == [
        "-m", "reports", "--programme", "runs/a", "runs/b", "--lang", "zh,en",
    ]  # fmt: skip


@pytest.mark.parametrize(("target", "told"), [("plan", "no plan for gate"), ("smoke", "no gate 'it's $x' here")])
def test_a_gate_that_is_none_is_one_line(target: str, told: str) -> None:
    argv = ["make", "-s", target, "GATE=it's $x", "PYTHON=true", "PY=true"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    lines = done.stderr.splitlines()
    assert done.returncode == 2 and lines[0].startswith("kvgate: ") and told in lines[0]


def test_installing_leaves_stdout_to_the_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As in `make draft-site > site.toml`."""
    monkeypatch.setattr(install, "VENV", str(tmp_path))
    monkeypatch.setattr(install, "python_of_venv", lambda: sys.executable)
    monkeypatch.setattr(install, "run", lambda *_args: None)
    install.install("core")
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == "install: core into .venv, once\n"
