"""Transfer of the embeddings of a model to another board."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor
from transformers import PreTrainedModel

from solver.vocabulary import NUM_SPECIALS, Vocabulary


def transferred_state(
    source: PreTrainedModel, *, source_vocabulary: Vocabulary, vocabulary: Vocabulary, seed: int
) -> dict[str, Tensor]:
    """Return the state dict of a model with its embeddings transferred to another vocabulary.

    Args:
        source: Model of `source_vocabulary`.
        source_vocabulary: Vocabulary of the model.
        vocabulary: Vocabulary of the result.
        seed: Seed of the rows of tokens that `source_vocabulary` does not have.
    """
    state = source.state_dict()
    modules = (source.get_input_embeddings(), source.get_output_embeddings())
    embeddings = {id(module.weight): cast("Tensor", module.weight) for module in modules}
    # One generator for all embeddings, and one result for tied ones.
    generator = torch.Generator().manual_seed(seed)
    transferred = {
        key: transfer_rows(
            weight.detach(),
            source_vocabulary=source_vocabulary,
            vocabulary=vocabulary,
            generator=generator,
        )
        for key, weight in embeddings.items()
    }
    for name, parameter in source.named_parameters(remove_duplicate=False):
        if id(parameter) in transferred:
            state[name] = transferred[id(parameter)]
    return state


def transfer_rows(
    weight: Tensor,
    *,
    source_vocabulary: Vocabulary,
    vocabulary: Vocabulary,
    generator: torch.Generator,
) -> Tensor:
    """Transfer the rows of an embedding matrix to another vocabulary.

    Rows of tokens with the same text are copied. Other coordinates and digits are drawn from a
    normal distribution with the mean and standard deviation of each column over the source's
    coordinates, or digits.

    Args:
        weight: Embedding matrix, of shape (source_vocabulary.size, d).
        source_vocabulary: Vocabulary of the rows of `weight`.
        vocabulary: Vocabulary of the rows of the result.
        generator: Generator of the new rows.

    Returns:
        Matrix of shape (vocabulary.size, d).
    """
    rows = {text: weight[i] for i, text in enumerate(source_vocabulary.tokens)}
    first = source_vocabulary.first_digit
    coordinates, digits = weight[NUM_SPECIALS:first], weight[first:]
    drawn = torch.randn(vocabulary.size, weight.shape[1], generator=generator)
    result = torch.empty_like(drawn, dtype=weight.dtype)
    for i, text in enumerate(vocabulary.tokens):
        kind = coordinates if i < vocabulary.first_digit else digits
        result[i] = rows.get(text, kind.mean(0) + kind.std(0) * drawn[i])
    return result
