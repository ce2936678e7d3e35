"""Write the names that the installed PyTorch has, by module: ``python tools/torch_names.py``.

The table says which names a program written for PyTorch may import (``tracecomp.torch_compat``). It holds the public
modules, the private ones that libraries import, and of each the names it exports or defines.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import pkgutil
import sys
import types
import warnings
from collections.abc import Iterator
from pathlib import Path

TABLE = Path(__file__).parents[1] / "tracecomp" / "torch_compat" / "torch_names.txt"
PRIVATE = """
    _C _C._distributed_rpc _C._functorch _classes _compile _custom_ops _dynamo _dynamo._trace_wrapped_higher_order_op
    _dynamo.backends _dynamo.backends.registry _dynamo.comptime _dynamo.config _dynamo.eval_frame _dynamo.exc
    _dynamo.utils _export _functorch _functorch.config _functorch.vmap _guards _higher_order_ops
    _higher_order_ops.associative_scan _higher_order_ops.flex_attention _inductor _inductor.codecache _inductor.config
    _inductor.cpp_builder _inductor.cpu_vec_isa _inductor.runtime _inductor.runtime.cache_dir_utils _inductor.utils
    _jit_internal _lazy _library _linalg_utils _logging _lowrank _namedtensor_internals _ops _prims_common _six
    _subclasses _subclasses.fake_tensor _subclasses.functional_tensor _subclasses.meta_utils _tensor _tensor_str
    _utils _vmap_internals _weights_only_unpickler ao.quantization.fx ao.quantization.fx._decomposed
    distributed._composable distributed._composable.fsdp distributed._functional_collectives distributed._shard
    distributed._tensor distributed._tensor.experimental distributed.algorithms._checkpoint
    distributed.algorithms._checkpoint.checkpoint_wrapper distributed.checkpoint._consolidate_hf_safetensors
    distributed.elastic distributed.elastic.multiprocessing distributed.elastic.multiprocessing.errors
    distributed.tensor._utils distributed.tensor.experimental._attention export._trace fx._pytree fx._symbolic_trace
    fx.experimental fx.experimental.proxy_tensor fx.experimental.symbolic_shapes fx.passes fx.passes.graph_drawer
    fx.passes.infra fx.passes.infra.pass_base fx.passes.shape_prop fx.passes.split_module nested._internal
    nested._internal.nested_tensor nested._internal.ops nn.modules._functions nn.utils._named_member_accessor
    onnx._internal onnx._internal.exporter optim._functional testing._internal testing._internal.common_utils
    utils._contextlib utils._device utils._foreach_utils utils._mode_utils utils._python_dispatch utils._pytree
    utils._sympy utils._sympy.numbers utils._sympy.value_ranges utils._triton utils.data._utils
    utils.data._utils.collate utils.data._utils.worker utils.data.datapipes utils.data.datapipes.iter
    utils.data.datapipes.iter.combinatorics
"""
WITH_PRIVATE_NAMES = """
    torch torch._dynamo torch._tensor_str torch._utils torch.autograd.graph torch.jit torch.nn.modules.batchnorm
    torch.nn.modules.conv torch.nn.modules.dropout torch.nn.modules.module torch.nn.modules.padding
    torch.nn.modules.pooling torch.nn.modules.utils torch.nn.attention.flex_attention torch.optim.lr_scheduler
    torch.optim.optimizer torch.storage torch.utils.data.dataloader
"""
LEFT_OUT = """
    torch.ao.nn. torch.ao.ns torch.ao.pruning. torch.ao.quantization.fx torch.distributed.elastic.
    torch.distributed.pipelining. torch.testing. torch.utils.bundled torch.utils.hipify
    torch.fx.experimental. torch.fx.passes. torch.package. torch.utils.data.datapipes. torch.utils.model_dump
"""
LARGE = 150


def listed(module: str) -> bool:
    """Whether the table has a line for ``module``."""
    if module.removeprefix("torch.") in PRIVATE.split():
        return True
    hidden = any(part.startswith("_") and not part.startswith("__") for part in module.split("."))
    return not hidden and not module.startswith(tuple(LEFT_OUT.split()))


def leads_to_listed(module: str) -> bool:
    return listed(module) or any(f"torch.{name}".startswith(module + ".") for name in PRIVATE.split())


def names_of(module: types.ModuleType) -> list[str]:
    """Return the names that ``module`` exports or, if it does not declare them, defines."""
    private = module.__name__ in WITH_PRIVATE_NAMES.split() or module.__name__ == "torch._C"
    exported = set(getattr(module, "__all__", ()))
    names = []
    for name, value in vars(module).items():
        home = getattr(value, "__module__", None)
        hidden = name.startswith("_") and not private and home != module.__name__
        if name.startswith("__") or isinstance(value, types.ModuleType) or hidden:
            continue
        gathered = not exported and hasattr(module, "__path__") and str(home).startswith(module.__name__ + ".")
        if (
            name in exported or gathered or home in (module.__name__, None)
            or (private and str(home).startswith("torch"))
        ):  # fmt: skip
            names.append(name)
    unlisted = "._" in module.__name__ and module.__name__ != "torch._C" and len(names) > LARGE
    return [] if unlisted else sorted(names)


def modules(name: str) -> Iterator[tuple[str, list[str]]]:
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            module = importlib.import_module(name)
    except (ImportError, AttributeError, RuntimeError, OSError, AssertionError):
        return  # for another system, or needs an absent package
    if listed(name):
        yield name, names_of(module)
    children = {f"{name}.{child.name}" for child in pkgutil.iter_modules(getattr(module, "__path__", ()))}
    if name == "torch._C":  # not a package, although it has modules below it
        children |= {other for other in sys.modules if other.rpartition(".")[0] == name}
    for child in sorted(children):
        if not child.endswith(".__main__") and leads_to_listed(child):
            yield from modules(child)


def main() -> None:
    warnings.simplefilter("ignore")
    lines = [f"{name}: {' '.join(names)}".rstrip() for name, names in sorted(modules("torch"))]
    methods = sorted(n for n in dir(importlib.import_module("torch").Tensor) if not n.startswith("_"))
    lines.append(f"Tensor: {' '.join(methods)}")
    TABLE.write_text("\n".join(lines) + "\n")
    print(f"{TABLE}: {len(lines)} modules")


if __name__ == "__main__":
    main()
