"""Result files of others: read strictly, judged only as far as they allow, and never a PASS."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gates import __main__ as program
from gates import verdict
from gates.imports import command, store
from gates.imports.checks import contradictions, differences, mixed_up, of_two_kinds
from gates.imports.documents import Document, documents
from gates.imports.judge import FAIL, INVALID, failed
from gates.imports.vllm_bench import Result, read
from reports.view import load_view
from tests.reporting import pages
from workloads.evidence import EvidenceError, Run, RunDir, verify

Json = dict[str, Any]
ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "tests" / "data" / "vllm_bench"
LOOSE = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def values(name: str) -> Json:
    found: Json = json.loads((DATA / name).read_bytes())
    return found


def result(held: Json, arm: str = "candidate") -> Result:
    """Return a result as read from a file that holds it."""
    (document,) = documents(json.dumps(held).encode(), f"{arm}.json")
    return read(document, arm, f"{arm}.json", alone=True)


def imported(tmp_path: Path, baseline: object, candidate: object) -> tuple[Path, Json]:
    """Import a pair, each a fixture's name, a result or bytes; return the run and its verdict."""
    paths = []
    for arm, held in (("baseline", baseline), ("candidate", candidate)):
        path = DATA / held if isinstance(held, str) else tmp_path / f"{arm}.json"
        if not isinstance(held, str):
            path.write_bytes(held if isinstance(held, bytes) else json.dumps(held).encode())
        paths.append(path)
    runs = tmp_path / "runs"
    sources = [store.take(path, arm) for path, arm in zip(paths, ("baseline", "candidate"), strict=True)]
    run = command.settle(store.write(runs, sources))
    return run, verdict.judge(Run(run))


def rows(judged: Json) -> dict[str, Json]:
    return {row["id"]: row for row in judged["criteria"]}


# What each captured file gives: as the candidate, against baseline.json.
CAPTURED = {
    "candidate.json": (INVALID, "n = 1 pairs, 5 needed"),
    "stopped.json": (FAIL, "8 of 12 requests failed"),
    "dead.json": (FAIL, "8 of 8 requests failed"),
    "plain.json": (INVALID, "measure again with --save-detailed"),
    "unlimited.json": (INVALID, "measure again with --max-concurrency"),
    "rate.json": (INVALID, "other request_rate in the arms: 20.0 against 'inf'"),
    "chat.json": (INVALID, "first chunk, which of a chat is the role alone"),
}


@pytest.mark.parametrize("name", CAPTURED)
def test_what_a_captured_file_gives(tmp_path: Path, name: str) -> None:
    run, judged = imported(tmp_path, "baseline.json", name)
    expected, told = CAPTURED[name]
    assert (judged["verdict"], judged["acceptance"], verify(run)) == (expected, False, [])
    assert {row["verdict"] for row in judged["criteria"]} <= {FAIL, INVALID}
    assert any(told in row["reason"] for row in judged["criteria"])
    # No figure of the tool comes out as a number; what counts failures is the one exception.
    assert all(row["estimate"] is None for row in judged["criteria"] if row["verdict"] == INVALID)
    assert not [b for b in judged["breaches"] if b["check"] == "contradiction"]
    assert (run / "raw/import/candidate-01.json").read_bytes() == (DATA / name).read_bytes()


def test_a_row_names_everything_that_is_lacking(tmp_path: Path) -> None:
    _, judged = imported(tmp_path, "baseline.json", "candidate.json")
    reason = rows(judged)["ttft-p50-reduction"]["reason"]
    for told in ("no counters", "cold", "n = 1 pairs", "first chunk", "took turns"):
        assert told in reason
    assert "in its stream" not in reason and "inside its stream" in rows(judged)["failed-requests"]["reason"]


def test_the_baselines_failures_are_not_the_candidates(tmp_path: Path) -> None:
    _, judged = imported(tmp_path, "stopped.json", "candidate.json")
    assert judged["verdict"] == INVALID
    assert "8 of the baseline's requests failed" in rows(judged)["throughput-gain"]["reason"]
    assert {b["whose"] for b in judged["breaches"] if b["check"] == "errors"} == {"baseline"}


def test_what_a_failed_request_left_enters_no_figure() -> None:
    """The fixture's failed requests hold 0.0, or the times of an answer that broke off; the median is without them."""
    held = values("stopped.json")
    assert sorted(t for t, e in zip(held["ttfts"], held["errors"], strict=True) if e)[3:5] == [
        0.0,
        pytest.approx(0.0523, abs=1e-3),
    ]
    assert contradictions(result(held)) == []
    held["median_ttft_ms"] = sorted(held["ttfts"])[5] * 1e3
    assert any("median_ttft_ms" in line for line in contradictions(result(held)))


