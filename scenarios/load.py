"""TOML files to models, with the place of every value.

An error is one line, `file:line: key: reason`. Every effective value keeps its origin, so that a report can say
where it came from.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import ValidationError

from scenarios.model import Scenario, Site, Strict

HERE = Path(__file__).resolve().parent
SITES = HERE / "sites"
CATALOG = HERE / "catalog"

M = TypeVar("M", bound=Strict)


class ConfigError(ValueError):
    """One line that names file, line, key, what is wrong and what to do."""


@dataclass(frozen=True)
class Loaded(Generic[M]):
    """A model, the file that it came from, and the origin (`file:line` or "default") of each effective value."""

    value: M
    path: Path
    origins: Mapping[str, str]


def load_site(name_or_path: str) -> Loaded[Site]:
    """Return the site of that name in scenarios/sites, or of that TOML path. Raises ConfigError."""
    return load_toml(find(name_or_path, SITES, "site"), Site)


def load_scenario(name_or_path: str, site: Loaded[Site]) -> Loaded[Scenario]:
    """Return the scenario, checked against the site that has to run it. Raises ConfigError."""
    loaded = load_toml(find(name_or_path, CATALOG, "scenario"), Scenario)
    scenario = loaded.value
    text = loaded.path.read_text(encoding="utf-8")

    def refuse(key: str, reason: str) -> ConfigError:
        return ConfigError(f"{_place(loaded.path, text, tuple(key.split('.')))}: {key}: {reason}")

    model = site.value.models.get(scenario.model)
    if model is None:
        raise refuse("model", f"'{scenario.model}' is not in {site.path}; it has {_names(site.value.models)}")
    for arm_name, arm in scenario.arms.items():
        for tier in arm.tiers:
            if tier not in site.value.tiers:
                raise refuse(
                    f"arms.{arm_name}.tiers", f"'{tier}' is not in {site.path}; it has {_names(site.value.tiers)}"
                )
    needed = scenario.workload.prompt_tokens + scenario.workload.output_tokens
    if needed > model.max_context_tokens:
        raise refuse(
            "workload.prompt_tokens",
            f"prompt and output of {needed} tokens exceed the {model.max_context_tokens} of '{scenario.model}'",
        )
    if scenario.workload.prompt_tokens < site.value.lmcache.chunk_tokens:
        raise refuse(
            "workload.prompt_tokens",
            f"shorter than one chunk of {site.value.lmcache.chunk_tokens} tokens: no tier is used",
        )
    return loaded


def find(name_or_path: str, folder: Path, what: str) -> Path:
    """Return the TOML file meant by a name in `folder` or by a path. Raises ConfigError listing the names."""
    if name_or_path.endswith(".toml") or "/" in name_or_path:
        path = Path(name_or_path)
        if not path.is_file():
            raise ConfigError(f"{path}: no such {what} file")
        return path
    path = _short(folder / f"{name_or_path}.toml")
    if not path.is_file():
        known = _names(sorted(p.stem for p in folder.glob("*.toml")))
        raise ConfigError(f"unknown {what} '{name_or_path}': give a path to a TOML file or one of {known}")
    return path


def load_toml(path: Path, model: type[M]) -> Loaded[M]:
    """Return the model that `path` describes. Raises ConfigError: unreadable, not TOML, or not fitting the model."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 text at byte {error.start}") from None
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from None
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(_toml_error(path, str(error))) from None
    except RecursionError:
        raise ConfigError(f"{path}: nested too deeply") from None
    try:
        value = model.model_validate(data)
    except ValidationError as error:
        raise ConfigError(_first_fault(path, text, error, model)) from None
    given = set(_leaves(data))
    origins = {
        ".".join(key): _place(path, text, key) if key in given else "default"
        for key in _leaves(value.model_dump(mode="python", by_alias=True))
    }
    return Loaded(value=value, path=path, origins=origins)


