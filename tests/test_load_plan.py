"""Load files: what they may ask for, what is refused and where, and the plan that follows from a seed."""

from __future__ import annotations

import itertools
import json
import re
import tomllib
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from scenarios.load import ConfigError
from workloads import __main__ as cli
from workloads.evidence import write_whole
from workloads.load import read_load
from workloads.plan import Item, Plan, plan

ROOT = Path(__file__).resolve().parent.parent
DOCS = (ROOT / "docs/load.md").read_text(encoding="utf-8")

WAVES = "[arrival.waves]\nusers = 3\nwaves = 2\n"
CLOSED = "[arrival.closed]\nusers = 2\nrequests = 5\n"
OPEN = '[arrival.open]\nrate_per_s = 2.0\nspacing = "poisson"\nrequests = 4\n'
TRACE = "[arrival.trace]\nspeed = 2.0\n"
TURNS = "[arrival.sessions]\nusers = 2\nturns = 3\nthink_s = 1.5\n"
UNSHARED = "[prompts.unshared]\nprompt_tokens = 100\noutput_tokens = 10\n"
PREFIX = "[prompts.shared_prefix]\ngroups = 2\nprefix_tokens = 60\nsuffix_tokens = 20\noutput_tokens = 10\n"
DOCUMENT = "[prompts.long_document]\ndocuments = 2\ndocument_tokens = 90\nquestion_tokens = 10\noutput_tokens = 10\n"
TALK = "[prompts.sessions]\nfirst_tokens = 50\nturn_tokens = 20\noutput_tokens = 10\n"
FILE = '[prompts.trace]\nfile = "traces/t.jsonl"\n'


PINNED = [
    (0.160595687, 1092454742583683, [833, 1005, 252]),
    (1.366955166, 5583228612367370, [793, 911, 198]),
    (1.37942435, 4876769307467211, [833, 1005, 252]),
    (2.211259814, 7907342612900307, [793, 911, 198]),
]


def load_file(folder: Path, *tables: str) -> Path:
    path = folder / "load.toml"
    path.write_text('schema = 1\ntitle = "a load"\n' + "".join(tables), encoding="utf-8")
    (folder / "traces").mkdir(exist_ok=True)
    lines = [(4000, 600, 9, [0, 1]), (1000, 512, 8, [0]), (2000, 700, 7, [0, 2])]
    fields = ("timestamp", "input_length", "output_length", "hash_ids")
    trace = "".join(json.dumps(dict(zip(fields, line, strict=True))) + "\n" for line in lines)
    (folder / "traces/t.jsonl").write_text(trace, encoding="utf-8")
    return path


def planned(folder: Path, *tables: str, seed: int = 1, window: int | None = None) -> Plan:
    return plan(read_load(load_file(folder, *tables)), seed, 1024, window)


def times(made: Plan) -> list[float | None]:
    return [item.t_offset_s for item in made]


def test_waves_send_each_user_once_a_wave(tmp_path: Path) -> None:
    made = planned(tmp_path, WAVES, UNSHARED)
    assert made.requests == 6
    assert made.arrival.kind == "waves"
    assert [(i.index, i.user, i.turn) for i in made] == [
        (0, 0, 0),
        (1, 1, 0),
        (2, 2, 0),
        (3, 0, 1),
        (4, 1, 1),
        (5, 2, 1),
    ]
    assert times(made) == [None] * 6
    assert [(i.prompt.tokens, i.output_tokens, i.think_s) for i in made] == [(100, 10, 0.0)] * 6


def test_a_closed_loop_is_for_whoever_is_free(tmp_path: Path) -> None:
    made = planned(tmp_path, CLOSED, DOCUMENT)
    assert [(i.user, i.turn, i.t_offset_s) for i in made] == [(None, 0, None)] * 5
    assert [i.prompt.parts[0].key for i in made] == [f"document/{n}" for n in (0, 1, 0, 1, 0)]


def test_evenly_spaced_requests_begin_at_once(tmp_path: Path) -> None:
    made = planned(tmp_path, OPEN.replace("poisson", "constant"), PREFIX)
    assert times(made) == [0.0, 0.5, 1.0, 1.5]
    assert made.facts().last_offset_s == 1.5
    assert made.facts().sharing.shared_tokens == 2 * 60


