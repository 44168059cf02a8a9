"""Numbers of a step: how they are summed up, and where they go (JSON lines first, TensorBoard and trackers as well)."""

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from statistics import mean, stdev
from typing import Any

from trainer.config import ConfigError, TrainerConfig
from trainer.domain import Grade, Role, Sample
from trainer.store import RunStore


def summarize_samples(samples_of_all: Sequence[Sample]) -> dict[str, float]:
    """Return numbers about a step's samples by role, named as in TRL where it has them.

    Shares of grades are of all samples of the role, unjudged ones included; `reward_std` is over all of them.
    """
    metrics: dict[str, float] = {}
    for role in Role:
        samples = [sample for sample in samples_of_all if sample.role is role]
        if not samples:
            continue
        rewards = [sample.reward for sample in samples if sample.reward is not None]
        metrics[f"{role}/samples"] = float(len(samples))
        metrics[f"{role}/without_reward"] = float(len(samples) - len(rewards))
        if rewards:
            metrics[f"{role}/reward"] = mean(rewards)
            metrics[f"{role}/reward_std"] = stdev(rewards) if len(rewards) > 1 else 0.0
        metrics[f"{role}/frac_reward_zero_std"] = measure_zero_variance(samples)
        for name, value in _summarize_lengths(samples).items():
            metrics[f"{role}/completions/{name}"] = value
        for grade in Grade:
            metrics[f"{role}/{grade}"] = _share(sample.grade is grade for sample in samples)
    return metrics


def _summarize_lengths(samples: Sequence[Sample]) -> dict[str, float]:
    """Return numbers about completions in tokens."""
    lengths = [len(sample.completion_ids) for sample in samples]
    ended = [len(sample.completion_ids) for sample in samples if sample.finish_reason != "length"]
    return {
        "mean_length": mean(lengths),
        "min_length": float(min(lengths)),
        "max_length": float(max(lengths)),
        "mean_terminated_length": mean(ended) if ended else 0.0,
        "clipped_ratio": 1 - len(ended) / len(samples),
    }


def measure_zero_variance(samples: Sequence[Sample]) -> float:
    """Return the share of groups in which all rewards are equal: they teach nothing."""
    groups: dict[str, set[float]] = {}
    for sample in samples:
        if sample.reward is not None:
            groups.setdefault(sample.group, set()).add(sample.reward)
    return _share(len(rewards) == 1 for rewards in groups.values())


def _share(hits: Any) -> float:
    values = [bool(hit) for hit in hits]
    return sum(values) / len(values) if values else 0.0


def check_installed(trackers: Sequence[str]) -> None:
    """Raises ConfigError if a tracker's package is missing."""
    for name in trackers:
        if importlib.util.find_spec(name) is None:
            raise ConfigError(f"run.trackers names {name}, which is not installed: pip install {name}")


def open_trackers(config: TrainerConfig, store: RunStore, notice: Callable[[str], None]) -> dict[str, Any]:
    """Start what `run.trackers` names; wandb and trackio share one interface. A resumed run goes on where it was.

    One that does not start is left out, with a notice.
    """
    runs: dict[str, Any] = {}
    for name in config.run.trackers:
        options: dict[str, Any] = {"dir": str(store.folder), "id": store.read_environment()["run_id"]}
        try:
            runs[name] = importlib.import_module(name).init(
                project="populora",
                name=store.folder.name,
                config=config.model_dump(mode="json"),
                resume="allow",
                **(options if name == "wandb" else {}),
            )
        except Exception as error:
            notice(f"{name} did not start and gets no metrics of this run: {error}")
    return runs


class MetricsWriter:
    """Writes each step's numbers to metrics.jsonl, to TensorBoard, and to trackers.

    Args:
        trackers: by name, as from `open_trackers`. One that fails is left out from then on, with a notice: a service
            for plots must not end a run.
    """

    def __init__(
        self,
        store: RunStore,
        *,
        first_step: int,
        trackers: Mapping[str, Any] | None = None,
        notice: Callable[[str], None] = print,
    ) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._store = store
        self._trackers = dict(trackers or {})
        self._notice = notice
        # Events of steps that are done again after a resume are dropped by TensorBoard.
        self._writer = SummaryWriter(str(store.folder / "tensorboard"), purge_step=first_step)

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write one step."""
        self._store.append("metrics", [{"step": step, **metrics}])
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()
        self._tell_trackers("log", dict(metrics), step=step)

    def close(self) -> None:
        """Close TensorBoard's file and end the trackers."""
        self._writer.close()
        self._tell_trackers("finish")

    def _tell_trackers(self, method: str, *arguments: Any, **options: Any) -> None:
        for name, run in list(self._trackers.items()):
            try:
                getattr(run, method)(*arguments, **options)
            except Exception as error:
                del self._trackers[name]
                self._notice(f"{name} failed and gets no more metrics of this run: {error}")
