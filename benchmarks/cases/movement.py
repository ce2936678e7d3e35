"""Transposes, copies, concatenation."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.workload import Workload, inputs, normal


def _permute(shape: tuple[int, ...], dims: tuple[int, ...]) -> Workload:
    label = "x".join(map(str, shape))
    return Workload(
        "movement", f"transpose {label} to {''.join(map(str, dims))}", inputs(normal(*shape)),
        lambda lib: lambda x: x.permute(dims).contiguous(), lambda xp: lambda x: xp.transpose(x, dims),
        bytes=8 * np.prod(shape).item(), tolerance=0,
    )  # fmt: skip


def _simple(name: str, shapes: tuple[tuple[int, ...], ...], torch: Any, jax: Any, nbytes: float) -> Workload:
    return Workload("movement", name, inputs(*(normal(*s) for s in shapes)), torch, jax, bytes=nbytes, tolerance=0)


WORKLOADS = [
    _permute((512, 512), (1, 0)),
    _permute((2048, 2048), (1, 0)),
    _permute((1000, 77), (1, 0)),
    _permute((32, 64, 56, 56), (0, 2, 3, 1)),
    _permute((8, 128, 4, 32), (0, 2, 1, 3)),
    _simple(
        "copy 4M", ((4_000_000,),), lambda lib: lambda x: x.clone(), lambda xp: lambda x: xp.array(x, copy=True), 32e6
    ),
    _simple(
        "concatenate 3 of 1024x256", ((1024, 256),) * 3,
        lambda lib: lambda *each: lib.cat(each, 1), lambda xp: lambda *each: xp.concatenate(each, 1), 24 * 1024 * 256,
    ),
    _simple(
        "flip 1024x1024", ((1024, 1024),), lambda lib: lambda x: x.flip(1), lambda xp: lambda x: xp.flip(x, 1),
        8 * 1024**2,
    ),
    _simple(
        "pad 32x16x56x56 by 1", ((32, 16, 56, 56),), lambda lib: lambda x: lib.nn.functional.pad(x, (1, 1, 1, 1)),
        lambda xp: lambda x: xp.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), 4 * 512 * (56 * 56 + 58 * 58),
    ),
]  # fmt: skip
