"""Needles: a fact within a long natural text, and a question after it, for models that can read.

Each is asked once while it is computed and once more when it has to be read back from the tier: a model that knew the
answer from its own KV must know it from the stored one.
"""

from __future__ import annotations

import json
import random
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any

from scenarios.engine import LiveArm
from scenarios.tiers import TierError
from workloads import client, counters, trial
from workloads.evidence import RunDir

Json = dict[str, Any]

COUNT = 4
OUTPUT_TOKENS = 16
WORDS_PER_TOKEN = 0.6  # of plain English, low enough that no text comes out longer than what was asked for
PLACES = ("harbour", "library", "museum", "orchard", "station", "theatre", "bakery", "garden")
SUBJECTS = ("The old keeper", "A young teacher", "The night train", "Her neighbour", "The last visitor", "A quiet dog")
DEEDS = ("waited by", "walked around", "told a story about", "painted", "remembered", "drew a map of", "looked across")
THINGS = (
    "the wooden bridge",
    "the market square",
    "the grey river",
    "a row of lamps",
    "the long wall",
    "the bell tower",
)
TIMES = ("in the early morning", "after the rain", "before supper", "on the first day of spring", "until it was dark")


@dataclass(frozen=True)
class Needle:
    """A text with a question at its end, and what the answer must contain."""

    number: int
    text: str
    expected: str


@dataclass(frozen=True)
class Tokenized:
    """A needle's text as the model's own tokenizer cuts it."""

    ids: tuple[int, ...]
    seed: int

    @property
    def tokens(self) -> int:
        """Return the prompt's length."""
        return len(self.ids)

    def token_ids(self) -> list[int]:
        """Return the ids."""
        return list(self.ids)

    def prompt_seed(self) -> int:
        """Return a number that tells the needle from others of the run."""
        return self.seed


def needles(seed: int, run_id: str, tokens: int) -> list[Needle]:
    """Return the run's needles, of about `tokens` tokens each, every fact at another depth of its text."""
    draw = random.Random(f"kvgate/{seed}/{run_id}/needles")  # noqa: S311  # reproducible on purpose
    found = []
    for number, place in enumerate(draw.sample(PLACES, COUNT)):
        expected = str(draw.randrange(10_000, 100_000))
        sentences: list[str] = []
        length = 0
        while length < tokens * WORDS_PER_TOKEN - 40:
            words = (draw.choice(SUBJECTS), draw.choice(DEEDS), draw.choice(THINGS), draw.choice(TIMES))
            sentences.append(" ".join(words) + ".")
            length += sentences[-1].count(" ") + 1
        at = len(sentences) * (2 * number + 1) // (2 * COUNT)
        sentences.insert(at, f"The secret number of the {place} is {expected}.")
        question = f"Question: What is the secret number of the {place}?\nAnswer: The secret number of the {place} is"
        found.append(Needle(number, " ".join(sentences) + "\n\n" + question, expected))
    return found


def ask(run: RunDir, live: LiveArm, seed: int, tokens: int, generated: bool, deadline_s: float) -> None:
    """Ask every needle and record it as raw/<arm>/needles.json; a generated model is not asked, which is recorded.

    Raises TrialFailed, TierError.
    """
    facts: Json = {"arm": live.name, "start": live.start, "skipped": None, "expected": {}, "computed": [], "read": []}
    if generated:
        facts["skipped"] = "the model is generated: its weights are random, so it can read nothing"
    else:
        asked = []
        for needle in needles(seed, run.run_id, tokens):
            prompt = Tokenized(tuple(_tokenize(live, needle.text)), needle.number)
            asked.append((needle, prompt))
            facts["expected"][str(needle.number)] = needle.expected
        for role in ("computed", "read") if live.cache is not None else ("computed",):
            before = counters.snapshot(live, 0, False, "before")
            for needle, prompt in asked:
                trial.make_cold(live)
                order = client.Order(
                    id=f"{live.name}-needle-{role}-{needle.number}", prompt=prompt, output_tokens=OUTPUT_TOKENS,
                    facts={"arm": live.name, "role": role, "needle": needle.number},
                )  # fmt: skip
                facts[role] += client.run_wave(live.base_url, live.model_name, [order], deadline_s)
            facts["before"], facts["after"] = before, counters.settled(live, 0, False, before, len(asked))
    run.write_json(f"raw/{live.name}/needles.json", facts)


def _tokenize(live: LiveArm, text: str) -> list[int]:
    """Return the text's ids as the engine's tokenizer makes them. Raises TierError."""
    url = f"{live.base_url}/tokenize"
    body = json.dumps({"model": live.model_name, "prompt": text}).encode()
    request = urllib.request.Request(url, data=body, headers={"Content-Type": "application/json"})  # noqa: S310
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60.0) as answer:
            ids = json.loads(answer.read())["tokens"]
    except (urllib.error.URLError, OSError, ValueError, LookupError, TypeError) as error:
        raise TierError(f"{url}: no tokens for a text: {error}") from None
    if not isinstance(ids, list) or any(type(token) is not int for token in ids):
        raise TierError(f"{url}: its tokens are no list of ids")
    return ids
