"""The part of PyTorch's own test tools that libraries' tests take."""

from __future__ import annotations

import unittest

import pytest

import tracecomp as tc
from tracecomp.testing._internal.common_utils import (
    TestCase as Case,
)
from tracecomp.testing._internal.common_utils import (
    instantiate_parametrized_tests,
    parametrize,
    subtest,
)


@instantiate_parametrized_tests
class Some(Case):
    @parametrize("a", [1, subtest(2, name="two")])
    @parametrize("b,c", [(3, tc.float32)])
    def test_all(self, a: int, b: int, c: tc.dtype) -> None:
        self.assertLess(a, b)
        self.assertEqual(c, tc.float32)


def test_parametrized_methods_are_made_and_run() -> None:
    names = unittest.TestLoader().getTestCaseNames(Some)
    assert names == ["test_all_a_1_b_3_c_float32", "test_all_two_b_3_c_float32"]
    result = unittest.TestResult()
    unittest.TestLoader().loadTestsFromTestCase(Some).run(result)
    assert result.testsRun == 2 and result.wasSuccessful()


@pytest.mark.parametrize(
    ("x", "y", "same"),
    [
        (tc.ones(2), tc.ones(2), True), (tc.ones(2), tc.zeros(2), False), (tc.ones(2), tc.ones(2).double(), False),
        ([1, "a", tc.ones(2)], [1, "a", tc.ones(2)], True), ([tc.ones(2), "a"], [tc.zeros(2), "a"], False),
        ({"k": 1.0, "n": None}, {"k": 1.0, "n": None}, True), ("x", "y", False), (None, None, True),
        (0.1 + 0.2, 0.3, True), (tc.tensor(float("nan")), tc.tensor(float("nan")), True), (tc.Size([2]), (2,), True),
        ([1, 2], [1], False), (tc.tensor(3), 3, True),
    ],
)  # fmt: skip
def test_equal(x: object, y: object, same: bool) -> None:
    case = Case()
    (case.assertEqual if same else case.assertNotEqual)(x, y)
    with pytest.raises(AssertionError):
        (case.assertNotEqual if same else case.assertEqual)(x, y)
