"""Names that libraries import from ``torch._C``, PyTorch's compiled part; here it is Python."""

from __future__ import annotations

from enum import Enum
from typing import Any

from tracecomp.base.errors import LinAlgError as _LinAlgError
from tracecomp.eager.device import device as _device
from tracecomp.eager.dispatch import disabled as _disabled_torch_dispatch_impl
from tracecomp.eager.dispatch import no_dispatch as _DisableTorchDispatch
from tracecomp.eager.modes import modes
from tracecomp.eager.overrides import DisableTorchFunction, DisableTorchFunctionSubclass
from tracecomp.eager.overrides import disabled as _disabled_torch_function_impl
from tracecomp.eager.rng import Generator, default_generator
from tracecomp.eager.tensor import Tensor

__all__ = [
    "DisableTorchFunction", "DisableTorchFunctionSubclass", "Generator", "_DisableTorchDispatch",
    "_LinAlgError",
    "_disabled_torch_dispatch_impl", "_disabled_torch_function_impl", "_nn",
    "default_generator",
]  # fmt: skip
_GLIBCXX_USE_CXX11_ABI = True


class DispatchKey(Enum):
    """Keys for which implementations of operators are registered."""

    CPU, CUDA, Meta, Autograd, AutogradCPU, AutogradCUDA = range(16, 22)
    CompositeImplicitAutograd, CompositeExplicitAutograd = range(22, 24)
    AutocastCPU, AutocastCUDA, AutocastXPU, Functionalize, Python, FuncTorchBatched, BackendSelect = range(8, 15)


class ScriptObject:
    """An object of a class that a native library registers; there are none."""


class DispatchKeySet:
    """A set of keys."""

    def __init__(self, *keys: DispatchKey) -> None:
        self.keys = frozenset(keys)

    def __or__(self, other: DispatchKeySet) -> DispatchKeySet:
        return DispatchKeySet(*self.keys, *other.keys)

    def has(self, key: DispatchKey) -> bool:
        return key in self.keys


class _ExcludeDispatchKeyGuard:
    """A context in which autocast is off if its key for the CPU is excluded."""

    def __init__(self, keys: DispatchKeySet) -> None:
        self._off = keys.has(DispatchKey.AutocastCPU)

    def __enter__(self) -> None:
        self._before = modes.autocast
        modes.autocast = None if self._off else modes.autocast

    def __exit__(self, *error: object) -> None:
        modes.autocast = self._before


class _nn:
    """Functions that exist only in the compiled part."""

    @staticmethod
    def _parse_to(*args: Any, **kwargs: Any) -> tuple[Any, Any, bool, Any]:
        """Device, dtype, ``non_blocking`` and memory format from arguments of ``Tensor.to``."""
        names = ["device", "dtype", "non_blocking", "copy"]
        options: dict[str, Any] = {"non_blocking": False, "memory_format": None} | kwargs
        if args and isinstance(args[0], Tensor):
            options |= {"device": args[0].device, "dtype": args[0].dtype}
            args, names = args[1:], names[2:]
        elif args and hasattr(args[0], "itemsize"):
            names = names[1:]
        options |= dict(zip(names, args, strict=False))
        device = options.get("device")
        if isinstance(device, str | int):
            device = _device(device)
        return device, options.get("dtype"), bool(options["non_blocking"]), options["memory_format"]


def _log_api_usage_once(event: str) -> None:
    """Do nothing: usage is not logged."""


tracing: list[Any] = []
"""The states of ``torch.jit._get_trace_graph``, the innermost last."""


def _get_tracing_state() -> Any:
    """The state of the innermost ``torch.jit._get_trace_graph``; None outside."""
    return tracing[-1] if tracing else None


def _is_torch_function_mode_enabled() -> bool:
    return bool(modes.function_modes)


def _is_torch_function_enabled() -> bool:
    return not modes.plain_subclasses


def _len_torch_function_stack() -> int:
    return len(modes.function_modes)


def _current_graph_task_id() -> int:
    """The number of the backward pass that runs; -1 outside."""
    return -1 if modes.backward_pass is None else id(modes.backward_pass)


def _is_alias_of(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors share memory."""
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


_TensorMeta = type(Tensor)


def _get_accelerator(check: bool = False) -> Any:
    """Return the CPU, as there is no accelerator."""
    return _device("cpu")


def _get_default_device() -> str:
    return "cpu"


def _get_privateuse1_backend_name() -> str:
    return "privateuseone"


def _jit_set_profiling_mode(mode: bool) -> bool:
    """Accept without effect: there is no TorchScript."""
    return False


_jit_set_profiling_executor = _jit_set_texpr_fuser_enabled = _jit_set_nvfuser_enabled = _jit_set_profiling_mode
_jit_override_can_fuse_on_cpu = _jit_override_can_fuse_on_gpu = _jit_set_profiling_mode
_debug_set_autodiff_subgraph_inlining = _jit_set_profiling_mode


def _jit_can_fuse_on_cpu() -> bool:
    return False


_jit_can_fuse_on_gpu = _jit_texpr_fuser_enabled = _are_functorch_transforms_active = _jit_can_fuse_on_cpu
