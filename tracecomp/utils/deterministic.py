"""The names of ``torch.utils.deterministic``."""

fill_uninitialized_memory = True
"""Whether ``empty`` has the same contents every time: it has, they are zeros."""
