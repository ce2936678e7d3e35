"""Compare compiled with eager calls on torch's sample inputs (OpInfo): results and gradients.

    python tests/opinfo/run_compiled.py [--names add,sum] [--backend native] [--limit 3] [--verbose]

Each sample is called eagerly, then three times compiled (recorded, compiled, run again) on fresh inputs.
"""

from __future__ import annotations

import argparse
import collections
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.testing._internal.common_methods_invocations import op_db

sys.path.insert(0, str(Path(__file__).parent))
from run_opinfo import DTYPES, OUT_OF_SCOPE, RANDOM, Unsupported, convert, function, leaves  # type: ignore[import-not-found]

import tracecomp

# Importing the samples forbids setting flags of torch.backends, which other tests of the same process do.
torch.backends.flags_frozen.__globals__["__allow_nonbracketed_mutation_flag"] = True


def arguments(sample: Any) -> tuple[list[Any], dict[str, Any]]:
    memo: dict[int, Any] = {}
    args = [convert(a, memo) for a in (sample.input, *sample.args)]
    return args, {k: convert(v, memo) for k, v in sample.kwargs.items()}


def called(fn: Any, sample: Any) -> list[Any]:
    """Results and gradients of one call as arrays."""
    args, kwargs = arguments(sample)
    results = [r for r in leaves(fn(*args, **kwargs)) if isinstance(r, tracecomp.Tensor)]
    wanted = [x for x in leaves([args, kwargs]) if isinstance(x, tracecomp.Tensor) and x.requires_grad and x.is_leaf]
    outs = [r for r in results if r.requires_grad]
    found = [r.detach().numpy().copy() for r in results]
    if outs and wanted:
        weights = [tracecomp.full(tuple(o.shape), 0.5, dtype=o.dtype) for o in outs]
        grads = tracecomp.autograd.grad(outs, wanted, weights, allow_unused=True)
        found += [g.numpy().copy() for g in grads if g is not None]
    return found


def compare(fn: Any, sample: Any, backend: str) -> str | None:
    """Return the difference; None if the results agree, or if the sample fails eagerly too."""
    try:
        want = called(fn, sample)
    except Exception:
        return None
    compiled = tracecomp.compile(lambda *args, **kwargs: fn(*args, **kwargs), backend=backend)
    for call in range(3):
        try:
            got = called(compiled, sample)
        except Exception as error:
            return f"call {call}: {type(error).__name__}: {error}".split("\n")[0]
        if len(got) != len(want):
            return f"call {call}: {len(got)} arrays instead of {len(want)}"
        for a, b in zip(got, want, strict=True):
            tolerance = {"float64": 1e-9, "float16": 1e-2}.get(b.dtype.name, 1e-4)
            if a.shape != b.shape or a.dtype != b.dtype:
                return f"call {call}: {a.dtype}{list(a.shape)} instead of {b.dtype}{list(b.shape)}"
            if not np.allclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True):
                return f"call {call}: values differ: {a.ravel()[:3]} instead of {b.ravel()[:3]}"
    return None


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--names", default="")
    parser.add_argument("--dtypes", default="float32")
    parser.add_argument("--backend", default="native")
    parser.add_argument("--limit", type=int, default=3)
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    failures: dict[str, list[str]] = collections.defaultdict(list)
    total = 0
    for info in op_db:
        name = f"{info.name}/{info.variant_test_name}".rstrip("/")
        skipped = any(s in info.name for s in (*OUT_OF_SCOPE, *RANDOM))
        if skipped or (options.names and info.name not in options.names.split(",")):
            continue
        fn = function(info.name, info.variant_test_name)
        for dtype in (DTYPES[d] for d in options.dtypes.split(",")):
            if fn is None or dtype not in info.supported_dtypes("cpu"):
                continue
            grads = dtype.is_floating_point and info.supports_autograd
            for number, sample in enumerate(info.sample_inputs("cpu", dtype, requires_grad=grads)):
                if number >= options.limit:
                    break
                try:
                    text = compare(fn, sample, options.backend)
                except Unsupported:
                    continue
                total += 1
                if text:
                    failures[name].append(f"{dtype}: {text}")
                    if options.verbose:
                        print(f"{name}: {text}", flush=True)
    for name, texts in sorted(failures.items(), key=lambda item: -len(item[1])):
        print(f"{len(texts):3} {name}: {texts[0][:180]}")
    print(f"{total - sum(map(len, failures.values()))} of {total} samples agree, {len(failures)} names fail")


if __name__ == "__main__":
    torch.manual_seed(0)
    main()
