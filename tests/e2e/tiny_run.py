"""A tiny random model with a tokenizer of bytes, and runs of it in processes that start quickly and can be killed."""

import multiprocessing
import os
import sys
from multiprocessing.process import BaseProcess
from pathlib import Path

import torch

SETTINGS = [
    "rollout.engine=transformers", "model.learner_dtype=float32", "model.sampler_dtype=float32", "run.name=tiny",
    "run.threads=1", "run.check_memory=false", "lora.rank=4", "lora.alpha=8", "rollout.max_prompt_tokens=1200",
    "rollout.max_new_tokens=16", "rewards.overlong_margin_tokens=15", "tasks.prompts_per_teacher=1",
    "tasks.proposals_per_prompt=4", "tasks.problems_per_student=2", "tasks.attempts_per_problem=4",
    "warmup.steps=2", "warmup.batch_size=2", "warmup.measure_proposals=0", "evolution.every=2",
    "evolution.fraction=0.5", "evolution.parents=population", "learning.learning_rate=0.001",
    "learning.micro_batch_tokens=4096",
]  # fmt: skip


def save_model(folder: Path) -> Path:
    """Write the model. At each token it ends the completion with about one tenth, and the length decides the reward."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    words = {word: number for number, word in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()), start=3)}
    tokenizer = Tokenizer(models.BPE({"<pad>": 0, "<s>": 1, "</s>": 2, **words}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", pad_token="<pad>"
    ).save_pretrained(folder)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=259, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=2048, bos_token_id=1, eos_token_id=2, pad_token_id=0,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    with torch.no_grad():  # one hidden value is the same everywhere, and the end token likes it
        model.model.embed_tokens.weight[:, 0] = 0.05
        model.lm_head.weight[2, 0] = 1.5
    model.save_pretrained(folder)
    return folder


_CONTEXT = multiprocessing.get_context("forkserver")
# Imports are the slow part of a start: they are made once, in the process from which all runs are forked.
_CONTEXT.set_forkserver_preload(["trainer.startup", "trainer.console", "torch.utils.tensorboard", __name__])


def start_run(log: Path, arguments: list[str]) -> BaseProcess:
    """Start `python -m trainer.run` with its output appended to a file."""
    process = _CONTEXT.Process(target=_run, args=(str(log), arguments))
    process.start()
    return process


def _run(log: str, arguments: list[str]) -> None:
    from trainer.run import main

    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for descriptor in (1, 2):
        os.dup2(out, descriptor)
    sys.exit(main(arguments))
