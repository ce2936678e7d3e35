"""Failures of a request, with the status that the protocols report."""

from __future__ import annotations


class ServeError(Exception):
    """A request that is not answered. ``status`` is HTTP's; ``str`` is the reason, written for the client."""

    status = 500


class InvalidRequest(ServeError):
    """The request does not fit the protocol or the model."""

    status = 400


class Unauthorized(ServeError):
    """The request lacks the token of the management port."""

    status = 401


class NotFound(ServeError):
    """There is no such model or version."""

    status = 404


class TooLarge(ServeError):
    """The request exceeds a limit of bytes."""

    status = 413


class ModelFailed(ServeError):
    """The model raised an error that does not depend on the input alone."""

    status = 500


class Unavailable(ServeError):
    """The model is loading, is overloaded or has stopped. The client may try again."""

    status = 503


class DeadlineExceeded(ServeError):
    """The request's deadline passed before its answer was ready."""

    status = 504


KINDS: dict[str, type[ServeError]] = {
    kind.__name__: kind for kind in (InvalidRequest, NotFound, TooLarge, ModelFailed, Unavailable, DeadlineExceeded)
}
"""Kinds by name, as the worker process reports them."""
