"""The lowest layer: settings, errors, locks, dumps."""
