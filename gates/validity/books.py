"""What the counters around a wave must show: the same requests as the client saw, cold, and from the tier's storage."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gates.metrics import NS
from gates.nodata import NoData
from gates.readers.prometheus import ReadError, delta
from gates.validity.breach import HOST, Tell
from gates.validity.expected import Expected, Wave

AGREEMENT = 0.05  # tier bytes and books agree within this share
# Between the engine's own clock for a request and the client's lie HTTP and scheduling on a busy machine: a fixed cost
# per request, which for short requests is more than 5 % and says nothing about whose requests they are.
BOOK_FLOOR_S_PER_REQUEST = 0.02
# The fixed cost must be small against what the run has to resolve, or a client that is early by it makes the verdict.
FLOOR_SHARE = 0.25
SOURCE = "vllm:prompt_tokens_by_source_total"
Span = tuple[float, float]  # the least and the most that something may be; the same where nothing failed
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
    failed_s: float  # that the engine may have booked for requests that failed


def check_books(wave: Wave, expected: Expected, tell: Tell) -> list[TimeBook]:
    """Compare the client's books with the engine's, requests and tokens exactly; return those of times.

    The requests that succeeded have all of their times. Of one that failed nobody knows how far the engine came: it
    may have booked nothing of it or all that was ordered, and any time within the wave.
    """
    before, after = wave.engine()
    sent_ns, first_ns, last_ns, prompt_tokens, output_tokens = _sums(wave)
    failed = len(wave.requests) - wave.answered
    for what, counter, client, ordered in (
        ("requests", f"{E2E}_count", wave.answered, 1),
        ("first tokens", f"{TTFT}_count", wave.answered, 1),
        ("prompt tokens", "vllm:prompt_tokens_total", prompt_tokens, expected.prompt_tokens),
        ("output tokens", "vllm:generation_tokens_total", output_tokens, expected.output_tokens),
    ):
        engine = delta(before, after, counter)
        span = (client, client + failed * ordered)
        if isinstance(engine, NoData):
            no_data(wave, "books", engine.reason, tell)
        elif not span[0] <= engine <= span[1]:
            told = f"the engine booked {engine:g} {what}, the client {shown(span)}"
            tell("books", HOST, f"wave {wave.number}: {told}")
    books = []
    for what, histogram, client_ns in (
        ("of requests", E2E, last_ns - sent_ns),
        ("to first tokens", TTFT, first_ns - sent_ns),
    ):
        engine_s = delta(before, after, f"{histogram}_sum")
        if isinstance(engine_s, NoData):
            no_data(wave, "books", engine_s.reason, tell)
        else:
            failed_s = _failed_s(wave, delta(before, after, f"{histogram}_count"), failed)
            books.append(TimeBook(wave.number, what, engine_s, client_ns * NS, len(wave.requests), failed_s))
    return books


def _failed_s(wave: Wave, booked: float | NoData, failed: int) -> float:
    """Return the most that an engine which booked so many requests can have booked of the failed ones, in seconds."""
    if not failed:
        return 0.0
    theirs = failed if isinstance(booked, NoData) else min(max(booked - wave.answered, 0), failed)
    return float(theirs * (wave.after["t_ns"] - wave.before["t_ns"]) * NS)


def _sums(wave: Wave) -> tuple[int, ...]:
    """Return the sums, over the requests that succeeded, of send, first and last times in ns, and tokens by usage."""
    if (found := wave.columns) is not None:
        columns = found.sent_ns, found.first_ns, found.last_ns, found.prompt_tokens, found.output_tokens
        return tuple(int(column.sum()) for column in columns)
    answered = [r for r in wave.requests if r["status"] == "ok"]
    times = (sum(r[key] for r in answered) for key in ("t_sent_ns", "t_first_ns", "t_last_ns"))
    tokens = (sum(r["usage"][key] for r in answered) for key in ("prompt_tokens", "completion_tokens"))
    return *times, *tokens


def check_times(books: Iterable[TimeBook], floor_s: float, tell: Tell) -> None:
    """Tell where the two differ by more than 5 %, or than `floor_s` per request where that is more."""
    for book in books:
        span = (book.client_s, book.client_s + book.failed_s)
        allowed_s = [max(AGREEMENT * edge_s, floor_s * book.requests) for edge_s in span]
        if not span[0] - allowed_s[0] <= book.engine_s <= span[1] + allowed_s[1]:
            told = f"the engine booked {book.engine_s:.3f} s {book.what}, the client {shown(span, '.3f')} s"
            tell("books", HOST, f"wave {book.wave}: {told}")


def check_cold(wave: Wave, expected: Expected, tell: Tell) -> Span | None:
    """Expect no token from the device cache or DRAM, and every stored one from the tier's storage (recompute: none).

    Return the bytes that had to be read for the tokens that the engine was given; None without a tier, and where that
    cannot be known, which has been told. A request that failed may have read all of its tokens, or none. A counter
    that is absent after the wave is no data, never 0: LMCache shows its L1 hits, as 0, with the first lookup.
    """
    before, after = wave.engine()
    answered, sent = wave.answered, len(wave.requests)
    _within(wave, "device cache", delta(before, after, SOURCE, {"source": "local_cache_hit"}), (0, 0), tell)
    external = delta(before, after, SOURCE, {"source": "external_kv_transfer"})
    wanted = (answered * expected.external_tokens, sent * expected.external_tokens)
    lost = _lost(wave, external, wanted[0], expected)
    if lost:
        tell("chunks-lost", expected.arm, lost)
    else:
        _within(wave, "external tier", external, wanted, tell)
    if not expected.has_tier:
        return None
    try:
        before, after = wave.lmcache()
    except ReadError:
        if answered:
            raise
        return None  # there is nothing to prove
    _within(wave, "DRAM (L1)", delta(before, after, "lmcache_mp_lookup_hit_l1_tokens_total"), (0, 0), tell)
    if answered and wave.before["lmcache_pending"] != 0:
        tell("cold", HOST, f"wave {wave.number}: stores still pending before it ({wave.before['lmcache_pending']})")
    if lost:
        return None  # what lost chunks leave to be read has no expected size
    hits = delta(before, after, "lmcache_mp_lookup_hit_l2_tokens_total")
    aligned = expected.chunk_aligned_tokens
    _within(wave, "tier (L2)", hits, (answered * aligned, sent * aligned), tell)
    if isinstance(external, NoData):
        return None
    if answered == sent:
        tokens = -(-external // expected.chunk_tokens) * expected.chunk_tokens
        bytes_wanted = (tokens * expected.kv_bytes_per_token,) * 2
    else:
        bytes_wanted = (answered * aligned * expected.kv_bytes_per_token, sent * aligned * expected.kv_bytes_per_token)
    _tier_bytes(wave, external, bytes_wanted, tell)
    return bytes_wanted


def shown(span: Span, form: str = ".15g") -> str:
    """Return "8", or "8 to 16" where failed requests may have made it more."""
    least, most = (format(edge, form) for edge in span)
    return least if least == most else f"{least} to {most}"


def no_data(wave: Wave, check: str, reason: str, tell: Tell) -> None:
    """Tell what is not known of a wave; where none of its requests succeeded there is nothing to be proved by it."""
    if wave.answered:
        tell(check, HOST, f"wave {wave.number}: {reason}")


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


def _within(wave: Wave, where: str, found: float | NoData, wanted: Span, tell: Tell) -> None:
    if isinstance(found, NoData):
        no_data(wave, "cold", f"tokens from {where}: no data: {found.reason}", tell)
    elif not wanted[0] <= found <= wanted[1]:
        tell("cold", HOST, f"wave {wave.number}: {found:g} tokens from {where}, {shown(wanted)} expected")


def _tier_bytes(wave: Wave, external: float, wanted: Span, tell: Tell) -> None:
    """Compare what the tier's server read from storage with what the engine was given: no page cache in between."""
    begin, end = wave.before["tier_read_bytes"], wave.after["tier_read_bytes"]
    if begin is None or end is None:
        no_data(wave, "tier-bytes", "no data on the bytes that the tier's server read", tell)
    elif not wanted[0] - AGREEMENT * wanted[0] <= end - begin <= wanted[1] + AGREEMENT * wanted[1]:
        told = f"{end - begin} bytes read from storage, {shown(wanted, '.0f')} expected for {external:g} tokens"
        tell("tier-bytes", HOST, f"wave {wave.number}: {told}")
