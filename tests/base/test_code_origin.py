"""Ownership of functions and classes: files decide, and names do not."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

import tracecomp as tc
from tracecomp.base.code_origin import is_own, is_own_module, is_pythons_module, is_pytorchs, own_name, torch_name
from tracecomp.nn.module import typename


def decorated(fn: Any) -> Any:
    @functools.wraps(fn)
    def run(*args: Any) -> Any:
        return fn(*args)

    return run


class Mine(tc.nn.Linear):
    forward = decorated(tc.nn.Linear.forward)

    @tc.no_grad()
    def run(self, x: tc.Tensor) -> tc.Tensor:
        return self.forward(x)


def test_functions_of_the_package_are_its_own() -> None:
    for value in (tc.relu, tc.Tensor.relu, tc.nn.functional.gelu, tc.nn.Linear, tc.nn.Linear(1, 1).forward, tc.Size):
        assert is_own(value), value


def test_what_wraps_or_is_wrapped_by_code_of_the_program_is_the_programs() -> None:
    assert decorated(tc.relu).__module__ == tc.relu.__module__
    for value in (
        decorated(tc.relu),
        Mine.forward,
        Mine.run,
        Mine(1, 1).run,
        Mine,
        tc.no_grad()(lambda: None),
        len,
        np,
    ):
        assert not is_own(value), value


def test_a_name_that_begins_like_the_packages_is_not_its_own() -> None:
    assert is_own_module("tracecomp.nn") and not is_own_module("tracecomp_tools.nn") and not is_own_module(None)
    assert torch_name("tracecomp_tools") == "tracecomp_tools" and torch_name("tracecomp.nn") == "torch.nn"
    assert own_name("torchvision.ops") == "torchvision.ops" and own_name("torch.nn") == "tracecomp.nn"


def test_names_of_pytorch_are_its_own_where_the_package_does_not_have_them() -> None:
    """The name alone makes this class PyTorch's: no module of this package is imported as ``torch``."""
    theirs = type("Linear", (), {"__module__": "torch.nn.modules.linear"})
    assert is_pytorchs(theirs) and not is_own(theirs)
    assert typename(theirs()) == "PyTorch's Linear"


def test_modules_of_python_and_numpy() -> None:
    assert is_pythons_module("numpy.linalg") and is_pythons_module("collections") and not is_pythons_module("__main__")
    assert not is_pythons_module(None) and not is_pythons_module("scipy")
