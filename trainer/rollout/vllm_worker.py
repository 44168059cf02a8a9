"""The process around vLLM: reads JSON lines from a socket, answers JSON lines. Started by `VllmEngine` only.

Traps kept shut here: adapters are loaded by `add_lora` before any request names them (an error inside `generate`
would kill the engine); requests carry no seed (a seeded request with chunked prefill kills the CPU engine); the
log-probabilities are `processed`, that is, under the temperature that was used.
"""

import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from typing import Any


class Worker:
    """Holds the engine and executes one message at a time."""

    def __init__(self, send: Callable[[dict[str, Any]], None]) -> None:
        self._send = send
        self._llm: Any = None
        self._adapters: dict[int, Any] = {}
        self._num_requests = 0

    def handle(self, message: dict[str, Any]) -> dict[str, Any]:
        """Execute one message and return the last reply to it."""
        operation = message.pop("op")
        methods: dict[str, Callable[..., dict[str, Any] | None]] = {
            "start": self.start,
            "add": self.add,
            "remove": self.remove,
            "generate": self.generate,
            "sleep": self.sleep,
            "wake": self.wake,
        }
        return methods[operation](**message) or {}

    def start(
        self,
        *,
        model: str,
        target_modules: list[str],
        kv_cache_bytes: int,
        threads: int,
        gpu_memory_utilization: float,
        **settings: Any,
    ) -> None:
        """Start vLLM. Settings not named here go to it as they are."""
        import torch
        from vllm import LLM

        if torch.cuda.is_available():
            settings["gpu_memory_utilization"] = gpu_memory_utilization
        else:
            settings["kv_cache_memory_bytes"] = kv_cache_bytes
            settings["block_size"] = 32  # the default of 128 would never reuse a short shared prompt
        self._llm = LLM(
            model=model,
            enable_lora=True,
            max_cpu_loras=2 * settings["max_loras"],
            lora_target_modules=target_modules,
            enforce_eager=not torch.cuda.is_available(),
            logprobs_mode="processed_logprobs",
            trust_remote_code=False,
            disable_log_stats=True,
            **settings,
        )

    def add(self, *, name: str, number: int, folder: str) -> None:
        """Load an adapter; an unreadable one raises here and leaves the engine alive."""
        from vllm.lora.request import LoRARequest

        request = LoRARequest(name, number, folder)
        if not self._llm.llm_engine.add_lora(request):
            raise RuntimeError(f"adapter {name} at {folder} was not accepted")
        self._adapters[number] = request

    def remove(self, *, number: int) -> None:
        """Unload an adapter."""
        self._llm.llm_engine.remove_lora(number)
        self._adapters.pop(number, None)

    def sleep(self) -> None:
        """Move the weights to main memory and drop keys and values; level 2 cannot be woken with LoRA (vllm 39934)."""
        self._llm.sleep(level=1)

    def wake(self) -> None:
        """Undo `sleep`."""
        self._llm.wake_up()

    def generate(self, *, requests: list[dict[str, Any]]) -> None:
        """Sample all requests in one batch; each is answered when its completions are there."""
        engine = self._llm.llm_engine
        indices: dict[str, int] = {}
        for index, request in enumerate(requests):
            adapter = self._adapters[request["adapter"]["number"]] if request["adapter"] else None
            prompt = {"prompt_token_ids": request["prompt_ids"]}
            self._num_requests += 1
            name = str(self._num_requests)
            indices[name] = index
            engine.add_request(name, prompt, _make_params(request), lora_request=adapter)
        while engine.has_unfinished_requests():
            for output in engine.step():
                if output.finished:
                    completions = [_describe(sample) for sample in output.outputs]
                    self._send({"index": indices[output.request_id], "completions": completions})


def _make_params(request: dict[str, Any]) -> Any:
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    return SamplingParams(
        n=request["num_samples"],
        temperature=request["temperature"],
        max_tokens=request["max_tokens"],
        top_p=1.0,
        top_k=0,
        min_p=0.0,
        logprobs=0,
        detokenize=False,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )


def _describe(sample: Any) -> dict[str, Any]:
    token_ids = list(sample.token_ids)
    logprobs = [float(step[token].logprob) for token, step in zip(token_ids, sample.logprobs, strict=True)]
    return {"token_ids": token_ids, "logprobs": logprobs, "finish_reason": sample.finish_reason}


def _watch_parent() -> None:
    """End the whole process group when the trainer is gone, whatever the main thread is doing."""
    parent = os.getppid()

    def watch() -> None:
        pidfd = os.pidfd_open(parent)
        import select

        select.select([pidfd], [], [])
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


def main() -> None:
    """Serve messages until the socket ends."""
    _watch_parent()
    sock = socket.socket(fileno=int(sys.argv[1]))
    sock.set_inheritable(False)

    def send(reply: dict[str, Any]) -> None:
        sock.sendall(json.dumps(reply).encode() + b"\n")

    reader, worker = sock.makefile("rb"), Worker(send)
    for line in reader:
        try:
            reply = worker.handle(json.loads(line))
        except Exception as error:
            # Only loading an adapter may fail and leave vLLM usable.
            usable = (
                line.startswith((b'{"op": "add"', b'{"op": "remove"')) and type(error).__name__ != "EngineDeadError"
            )
            kind = "error" if usable else "fatal"
            reply = {kind: f"{type(error).__name__}: {error}"[:2000]}
        send(reply)


if __name__ == "__main__":
    main()
