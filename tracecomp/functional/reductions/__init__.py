"""Functions that reduce or rank elements: sums, statistics, sorting."""
