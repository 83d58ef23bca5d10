"""How near the beginnings of two answers are: the log-probabilities of the first token and of its runners-up.

Wrong KV moves the whole distribution of the first token, rounding only shakes it: of two readings of one prompt the
largest difference among the tokens that either names tells them apart, and tells it also where the best token happens
to stay the same. What recompute shows against itself on the site, twice over, or the scenario's agreed noise where
that is more, is allowed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
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

    request: str
    trial: str
    seed: int  # of its prompt
    token: int  # the first one's id
    likely: Likely  # empty where the server could tell no number, as for KV that makes NaN


@dataclass
class Readings:
    """The answers of one arm."""

    all: list[Reading] = field(default_factory=list)
    without_ids: list[str] = field(default_factory=list)  # ids of the requests whose tokens were not told

    def by_prompt(self) -> dict[int, list[Reading]]:
        """Return the readings of each prompt's seed."""
        found: dict[int, list[Reading]] = {}
        for reading in self.all:
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


def floor_of(recompute: Readings) -> float:
    """Return how far recompute's readings of one prompt lie apart at most, in nats; 0 where none was read twice.

    Infinite where one of them tells no log-probability.
    """
    pairs = (pair for readings in recompute.by_prompt().values() for pair in combinations(readings, 2))
    return max((distance(one.likely, two.likely) for one, two in pairs), default=0.0)


def allowed_distance(floor: float, agreed: float) -> float:
    """Return how far a reading may lie from recompute's, in nats."""
    return max(agreed, FLOOR_FACTOR * floor)


def right_tokens(readings: Sequence[Reading], allowed: float) -> frozenset[int]:
    """Return the first token ids that count as right for one prompt, by the readings of the arm that is believed.

    The most frequent ones; and those that are so near to one of these that rounding decides.
    """
    ids = [reading.token for reading in readings]
    most = max(ids.count(token) for token in ids)
    right = {token for token in ids if ids.count(token) == most}
    for reading in [reading for reading in readings if reading.token in right]:
        own = reading.likely.get(f"{NAMED}{reading.token}", math.inf)
        near = [token for token, value in reading.likely.items() if abs(own - value) <= allowed]
        right.update(int(token.removeprefix(NAMED)) for token in near if token.removeprefix(NAMED).isdecimal())
    return frozenset(right)


def wrong_prompts(mine: Readings, believed: Readings, allowed: float) -> tuple[list[str], int, int]:
    """Return (a line per prompt that is wrong in some trial, readings too far, readings compared).

    Wrong it is where more than half of its readings in one trial lie too far from every one of the believed arm's: a
    chunk that is wrong at rest is read wrong each time, so one prompt among many shows however small its share is.
    """
    theirs = believed.by_prompt()
    lines: list[str] = []
    far = compared = 0
    places: dict[tuple[int, str], list[Reading]] = {}
    for reading in mine.all:
        if reading.seed in theirs:
            places.setdefault((reading.seed, reading.trial), []).append(reading)
    for (seed, trial), readings in places.items():
        distances = [nearest(reading, theirs[seed]) for reading in readings]
        odd = [(d, reading) for d, reading in zip(distances, readings, strict=True) if not d <= allowed]
        far += len(odd)
        compared += len(readings)
        if 2 * len(odd) > len(readings):
            least, reading = odd[0]
            told = f"{least:.3f} nats off" if math.isfinite(least) else "without a number"
            shown = f"{len(odd)} of {len(readings)} readings of prompt {seed} in {trial}"
            lines.append(f"{shown} (the first: {reading.request}, {told})")
    return lines, far, compared
