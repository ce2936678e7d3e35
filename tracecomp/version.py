"""Versions under the names of ``torch.version``; there are no accelerator toolkits."""

from __future__ import annotations

__version__ = "0.2.0"
cuda: str | None = None
hip: str | None = None
git_version: str | None = None
debug = False
