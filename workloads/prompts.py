"""Seeded prompts as token-id lists: exact lengths, nothing shared unless declared."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict


class Prompt(Protocol):
    """What a request is made of; whoever sends it need not know how it was made."""

    @property
    def tokens(self) -> int:
        """Return the prompt's exact length."""

    def token_ids(self) -> list[int]:
        """Return `tokens` ids, the same ones on every machine."""

    def prompt_seed(self) -> int:
        """Return a number of 53 bits that tells this prompt from others in a record."""


class PromptSpec(BaseModel):
    """What makes one prompt: the same spec gives the same ids on every machine."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seed: int
    prompt_set: int
    prompt_index: int
    tokens: int
    vocabulary_tokens: int

    def prompt_seed(self) -> int:
        """Return the prompt's own seed, 53 bits, so that it survives any JSON reader."""
        return _seed_of(f"kvgate/{self.seed}/{self.prompt_set}/{self.prompt_index}")

    def token_ids(self) -> list[int]:
        """Return `tokens` ids, uniform over the vocabulary without id 0 (end of text).

        Random ids neither compress nor repeat, so no layer of a tier can flatter itself by deduplication.
        """
        draw = random.Random(self.prompt_seed())  # noqa: S311  # reproducible on purpose
        return [draw.randrange(1, self.vocabulary_tokens) for _ in range(self.tokens)]


def prompt_set(seed: int, number: int, prompts: int, tokens: int, vocabulary_tokens: int) -> list[PromptSpec]:
    """Return the specs of one set; smaller steps use its first ones."""
    return [
        PromptSpec(seed=seed, prompt_set=number, prompt_index=i, tokens=tokens, vocabulary_tokens=vocabulary_tokens)
        for i in range(prompts)
    ]


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a prompt: its ids depend on the seed and the key alone, so a shorter use begins a longer one."""

    key: str
    tokens: int


@dataclass(frozen=True, slots=True)
class ComposedPrompt:
    """A prompt that declares its parts: two prompts share their common leading parts, and nothing else.

    Where the same key comes in two lengths, the shorter length is shared and what follows is not. Different keys
    give unrelated ids, so past the declared sharing each further id agrees by chance alone (one in the vocabulary).
    """

    seed: int
    parts: tuple[Part, ...]
    vocabulary_tokens: int

    def __post_init__(self) -> None:
        if self.vocabulary_tokens < 2:
            raise ValueError(f"a vocabulary of {self.vocabulary_tokens} tokens leaves no id beside 0")
        if any(part.tokens < 1 for part in self.parts):
            raise ValueError("every part of a prompt needs at least one token")

    @property
    def tokens(self) -> int:
        """Return the sum of the parts' tokens."""
        return sum(part.tokens for part in self.parts)

    def prompt_seed(self) -> int:
        """Return a number of 53 bits that follows from the seed and the parts."""
        return _seed_of(f"kvgate/{self.seed}/{json.dumps([[part.key, part.tokens] for part in self.parts])}")

    def token_ids(self) -> list[int]:
        """Return the ids of all parts, 1 to vocabulary_tokens - 1; made anew at each call, about 10 ms for 100,000."""
        return list(chain.from_iterable(self._part_ids(part).tolist() for part in self.parts))

    def _part_ids(self, part: Part) -> NDArray[np.uint64]:
        # The bytes of an extendable hash are the same everywhere, and a shorter draw is the beginning of a longer
        # one. With 64 bits for each id, no id is favoured by more than one part in 2**40.
        drawn = hashlib.shake_128(f"kvgate/{self.seed}/{part.key}".encode()).digest(8 * part.tokens)
        return np.frombuffer(drawn, dtype="<u8") % np.uint64(self.vocabulary_tokens - 1) + np.uint64(1)


@dataclass(frozen=True)
class Sharing:
    """What a row of prompts holds. `shared_tokens`: those that an endless cache would have, from earlier prompts."""

    prompts: int
    tokens: int
    shared_tokens: int
    longest_tokens: int

    @property
    def share(self) -> float:
        """Return shared_tokens / tokens, 0 where there are none."""
        return self.shared_tokens / self.tokens if self.tokens else 0.0


