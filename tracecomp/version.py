"""The version of PyTorch whose names and meaning tracecomp has, under the names of ``torch.version``."""

from __future__ import annotations

__version__ = "2.13.0+tracecomp"
cuda: str | None = None
hip: str | None = None
xpu: str | None = None
git_version: str | None = None
debug = False
