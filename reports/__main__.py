"""`python -m reports RUN [--lang zh,en]`: write the run's reports and print their paths."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from reports.html import write_reports
from reports.words import ReportError

USAGE = 4  # pytest's status for a wrong command line


def main(argv: Sequence[str] | None = None) -> int:
    """Return 0 when every report was written, 4 with one line on stderr otherwise."""
    parser = argparse.ArgumentParser(prog="python -m reports", description="Write a run's reports.")
    parser.add_argument("run", type=Path, help="the run's folder")
    parser.add_argument("--lang", default="zh,en", help="languages, by comma (default: zh,en)")
    parser.exit_on_error = False
    try:
        options = parser.parse_args(argv)
    except argparse.ArgumentError as error:
        print(f"reports: {error}", file=sys.stderr)
        return USAGE
    except SystemExit as end:  # --help, or an error that argparse has already printed in one line
        return USAGE if end.code else 0
    try:
        paths = write_reports(options.run, [part.strip() for part in options.lang.split(",") if part.strip()])
    except ReportError as error:
        print(f"reports: {' '.join(str(error).split())}", file=sys.stderr)
        return USAGE
    for path in paths:
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
