"""Elementwise functions, and conversions between types."""
