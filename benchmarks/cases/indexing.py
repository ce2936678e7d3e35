"""Gather, scatter, embedding and its gradient, sort, top-k, cumulative sums."""

from __future__ import annotations

from typing import Any

from benchmarks.workload import Workload, inputs, integers, normal


def _embedding_gradient(lib: Any) -> Any:
    def f(table: Any, index: Any, g: Any) -> Any:
        leaf = table.detach().requires_grad_()
        return lib.autograd.grad(lib.nn.functional.embedding(index, leaf), leaf, g)[0]

    return f


def _embedding_gradient_jax(xp: Any) -> Any:
    return lambda table, index, g: xp.zeros_like(table).at[index].add(g)


def _row(name: str, make: Any, torch: Any, jax: Any, nbytes: float, **more: Any) -> Workload:
    return Workload("indexing", name, make, torch, jax, bytes=nbytes, **more)


def _top(k: int) -> Any:
    def of(xp: Any) -> Any:
        def f(x: Any) -> Any:
            import jax

            return jax.lax.top_k(x, k)

        return f

    return of


_SORTS = ((64, 1000), (1, 1_000_000), (4096, 64))
_SUMS = ((1000, 1000), (1, 1_000_000))

WORKLOADS = [
    _row(
        "embedding 32x128 of 50000x256", inputs(normal(50000, 256), integers(50000, 32, 128)),
        lambda lib: lambda t, i: lib.nn.functional.embedding(i, t), lambda xp: lambda t, i: t[i], 8 * 4096 * 256,
        tolerance=0,
    ),
    _row(
        "embedding gradient 32x128 of 5000x256",
        inputs(normal(5000, 256), integers(5000, 32, 128), normal(32, 128, 256)),
        _embedding_gradient, _embedding_gradient_jax, 4 * (4096 * 256 * 2 + 5000 * 256), export=False,
    ),
    _row(
        "gather 1024x256 along 1", inputs(normal(1024, 1024), integers(1024, 1024, 256)),
        lambda lib: lambda x, i: lib.gather(x, 1, i), lambda xp: lambda x, i: xp.take_along_axis(x, i, 1),
        16 * 1024 * 256, tolerance=0,
    ),
    _row(
        "gather 1M of 1M", inputs(normal(1_000_000), integers(1_000_000, 1_000_000)),
        lambda lib: lambda x, i: x[i], lambda xp: lambda x, i: x[i], 16e6, tolerance=0,
    ),
    _row(
        "scatter_add 1M into 10000", inputs(normal(10_000), integers(10_000, 1_000_000), normal(1_000_000)),
        lambda lib: lambda x, i, s: x.scatter_add(0, i, s), lambda xp: lambda x, i, s: x.at[i].add(s), 12e6,
        tolerance=1e-3,
    ),
    _row(
        "index_add 4096 rows of 1000x128",
        inputs(normal(1000, 128), integers(1000, 4096), normal(4096, 128)),
        lambda lib: lambda x, i, s: x.index_add(0, i, s), lambda xp: lambda x, i, s: x.at[i].add(s),
        4 * 4096 * 128, export=False,
    ),
    *(
        _row(
            f"sort {n}x{m}", inputs(normal(n, m)), lambda lib: lambda x: lib.sort(x, -1)[0],
            lambda xp: lambda x: xp.sort(x, -1), 8 * n * m, tolerance=0,
        )
        for n, m in _SORTS
    ),
    *(
        _row(
            f"top {k} of {n}x{m}", inputs(normal(n, m)), lambda lib, k=k: lambda x: tuple(lib.topk(x, k, -1)), _top(k),
            4 * n * m, tolerance=0,
        )
        for n, m, k in ((64, 1000, 5), (16, 50_000, 50))
    ),
    *(
        _row(
            f"cumsum {n}x{m}", inputs(normal(n, m)), lambda lib: lambda x: lib.cumsum(x, 1),
            lambda xp: lambda x: xp.cumsum(x, 1), 8 * n * m, tolerance=2e-3,
        )
        for n, m in _SUMS
    ),
    _row(
        "cumsum of columns 1000x1000", inputs(normal(1000, 1000)), lambda lib: lambda x: lib.cumsum(x, 0),
        lambda xp: lambda x: xp.cumsum(x, 0), 8e6, tolerance=2e-3,
    ),
]  # fmt: skip
