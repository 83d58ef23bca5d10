"""The report's words in one language: strings/<language>.toml as dotted key -> text."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path

HERE = Path(__file__).resolve().parent / "strings"


class ReportError(ValueError):
    """One line: why no report can be written, and what to do."""


def languages() -> list[str]:
    """Return the languages that there are strings for."""
    return sorted(p.stem for p in HERE.glob("*.toml"))


class Words:
    """Looks strings up, fills them in, and remembers which were asked for."""

    def __init__(self, language: str) -> None:
        """Load the language. Raises ReportError: there is none of that name."""
        if language not in languages():
            raise ReportError(f"language '{language}': not one of {', '.join(languages())}")
        self.language = language
        self.texts: Mapping[str, str] = _flat(tomllib.loads((HERE / f"{language}.toml").read_text(encoding="utf-8")))
        self.used: set[str] = set()

    def __call__(self, key: str, **values: object) -> str:
        """Return the string with its {fields} filled in. Raises ReportError: no such string."""
        if key not in self.texts:
            raise ReportError(f"reports/strings/{self.language}.toml: '{key}' is missing")
        self.used.add(key)
        return self.texts[key].format(**values) if values else self.texts[key]

    def either(self, key: str, otherwise: str) -> str:
        """Return the string, or `otherwise` where the word comes from the evidence and no string is known for it."""
        return self(key) if key in self.texts else otherwise


def _flat(table: Mapping[str, object], prefix: str = "") -> dict[str, str]:
    found: dict[str, str] = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = str(value)
    return found
