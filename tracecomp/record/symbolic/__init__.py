"""Symbolic sizes and numbers: dynamic shapes, dynamic scalars."""
