"""What everything stands on: settings, errors, locks, dumps."""
