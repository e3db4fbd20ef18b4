"""Evaluate models: sampling, engines that agree token for token, results, reports."""