def declared_sharing(prompts: Iterable[ComposedPrompt], counted_from: int = 0) -> Sharing:
    """Return what the prompts declare to share, in this order; those before index `counted_from` only warm up.

    Counted in single tokens: an engine hits whole blocks, and always computes the last token of a prompt.
    """
    # A tree of prefixes: from a node, a part of the same length leads on; of another length, it is shared and ends.
    children: dict[tuple[int, str, int], int] = {}
    longest_use: dict[tuple[int, str], int] = {}
    count = tokens = shared = longest = 0
    for index, prompt in enumerate(prompts):
        node, hit, still_shared = 0, 0, True
        for part in prompt.parts:
            use, exact = (node, part.key), (node, part.key, part.tokens)
            if still_shared:
                hit += min(longest_use.get(use, 0), part.tokens)
                still_shared = exact in children
            longest_use[use] = max(longest_use.get(use, 0), part.tokens)
            node = children.setdefault(exact, len(children) + 1)
        if index >= counted_from:
            count, tokens, shared = count + 1, tokens + prompt.tokens, shared + hit
            longest = max(longest, prompt.tokens)
    return Sharing(prompts=count, tokens=tokens, shared_tokens=shared, longest_tokens=longest)


def unshared(seed: int, prompts: int, tokens: int, vocabulary_tokens: int) -> Iterator[ComposedPrompt]:
    """Yield prompts that share nothing."""
    for index in range(prompts):
        yield ComposedPrompt(seed, (Part(f"unshared/{index}", tokens),), vocabulary_tokens)


def shared_prefix(
    seed: int, groups: int, prompts_per_group: int, prefix_tokens: int, suffix_tokens: int, vocabulary_tokens: int
) -> Iterator[ComposedPrompt]:
    """Yield prompts that share `prefix_tokens` within their group and nothing across groups: one of each group in turn.

    The first prompt of a group has nothing to share yet.
    """
    return _grouped("prefix", seed, groups, prompts_per_group, prefix_tokens, suffix_tokens, vocabulary_tokens)


def long_documents(
    seed: int, documents: int, document_tokens: int, questions: int, question_tokens: int, vocabulary_tokens: int
) -> Iterator[ComposedPrompt]:
    """Yield prompts of a document and a question; those on one document share `document_tokens`, others nothing.

    Each round asks one question of every document, so that a document comes back after all the others: the order
    in which a cache smaller than the documents loses each of them just before it is needed.
    """
    return _grouped("document", seed, documents, questions, document_tokens, question_tokens, vocabulary_tokens)


def _grouped(
    name: str, seed: int, groups: int, rounds: int, head_tokens: int, tail_tokens: int, vocabulary_tokens: int
) -> Iterator[ComposedPrompt]:
    for turn in range(rounds):
        for group in range(groups):
            head, tail = Part(f"{name}/{group}", head_tokens), Part(f"{name}/{group}/{turn}", tail_tokens)
            yield ComposedPrompt(seed, (head, tail), vocabulary_tokens)


def sessions(
    seed: int,
    users: int,
    turns: int,
    first_tokens: int,
    turn_tokens: int,
    answer_tokens: int,
    vocabulary_tokens: int,
) -> Iterator[ComposedPrompt]:
    """Yield every user's first prompt, then every user's second, and so on; users share nothing with each other.

    The prompt of a turn is the prompt of the turn before, its answer of `answer_tokens` and `turn_tokens` new ones,
    so it shares with the turn before the whole of that prompt. The answer is seeded and not the engine's own: every
    arm is sent the same prompts, and the answer's tokens are new to any cache.
    """
    for turn in range(turns):
        for user in range(users):
            parts = [Part(f"session/{user}/0", first_tokens)]
            for k in range(1, turn + 1):
                parts.append(Part(f"session/{user}/{k}/answer", answer_tokens))
                parts.append(Part(f"session/{user}/{k}", turn_tokens))
            yield ComposedPrompt(seed, tuple(parts), vocabulary_tokens)


def seed_of_nonce(nonce: str) -> int:
    """Return the seed of a run, 48 bits, that a text makes: who names it late knows that nobody rehearsed the run."""
    return int.from_bytes(hashlib.sha256(f"kvgate/nonce/{nonce}".encode("utf-8", "surrogatepass")).digest()[:6], "big")


def _seed_of(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 11
