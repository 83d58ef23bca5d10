"""Prompts: exact, reproducible, and nothing shared."""

from __future__ import annotations

from workloads.prompts import PromptSpec


def spec(**change: int) -> PromptSpec:
    return PromptSpec(
        **{"seed": 1, "prompt_set": 0, "prompt_index": 0, "tokens": 600, "vocabulary_tokens": 1024, **change}
    )


def test_exact_length_and_range() -> None:
    ids = spec().token_ids()
    assert len(ids) == 600
    assert min(ids) >= 1
    assert max(ids) < 1024


def test_the_same_spec_gives_the_same_ids_on_every_machine() -> None:
    assert spec().token_ids()[:6] == [269, 498, 954, 376, 1001, 18]


def test_sets_indices_and_seeds_share_no_chunk() -> None:
    specs = [spec(), spec(seed=2), spec(prompt_set=1), spec(prompt_index=1)]
    heads = {tuple(s.token_ids()[:256]) for s in specs}
    assert len(heads) == len(specs)
    assert len({s.prompt_seed() for s in specs}) == len(specs)


def test_a_prompt_seed_survives_json() -> None:
    assert spec().prompt_seed() < 2**53
