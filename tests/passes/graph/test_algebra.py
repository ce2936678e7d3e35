"""Rules of scalar algebra: before and after, and the same bits."""

from __future__ import annotations

import pytest

from tests.passes.cases import Case, check
from tracecomp.passes.graph import rule_sets

ALGEBRA = [
    Case(
        "constant_on_the_right",
        "x:f32[3]",
        "%0 = add(2.0:f32, %x) : f32[3]",
        "%0 = add(%x, 2.0:f32) : f32[3]",
    ),
    Case(
        "constant_right_of_comparison",
        "x:f32[3]",
        "%0 = lt(2.0:f32, %x) : b1[3]",
        "%0 = gt(%x, 2.0:f32) : b1[3]",
    ),
    Case(
        "right_identity",
        "x:f32[3]",
        "%0 = mul(%x, 1.0:f32) : f32[3]",
        "%x",
    ),
    Case(
        "right_identity",
        "x:f32[3]",
        """%0 = sub(%x, 0.0:f32) : f32[3]
        %1 = add(%0, -0.0:f32) : f32[3]
        %2 = maximum(%1, -inf:f32) : f32[3] """,
        "%x",
    ),
    Case(
        "zero_added_to_no_minus_zero",
        "x:f32[3,2]",
        """%0 = sum(%x) {axes=[1]} : f32[3]
        %1 = add(%0, 0.0:f32) : f32[3] """,
        "%0 = sum(%x) {axes=[1]} : f32[3]",
    ),
    Case(
        "absorbed_by_zero",
        "x:i32[3]",
        "%0 = mul(%x, 0:i32) : i32[3]",
        "%0 = full() {dtype=i32, shape=[3], value=0} : i32[3]",
    ),
    Case(
        "absorbed_by_ones",
        "x:i64[3]",
        "%0 = bitwise_or(%x, -1:i64) : i64[3]",
        "%0 = full() {dtype=i64, shape=[3], value=-1} : i64[3]",
    ),
    Case(
        "involution",
        "x:f32[3]",
        """%0 = neg(%x) : f32[3]
        %1 = neg(%0) : f32[3] """,
        "%x",
    ),
    Case(
        "idempotent_unary",
        "x:f32[3]",
        """%0 = abs(%x) : f32[3]
        %1 = abs(%0) : f32[3] """,
        "%0 = abs(%x) : f32[3]",
    ),
    Case(
        "rounding_of_whole_numbers",
        "x:f32[3]",
        """%0 = round(%x) : f32[3]
        %1 = floor(%0) : f32[3] """,
        "%0 = round(%x) : f32[3]",
    ),
    Case(
        "idempotent_binary",
        "x:f32[3] y:f32[3]",
        """%0 = maximum(%x, %y) : f32[3]
        %1 = maximum(%0, %y) : f32[3] """,
        "%0 = maximum(%x, %y) : f32[3]",
    ),
    Case(
        "abs_of_neg",
        "x:f32[3]",
        """%0 = neg(%x) : f32[3]
        %1 = abs(%0) : f32[3] """,
        "%0 = abs(%x) : f32[3]",
    ),
    Case(
        "square_of_abs",
        "x:f32[11]",
        """%0 = abs(%x) : f32[11]
        %1 = mul(%0, %0) : f32[11] """,
        "%0 = mul(%x, %x) : f32[11]",
    ),
    Case(
        "square_of_abs",
        "x:i8[11]",
        """%0 = abs(%x) : i8[11]
        %1 = mul(%0, %0) : i8[11] """,
        "%0 = mul(%x, %x) : i8[11]",
    ),
    Case(
        "add_of_neg",
        "x:f32[3] y:f32[3]",
        """%0 = neg(%x) : f32[3]
        %1 = add(%0, %y) : f32[3] """,
        "%0 = sub(%y, %x) : f32[3]",
    ),
    Case(
        "product_of_negs",
        "x:f32[3] y:f32[3]",
        """%0 = neg(%x) : f32[3]
        %1 = neg(%y) : f32[3]
        %2 = mul(%0, %1) : f32[3] """,
        "%0 = mul(%x, %y) : f32[3]",
    ),
    Case(
        "product_of_negs",
        "x:f32[3]",
        """%0 = neg(%x) : f32[3]
        %1 = div(%0, 3.0:f32) : f32[3] """,
        "%0 = div(%x, -3.0:f32) : f32[3]",
    ),
    Case(
        "mul_by_minus_one",
        "x:f32[3]",
        "%0 = mul(%x, -1.0:f32) : f32[3]",
        "%0 = neg(%x) : f32[3]",
    ),
    Case(
        "neg_of_scaled",
        "x:f32[3]",
        """%0 = mul(%x, 3.0:f32) : f32[3]
        %1 = neg(%0) : f32[3] """,
        "%0 = mul(%x, -3.0:f32) : f32[3]",
    ),
    Case(
        "div_by_power_of_two",
        "x:f32[3]",
        "%0 = div(%x, 8.0:f32) : f32[3]",
        "%0 = mul(%x, 0.125:f32) : f32[3]",
    ),
    Case(
        "integer_minus_itself",
        "x:i32[3]",
        "%0 = sub(%x, %x) : i32[3]",
        "%0 = full() {dtype=i32, shape=[3], value=0} : i32[3]",
    ),
    Case(
        "comparison_with_itself",
        "x:f32[3]",
        "%0 = lt(%x, %x) : b1[3]",
        "%0 = full() {dtype=b1, shape=[3], value=false} : b1[3]",
    ),
    Case(
        "comparison_of_bool_with_constant",
        "x:b1[3]",
        """%0 = cast(%x) {dtype=f32} : f32[3]
        %1 = eq(%0, 0.0:f32) : b1[3] """,
        "%0 = logical_not(%x) : b1[3]",
    ),
    Case(
        "negated_comparison",
        "x:f32[3] y:f32[3]",
        """%0 = eq(%x, %y) : b1[3]
        %1 = logical_not(%0) : b1[3] """,
        "%0 = ne(%x, %y) : b1[3]",
    ),
    Case(
        "negated_comparison",
        "x:i32[3] y:i32[3]",
        """%0 = lt(%x, %y) : b1[3]
        %1 = logical_not(%0) : b1[3] """,
        "%0 = ge(%x, %y) : b1[3]",
    ),
    Case(
        "where_of_constant",
        "x:f32[3] y:f32[2,3]",
        "%0 = where(true:b1, %x, %y) : f32[2,3]",
        "%0 = expand(%x) {shape=[2, 3]} : f32[2,3]",
    ),
    Case(
        "where_of_equals",
        "c:b1[2,3] x:f32[3]",
        "%0 = where(%c, %x, %x) : f32[2,3]",
        "%0 = expand(%x) {shape=[2, 3]} : f32[2,3]",
    ),
    Case(
        "where_of_not",
        "c:b1[3] x:f32[3] y:f32[3]",
        """%0 = logical_not(%c) : b1[3]
        %1 = where(%0, %x, %y) : f32[3] """,
        "%0 = where(%c, %y, %x) : f32[3]",
    ),
    Case(
        "where_of_where",
        "c:b1[3] x:f32[3] y:f32[3] z:f32[3]",
        """%0 = where(%c, %x, %y) : f32[3]
        %1 = where(%c, %0, %z) : f32[3] """,
        "%0 = where(%c, %x, %z) : f32[3]",
    ),
    Case(
        "where_of_bools",
        "c:b1[3]",
        "%0 = where(%c, 0.0:f32, 1.0:f32) : f32[3]",
        """%0 = logical_not(%c) : b1[3]
        %1 = cast(%0) {dtype=f32} : f32[3] """,
    ),
    Case(
        "cast_to_itself",
        "x:f32[3]",
        "%0 = cast(%x) {dtype=f32} : f32[3]",
        "%x",
    ),
    Case(
        "cast_of_cast",
        "x:f32[3]",
        """%0 = cast(%x) {dtype=f64} : f64[3]
        %1 = cast(%0) {dtype=f32} : f32[3] """,
        "%x",
    ),
    Case(
        "cast_of_cast",
        "x:i64[3]",
        """%0 = cast(%x) {dtype=i32} : i32[3]
        %1 = cast(%0) {dtype=i8} : i8[3] """,
        "%0 = cast(%x) {dtype=i8} : i8[3]",
    ),
    Case(
        "cast_to_bool_of_mask",
        "x:f32[3]",
        "%0 = cast(%x) {dtype=b1} : b1[3]",
        "%0 = ne(%x, 0.0:f32) : b1[3]",
    ),
    Case(
        "cast_of_iota",
        "x:f32[3]",
        """%0 = iota() {axis=0, dtype=i64, shape=[3]} : i64[3]
        %1 = cast(%0) {dtype=i32} : i32[3] """,
        "%0 = iota() {axis=0, dtype=i32, shape=[3]} : i32[3]",
    ),
]


@pytest.mark.parametrize("case", ALGEBRA, ids=lambda c: c.rule)
def test_rewrites(case: Case) -> None:
    check(case, rule_sets.simplify)
