"""Command line of a training run: `python -m trainer.run [--config FILE]... [section.key=value]...`."""

import argparse
import logging
import os
import signal
import sys
import warnings
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from trainer.config import ConfigError, TrainerConfig, load_config

if TYPE_CHECKING:
    from trainer.console import Screen
    from trainer.loop import Parts
    from trainer.store import RunStore

DEFAULT_CONFIG = Path("configs/tiny.yaml")


def make_parser() -> argparse.ArgumentParser:
    """Return the parser."""
    parser = argparse.ArgumentParser(prog="python -m trainer.run", description=__doc__)
    parser.add_argument("overrides", nargs="*", metavar="section.key=value", help="settings that win over the files")
    parser.add_argument(
        "--config", action="append", type=Path, default=[], help=f"YAML file; repeatable (default {DEFAULT_CONFIG})"
    )
    parser.add_argument("--resume", metavar="RUN|latest", help="go on with a run folder from its last checkpoint")
    parser.add_argument("--dry-run", action="store_true", help="check and print the resolved settings, run nothing")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run; 0 done, 1 the run broke and can be resumed, 2 settings are wrong, 130 stopped by Ctrl-C."""
    options = make_parser().parse_args(arguments)
    try:
        if options.resume is None:
            config = load_config(options.config or [DEFAULT_CONFIG], options.overrides)
            if options.dry_run:
                print(dump_config(config), end="")
                return 0
            return _run(config, None)
        return _resume(options)
    except ConfigError as error:
        return _fail(str(error), 2)


def dump_config(config: TrainerConfig) -> str:
    """Return a config as YAML."""
    from omegaconf import OmegaConf

    return OmegaConf.to_yaml(OmegaConf.create(config.model_dump(mode="json")))


def _resume(options: argparse.Namespace) -> int:
    """Go on with a run under its own settings; files and overrides on the command line win over them."""
    from trainer.store import RunStore, StoreError, find_run

    try:
        parent = load_config(options.config, options.overrides).run.folder
        store = RunStore.open(find_run(options.resume, parent))
        own = store.folder / "config.yaml"
        config = load_config([own, *options.config], options.overrides)
    except StoreError as error:
        return _fail(str(error), 2)
    if options.dry_run:
        print(dump_config(config), end="")
        return 0
    return _run(config, store)


def _run(config: TrainerConfig, store: "RunStore | None") -> int:
    """Run a new run (no store yet) or go on with one; turn errors into messages and exit statuses."""
    _quiet_libraries()
    from populora.verifier import VerifierError

    from trainer.console import Screen
    from trainer.learning.learner import LearningError
    from trainer.model import ModelError
    from trainer.rollout.engine import EngineError
    from trainer.store import DiskError, StoreError

    run = _Run(config, store)
    with Screen() as screen:
        try:
            return run.execute(screen)
        except (VerifierError, EngineError, LearningError, DiskError) as error:
            return _fail(f"{error}{run.describe_way_on()}", 1)
        except (ConfigError, ModelError, StoreError) as error:
            return _fail(str(error), 2)
        except KeyboardInterrupt:
            return _fail(f"stopped{run.describe_way_on()}", 130)


class _Run:
    """One execution of a run, new or resumed."""

    def __init__(self, config: TrainerConfig, store: "RunStore | None") -> None:
        self._config = config
        self._store = store
        self._resumed = store is not None

    def describe_way_on(self) -> str:
        """Return how the run can be resumed, if it has a checkpoint."""
        from trainer.checkpoint import list_checkpoints

        if self._store is None or not list_checkpoints(self._store):
            return ""
        return f"\nGo on with: python -m trainer.run --resume {self._store.folder}"

    def execute(self, screen: "Screen") -> int:
        from trainer import checkpoint
        from trainer.startup import Watcher, check_surroundings, start_run
        from trainer.store import RunStore

        watcher = Watcher(screen.notice, screen.progress)
        found = checkpoint.read(self._store, self._config) if self._store else None
        preflight = check_surroundings(self._config, watcher)
        if self._store is None:
            self._store = RunStore.create(self._config.run.folder, self._config.run.name)
        self._store.write_config(dump_config(self._config))
        screen.notice(f"run folder: {self._store.folder}")
        parts = start_run(self._config, self._store, watcher, preflight, found)
        try:
            return self._train(parts, screen)
        finally:
            parts.metrics.close()
            parts.verification.close()
            parts.engine.close()

    def _train(self, parts: "Parts", screen: "Screen") -> int:
        from trainer.console import describe_step, print_summary
        from trainer.loop import Loop

        stop, loop = _StopSignal(screen), Loop(parts)
        if self._resumed:
            screen.notice(f"resumed after step {parts.state.step}; going on with step {parts.state.step + 1}")
        while parts.state.step < self._config.run.steps and not stop.requested:
            step = loop.run_step(partial(screen.step_phase, parts.state.step, self._config.run.steps))
            screen.notice(describe_step({"step": step.number, **step.metrics}))
        if stop.requested:
            loop.ensure_checkpoint()
        print_summary(parts.store.read("metrics"), parts.store.read("lineage"))
        screen.notice(f"run folder: {parts.store.folder}")
        if stop.requested:
            screen.notice(self.describe_way_on().strip())
        return 130 if stop.requested else 0


class _StopSignal:
    """First Ctrl-C or SIGTERM: finish the step; second: stop at once (the checkpoint is older then)."""

    def __init__(self, screen: "Screen") -> None:
        self.requested = False
        self._screen = screen
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._handle)

    def _handle(self, *_: object) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
        self._screen.notice("stopping after this step (once more: at once)")


def _quiet_libraries() -> None:
    os.environ.setdefault("TQDM_DISABLE", "1")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    logging.getLogger("transformers").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", category=SyntaxWarning, module="trueskill")


def _fail(message: str, code: int) -> int:
    print(f"error: {message}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
