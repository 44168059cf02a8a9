"""What every engine promises, with a tiny random model in float32: adapters, base and learner agree in one batch."""

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from trainer.config import LearningConfig, LoraConfig
from trainer.learning.learner import Learner
from trainer.learning.logprobs import TokenSequence
from trainer.rollout.engine import (
    AdapterVersion,
    Engine,
    EngineDiedError,
    EngineError,
    EngineSettings,
    GenerationRequest,
    VllmEngine,
    generate_all,
)
from trainer.rollout.transformers_engine import TransformersEngine

pytestmark = pytest.mark.timeout(600)
LORA = LoraConfig(rank=8, alpha=16)
PROMPTS = [(1, 5, 9, 12), (7, 8), (20, 21, 22, 23, 24)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[object, str]:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=256, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, head_dim=32, max_position_embeddings=256, attn_implementation="eager",
        bos_token_id=1, eos_token_id=2, pad_token_id=0,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    folder = tmp_path_factory.mktemp("model")
    model.save_pretrained(folder)
    _save_tokenizer(folder)
    return model, str(folder)


def _save_tokenizer(folder: Path) -> None:
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    words = {"<pad>": 0, "<s>": 1, "</s>": 2, **{f"w{i}": i for i in range(3, 256)}}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(words, unk_token="<pad>")),
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
    )
    tokenizer.save_pretrained(folder)


@pytest.fixture(scope="module")
def learner(model) -> Learner:
    learner = Learner(model[0], lora=LORA, learning=LearningConfig(), max_new_tokens=12)
    generator = torch.Generator().manual_seed(1)
    for uid in ("t00", "t01"):
        learner.adapters.add(uid, seed=3)
        weights = learner.adapters.get_weights(uid)
        learner.adapters.set_weights(
            uid, {n: torch.randn(w.shape, generator=generator) * 0.3 for n, w in weights.items()}
        )
    return learner


