"""Seeded prompts as token-id lists: exact lengths, nothing shared unless declared."""

from __future__ import annotations

import hashlib
import random

from pydantic import BaseModel, ConfigDict


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
        text = f"kvgate/{self.seed}/{self.prompt_set}/{self.prompt_index}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 11

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
