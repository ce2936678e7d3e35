"""Schedules of contractions: register tiles, packing, k-blocking."""
