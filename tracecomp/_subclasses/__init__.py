"""Kinds of tensors that PyTorch implements as subclasses."""

from tracecomp._subclasses.fake_tensor import FakeTensor, FakeTensorMode

__all__ = ["FakeTensor", "FakeTensorMode"]
