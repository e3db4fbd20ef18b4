"""Analysis of model outputs: replay, differences, line checks and certificates."""