def test_a_success_without_a_token_or_an_error_without_words_is_a_failure() -> None:
    held = values("candidate.json")
    held["output_lens"][3] = 0
    assert failed(result(held)) == 1
    held = values("dead.json")
    held["errors"] = [""] * 8
    assert failed(result(held)) == 8


def put(**changes: object) -> Callable[[Json], None]:
    return lambda held: held.update(changes)


def at(key: str, index: int, value: object) -> Callable[[Json], None]:
    def change(held: Json) -> None:
        held[key][index] = value

    return change


CONTRADICTIONS: dict[str, tuple[Callable[[Json], None], str]] = {
    "counts": (put(failed=1), "completed 12 + failed 1 is not num_prompts 12"),
    "no prompts": (put(num_prompts=0, completed=0), "nothing was sent"),
    "tokens": (put(total_output_tokens=95), "total_output_tokens is 95"),
    "prompts": (put(total_input_tokens=1), "total_input_tokens is 1"),
    "short": (put(duration=0.01), "duration is 0.01 s, its longest request"),
    "zero": (put(duration=0.0), "duration is 0"),
    "nan": (put(duration=math.nan), "duration is nan"),
    "infinite": (put(median_ttft_ms=math.inf), "median_ttft_ms is inf"),
    "negative": (at("ttfts", 2, -0.1), "ttfts: 1 times that no clock shows, the first -0.1"),
    "gap": (at("itls", 0, [math.nan]), "itls: 1 times"),
    "latency": (at("latencies", 0, 0.2), "off its ttft and the sum of its itls"),
    "length": (at("output_lens", 0, -8), "output_lens: -8 tokens"),
    "other size": (put(errors=[""] * 11), "errors speaks of 11 requests"),
    "hidden error": (at("errors", 0, "Bad Gateway"), "completed is 12, by errors and ttfts it is 11"),
    "rate": (put(output_throughput=999.0), "output_throughput is 999"),
    "median": (put(median_ttft_ms=1.0), "median_ttft_ms is 1, by the rest of the file 62"),
    "crowd": (put(max_concurrency=3), "4 requests were under way at once, max_concurrency is 3"),
    "no user": (put(max_concurrency=0), "max_concurrency is 0"),
    "never": (put(request_rate=0.0), "request_rate is 0"),
    "late": (at("start_times", 0, 1.0), "its requests span"),
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_contradictions(tmp_path: Path, name: str) -> None:
    """Each is told, voids every comparison, and takes the file's failures out of the count."""
    change, told = CONTRADICTIONS[name]
    held = values("candidate.json")
    change(held)
    lines = contradictions(result(held))
    assert any(told in line for line in lines), lines
    _, judged = imported(tmp_path, "baseline.json", held)
    assert judged["verdict"] == INVALID
    assert all(row["verdict"] == INVALID and row["estimate"] is None for row in judged["criteria"])
    assert any(told in reason for reason in judged["reasons"])


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (put(model_id="other"), "other model_id"),
        (put(max_concurrency=5), "other max_concurrency"),
        (put(num_prompts=13), "other num_prompts"),
        (put(request_rate=5.0), "other request_rate"),
        (put(ramp_up_strategy="linear"), "other ramp_up_strategy"),
        (at("input_lens", 1, 27), "other input_lens in 1 of 12 requests"),
        (at("output_lens", 1, 7), "other output_lens in 1 of 12 requests"),
    ],
)
def test_differences_between_the_arms(change: Callable[[Json], None], told: str) -> None:
    held = values("candidate.json")
    assert differences(result(values("baseline.json"), "baseline"), result(held)) == []
    change(held)
    assert any(told in line for line in differences(result(values("baseline.json"), "baseline"), result(held)))


def test_failures_count_though_the_arms_differ(tmp_path: Path) -> None:
    """A candidate must not turn its own failures INVALID by having been measured otherwise than the baseline."""
    _, judged = imported(tmp_path, "chat.json", "stopped.json")
    assert rows(judged)["failed-requests"]["estimate"]["point"] == 8
    assert judged["verdict"] == FAIL


def test_files_in_the_wrong_place() -> None:
    held = values("candidate.json")
    mine = result({**held, "label": "Candidate"}, "baseline")
    assert "label" in mixed_up([mine])[0]
    assert "the same result" in mixed_up([result(held, "baseline"), result(held)])[0]
    other = result({**held, "tier": "nvme"})
    assert "'tier' is 'nvme', but 'array'" in of_two_kinds([result(held), other])[0]


