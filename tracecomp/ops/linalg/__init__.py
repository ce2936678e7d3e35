"""Factorizations and solvers: what they mean and their loops."""
