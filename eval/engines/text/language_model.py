"""Hugging Face language models on disk: metadata, tokenizer and prompt encoding."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from data.model_format.facts import FACTS_FILE
from data.runtime.documents import read_json
from eval.engines.text.engine import Prompt, PromptForm
from eval.network.model_folder import weight_files

CONFIG_FILE = "config.json"
_FILES = ("*.json", "*.safetensors", "*.model", "*.txt", "*.jinja")
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "tokenizer_config.json")
_FLOATS = ("F64", "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2")
_BLOCK_BYTES = 1 << 22


@dataclass(frozen=True, kw_only=True, eq=False)
class LanguageModel:
    """A folder with the weights and the tokenizer of a model; no slots, for `cached_property`."""

    path: Path
    """The folder."""
    name: str
    """Name on the hub, or of the folder."""
    family: str
    """`model_type` of its configuration."""
    weights: tuple[Path, ...]
    """Files of the weights."""

    @classmethod
    def open(cls, model: str) -> LanguageModel:
        """Open a folder or a model of the hub, which is downloaded if needed.

        Raises:
            ValueError: There are no safetensors weights or no tokenizer, or the config is damaged.
            OSError: The model does not exist.
        """
        path = Path(model)
        if not path.is_dir():
            path = _download(model)
        config = read_json(path / CONFIG_FILE)
        if not any(path.glob("*.safetensors")):
            raise ValueError(f"{model}: no .safetensors files; other formats are not supported")
        weights = tuple(weight_files(path))
        if not any((path / name).exists() for name in _TOKENIZER_FILES):
            raise ValueError(
                f"{model}: no tokenizer for the text protocol, and no {FACTS_FILE} for decoding "
                "token ids; see docs/your-model.md"
            )
        return cls(
            path=path,
            name=model if not Path(model).is_dir() else path.resolve().name,
            family=str(config.get("model_type", "unknown")),
            weights=weights,
        )

    @cached_property
    def num_parameters(self) -> int:
        """Number of floating-point weights.

        Raises:
            ValueError: A file is damaged.
        """
        return sum(map(_count_parameters, self.weights))

    @cached_property
    def digest(self) -> str:
        """Hex SHA-256 of the names and bytes of the weight files."""
        return _digest(self.weights)


class PromptEncoder:
    """Encodes prompts with the tokenizer of a model.

    Attributes:
        tokenizer: Tokenizer of transformers.
        form: `chat` or `plain`.
    """

    def __init__(self, model: LanguageModel, form: PromptForm) -> None:
        """Load the tokenizer.

        Raises:
            ValueError: The tokenizer is malformed; or `form` is `chat`, but it has no chat
                template.
        """
        from transformers import AutoTokenizer

        from data.model_format.weights import clear_read_errors

        with clear_read_errors(model.path):
            self.tokenizer: Any = AutoTokenizer.from_pretrained(model.path)
        has_template = getattr(self.tokenizer, "chat_template", None) is not None
        if form == "chat" and not has_template:
            raise ValueError(f"form: got chat, the tokenizer of {model.name} has no chat template")
        self.form: PromptForm = "chat" if has_template and form != "plain" else "plain"

    def encode(self, prompt: Prompt) -> list[int]:
        """Return the token ids of a prompt."""
        if self.form == "chat":
            text = self.tokenizer.apply_chat_template(
                prompt.protocol.messages(prompt.givens), tokenize=False, add_generation_prompt=True
            )
            # The template adds the special tokens itself.
            ids = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        else:
            ids = self.tokenizer(prompt.protocol.plain_prompt(prompt.givens))["input_ids"]
        return list(ids)

    def stop_strings(self, prompt: Prompt) -> list[str]:
        """Return the strings that end a reply."""
        return [prompt.protocol.plain_stop] if self.form == "plain" else []


def _download(name: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, allow_patterns=list(_FILES)))
    except (HFValidationError, LocalEntryNotFoundError, HfHubHTTPError) as error:
        reason = " ".join(str(error).split())[:200]
        raise FileNotFoundError(
            f"model: {name}: no such folder, and not on the hub: {reason}"
        ) from None


def _digest(files: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for path in files:
        digest.update(path.name.encode())
        with path.open("rb") as file:
            while block := file.read(_BLOCK_BYTES):
                digest.update(block)
    return digest.hexdigest()


def _count_parameters(path: Path) -> int:
    """Count the floating-point weights of a safetensors file from its header."""
    try:
        with safe_open(path, framework="np") as file:
            tensors = [file.get_slice(name) for name in file.keys()]  # noqa: SIM118 - no mapping
            return sum(math.prod(t.get_shape()) for t in tensors if t.get_dtype() in _FLOATS)
    except SafetensorError as error:
        raise ValueError(f"{path}: damaged weights: {error}") from error
