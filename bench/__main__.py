"""`make bench`: how far our client and its peers are from the truth, under the same load in one run.

Every client is started as its user starts it, one after the other, against a timing server of its own. Its figures
are held against that server's log, request by request. Writes docs/bench.md; the exit status is 1 where our client
misses a bar.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench import peers, scale
from gates import metrics, stats
from gates.nodata import NoData
from workloads import calibrate, provenance
from workloads.evidence import read_jsonl, write_whole

FIRST_S, OUTPUT_TOKENS, PROMPT_TOKENS = 0.2, 100, 128
DEADLINE_S = 600.0
SHARES = (0.5, 0.9, 0.99)
ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / ".work" / "bench"


@dataclass(frozen=True)
class Load:
    """One load of the bench, and our client's bar in ms: TTFT bias at p50 and p99."""

    users: int
    requests: int
    gap_s: float
    bar_ms: tuple[float, float]
    peers: bool


LOADS = (
    Load(16, 200, 0.02, (0.5, 2.0), peers=True),
    Load(256, 1536, 0.02, (2.5, 8.0), peers=True),
    Load(1024, 3072, 0.1, (3.0, 12.0), peers=False),
)


@dataclass(frozen=True)
class Seen:
    """What a client said of one request, and which of the server's it was."""

    number: int
    ttft_s: float
    gaps_s: Sequence[float] | None


@dataclass(frozen=True)
class Row:
    """One client under one load. Biases are the client's minus the truth, in ms at SHARES."""

    client: str
    ok: int
    ttft_ms: tuple[float, ...]
    itl_ms: tuple[float, ...] | None
    cpu_s_per_1000_tokens: float
    requests_per_s: float


def ours(url: str, load: Load, work: Path) -> tuple[list[Seen], peers.Usage]:
    """Send the load with `python -m workloads send`."""
    text = (
        f'schema = 1\ntitle = "bench"\n[arrival.closed]\nusers = {load.users}\nrequests = {load.requests}\n'
        f"[prompts.unshared]\nprompt_tokens = {PROMPT_TOKENS}\noutput_tokens = {OUTPUT_TOKENS}\n"
    )
    (work / "load.toml").write_text(text, encoding="utf-8")
    argv = ["-m", "workloads", "send", str(work / "load.toml"), str(work / "out"), "--url", url, "--model", "timing"]
    usage = _keep("kvgate", argv, work)
    seen = []
    for record in read_jsonl(work / "out" / "requests.jsonl"):
        number = peers.server_number(record["text"])
        gaps_s = metrics.itl_s(record)
        if record["status"] == "ok" and number is not None:
            seen.append(Seen(number, metrics.ttft_s(record), None if isinstance(gaps_s, NoData) else gaps_s))
    return seen, usage


def official(url: str, load: Load, work: Path) -> tuple[list[Seen], peers.Usage]:
    """Send the load with the official client (`bench.official`)."""
    out = work / "official.json"
    argv = ["-m", "bench.official", url, *map(str, (load.users, load.requests, OUTPUT_TOKENS, PROMPT_TOKENS, out))]
    usage = _keep("openai", argv, work)
    found = [(peers.server_number(r["text"]), r) for r in json.loads(out.read_bytes())]
    return [Seen(number, r["ttft_s"], r["gaps_s"]) for number, r in found if number is not None], usage


def peer(which: peers.Peer) -> Callable[[str, Load, Path], tuple[list[Seen], peers.Usage]]:
    """Return the function that sends the load with a peer."""

    def run(url: str, load: Load, work: Path) -> tuple[list[Seen], peers.Usage]:
        result = which.run(
            url, "timing", load.users, load.requests, OUTPUT_TOKENS, PROMPT_TOKENS, work, timeout_s=DEADLINE_S
        )
        found = [(peers.server_number(r.text), r) for r in result.requests if r.ok and r.ttft_s is not None]
        seen = [Seen(number, r.ttft_s or 0.0, r.itl_s) for number, r in found if number is not None]
        return seen, peers.Usage(0, result.wall_s, result.cpu_s)

    return run


def _keep(name: str, argv: list[str], work: Path) -> peers.Usage:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    usage = peers.keep(name, [sys.executable, *argv], env, work, work / "output.log", DEADLINE_S)
    if usage.status != 0:
        raise peers.PeerFailed(f"{name}: ended with status {usage.status}: {peers.last_line(_text(work))}")
    return usage


def _text(work: Path) -> str:
    return (work / "output.log").read_text(encoding="utf-8", errors="replace")


def measure(name: str, run: Callable[[str, Load, Path], tuple[list[Seen], peers.Usage]], load: Load) -> Row:
    """Run one client against a server of its own and return its row. Raises PeerFailed, CalibrationFailed."""
    WORK.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="run-", dir=WORK))
    try:
        with calibrate.timing(work, "server.jsonl", FIRST_S, load.gap_s, OUTPUT_TOKENS) as url:
            seen, usage = run(url, load, work)
        truth = {line["number"]: line for line in read_jsonl(work / "server.jsonl")}
        lines = [truth[one.number] for one in seen]
        ttft_ms = [
            one.ttft_s * 1e3 - (line["t_sent_ns"][0] - line["t_received_ns"]) * 1e-6
            for one, line in zip(seen, lines, strict=True)
        ]
        itl_ms = [
            gap_s * 1e3 - (after_ns - before_ns) * 1e-6
            for one, line in zip(seen, lines, strict=True)
            if one.gaps_s is not None and len(one.gaps_s) == len(line["t_sent_ns"]) - 1
            for gap_s, before_ns, after_ns in zip(one.gaps_s, line["t_sent_ns"], line["t_sent_ns"][1:], strict=False)
        ]
        first_ns = min(line["t_received_ns"] for line in lines)
        last_ns = max(line["t_sent_ns"][-1] for line in lines)
        return Row(
            client=name,
            ok=len(seen),
            ttft_ms=_quantiles(ttft_ms),
            itl_ms=_quantiles(itl_ms) if itl_ms else None,
            cpu_s_per_1000_tokens=usage.cpu_s / (len(seen) * OUTPUT_TOKENS) * 1000,
            requests_per_s=len(seen) / ((last_ns - first_ns) * 1e-9),
        )
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _quantiles(values: Sequence[float]) -> tuple[float, ...]:
    return tuple(stats.quantile(values, share) for share in SHARES)


