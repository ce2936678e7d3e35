"""Rules of views, pads and exact reductions: before and after, and the same bits."""

from __future__ import annotations

import pytest

from tests.passes.cases import Case, check
from tracecomp.passes.graph import rule_sets

SHAPES = [
    Case(
        "view_of_same_shape",
        "x:f32[3]",
        "%0 = reshape(%x) {shape=[3]} : f32[3]",
        "%x",
    ),
    Case(
        "permute_of_nothing",
        "x:f32[2,3]",
        "%0 = permute(%x) {dims=[0, 1]} : f32[2,3]",
        "%x",
    ),
    Case(
        "slice_of_everything",
        "x:f32[3]",
        "%0 = slice(%x) {starts=[0], steps=[1], stops=[3]} : f32[3]",
        "%x",
    ),
    Case(
        "update_of_everything",
        "x:f32[3] y:f32[3]",
        "%0 = slice_update(%x, %y) {starts=[0], steps=[1], stops=[3]} : f32[3]",
        "%y",
    ),
    Case(
        "flip_of_nothing",
        "x:f32[1,3]",
        "%0 = flip(%x) {axes=[0, 1]} : f32[1,3]",
        "%0 = flip(%x) {axes=[1]} : f32[1,3]",
    ),
    Case(
        "view_of_constant",
        "x:f32[2,3]",
        """%0 = full() {dtype=f32, shape=[3, 2], value=2.5} : f32[3,2]
        %1 = permute(%0) {dims=[1, 0]} : f32[2,3]
        %2 = exp(%1) : f32[2,3] """,
        """%0 = full() {dtype=f32, shape=[2, 3], value=2.5} : f32[2,3]
        %1 = exp(%0) : f32[2,3] """,
    ),
    Case(
        "reshape_of_reshape",
        "x:f32[6]",
        """%0 = reshape(%x) {shape=[2, 3]} : f32[2,3]
        %1 = reshape(%0) {shape=[3, 2]} : f32[3,2] """,
        "%0 = reshape(%x) {shape=[3, 2]} : f32[3,2]",
    ),
    Case(
        "expand_of_expand",
        "x:f32[1]",
        """%0 = expand(%x) {shape=[2, 1]} : f32[2,1]
        %1 = expand(%0) {shape=[2, 3]} : f32[2,3] """,
        "%0 = expand(%x) {shape=[2, 3]} : f32[2,3]",
    ),
    Case(
        "expand_of_leading_ones",
        "x:f32[3]",
        """%0 = reshape(%x) {shape=[1, 1, 3]} : f32[1,1,3]
        %1 = expand(%0) {shape=[2, 4, 3]} : f32[2,4,3] """,
        "%0 = expand(%x) {shape=[2, 4, 3]} : f32[2,4,3]",
    ),
    Case(
        "permute_of_permute",
        "x:f32[2,3,4]",
        """%0 = permute(%x) {dims=[1, 2, 0]} : f32[3,4,2]
        %1 = permute(%0) {dims=[1, 0, 2]} : f32[4,3,2] """,
        "%0 = permute(%x) {dims=[2, 1, 0]} : f32[4,3,2]",
    ),
    Case(
        "permute_of_permute",
        "x:f32[2,3,4,5]",
        """%0 = permute(%x) {dims=[1, 2, 0, 3]} : f32[3,4,2,5]
        %1 = reshape(%0) {shape=[3, 8, 5]} : f32[3,8,5]
        %2 = permute(%1) {dims=[1, 2, 0]} : f32[8,5,3] """,
        """%0 = permute(%x) {dims=[2, 0, 3, 1]} : f32[4,2,5,3]
        %1 = reshape(%0) {shape=[8, 5, 3]} : f32[8,5,3] """,
    ),
    Case(
        "permute_of_ones",
        "x:f32[2,1,3]",
        "%0 = permute(%x) {dims=[1, 0, 2]} : f32[1,2,3]",
        "%0 = reshape(%x) {shape=[1, 2, 3]} : f32[1,2,3]",
    ),
    Case(
        "slice_in_normal_form",
        "x:f32[7]",
        "%0 = slice(%x) {starts=[1], steps=[3], stops=[7]} : f32[2]",
        "%0 = slice(%x) {starts=[1], steps=[3], stops=[5]} : f32[2]",
    ),
    Case(
        "slice_of_slice",
        "x:f32[9]",
        """%0 = slice(%x) {starts=[1], steps=[2], stops=[8]} : f32[4]
        %1 = slice(%0) {starts=[1], steps=[1], stops=[3]} : f32[2] """,
        "%0 = slice(%x) {starts=[3], steps=[2], stops=[6]} : f32[2]",
    ),
    Case(
        "slice_of_expand",
        "x:f32[1,5]",
        """%0 = expand(%x) {shape=[4, 5]} : f32[4,5]
        %1 = slice(%0) {starts=[1, 2], steps=[1, 1], stops=[3, 4]} : f32[2,2] """,
        """%0 = slice(%x) {starts=[0, 2], steps=[1, 1], stops=[1, 4]} : f32[1,2]
        %1 = expand(%0) {shape=[2, 2]} : f32[2,2] """,
    ),
    Case(
        "slice_of_pad",
        "x:f32[5]",
        """%0 = pad(%x) {high=[1], interior=[0], low=[2], value=0.0} : f32[8]
        %1 = slice(%0) {starts=[3], steps=[1], stops=[6]} : f32[3] """,
        "%0 = slice(%x) {starts=[1], steps=[1], stops=[4]} : f32[3]",
    ),
    Case(
        "slice_of_concat",
        "x:f32[3] y:f32[4]",
        """%0 = concat(%x, %y) {axis=0} : f32[7]
        %1 = slice(%0) {starts=[4], steps=[1], stops=[6]} : f32[2] """,
        "%0 = slice(%y) {starts=[1], steps=[1], stops=[3]} : f32[2]",
    ),
    Case(
        "squeezed_permute",
        "x:f32[2,1,3]",
        """%0 = permute(%x) {dims=[2, 1, 0]} : f32[3,1,2]
        %1 = reshape(%0) {shape=[3, 2]} : f32[3,2] """,
        """%0 = reshape(%x) {shape=[2, 3]} : f32[2,3]
        %1 = permute(%0) {dims=[1, 0]} : f32[3,2] """,
    ),
    Case(
        "squeezed_windows",
        "x:f32[1,5]",
        """%0 = windows(%x) {dilations=[1], sizes=[3], strides=[1]} : f32[1,3,3]
        %1 = reshape(%0) {shape=[3, 3]} : f32[3,3] """,
        """%0 = reshape(%x) {shape=[5]} : f32[5]
        %1 = windows(%0) {dilations=[1], sizes=[3], strides=[1]} : f32[3,3] """,
    ),
    Case(
        "flip_of_flip",
        "x:f32[2,3]",
        """%0 = flip(%x) {axes=[0, 1]} : f32[2,3]
        %1 = flip(%0) {axes=[1]} : f32[2,3] """,
        "%0 = flip(%x) {axes=[0]} : f32[2,3]",
    ),
    Case(
        "pad_by_nothing",
        "x:f32[3]",
        "%0 = pad(%x) {high=[0], interior=[0], low=[0], value=0.0} : f32[3]",
        "%x",
    ),
    Case(
        "pad_that_cuts",
        "x:f32[5]",
        "%0 = pad(%x) {high=[-1], interior=[0], low=[-2], value=0.0} : f32[2]",
        "%0 = slice(%x) {starts=[2], steps=[1], stops=[4]} : f32[2]",
    ),
    Case(
        "pad_of_pad",
        "x:f32[3]",
        """%0 = pad(%x) {high=[1], interior=[1], low=[0], value=0.0} : f32[6]
        %1 = pad(%0) {high=[2], interior=[0], low=[1], value=0.0} : f32[9] """,
        "%0 = pad(%x) {high=[3], interior=[1], low=[1], value=0.0} : f32[9]",
    ),
    Case(
        "pad_of_same_constant",
        "x:f32[4]",
        """%0 = full() {dtype=f32, shape=[3], value=0.0} : f32[3]
        %1 = pad(%0) {high=[1], interior=[0], low=[0], value=0.0} : f32[4]
        %2 = add(%x, %1) : f32[4] """,
        "%0 = add(%x, 0.0:f32) : f32[4]",
    ),
    Case(
        "sum_of_pads",
        "x:f32[2] y:f32[3]",
        """%0 = pad(%x) {high=[4], interior=[0], low=[0], value=0.0} : f32[6]
        %1 = pad(%y) {high=[0], interior=[0], low=[3], value=0.0} : f32[6]
        %2 = add(%1, %0) : f32[6] """,
        """%0 = full() {dtype=f32, shape=[1], value=0.0} : f32[1]
        %1 = concat(%x, %0, %y) {axis=0} : f32[6]
        %2 = add(%1, 0.0:f32) : f32[6] """,
    ),
    Case(
        "concat_of_parts",
        "x:f32[2] y:f32[0] z:f32[3]",
        """%0 = concat(%x, %y) {axis=0} : f32[2]
        %1 = concat(%0, %z) {axis=0} : f32[5] """,
        "%0 = concat(%x, %z) {axis=0} : f32[5]",
    ),
    Case(
        "concat_of_neighbours",
        "x:f32[8]",
        """%0 = slice(%x) {starts=[0], steps=[1], stops=[3]} : f32[3]
        %1 = slice(%x) {starts=[3], steps=[1], stops=[8]} : f32[5]
        %2 = concat(%0, %1) {axis=0} : f32[8] """,
        "%x",
    ),
    Case(
        "reduction_of_ones",
        "x:f32[3,1]",
        "%0 = sum(%x) {axes=[1]} : f32[3]",
        """%0 = reshape(%x) {shape=[3]} : f32[3]
        %1 = add(%0, 0.0:f32) : f32[3] """,
    ),
    Case(
        "reduction_of_ones",
        "x:f32[3,1]",
        "%0 = sum(%x) {axes=[0, 1]} : f32[]",
        """%0 = reshape(%x) {shape=[3]} : f32[3]
        %1 = sum(%0) {axes=[0]} : f32[] """,
    ),
    Case(
        "reduction_of_ones",
        "x:f32[3,1]",
        "%0 = max(%x) {axes=[1]} : f32[3]",
        "%0 = reshape(%x) {shape=[3]} : f32[3]",
    ),
    Case(
        "argument_among_one",
        "x:f32[3,1]",
        "%0 = argmax(%x) {axes=[1]} : i64[3]",
        "%0 = full() {dtype=i64, shape=[3], value=0} : i64[3]",
    ),
    Case(
        "reduction_of_reduction",
        "x:f32[2,3,4]",
        """%0 = max(%x) {axes=[1]} : f32[2,4]
        %1 = max(%0) {axes=[1]} : f32[2] """,
        "%0 = max(%x) {axes=[1, 2]} : f32[2]",
    ),
    Case(
        "exact_reduction_of_expand",
        "x:f32[3,1]",
        """%0 = expand(%x) {shape=[2, 3, 4]} : f32[2,3,4]
        %1 = max(%0) {axes=[0, 2]} : f32[3] """,
        "%0 = reshape(%x) {shape=[3]} : f32[3]",
    ),
    Case(
        "exact_reduction_of_permute",
        "x:f32[2,3,4]",
        """%0 = permute(%x) {dims=[2, 0, 1]} : f32[4,2,3]
        %1 = max(%0) {axes=[1]} : f32[4,3] """,
        """%0 = max(%x) {axes=[0]} : f32[3,4]
        %1 = permute(%0) {dims=[1, 0]} : f32[4,3] """,
    ),
    Case(
        "gather_of_slices",
        "x:f32[6,2] i:u8[3,1]",
        """%0 = cast(%i) {dtype=i64} : i64[3,1]
        %1 = expand(%0) {shape=[3, 2]} : i64[3,2]
        %2 = gather(%x, %1) {axis=0} : f32[3,2] """,
        """%0 = cast(%i) {dtype=i64} : i64[3,1]
        %1 = reshape(%0) {shape=[3]} : i64[3]
        %2 = take(%x, %1) {axis=0} : f32[3,2] """,
    ),
    Case(
        "scatter_of_slices",
        "x:f32[2,6] i:u8[7] y:f32[2,7]",
        """%0 = cast(%i) {dtype=i64} : i64[7]
        %1 = expand(%0) {shape=[2, 7]} : i64[2,7]
        %2 = scatter(%x, %1, %y) {axis=1, mode="add"} : f32[2,6] """,
        """%0 = cast(%i) {dtype=i64} : i64[7]
        %1 = put(%x, %0, %y) {axis=1, mode="add"} : f32[2,6] """,
    ),
    Case(
        "scatter_of_one_into_a_number",
        "i:u8[2,1] x:f32[2,1]",
        """%0 = cast(%i) {dtype=i64} : i64[2,1]
        %1 = full() {dtype=f32, shape=[2, 9], value=-2.5} : f32[2,9]
        %2 = scatter(%1, %0, %x) {axis=1, mode="max"} : f32[2,9] """,
        """%0 = cast(%i) {dtype=i64} : i64[2,1]
        %1 = iota() {axis=0, dtype=i32, shape=[9]} : i32[9]
        %2 = take(%1, %0) {axis=0} : i32[2,1]
        %3 = reshape(%1) {shape=[1, 9]} : i32[1,9]
        %4 = maximum(%x, -2.5:f32) : f32[2,1]
        %5 = eq(%3, %2) : b1[2,9]
        %6 = where(%5, %4, -2.5:f32) : f32[2,9] """,
    ),
    Case(
        "elementwise_of_expanded",
        "x:f32[3] y:f32[2,3]",
        """%0 = expand(%x) {shape=[2, 3]} : f32[2,3]
        %1 = exp(%0) : f32[2,3]
        %2 = add(%1, %y) : f32[2,3] """,
        """%0 = exp(%x) : f32[3]
        %1 = add(%0, %y) : f32[2,3] """,
    ),
    Case(
        "elementwise_of_filled",
        "x:f32[3]",
        """%0 = full() {dtype=f32, shape=[3], value=2.5} : f32[3]
        %1 = add(%x, %0) : f32[3] """,
        "%0 = add(%x, 2.5:f32) : f32[3]",
    ),
]


@pytest.mark.parametrize("case", SHAPES, ids=lambda c: c.rule)
def test_rewrites(case: Case) -> None:
    check(case, rule_sets.simplify)
