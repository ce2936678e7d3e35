"""Benchmarks of tracecomp beside the engines a user would pick instead. ``python -m benchmarks --help``."""
