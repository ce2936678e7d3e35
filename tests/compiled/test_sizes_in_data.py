"""Random programs that put sizes into data: lists, indices, ranges, numpy calls, float arithmetic, resampling."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest

import tracecomp as torch
from tracecomp.nn import functional as F

Array = np.ndarray[Any, Any]
SHAPES = [(5, 6), (7, 4), (8, 9)]

WHOLE: dict[str, Callable[[int, int], int]] = {
    "h": lambda h, w: h,
    "w": lambda h, w: w,
    "h - 1": lambda h, w: h - 1,
    "2 w + 1": lambda h, w: 2 * w + 1,
    "h w": lambda h, w: h * w,
    "h // 2": lambda h, w: h // 2,
    "-h": lambda h, w: -h,
}
REAL: dict[str, Callable[[int, int], float]] = {
    "h / 2": lambda h, w: h / 2,
    "h / w": lambda h, w: h / w,
    "1 / w": lambda h, w: 1 / w,
    "0.3 h - w": lambda h, w: 0.3 * h - w,
}
PLACES: dict[str, Callable[[int, int], int]] = {
    "0": lambda h, w: 0,
    "h - 1": lambda h, w: h - 1,
    "h // 2": lambda h, w: h // 2,
    "-1": lambda h, w: -1,
    "-h": lambda h, w: -h,
}


class Numbers(NamedTuple):
    """Numbers that follow from the sizes of an image: whole, real, and places along its first axis."""

    whole: list[int]
    real: list[float]
    places: list[int]


class Way(NamedTuple):
    """A way of sizes into data, with its meaning in numpy.

    ``follows`` is false if the values fix the sizes, so that each image size has a separate recording.
    """

    program: Callable[[Any, Numbers], Any]
    reference: Callable[[Array, Numbers], Any]
    follows: bool = True


def resample(x: Array, axis: int, want: int, kind: str) -> Array:
    """One axis of ``x``, resampled with pixels as areas, or between the centres of the outermost pixels (corners)."""
    have = x.shape[axis]
    at = (np.arange(want) + 0.5) * have / want - 0.5
    if kind == "nearest":
        return x.take(np.arange(want) * have // want, axis)
    if kind == "corners":
        at = np.arange(want) * ((have - 1) / (want - 1))
    return np.apply_along_axis(lambda row: np.interp(at, np.arange(have), row), axis, x)


def resized(x: Array, height: int, width: int, kind: str) -> Array:
    return resample(resample(x, 1, width, kind), 0, height, kind)


def pooled(x: Array, size: int, reduce: Callable[[Array], Any]) -> Array:
    """Regions of ``x`` reduced to a square grid."""

    def regions(n: int) -> list[slice]:
        return [slice(i * n // size, math.ceil((i + 1) * n / size)) for i in range(size)]

    return np.array([[reduce(x[rows, columns]) for columns in regions(x.shape[1])] for rows in regions(x.shape[0])])


def interpolated(x: Any, **options: Any) -> Any:
    return F.interpolate(x[None, None], **options)[0, 0]


def filled(x: Any, values: Sequence[float]) -> Any:
    y = x.clone()
    y[[0, x.shape[0] - 1]] = torch.tensor(values[:1])
    y[1, :2] = values[1]
    return y


def filled_array(x: Array, values: Sequence[float]) -> Array:
    y = x.copy()
    y[[0, x.shape[0] - 1]] = values[:1]
    y[1, :2] = values[1]
    return y


def largest(x: Array) -> float:
    return float(x.max())


WAYS: dict[str, Way] = {
    "tensor": Way(lambda x, n: torch.tensor(n.whole), lambda x, n: np.array(n.whole)),
    "tensor of a shape": Way(lambda x, n: torch.tensor(x.shape), lambda x, n: np.array(x.shape)),
    "tensor of rows": Way(lambda x, n: torch.tensor([n.whole, [1, 2, 3]]), lambda x, n: np.array([n.whole, [1, 2, 3]])),
    "tensor of a number": Way(lambda x, n: torch.tensor(n.whole[0]), lambda x, n: np.array(n.whole[0])),
    "tensor of reals": Way(
        lambda x, n: torch.tensor([*n.real, n.whole[0], 0.5]),
        lambda x, n: np.array([*n.real, n.whole[0], 0.5], np.float32),
    ),
    "tensor of doubles": Way(
        lambda x, n: torch.tensor([*n.whole, *n.real], dtype=torch.float64),
        lambda x, n: np.array([*n.whole, *n.real], np.float64),
    ),
    "short integers": Way(
        lambda x, n: torch.tensor(n.whole, dtype=torch.int32), lambda x, n: np.array(n.whole, np.int32), False
    ),
    "halves": Way(
        lambda x, n: torch.tensor(n.real, dtype=torch.float16), lambda x, n: np.array(n.real, np.float16), False
    ),
    "as_tensor": Way(lambda x, n: torch.as_tensor((n.whole[0], 3)), lambda x, n: np.array((n.whole[0], 3))),
    "new_tensor": Way(lambda x, n: x.new_tensor(n.whole).prod(), lambda x, n: np.prod(np.array(n.whole, np.float32))),
    "full": Way(lambda x, n: torch.full((3,), n.whole[0]), lambda x, n: np.full((3,), n.whole[0])),
    "full of reals": Way(
        lambda x, n: torch.full((x.shape[1],), n.real[0]), lambda x, n: np.full(x.shape[1], np.float32(n.real[0]))
    ),
    "new_full": Way(
        lambda x, n: x.new_full((2, x.shape[0]), n.whole[1]),
        lambda x, n: np.full((2, x.shape[0]), np.float32(n.whole[1])),
    ),
    "arange": Way(
        lambda x, n: torch.arange(x.shape[0]) / x.shape[1], lambda x, n: np.float32(np.arange(x.shape[0]) / x.shape[1])
    ),
    "linspace to a size": Way(
        lambda x, n: torch.linspace(0, x.shape[0] - 1, 5),
        lambda x, n: np.linspace(0, x.shape[0] - 1, 5, dtype=np.float32),
    ),
    "linspace of a size": Way(
        lambda x, n: torch.linspace(n.real[0], 1, x.shape[1]),
        lambda x, n: np.linspace(n.real[0], 1, x.shape[1], dtype=np.float32),
    ),
    "index list": Way(lambda x, n: x[n.places], lambda x, n: x[n.places]),
    "two index lists": Way(
        lambda x, n: x[n.places, [0, x.shape[1] - 1, -1]], lambda x, n: x[n.places, [0, x.shape[1] - 1, -1]]
    ),
    "index tensor": Way(lambda x, n: x.index_select(0, torch.tensor([0, x.shape[0] - 1])), lambda x, n: x[[0, -1]]),
    "assignment": Way(lambda x, n: filled(x, n.real), lambda x, n: filled_array(x, n.real)),
    "scale": Way(
        lambda x, n: x * (x.shape[0] / 7) + n.real[0],
        lambda x, n: x * np.float32(x.shape[0] / 7) + np.float32(n.real[0]),
    ),
    "where": Way(
        lambda x, n: torch.where(x > n.real[0], x, n.real[1]),
        lambda x, n: np.where(x > np.float32(n.real[0]), x, np.float32(n.real[1])),
    ),
    "numpy array": Way(lambda x, n: torch.from_numpy(np.array(n.whole)) * 2, lambda x, n: np.array(n.whole) * 2, False),
    "numpy range": Way(
        lambda x, n: torch.tensor(np.arange(x.shape[0]) * 0.5), lambda x, n: np.arange(x.shape[0]) * 0.5, False
    ),
    "square root": Way(
        lambda x, n: x / math.sqrt(x.shape[1]), lambda x, n: x / np.float32(math.sqrt(x.shape[1])), False
    ),
    "nearest, twice": Way(lambda x, n: interpolated(x, scale_factor=2), lambda x, n: x.repeat(2, 0).repeat(2, 1)),
    "nearest": Way(lambda x, n: interpolated(x, size=(17, 3)), lambda x, n: resized(x, 17, 3, "nearest")),
    "bilinear, twice": Way(
        lambda x, n: interpolated(x, scale_factor=2, mode="bilinear"),
        lambda x, n: resized(x, 2 * x.shape[0], 2 * x.shape[1], "areas"),
    ),
    "bilinear": Way(
        lambda x, n: interpolated(x, size=(17, 3), mode="bilinear"), lambda x, n: resized(x, 17, 3, "areas")
    ),
    "corners": Way(
        lambda x, n: interpolated(x, size=(x.shape[1], x.shape[0] + 3), mode="bilinear", align_corners=True),
        lambda x, n: resized(x, x.shape[1], x.shape[0] + 3, "corners"),
    ),
    "average of a grid": Way(
        lambda x, n: F.adaptive_avg_pool2d(x[None], 3)[0], lambda x, n: pooled(x, 3, np.mean), False
    ),
    "largest of a grid": Way(
        lambda x, n: F.adaptive_max_pool2d(x[None], 3)[0], lambda x, n: pooled(x, 3, largest), False
    ),
}


def numbers_of(source: random.Random) -> Callable[[Any], Numbers]:
    whole = [WHOLE[source.choice([*WHOLE])] for _ in range(3)]
    real = [REAL[source.choice([*REAL])] for _ in range(2)]
    places = [PLACES[source.choice([*PLACES])] for _ in range(3)]

    def numbers(x: Any) -> Numbers:
        h, w = x.shape
        return Numbers([f(h, w) for f in whole], [f(h, w) for f in real], [f(h, w) for f in places])

    return numbers


def image(h: int, w: int) -> Array:
    return np.random.default_rng(h * w).standard_normal((h, w)).astype(np.float32)


def differences(names: Sequence[str], numbers: Callable[[Any], Numbers], dynamic: bool | None) -> list[str]:
    """Yield where the compiled program differs in bits from the eager one, or from numpy, or records too often."""

    def program(x: Any) -> list[Any]:
        return [WAYS[name].program(x, numbers(x)) for name in names]

    compiled = torch.compile(program, dynamic=dynamic)
    wrong = []
    for shape in SHAPES:
        x = image(*shape)
        results, eager = compiled(torch.tensor(x)), program(torch.tensor(x))
        for name, result, wanted in zip(names, results, eager, strict=True):
            reference = np.asarray(WAYS[name].reference(x, numbers(x)))
            array = result.numpy()
            if result.dtype is not wanted.dtype or array.shape != reference.shape:
                wrong.append(f"{name}, {shape}: {result.dtype} {array.shape}")
            elif array.tobytes() != wanted.numpy().tobytes():
                wrong.append(f"{name}, {shape}: {array} instead of {wanted}")
            elif not np.allclose(array, reference, rtol=1e-4, atol=1e-5):
                wrong.append(f"{name}, {shape}: {array}, in numpy {reference}")
    if all(WAYS[name].follows for name in names):
        for h in (10, 11, 12):
            compiled(torch.tensor(image(h, 13)))
        if compiled.recordings > 3:
            wrong.append(f"{compiled.recordings} recordings: {compiled.misses}")
    return wrong


@pytest.mark.sampled(6)
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", WAYS)
def test_each_way(name: str, dynamic: bool | None) -> None:
    assert not differences([name], numbers_of(random.Random(name)), dynamic)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("seed", range(40))
def test_random_programs(seed: int) -> None:
    source = random.Random(seed)
    names = source.sample([*WAYS], source.randint(2, 4))
    wrong = differences(names, numbers_of(source), source.choice([None, True]))
    assert not wrong, (names, wrong)
