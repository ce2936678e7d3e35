"""Compare tracecomp with torch on torch's own sample inputs (OpInfo), eagerly or compiled.

    python tests/opinfo/run_opinfo.py [--names add,sum] [--dtypes float32] [--limit 20] [--compiled] [--verbose]

For every dense CPU operator: each sample is converted, the function of the same name is called, and value, dtype,
shape and (for float64 and complex128) gradients are compared. Prints counts per name, the most frequent failures, and
the total.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import random
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch.testing._internal import common_utils
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo import core

import tracecomp
from tracecomp.ir.types import dtype_named

# Importing the samples forbids setting flags of torch.backends, which other tests of the same process do.
torch.backends.flags_frozen.__globals__["__allow_nonbracketed_mutation_flag"] = True


def _seed(seed: int | None = None) -> None:
    """torch's ``set_rng_seed`` without accelerators, each of which keeps a printed stack for every seed."""
    seed = common_utils.SEED if seed is None else seed
    torch.default_generator.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)


# Nine tenths of the time of all comparisons went into what comes before each sample: the seed, and a search of the
# stack, with its sources, for a unittest, which is not there. The samples are the same without.
common_utils.set_rng_seed = _seed
for module in (common_utils, core):
    vars(module)["extract_test_fn"] = lambda: None

DTYPES = {
    "float32": torch.float32, "float64": torch.float64, "int64": torch.int64, "bool": torch.bool,
    "complex64": torch.complex64, "complex128": torch.complex128,
}  # fmt: skip
NARROW = {
    "int8": torch.int8, "uint8": torch.uint8, "int16": torch.int16, "int32": torch.int32, "float16": torch.float16,
    "bfloat16": torch.bfloat16,
}  # fmt: skip
TOLERANCE = {"bfloat16": 0.1, "float16": 1e-2, "float32": 1e-4, "complex64": 1e-4}
"""For types with few digits, relative and absolute; torch rounds some half formulas after each step."""
OUT_OF_SCOPE = (
    "sparse.", "jiterator", "torch.ops", "torch._scaled", "to_sparse", "chalf", "_segment_reduce", "_chunk_cat",
    "hash_tensor", "_batch_norm_with_update", "_native_batch_norm_legit", "_softmax_backward_data",
    "_unsafe_masked_index",
    "_upsample_bilinear2d_aa", "max_pool2d_with_indices_backward", "native_",
)  # fmt: skip
RANDOM = (
    "rand", "normal", "bernoulli", "multinomial", "uniform", "exponential", "geometric", "cauchy", "log_normal",
    "dropout", "alpha_dropout", "feature_alpha_dropout",
    "empty", "new_empty", "rrelu", "fractional_max_pool", "svd_lowrank", "pca_lowrank",
)  # fmt: skip


DIFFERENTIATED = (torch.float64, torch.complex128)
TIES = ("topk", "kthvalue", "mode", "sort", "argsort", "msort", "median", "nanmedian", "cummax", "cummin")
ORDER: dict[str, Callable[..., Any]] = {
    "where": lambda fn: lambda x, condition, other: fn(condition, x, other),
    "einsum": lambda fn: lambda operands, equation: fn(equation, *operands),
    "linalg.pinv/singular": lambda fn: lambda a, b: fn(tracecomp.matmul(a, b.mT)),
    "svd_lowrank": lambda fn: lambda a, b, **kw: fn(tracecomp.matmul(a, b.mT), **kw),
    "pca_lowrank": lambda fn: lambda a, b, **kw: fn(tracecomp.matmul(a, b.mT), **kw),
    "linalg.lstsq/grad_oriented": lambda fn: lambda *args, **kw: fn(*args, **kw)[:2],
    "nn.functional.embedding": lambda fn: lambda weight, index, **kw: fn(index, weight, **kw),
    "nn.functional.embedding_bag": lambda fn: lambda weight, index, *args, **kw: fn(index, weight, *args, **kw),
    "svd": lambda fn: lambda *args, **kw: svd_signs(fn(*args, **kw)),
    "linalg.svd": lambda fn: lambda *args, **kw: svd_signs(fn(*args, **kw)),
    "linalg.eigh": lambda fn: lambda *args, **kw: eigh_signs(fn(*args, **kw)),
    "linalg.eig": lambda fn: lambda *args, **kw: eig_phases(fn(*args, **kw)),
    "index_put": lambda fn: lambda x, indices, values, **kw: fn(x, indices, values, **kw),
}


def fixed(x: Any, dim: int) -> Any:
    """``x`` with the signs (phases) of its vectors chosen so that their first element is positive."""
    return x * x.narrow(dim, 0, 1).sgn().conj() if x.shape[dim] else x


