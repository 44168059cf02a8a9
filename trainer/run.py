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

from trainer.config import ConfigError, TrainerConfig, check_config, load_config

if TYPE_CHECKING:
    from trainer.console import Screen
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
        config = load_config(options.config or [DEFAULT_CONFIG], options.overrides)
    except ConfigError as error:
        return _fail(str(error), 2)
    if options.dry_run:
        print(dump_config(config), end="")
        return 0
    return _run(config, options)


def dump_config(config: TrainerConfig) -> str:
    """Return a config as YAML."""
    from omegaconf import OmegaConf

    return OmegaConf.to_yaml(OmegaConf.create(config.model_dump(mode="json")))


def _run(config: TrainerConfig, options: argparse.Namespace) -> int:
    _quiet_libraries()
    from populora.verifier import VerifierError

    from trainer.console import Screen
    from trainer.model import ModelError
    from trainer.rollout.engine import EngineError
    from trainer.store import StoreError

    with Screen() as screen:
        try:
            store, config = _open_store(config, options)
            screen.notice(f"run folder: {store.folder}")
            return _train(config, store, screen, resume=options.resume is not None)
        except (ConfigError, ModelError, StoreError) as error:
            return _fail(str(error), 2)
        except (VerifierError, EngineError) as error:
            return _fail(f"{error}\nGo on later with: python -m trainer.run --resume {store.folder}", 1)
        except KeyboardInterrupt:
            return _fail(f"stopped. Go on with: python -m trainer.run --resume {store.folder}", 130)


def _open_store(config: TrainerConfig, options: argparse.Namespace) -> "tuple[RunStore, TrainerConfig]":
    """Open or make the run folder. A resumed run keeps its own config unless files or overrides are given."""
    from trainer.startup import find_run
    from trainer.store import RunStore

    if options.resume is None:
        store = RunStore.create(config.run.folder, config.run.name)
        store.write_config(dump_config(config))
        return store, config
    store = RunStore.open(find_run(options.resume, config.run.folder))
    own = check_config(store.read_config())
    if options.config:
        return store, config
    if options.overrides:
        return store, load_config([store.folder / "config.yaml"], options.overrides)
    return store, own


def _train(config: TrainerConfig, store: "RunStore", screen: "Screen", *, resume: bool) -> int:
    from trainer.console import describe_step, print_summary
    from trainer.loop import Loop
    from trainer.startup import Watcher, start_run

    parts = start_run(config, store, Watcher(screen.notice, screen.progress), resume=resume)
    stop = _StopSignal(screen)
    try:
        loop = Loop(parts)
        if resume:
            screen.notice(f"resumed after step {parts.state.step}; going on with step {parts.state.step + 1}")
        while parts.state.step < config.run.steps and not stop.requested:
            done, total = parts.state.step, config.run.steps
            step = loop.run_step(partial(screen.step_phase, done, total))
            screen.notice(describe_step({"step": step.number, **step.metrics}))
    finally:
        parts.metrics.close()
        parts.verification.close()
        parts.engine.close()
    print_summary(store.read("metrics"), store.read("lineage"))
    screen.notice(f"run folder: {store.folder}")
    return 0 if not stop.requested else 130


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
