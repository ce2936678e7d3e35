"""Passes that take a graph and give a graph."""
