"""What PyTorch has beneath ``functorch`` and ``torch.func``, as far as libraries import it."""
