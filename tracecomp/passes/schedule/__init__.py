"""Schedules of elementwise work, reductions and moves."""
