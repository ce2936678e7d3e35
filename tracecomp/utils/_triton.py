"""The questions of ``torch.utils._triton``: Triton's kernels run on GPUs only."""


def has_triton() -> bool:
    return False


def has_triton_package() -> bool:
    return False
