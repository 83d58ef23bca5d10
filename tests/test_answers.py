"""Right answers in flight: one wrong prompt among many, near ties, KV that makes no number, a recompute that is noisy."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gates import verdict
from gates.validity.answers import Reading, by_prompt, distance, floor_of, nearest, right_tokens
from gates.validity.packed import Packer, Reference
from tests.synthetic import make_run
from tests.synthetic_requests import likely
from tests.synthetic_truth import Truth, only
from workloads.evidence import Run

Json = dict[str, Any]
LIKELY = st.dictionaries(st.sampled_from("abcdefgh"), st.floats(-20, 0), max_size=5)


def judged(folder: Path, **truth: Any) -> Json:
    return verdict.judge(Run(make_run(folder, Truth(**truth))))


def told(result: Json, check: str) -> list[Json]:
    return [b for b in result["breaches"] if b["check"] == check]


def moved(nats: float) -> Callable[[Json], None]:
    """A change that moves the first token's log-probabilities alone: the token stays the same."""
    return lambda r: r.update(first_logprobs={token: value - nats for token, value in r["first_logprobs"].items()})


@given(LIKELY, LIKELY)
def test_a_distance_is_the_same_from_both_sides_and_none_to_itself(
    mine: dict[str, float], other: dict[str, float]
) -> None:
    assert distance(mine, other) == distance(other, mine) >= 0
    assert distance(mine, mine) == (0 if mine else math.inf)


@given(st.dictionaries(st.sampled_from("abcdefgh"), st.floats(-20, 0), min_size=8), st.data())
def test_a_distance_never_says_more_than_the_whole_distributions_would(
    whole: dict[str, float], data: st.DataObject
) -> None:
    """Each side names its best five; the rest of a distribution is no likelier than the least of these."""
    other = {token: value + data.draw(st.floats(-1, 1)) for token, value in whole.items()}
    five = [dict(sorted(d.items(), key=lambda item: -item[1])[:5]) for d in (whole, other)]
    assert distance(*five) <= max(abs(whole[t] - other[t]) for t in whole) + 1e-9


def test_what_only_one_names_counts_against_the_least_likely_of_the_other() -> None:
    assert distance({"a": -1.0, "b": -3.0}, {"a": -1.0, "c": -2.5}) == pytest.approx(0.5)
    assert distance({"a": -1.0, "b": -3.0}, {"c": -1.0, "d": -3.0}) == pytest.approx(2.0)
    assert distance({}, {"a": -1.0}) == math.inf


@given(st.lists(st.tuples(st.integers(0, 2), LIKELY), max_size=8), st.lists(st.tuples(st.integers(0, 2), LIKELY)))
def test_arrays_of_readings_are_as_far_apart_as_their_readings(
    believed: list[tuple[int, dict[str, float]]], mine: list[tuple[int, dict[str, float]]]
) -> None:
    known = by_prompt(Reading("t", place, seed, 1, likely) for place, (seed, likely) in enumerate(believed))
    packer = Packer("t")
    packer.take(
        [
            {"status": "ok", "output_token_ids": [1], "first_logprobs": likely, "prompt_seed": seed}
            for seed, likely in mine
        ],
        None,
    )
    packed, reference = packer.packed(), Reference(known)
    assert [packed.reading(row).likely for row in range(len(mine))] == [likely for _, likely in mine]
    rows = np.flatnonzero(reference.known(packed))
    assert [int(packed.seeds[row]) for row in rows] == [seed for seed, _ in mine if seed in known]
    near = [nearest(packed.reading(int(row)), known[int(packed.seeds[row])]) for row in rows]
    for allowed in {0.0, 1.0, *near} - {math.inf}:
        assert reference.far(packed, rows, allowed).tolist() == [not value <= allowed for value in near]


@pytest.mark.parametrize("odd", ["-1.0", None, True, [1.0], math.inf, -math.inf, math.nan])
def test_a_log_probability_that_is_no_number_is_no_reading(odd: object) -> None:
    record = {"status": "ok", "output_token_ids": [1], "first_logprobs": {"token_id:1": odd}, "prompt_seed": 1}
    with pytest.raises((TypeError, ValueError)):
        Packer("t").take([record], None)


def test_tokens_that_rounding_decides_between_are_all_right() -> None:
    near = Reading("t", 0, 1, 7, {"token_id:7": -1.0, "token_id:8": -1.15, "token_id:9": -1.3})
    assert right_tokens([near], 0.2) == {7, 8}
    assert right_tokens([Reading("t", 0, 1, 7, {"token_id:8": -1.0})], 0.2) == {7}  # its own is not among them


