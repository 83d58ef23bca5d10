"""G2's record of the baseline is read strictly: whoever reads it reads the same, and it is of one baseline."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gates import baseline, verdict
from scenarios.load import ConfigError
from tests.synthetic import make_run
from tests.synthetic_truth import Truth
from workloads.evidence import Run, RunDir

Json = dict[str, Any]
LEVEL: Json = {"step": 2, "metric": "ttft_p50_s", "day_values": [1.0, 1.1, 1.2]}
RECORD: Json = {
    "schema": 1, "site": "s", "model": "m", "made_utc": "2026-01-01", "run_id": "g2", "manifest_sha256": "0" * 64,
    "noise": {"ttft_p50_s": 0.02}, "levels": [LEVEL],
}  # fmt: skip
TEXT = json.dumps(RECORD)


def with_levels(*levels: Json) -> bytes:
    return json.dumps({**RECORD, "levels": list(levels)}).encode()


WRONG: dict[str, tuple[bytes, str]] = {
    "a key twice": (TEXT.replace('"levels"', '"levels": [], "levels"').encode(), "key 'levels' stands there twice"),
    "utf-16": (TEXT.encode("utf-16"), "not UTF-8"),
    "a level twice": (with_levels(LEVEL, {**LEVEL, "day_values": [9.0, 9.1, 9.2]}), "at concurrency 2 stands there twice"),
    "no date": (TEXT.replace("2026-01-01", "never").encode(), "made_utc: 'never' is no date"),
    "days apart": (with_levels({**LEVEL, "day_values": [1.0, 1.1, 2.3]}), "the largest is 2.3 times the smallest"),
    "more than a float": (TEXT.replace("1.1", "1" + "0" * 400).encode(), "day_values"),
    "no value that a baseline has": (TEXT.replace("1.0", "1e300").encode(), "day_values"),
    "nested": (b"[" * 100_000, "recursion limit exceeded"),
    "cut off": (TEXT[:-5].encode(), "not JSON"),
    "a list": (b"[]", "not a JSON object"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_record_is_refused_in_one_line(tmp_path: Path, name: str) -> None:
    content, told = WRONG[name]
    path = tmp_path / "baseline.json"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        baseline.read(path)
    assert str(caught.value).startswith(f"{path}: ") and told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_record_that_is_not_there_is_told_with_who_writes_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"missing: G2 writes it; name it in the site's baseline_record"):
        baseline.read(tmp_path / "baseline.json")


@pytest.mark.parametrize("told", ["2026-01-01", "2026-01-01T08:00:00+08:00", "2026-01-01T00:00:00Z"])
def test_a_date_may_have_a_time_and_a_zone(tmp_path: Path, told: str) -> None:
    path = tmp_path / "baseline.json"
    path.write_text(TEXT.replace("2026-01-01", told))
    assert baseline.read(path).made().isoformat() == "2026-01-01T00:00:00+00:00"


def rewritten(folder: Path, change: Callable[[Json], object]) -> Json:
    """Judge a lab run, sealed, whose record was changed so."""
    path = make_run(folder, Truth(rehearsal=False, ttft_s={"recompute": 3.0, "baseline": 1.2, "candidate": 0.84}))
    record = json.loads((path / "baseline.json").read_bytes())
    change(record)
    (path / "baseline.json").write_text(json.dumps(record))
    (path / "MANIFEST.sha256").unlink()
    RunDir(path).seal("end")
    return verdict.judge(Run(path))


def test_a_record_from_before_the_run_is_held_against_it(tmp_path: Path) -> None:
    assert rewritten(tmp_path, lambda _: None)["verdict"] == "PASS"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda r: r.update(made_utc="2036-01-01"), "it was made after the run began"),
        (lambda r: r["levels"].extend([{**level} for level in r["levels"]]), "stands there twice"),
    ],
)
def test_a_record_that_cannot_be_one_is_invalid(tmp_path: Path, change: Callable[[Json], object], told: str) -> None:
    found = rewritten(tmp_path, change)
    assert found["verdict"] == "INVALID" and found["acceptance"] is False
    assert told in json.dumps(found)
