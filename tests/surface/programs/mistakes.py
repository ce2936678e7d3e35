"""Mistakes that type checkers see: each line with the sign has one error, no other line has any."""

from __future__ import annotations

import tracecomp as torch
from tracecomp.nn import functional as F


def mistakes() -> None:
    x = torch.ones(2, 3)
    torch.sofmax(x, 0)  # error
    torch.nonexistent(3)  # error
    x.exponent()  # error
    torch.softmax(x, dim="last")  # error
    x.mean(keepdim=3.5, dim=[0])  # error
    torch.linalg.invert(x)  # error
    torch.linalg.inv(3)  # error
    F.cross_entrpy(x, x)  # error
    F.cross_entropy(x)  # error
    torch.zeros(2, dtype="float32")  # error
    values, indices, more = torch.max(x, 0)  # error
    number: int = torch.softmax(x, 0)  # error
    torch.softmax(x, 0).item()
    print(values, indices, more, number)
