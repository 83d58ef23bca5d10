"""What the counters around a wave must show: the same requests as the client saw, cold, and from the tier's storage."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gates.metrics import NS
from gates.nodata import NoData
from gates.readers.prometheus import delta
from gates.validity.breach import HOST, Tell
from gates.validity.expected import Expected, Wave

AGREEMENT = 0.05  # tier bytes and books agree within this share
# Between the engine's own clock for a request and the client's lie HTTP and scheduling on a busy machine: a fixed cost
# per request, which for short requests is more than 5 % and says nothing about whose requests they are.
BOOK_FLOOR_S_PER_REQUEST = 0.02
# The fixed cost must be small against what the run has to resolve, or a client that is early by it makes the verdict.
FLOOR_SHARE = 0.25
SOURCE = "vllm:prompt_tokens_by_source_total"
E2E, TTFT = "vllm:e2e_request_latency_seconds", "vllm:time_to_first_token_seconds"


def book_floor_s(resolved_s: float | None) -> float:
    """Return how far the books may differ per request: less where smaller differences in TTFT must be resolved."""
    return BOOK_FLOOR_S_PER_REQUEST if resolved_s is None else min(BOOK_FLOOR_S_PER_REQUEST, FLOOR_SHARE * resolved_s)


@dataclass(frozen=True)
class TimeBook:
    """What engine and client booked of the times of a wave's requests."""

    wave: int
    what: str
    engine_s: float
    client_s: float
    requests: int


def check_books(wave: Wave, tell: Tell) -> list[TimeBook]:
    """Compare the client's books with the engine's, requests and tokens exactly; return those of times.

    Every request of the wave succeeded, with all of its times.
    """
    before, after = wave.engine()
    sent_ns, first_ns, last_ns, prompt_tokens, output_tokens = _sums(wave)
    e2e_sum_s, ttft_sum_s = (last_ns - sent_ns) * NS, (first_ns - sent_ns) * NS
    for what, counter, client in (
        ("requests", f"{E2E}_count", len(wave.requests)),
        ("first tokens", f"{TTFT}_count", len(wave.requests)),
        ("prompt tokens", "vllm:prompt_tokens_total", prompt_tokens),
        ("output tokens", "vllm:generation_tokens_total", output_tokens),
    ):
        engine = delta(before, after, counter)
        if isinstance(engine, NoData):
            tell("books", HOST, f"wave {wave.number}: {engine.reason}")
        elif engine != client:
            tell("books", HOST, f"wave {wave.number}: the engine booked {engine:g} {what}, the client {client:g}")
    books = []
    for what, total, client_s in (
        ("of requests", f"{E2E}_sum", e2e_sum_s),
        ("to first tokens", f"{TTFT}_sum", ttft_sum_s),
    ):
        engine_s = delta(before, after, total)
        if isinstance(engine_s, NoData):
            tell("books", HOST, f"wave {wave.number}: {engine_s.reason}")
        else:
            books.append(TimeBook(wave.number, what, engine_s, client_s, len(wave.requests)))
    return books


def _sums(wave: Wave) -> tuple[int, ...]:
    """Return the sums of send times, first and last times in ns, prompt tokens and output tokens by usage."""
    if (found := wave.columns) is not None:
        columns = found.sent_ns, found.first_ns, found.last_ns, found.prompt_tokens, found.output_tokens
        return tuple(int(column.sum()) for column in columns)
    times = (sum(r[key] for r in wave.requests) for key in ("t_sent_ns", "t_first_ns", "t_last_ns"))
    tokens = (sum(r["usage"][key] for r in wave.requests) for key in ("prompt_tokens", "completion_tokens"))
    return *times, *tokens


def check_times(books: Iterable[TimeBook], floor_s: float, tell: Tell) -> None:
    """Tell where the two differ by more than 5 %, or than `floor_s` per request where that is more."""
    for book in books:
        if not abs(book.engine_s - book.client_s) <= max(AGREEMENT * book.client_s, floor_s * book.requests):
            told = f"the engine booked {book.engine_s:.3f} s {book.what}, the client {book.client_s:.3f} s"
            tell("books", HOST, f"wave {book.wave}: {told}")


