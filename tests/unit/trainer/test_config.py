"""Settings: shipped files parse, mistakes are explained."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from trainer.config import ConfigError, TrainerConfig, find_changes, load_config

SHIPPED = sorted((ROOT / "configs").glob("*.yaml"))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda p: p.name)
def test_every_shipped_config_parses(path: Path) -> None:
    config = load_config([path])
    assert config.max_loras == config.population.teachers + config.population.students + 2


def test_overrides_win_over_files() -> None:
    config = load_config([ROOT / "configs/demo.yaml"], ["run.steps=9", "tasks.types=[deduction]"])
    assert (config.run.steps, config.tasks.types) == (9, ("deduction",))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("rollout.temprature=1", "did you mean rollout.temperature"),
        ("lerning.learning_rate=1", "did you mean learning"),
        ("rewards.student.corect=1", r"did you mean rewards\.student\.correct"),
        ("zzz=1", "unknown setting zzz: known are"),
        ("run.steps=0", r"run\.steps = 0"),
        ("lora.rank=x", r"lora\.rank = 'x'"),
        ("lora.target_modules=[lm_head]", "lm_head"),
        ("learning.advantage=ppo", "advantage"),
        ("tasks.types=[]", "types"),
        ("tasks.attempts_per_problem=1", "attempts_per_problem"),
        ("run.name=a/b", "name"),
    ],
)
def test_a_wrong_setting_names_itself_and_the_way_out(override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_config([], [override])


def test_a_missing_or_broken_file_is_explained(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nothing\.yaml not found"):
        load_config([tmp_path / "nothing.yaml"])
    broken = tmp_path / "broken.yaml"
    broken.write_text("a: [1")
    with pytest.raises(ConfigError, match="cannot read"):
        load_config([broken])


def test_changes_that_matter_are_found_and_others_are_not() -> None:
    old = TrainerConfig()
    new = load_config([], ["run.steps=99", "verifier.address=unix:/x", "lora.rank=16", "learning.clip_low=0.1"])
    assert find_changes(old, new) == ["learning.clip_low: 0.2 -> 0.1", "lora.rank: 8 -> 16"]


def test_the_served_rank_is_one_that_vllm_knows() -> None:
    assert load_config([], ["lora.rank=9"]).served_rank == 16  # of 1, 8, 16, 32, ...
    assert load_config([], ["lora.rank=8"]).served_rank == 8


def test_help_and_dry_run_import_no_torch() -> None:
    code = (
        "import sys; from trainer import run\n"
        "try: run.main(['--help'])\nexcept SystemExit: pass\n"
        "assert run.main(['--dry-run', '--config', 'configs/demo.yaml']) == 0\n"
        "assert not {'torch', 'transformers', 'vllm', 'grpc'} & set(sys.modules), 'heavy import'"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, capture_output=True)


@pytest.mark.parametrize("text", ["- a\n- b\n", "just text"])
def test_a_config_that_is_no_mapping_is_explained(tmp_path: Path, text: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError):
        load_config([path])
    with pytest.raises(ConfigError, match="cannot read"):
        load_config([tmp_path])
