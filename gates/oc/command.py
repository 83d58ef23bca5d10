"""`python -m gates oc`: its options, and what one set of them comes to."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gates import criteria as criteria_files
from gates.criteria import Criteria
from gates.oc import residuals, show
from gates.oc.noise import Noise
from gates.oc.simulation import (
    DEFAULT_PRECISION,
    R2_GAINS,
    R2_RATIOS,
    Outcome,
    Requirement,
    away_from_limit,
    compared,
    requirements,
    simulate,
    with_policy,
)
from scenarios.load import ConfigError
from workloads.evidence import write_whole

REPETITIONS = 20_000
DISTANCES = (-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0)
CURVE = tuple(i / 4 for i in range(-12, 13))
# Beyond them nothing is simulated that could happen, and numbers overflow. An sd of 3 in log ratio is a factor of 20.
SD_MAX, FACTOR_MAX, STEPS_MAX, ATTEMPT_MAX = 3.0, 1000.0, 100, 1000
OF_DECISION = ("decision", "repetitions")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `oc` to its parser."""
    add = parser.add_argument
    add("--criteria", type=Path, metavar="FILE", help="a criteria file; default: the suite's own of G3")
    add("--policy", choices=("measured", "proven"), help="instead of the file's, for TTFT p50 and throughput")
    add("--only", metavar="ID", help="this criterion alone")
    add("--steps", type=int, metavar="N", help="steps of concurrency; default 3, or as many as there are ratios")
    add("--ttft-ratios", type=float, nargs="+", metavar="R", help="true TTFT, candidate over baseline, each step")
    add("--gains", type=float, nargs="+", metavar="R", help="true throughput, candidate over baseline, each step")
    add("--away", type=float, metavar="X", help="instead: X precisions inside every limit; below 0, short of it")
    add("--sd", type=float, help="sd of a block's log ratio, of both; default 0.03, or the noise file's own")
    add("--sd-ttft", type=float, metavar="SD", help="the same of TTFT alone")
    add("--sd-throughput", type=float, metavar="SD", help="the same of throughput alone")
    add("--guard-sd", type=float, metavar="SD", help="judge the guards, too: true increase 0, blocks scatter so much")
    columns, named = " and ".join(residuals.COLUMNS), ", ".join(residuals.NAMED)
    add("--noise", metavar="FILE", help=f"draw from A/A blocks: a CSV file with {columns}, or one of {named}")
    add("--in-time", action="store_true", help="take the noise in its order of time, a value per engine start")
    add("--common", type=float, default=0.0, metavar="SHARE", help="of the variance: common to all rows of a block")
    add("--drift", type=float, default=0.0, metavar="SHARE", help="times grow so much per engine start: 0.02")
    add("--fixed-order", nargs="?", const="candidate", choices=("candidate", "baseline"), help="always this arm first")
    add("--between", type=float, metavar="X", help="sd between engine starts over that between waves")
    add("--count-waves", action="store_true", help="take each of 5 waves for a block (a mistake, to see its cost)")
    add("--attempt", type=int, default=1, metavar="K", help="the K-th attempt: every error divided by K")
    add("--repetitions", type=int, metavar="N", help=f"default {REPETITIONS:,}; 100,000 with --decision")
    add("--seed", type=int, default=1)
    add("--out", type=Path, metavar="DIR", help="write oc.md and oc.svg there")
    add("--decision", type=Path, metavar="FILE", help="write the document on the rule and its error rates")


def parse(line: Sequence[str]) -> argparse.Namespace:
    """Return the options in `line`, as the command would see them."""
    parser = argparse.ArgumentParser(prog="python -m gates oc")
    add_options(parser)
    return parser.parse_args(line)