def test_old_versions_lack_what_they_lack(tmp_path: Path) -> None:
    held = values("candidate.json")
    for key in ("latencies", "queue_times", "start_times", "failed", "backend", "burstiness"):
        del held[key]
    assert contradictions(result(held)) == [] and failed(result(held)) == 0
    for key in ("input_lens", "output_lens", "ttfts", "itls", "errors"):
        del held[key]
    held["completed"], held["request_throughput"] = 11, 11 / held["duration"]
    _, judged = imported(tmp_path, "baseline.json", held)
    reason = rows(judged)["failed-requests"]["reason"]
    assert judged["verdict"] == INVALID
    assert "completed 11 of 12" in reason and "measure again with --save-detailed" in reason


def test_appended_results_are_each_a_result(tmp_path: Path) -> None:
    run, judged = imported(tmp_path, "appended-baseline.json", "appended-candidate.json")
    assert "n = 2 pairs, 5 needed" in rows(judged)["throughput-gain"]["reason"]
    assert [b["block"] for b in judged["blocks"]["invalid"]] == [1, 2]
    facts = json.loads((run / "run.json").read_bytes())
    assert [file["results"] for file in facts["import"]["files"]] == [2, 2]
    assert [row[0] for row in load_and_judge(run).claims][:2] == [
        "baseline-01.json result 1",
        "baseline-01.json result 2",
    ]


def load_and_judge(run: Path) -> Any:
    (run / "verdict.json").write_bytes(verdict.to_bytes(verdict.judge(Run(run))))
    return load_view(run)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_report_says_that_it_is_no_acceptance(tmp_path: Path, language: str) -> None:
    run, _ = imported(tmp_path, "baseline.json", "stopped.json")
    view = load_and_judge(run)
    assert view.trusted and not view.acceptance and not view.rehearsal
    (path,) = pages(run, [language])
    page = path.read_text(encoding="utf-8")
    assert {"en": "Stated by the files, not verified", "zh": "文件自述，未经核实"}[language] in page
    assert "acceptance: false" in page and 'class="watermark"' not in page
    # 61.8 ms is the median of the third that came; without the others it is no figure.
    assert "61.8" not in page and "122.941" in page


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def gates(*args: object) -> tuple[int, str]:
        status = program.main([str(arg) for arg in args])
        out, err = capsys.readouterr()
        assert err == ""
        return status, out

    files = [DATA / "baseline.json", DATA / "candidate.json", DATA / "plain.json", DATA / "unlimited.json"]
    status, out = gates("import", "vllm-bench", *files, "--out", tmp_path / "a")
    run = Path(out.splitlines()[-1])
    assert status == 11 and [path.name for path in (tmp_path / "a").iterdir()] == [run.name]
    first = (run / "verdict.json").read_bytes()
    assert gates("verify", run)[0] == 0
    moved = run.rename(tmp_path / "moved")
    # Another process, another place: the same bytes.
    done = subprocess.run([sys.executable, "-m", "gates", "rejudge", moved], cwd=ROOT, capture_output=True, check=False)
    assert (done.returncode, done.stderr, (moved / "verdict.json").read_bytes()) == (11, b"", first)
    status, out = gates("explain", moved)
    assert status == 11 and "at concurrency unknown" in out and "at concurrency 4" in out
    by_arm = ("--baseline", files[0], files[2], "--candidate", files[1], files[3])
    status, out = gates("import", "vllm-bench", *by_arm, "--out", tmp_path / "b")
    assert (
        json.loads((Path(out.splitlines()[-1]) / "verdict.json").read_bytes())["criteria"]
        == json.loads(first)["criteria"]
    )
    (moved / "raw/import/candidate-01.json").write_bytes(b"{}")
    assert gates("rejudge", moved)[0] == 11 and gates("verify", moved)[0] == 1


ODD_FILES: dict[str, Callable[[Path], object]] = {
    "a pipe": os.mkfifo,
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a folder": Path.mkdir,
    "sparse": lambda path: (path.touch(), os.truncate(path, 1 << 21)),
}


