"""The engine must answer with exactly the weights that were published: every way it did not, elsewhere, raises an alarm.

A real engine and a real update, in float32, on a tiny random model.
"""

import copy
import random
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from trainer.checkpoint import RunState
from trainer.config import load_config
from trainer.domain import Member, Rating, Role
from trainer.learning.learner import Learner
from trainer.learning.logprobs import TokenSequence
from trainer.loop import raise_alarms
from trainer.publication import Publisher
from trainer.rollout.transformers_engine import TransformersEngine
from trainer.startup import choose_tolerance
from trainer.store import RunStore

CONFIG = load_config([], ["model.learner_dtype=float32", "model.sampler_dtype=float32", "lora.rank=4", "lora.alpha=8"])


@pytest.fixture(scope="module")
def model():
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=97, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=128, attn_implementation="eager", eos_token_id=2, pad_token_id=0,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


class ServesTheBase(TransformersEngine):
    """The adapter is never applied (trl 2698, verl 3516)."""

    def generate(self, requests):
        return super().generate([replace(request, adapter=None) for request in requests])


class ServesSomebodyElse(TransformersEngine):
    """Every member gets the weights of the first one."""

    def generate(self, requests):
        first = next(iter(self._published.values()))
        return super().generate([replace(request, adapter=first) for request in requests])


class ServesWhatItLoadedFirst(TransformersEngine):
    """A cache by member name: later versions are taken for the first one (vllm 42125)."""

    def publish(self, adapter):
        first = Path(adapter.folder).with_name("v000000")
        super().publish(replace(adapter, folder=str(first)))


class Scene:
    """Two members, published and served by an engine, and the alarms that were raised."""

    def __init__(self, model, engine, folder: Path) -> None:
        self.learner = Learner(copy.deepcopy(model), lora=CONFIG.lora, learning=CONFIG.learning, max_new_tokens=12)
        self.store = RunStore.create(folder, "run")
        self.state = RunState(step=0, members=[], problems=[], generator=random.Random(0))
        self.publisher = Publisher(self.store, self.learner, engine, probe_ids=(5, 9, 14, 33, 21))
        generator = torch.Generator().manual_seed(1)
        for number, uid in enumerate(("t00", "s00")):
            self.learner.adapters.add(uid, seed=number)
            weights = self.learner.adapters.get_weights(uid)
            self.learner.adapters.set_weights(
                uid, {n: torch.randn(w.shape, generator=generator) * 0.05 for n, w in weights.items()}
            )
            self.state.members.append(Member(uid=uid, role=Role.TEACHER, rating=Rating(25.0, 8.0)))

    def publish(self) -> None:
        for member in self.state.members:
            self.publisher.publish(member, self.state)
        parts = SimpleNamespace(logprob_tolerance=choose_tolerance(CONFIG), store=self.store, notice=lambda text: None)
        for uid, probe in self.publisher.probe(self.state.members).items():
            raise_alarms(parts, 1, uid, probe)

    def update(self, learning_rate: float) -> None:
        for member in self.state.members:
            self.learner.imitate(member.uid, [TokenSequence((5, 9), (7, 8, 2))], learning_rate=learning_rate)
            member.version += 1

    @property
    def alarms(self) -> list[tuple[str, str]]:
        return [(event["event"], event["member"]) for event in self.store.read("events")]


def test_an_honest_engine_raises_no_alarm_over_many_versions(model, tmp_path: Path) -> None:
    scene = Scene(model, TransformersEngine(copy.deepcopy(model)), tmp_path)
    for _ in range(5):
        scene.publish()
        scene.update(learning_rate=1e-6)  # smaller than any that is used
    assert scene.alarms == []


def test_the_base_served_instead_of_a_member_raises_an_alarm(model, tmp_path: Path) -> None:
    scene = Scene(model, ServesTheBase(copy.deepcopy(model)), tmp_path)
    scene.publish()
    assert scene.alarms == [(kind, uid) for uid in ("t00", "s00") for kind in ("logprob_alarm", "twin_alarm")]


def test_another_member_served_raises_an_alarm_for_whom_it_is_wrong(model, tmp_path: Path) -> None:
    scene = Scene(model, ServesSomebodyElse(copy.deepcopy(model)), tmp_path)
    scene.publish()
    assert scene.alarms == [("twin_alarm", "t00"), ("logprob_alarm", "s00"), ("twin_alarm", "s00")]


@pytest.mark.parametrize(
    ("learning_rate", "kinds"), [(0.05, {"logprob_alarm", "stale_alarm"}), (1e-6, {"stale_alarm"})]
)
def test_a_stale_version_raises_an_alarm_also_when_it_differs_by_less_than_the_noise(
    model, tmp_path: Path, learning_rate: float, kinds: set[str]
) -> None:
    scene = Scene(model, ServesWhatItLoadedFirst(copy.deepcopy(model)), tmp_path)
    scene.publish()
    assert scene.alarms == []
    scene.update(learning_rate)
    scene.publish()
    assert {kind for kind, _ in scene.alarms} == kinds
    assert {uid for _, uid in scene.alarms} == {"t00", "s00"}


def test_a_clone_served_for_another_raises_an_alarm_for_both_although_it_is_below_the_noise(model, tmp_path) -> None:
    scene = Scene(model, ServesSomebodyElse(copy.deepcopy(model)), tmp_path)
    weights = scene.learner.adapters.get_weights("t00")
    scene.learner.adapters.set_weights("s00", {name: tensor * (1 + 1e-5) for name, tensor in weights.items()})
    scene.publish()
    assert scene.alarms == [("twin_alarm", "t00"), ("twin_alarm", "s00")]


def test_members_that_are_still_the_base_may_answer_alike(model, tmp_path) -> None:
    """Without a warm-up B is zero in all of them, and A differs."""
    scene = Scene(model, TransformersEngine(copy.deepcopy(model)), tmp_path)
    for uid in ("t00", "s00"):
        weights = scene.learner.adapters.get_weights(uid)
        scene.learner.adapters.set_weights(uid, {n: w * ("lora_A" in n) for n, w in weights.items()})
    scene.publish()
    assert scene.alarms == []


def test_publishing_the_same_weights_again_is_not_stale(model, tmp_path: Path) -> None:
    scene = Scene(model, TransformersEngine(copy.deepcopy(model)), tmp_path)
    scene.publish()
    scene.update(learning_rate=0.0)
    scene.publish()
    assert scene.alarms == []