@dataclass(frozen=True)
class Case:
    """What one set of options asks for."""

    criteria: Criteria
    rows: list[Requirement]
    noise: Noise
    repetitions: int
    seed: int
    attempt: int

    def run(self) -> Outcome:
        """Return the outcome where the truth is the one that was given."""
        return self._of(self.rows)

    def away(self, precisions: float) -> Outcome:
        """Return the outcome with every row so far from its limit."""
        return self._of(away_from_limit(self.rows, precisions))

    def _of(self, rows: Sequence[Requirement]) -> Outcome:
        return simulate(rows, self.criteria, self.noise, self.repetitions, self.seed, attempt=self.attempt)


def case(args: argparse.Namespace, ttft: Sequence[float] = (0.75,), gains: Sequence[float] = (1.29,)) -> Case:
    """Return what the options ask for; `ttft` and `gains` are the truth where they do not give one.

    Raises:
        ConfigError: one line that says what is wrong with a file or an option.
    """
    judged = criteria_files.load(args.criteria or criteria_files.default_file("g3"))
    if args.policy:
        judged = with_policy(judged, args.policy)
    if args.only:
        chosen = tuple(c for c in judged.criterion if c.id == args.only)
        if not compared(judged.model_copy(update={"criterion": chosen})):
            names = ", ".join(c.id for c in compared(judged))
            raise ConfigError(f"--only: '{args.only}' is not one of {names}")
        judged = judged.model_copy(update={"criterion": chosen})
    law = residuals.load(args.noise) if args.noise else None
    own = law.sd() if law is not None else (DEFAULT_PRECISION, DEFAULT_PRECISION)
    sds = [_first(one, args.sd, default) for one, default in zip((args.sd_ttft, args.sd_throughput), own, strict=True)]
    try:
        if args.in_time and law is None:
            raise ValueError("--in-time needs --noise")
        if args.count_waves and args.between is None:
            raise ValueError("--count-waves needs --between")
        if args.in_time and (args.between is not None or args.common):
            raise ValueError("--in-time goes with neither --between nor --common")
        if args.common and args.between is not None:
            raise ValueError("--between has its own common part, the engine start: leave out --common")
        _bounded(args, sds)
        steps = args.steps or max(len(args.ttft_ratios or ttft), len(args.gains or gains), 1)
        if args.steps is None and steps == 1:
            steps = len(R2_RATIOS)
        truths = args.ttft_ratios or ttft, args.gains or gains
        if args.steps is not None and any(len(values) not in (1, steps) for values in truths):
            raise ValueError(f"--steps {steps}: give one ratio and one gain, or {steps} of each")
        given = [_spread(values, steps) for values in truths]
        rows = requirements(judged, given[0], given[1], sds[0], sds[1], args.guard_sd)
    except ValueError as error:
        raise ConfigError(f"oc: {error}") from None
    if args.away is not None:
        rows = away_from_limit(rows, args.away)
    order = "random" if args.fixed_order is None else f"{args.fixed_order}-first"
    noise = Noise(
        residuals=law,
        in_time=args.in_time,
        common=args.common,
        drift_per_slot=args.drift,
        order=order,  # type: ignore[arg-type]  # argparse has checked it
        between=args.between,
        count_waves=args.count_waves,
    )
    return Case(judged, rows, noise, args.repetitions or REPETITIONS, args.seed, args.attempt)