@pytest.fixture(scope="module", params=[pytest.param("vllm", marks=pytest.mark.vllm), "transformers"])
def engine(request, model, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    if request.param == "transformers":
        yield TransformersEngine(LlamaForCausalLM.from_pretrained(model[1]))
        return
    settings = EngineSettings(
        model=model[1], max_loras=9, max_lora_rank=8, target_modules=LORA.target_modules, max_model_len=128,
        max_num_seqs=16, max_num_batched_tokens=64, kv_cache_bytes=64 << 20, dtype="float32",
        gpu_memory_utilization=0.3, seed=0, threads=os.cpu_count(),
    )  # fmt: skip
    engine = VllmEngine(settings, log_path=tmp_path_factory.mktemp("log") / "vllm.log")
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def adapters(engine: Engine, learner: Learner, tmp_path_factory: pytest.TempPathFactory) -> dict[str, AdapterVersion]:
    folder = tmp_path_factory.mktemp("adapters")
    found = {}
    for number, uid in enumerate(("t00", "t01"), start=1):
        learner.adapters.save(uid, folder / uid)
        found[uid] = AdapterVersion(f"{uid}@0", number, str(folder / uid))
        engine.publish(found[uid])
    return found


@pytest.fixture(scope="module")
def fillers(engine: Engine, adapters: dict[str, AdapterVersion]) -> list[AdapterVersion]:
    """As many further adapters as vLLM has slots left: the last slot is not empty, as it usually is."""
    found = [AdapterVersion(f"f{n}@0", n, adapters["t01"].folder) for n in range(11, 18)]
    for adapter in found:
        engine.publish(adapter)
    return found


def ask(prompt: tuple[int, ...], adapter: AdapterVersion | None, count: int = 2) -> GenerationRequest:
    return GenerationRequest(prompt_ids=prompt, adapter=adapter, num_samples=count, max_tokens=12, temperature=0.8)


def test_a_mixed_batch_gives_everyone_its_own_log_probabilities(engine, learner, model, adapters, fillers) -> None:
    """Base and two adapters in one batch: log-probs agree with the learner to 1e-3, and with no other adapter.

    vLLM's own CPU products would give the base the weights of the last slot (vllm pull request 48421).
    """
    check_mixed_batch(engine, learner, adapters)


def check_mixed_batch(engine: Engine, learner: Learner, adapters: dict[str, AdapterVersion]) -> None:
    speakers = [None, adapters["t00"], adapters["t01"]] * len(PROMPTS)
    requests = [ask(prompt, adapter) for adapter, prompt in zip(speakers, PROMPTS * 3, strict=True)]
    for request, completions in zip(requests, generate_all(engine, requests), strict=True):
        for completion in completions:
            sequence = TokenSequence(request.prompt_ids, completion.token_ids)
            theirs = torch.tensor(completion.logprobs)
            expected = {uid: learner.compute_logprobs(uid, [sequence], temperature=0.8)[0] for uid in adapters}
            expected["base"] = learner.compute_logprobs(None, [sequence], temperature=0.8)[0]
            own = request.adapter.name.split("@")[0] if request.adapter else "base"
            gaps = {uid: float((values - theirs).abs().max()) for uid, values in expected.items()}
            assert gaps[own] < 1e-3
            assert all(gap > 0.02 for uid, gap in gaps.items() if uid != own), gaps


def test_every_request_is_answered_once_with_its_number_of_samples(engine, adapters) -> None:
    requests = [ask(PROMPTS[i % 3], adapters["t00"] if i % 2 else None, count=1 + i) for i in range(5)]
    found = list(engine.generate(requests))
    assert sorted(index for index, _ in found) == [0, 1, 2, 3, 4]
    assert all(len(completions) == 1 + index for index, completions in found)
    assert list(engine.generate([])) == []


def test_a_number_in_use_is_refused(engine, adapters) -> None:
    with pytest.raises(EngineError, match="in use"):
        engine.publish(AdapterVersion("t07@0", adapters["t00"].number, adapters["t00"].folder))


def test_greedy_sampling_takes_the_likeliest_token(engine, learner, model) -> None:
    request = GenerationRequest(prompt_ids=PROMPTS[0], adapter=None, num_samples=1, max_tokens=1, temperature=0.0)
    (completion,) = generate_all(engine, [request])[0]
    with learner.adapters.base():
        likeliest = int(model[0](torch.tensor([PROMPTS[0]])).logits[0, -1].argmax())
    assert completion.token_ids == (likeliest,)


def test_the_plain_engine_repeats_itself_whatever_is_in_the_batch(model) -> None:
    engine = TransformersEngine(LlamaForCausalLM.from_pretrained(model[1]))
    one, other = (replace(ask(PROMPTS[0], None, 3), seed=seed) for seed in (1, 2))
    alone = generate_all(engine, [one])[0]
    assert generate_all(engine, [other, one])[1] == alone
    assert generate_all(engine, [other])[0] != alone


def test_completions_end_with_the_sampled_end_token_or_at_the_limit(engine, adapters) -> None:
    for completion in generate_all(engine, [ask(PROMPTS[0], adapters["t00"], 8)])[0]:
        assert len(completion.token_ids) == len(completion.logprobs)
        assert (completion.finish_reason == "stop") == (completion.token_ids[-1] == 2)
        assert completion.finish_reason == "stop" or len(completion.token_ids) == 12


def test_a_bad_adapter_is_refused_and_the_others_are_served_on(engine, adapters, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="add"):
        engine.publish(AdapterVersion("t09@0", 99, str(tmp_path / "missing")))
    assert generate_all(engine, [ask(PROMPTS[1], adapters["t01"])])
    with pytest.raises(EngineError, match="not published"):
        generate_all(engine, [ask(PROMPTS[1], AdapterVersion("t09@0", 99, "x"))])


def test_a_new_version_is_served_and_the_old_one_is_not(engine, learner, adapters, tmp_path: Path) -> None:
    if "t02" not in learner.adapters:
        learner.adapters.add("t02", seed=5)
    learner.adapters.set_weights("t02", {n: w * 2 for n, w in learner.adapters.get_weights("t00").items()})
    learner.adapters.save("t02", tmp_path / "v1")
    fresh = AdapterVersion("t00@1", 3, str(tmp_path / "v1"))
    engine.publish(fresh)
    engine.retire(adapters["t00"])
    completion = generate_all(engine, [ask(PROMPTS[0], fresh, 1)])[0][0]
    sequence = TokenSequence(PROMPTS[0], completion.token_ids)
    ours = learner.compute_logprobs("t02", [sequence], temperature=0.8)[0]
    assert float((ours - torch.tensor(completion.logprobs)).abs().max()) < 1e-3
    with pytest.raises(EngineError, match="not published"):
        generate_all(engine, [ask(PROMPTS[0], adapters["t00"])])


def measure_group(engine: VllmEngine) -> float:
    """Resident memory of all processes of the engine, MiB."""
    group = engine._process.pid
    return sum(p.memory_info().rss for p in psutil.process_iter() if os.getpgid(p.pid) == group) / 2**20


def test_memory_is_flat_over_200_publications_of_8_adapters(engine, learner, adapters, tmp_path: Path) -> None:
    """1,600 versions; of each member the old one leaves when the new one is there, and everyone answers on the way."""
    rounds = 200 if isinstance(engine, VllmEngine) else 3
    for uid in adapters:
        learner.adapters.save(uid, tmp_path / uid)
    served: dict[int, AdapterVersion] = {}
    sizes: list[float] = []
    for number in range(rounds):
        for member in range(8):
            fresh = AdapterVersion(f"p{member}@{number}", 1000 + 8 * number + member, str(tmp_path / f"t0{number % 2}"))
            engine.publish(fresh)
            if member in served:
                engine.retire(served[member])
            served[member] = fresh
        if number % 20 == 0:
            generate_all(engine, [ask(PROMPTS[0], adapter, 1) for adapter in served.values()])
        if isinstance(engine, VllmEngine):
            sizes.append(measure_group(engine))
    for adapter in served.values():
        engine.retire(adapter)
    if sizes:
        early, late = max(sizes[20:60]), max(sizes[160:])
        print(f"resident memory of the engine: {early:.1f} MiB, later {late:.1f} MiB")
        # An adapter takes 62 KiB here (2 x 992 x rank 8 x 4 bytes): kept copies would be 70 MiB more.
        assert late < early + 16, sizes[::20]


def test_the_products_per_adapter_are_in_use(engine) -> None:
    if isinstance(engine, VllmEngine):
        assert "LoRA products of populora are in use" in engine._log_path.read_text()


def test_a_killed_worker_is_an_error_that_names_its_log_leaves_nothing_and_can_be_restarted(
    engine, learner, adapters, tmp_path: Path
) -> None:
    """Last on purpose: it takes its time. Afterwards everyone that was published is served again."""
    if not isinstance(engine, VllmEngine):
        return  # it has no process of its own
    group = engine._process.pid
    members = [p.pid for p in psutil.process_iter() if os.getpgid(p.pid) == group]
    assert len(members) >= 2
    os.kill(group, signal.SIGKILL)
    with pytest.raises(EngineDiedError, match=r"vllm\.log"):
        generate_all(engine, [ask(PROMPTS[0], adapters["t01"])])
    deadline = time.monotonic() + 10
    while any(psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie" for pid in members):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    learner.adapters.save("t00", tmp_path / "t00")
    engine.restart()
    again = AdapterVersion("t00@9", 900, str(tmp_path / "t00"))  # its version 0 was retired above
    engine.publish(again)
    check_mixed_batch(engine, learner, {"t00": again, "t01": adapters["t01"]})
