"""Wrong KV on the real vLLM and LMCache: what each check sees of a chunk file that is not what was stored.

One arm with a tier and one without are brought up once for all of them; the tier's chunk files are then harmed by hand.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gates.validity.answers import Likely, distance
from scenarios import arms, tiers
from scenarios.engine import LiveArm, running
from scenarios.load import load_scenario, load_site
from tests.test_chunks import resident_pages
from tests.test_engine import ROOT, eventually, ours, segments
from workloads import chunks, client, control, populate, trial
from workloads.evidence import Run, RunDir, read_json
from workloads.prompts import PromptSpec, prompt_set

Json = dict[str, Any]
CHUNK = 256
PROMPTS = 4
ALLOWED = 0.2  # the scenario's default


@dataclass
class Lab:
    """The arms, and what was stored: one prompt set of 8 chunks a prompt."""

    run: RunDir
    tier: LiveArm
    recompute: LiveArm
    prompts: list[PromptSpec]
    computed: list[Json]  # recompute's answers
    files: list[list[Path]]  # of each prompt
    asked: int = 0

    def ask(self, live: LiveArm, prompts: list[PromptSpec], output_tokens: int = 8) -> list[Json]:
        trial.make_cold(live)
        orders = []
        for prompt in prompts:
            self.asked += 1
            orders.append(client.Order(id=f"q{self.asked}", prompt=prompt, output_tokens=output_tokens, facts={}))
        records = client.run_wave(live.base_url, live.model_name, orders, 120.0)
        assert [r["error"] for r in records] == [None] * len(prompts)
        return records

    def read(self, index: int) -> tuple[Json, float]:
        """Return a prompt's answer from the tier, and how far it is from recompute's in nats."""
        (record,) = self.ask(self.tier, [self.prompts[index]])
        return record, distance(named(record), named(self.computed[index]))

    def hashes(self) -> dict[str, str]:
        assert self.tier.tier_folder is not None
        found: dict[str, str] = chunks.look(self.tier.tier_folder, [f.name for fs in self.files for f in fs])["hashes"]
        return found


def named(record: Json) -> Likely:
    found: Likely = record["first_logprobs"] or {}
    return found


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    processes, shared = ours(), segments()
    site, folder = load_site("rehearsal"), tmp_path_factory.mktemp("answers")
    scenario = load_scenario("rehearsal", site).value
    work = ROOT / ".work"
    model = arms.model_folder(site.value, scenario, work)
    plans = arms.arm_plans(site.value, scenario, model, work, folder / "tiers")
    run = RunDir.create(folder, "g3")
    run.write_json("run.json", {"schema": 1, "run_id": run.run_id})
    with contextlib.ExitStack() as stack:
        recompute, tier = (
            stack.enter_context(running(plans[arm], run.folder(f"raw/{arm}/start-01"), 1))
            for arm in ("recompute", "candidate")
        )
        assert tier.tier_folder is not None
        prompts = prompt_set(7, 0, PROMPTS, 8 * CHUNK, 1024)
        files, seen = [], set(tiers.chunk_files(tier.tier_folder))
        for number, prompt in enumerate(prompts):
            # One set a prompt, so that each one's files are known.
            populate.populate(run, tier, [[prompt]], CHUNK, CHUNK * 4096, 120.0, seed=number)
            now = set(tiers.chunk_files(tier.tier_folder))
            files.append([tier.tier_folder / name for name in sorted(now - seen)])
            seen = now
        found = Lab(run, tier, recompute, prompts, [], files)
        found.computed = [found.ask(recompute, [prompt])[0] for prompt in prompts]
        yield found
    assert eventually(lambda: ours() <= processes), "a process outlived the tests"
    assert eventually(lambda: segments() <= shared), "a shared-memory segment outlived the tests"


@pytest.fixture
def harmed(lab: Lab) -> Iterator[Callable[[int, bytes], Path]]:
    """Overwrite one chunk file of a prompt, and heal it afterwards."""
    sound: dict[Path, bytes] = {}

    def harm(index: int, content: bytes, which: int = 3) -> Path:
        file = lab.files[index][which]
        sound.setdefault(file, file.read_bytes())
        file.write_bytes(content)
        return file

    yield harm
    for file, content in sound.items():
        file.write_bytes(content)


@pytest.mark.engine_long
def test_sound_kv_is_read_within_the_noise_and_hashing_leaves_it_sound_and_cold(lab: Lab) -> None:
    before = lab.hashes()
    for concurrency in (1, 2, 4):
        for begin in range(0, PROMPTS, concurrency):
            for index, record in enumerate(lab.ask(lab.tier, lab.prompts[begin : begin + concurrency]), start=begin):
                assert distance(named(record), named(lab.computed[index])) <= ALLOWED
    assert lab.hashes() == before
    for line in Run(lab.run.path).populated("candidate"):
        assert before.items() >= line["chunks"]["hashes"].items()
        assert line["chunks"]["direct_io"] is True
    assert all(resident_pages(file) == 0 for files in lab.files for file in files)


def exchanged(lab: Lab, index: int) -> bytes:
    return lab.files[(index + 1) % PROMPTS][5].read_bytes()


def exponent_bits(lab: Lab, index: int) -> bytes:
    """One high exponent bit in each of 64 places: of a single one in a value that matters little, nobody knows."""
    content = bytearray(lab.files[index][3].read_bytes())
    for place in random.Random(index).sample(range(len(content) // 2), 64):
        content[2 * place + 1] ^= 0x40
    return bytes(content)


def mantissa_bit(lab: Lab, index: int) -> bytes:
    content = bytearray(lab.files[index][3].read_bytes())
    content[len(content) // 2] ^= 0x01  # bfloat16, little endian: the lowest bit of a value
    return bytes(content)


@pytest.mark.engine_long
@pytest.mark.parametrize(
    ("make", "seen"),
    [(exchanged, True), (lambda lab, index: bytes(CHUNK * 4096), True), (exponent_bits, True), (mantissa_bit, False)],
    ids=["exchanged", "zeroed", "exponent", "mantissa"],
)
def test_wrong_kv_at_rest_is_told_by_its_hash_and_by_the_answer_where_it_matters(
    lab: Lab, harmed: Callable[[int, bytes], Path], make: Callable[[Lab, int], bytes], seen: bool
) -> None:
    before = lab.hashes()
    for index in range(PROMPTS):
        file = harmed(index, make(lab, index))
        record, far = lab.read(index)
        print(file.name[-20:], f"{far:.3f} nats, first token {record['output_token_ids'][0]}")
        assert (far > ALLOWED) is seen
        now = lab.hashes()
        assert {name for name in now if now[name] != before[name]} >= {file.name}


@pytest.mark.engine_long
@pytest.mark.parametrize("size", [CHUNK * 4096 // 2, 0], ids=["half", "empty"])
def test_a_truncated_chunk_is_noticed_by_the_tier_and_told_by_its_hash(
    lab: Lab, harmed: Callable[[int, bytes], Path], size: int
) -> None:
    """LMCache notices a short file: the rest of the prompt is computed again, which counters tell."""
    before = lab.hashes()
    file = harmed(0, lab.files[0][3].read_bytes()[:size])
    _, far = lab.read(0)
    assert far <= ALLOWED
    assert lab.hashes()[file.name] != before[file.name]


@pytest.mark.engine_long
def test_the_two_chunks_of_one_prompt_in_each_others_place_change_nothing(
    lab: Lab, harmed: Callable[..., Path]
) -> None:
    """Keys carry their position within them, so attention minds no order: it only rounds otherwise, here the most."""
    one, two = (lab.files[1][which].read_bytes() for which in (2, 6))
    harmed(1, two, which=2)
    harmed(1, one, which=6)
    assert lab.read(1)[1] <= 1.5 * ALLOWED


@pytest.mark.engine_long
def test_the_control_is_carried_out_seen_and_undone(lab: Lab) -> None:
    before = lab.hashes()
    control.carry_out(lab.run, lab.tier, 7, 8 * CHUNK, 8, CHUNK, 1024, 120.0)
    (file,) = lab.run.path.glob("raw/candidate/control.json")
    facts = read_json(file)
    assert facts["error"] is None
    far = {r["role"]: distance(named(r), named(facts["requests"][0])) for r in facts["requests"]}
    print(far)
    assert sum(far[f"exchanged-{number}"] > ALLOWED for number in range(control.EXCHANGES)) > 1
    assert max(far["sound"], far["restored"]) <= ALLOWED
    for exchange in facts["exchanges"]:
        found = exchange["hashes"]
        assert found["restored"] == found["sound"] != found["exchanged"]
    assert lab.hashes() == before
    assert not any(lab.tier.tier_folder.glob("*.control") if lab.tier.tier_folder else ())
