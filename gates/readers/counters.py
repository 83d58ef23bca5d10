"""By how much counters rose between two looks. What cannot be told is NoData, never 0."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gates.nodata import NoData


def deltas(
    before: Mapping[str, int],
    after: Mapping[str, int],
    *,
    names: Iterable[str] | None = None,
    boot_ids: tuple[str | None, str | None] | None = None,
) -> dict[str, int | NoData]:
    """Return by how much each counter rose: those in `names`, else every one that either look holds.

    NoData with its reason: the counter is missing in a look; it fell (it was reset or it wrapped, and neither is
    guessed); the boot id of the two looks differs, or one is not known. Without `boot_ids` the caller vouches that the
    host did not start anew in between: a counter that began at 0 again may have risen above what it was.
    """
    rebooted = _other_boot(*boot_ids) if boot_ids is not None else None
    wanted = sorted({*before, *after}) if names is None else list(names)
    if rebooted is not None:
        return dict.fromkeys(wanted, rebooted)
    return {name: _delta(name, before.get(name), after.get(name)) for name in wanted}


def total(parts: Iterable[int | NoData]) -> int | NoData:
    """Return the sum of several deltas, NoData if one of them or all of them are missing."""
    found = list(parts)
    missing = [part for part in found if isinstance(part, NoData)]
    if missing or not found:
        return missing[0] if missing else NoData("no counter was named")
    return sum(part for part in found if not isinstance(part, NoData))


def _delta(name: str, begin: int | None, end: int | None) -> int | NoData:
    if begin is None or end is None:
        both = begin is None and end is None
        return NoData(f"{name} is missing {'before and after' if both else 'before' if begin is None else 'after'}")
    if end < begin:
        return NoData(f"{name} fell from {begin} to {end}: it was reset, or it wrapped")
    return end - begin


def _other_boot(before: str | None, after: str | None) -> NoData | None:
    begin, end = (before or "").strip(), (after or "").strip()
    if not begin or not end:
        return NoData("the boot id of a look is not known, so a reset cannot be ruled out")
    return NoData(f"the host started anew: boot id {begin} became {end}") if begin != end else None
