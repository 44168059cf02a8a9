"""`python -m trainer.samples` shows what was asked, answered, judged and earned."""

from pathlib import Path

import pytest

from trainer.config import load_config
from trainer.run import dump_config
from trainer.samples import main
from trainer.store import RunStore


@pytest.fixture
def run(tmp_path: Path) -> Path:
    store = RunStore.create(tmp_path, "run")
    store.write_config(dump_config(load_config([])))
    store.write_environment({})
    common = {"version": 0, "kind": "deduction", "detail": "", "prompt_ids": [57, 58, 59]}
    store.append(
        "attempts",
        [
            {"step": 1, "member": "s00", "role": "student", "group": "a", "text": "old", "grade": "wrong",
             "reward": -0.5, **common},
            {"step": 2, "member": "t00", "role": "teacher", "group": "b", "text": "[red]mine[/red]", "grade": "valid",
             "reward": 0.25, **common},
            {"step": 2, "member": "s00", "role": "student", "group": "c", "text": "\x1b[2Jescape\nline 2",
             "grade": "unjudged", "reward": None, **common},
        ],
    )  # fmt: skip
    store.close()
    return store.folder


def test_the_last_step_is_shown_with_its_rewards(run: Path, capsys) -> None:
    assert main([str(run)]) == 0
    shown = capsys.readouterr().out
    assert "step 2" in shown
    assert "+0.25" in shown
    assert "old" not in shown


def test_words_of_models_cannot_use_the_terminal(run: Path, capsys) -> None:
    main([str(run)])
    shown = capsys.readouterr().out
    assert "\x1b[2J" not in shown
    assert "[red]mine[/red]" in shown


def test_samples_are_chosen_by_step_and_role(run: Path, capsys) -> None:
    assert main([str(run), "--step", "1", "--role", "student"]) == 0
    assert "-0.50" in capsys.readouterr().out
    assert main(["latest", "--folder", str(run.parent), "--member", "t00"]) == 0
    shown = capsys.readouterr().out
    assert "escape" not in shown


@pytest.mark.parametrize("arguments", [["--step", "9"], ["--grade", "correct"]])
def test_nothing_to_show_is_said(run: Path, capsys, arguments: list[str]) -> None:
    assert main([str(run), *arguments]) == 2
    assert "no such samples" in capsys.readouterr().err


def test_a_folder_that_is_no_run_is_said(tmp_path: Path, capsys) -> None:
    assert main([str(tmp_path)]) == 2
    assert "error:" in capsys.readouterr().err
