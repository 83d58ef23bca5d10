"""The judge's reasons, which are English, in other languages as far as they are known.

Each entry of `reasons.<language>.toml` matches a whole part of a reason, so that nothing is put into words that the
judge did not say. The original stands below every translation; what no entry matches is shown as it is.
"""

from __future__ import annotations

import functools
import re
import tomllib
from pathlib import Path

from reports.document import Cell
from reports.words import Words

HERE = Path(__file__).resolve().parent


def told(reason: str, t: Words) -> Cell:
    """Return a reason as a report shows it: translated with the original below it, or the original alone."""
    translated = translation(reason, t.language)
    if translated is None:
        return Cell(reason, "quote")
    return Cell(translated, "text", more=reason, more_kind="quote")


def translation(reason: str, language: str) -> str | None:
    """Return the reason in that language; None where it is not wholly known, or needs none."""
    parts = [_one(part, language) for part in reason.split("; ")]
    return None if None in parts or not reason else "；".join(part for part in parts if part)


def _one(part: str, language: str) -> str | None:
    patterns, words = _known(language)
    for pattern, means in patterns:
        found = pattern.fullmatch(part)
        if found is not None:
            groups = {key: words.get(value or "", value or "") for key, value in found.groupdict().items()}
            return means.format(**groups)
    return None


@functools.cache
def _known(language: str) -> tuple[list[tuple[re.Pattern[str], str]], dict[str, str]]:
    """Return (what the judge says, what that means) and single words; nothing for a language that needs none."""
    file = HERE / f"reasons.{language}.toml"
    if not file.is_file():
        return [], {}
    table = tomllib.loads(file.read_text(encoding="utf-8"))
    return [(re.compile(entry["says"], re.S), entry["means"]) for entry in table["reason"]], table["words"]
