"""`python -m gates`: what can be done with a recorded run, without any hardware."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import NoReturn

from gates import verdict
from gates.explain import explain
from gates.figures import figures
from workloads.evidence import EvidenceError, Run, verify, write_whole

USAGE_ERROR = 4  # as pytest's


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(USAGE_ERROR, f"kvgate: {message}; see `{self.prog} --help`\n")


def main(argv: list[str]) -> int:
    """Carry out one command; return the exit status. Errors are one line each."""
    parser = _Parser(prog="python -m gates", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text in (
        ("rejudge", "judge the sealed evidence again and write verdict.json"),
        ("verify", "name every file changed, missing or added since the run was sealed"),
        ("explain", "say in words why the run got its verdict"),
    ):
        commands.add_parser(name, help=text).add_argument("run", type=Path, metavar="RUN")
    commands.add_parser("figures", help="what a sent load showed; judges nothing").add_argument(
        "records", type=Path, metavar="FOLDER", help="of `python -m workloads send`, or a requests.jsonl"
    )
    args = parser.parse_args(argv)
    try:
        if args.command == "figures":
            print("\n".join(figures(args.records)))
            return 0
        if not args.run.is_dir():
            raise EvidenceError(
                f"{args.run}: no such run: give the folder of a run, as in runs/20260101T000000Z-g3-abcdef"
            )
        run = Run(args.run)
        if args.command == "verify":
            return _verify(args.run)
        judged = verdict.judge(run)
        if args.command == "explain":
            print("\n".join(explain(run, judged)))
        else:
            write_whole(args.run / "verdict.json", verdict.to_bytes(judged))
            print("\n".join(verdict.summary_lines(judged)))
    except (EvidenceError, verdict.NotJudgedError, OSError) as error:
        print(f"kvgate: {' '.join(str(error).split())}", file=sys.stderr)
        return USAGE_ERROR
    return verdict.EXIT_STATUS[judged["verdict"]]


def _verify(path: Path) -> int:
    faults = verify(path)
    for fault in faults:
        print(fault)
    if not faults:
        print(f"{path}: every file is as it was sealed")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
