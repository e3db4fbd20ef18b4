"""One puzzle's search as a page: board, decision stack and tokens, step by step."""
