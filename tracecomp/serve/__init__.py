"""A model server: the Open Inference Protocol over HTTP and gRPC, with batches that keep every bit.

``python -m tracecomp serve models/`` runs it. ``Model`` and ``app`` are for one's own applications. Needs the packages
of the extra ``serve``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracecomp.base.lazy_names import later as _later

if TYPE_CHECKING:
    from tracecomp.serve.asgi import App, app
    from tracecomp.serve.errors import ServeError
    from tracecomp.serve.model import Model
    from tracecomp.serve.settings import Settings

_late = _later(
    __name__, {"App": "asgi", "Model": "model", "ServeError": "errors", "Settings": "settings", "app": "asgi"}
)


def __getattr__(name: str) -> Any:
    try:
        return _late(name)
    except ImportError as error:
        raise ImportError(f"tracecomp.serve needs {error.name}: pip install 'tracecomp[serve]'") from error


__all__ = ["App", "Model", "ServeError", "Settings", "app"]