def svd_signs(result: Any) -> Any:
    """U, S and V without the freedom of sign and of the null space."""
    u, s, v = result
    k = s.shape[-1]
    rows = type(result).__name__.startswith("linalg")
    v = v.narrow(-2 if rows else -1, 0, k)
    return fixed(u.narrow(-1, 0, k), -2), s, fixed(v, -1 if rows else -2)


def eigh_signs(result: Any) -> Any:
    values, vectors = result
    return values, fixed(vectors, -2)


def eig_phases(result: Any) -> Any:
    """Eigenvectors are free up to a factor of absolute value 1."""
    values, vectors = result
    return values, vectors.abs()


SIGNS = {"svd": svd_signs, "linalg.svd": svd_signs, "linalg.eigh": eigh_signs, "linalg.eig": eig_phases}


class Unsupported(Exception):
    """A sample with unsupported types (half-precision complex numbers, sparse tensors)."""


def convert(x: Any, memo: dict[int, Any]) -> Any:
    """torch's argument as tracecomp's: tensors, dtypes, and containers of them."""
    if isinstance(x, torch.Tensor):
        if x.layout is not torch.strided:
            raise Unsupported
        if id(x) not in memo:
            memo[id(x)] = tensor_like(x)
        return memo[id(x)]
    if isinstance(x, torch.dtype):
        return dtype_of(x)
    if isinstance(x, torch.device):
        return tracecomp.device(str(x))
    if isinstance(x, torch.layout | torch.memory_format):
        return getattr(tracecomp, str(x).removeprefix("torch."), None)
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return type(x)(*(convert(v, memo) for v in x))
    if isinstance(x, list | tuple):
        return type(x)(convert(v, memo) for v in x)
    if isinstance(x, dict):
        return {k: convert(v, memo) for k, v in x.items()}
    if isinstance(x, torch.nn.LinearCrossEntropyOptions):
        return tracecomp.nn.LinearCrossEntropyOptions(**convert(dataclasses.asdict(x), memo))
    if isinstance(x, torch.nn.Module):
        return getattr(tracecomp.nn, type(x).__name__)()
    if callable(x) and getattr(x, "__module__", "").startswith("torch"):
        return getattr(tracecomp, x.__name__, x)
    return x


def dtype_of(x: torch.dtype) -> Any:
    try:
        return dtype_named(str(x).removeprefix("torch."))
    except KeyError:
        raise Unsupported from None


