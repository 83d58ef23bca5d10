"""The positive control: do the answers show an exchanged chunk? Carried out on a prompt of its own.

The prompt is made from the run's id, so that no other run, and nobody else, ever asks for its chunks: whatever state
a run that is killed leaves them in, they serve nobody. Nothing is written into any file: two of the prompt's own files
change names with each other, and back again.
"""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from scenarios import tiers
from scenarios.engine import LiveArm
from workloads import chunks, client, trial
from workloads.evidence import RunDir
from workloads.prompts import ComposedPrompt, Part

Json = dict[str, Any]

SPARE_CHUNKS = 2  # of the second prompt, one of whose chunks is served for one of the first
EXCHANGES = 3  # one after the other: a single chunk may happen to matter little


class ControlFailed(RuntimeError):
    """One line: why the control could not be carried out. What there is has been recorded."""


def prompts(seed: int, run_id: str, tokens: int, chunk_tokens: int, vocabulary_tokens: int) -> list[ComposedPrompt]:
    """Return the prompt that is asked, as long as those that are measured, and the one that gives a chunk for it."""
    lengths = {"asked": tokens, "spare": SPARE_CHUNKS * chunk_tokens + 1}
    return [
        ComposedPrompt(seed, (Part(f"control/{run_id}/{name}", length),), vocabulary_tokens)
        for name, length in lengths.items()
    ]


def exchanges(stored_chunks: int) -> int:
    """Return how many chunks are exchanged, of a prompt that has so many."""
    return min(EXCHANGES, stored_chunks)


def carry_out(
    run: RunDir, live: LiveArm, seed: int, tokens: int, output_tokens: int, chunk_tokens: int, vocabulary_tokens: int,
    deadline_s: float,
) -> None:  # fmt: skip
    """Store both prompts, read the first sound, exchanged and restored, and record it as raw/<arm>/control.json.

    Raises ControlFailed, TrialFailed, TierError.
    """
    assert live.tier_folder is not None  # noqa: S101  # the arm has a tier
    asked, spare = prompts(seed, run.run_id, tokens, chunk_tokens, vocabulary_tokens)
    facts: Json = {"arm": live.name, "start": live.start, "run_id": run.run_id, "error": "interrupted"}
    facts |= {"exchanges": [], "requests": []}

    def ask(role: str, prompt: ComposedPrompt) -> None:
        trial.make_cold(live)
        order = client.Order(
            id=f"{live.name}-control-{role}", prompt=prompt, output_tokens=output_tokens,
            facts={"arm": live.name, "role": role},
        )  # fmt: skip
        facts["requests"] += client.run_wave(live.base_url, live.model_name, [order], deadline_s)
        trial.wait_stored(live)
        if facts["requests"][-1]["status"] != "ok":
            raise ControlFailed(f"the control's request '{role}' failed: {facts['requests'][-1]['error']}")

    try:
        files = {}
        for role, prompt in (("stored", asked), ("spare", spare)):
            before = tiers.chunk_files(live.tier_folder)
            ask(role, prompt)
            files[role] = sorted(name for name in tiers.chunk_files(live.tier_folder) if name not in before)
        facts["files"] = files
        wanted = {"stored": tokens // chunk_tokens, "spare": SPARE_CHUNKS}
        for role, names in files.items():
            if len(names) != wanted[role]:
                raise ControlFailed(
                    f"the control's prompt '{role}' left {len(names)} chunk files, {wanted[role]} expected"
                )
        ask("sound", asked)
        for number, one in enumerate(random.Random(seed).sample(files["stored"], exchanges(len(files["stored"])))):  # noqa: S311
            pair = [one, files["spare"][0]]
            hashes = {"sound": _hashes(live.tier_folder, pair)}
            facts["exchanges"].append({"pair": pair, "hashes": hashes})
            run.write_json(f"raw/{live.name}/control.json", facts)
            with exchanged(live.tier_folder, pair[0], pair[1]):
                hashes["exchanged"] = _hashes(live.tier_folder, pair)
                ask(f"exchanged-{number}", asked)
            hashes["restored"] = _hashes(live.tier_folder, pair)
        ask("restored", asked)
        facts["error"] = None
    except (ControlFailed, trial.TrialFailed, tiers.TierError, OSError) as error:
        facts["error"] = str(error)
        if isinstance(error, OSError):
            raise ControlFailed(f"the control's files could not be exchanged: {error}") from None
        raise
    finally:
        run.write_json(f"raw/{live.name}/control.json", facts)


@contextlib.contextmanager
def exchanged(folder: Path, one: str, two: str) -> Iterator[None]:
    """Let two files of the folder have each other's name meanwhile. Raises OSError."""
    _swap(folder, one, two)
    try:
        yield
    finally:
        _swap(folder, one, two)


def _swap(folder: Path, one: str, two: str) -> None:
    # Names are all that changes. No file system that a tier may lie on lacks this, as some lack an atomic exchange.
    aside = folder / f"{one}.control"
    os.rename(folder / one, aside)
    os.rename(folder / two, folder / one)
    os.rename(aside, folder / two)


def _hashes(folder: Path, names: list[str]) -> Mapping[str, str | None]:
    found: Mapping[str, str | None] = chunks.look(folder, names)["hashes"]
    return found
