"""Deviations and waivers: what was done otherwise than agreed, who agreed to it, and when.

They stand in `waivers.toml`, which is sealed with the run or named by hand when the report is written. They are told
in the report and change no verdict.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from scenarios.load import ConfigError, load_toml
from scenarios.model import PositiveInt, Strict
from workloads.evidence import EvidenceError, sha256_of

FILE = "waivers.toml"
Told = Annotated[str, Field(min_length=1, max_length=4000, pattern=r"\S")]


class Deviation(Strict):
    """One deviation from what was agreed, or a waiver of one requirement."""

    kind: Literal["deviation", "waiver"] = "deviation"
    what: Told
    why: Told
    criterion: Told | None = None  # the requirement that it bears on; a waiver needs one
    step: PositiveInt | None = None
    signed_by: Annotated[tuple[Told, ...], Field(min_length=1, strict=False)]  # name, office, party
    date: datetime.date


class Waivers(Strict):
    """A waivers.toml."""

    schema_: Annotated[Literal[1], Field(alias="schema")]
    deviation: Annotated[tuple[Deviation, ...], Field(strict=False)] = ()


@dataclass(frozen=True)
class Deviations:
    """The entries, and where they come from."""

    entries: tuple[Deviation, ...] = ()
    file: str | None = None  # None: there is no such file
    sealed: bool = False
    sha256: str | None = None


NONE = Deviations()


def deviations(run: Path, named: Path | None = None) -> Deviations:
    """Return the deviations of the named file, or those in the run; none where there is no file.

    Raises EvidenceError: a named file is missing, or a file is not as its format says.
    """
    path = named or run / FILE
    if named is None and not path.is_file():
        return NONE
    try:
        entries = load_toml(path, Waivers).value.deviation
        digest = sha256_of(path)
    except ConfigError as error:
        raise EvidenceError(str(error)) from None
    except OSError as error:
        raise EvidenceError(f"{path}: {error.strerror or error}") from None
    for number, entry in enumerate(entries, start=1):
        if entry.kind == "waiver" and entry.criterion is None:
            raise EvidenceError(
                f"{path}: deviation {number}: a waiver names the criterion that it waives: criterion = …"
            )
    return Deviations(entries, path.name, sealed=named is None, sha256=digest)
