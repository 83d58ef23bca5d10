"""Site and scenario files: strict, and wrong ones told in one line with file, line, key and reason."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from scenarios.load import ConfigError, line_of, load_scenario, load_site, load_toml
from scenarios.model import Site, stored_tokens

ROOT = Path(__file__).resolve().parent.parent
REHEARSAL = (ROOT / "scenarios/sites/rehearsal.toml").read_text(encoding="utf-8")
SCENARIO = (ROOT / "scenarios/catalog/rehearsal.toml").read_text(encoding="utf-8")


def site_with(tmp_path: Path, old: str, new: str) -> Path:
    assert old in REHEARSAL
    path = tmp_path / "lab.toml"
    path.write_text(REHEARSAL.replace(old, new), encoding="utf-8")
    return path


def test_shipped_files_load_and_every_value_has_an_origin() -> None:
    site = load_site("rehearsal")
    scenario = load_scenario("rehearsal", site)
    assert scenario.value.steps == (2, 4)
    assert site.origins["engine.policy"].endswith("rehearsal.toml:17")
    assert site.origins["engine.stop_deadline_s"] == "default"
    assert scenario.origins["workload.prompt_tokens"].startswith("scenarios/catalog/rehearsal.toml:")


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("ready_deadline_s = 180.0", "redy_deadline_s = 180.0", "engine.redy_deadline_s: unknown key; did you mean 'ready_deadline_s'?"),
        ("ready_deadline_s = 180.0\n", "", "engine.ready_deadline_s: is missing"),
        ('policy = "resident"', 'policy = "swapp"', "engine.policy: input should be 'resident' or 'exclusive'"),
        ("dram_gb = 0.5", 'dram_gb = "0.5"', "lmcache.dram_gb: input should be a valid number"),
        ("dram_gb = 0.5", "dram_gb = nan", "lmcache.dram_gb: input should be a finite number"),
        ("read_bytes_per_s = 40_000_000", "read_bytes_per_s = 0", "tiers.local-nvme.medium.read_bytes_per_s: input should be greater than 0"),
        ('kind = "emulated"\npath = "fx100"', 'kind = "fs"\npath = "fx100"', "tiers.fx100.medium: belongs to kind 'emulated'"),
        ("schema = 1", "schema = 2", "schema: input should be 1"),
        ("schema = 1", "schema = true", "schema: input should be 1"),
        ("ready_deadline_s = 180.0", "ready_deadline_s = 100000.0", "engine.ready_deadline_s: input should be less than or equal to 86400"),
        ('path = "fx100"', 'path = "local-nvme/"', "tiers.fx100.path: 'local-nvme/' is the path of 'local-nvme', too"),
        ('path = "fx100"', 'path = "fx100"\nblock_devices = ["../sda"]', "tiers.fx100.block_devices"),
        ('path = "fx100"', 'path = "fx100"\nblock_devices = ["md0", "md0"]', "tiers.fx100.block_devices: names one of them twice"),
        ('path = "fx100"', 'path = "fx100"\nrdma_ports = ["mlx5_0"]', "tiers.fx100.rdma_ports"),
        ("schema = 1", "schema = = 1", "not TOML"),
    ],
)  # fmt: skip
def test_a_wrong_site_is_one_line_with_its_place(tmp_path: Path, old: str, new: str, told: str) -> None:
    path = site_with(tmp_path, old, new)
    with pytest.raises(ConfigError) as caught:
        load_site(str(path))
    message = str(caught.value)
    assert told in message
    assert "\n" not in message
    place = re.match(rf"{re.escape(str(path))}:(\d+): ", message)
    assert place, message
    # The line named is the one that was changed, or the table it was taken from.
    changed = REHEARSAL[: REHEARSAL.index(old)].count("\n") + 1
    assert abs(int(place[1]) - changed) <= 14


def test_the_line_named_is_the_line_of_the_key(tmp_path: Path) -> None:
    path = site_with(tmp_path, "dram_gb = 0.5", "dram_gb = -1.0")
    with pytest.raises(ConfigError) as caught:
        load_site(str(path))
    line = int(str(caught.value).split(":")[1])
    assert path.read_text(encoding="utf-8").splitlines()[line - 1] == "dram_gb = -1.0"


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('model = "kvgate-toy"', 'model = "gpt"', "model: 'gpt' is not in"),
        ('tiers = ["fx100"]', 'tiers = ["fx200"]', "arms.candidate.tiers: 'fx200' is not in"),
        ("prompt_tokens = 4096", "prompt_tokens = 40960", "workload.prompt_tokens: prompt and output of 40968 tokens exceed"),
        ("prompt_tokens = 4096", "prompt_tokens = 100", "workload.prompt_tokens: shorter than one chunk"),
        ("steps = [2, 4]", "steps = [4, 2]", "steps: must rise"),
        ("steps = [2, 4]", "steps = []", "steps: "),
        ('tiers = ["fx100"]', 'tiers = ["local-nvme"]', "arms.candidate.tiers: 'local-nvme' is the baseline's, too"),
        ("client_lag_budget_s = 0.1", "client_lag_budget_s = 6.0", "workload.client_lag_budget_s: input should be less than or equal to 5"),
        ("client_lag_budget_s = 0.1", "client_lag_budget_s = 0.1\nfirst_shared_read_budget = 1.0", "workload.first_shared_read_budget: input should be less"),
        ("client_lag_budget_s = 0.1", "client_lag_budget_s = 0.1\nfirst_token_mismatch_budget = 0.5", "workload.first_token_mismatch_budget: input should be less"),
        ("[arms.baseline]", "[arms.other]", "arms: 'baseline' is missing"),
        ('title = "no external tier"', 'title = "x"\ntiers = ["fx100"]', "arms.recompute.tiers"),
    ],
)  # fmt: skip
def test_a_scenario_that_does_not_fit_is_refused(tmp_path: Path, old: str, new: str, told: str) -> None:
    assert old in SCENARIO
    path = tmp_path / "s.toml"
    path.write_text(SCENARIO.replace(old, new), encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_scenario(str(path), load_site("rehearsal"))
    assert told in str(caught.value)
    assert re.match(rf"{re.escape(str(path))}:\d+: ", str(caught.value))


def test_unknown_names_list_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"unknown site 'labb': .*'rehearsal'"):
        load_site("labb")
    with pytest.raises(ConfigError, match=r"nowhere/lab\.toml: no such site file"):
        load_site("nowhere/lab.toml")


@given(st.binary(max_size=300))
def test_arbitrary_bytes_raise_nothing_but_config_errors(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        load_toml(path, Site)
    assert "\n" not in str(caught.value)


def test_models_are_frozen() -> None:
    site = load_site("rehearsal").value
    with pytest.raises(ValidationError):
        site.name = "other"  # type: ignore[misc]


def test_lines_of_dotted_quoted_and_inline_keys() -> None:
    text = 'a.b = 1\n[t."x y"]\nk = 2\nm = { n = 3 }\n'
    assert line_of(text, ("a", "b")) == 1
    assert line_of(text, ("t", "x y", "k")) == 3
    assert line_of(text, ("t", "x y", "m", "n")) == 4
    assert line_of(text, ("nowhere",)) is None


@pytest.mark.parametrize(("tokens", "stored"), [(4096, 4095), (4097, 4096), (4095, 3840), (256, 255), (255, 0)])
def test_stored_tokens_are_whole_chunks_and_never_the_last_token(tokens: int, stored: int) -> None:
    assert stored_tokens(tokens, 256) == stored
