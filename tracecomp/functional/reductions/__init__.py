"""Functions that make fewer elements, or rank them: sums, statistics, sorting."""
