"""Evaluations on disk: records, folder, runner, summary, scores."""
