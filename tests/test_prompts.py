"""Prompts: exact, reproducible, and nothing shared but what is declared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.prompts import (
    ComposedPrompt,
    Part,
    Prompt,
    PromptSpec,
    declared_sharing,
    long_documents,
    sessions,
    shared_prefix,
    unshared,
)


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


def common(a: Sequence[int], b: Sequence[int]) -> int:
    """Return how many leading ids are the same."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


VOCABULARY = 150_000


def composed(*parts: tuple[str, int], seed: int = 1, vocabulary_tokens: int = VOCABULARY) -> ComposedPrompt:
    return ComposedPrompt(seed, tuple(Part(*part) for part in parts), vocabulary_tokens)


def test_a_composed_prompt_is_the_same_on_every_machine() -> None:
    prompt = composed(("a", 3), ("b", 2))
    assert prompt.token_ids() == [64242, 114396, 139671, 141693, 129504]
    assert prompt.prompt_seed() == 7356916615461982


@given(
    st.lists(st.tuples(st.sampled_from("abcde"), st.integers(1, 40)), max_size=6),
    st.integers(2, 300),
)
def test_a_composed_prompt_has_its_length_and_no_id_0(parts: list[tuple[str, int]], vocabulary: int) -> None:
    prompt = composed(*parts, vocabulary_tokens=vocabulary)
    ids = prompt.token_ids()
    assert len(ids) == prompt.tokens == sum(n for _, n in parts)
    assert all(1 <= i < vocabulary for i in ids)
    assert 0 <= prompt.prompt_seed() < 2**53
    assert ids == [i for part in parts for i in composed(part, vocabulary_tokens=vocabulary).token_ids()]


def test_a_shorter_use_of_a_key_begins_a_longer_one() -> None:
    assert composed(("a", 1000)).token_ids()[:600] == composed(("a", 600)).token_ids()
    assert composed(("a", 9), seed=2).token_ids() != composed(("a", 9)).token_ids()


def test_every_id_of_a_vocabulary_is_drawn_about_as_often() -> None:
    counts = Counter(composed(("a", 99_000), vocabulary_tokens=100).token_ids())
    assert set(counts) == set(range(1, 100))
    assert all(800 < n < 1200 for n in counts.values())


Parts = list[tuple[str, int]]


@given(
    st.lists(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from([8, 16])), min_size=1, max_size=4), max_size=8)
)
def test_declared_sharing_is_what_the_ids_share(rows: list[Parts]) -> None:
    # Ids are compared from a common start alone, as a prefix cache does. A wide vocabulary keeps chance out.
    prompts = [composed(*row, vocabulary_tokens=2**40) for row in rows]
    ids = [p.token_ids() for p in prompts]
    shared = sum(max((common(ids[i], ids[k]) for k in range(i)), default=0) for i in range(len(ids)))
    sharing = declared_sharing(prompts)
    assert (sharing.prompts, sharing.tokens) == (len(rows), sum(map(len, ids)))
    assert sharing.shared_tokens == shared
    assert sharing.longest_tokens == max(map(len, ids), default=0)


def test_a_prompt_without_tokens_or_vocabulary_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one token"):
        composed(("a", 0))
    with pytest.raises(ValueError, match="no id beside 0"):
        composed(("a", 1), vocabulary_tokens=1)


def test_unshared_prompts_share_nothing() -> None:
    made = [p.token_ids() for p in unshared(1, 6, 200, VOCABULARY)]
    assert all(common(a, b) == 0 for a, b in combinations(made, 2))


def test_a_shared_prefix_is_shared_within_its_group_alone() -> None:
    made = [p.token_ids() for p in shared_prefix(1, 3, 4, 300, 50, VOCABULARY)]
    assert [len(ids) for ids in made] == [350] * 12
    for (i, a), (k, b) in combinations(enumerate(made), 2):
        assert common(a, b) == (300 if i % 3 == k % 3 else 0)


def test_each_round_asks_one_question_of_every_document() -> None:
    made = [p.token_ids() for p in long_documents(1, 3, 400, 2, 20, VOCABULARY)]
    assert len(made) == 6
    for (i, a), (k, b) in combinations(enumerate(made), 2):
        assert common(a, b) == (400 if k == i + 3 else 0)


def test_a_turn_repeats_the_whole_prompt_before_it() -> None:
    made = [p.token_ids() for p in sessions(1, 2, 3, 100, 30, 20, VOCABULARY)]
    assert [len(ids) for ids in made] == [100, 100, 150, 150, 200, 200]
    assert made[2][:100] == made[0]
    assert made[4][:150] == made[2]
    assert common(made[4], made[5]) == 0
    assert declared_sharing(sessions(1, 2, 3, 100, 30, 20, VOCABULARY)).shared_tokens == 2 * (100 + 150)


def test_both_kinds_of_prompt_fit_what_is_sent() -> None:
    kinds: list[Prompt] = [spec(), composed(("a", 5))]
    assert [len(p.token_ids()) == p.tokens for p in kinds] == [True, True]
