"""The page at ``/``: models, figures, and a form that runs a model. It loads nothing from elsewhere."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from functools import cache
from math import isqrt, prod
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from tracecomp.serve.engine import Engine, ModelVersion
from tracecomp.serve.handlers import PLATFORM
from tracecomp.serve.http import route
from tracecomp.serve.signature import OPEN, Signature, TensorSpec

_MOST_ZEROS = 5000
"""Numbers of an example; the page fetches them again and again."""


class PageRoutes:
    """Handlers for the models of an engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def routes(self) -> list[Route]:
        """The page, and the data that it shows."""
        return [route("/", self.page), route("/overview", self.overview)]

    async def page(self, request: Request) -> Response:
        """The page."""
        text, policy = _page()
        return HTMLResponse(text, headers={"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff"})

    async def overview(self, request: Request) -> Response:
        """All versions, with their figures."""
        told = [_told(model, self._engine.is_default(model)) for model in self._engine]
        return JSONResponse(told, headers={"Cache-Control": "no-store"})


@cache
def _page() -> tuple[str, str]:
    """The page, and the policy that lets it run its own script only."""
    text = Path(__file__).with_name("page.html").read_text(encoding="utf-8")
    script = text.partition("<script>")[2].partition("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    allowed = f"script-src 'sha256-{digest}'; style-src 'unsafe-inline'; connect-src 'self'"
    return text, f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


def _told(model: ModelVersion, is_default: bool) -> dict[str, Any]:
    signature = model.signature if model.is_ready else None
    state = "READY" if signature else "UNAVAILABLE" if model.process.is_given_up else "LOADING"
    is_handler = signature is not None and signature.platform == PLATFORM
    path = f"predictions/{model.name}/{model.version}" if is_handler else (
        f"v2/models/{model.name}/versions/{model.version}/infer"
    )  # fmt: skip
    metrics = model.metrics
    return {
        "name": model.name, "version": model.version, "default": is_default, "state": state,
        "reason": model.process.failure or (signature.not_batched if signature else ""), "path": path,
        "handler": is_handler,
        "tensors": "" if signature is None or is_handler else _tensors(signature),
        "example": "" if signature is None else "[]" if is_handler else json.dumps(_example(signature.inputs)),
        "picture": None if signature is None else _picture(signature.inputs),
        "figures": {
            "answered": metrics.answered_count, "failed": metrics.failed_count, "waiting": model.batcher.waiting,
            "batches": model.batcher.batches, "process starts": metrics.start_count,
        },
    }  # fmt: skip


def _picture(inputs: Sequence[TensorSpec]) -> tuple[int, int] | None:
    """Height and width if the only input may be a grey picture: rows of H x W, 1 x H x W, or H * H numbers."""
    if len(inputs) != 1 or inputs[0].datatype not in ("FP32", "FP64"):
        return None
    match inputs[0].shape[1:]:
        case (height, width) | (1, height, width):
            pass
        case (size,) if size > 0 and isqrt(size) ** 2 == size:
            height = width = isqrt(size)
        case _:
            return None
    return (height, width) if min(height, width) >= 8 and max(height, width) <= 64 else None


def _tensors(signature: Signature) -> str:
    inputs, outputs = (", ".join(f"{s.name} {s.datatype}{[*s.shape]}" for s in part)
                       for part in (signature.inputs, signature.outputs))  # fmt: skip
    return f"{inputs} → {outputs}"


def _example(inputs: Sequence[TensorSpec]) -> dict[str, Any]:
    """A request of zeros, with 1 for each open size. Large inputs are left for the reader to fill in."""
    told = []
    for spec in inputs:
        shape = [1 if size == OPEN else size for size in spec.shape]
        told.append(
            {
                "name": spec.name,
                "datatype": spec.datatype,
                "shape": shape,
                "data": _zeros(spec, shape) if prod(shape) <= _MOST_ZEROS else [],
            }
        )
    return {"inputs": told}


def _zeros(spec: TensorSpec, shape: Sequence[int]) -> Any:
    zero: Any = False if spec.datatype == "BOOL" else 0
    for size in reversed(shape):
        zero = [zero] * size
    return zero if shape else [zero]
