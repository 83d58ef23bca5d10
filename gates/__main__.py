"""`python -m gates`: what can be done with a recorded run, without any hardware."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from gates import criteria, draft, fit, plan, proof, verdict
from gates.arrival import judge as arrival
from gates.arrival.explain import explain as explain_arrival
from gates.explain import explain
from gates.figures import figures
from gates.imports import command as import_command
from gates.oc import command as oc_command
from scenarios.load import ConfigError, load_scenario, load_site
from workloads import signing
from workloads.bundle import BundleError, open_bundle
from workloads.command import Parser, carry_out
from workloads.evidence import MANIFEST, EvidenceError, Run, write_whole


def main(argv: list[str]) -> int:
    """Carry out one command; return the exit status. Errors are one line each."""
    parser = Parser(prog="python -m gates", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    of_run: dict[str, Parser] = {}
    for name, text in (
        ("rejudge", "judge the sealed evidence again and write verdict.json"),
        ("verify", "name every file changed, missing or added since the run was sealed, and who signed it"),
        ("sign", "sign the manifest of a run that is as it was sealed"),
        ("explain", "say in words why the run got its verdict"),
    ):
        of_run[name] = commands.add_parser(name, help=text)
        of_run[name].add_argument("run", type=Path, metavar="RUN")
    of_run["verify"].add_argument(
        "--allowed-signers", type=Path, metavar="FILE", help="whose keys are known (KVGATE_ALLOWED_SIGNERS)"
    )
    of_run["sign"].add_argument(
        "--key", type=Path, help="SSH key; a public one if an agent holds it (KVGATE_SIGNING_KEY)"
    )
    of_run["sign"].add_argument("--as", dest="role", choices=tuple(signing.FILES), default=signing.WITNESS)
    commands.add_parser("ledger", help="show all attempts and check their chain").add_argument(
        "runs", type=Path, metavar="RUNS", help="the folder of the runs"
    )
    commands.add_parser("figures", help="what a sent load showed; judges nothing").add_argument(
        "records", type=Path, metavar="FOLDER", help="of `python -m workloads send`, or a requests.jsonl"
    )
    commands.add_parser("draft-site", help="a site file from what was collected, to be reviewed by hand").add_argument(
        "bundle", type=Path, metavar="BUNDLE", help="what `make probe OUT=...` made"
    )
    import_command.add_to(commands)
    oc_command.add_options(commands.add_parser("oc", help="how often the rule is wrong: simulated, no run needed"))
    planned = commands.add_parser("plan", help="what a G3 run will cost and can decide; starts nothing")
    planned.add_argument(
        "--site", default="rehearsal", metavar="SITE", help="a name in scenarios/sites, or a TOML path"
    )
    planned.add_argument("--scenario", default="rehearsal", metavar="SCENARIO", help="a name in the catalog, or a path")
    args = parser.parse_args(argv)
    told = (EvidenceError, signing.SigningError, verdict.NotJudgedError, ConfigError, BundleError, OSError)
    return carry_out(lambda: _run(args), told, "nothing was written")


def _run(args: argparse.Namespace) -> int:
    """Return the exit status of the command; what it raises `main` tells."""
    if args.command == "plan":
        print("\n".join(_plan(args.site, args.scenario)))
    elif args.command == "oc":
        print("\n".join(oc_command.lines(args)))
    elif args.command == "draft-site":
        print(draft.site(open_bundle(args.bundle), args.bundle.name), end="")
    elif args.command == "figures":
        print("\n".join(figures(args.records)))
    elif args.command == "import":
        judged, path = _import(args)
        print("\n".join([*verdict.summary_lines(judged), str(path)]))
        return verdict.EXIT_STATUS[judged["verdict"]]
    elif args.command == "ledger":
        return _told(proof.show_ledger(args.runs))
    else:
        return _of_run(args)
    return 0


def _of_run(args: argparse.Namespace) -> int:
    """Return the exit status of what is done with one run."""
    if not args.run.is_dir():
        raise EvidenceError(f"{args.run}: no such run: give the folder of a run, as in runs/20260101T000000Z-g3-abcdef")
    if args.command == "verify" and (args.run / MANIFEST).exists():  # whatever run.json has become
        return _told(proof.verify_run(args.run, args.allowed_signers))
    run = Run(args.run)
    if args.command == "verify":
        return _told(proof.verify_run(args.run, args.allowed_signers))
    if args.command == "sign":
        return _told(proof.sign_run(args.run, args.key, args.role))
    judged = verdict.judge(run)
    if args.command == "explain":
        print("\n".join((explain_arrival if judged["gate"] == arrival.GATE else explain)(run, judged)))
    else:
        try:
            write_whole(args.run / "verdict.json", verdict.to_bytes(judged))
        finally:  # a verdict that cannot be written is one all the same
            print("\n".join(verdict.summary_lines(judged)))
    return verdict.EXIT_STATUS[judged["verdict"]]


def _import(args: argparse.Namespace) -> tuple[verdict.Json, Path]:
    """Return the verdict on files of others and the folder of the run that holds them; nothing half-written stays."""
    staged = import_command.stage(args)
    try:
        judged = verdict.judge(Run(staged))
        write_whole(staged / "verdict.json", verdict.to_bytes(judged))
        return judged, import_command.settle(staged)
    except BaseException:
        import_command.discard(staged)
        raise


def _plan(site_name: str, scenario_name: str) -> list[str]:
    site = load_site(site_name)
    scenario = load_scenario(scenario_name, site)
    file = criteria.file_for(scenario.value.gate, site)
    loaded = criteria.load(file)
    fit.check(site, scenario, loaded, file)
    return plan.lines(site, scenario.value, loaded)


def _told(told: proof.Told) -> int:
    lines, status = told
    print("\n".join(lines))
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