@pytest.mark.parametrize("name", ODD_FILES)
def test_what_is_no_file_of_an_import_is_told_without_waiting(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(store, "BYTES_MAX", 1 << 20)
    run, _ = imported(tmp_path, "baseline.json", "stopped.json")
    (run / "raw/import/candidate-01.json").unlink()
    ODD_FILES[name](run / "raw/import/candidate-01.json")
    for what in ("rejudge", "explain"):
        assert program.main([what, str(run)]) == 11
        out, err = capsys.readouterr()
        assert err == "" and "candidate-01.json" in out
    told = "not a plain file" if name != "sparse" else "larger than 1 MiB"
    assert any(f"raw/import/candidate-01.json: {told}" in r for r in verdict.judge(Run(run))["reasons"])


@pytest.mark.parametrize("name", ["a pipe", "a device", "a folder", "sparse"])
def test_what_is_no_file_is_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(store, "BYTES_MAX", 1 << 20)
    ODD_FILES[name](tmp_path / "x.json")
    with pytest.raises(EvidenceError, match=r"x\.json: (no such file|larger than)"):
        store.take(tmp_path / "x.json", "candidate")


GUIDE = json.dumps({"metadata": {}, "args": {}, "benchmarks": []}).encode()
PLAIN = (DATA / "plain.json").read_bytes()
REFUSED: dict[str, tuple[bytes, str]] = {
    "empty": (b" \n", "empty"),
    "cut off": (PLAIN[:500], ":1: result 1 is cut off"),
    "second cut off": (PLAIN + b"\n" + PLAIN[:90], ":2: result 2 is cut off"),
    "foreign": (GUIDE, "looks like GuideLLM's report"),
    "jsonl of others": (b'{"id": 1}\n{"id": 2}\n', ":1: not a result of `vllm bench serve`"),
    "list": (b"[]", "a JSON list where a result should begin"),
    "not text": (b"\xff\xfe{}", "byte 1 is not UTF-8"),
    "twice": (b'{"a": 1, "a": 2}', "key 'a' stands there twice"),
    "deep": (b'{"a":' * 100_000, "nested too deeply"),
    "digits": (b'{"a": ' + b"1" * 5000 + b"}", "digits"),
    "kind": (PLAIN.replace(b'"num_prompts": 8', b'"num_prompts": "8"'), "key num_prompts: '8' is not a whole number"),
    "nan count": (PLAIN.replace(b'"failed": 0', b'"failed": NaN'), "key failed: nan is not a whole number"),
    "huge": (re.sub(rb'"duration": [0-9.]+', b'"duration": ' + b"9" * 400, PLAIN), "key duration"),
    "nothing generated": (PLAIN.replace(b'"rtfx"', b'"total_input_sequences"'), "embeddings"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_result_is_one_line_and_leaves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    content, told = REFUSED[name]
    path, runs = tmp_path / "x.json", tmp_path / "runs"
    path.write_bytes(content)
    status = program.main(["import", "vllm-bench", str(DATA / "baseline.json"), str(path), "--out", str(runs)])
    out, err = capsys.readouterr()
    assert (status, out, runs.exists()) == (4, "", False)
    assert err.startswith(f"kvgate: {path}") and err.count("\n") == 1 and told in err


@pytest.mark.parametrize(
    ("args", "told"),
    [
        ((), "no file of the baseline"),
        (("baseline.json",), "give them in pairs"),
        (("baseline.json", "baseline.json"), "byte for byte"),
        (("baseline.json", "nowhere.json"), "no such file"),
        (("baseline.json", "appended-candidate.json"), "2 results, the baseline's files hold 1"),
        (("--baseline", "baseline.json"), "no file of the candidate"),
        (("baseline.json", "plain.json", "--candidate", "chat.json"), "not both"),
    ],
)
def test_errors_of_use(tmp_path: Path, capsys: pytest.CaptureFixture[str], args: tuple[str, ...], told: str) -> None:
    named = [str(DATA / arg) if arg.endswith(".json") else arg for arg in args]
    assert program.main(["import", "vllm-bench", *named, "--out", str(tmp_path / "runs")]) == 4
    out, err = capsys.readouterr()
    assert out == "" and told in err and err.count("\n") == 1
    assert not (tmp_path / "runs").exists()


def test_nothing_half_written_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(*_: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(RunDir, "seal", no_room)
    with pytest.raises(OSError, match="No space"):
        imported(tmp_path, "baseline.json", "candidate.json")
    assert list((tmp_path / "runs").iterdir()) == []


def test_a_run_that_says_it_is_an_import_proves_nothing(tmp_path: Path) -> None:
    run = RunDir.create(tmp_path, "g3")
    run.write_json("run.json", {"schema": 1, "gate": "g3", "kind": "import", "rehearsal": False})
    run.seal("end")
    judged = verdict.judge(Run(run.path))
    assert (judged["verdict"], judged["acceptance"]) == (INVALID, False)
    assert (FAIL, INVALID) == (verdict.FAIL, verdict.INVALID)


def test_a_large_file_takes_seconds(tmp_path: Path) -> None:
    """200 000 requests, each of four gaps: read, checked and judged."""
    held, n = values("candidate.json"), 200_000
    gaps = [0.005] * 4
    ttfts = [0.0625 + (i % 7) * 2**-10 for i in range(n)]
    latencies = [ttft + sum(gaps) for ttft in ttfts]
    held |= {"num_prompts": n, "completed": n, "max_concurrency": n, "duration": 1000.0, "input_lens": [100] * n}
    held |= {"output_lens": [5] * n, "ttfts": ttfts, "itls": [gaps] * n, "latencies": latencies, "errors": [""] * n}
    held |= {"start_times": [i * 2**-10 for i in range(n)], "queue_times": [0.0] * n, "generated_texts": ["x"] * n}
    held |= {"total_input_tokens": 100 * n, "total_output_tokens": 5 * n}
    for key in [key for key in held if key.endswith(("_ms", "_throughput"))]:
        del held[key]
    began = time.monotonic()
    _, judged = imported(tmp_path, held, {**held, "rtfx": 1.0})
    assert time.monotonic() - began < 60
    assert not judged["breaches"]


def test_a_key_twice_among_many_is_found_at_once() -> None:
    held = ",".join(f'"k{i}":0' for i in range(200_000))
    began = time.process_time()
    with pytest.raises(EvidenceError, match="f:1: result 1: key 'k199999' stands there twice"):
        list(documents(f'{{{held},"k199999":0}}'.encode(), "f"))
    assert time.process_time() - began < 5  # by comparing each with each it takes a quarter of an hour


# Property tests: whatever the bytes, a reader says what it is or refuses it in one line.
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from(sorted(values("stopped.json")))


def read_all(content: bytes) -> list[Result] | None:
    """Return the results, or None where they were refused in one line that names the file."""
    try:
        return [read(document, "candidate", "f", alone=False) for document in documents(content, "f")]
    except EvidenceError as error:
        assert str(error).startswith("f:") and "\n" not in str(error)
        return None


@LOOSE
@given(st.binary(max_size=200) | JSON_VALUES.map(lambda value: json.dumps(value).encode()))
def test_any_bytes(content: bytes) -> None:
    assert read_all(content) is None


@LOOSE
@given(st.sampled_from(["stopped.json", "appended-baseline.json"]), st.floats(0, 1, exclude_max=True))
def test_a_file_cut_anywhere_is_refused_or_holds_whole_results(name: str, share: float) -> None:
    content = (DATA / name).read_bytes()
    whole = read_all(content)
    found = read_all(content[: int(share * len(content))])
    assert found is None or (whole is not None and [r.values for r in found] == [r.values for r in whole[: len(found)]])


@LOOSE
@given(
    st.lists(st.dictionaries(st.text(max_size=4), JSON_VALUES, max_size=3), min_size=1, max_size=4),
    st.sampled_from(["", "\n", " \r\n\t"]),
)
def test_documents_in_one_file(held: list[Json], between: str) -> None:
    text = between + between.join(json.dumps(value) for value in held)
    found = list(documents(text.encode(), "f"))
    assert [json.dumps(document.value) for document in found] == [json.dumps(value) for value in held]
    assert [document.number for document in found] == list(range(1, len(held) + 1))


@LOOSE
@given(st.dictionaries(KEYS, JSON_VALUES | st.floats() | st.integers(-3, 20), max_size=3), st.sets(KEYS, max_size=3))
def test_a_result_changed_anywhere_is_refused_or_checked(changes: Json, gone: set[str]) -> None:
    held = {key: value for key, value in (values("stopped.json") | changes).items() if key not in gone}
    found = read_all(json.dumps(held).encode())
    if found is not None:
        lines = contradictions(found[0]) + differences(result(values("baseline.json"), "baseline"), found[0])
        assert all("\n" not in line for line in lines)
        assert failed(found[0]) is None or 0 <= (failed(found[0]) or 0) <= 12 or lines


@LOOSE
@given(st.integers(0, 11), st.floats(allow_nan=True), st.sampled_from(["ttfts", "latencies", "start_times"]))
def test_a_time_that_is_none_is_a_contradiction(index: int, value: float, key: str) -> None:
    held = values("candidate.json")
    held[key][index] = value
    if not (math.isfinite(value) and value >= 0):
        assert any(key in line for line in contradictions(result(held)))


def test_a_document_knows_its_line_and_hash() -> None:
    first, second = documents(b'{"a": 1}\n\n {"a": NaN}', "f")
    assert isinstance(first, Document) and (first.line, second.line) == (1, 3)
    assert first.sha256 != second.sha256 and math.isnan(second.value["a"])
