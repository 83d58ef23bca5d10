"""What a request's record says of its tokens must be of one piece: chunks, times, ids, usage and status."""

from __future__ import annotations

from typing import Any

from gates.validity.breach import HARNESS, Tell

Json = dict[str, Any]

OK, FAILED = "ok", "failed"


def check_status(r: Json, tell: Tell) -> None:
    """Tell if the record does not say clearly whether the request succeeded: ok without an error, or failed with one.

    Raises KeyError for a record without these fields.
    """
    status, error = r["status"], r["error"]
    if status not in (OK, FAILED):
        tell("status", HARNESS, f"{r['id']}: its status is {status!r}, '{OK}' or '{FAILED}' expected")
    elif status == OK and error is not None:
        tell("status", HARNESS, f"{r['id']}: succeeded, but with the error {error!r}")
    elif status == FAILED and not (isinstance(error, str) and error.strip()):
        tell("status", HARNESS, f"{r['id']}: failed, but no error is told")


def check_tokens(r: Json, tell: Tell) -> None:
    """Tell what of a successful request's chunks and ids contradicts its times and its usage, which are whole.

    Rates and gaps between tokens are made from these fields, so none of them may be free to say anything. Where the
    server named no ids, a chunk counts as one token, whatever it carries, and the counts say nothing. Raises KeyError
    for a record without these fields.
    """
    for fault in _faults(r):
        tell("tokens", HARNESS, f"{r['id']}: {fault}")


def _faults(r: Json) -> list[str]:
    times, counts, ids = r["chunk_ns"], r["chunk_tokens"], r["output_token_ids"]
    length_ns, completion = r["t_last_ns"] - r["t_first_ns"], r["usage"]["completion_tokens"]
    if _sound(times, counts, ids, length_ns, completion):
        return []
    for name, values, least in (("chunk_ns", times, 0), ("chunk_tokens", counts, 1), ("output_token_ids", ids, 0)):
        if not isinstance(values, list) or any(type(value) is not int or value < least for value in values):
            return [f"{name} is no list of whole numbers from {least} on"]
    if not times or len(times) != len(counts):
        return [f"{len(times)} chunk times and {len(counts)} chunk sizes, as many of both expected, and at least one"]
    faults = []
    if times[0] != 0 or times[-1] != length_ns or sorted(times) != times:
        told = f"chunk_ns goes from {times[0]} to {times[-1]}, from 0 to {length_ns} without falling expected"
        faults.append(told)
    if ids and (len(ids), sum(counts)) != (completion, completion):
        faults.append(f"{len(ids)} token ids and chunks of {sum(counts)} tokens, {completion} are in its usage")
    return faults


def _sound(times: Any, counts: Any, ids: Any, length_ns: int, completion: int) -> bool:
    """Return whether nothing is wrong with them, in one look: with millions of records that is what takes the time."""
    return (
        type(times) is type(counts) is type(ids) is list
        and len(times) == len(counts) > 0
        and {*map(type, times), *map(type, counts), *map(type, ids)} == {int}
        and times[0] == 0
        and times[-1] == length_ns
        and sorted(times) == times
        and min(counts) >= 1
        and (not ids or (min(ids) >= 0 and len(ids) == sum(counts) == completion))
    )
