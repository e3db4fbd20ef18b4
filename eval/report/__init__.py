"""Reports of evaluation folders: leaderboard, plots, paired comparisons and an HTML page."""
