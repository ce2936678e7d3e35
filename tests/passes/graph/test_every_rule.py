"""Every rewrite rule has a case, whatever its file of ``passes/graph`` and its set of rules."""

from __future__ import annotations

import importlib
import pkgutil

from tests.passes.graph.test_algebra import ALGEBRA
from tests.passes.graph.test_rule_sets import CASES, DECOMPOSED
from tests.passes.graph.test_views import SHAPES
from tracecomp.passes import graph
from tracecomp.passes.graph.rewrite import Rules

BY_VALUES = {"roots_of_transform", "transform_as_convolution"}
"""The graphs of transforms are too long to write down: their results are compared (tests/compiled/test_fft.py)."""


def test_every_rule_has_a_case() -> None:
    modules = [
        importlib.import_module(f"{graph.__name__}.{found.name}") for found in pkgutil.iter_modules(graph.__path__)
    ]
    sets = [value for module in modules for value in vars(module).values() if isinstance(value, Rules)]
    rules = {name for rules in sets for name in rules.names()}
    assert rules - {case.rule for case in (*ALGEBRA, *SHAPES, *CASES, *DECOMPOSED)} == BY_VALUES