def tensor_like(x: torch.Tensor) -> Any:
    """A tensor of the same values, strides and ``requires_grad``."""
    dtype_of(x.dtype)
    if x.dtype is torch.bfloat16:
        same = tensor_like(x.detach().view(torch.int16)).view(tracecomp.bfloat16)
        return same.requires_grad_(True) if x.requires_grad else same
    array = x.detach().resolve_neg().resolve_conj().numpy()
    if x.untyped_storage().nbytes() > x.numel() * x.element_size() and x.is_contiguous():
        whole = torch.as_strided(x.detach(), (x.untyped_storage().nbytes() // x.element_size(),), (1,), 0)
        start = x.storage_offset()
        part = tracecomp.from_numpy(whole.numpy().copy())[start : start + x.numel()].reshape(tuple(x.shape))
        return part.requires_grad_(True) if x.requires_grad else part
    copy = np.empty(x.numel(), array.dtype)
    copy = copy.reshape(array.shape)
    if array.ndim and any(s > t for s, t in zip(array.strides[1:], array.strides, strict=False)):
        order = np.argsort([-s for s in array.strides], kind="stable")
        copy = np.empty([array.shape[i] for i in order], array.dtype).transpose(np.argsort(order))
    copy[...] = array
    result = tracecomp.from_numpy(copy)
    if x.requires_grad:
        result.requires_grad_(True)
    return result


def function(name: str, variant: str = "") -> Any:
    """The function or method called ``name``, taking the operands in the OpInfo's order; None when there is none."""
    if variant == "in_place" or (name.endswith("_") and not name.endswith("__")):
        method = getattr(tracecomp.Tensor, name.rstrip("_") + "_", None)
        return method and (lambda x, *args, **kw: method(x.clone(), *args, **kw))
    target = _lookup(name)
    order = ORDER.get(f"{name}/{variant}", ORDER.get(name))
    return order(target) if target is not None and order else target


def _lookup(name: str) -> Any:
    target: Any = tracecomp
    for part in name.split("."):
        target = getattr(target, part, None)
    if target is None or not callable(target):
        target = getattr(tracecomp.Tensor, name, None)
    if isinstance(target, property):
        return target.fget
    return target if callable(target) else None


def leaves(x: Any) -> list[Any]:
    if isinstance(x, dict):
        x = list(x.values())
    if isinstance(x, list | tuple):
        return [leaf for item in x for leaf in leaves(item)]
    return [x]


def difference(want: Any, got: Any, tolerance: float, exact: bool = True) -> str | None:
    """Return a description of the difference; None if equal."""
    wants, gots = leaves(want), leaves(got)
    if len(wants) != len(gots):
        return f"{len(gots)} results instead of {len(wants)}"
    for a, b in zip(wants, gots, strict=True):
        if not isinstance(a, torch.Tensor):
            if isinstance(a, torch.dtype):
                if dtype_of(a) is not b:
                    return f"dtype {b} instead of {a}"
            elif isinstance(a, float):
                if not np.isclose(a, b, rtol=1e-5, equal_nan=True):
                    return f"value {b} instead of {a}"
            elif a != b and not isinstance(a, torch.Size | torch.layout | torch.device):
                return f"value {b!r} instead of {a!r}"
            continue
        if not isinstance(b, tracecomp.Tensor):
            return f"{type(b).__name__} instead of a tensor"
        text = tensor_difference(a, b, tolerance, exact)
        if text:
            return text
    return None


def tensor_difference(a: torch.Tensor, b: Any, tolerance: float, exact: bool) -> str | None:
    if tuple(a.shape) != tuple(b.shape):
        return f"shape {list(b.shape)} instead of {list(a.shape)}"
    if dtype_of(a.dtype) is not b.dtype:
        return f"dtype {b.dtype} instead of {a.dtype}"
    if not exact:
        return None
    tolerance = TOLERANCE.get(b.dtype.name, tolerance)
    if a.dtype is torch.bfloat16:
        a, b = a.float(), b.float()
    x, y = a.detach().numpy(force=True), b.detach().numpy()
    if x.dtype.kind not in "fc":
        return None if np.array_equal(x, y) else f"value: {y.ravel()[:4]} instead of {x.ravel()[:4]}"
    if np.allclose(x, y, rtol=tolerance, atol=tolerance, equal_nan=True):
        return None
    bad = ~np.isclose(x, y, rtol=tolerance, atol=tolerance, equal_nan=True)
    return f"value: {y[bad].ravel()[:3]} instead of {x[bad].ravel()[:3]}"


def float_leaves(x: Any) -> list[Any]:
    return [t for t in leaves(x) if getattr(t, "requires_grad", False)]


def grad_difference(want: Any, got: Any, inputs: list[Any], ours: list[Any]) -> str | None:
    """Compare gradients of a fixed weighting of the results."""
    wants, gots = leaves(want), leaves(got)
    pairs = [
        (a, b)
        for a, b in zip(wants, gots, strict=True)
        if isinstance(a, torch.Tensor) and a.requires_grad and a.numel()
    ]
    if not pairs:
        return None
    weights = [np.cos(np.arange(a.numel())).reshape(tuple(a.shape)) for a, _ in pairs]
    try:
        theirs = torch.autograd.grad(
            [a for a, _ in pairs], inputs,
            [torch.tensor(w, dtype=a.dtype) for (a, _), w in zip(pairs, weights, strict=True)], allow_unused=True,
        )  # fmt: skip
    except RuntimeError:
        return None
    for _, b in pairs:
        if not b.requires_grad:
            return "gradient: result does not require grad"
    mine = tracecomp.autograd.grad(
        [b for _, b in pairs], ours,
        [tracecomp.tensor(w, dtype=b.dtype) for (_, b), w in zip(pairs, weights, strict=True)], allow_unused=True,
    )  # fmt: skip
    for a, b in zip(theirs, mine, strict=True):
        if a is None or b is None:
            other = a if a is not None else b
            if other is not None and np.any(other.detach().numpy() != 0):
                return f"gradient: {'missing' if b is None else 'unexpected'}"
            continue
        text = tensor_difference(a, b, 1e-6, True)
        if text:
            return f"gradient {text}"
    return None


def draws(name: str, sample: Any) -> bool:
    """Whether dropout makes the result random."""
    if name == "nn.functional.multi_head_attention_forward":
        return bool(sample.args[9] > 0)
    return name == "nn.functional.scaled_dot_product_attention" and sample.kwargs.get("dropout_p", 0) > 0


def check(op: Any, fn: Any, sample: Any, dtype: torch.dtype, exact: bool, compiled: bool) -> str | None:
    """None when the sample agrees; ``compiled``: in a second call, from the recording."""
    memo: dict[int, Any] = {}
    exact = exact and not draws(op.name, sample)
    args = (sample.input, *sample.args)
    ours, ours_kw = convert(args, memo), convert(sample.kwargs, memo)
    inputs = float_leaves(args) + float_leaves(sample.kwargs)
    theirs = [memo[id(t)] for t in inputs]
    try:
        want = SIGNS.get(op.name, lambda result: result)(op(*args, **sample.kwargs))
    except Exception as error:
        return f"torch raises {type(error).__name__}"
    if compiled:
        fn = tracecomp.compile(fn)
        fn(*ours, **ours_kw)
    with np.errstate(all="ignore"):
        got = fn(*ours, **ours_kw)
        if op.name in TIES:
            want, got = leaves(want)[:1], leaves(got)[:1]
            exact = exact and op.name != "argsort"
        text = difference(want, got, 1e-4 if dtype is torch.float32 else 1e-7, exact)
        if text or not exact or dtype not in DIFFERENTIATED or not inputs or not op.supports_autograd:
            return text
        return grad_difference(want, got, inputs, theirs)


def samples(op: Any, dtype: torch.dtype, limit: int) -> Iterator[Any]:
    """The op's sample inputs; differentiable ones in float64 and complex128."""
    grad = dtype in DIFFERENTIATED and op.supports_autograd
    torch.default_generator.manual_seed(0)
    for i, sample in enumerate(op.sample_inputs("cpu", dtype, requires_grad=grad)):
        if i >= limit:
            return
        yield sample


def takes(op: Any, dtype: torch.dtype) -> bool:
    """Whether torch's operator works on ``dtype`` on CPUs."""
    return dtype in op.supported_dtypes("cpu")


def is_exact(name: str) -> bool:
    """Whether values are determined, not drawn at random or left unset."""
    return not any(name.split(".")[-1].startswith(p) for p in RANDOM)


def in_scope(op: Any) -> bool:
    label = f"{op.name}/{op.variant_test_name}"
    return not any(label.startswith(prefix) for prefix in OUT_OF_SCOPE)


def run(names: set[str], dtypes: list[str], limit: int, verbose: bool, compiled: bool) -> int:
    known = DTYPES | NARROW
    totals: collections.Counter[str] = collections.Counter()
    reasons: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    status: dict[str, str] = {}
    for op in op_db:
        label = op.name + ("/" + op.variant_test_name if op.variant_test_name else "")
        if not in_scope(op) or (names and op.name not in names and label not in names):
            continue
        fn = function(op.name, op.variant_test_name)
        exact = is_exact(op.name)
        supported = [d for d in dtypes if takes(op, known[d])]
        if not supported:
            continue
        if fn is None:
            status[label] = "missing"
            continue
        passed = failed = 0
        for d in supported:
            for sample in samples(op, known[d], limit):
                try:
                    text = check(op, fn, sample, known[d], exact, compiled)
                except Unsupported:
                    continue
                except Exception as error:
                    text = f"{type(error).__name__}: {str(error)[:160]}"
                    if verbose and len(names) == 1:
                        import traceback

                        traceback.print_exc()
                if text and text.startswith("torch raises"):
                    continue
                if text:
                    failed += 1
                    reasons[label][f"{d}: {text}"] += 1
                    if verbose:
                        print(label, d, text, sample.summary()[:300], file=sys.stderr)
                else:
                    passed += 1
        totals["passed"] += passed
        totals["failed"] += failed
        status[label] = "pass" if not failed else f"{failed} of {passed + failed} samples fail"
    report(status, reasons, totals)
    return sum(s != "pass" for s in status.values())


def report(status: dict[str, str], reasons: Any, totals: Any) -> None:
    missing = [n for n, s in status.items() if s == "missing"]
    for label, text in status.items():
        if text not in ("pass", "missing"):
            reason, count = reasons[label].most_common(1)[0]
            print(f"{label:45} {text:28} {count} x {reason}")
    print(f"missing ({len(missing)}): {' '.join(missing)}")
    good = sum(s == "pass" for s in status.values())
    print(f"names: {good} of {len(status)} pass; samples: {totals['passed']} pass, {totals['failed']} fail")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--names", default="", help="comma-separated OpInfo names (all by default)")
    parser.add_argument("--dtypes", default=",".join(DTYPES))
    parser.add_argument("--limit", type=int, default=1000, help="samples per operator and dtype")
    parser.add_argument("--compiled", action="store_true", help="compare the second call of the compiled function")
    parser.add_argument("--verbose", action="store_true", help="print every failing sample")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    names = set(filter(None, options.names.split(",")))
    return 1 if run(names, options.dtypes.split(","), options.limit, options.verbose, options.compiled) else 0


if __name__ == "__main__":
    sys.exit(main())