def test_the_floor_is_the_widest_pair_of_one_prompt() -> None:
    readings = [Reading("t", 0, seed, 1, {"a": value}) for seed, value in ((1, -1.0), (1, -1.25), (1, -1.1), (2, -9.0))]
    assert floor_of(by_prompt(readings)) == pytest.approx(0.25)
    assert floor_of({}) == 0.0


@pytest.mark.parametrize(("arm", "given_verdict"), [("candidate", "FAIL"), ("baseline", "INVALID")])
def test_one_wrong_prompt_in_one_trial_is_the_arms_fault_however_small_its_share(
    tmp_path: Path, arm: str, given_verdict: str
) -> None:
    """Six of 180 readings, of one prompt in one block, in one of its two steps; and the first token is the right one."""
    where = {"arm": arm, "block": 4, "step": 4, "prompt_index": 2}
    generous = lambda f: f["scenario"]["workload"].update(first_token_mismatch_budget=0.1)  # noqa: E731
    result = judged(tmp_path, request=only(where, moved(0.3)), run=generous)
    (found,) = told(result, "wrong-prompt")
    assert found["whose"] == arm
    assert "6 of 6 readings of prompt" in found["reason"]
    assert f"in {arm}/c4/b04" in found["reason"]
    assert "0.300 nats off" in found["reason"]
    assert told(result, "output-equality") == []
    assert result["verdict"] == given_verdict


def test_what_rounding_does_passes_and_a_reading_that_it_did_not_do_counts(tmp_path: Path) -> None:
    assert judged(tmp_path / "a", request=only({"arm": "candidate"}, moved(0.19)))["verdict"] == "PASS"
    result = judged(tmp_path / "b", request=only({"arm": "candidate", "wave": 3}, moved(0.21)))
    assert told(result, "wrong-prompt") == []  # one wave of six each
    (found,) = told(result, "output-equality")
    assert "30 are more than 0.2 nats off; 2 % allowed" in found["reason"]
    assert result["verdict"] == "FAIL"


def test_kv_that_makes_no_number_is_wrong_and_no_missing_data(tmp_path: Path) -> None:
    """A flipped exponent bit can make every logit NaN: the server answers all the same, without a log-probability."""
    where = {"arm": "candidate", "prompt_set": 1, "prompt_index": 0}
    result = judged(tmp_path, request=only(where, lambda r: r.update(first_logprobs=None)))
    assert "without a number" in told(result, "wrong-prompt")[0]["reason"]
    assert result["verdict"] == "FAIL"


def test_a_recompute_without_log_probabilities_is_no_reference(tmp_path: Path) -> None:
    one = only({"arm": "recompute", "block": 2, "wave": 1}, lambda r: r.update(first_logprobs=None))
    result = judged(tmp_path, request=one)
    assert "no data on the log-probabilities of recompute-c" in told(result, "output-equality")[0]["reason"]
    assert result["verdict"] == "INVALID"


@pytest.mark.parametrize(("shift", "given_verdict"), [(0.2, "PASS"), (0.3, "INVALID")])
def test_recomputes_own_noise_widens_what_is_allowed_up_to_a_bound(
    tmp_path: Path, shift: float, given_verdict: str
) -> None:
    """0.2 nats between two readings of recompute allow 0.4; 0.3 would allow more than anybody should."""
    noisy = only({"arm": "recompute", "wave": 1}, moved(shift))
    other = only({"arm": "candidate"}, moved(-0.35))

    def request(record: Json) -> None:
        noisy(record)
        other(record)

    result = judged(tmp_path, request=request)
    assert result["verdict"] == given_verdict
    if given_verdict == "INVALID":
        assert "lie up to 0.300 nats apart, 0.25 allowed" in told(result, "output-equality")[0]["reason"]


def test_a_near_tie_that_the_arms_resolve_differently_passes(tmp_path: Path) -> None:
    def tie(record: Json) -> None:
        token = record["output_token_ids"][0]
        pair = {f"token_id:{token}": -1.0, f"token_id:{(token + 1) % 1024}": -1.0}
        record["first_logprobs"] = {**likely(token), **pair}
        if record["arm"] == "candidate":
            record["output_token_ids"] = [(token + 1) % 1024] * len(record["output_token_ids"])

    assert judged(tmp_path, request=only({"prompt_index": 1}, tie))["verdict"] == "PASS"
