"""The names of ``torch.storage``."""

from tracecomp.functional.storage import TypedStorage, UntypedStorage

__all__ = ["TypedStorage", "UntypedStorage"]
