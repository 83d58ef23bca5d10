"""Reading JSON of which nothing is known: what is not of the expected kind is absent."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]


def dig(value: object, *keys: str) -> Any:
    """Return the value under nested keys; None where one of them is missing or no object."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def mapping(value: object) -> Json:
    """Return the object; an empty one where it is none."""
    return value if isinstance(value, dict) else {}


def items(value: object) -> list[Any]:
    """Return the list; an empty one where it is none."""
    return value if isinstance(value, list) else []


def objects(value: object) -> tuple[Json, ...]:
    """Return the objects in a list; whatever else is in it is left out."""
    return tuple(entry for entry in items(value) if isinstance(entry, dict))


def numeric(value: object) -> float | None:
    """Return a number as such; None for what is none, true and false included."""
    try:
        return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
    except OverflowError:  # JSON's whole numbers have no end
        return None


def whole(value: object) -> int | None:
    """Return a whole number as such; None for what is none, true and false included."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None
