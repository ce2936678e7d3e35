"""Names that libraries import from ``torch.utils._contextlib``."""

from tracecomp.eager.modes import ContextDecorator as _DecoratorContextManager

__all__ = ["_DecoratorContextManager"]