def test_sessions_grow_and_think(tmp_path: Path) -> None:
    made = planned(tmp_path, TURNS, TALK, window=120)
    got = [(i.user, i.turn, i.think_s, i.prompt.tokens, i.output_tokens) for i in made]
    assert got == [(u, t, 1.5 if t else 0.0, 50 + 30 * t, 10) for t in range(3) for u in range(2)]
    ids = [i.prompt.token_ids() for i in made]
    assert ids[4][:80] == ids[2]
    assert made.facts().longest_tokens == 120


def test_a_trace_keeps_its_times_divided_by_speed(tmp_path: Path) -> None:
    made = planned(tmp_path, TRACE, FILE, window=707)
    assert [(i.t_offset_s, i.prompt.tokens, i.output_tokens) for i in made] == [
        (0.0, 512, 8),
        (0.5, 700, 7),
        (1.5, 600, 9),
    ]
    assert made.facts().sharing.shared_tokens == 1024
    first, second = itertools.islice(made, 2)
    assert second.prompt.token_ids()[:512] == first.prompt.token_ids()


def test_a_window_of_a_trace_and_its_prompts_at_other_times(tmp_path: Path) -> None:
    assert times(planned(tmp_path, TRACE, FILE, "from_s = 0.5\nto_s = 3.0\n")) == [0.25]
    assert len(list(planned(tmp_path, TRACE, FILE, "first = 2\n"))) == 2
    made = planned(tmp_path, CLOSED.replace("5", "2"), FILE)
    assert [(i.t_offset_s, i.prompt.tokens) for i in made] == [(None, 512), (None, 700)]


def test_the_same_seed_gives_the_same_plan_on_every_machine(tmp_path: Path) -> None:
    def told(item: Item) -> tuple[float | None, int, list[int]]:
        return item.t_offset_s, item.prompt.prompt_seed(), item.prompt.token_ids()[:3]

    made = planned(tmp_path, OPEN, PREFIX)
    assert [told(i) for i in made] == PINNED
    assert [told(i) for i in made] == PINNED  # a plan is gone through as often as one likes
    other = planned(tmp_path, OPEN, PREFIX, seed=2)
    assert not set(times(other)) & set(times(made))
    assert all(a.prompt.token_ids()[:9] != b.prompt.token_ids()[:9] for a, b in zip(made, other, strict=True))


def test_poisson_gaps_are_exponential_and_not_stretched(tmp_path: Path) -> None:
    many = OPEN.replace("requests = 4", "requests = 2000")
    lasts = []
    for seed in range(20):
        t = np.array(times(planned(tmp_path, many, UNSHARED, seed=seed)), dtype=float)
        gaps = np.diff(t, prepend=0.0)
        assert (gaps >= 0).all()
        assert stats.kstest(gaps, "expon", args=(0, 0.5)).pvalue > 1e-4
        lasts.append(t[-1])
    # The end of a Poisson process varies: 1000 s with a standard deviation of 22 s.
    assert np.mean(lasts) == pytest.approx(1000, abs=25)
    assert 10 < np.std(lasts) < 40


