"""`python -m workloads`: what a load would send, sending it, and traces for it."""

from __future__ import annotations

import argparse
import secrets
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from scenarios.load import ConfigError
from workloads.anonymise import Reading, anonymise
from workloads.client import ClientError, Endpoint
from workloads.command import Parser, carry_out
from workloads.endpoint import EndpointError, api_key, check
from workloads.load import read_load
from workloads.plan import plan
from workloads.prompts import seed_of_nonce
from workloads.send import SendError, Sending, send
from workloads.traces import BLOCK_TOKENS, Trace, TraceError, TraceFacts

VOCABULARY_MAX = 10_000_000

Commands = Any  # argparse keeps the type of its subparsers to itself


def _interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


def register(commands: Commands) -> None:
    """Add every subcommand. Each sets `run`: parsed arguments -> exit status; ConfigError and TraceError are told."""
    _register_trace(commands)
    _register_anonymise(commands)
    _register_plan(commands)
    _register_send(commands)


def main(argv: list[str]) -> int:
    """Carry out one command; return the exit status. Errors are one line each."""
    parser = Parser(prog="python -m workloads", description=__doc__)
    register(parser.add_subparsers(dest="command", required=True, metavar="COMMAND"))
    args = parser.parse_args(argv)
    run: Callable[[argparse.Namespace], int] = args.run
    signal.signal(signal.SIGTERM, _interrupt)  # whoever ends us wants what was recorded, too
    told = (ConfigError, TraceError, EndpointError, SendError, ClientError, OSError)
    return carry_out(lambda: run(args), told, "what was recorded by then is kept")


def _register_trace(commands: Commands) -> None:
    parser = commands.add_parser("trace", help="check a trace and say what it holds")
    parser.add_argument("file", type=Path, metavar="FILE")
    _add_block_tokens(parser)
    parser.add_argument("--max-context-tokens", type=_positive, metavar="N", help="refuse longer requests")
    parser.set_defaults(run=_trace)


def _trace(args: argparse.Namespace) -> int:
    trace = Trace.read(args.file, args.block_tokens)
    if args.max_context_tokens is not None:
        trace.check_context(args.max_context_tokens)
    _tell(args.file, trace.facts())
    return 0


def _register_anonymise(commands: Commands) -> None:
    parser = commands.add_parser("anonymise", help="make a trace of a request log; no content leaves")
    parser.add_argument("log", type=Path, metavar="LOG")
    parser.add_argument("out", type=Path, metavar="OUT", help="gzipped where the name ends in .gz")
    _add_block_tokens(parser)
    parser.add_argument("--time-unit", choices=("s", "ms"), help="of times that are numbers")
    parser.add_argument("--time-field", metavar="NAME", help="the field with the time of a request")
    parser.add_argument("--tokenizer", type=Path, metavar="FOLDER", help="the model's folder; needed for text")
    parser.set_defaults(run=_anonymise)


def _anonymise(args: argparse.Namespace) -> int:
    reading = Reading(args.block_tokens, args.time_unit, args.time_field, args.tokenizer)
    _tell(args.out, anonymise(args.log, args.out, reading).facts())
    return 0


def _register_plan(commands: Commands) -> None:
    parser = commands.add_parser("plan", help="say what a load would send; sends nothing")
    parser.add_argument("load", type=Path, metavar="LOAD.toml")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="default 1")
    parser.add_argument("--max-context-tokens", type=_positive, metavar="N", help="the model's window")
    parser.set_defaults(run=_plan)


def _plan(args: argparse.Namespace) -> int:
    loaded = read_load(args.load)
    # No token is made here, so any vocabulary will do.
    facts = plan(loaded, args.seed, vocabulary_tokens=2, max_context_tokens=args.max_context_tokens).facts()
    load, sharing = loaded.value, facts.sharing
    print(f"{args.load}: {load.title} ({load.arrival.kind}, {load.prompts.kind})")
    print(f"  requests       {sharing.prompts}")
    print(f"  prompt tokens  {sharing.tokens}")
    print(f"  output tokens  {facts.output_tokens}")
    fits = "" if args.max_context_tokens else "; not checked against a model's window: give --max-context-tokens"
    print(f"  longest        {facts.longest_tokens} tokens of prompt and output{fits}")
    last = "depends on the answers" if facts.last_offset_s is None else f"{facts.last_offset_s:.3f} s after the start"
    print(f"  last sending   {last}")
    print(f"  shared         {sharing.share:.1%} of prompt tokens were sent before (cache without limit)")
    return 0


def _register_send(commands: Commands) -> None:
    parser = commands.add_parser("send", help="send a load to an OpenAI-compatible server and record every request")
    parser.add_argument("load", type=Path, metavar="LOAD.toml")
    parser.add_argument("out", type=Path, metavar="OUT", help="a folder that is not there yet")
    parser.add_argument("--url", required=True, help="of the server, as http://HOST:PORT")
    parser.add_argument("--model", required=True, help="as the server calls it")
    parser.add_argument("--chat", action="store_true", help="/v1/chat/completions (prompt lengths are not exact)")
    parser.add_argument("--seed", type=int, help="default: drawn anew, and recorded")
    parser.add_argument("--nonce", help="text from which the seed is made, so that nobody can know the prompts before")
    parser.add_argument(
        "--vocabulary-tokens", type=_vocabulary, default=1000, metavar="N", help="ids below N; default 1000"
    )
    parser.add_argument("--deadline-s", type=_positive, default=600, metavar="S", help="for one request; default 600")
    parser.add_argument("--processes", type=_positive, default=1, metavar="N", help="one is enough for 1000 users")
    parser.set_defaults(run=_send)


def _send(args: argparse.Namespace) -> int:
    endpoint = Endpoint(args.url.rstrip("/").removesuffix("/v1"), args.model, args.chat, api_key())
    window = check(endpoint)
    if args.seed is not None and args.nonce is not None:
        raise ConfigError("--seed, --nonce: give one of them")
    drawn = secrets.randbits(48) if args.seed is None else args.seed
    seed = seed_of_nonce(args.nonce) if args.nonce is not None else drawn
    count, failed, first = send(
        Sending(args.load, endpoint, args.out, seed, args.vocabulary_tokens, window, args.deadline_s, args.processes)
    )
    told = f", {failed} of them failed (the first: {first})" if failed else ""
    print(f"{args.out}/requests.jsonl: {count} requests{told}; `python -m gates figures {args.out}` shows them")
    return 1 if failed == count else 0


def _tell(path: Path, facts: TraceFacts) -> None:
    print(f"{path}: {facts.requests} requests in {facts.duration_s:.3f} s")
    print(f"  prompt tokens  {facts.prompt_tokens}")
    print(f"  output tokens  {facts.output_tokens}")
    print(f"  longest        {facts.longest_tokens} tokens of prompt and output")
    print(f"  shared         {facts.share:.1%} of prompt tokens were sent before (cache without limit)")


def _add_block_tokens(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--block-tokens", type=_positive, default=BLOCK_TOKENS, metavar="N", help=f"default {BLOCK_TOKENS}"
    )


def _vocabulary(text: str) -> int:
    if not 2 <= (tokens := _positive(text)) <= VOCABULARY_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is no vocabulary: 2 to {VOCABULARY_MAX} tokens")
    return tokens


def _positive(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 15 and int(text)):
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1 on")
    return int(text)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