def line_of(text: str, key: tuple[str, ...]) -> int | None:
    """Return the line (from 1) on which `key` is set or its table begins; None if the text does not show it."""
    best: int | None = None
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), start=1):
        header = re.match(r"\s*\[\[?\s*([^\]]+?)\s*\]\]?\s*(#.*)?$", line)
        if header:
            table = _split_key(header[1])
            found = table
        else:
            assignment = re.match(
                r"\s*((?:[A-Za-z0-9_-]+|\"[^\"]*\"|'[^']*')(?:\s*\.\s*(?:[A-Za-z0-9_-]+|\"[^\"]*\"))*)\s*=", line
            )
            if not assignment:
                continue
            found = table + _split_key(assignment[1])
        if found == key:
            return number
        # An inline table, or a key whose table exists: the closest ancestor is the place to look at.
        if found == key[: len(found)] and found:
            best = number
    return best


def _split_key(dotted: str) -> tuple[str, ...]:
    return tuple(part.strip().strip("\"'") for part in re.findall(r"\"[^\"]*\"|'[^']*'|[^.\s]+", dotted))


def _short(path: Path) -> Path:
    """Return the path as seen from here, where it lies below: what is recorded should not tell of one machine."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def _place(path: Path, text: str, key: tuple[str, ...]) -> str:
    line = line_of(text, key)
    return f"{path}:{line}" if line else f"{path}:1"


def _leaves(value: object, key: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if isinstance(value, Mapping) and value:
        for name, inner in value.items():
            yield from _leaves(inner, (*key, str(name)))
    else:
        yield key


def _toml_error(path: Path, message: str) -> str:
    place = re.search(r"\(at line (\d+), column \d+\)$", message)
    line = f":{place[1]}" if place else ""
    return f"{path}{line}: not TOML: {message.split(' (at ')[0]}"


def _first_fault(path: Path, text: str, error: ValidationError, model: type[Strict]) -> str:
    faults = error.errors(include_url=False, include_input=False)
    # A misspelt key is also a missing one: the key that was written is the one to look at.
    fault = min(faults, key=lambda f: f["type"] != "extra_forbidden")
    parts = [str(part) for part in fault["loc"] if not isinstance(part, int)]
    reason = fault["msg"].removeprefix("Value error, ")
    if fault["type"] == "extra_forbidden":
        reason = f"unknown key{_did_you_mean(parts, model)}"
    elif fault["type"] == "missing":
        reason = "is missing"
    elif fault["type"] == "value_error" and re.match(r"[\w.-]+: ", reason):
        # A rule over several keys names the one to look at.
        inner, _, reason = reason.partition(": ")
        parts += inner.split(".")
    else:
        reason = reason[0].lower() + reason[1:]
    place = _place(path, text, tuple(parts))
    return f"{place}: {'.'.join(parts) or 'file'}: {_one_line(reason)}"


def _did_you_mean(parts: list[str], model: type[Strict]) -> str:
    import difflib

    names = {field.alias or name for name, field in _fields_at(parts[:-1], model).items()}
    close = difflib.get_close_matches(parts[-1], sorted(names), n=1)
    if close:
        return f"; did you mean '{close[0]}'?"
    return f"; known here: {', '.join(sorted(names))}" if names else ""


def _fields_at(parts: list[str], model: type[Strict]) -> dict[str, Any]:
    fields: dict[str, Any] = dict(model.model_fields)
    inside_dict = False
    for part in parts:
        if inside_dict:
            inside_dict = False
            continue
        field = fields.get(part)
        if field is None:
            return {}
        inner = _strict_in(field.annotation)
        if inner is None:
            return {}
        fields = dict(inner.model_fields)
        inside_dict = "dict" in str(field.annotation)
    return fields


def _strict_in(annotation: Any) -> type[Strict] | None:
    if isinstance(annotation, type) and issubclass(annotation, Strict):
        return annotation
    for inner in getattr(annotation, "__args__", ()):
        found = _strict_in(inner)
        if found is not None:
            return found
    return None


def _names(names: Any) -> str:
    return ", ".join(f"'{n}'" for n in names) or "none"


def _one_line(text: str) -> str:
    return " ".join(text.split())
