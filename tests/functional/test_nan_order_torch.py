"""NaN is the greatest of all numbers wherever elements are ordered, of every floating dtype, against torch."""

from __future__ import annotations

from typing import Any

import pytest

from tests.functional.reference import same

ORDERS = {
    "sort": lambda x: tuple(x.sort(stable=True)),
    "sort downwards": lambda x: tuple(x.sort(stable=True, descending=True)),
    "topk": lambda x: x.topk(4).values,
    "least of topk": lambda x: x.topk(4, largest=False).values,
    "kthvalue": lambda x: x.kthvalue(3).values,
    "nanmedian": lambda x: x.nanmedian(),
    "unique": lambda x: x[:4].unique(),
}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("order", ORDERS)
def test_nan_is_the_greatest(order: str, dtype: str) -> None:
    def program(T: Any) -> Any:
        nan, inf = float("nan"), float("inf")
        x = T.tensor([nan, inf, 1.0, -inf, nan, 3.0], dtype=getattr(T, dtype))
        found = ORDERS[order](x)
        return tuple(y.double() for y in found) if isinstance(found, tuple) else found.double()

    same(program)
