"""``torch.nn.utils.stateless``: calls of modules with other parameters, in the form from before ``torch.func``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tracecomp.base.user_warnings import warn_as_pytorch
from tracecomp.eager.tensor import Tensor
from tracecomp.func import modules

_reparametrize_module = modules.reparametrized


def functional_call(
    module: Callable[..., object], parameters_and_buffers: Mapping[str, Tensor], args: object = None,
    kwargs: dict[str, object] | None = None, *, tie_weights: bool = True, strict: bool = False,
) -> Any:  # fmt: skip
    """``torch.func.functional_call``, with a FutureWarning that says so."""
    warn_as_pytorch(
        "This API is deprecated as of PyTorch 2.0 and will be removed in a future version of PyTorch. Please use "
        "torch.func.functional_call instead which is a drop-in replacement for this API.",
        FutureWarning,
    )  # fmt: skip
    return _functional_call(module, parameters_and_buffers, args, kwargs, tie_weights=tie_weights, strict=strict)


def _functional_call(
    module: Callable[..., object], parameters_and_buffers: Mapping[str, Tensor], args: object = None,
    kwargs: dict[str, object] | None = None, *, tie_weights: bool = True, strict: bool = False,
) -> Any:  # fmt: skip
    return modules.functional_call(module, parameters_and_buffers, args, kwargs, tie_weights=tie_weights, strict=strict)