def check_cold(wave: Wave, expected: Expected, tell: Tell) -> float | None:
    """Expect no token from the device cache or DRAM, and every stored one from the tier's storage (recompute: none).

    Return the bytes that had to be read for the tokens that the engine was given; None without a tier, and where that
    cannot be known, which has been told. A counter that is absent after the wave is no data, never 0: LMCache shows
    its L1 hits, as 0, with the first lookup.
    """
    before, after = wave.engine()
    _equals(wave, "device cache", delta(before, after, SOURCE, {"source": "local_cache_hit"}), 0, tell)
    external = delta(before, after, SOURCE, {"source": "external_kv_transfer"})
    wanted = len(wave.requests) * expected.external_tokens
    lost = _lost(wave, external, wanted, expected)
    if lost:
        tell("chunks-lost", expected.arm, lost)
    else:
        _equals(wave, "external tier", external, wanted, tell)
    if not expected.has_tier:
        return None
    before, after = wave.lmcache()
    _equals(wave, "DRAM (L1)", delta(before, after, "lmcache_mp_lookup_hit_l1_tokens_total"), 0, tell)
    if wave.before["lmcache_pending"] != 0:
        tell("cold", HOST, f"wave {wave.number}: stores still pending before it ({wave.before['lmcache_pending']})")
    if lost:
        return None  # what lost chunks leave to be read has no expected size
    hits = delta(before, after, "lmcache_mp_lookup_hit_l2_tokens_total")
    _equals(wave, "tier (L2)", hits, len(wave.requests) * expected.chunk_aligned_tokens, tell)
    if isinstance(external, NoData):
        return None
    chunks = -(-external // expected.chunk_tokens)
    bytes_wanted = chunks * expected.chunk_tokens * expected.kv_bytes_per_token
    _tier_bytes(wave, external, bytes_wanted, tell)
    return bytes_wanted


def _lost(wave: Wave, external: float | NoData, wanted: int, expected: Expected) -> str | None:
    """Return how chunks that were stored and confirmed are gone, which is the tier's own fault; None if they are not.

    Fewer tokens alone prove nothing. Files are counted on both sides of the wave, since the engine stores again what
    it had to compute.
    """
    counts = [snapshot["tier_files"] for snapshot in (wave.before, wave.after)]
    if isinstance(external, NoData) or external >= wanted or expected.populated_files is None or None in counts:
        return None
    if min(counts) >= expected.populated_files:
        return None
    told = f"{external:g} tokens from external tier, {wanted} expected: {min(counts)} chunk files are left"
    return f"wave {wave.number}: {told} of {expected.populated_files} that were stored and confirmed"


def _equals(wave: Wave, where: str, found: float | NoData, wanted: float, tell: Tell) -> None:
    if isinstance(found, NoData):
        tell("cold", HOST, f"wave {wave.number}: tokens from {where}: no data: {found.reason}")
    elif found != wanted:
        tell("cold", HOST, f"wave {wave.number}: {found:g} tokens from {where}, {wanted:g} expected")


def _tier_bytes(wave: Wave, external: float, wanted: float, tell: Tell) -> None:
    """Compare what the tier's server read from storage with what the engine was given: no page cache in between."""
    begin, end = wave.before["tier_read_bytes"], wave.after["tier_read_bytes"]
    if begin is None or end is None:
        tell("tier-bytes", HOST, f"wave {wave.number}: no data on the bytes that the tier's server read")
    elif not abs((end - begin) - wanted) <= AGREEMENT * wanted:
        told = f"{end - begin} bytes read from storage, {wanted:.0f} expected for {external:g} tokens"
        tell("tier-bytes", HOST, f"wave {wave.number}: {told}")
