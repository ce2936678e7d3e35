"""Factorizations and solvers: their meaning and their loops."""
