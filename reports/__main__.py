"""`python -m reports RUN`: write the reports of a run, of a programme, or the history of many; print their paths."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from reports.history import write_history
from reports.programme import write_programme
from reports.words import ReportError
from reports.write import FORMS, write_reports
from workloads.command import USAGE_ERROR, carry_out


def main(argv: Sequence[str] | None = None) -> int:
    """Return 0 when every report was written, 4 with one line on stderr for each that was not."""
    return carry_out(lambda: _main(argv), (), "reports that were not finished were not written")


def _main(argv: Sequence[str] | None) -> int:
    parser = _parser()
    try:
        options = parser.parse_args(argv)
        paths, problems = _carry_out(options)
    except (argparse.ArgumentError, ReportError) as error:
        print(f"reports: {' '.join(str(error).split())}", file=sys.stderr)
        return USAGE_ERROR
    except SystemExit as end:  # --help, or an error that argparse has already printed in one line
        return USAGE_ERROR if end.code else 0
    for path in paths:
        print(path)
    for problem in problems:
        print(f"reports: {' '.join(problem.split())}", file=sys.stderr)
    return USAGE_ERROR if problems else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m reports", description="Write a run's reports.")
    parser.add_argument("run", type=Path, nargs="*", help="the run's folder; several with --programme")
    parser.add_argument("--lang", default="zh,en", help="languages, by comma (default: zh,en)")
    parser.add_argument("--form", default=",".join(FORMS), help=f"forms, by comma (default: {','.join(FORMS)})")
    parser.add_argument("--zone", default="", help="time zone of the site for local times, as Asia/Shanghai")
    parser.add_argument("--waivers", type=Path, help="a waivers.toml that is not in the run")
    parser.add_argument("--programme", action="store_true", help="one report over all the runs, G1 to G4")
    parser.add_argument("--history", type=Path, metavar="RUNS", help="the history of all runs in this folder")
    parser.add_argument("--out", type=Path, help="folder for a programme or a history (default: beside the runs)")
    parser.exit_on_error = False
    return parser


def _carry_out(options: argparse.Namespace) -> tuple[list[Path], list[str]]:
    """Return (paths written, what could not be). Raises ReportError."""
    langs, forms = _listed(options.lang), _listed(options.form)
    zone = _zone(options.zone)
    if options.history is not None:
        return write_history(options.history, langs, options.out), []
    if not options.run:
        raise ReportError("no run named: python -m reports RUN")
    if options.programme:
        return write_programme(options.run, langs, forms, options.out, zone)
    if len(options.run) > 1:
        raise ReportError("several runs are one report with --programme alone")
    return write_reports(options.run[0], langs, forms, zone, options.waivers)


def _listed(value: str) -> list[str]:
    return [part.strip() for part in value.split(",") if part.strip()]


def _zone(name: str) -> ZoneInfo | None:
    """Return the time zone of that name; None for no name. Raises ReportError."""
    if not name:
        return None
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ReportError(f"time zone '{name}': not known here; name one as Asia/Shanghai") from None


if __name__ == "__main__":
    sys.exit(main())