def lines(args: argparse.Namespace) -> list[str]:
    """Carry out `oc`: return what it prints. Raises ConfigError."""
    if args.decision is not None:
        return _decision(args)
    case(args)  # what cannot be is told before anything is simulated or made
    if args.out is not None:
        _make(args.out)
    found: list[tuple[str, Outcome]] = []
    if args.away is not None or args.ttft_ratios or args.gains:
        found.append(("as given", case(args).run()))
    else:
        for name, ttft, gains in (
            ("A/A: no effect at all", (1.0,), (1.0,)),
            ("weak: TTFT ratio 0.85, gain 1.15", (0.85,), (1.15,)),
            ("published R2", R2_RATIOS, R2_GAINS),
        ):
            if args.steps in (None, len(R2_RATIOS)) or len(ttft) == 1:
                found.append((name, case(args, ttft, gains).run()))
        found += [(_told(x), case(args).away(x)) for x in DISTANCES]
    table = show.table(found)
    if args.out is None:
        return table
    whole = case(args)
    curves = [("the whole gate", [(x, whole.away(x)) for x in CURVE])]
    if not args.only:
        args.only, args.steps = compared(whole.criteria)[0].id, 1
        args.ttft_ratios = args.gains = None
        alone = case(args)
        curves.insert(0, ("one criterion at one step", [(x, alone.away(x)) for x in CURVE]))
    from gates.oc.picture import picture  # half a second that every other command would wait for

    document = "\n".join(["# Operating characteristics", "", *table, ""])
    files = {args.out / "oc.md": document, args.out / "oc.svg": picture(curves)}
    for file, text in files.items():
        try:
            write_whole(file, text.encode())
        except OSError as error:
            raise ConfigError(f"{file}: cannot be written: {error.strerror}") from None
    return [*table, f"written: {', '.join(map(str, files))}"]


def _decision(args: argparse.Namespace) -> list[str]:
    """Write the document: it has options of its own for each of its figures, and takes none. Raises ConfigError."""
    usual = vars(parse([]))
    others = [name for name, value in usual.items() if name not in OF_DECISION and getattr(args, name) != value]
    if others:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in others)
        raise ConfigError(f"oc: --decision goes with no option but --repetitions: leave out {names}")
    if args.repetitions is not None and args.repetitions < 1:
        raise ConfigError("oc: --repetitions is counted from 1")
    folder = args.decision.parent
    if args.decision.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        raise ConfigError(f"{args.decision}: cannot be written: name a file in a folder that is there and yours")
    from gates.oc import decision  # it comes back here for each of its figures

    try:
        return decision.write(args.decision, args.repetitions or 100_000)
    except OSError as error:
        raise ConfigError(f"{args.decision}: cannot be written: {error.strerror}") from None


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"oc: --out: {folder}: cannot be made: {error.strerror}: name a folder") from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ConfigError(f"oc: --out: {folder}: not yours to write in: name another folder")


def _bounded(args: argparse.Namespace, sds: Sequence[float]) -> None:
    """Raise ValueError for options that no simulation can take, or that another one makes void."""
    if args.away is not None and (args.ttft_ratios or args.gains):
        raise ValueError("--away says where the truth is, and so do --ttft-ratios and --gains: give one of them")
    if not abs(args.away or 0) <= FACTOR_MAX or not 0 <= (args.between or 0) <= FACTOR_MAX:
        raise ValueError(f"--away is a number, and --between one that is not negative, up to {FACTOR_MAX:g}")
    if not 0 <= args.common <= 1 or not -0.5 < args.drift < 1:
        raise ValueError("--common is a share, and --drift a small one")
    if args.attempt < 1 or (args.repetitions is not None and args.repetitions < 1):
        raise ValueError("--attempt and --repetitions are counted from 1")
    if args.attempt > ATTEMPT_MAX:
        raise ValueError(f"--attempt is at most {ATTEMPT_MAX}")
    if args.steps is not None and not 1 <= args.steps <= STEPS_MAX:
        raise ValueError(f"--steps is a number from 1 to {STEPS_MAX}")
    if args.seed < 0:
        raise ValueError("--seed is a whole number that is not negative")
    if not all(0 <= sd <= SD_MAX for sd in (*sds, args.guard_sd or 0.0)):
        raise ValueError(
            f"an sd is not negative and at most {SD_MAX:g}, in log ratio: state it, or mend the noise file"
        )


def _told(precisions: float) -> str:
    if precisions == 0:
        return "exactly on every limit"
    size = f"{abs(precisions):g} precision{'s' if abs(precisions) > 1 else ''}"
    return f"every row {size} inside" if precisions > 0 else f"every row {size} short"


def _spread(values: Sequence[float], steps: int) -> list[float]:
    return list(values) * steps if len(values) == 1 else list(values)


def _first(*values: float | None) -> float:
    return next(v for v in values if v is not None)
