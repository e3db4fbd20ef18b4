"""HTML page that replays the search of one puzzle: board, decision stack and tokens."""
