"""PyTorch's internal test helpers that libraries import."""
