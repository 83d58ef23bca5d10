"""`python -m gates import vllm-bench`: results of others into a run folder that is judged as far as they allow."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gates.imports import store
from gates.imports.store import settle
from scenarios.model import BASELINE, CANDIDATE
from workloads.evidence import EvidenceError

__all__ = ["add_to", "discard", "settle", "stage"]

DESCRIPTION = """\
Judge result files of `vllm bench serve --save-result --save-detailed` that others have measured, as far as they allow.

The files are given in pairs, measured one after the other under the same load: BASELINE.json CANDIDATE.json, then the
next pair; or all of an arm after --baseline and after --candidate. A file written with --append-result holds several
results: they count in their order, and the first of the baseline is paired with the first of the candidate.

The verdict is FAIL (the candidate's requests failed) or INVALID (everything that such files cannot prove), never PASS
and never an acceptance. A run folder is written and its path printed. docs/import.md says what is looked at.
"""
EPILOG = """\
exit status: 1 FAIL, 11 INVALID, 4 a file or the command line is wrong (one line on stderr, nothing written)

examples:
  python -m gates import vllm-bench nvme-c16.json fx100-c16.json --out runs
  python -m gates import vllm-bench --baseline nvme-*.json --candidate fx100-*.json --out runs
"""


def add_to(commands: argparse._SubParsersAction[Any]) -> None:
    """Add `import` and its tools to the subcommands of `python -m gates`."""
    parser = commands.add_parser("import", help="judge result files that another tool wrote, as far as they allow")
    tools = parser.add_subparsers(dest="tool", required=True, metavar="TOOL")
    tool = tools.add_parser(
        store.TOOL,
        help="files of `vllm bench serve --save-result --save-detailed`",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    tool.add_argument("files", type=Path, nargs="*", metavar="FILE", help="BASELINE.json CANDIDATE.json, pair by pair")
    tool.add_argument("--baseline", type=Path, nargs="+", default=[], metavar="FILE", help="the baseline's, in order")
    tool.add_argument("--candidate", type=Path, nargs="+", default=[], metavar="FILE", help="the candidate's, in order")
    tool.add_argument("--out", type=Path, default=Path("runs"), metavar="FOLDER", help="where runs are (default: runs)")


def stage(args: argparse.Namespace) -> Path:
    """Read the files and return the sealed run, staged: to be judged, then moved with `settle`.

    Raises EvidenceError in one line: the command line, or a file that cannot be imported. Raises OSError.
    """
    mine, other = _arms(args.files, args.baseline, args.candidate)
    sources = [store.take(path, arm) for arm, paths in ((BASELINE, mine), (CANDIDATE, other)) for path in paths]
    _refuse_twice(sources)
    held = {arm: sum(s.results for s in sources if s.arm == arm) for arm in (BASELINE, CANDIDATE)}
    if held[BASELINE] != held[CANDIDATE]:
        raise EvidenceError(
            f"{', '.join(str(path) for path in other)}: {held[CANDIDATE]} results, the baseline's files hold "
            f"{held[BASELINE]}: give as many of each, in the order of the pairs"
        )
    return store.write(args.out, sources)


def discard(staged: Path) -> None:
    """Remove a staged run that could not be judged."""
    shutil.rmtree(staged.parent, ignore_errors=True)


def _arms(
    files: Sequence[Path], baseline: Sequence[Path], candidate: Sequence[Path]
) -> tuple[Sequence[Path], Sequence[Path]]:
    if files and (baseline or candidate):
        raise EvidenceError(f"{files[0]}: give pairs, or --baseline and --candidate, not both")
    if files and len(files) % 2:
        raise EvidenceError(f"{files[-1]}: a baseline's file without a candidate's: give them in pairs")
    mine, other = (files[::2], files[1::2]) if files else (baseline, candidate)
    if not mine or not other:
        lacking = "candidate" if mine else "baseline"
        raise EvidenceError(f"no file of the {lacking}: give BASELINE.json CANDIDATE.json")
    return mine, other


def _refuse_twice(sources: Sequence[store.Source]) -> None:
    seen: dict[bytes, Path] = {}
    for source in sources:
        before = seen.setdefault(source.content, source.path)
        if before is not source.path:
            raise EvidenceError(f"{source.path}: the same as {before}, byte for byte: give each measurement once")
