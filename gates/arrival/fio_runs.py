"""fio's runs on a tier: those of this suite, and those that somebody else ran and put into a bundle."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from gates.arrival.host import Host
from gates.nodata import NoData
from gates.readers import block, counters
from gates.readers import fio as reader
from gates.readers.error import ReaderError
from scenarios.bom import Raw
from workloads import fio
from workloads.bundle import Output

NOT_RUN = (126, 127)
DISKSTATS = ("cat", "/proc/diskstats")
MOVED_SHARE_MIN = 0.9  # of what fio tells
# What makes two jobs of one kind: a figure of another block size or depth is a figure of something else.
SAME = ("rw", "bs", "iodepth", "numjobs", "direct")
DEFAULTS = {"rw": "read", "bs": "4096", "iodepth": "1", "numjobs": "1", "direct": "0"}
OF_THE_JOB = ("name", "directory", "filename", "rw", "bs", "verify", "filesize")
ALIASES = {"readwrite": "rw", "blocksize": "bs", "size": "filesize"}


@dataclass(frozen=True)
class Ran:
    """One run: what fio told of it, why its figures cannot be trusted, its file."""

    run: reader.FioRun | NoData
    doubt: str | None
    files: tuple[str, ...]
    options: Mapping[str, str]  # of its job

    @property
    def why_not(self) -> str | None:
        """Return why nothing can be read from it; None: it can be trusted."""
        return self.run.reason if isinstance(self.run, NoData) else self.doubt


def of_job(name: str, raw: Raw, job: fio.Job, host: Host) -> tuple[Ran, ...] | NoData:
    """Return the runs of a job of the raw check on the tier `name`, or of one that asks the same; NoData: none."""
    own = host.fio.get(name)
    if own is None:
        return _of_others(raw, job, others(raw.scratch, host))
    output = next((o for o in own.bundle.outputs if f"--name={job.name}" in o.argv), None)
    if output is None:
        return NoData(f"fio's job {job.name} was not run")
    told = _read(output, own)
    return (told if isinstance(told.run, NoData) else replace(told, doubt=reader.sound(told.run, job.asked)),)


def unmoved(host: Host) -> str | None:
    """Return why fio's bytes cannot be believed: the host's block devices moved fewer under it; None: they can.

    Of the suite's own runs alone: what the devices did while somebody else ran fio, nobody looked at. Other programs
    make no difference: by them the devices can only have moved more.
    """
    if not host.fio:
        return None
    return host.once("unmoved", lambda: _unmoved(host))


def _unmoved(host: Host) -> str | None:
    if host.after is None:
        return "what the block devices moved under fio was not collected"
    looks = [each.read(block.disk_counters, DISKSTATS) for each in (host, host.after)]
    for look in looks:
        if isinstance(look.value, NoData):
            return f"what the block devices moved under fio is not known: {look.value.reason}"
    before, after = (look.value for look in looks if not isinstance(look.value, NoData))
    rose = counters.deltas(before, after, boot_ids=(host.boot_id, host.after.boot_id))
    told = {"read": 0, "written": 0}
    for own in host.fio.values():
        for output in own.bundle.outputs:
            run = _read(output, own).run
            for job in () if isinstance(run, NoData) else run.jobs:
                told["read"] += job.read.moved_bytes or 0
                # With verify_only fio tells of the writes that it leaves out.
                dry = job.options.get("verify_only", "0") != "0" or "--verify_only=1" in output.argv
                told["written"] += 0 if dry else job.write.moved_bytes or 0
    for side, moved in rose.items():
        if isinstance(moved, NoData):
            return f"what the block devices moved under fio is not known: {moved.reason}"
        if moved < MOVED_SHARE_MIN * told[side]:
            return f"fio tells of {told[side]} bytes {side}, and all block devices together of {moved}"
    return None


def others(scratch: str, host: Host) -> tuple[Ran, ...]:
    """Return every run of fio in the collection on this folder or below it, in order."""
    return host.once(("fio", scratch), lambda: tuple(_others(PurePosixPath(scratch), host)))


def _others(scratch: PurePosixPath, host: Host) -> Iterator[Ran]:
    earlier: list[reader.FioRun] = []
    for output in host.bundle.outputs:
        if not any(PurePosixPath(folder).is_relative_to(scratch) for folder in _folders(output)):
            continue
        told = _read(output, host)
        if isinstance(told.run, NoData):
            yield told
            continue
        run = told.run
        if len(run.jobs) == 1:  # fio does not tell the options that have no value
            run = replace(run, jobs=(replace(run.jobs[0], options={**run.jobs[0].options, **_options(output)}),))
        try:
            doubt = reader.sound(run, reader.asked_of(run, earlier))
        except ReaderError as error:
            doubt = str(error)
        earlier.append(run)
        yield replace(told, run=run, doubt=doubt, options=_named(run.jobs[0].options if run.jobs else {}))


def _of_others(raw: Raw, job: fio.Job, found: tuple[Ran, ...]) -> tuple[Ran, ...] | NoData:
    wanted = _named(dict(word.removeprefix("--").partition("=")[::2] for word in job.options))
    if not found:
        return NoData(f"fio was not run: it needs the host itself, and the bundle holds no fio on {raw.scratch}")
    kind = [
        ran for ran in found if ran.options.get("rw", "read") == wanted["rw"] and _verifies(ran) == ("verify" in wanted)
    ]
    others = [(ran, why) for ran in kind if (why := _another(ran, job, wanted, raw)) is not None]
    alike = tuple(ran for ran in kind if all(ran is not other for other, _ in others))
    if alike:
        return alike
    if others:
        return NoData(f"fio on {raw.scratch} was another job: {others[0][1]}")
    return NoData(f"the bundle holds no {'verified ' * ('verify' in wanted)}{wanted['rw']} by fio on {raw.scratch}")


def _another(ran: Ran, job: fio.Job, wanted: Mapping[str, str], raw: Raw) -> str | None:
    """Return in what a run differs from the job that is wanted; None: it asks the same."""
    if _verifies(ran):  # in what blocks it was written makes no difference to whether it came back
        keys: tuple[str, ...] = ("direct",) if raw.direct_io else ()
    else:
        keys = SAME
    for key in keys:
        has, wants = ran.options.get(key, DEFAULTS[key]), wanted.get(key, DEFAULTS[key])
        if _amount(has) != _amount(wants):
            return f"{key}={has}, {wants} is wanted"
    if ran.why_not is not None:  # it says so itself
        return None
    size = _amount(ran.options.get("filesize", ""))
    total = size * int(_amount(ran.options.get("numjobs", "1"))) if isinstance(size, int) else 0
    if total < raw.size_bytes // fio.ALIGNMENT_BYTES * fio.ALIGNMENT_BYTES:
        return f"files of {total} bytes, {raw.size_bytes} are wanted"
    lasts_s = reader.seconds(ran.options.get("runtime", "")) or 0.0
    if job.asked.runtime_s is not None and lasts_s < job.asked.runtime_s:
        return f"runtime={lasts_s:g} s, {job.asked.runtime_s:g} s are wanted"
    return None


def _verifies(ran: Ran) -> bool:
    return ran.options.get("verify", "0") not in ("0", "none")


def _amount(told: str) -> int | str:
    """Return the number of a size, so that 1m is 1048576; what is none stays as it is."""
    size = reader.size_bytes(told)
    return told if size is None else size


def _read(output: Output, host: Host) -> Ran:
    files = (host.raw(output),)
    options = _named(_options(output))
    # In a reason the job's name says enough.
    output = replace(output, argv=("fio", *(word for word in output.argv if word.startswith("--name="))))
    if output.status in NOT_RUN and not output.stdout.strip():
        said = " ".join(output.stderr.decode("utf-8", "replace").split()) or "fio was not run"
        return Ran(NoData(said), None, files, options)
    try:
        run = reader.fio_run(output)
    except ReaderError as error:
        return Ran(NoData(str(error)), None, files, options)
    if len(run.jobs) == 1:
        told = _named(run.jobs[0].options)
        other = next((key for key in OF_THE_JOB if key in told and told[key] != options.get(key, told[key])), None)
        if other is not None:
            why = f"{output.command}: its JSON tells of another job: {other} is {told[other]}"
            return Ran(NoData(why), None, files, options)
    return Ran(run, None, files, options)


def _words(output: Output) -> tuple[str, ...]:
    """Return the options of a command that runs fio; () for another one."""
    at = next((n for n, word in enumerate(output.argv) if word.rsplit("/", 1)[-1] == "fio"), None)
    return output.argv[at + 1 :] if at is not None else ()


def _options(output: Output) -> dict[str, str]:
    words = (word.removeprefix("--").partition("=") for word in _words(output) if word.startswith("--"))
    return {key: value or "1" for key, _, value in words}


def _named(options: Mapping[str, str]) -> dict[str, str]:
    return {ALIASES.get(key, key): value for key, value in options.items()}


def _folders(output: Output) -> list[str]:
    told = _options(output)
    names = [part for part in told.get("filename", "").split(":") if part.startswith("/")]
    return [*(part for part in told.get("directory", "").split(":") if part.startswith("/")), *names]
