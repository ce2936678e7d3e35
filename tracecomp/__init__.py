"""tracecomp: a tensor library with PyTorch's names, whose programs are captured whole and run as native code."""

from __future__ import annotations

import sys as _sys
from importlib import import_module as _import_module
from math import e, inf, nan, pi
from typing import Any

from tracecomp.base.gc_pause import without_collecting as _without_collecting
from tracecomp.base.interpreter import require_known_headers as _require_known_headers
from tracecomp.base.interpreter import require_main_interpreter as _require_main_interpreter

_require_known_headers()
_require_main_interpreter()
# Objects of modules live as long as these: the collector would traverse all of them several times.
_without_collecting(lambda: [_import_module(f"{__name__}.{_room}") for _room in ("ops", "autograd", "functional")])

import tracecomp.ops
from tracecomp import autograd
from tracecomp.autograd.walks import set_consider as _set_consider_walk
from tracecomp.base.lazy_names import later as _later
from tracecomp.base.lazy_names import load_module as _load_module
from tracecomp.base.patches import observe as _observe
from tracecomp.eager.device import (
    channels_last,
    channels_last_3d,
    contiguous_format,
    device,
    jagged,
    layout,
    memory_format,
    preserve_format,
    sparse_bsc,
    sparse_bsr,
    sparse_coo,
    sparse_csc,
    sparse_csr,
    strided,
)
from tracecomp.eager.modes import (
    enable_grad,
    inference_mode,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)
from tracecomp.eager.modes import grad_enabled as is_grad_enabled
from tracecomp.eager.overrides import NOT_OVERRIDDEN as _NOT_OVERRIDDEN
from tracecomp.eager.overrides import override as _override
from tracecomp.eager.rng import (
    Generator,
    default_generator,
    get_rng_state,
    initial_seed,
    manual_seed,
    seed,
    set_rng_state,
)
from tracecomp.eager.size import Size
from tracecomp.eager.tensor import Tensor
from tracecomp.functional import NAMESPACES as _NAMESPACES
from tracecomp.functional.warm import set_consider as _set_consider
from tracecomp.interop import einops as _einops
from tracecomp.ir.types import DType as dtype
from tracecomp.ir.types import (
    bfloat16,
    complex32,
    complex64,
    complex128,
    float4_e2m1fn_x2,
    float8_e4m3fn,
    float8_e4m3fnuz,
    float8_e5m2,
    float8_e5m2fnuz,
    float8_e8m0fnu,
    float16,
    float32,
    float64,
    int1,
    int2,
    int3,
    int4,
    int5,
    int6,
    int7,
    int8,
    int16,
    int32,
    int64,
    qint8,
    qint32,
    quint2x4,
    quint4x2,
    quint8,
    uint1,
    uint2,
    uint3,
    uint4,
    uint5,
    uint6,
    uint7,
    uint8,
    uint16,
    uint32,
    uint64,
)
from tracecomp.ir.types import bool_ as bool
from tracecomp.runtime.malloc import keep_freed

# Pickles of version 0.1.0 name these modules, which are now in ``eager``.
for _old in ("device", "size", "tensor"):
    _sys.modules[f"{__name__}.{_old}"] = _sys.modules[f"{__name__}.eager.{_old}"]

_TORCH = _NAMESPACES["torch"]
globals().update(_TORCH)
keep_freed()

# Loaded when first used, so that importing the package and running eagerly stays cheap.
_LATER = {
    "as_torch": "torch_compat", "autocast": "amp", "classes": "_classes", "compare": "inspect",
    "compile": "compiler", "Compiled": "compiled", "cond": "func.control", "config": "base.config",
    "explain": "inspect", "Future": "futures", "get_autocast_cpu_dtype": "amp", "get_autocast_dtype": "amp",
    "get_device_module": "accelerator", "get_autocast_gpu_dtype": "amp", "is_autocast_cpu_enabled": "amp",
    "get_num_threads": "runtime.threads", "is_autocast_enabled": "amp", "load": "serialization",
    "load_program": "compiled.program_files.load",
    "save": "serialization", "scan": "func.control", "ScriptModule": "jit",
    "set_num_threads": "runtime.threads", "summary": "inspect",
    "vmap": "func", "while_loop": "func.control",
}  # fmt: skip
_LATER |= {f"sparse_{kind}_tensor": "sparse.creation" for kind in ("bsc", "bsr", "compressed", "coo", "csc", "csr")}
_LATER |= dict.fromkeys(("dsmm", "hsmm", "hspmm", "smm", "spmm", "sspaddmm"), "sparse.functions")
_LATER |= {
    module: module
    for module in (
        "_C", "__config__", "__future__", "_dynamo", "_higher_order_ops", "_inductor", "_jit_internal", "_logging",
        "_tensor_str", "_utils", "accelerator", "amp", "backends", "compiled", "compiler", "cpu", "cuda", "distributed",
        "distributions", "export", "fft", "func", "futures", "fx", "hub", "jit", "library", "linalg", "masked", "mps",
        "mtia", "multiprocessing", "nn", "onnx", "optim", "overrides", "profiler", "quasirandom", "random",
        "return_types", "serialization", "signal", "sparse", "special", "storage", "testing", "torch_version",
        "types", "utils", "version", "xpu",
    )
}  # fmt: skip


def _more() -> dict[str, Any]:
    """The names of ``torch`` among the functions that ``nn`` publishes."""
    _load_module("tracecomp.nn.aten")
    return _TORCH


__getattr__ = _later(__name__, _LATER, _more)


def __dir__() -> list[str]:
    """List the module's names, including those loaded on first use."""
    return sorted({*globals(), *_LATER})


def _consider(*call: object) -> bool:
    """Pass frequent calls to ``compiled.hot_calls``, which is loaded for the first of them."""
    considered: bool = _load_module("tracecomp.compiled.hot_calls").consider(*call)
    return considered


def _consider_walk(*walk: object) -> bool:
    """Pass recurring forms of backward passes to ``compiled.hot_walks``, likewise."""
    considered: bool = _load_module("tracecomp.compiled.hot_walks").consider(*walk)
    return considered


_set_consider(_consider)
_set_consider_walk(_consider_walk)


def _assert(condition: object, message: str) -> None:
    """Raise AssertionError with ``message`` unless ``condition`` is true."""
    if _override(_assert, (condition, message), {}) is _NOT_OVERRIDDEN:
        assert condition, message


def trace(first: object, *args: Any, **kwargs: Any) -> Any:
    """The trace of a matrix; of a function, the graph of ``first(*args, **kwargs)`` (see ``compiled.trace``)."""
    if isinstance(first, Tensor):
        return _TORCH["trace"](first)
    return __getattr__("compiled").trace(first, *args, **kwargs)


float, double, half = float32, float64, float16
chalf, cfloat, cdouble = complex32, complex64, complex128
short, int, long = int16, int32, int64
legacy_contiguous_format, newaxis = contiguous_format, None
__version__ = "0.2.0"
_observe(__name__)
