"""Communication of arrays between processes: transports, messages, groups, stores, and sums in one fixed order."""
