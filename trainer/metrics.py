"""Numbers of a step: how they are summed up, and where they go (JSON lines first, TensorBoard as well)."""

from collections.abc import Mapping, Sequence
from typing import Any

from trainer.domain import Grade, Role, Sample
from trainer.store import RunStore


def summarize_samples(samples_of_all: Sequence[Sample]) -> dict[str, float]:
    """Return shares and means over a step's samples by role; shares are of all of the role, unjudged included."""
    metrics: dict[str, float] = {}
    for role in Role:
        samples = [sample for sample in samples_of_all if sample.role is role]
        if not samples:
            continue
        rewards = [sample.reward for sample in samples if sample.reward is not None]
        lengths = [len(sample.completion_ids) for sample in samples]
        metrics[f"{role}/samples"] = float(len(samples))
        metrics[f"{role}/without_reward"] = float(len(samples) - len(rewards))
        if rewards:
            metrics[f"{role}/reward_mean"] = sum(rewards) / len(rewards)
        metrics[f"{role}/completion_length_mean"] = sum(lengths) / len(lengths)
        metrics[f"{role}/truncated"] = _share(sample.finish_reason == "length" for sample in samples)
        metrics[f"{role}/zero_variance_groups"] = measure_zero_variance(samples)
        for grade in Grade:
            metrics[f"{role}/{grade}"] = _share(sample.grade is grade for sample in samples)
    return metrics


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


class MetricsWriter:
    """Writes each step's numbers to metrics.jsonl and to TensorBoard."""

    def __init__(self, store: RunStore, *, first_step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._store = store
        # Events of steps that are done again after a resume are dropped by TensorBoard.
        self._writer = SummaryWriter(str(store.folder / "tensorboard"), purge_step=first_step)

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write one step."""
        self._store.append("metrics", [{"step": step, **metrics}])
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def close(self) -> None:
        """Close TensorBoard's file."""
        self._writer.close()
