"""Who measured, and where: what is not told is null, never made up."""

from __future__ import annotations

from pathlib import Path

import pytest

from workloads import provenance


def test_the_tester_is_who_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVGATE_TESTER", "  Li \n Lei ")
    assert provenance.tester() == "Li Lei"
    monkeypatch.setenv("KVGATE_TESTER", " ")
    assert provenance.tester() is None


@pytest.mark.parametrize(
    ("text", "zone"), [("Asia/Shanghai\n", "Asia/Shanghai"), ("nowhere", None), ("../etc", None), (None, None)]
)
def test_the_zone_of_a_host_without_a_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, zone: str | None
) -> None:
    monkeypatch.delenv("TZ", raising=False)
    if text is not None:
        (tmp_path / "timezone").write_text(text, encoding="ascii")
    assert provenance.zone(tmp_path) == zone


def test_the_zone_is_what_localtime_leads_to_unless_tz_says_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TZ", raising=False)
    (tmp_path / "localtime").symlink_to("/usr/share/zoneinfo/Europe/Berlin")
    assert provenance.zone(tmp_path) == "Europe/Berlin"
    monkeypatch.setenv("TZ", ":Asia/Tokyo")
    assert provenance.zone(tmp_path) == "Asia/Tokyo"
