"""Base class of the text models that run in this process."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Self

from eval.engines.contract import EngineStats
from eval.engines.options import EngineOptions, with_bf16_weights
from eval.engines.text.engine import PromptForm, ReplySampling
from eval.engines.text.language_model import LanguageModel, PromptEncoder


class LocalTextModel(ABC):
    """A language model that is loaded from a folder.

    `bf16` means bf16 weights and activations.
    """

    bf16_rotary: ClassVar[str]
    """Format of the rotary embeddings in bf16."""

    def __init__(
        self,
        model: LanguageModel,
        options: EngineOptions,
        *,
        sampling: ReplySampling,
        form: PromptForm,
    ) -> None:
        """Load tokenizer and model.

        Args:
            model: The model.
            options: Options of the engine.
            sampling: Sampling parameters.
            form: Form of the prompts.
        """
        self.precision = with_bf16_weights(options.precision, rotary=self.bf16_rotary)
        self.dtype = "bfloat16" if options.precision.activations == "bf16" else "float32"
        self.stats = EngineStats()
        self.device = str(options.local_device)
        self._sampling = sampling
        self._encoder = PromptEncoder(model, form)
        self.form = self._encoder.form
        self._load_model(model, options)

    @classmethod
    def load(
        cls, model: str, options: EngineOptions, *, sampling: ReplySampling, form: PromptForm
    ) -> Self:
        """See `eval.engines.factory`."""
        return cls(LanguageModel.open(model), options, sampling=sampling, form=form)

    def close(self) -> None:  # noqa: B027 - optional
        """See `eval.engines.text.engine.TextModel`."""

    @abstractmethod
    def _load_model(self, model: LanguageModel, options: EngineOptions) -> None:
        """Load the model; the attributes of the base class are set."""