@pytest.mark.parametrize(
    ("tables", "line", "told"),
    [
        (OPEN.replace("2.0", "0.0") + UNSHARED, 4, "arrival.open.rate_per_s: input should be greater than or equal to"),
        (OPEN.replace("2.0", "-1.0") + UNSHARED, 4, "arrival.open.rate_per_s: input should be greater than"),
        (OPEN.replace("2.0", "nan") + UNSHARED, 4, "arrival.open.rate_per_s: "),
        (OPEN.replace("poisson", "random") + UNSHARED, 5, "arrival.open.spacing: input should be 'poisson' or 'constant'"),
        (OPEN.replace("rate_per_s", "rate_pr_s") + UNSHARED, 4, "arrival.open.rate_pr_s: unknown key; did you mean 'rate_per_s'?"),
        (CLOSED.replace("users = 2", "users = 0") + UNSHARED, 4, "arrival.closed.users: input should be greater than 0"),
        (CLOSED.replace("users = 2", "users = true") + UNSHARED, 4, "arrival.closed.users: input should be a valid integer"),
        (TURNS.replace("1.5", "-1.5") + TALK, 6, "arrival.sessions.think_s: input should be greater than or equal to 0"),
        (WAVES + CLOSED + UNSHARED, 6, "arrival.closed: give exactly one of waves, closed, open, trace, sessions; 'waves' is there, too"),
        ("[arrival]\n" + UNSHARED, 3, "arrival: give exactly one of waves, closed, open, trace, sessions"),
        (WAVES, 1, "prompts: is missing"),
        (WAVES + UNSHARED + PREFIX, 9, "prompts.shared_prefix: give exactly one of unshared, shared_prefix"),
        (WAVES + UNSHARED.replace("100", "0"), 7, "prompts.unshared.prompt_tokens: input should be greater than 0"),
        (WAVES + TALK, 6, "prompts.sessions: [arrival.sessions] and [prompts.sessions] need each other"),
        (TURNS + UNSHARED, 3, "arrival.sessions: [arrival.sessions] and [prompts.sessions] need each other"),
        (TRACE + UNSHARED, 3, "arrival.trace: the times are those of a trace, so [prompts.trace] must name it"),
        (TRACE + FILE + "from_s = 2.0\nto_s = 2.0\n", 8, "prompts.trace.to_s: must be more than from_s"),
        (TRACE + FILE + "first = 0\n", 7, "prompts.trace.first: input should be greater than 0"),
        (TRACE.replace("2.0", "0.0") + FILE, 4, "arrival.trace.speed: input should be greater than"),
        (TRACE + FILE.replace("traces/t", "a\\u0000b"), 6, "prompts.trace.file: string should match pattern"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_told_with_its_place(tmp_path: Path, tables: str, line: int, told: str) -> None:
    path = load_file(tmp_path, tables)
    with pytest.raises(ConfigError) as caught:
        read_load(path)
    told_at(caught.value, path, line, told)


def told_at(error: ConfigError, path: Path, line: int, told: str) -> None:
    message = str(error)
    assert told in message
    assert "\n" not in message
    assert message.startswith(f"{path}:{line}: ")


@pytest.mark.parametrize(
    ("tables", "window", "line", "told"),
    [
        (TRACE + FILE.replace("traces/t", "nope"), None, 6, "nope.jsonl: No such file or directory: give a file that can be read"),
        (TRACE + FILE + "block_tokens = 64\n", None, 6, "t.jsonl:1: hash_ids has 2 entries, but 600 tokens are 10 blocks of 64"),
        (TRACE + FILE + "from_s = 9.0\n", None, 6, "t.jsonl: no request in this window"),
        (TRACE + FILE, 706, 6, "t.jsonl:3: prompt and output of 700 + 7 tokens exceed the model's 706"),
        (CLOSED + FILE + "to_s = 0.5\nfirst = 1\n", None, 5, "arrival.closed.requests: 5 requests are asked for, but the trace has 1 in its window"),
        (WAVES + UNSHARED, 109, 7, "prompts.unshared.prompt_tokens: prompt and output of 100 + 10 tokens exceed the model's 109"),
        (WAVES + PREFIX.replace("60", "80"), 109, 8, "prompts.shared_prefix.prefix_tokens: prompt and output of 100 + 10"),
        (WAVES + DOCUMENT, 109, 8, "prompts.long_document.document_tokens: prompt and output of 100 + 10"),
        (TURNS + TALK, 109, 8, "prompts.sessions.first_tokens: prompt and output of 110 + 10"),
    ],
)  # fmt: skip
def test_what_cannot_be_planned_is_told_with_its_place(
    tmp_path: Path, tables: str, window: int | None, line: int, told: str
) -> None:
    path = load_file(tmp_path, tables)
    with pytest.raises(ConfigError) as caught:
        plan(read_load(path), 1, 1024, window)
    told_at(caught.value, path, line, told)


def test_a_vocabulary_needs_an_id_beside_0(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no id beside 0"):
        plan(read_load(load_file(tmp_path, WAVES, UNSHARED)), 1, 1)


def test_what_fits_exactly_is_planned(tmp_path: Path) -> None:
    assert planned(tmp_path, WAVES, UNSHARED, window=110).requests == 6


SMALL = st.integers(1, 40)


@settings(deadline=None)  # files are written to disk
@given(
    st.sampled_from([WAVES, CLOSED, OPEN, TURNS]),
    st.sampled_from([UNSHARED, PREFIX, DOCUMENT, TALK]),
    st.lists(SMALL, min_size=12, max_size=12),
)
def test_a_plan_holds_what_its_facts_say(
    tmp_path_factory: pytest.TempPathFactory, arrival: str, content: str, numbers: list[int]
) -> None:
    draws = iter(numbers)
    text = re.sub(r"= \d+\n", lambda _: f"= {next(draws)}\n", arrival + content)
    path = load_file(tmp_path_factory.mktemp("load"), text)
    try:
        made = plan(read_load(path), 3, 1024, 10_000)
    except ConfigError as error:
        assert (arrival == TURNS) != (content == TALK) or "exceed" in str(error)
        return
    items, facts = list(made), made.facts()
    assert [i.index for i in items] == list(range(made.requests))
    assert facts.sharing.prompts == made.requests
    assert facts.sharing.tokens == sum(i.prompt.tokens for i in items)
    assert facts.output_tokens == sum(i.output_tokens for i in items)
    assert facts.longest_tokens == max(i.prompt.tokens + i.output_tokens for i in items) <= 10_000
    turns = defaultdict(list)
    for item in items:
        if item.user is not None:
            turns[item.user].append(item.turn)
    assert all(t == list(range(len(t))) for t in turns.values())


def test_a_long_plan_is_made_as_it_is_gone_through(tmp_path: Path) -> None:
    made = planned(tmp_path, CLOSED.replace("5", "10_000_000"), UNSHARED.replace("100", "100_000"))
    assert next(iter(made)).prompt.tokens == 100_000


EXAMPLES = re.findall(r"```toml\n(.*?)```", DOCS, re.DOTALL)


@pytest.mark.parametrize("text", EXAMPLES, ids=lambda text: str(tomllib.loads(text)["title"]))
def test_the_examples_of_the_documentation_can_be_planned(tmp_path: Path, text: str) -> None:
    path = load_file(tmp_path)
    path.write_text(text, encoding="utf-8")
    day = [{"timestamp": t, "input_length": 9, "output_length": 1, "hash_ids": [t]} for t in range(0, 1_200_000, 1000)]
    write_whole(tmp_path / "day.jsonl.gz", "".join(json.dumps(r) + "\n" for r in day).encode())
    assert plan(read_load(path), 1, 1024).facts().sharing.prompts > 0


def test_the_documentation_has_an_example_of_every_kind() -> None:
    loads = [tomllib.loads(text) for text in EXAMPLES]
    assert {k for v in loads for k in v["arrival"]} == {"waves", "closed", "open", "trace", "sessions"}
    assert {k for v in loads for k in v["prompts"]} == {
        "unshared",
        "shared_prefix",
        "long_document",
        "trace",
        "sessions",
    }


def test_the_command_says_what_would_be_sent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = load_file(tmp_path, TRACE, FILE)
    assert cli.main(["plan", str(path)]) == 0
    out = capsys.readouterr().out
    assert "a load (trace, trace)" in out
    assert "requests       3" in out
    assert "prompt tokens  1812" in out
    assert "last sending   1.500 s after the start" in out
    assert "shared         56.5%" in out
    assert "not checked" in out
    assert cli.main(["plan", str(path), "--max-context-tokens", "100"]) == 4
    told = capsys.readouterr()
    assert (told.out, told.err.count("\n")) == ("", 1)
    assert told.err.startswith(f"kvgate: {path}:6: prompts.trace.file: ")
    assert cli.main(["plan", str(load_file(tmp_path, WAVES, UNSHARED)), "--max-context-tokens", "110"]) == 0
    assert "depends on the answers" in capsys.readouterr().out
    assert cli.main(["plan", str(tmp_path / "nope.toml")]) == 4
