"""The sampling engine: what it promises, and vLLM in a process of its own.

vLLM patches torch threads, preloads libraries and logs to stdout, so it never runs inside the trainer. The worker
(`vllm_worker.py`) is a child process; both sides exchange JSON lines over a socket. If the trainer dies, the worker
notices and ends its whole process group.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

_START_TIMEOUT_S = 600.0
_CALL_TIMEOUT_S = 1800.0
_SEED_STRIDE = 1_000_003  # between starts of the engine; between steps it is 1


class EngineError(RuntimeError):
    """The engine did not start or refused an adapter."""


class EngineDiedError(EngineError):
    """The engine's process is gone or hangs; the message holds the end of its log. `Engine.restart` may help."""


@dataclass(frozen=True, slots=True)
class AdapterVersion:
    """One version of one member's adapter. The triple (name, number, folder) is never reused by one engine."""

    name: str
    """`uid@version`."""
    number: int
    """Positive integer, unique in the run."""
    folder: str
    """Folder in PEFT format."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRequest:
    """One prompt to be completed `num_samples` times."""

    prompt_ids: tuple[int, ...]
    adapter: AdapterVersion | None
    """None is the untouched base model."""
    num_samples: int
    max_tokens: int
    temperature: float
    """0 is greedy. Nothing else shapes the distribution, so that the learner can compute the same one."""
    seed: int = 0
    """What a deterministic engine samples from. vLLM ignores it: with chunked prefill seeds kill it on a CPU."""


@dataclass(frozen=True, slots=True)
class Completion:
    """One sampled completion; tokens and log-probabilities exactly as sampled, the end token included."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    """Of each sampled token under the temperature used."""
    finish_reason: str
    """`stop` or `length`."""


class Engine(Protocol):
    """Samples completions from the base model and from published adapters, mixed in one batch."""

    def publish(self, adapter: AdapterVersion) -> None:
        """Load an adapter version. Raises EngineError and keeps serving the others if it cannot be loaded."""
        ...

    def retire(self, adapter: AdapterVersion) -> None:
        """Unload an adapter version that no request uses any more."""
        ...

    def generate(self, requests: Sequence[GenerationRequest]) -> Iterator[tuple[int, list[Completion]]]:
        """Sample; yields (index of the request, its completions) as requests finish, in any order.

        To be consumed to its end before anything else is asked. Raises EngineError, EngineDiedError.
        """
        ...

    def restart(self) -> None:
        """Start again after EngineDiedError, with every published adapter."""
        ...

    def sleep(self) -> None:
        """Give memory back until `wake`; nothing may be asked meanwhile."""
        ...

    def wake(self) -> None:
        """Be ready again, with every published adapter."""
        ...

    def close(self) -> None:
        """End the engine and all its processes."""
        ...


def generate_all(engine: Engine, requests: Sequence[GenerationRequest]) -> list[list[Completion]]:
    """Sample and return the completions of every request, in order."""
    found = dict(engine.generate(requests))
    return [found[index] for index in range(len(requests))]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """What the vLLM worker is started with."""

    model: str
    max_loras: int
    """Adapter slots; the last one must stay empty (see `TrainerConfig.max_loras`)."""
    max_lora_rank: int
    target_modules: tuple[str, ...]
    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    kv_cache_bytes: int
    dtype: str
    gpu_memory_utilization: float
    seed: int
    threads: int
    enable_sleep_mode: bool = False
    """Needs a GPU."""


class VllmEngine:
    """Implements `Engine` with a vLLM worker process."""

    def __init__(self, settings: EngineSettings, *, log_path: Path) -> None:
        self._settings = settings
        self._log_path = log_path
        self._published: dict[int, AdapterVersion] = {}
        self._start()

    def publish(self, adapter: AdapterVersion) -> None:
        """See `Engine.publish`."""
        if adapter.number in self._published:
            raise EngineError(f"adapter number {adapter.number} is in use by {self._published[adapter.number].name}")
        self._call({"op": "add", **asdict(adapter)})
        self._published[adapter.number] = adapter

    def retire(self, adapter: AdapterVersion) -> None:
        """See `Engine.retire`."""
        if self._published.pop(adapter.number, None) is not None:  # first: a restart must not bring it back
            self._call({"op": "remove", "number": adapter.number})

    def generate(self, requests: Sequence[GenerationRequest]) -> Iterator[tuple[int, list[Completion]]]:
        """See `Engine.generate`."""
        for request in requests:
            if request.adapter is not None and request.adapter.number not in self._published:
                raise EngineError(f"adapter {request.adapter.name} is not published")
        self._send({"op": "generate", "requests": [asdict(request) for request in requests]})
        for _ in requests:
            reply = self._receive("generate")
            yield reply["index"], [_read_completion(completion) for completion in reply["completions"]]
        self._receive("generate")

    def restart(self) -> None:
        """See `Engine.restart`. It samples another stream than before."""
        self.close()
        self._settings = replace(self._settings, seed=self._settings.seed + _SEED_STRIDE)
        self._start()
        for adapter in self._published.values():
            self._call({"op": "add", **asdict(adapter)})

    def sleep(self) -> None:
        """See `Engine.sleep`."""
        self._call({"op": "sleep"})

    def wake(self) -> None:
        """See `Engine.wake`. Adapters are loaded anew: vLLM has lost them before without an error (vllm 53888)."""
        self._call({"op": "wake"})
        for adapter in self._published.values():
            self._call({"op": "remove", "number": adapter.number})
            self._call({"op": "add", **asdict(adapter)})

    def close(self) -> None:
        """See `Engine.close`."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # the worker ends at the end of its input
        self._reader.close()
        self._socket.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=10)
        self._kill_group()
        self._process.wait()

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        self._socket = ours
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "trainer.rollout.vllm_worker", str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, **make_environment(self._settings.threads)},
            )
        theirs.close()
        self._reader = ours.makefile("rb")
        self._call({"op": "start", **asdict(self._settings)}, timeout_s=_START_TIMEOUT_S)

    def _call(self, message: dict[str, Any], *, timeout_s: float = _CALL_TIMEOUT_S) -> dict[str, Any]:
        self._send(message)
        return self._receive(message["op"], timeout_s=timeout_s)

    def _send(self, message: dict[str, Any]) -> None:
        try:
            self._socket.sendall(json.dumps(message).encode() + b"\n")
        except OSError as error:
            raise self._explain(f"vLLM did not take {message['op']}: {error}") from error

    def _receive(self, operation: str, *, timeout_s: float = _CALL_TIMEOUT_S) -> dict[str, Any]:
        self._socket.settimeout(timeout_s)
        try:
            line = self._reader.readline()
        except OSError as error:
            raise self._explain(f"vLLM did not answer {operation}: {error}") from error
        if not line.endswith(b"\n"):  # nothing, or torn in the middle
            raise self._explain(f"vLLM died during {operation}")
        reply: dict[str, Any] = json.loads(line)
        if "error" in reply:
            raise EngineError(f"vLLM refused {operation}: {reply['error']}")
        if "fatal" in reply:
            raise self._explain(f"vLLM failed in {operation}: {reply['fatal']}")
        return reply

    def _explain(self, text: str) -> EngineDiedError:
        self._kill_group()
        time.sleep(0.2)
        tail = self._log_path.read_text(errors="replace").splitlines()[-15:]
        return EngineDiedError("\n".join([text, f"end of {self._log_path}:", *tail]))

    def _kill_group(self) -> None:
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def _read_completion(entry: dict[str, Any]) -> Completion:
    return Completion(tuple(entry["token_ids"]), tuple(entry["logprobs"]), entry["finish_reason"])


def make_environment(threads: int) -> dict[str, str]:
    """Environment variables that vLLM needs at its start."""
    return {
        "VLLM_LOGGING_STREAM": "ext://sys.stderr",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # `auto` keeps one thread per physical core
        "OMP_NUM_THREADS": str(threads),
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
    }
