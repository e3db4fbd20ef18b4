"""Evaluation results on disk: records, folder, runner, summary and scores."""
