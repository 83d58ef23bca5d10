"""How near the beginnings of two answers are: the log-probabilities of the first token and of its runners-up.

Wrong KV moves the whole distribution of the first token, rounding only shakes it: of two readings of one prompt the
largest difference among the tokens that either names tells them apart, and tells it also where the best token happens
to stay the same. What recompute shows against itself on the site, twice over, or the scenario's agreed noise where
that is more, is allowed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

Likely = Mapping[str, float]  # token -> log-probability, nats; the best ones

NAMED = "token_id:"  # what an id follows where a server names tokens by their ids
# Rounding differs from reading to reading: what two recomputed ones show is one draw of it, not its bound.
FLOOR_FACTOR = 2.0
# A floor that allows more than this does not see much; whether it still sees anything, the control says.
ALLOWED_MAX = 0.5


@dataclass(frozen=True)
class Reading:
    """The beginning of one successful answer."""

    trial: str  # "<arm>/c<step>/b<nn>"
    place: int  # of its record in the trial's requests.jsonl, from 0
    seed: int  # of its prompt
    token: int  # the first one's id
    likely: Likely  # empty where the server could tell no number, as for KV that makes NaN


def by_prompt(readings: Iterable[Reading]) -> dict[int, list[Reading]]:
    """Return the readings of each prompt's seed."""
    found: dict[int, list[Reading]] = {}
    for reading in readings:
        found.setdefault(reading.seed, []).append(reading)
    return found


def distance(mine: Likely, other: Likely) -> float:
    """Return the largest difference, in nats, between two readings' log-probabilities; infinite where one has none.

    A token that only one of them names is, in the other, no likelier than the least likely that is named there.
    """
    if not mine or not other:
        return math.inf
    least_mine, least_other = min(mine.values()), min(other.values())
    far = 0.0
    for token in mine.keys() | other.keys():
        if token in mine and token in other:
            far = max(far, abs(mine[token] - other[token]))
        elif token in mine:
            far = max(far, mine[token] - least_other)
        else:
            far = max(far, other[token] - least_mine)
    return far


def nearest(reading: Reading, others: Iterable[Reading]) -> float:
    """Return the distance of a reading to the nearest of the others of its prompt; infinite where there are none."""
    return min((distance(reading.likely, other.likely) for other in others), default=math.inf)


def floor_of(recompute: Mapping[int, Sequence[Reading]]) -> float:
    """Return how far recompute's readings of one prompt lie apart at most, in nats; 0 where none was read twice.

    Infinite where one of them tells no log-probability.
    """
    widest = 0.0
    for readings in recompute.values():
        # Readings that are equal lie as far from the others as each other.
        different = list({tuple(sorted(reading.likely.items())): reading.likely for reading in readings}.values())
        widest = max(widest, *(distance(one, two) for one, two in combinations(different, 2)), 0.0)
        if len(readings) > 1 and not all(different):
            return math.inf
    return widest


def allowed_distance(floor: float, agreed: float) -> float:
    """Return how far a reading may lie from recompute's, in nats."""
    return max(agreed, FLOOR_FACTOR * floor)


def right_tokens(readings: Sequence[Reading], allowed: float) -> frozenset[int]:
    """Return the first token ids that count as right for one prompt, by the readings of the arm that is believed.

    The most frequent ones; and those that are so near to one of these that rounding decides.
    """
    counts = Counter(reading.token for reading in readings)
    right = {token for token, count in counts.items() if count == max(counts.values())}
    for reading in [reading for reading in readings if reading.token in right]:
        own = reading.likely.get(f"{NAMED}{reading.token}", math.inf)
        near = [token for token, value in reading.likely.items() if abs(own - value) <= allowed]
        right.update(int(token.removeprefix(NAMED)) for token in near if token.removeprefix(NAMED).isdecimal())
    return frozenset(right)
