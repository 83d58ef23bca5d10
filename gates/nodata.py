"""The absence of a value, with its reason. It is never a number and never true."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class NoData:
    """Why there is no value."""

    reason: str

    def __bool__(self) -> bool:
        return False
