"""Reports from evaluation folders alone: leaderboard, plots, paired comparisons, one HTML page."""
