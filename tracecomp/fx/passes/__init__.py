"""Passes over ``fx`` graphs."""
