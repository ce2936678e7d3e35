"""PyTorch's implementation names of ``functorch`` and ``torch.func`` that libraries import."""