def misses(load: Load, rows: Sequence[Row]) -> list[str]:
    """Return where our client, the first row, misses a bar under this load."""
    mine, others = rows[0], {row.client.split()[0]: row for row in rows[1:]}
    found = []
    if mine.ok != load.requests:
        found.append(f"{mine.ok} of {load.requests} requests succeeded")
    for share, value, bar in ((50, mine.ttft_ms[0], load.bar_ms[0]), (99, mine.ttft_ms[2], load.bar_ms[1])):
        if not abs(value) <= bar:
            found.append(f"TTFT bias p{share} is {value:.3f} ms, {bar:g} ms allowed")
    if load.users == 256:
        for name, part in (("vllm", 10), ("guidellm", 5)):
            if name in others and not abs(mine.ttft_ms[0]) <= abs(others[name].ttft_ms[0]) / part:
                found.append(f"TTFT bias p50 is more than 1/{part} of {name}'s")
            if name in others and not mine.cpu_s_per_1000_tokens < others[name].cpu_s_per_1000_tokens:
                found.append(f"more CPU a token than {name}")
    return found


def page(tables: Sequence[tuple[Load, Sequence[Row]]], memory: scale.Memory | None, versions: str, command: str) -> str:
    """Return docs/bench.md."""
    host = provenance.host()
    lines = [
        "# How far the client is from the truth",
        "",
        f"Made by `{command}` on {datetime.now(UTC):%Y-%m-%d}: {host['cpu']}, {host['cores']} cores, "
        f"Linux {host['kernel']}, Python {platform.python_version()}; {versions}.",
        "",
        "Every client sent the same closed loop to a timing server on the same cores: "
        f"{PROMPT_TOKENS} prompt tokens, {OUTPUT_TOKENS} output tokens, the first after {FIRST_S * 1e3:g} ms.",
        "*Bias* is what the client reports minus what the server's log says of the same request: TTFT against the time",
        "from the kernel's receipt of the request to the sending of the first token, ITL gap by gap. CPU is that of",
        "the client's whole process tree, its start-up included.",
    ]
    for load, rows in tables:
        lines += [
            "",
            f"## {load.users} users, {load.requests} requests, {load.gap_s * 1e3:g} ms between tokens",
            "",
            "| client | ok | TTFT bias p50 / p90 / p99, ms | ITL bias p50 / p90 / p99, ms "
            "| CPU s per 1000 tokens | requests/s |",
            "|---|---|---|---|---|---|",
        ]
        for row in rows:
            itl = " / ".join(f"{v:+.3f}" for v in row.itl_ms) if row.itl_ms else "not reported"
            ttft = " / ".join(f"{v:+.3f}" for v in row.ttft_ms)
            cost = f"{row.cpu_s_per_1000_tokens:.4f} | {row.requests_per_s:.1f}"
            lines.append(f"| {row.client} | {row.ok} | {ttft} | {itl} | {cost} |")
        lines += ["", f"Our bar: p50 within {load.bar_ms[0]:g} ms, p99 within {load.bar_ms[1]:g} ms."]
        told = misses(load, rows)
        lines.append(f"Missed: {'; '.join(told)}." if told else "Held.")
    if memory is not None:
        lines += ["", "## Memory over many requests", "", *memory.lines()]
    return "\n".join([*lines, "", (ROOT / "bench" / "why.md").read_text(encoding="utf-8")])


def main(argv: list[str]) -> int:
    """Run the bench; print and write the page."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="client fidelity against peers")
    parser.add_argument("--users", type=int, choices=[load.users for load in LOADS], action="append")
    parser.add_argument("--without-peers", action="store_true", help="our client and the official one alone")
    parser.add_argument("--without-memory", action="store_true")
    parser.add_argument("--out", type=Path, help="where the page is written; default: standard output only")
    args = parser.parse_args(argv)
    try:
        others = [] if args.without_peers else [which() for which in peers.PEERS]
        for other in others:
            print(f"installing {other.name} where it is not there yet", flush=True)
            other.install(WORK)
        clients: list[tuple[str, Any, bool]] = [("kvgate", ours, False), ("openai client", official, False)]
        clients += [(f"{other.name} {other.version()}", peer(other), True) for other in others]
        tables: list[tuple[Load, list[Row]]] = []
        for load in LOADS:
            if args.users and load.users not in args.users:
                continue
            rows = []
            for name, run, is_peer in clients:
                if load.peers or not (is_peer or name.startswith("openai")):
                    rows.append(measure(name, run, load))
                    print(f"{load.users:>5} users  {rows[-1]}", flush=True)
            tables.append((load, rows))
        memory = None if args.without_memory else scale.memory(WORK)
    except (peers.PeerFailed, calibrate.CalibrationFailed) as error:
        print(f"kvgate: {error}", file=sys.stderr)
        return 4
    text = page(tables, memory, f"openai {version('openai')}", "make bench")
    print(text)
    if args.out:
        write_whole(args.out, text.encode())
    held = memory is None or memory.held
    return 0 if held and not any(misses(load, rows) for load, rows in tables) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
