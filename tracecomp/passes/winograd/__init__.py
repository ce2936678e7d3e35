"""Winograd convolutions: 3x3 windows by transformed tiles (Lavin and Gray)."""
