"""Dimensions have no names, and libraries that ask get that answer."""

from __future__ import annotations

import tracecomp


def test_dimensions_have_no_names() -> None:
    x = tracecomp.ones(2, 3)
    assert x.names == (None, None) and x.has_names() is False
    assert tracecomp.nn.Parameter(x).has_names() is False
