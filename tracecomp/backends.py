"""The settings of ``torch.backends`` that programs assign: accepted, without effect on a CPU."""

from __future__ import annotations


class _Settings:
    """A bag of flags that may be read and set."""

    def __init__(self, **flags: bool) -> None:
        self.__dict__.update(flags)

    def is_available(self) -> bool:
        """False: there is no such backend."""
        return False

    def is_built(self) -> bool:
        return False

    def version(self) -> int | None:
        return None


cudnn = _Settings(enabled=False, benchmark=False, deterministic=True, allow_tf32=False)
cuda = _Settings()
cuda.matmul = _Settings(allow_tf32=False)  # type: ignore[attr-defined]
mps = _Settings()
mkl = _Settings()
