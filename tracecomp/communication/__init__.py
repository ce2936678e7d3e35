"""Processes that work together, on arrays: transports, messages, groups, stores, and sums in one fixed order."""
