"""`make samples`: first pages of sample reports as small PNGs, from runs that are made without an engine.

The G3 runs are the tests' synthetic ones, on the rehearsal site; the G1 runs are judged from the shared samples of a
lab (KVGATE_SHARED), and left out where they are not there.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(ROOT))

from gates.verdict import judge, to_bytes  # noqa: E402
from reports.pages import document  # noqa: E402
from reports.pdf import to_png  # noqa: E402
from reports.view import load_view  # noqa: E402
from reports.words import Words, languages  # noqa: E402
from tests.synthetic import make_run  # noqa: E402
from tests.synthetic_truth import Truth  # noqa: E402
from workloads.evidence import Run, write_whole  # noqa: E402

PIXELS_PER_INCH = 68
TRUTHS = {
    "PASS": Truth(ttft_s={"recompute": 3.0, "baseline": 1.2, "candidate": 0.8}, decode_s=0.4),
    "FAIL": Truth(ttft_s={"recompute": 3.0, "baseline": 1.2, "candidate": 1.1}, decode_s=0.4),
    "INVALID": Truth(snapshot=lambda record: record.update(tier_read_bytes=0)),
}
BUNDLES = {"PASS": "healthy", "FAIL": "path-down-port", "INVALID": None}  # None: a part of what was collected is lost
SITE = ROOT / "tests" / "data" / "nvmeof-lab.toml"


def main() -> int:
    """Write <gate>-<verdict>.<language>.png beside this file and print the paths."""
    with tempfile.TemporaryDirectory() as folder:
        for name, run in (*_g3(Path(folder)), *_g1(Path(folder))):
            view = load_view(run)
            for language in languages():
                path = HERE / f"{name}.{language}.png"
                write_whole(path, to_png(document(view, Words(language)), PIXELS_PER_INCH)[0])
                print(path.relative_to(ROOT))
    return 0


def _g3(folder: Path) -> Iterator[tuple[str, Path]]:
    for verdict, truth in TRUTHS.items():
        run = make_run(folder / verdict, truth)
        write_whole(run / "verdict.json", to_bytes(judge(Run(run))))
        _expect(run, verdict)
        yield f"g3-{verdict.lower()}", run


def _g1(folder: Path) -> Iterator[tuple[str, Path]]:
    shared = Path(os.environ.get("KVGATE_SHARED", ROOT.parent / "shared")) / "samples" / "nvmeof-lab"
    if not shared.is_dir() or not (ROOT / "gates" / "test_g1.py").is_file():
        print(f"samples: no G1 without {shared}", file=sys.stderr)
        return
    for verdict, state in BUNDLES.items():
        bundle = shared / (state or "healthy")
        if state is None:
            bundle = _without(bundle, folder / "lost", ("uname", "lscpu"))
        runs = folder / f"g1-{verdict}"
        argv = [sys.executable, "-m", "pytest", "-q", "gates/test_g1.py", "--site", str(SITE), "--from", str(bundle)]
        done = subprocess.run([*argv, "--runs", str(runs)], cwd=ROOT, capture_output=True, text=True, check=False)
        found = [path.parent for path in runs.glob("*/verdict.json")]
        if len(found) != 1:
            raise SystemExit(f"samples: G1 on {bundle} left no verdict: {done.stdout[-500:]}")
        _expect(found[0], verdict)
        yield f"g1-{verdict.lower()}", found[0]


def _expect(run: Path, verdict: str) -> None:
    said = load_view(run).shown
    if said != verdict:
        raise SystemExit(f"samples: a {said} was made where {verdict} was meant")


def _without(bundle: Path, copy: Path, words: tuple[str, ...]) -> Path:
    """Return a copy of a bundle in which the outputs with one of these words in their name are empty."""
    copy.mkdir(parents=True)
    for file in bundle.iterdir():
        lost = any(word in file.name for word in words) and file.suffix == ".stdout"
        (copy / file.name).write_bytes(b"" if lost else file.read_bytes())
    return copy


if __name__ == "__main__":
    sys.exit(main())
