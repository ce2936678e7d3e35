"""Errors of communication between processes, under the names of ``torch.distributed``."""

from __future__ import annotations


class DistError(RuntimeError):
    """Base of errors between processes."""


class DistBackendError(DistError):
    """A communication failed: a process died, left or disagreed, or a timeout expired."""


class DistNetworkError(DistError):
    """A connection could not be made or broke."""


class DistStoreError(DistError):
    """A store did not answer in time, or has no such key."""


class DistQueueEmptyError(DistStoreError):
    """A queue of a store is empty."""
