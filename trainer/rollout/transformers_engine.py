"""A plain engine on transformers and PEFT: slow, in this process, and the same bits every time.

For tests, for tiny models, and where a run must be repeatable: what a request samples depends on its seed, prompt and
adapter only, never on what else is in the batch.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from peft import PeftModel
from transformers import GenerationConfig

from trainer.rollout.engine import AdapterVersion, Completion, EngineError, GenerationRequest


class TransformersEngine:
    """See `Engine`.

    Args:
        model: causal language model of transformers; this engine owns it.
    """

    def __init__(self, model: Any) -> None:
        self._base = model.requires_grad_(False).eval()
        ends = model.generation_config.eos_token_id
        self._ends = {ends} if isinstance(ends, int) else set(ends or ())
        # Nothing a model brings along (penalties, truncation) may shape the distribution.
        model.generation_config = GenerationConfig(eos_token_id=list(self._ends) or None, pad_token_id=0)
        self._peft: PeftModel | None = None
        self._published: dict[int, AdapterVersion] = {}

    def publish(self, adapter: AdapterVersion) -> None:
        """See `Engine.publish`."""
        if adapter.number in self._published:
            raise EngineError(f"adapter number {adapter.number} is in use by {self._published[adapter.number].name}")
        name = str(adapter.number)
        try:
            if self._peft is None:
                self._peft = PeftModel.from_pretrained(self._base, adapter.folder, adapter_name=name)
            else:
                self._peft.load_adapter(adapter.folder, adapter_name=name)
        except Exception as error:  # many kinds: missing or damaged files, other shapes
            raise EngineError(f"cannot add {adapter.name} from {adapter.folder}: {error}") from error
        self._published[adapter.number] = adapter

    def retire(self, adapter: AdapterVersion) -> None:
        """See `Engine.retire`."""
        if self._published.pop(adapter.number, None) is None or self._peft is None:
            return
        if self._published:
            self._peft.set_adapter(str(next(iter(self._published))))
            self._peft.delete_adapter(str(adapter.number))
        else:  # PEFT does not let the last one go
            self._base = self._peft.unload()
            self._peft = None

    def generate(self, requests: Sequence[GenerationRequest]) -> Iterator[tuple[int, list[Completion]]]:
        """See `Engine.generate`; one request after the other."""
        for request in requests:
            if request.adapter is not None and request.adapter.number not in self._published:
                raise EngineError(f"adapter {request.adapter.name} is not published")
        for index, request in enumerate(requests):
            yield index, self._sample(request)

    def restart(self) -> None:
        """See `Engine.restart`; it has no process that could die."""

    def sleep(self) -> None:
        """See `Engine.sleep`; it keeps its weights."""

    def wake(self) -> None:
        """See `Engine.wake`."""

    def close(self) -> None:
        """See `Engine.close`."""
        self._published.clear()

    def _sample(self, request: GenerationRequest) -> list[Completion]:
        prompt_BL = torch.tensor([request.prompt_ids] * request.num_samples, device=self._base.device)
        greedy = request.temperature == 0
        with self._select(request.adapter), torch.random.fork_rng(), torch.no_grad():
            torch.manual_seed(request.seed)
            found = self._base.generate(
                prompt_BL,
                attention_mask=torch.ones_like(prompt_BL),
                max_new_tokens=request.max_tokens,
                do_sample=not greedy,
                **({} if greedy else {"temperature": request.temperature, "top_k": 0, "top_p": 1.0}),
                output_scores=True,
                return_dict_in_generate=True,
            )
        # Scores are the logits after the temperature, [T][B, V].
        logprobs_BTV = torch.stack(found.scores, dim=1).float().log_softmax(-1)
        tokens_BT = found.sequences[:, prompt_BL.shape[1] :]
        logprobs_BT = logprobs_BTV.gather(2, tokens_BT[..., None])[..., 0]
        return [
            self._cut(tokens_T, logprobs_T)
            for tokens_T, logprobs_T in zip(tokens_BT.tolist(), logprobs_BT.tolist(), strict=True)
        ]

    def _cut(self, tokens_T: list[int], logprobs_T: list[float]) -> Completion:
        """Leave out what follows the first end token."""
        for position, token in enumerate(tokens_T):
            if token in self._ends:
                return Completion(tuple(tokens_T[: position + 1]), tuple(logprobs_T[: position + 1]), "stop")
        return Completion(tuple(tokens_T), tuple(logprobs_T), "length")

    def _select(self, adapter: AdapterVersion | None) -> AbstractContextManager[Any]:
        if adapter is not None:
            assert self._peft is not None
            self._peft.set_adapter(str(adapter.number))
            return nullcontext()
        return self._peft.disable_adapter() if self._peft is not None else nullcontext()
