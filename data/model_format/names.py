"""Names of weights that depend on the version of transformers."""

OUTPUT_MATRIX = "lm_head.weight"
"""Name of the output matrix, which is absent with tied embeddings."""
NEOX_OUTPUT_MATRIX = "embed_out.weight"
"""Name of the output matrix of gpt_neox in files; also in memory in older versions of
transformers."""


def canonical_name(name: str) -> str:
    """Return the name of a weight in memory in current versions of transformers."""
    return OUTPUT_MATRIX if name == NEOX_OUTPUT_MATRIX else name
