"""Contractions, convolutions and long reductions brought to one spelling."""

from __future__ import annotations

import pytest

from tests.passes.cases import Case, check
from tracecomp.passes.graph import (
    constant_folding,
    rule_sets,
    split_reductions,
)

CASES = [
    Case(
        "contract_of_permuted",
        "x:f32[3,4] y:f32[3,5]",
        """%0 = permute(%x) {dims=[1, 0]} : f32[4,3]
        %1 = contract(%0, %y) {spec="mk,kn->mn"} : f32[4,5] """,
        '%0 = contract(%x, %y) {spec="km,kn->mn"} : f32[4,5]',
    ),
    Case(
        "contract_of_expanded",
        "x:f32[1,3,4] y:f32[2,4,5]",
        """%0 = expand(%x) {shape=[2, 3, 4]} : f32[2,3,4]
        %1 = contract(%0, %y) {spec="bmk,bkn->bmn"} : f32[2,3,5] """,
        """%0 = reshape(%x) {shape=[3, 4]} : f32[3,4]
        %1 = contract(%0, %y) {spec="mk,nku->nmu"} : f32[2,3,5] """,
    ),
    Case(
        "contract_without_ones",
        "x:f32[1,3,4] y:f32[1,4,5]",
        '%0 = contract(%x, %y) {spec="bmk,bkn->bmn"} : f32[1,3,5]',
        """%0 = reshape(%x) {shape=[3, 4]} : f32[3,4]
        %1 = reshape(%y) {shape=[4, 5]} : f32[4,5]
        %2 = contract(%0, %1) {spec="mk,kn->mn"} : f32[3,5]
        %3 = reshape(%2) {shape=[1, 3, 5]} : f32[1,3,5] """,
    ),
    Case(
        "contract_with_merged_labels",
        "x:f32[2,3,4] y:f32[4,5]",
        '%0 = contract(%x, %y) {spec="bsk,kn->bsn"} : f32[2,3,5]',
        """%0 = reshape(%x) {shape=[6, 4]} : f32[6,4]
        %1 = contract(%0, %y) {spec="mk,kn->mn"} : f32[6,5]
        %2 = reshape(%1) {shape=[2, 3, 5]} : f32[2,3,5] """,
    ),
    Case(
        "contract_without_sum",
        "x:f32[3] y:f32[4]",
        '%0 = contract(%x, %y) {spec="m,n->nm"} : f32[4,3]',
        """%0 = reshape(%x) {shape=[1, 3]} : f32[1,3]
        %1 = reshape(%y) {shape=[4, 1]} : f32[4,1]
        %2 = mul(%0, %1) : f32[4,3] """,
    ),
    Case(
        "contract_with_vector",
        "x:f32[3,4] y:f32[4]",
        '%0 = contract(%x, %y) {spec="mk,k->m"} : f32[3]',
        """%0 = reshape(%y) {shape=[1, 4]} : f32[1,4]
        %1 = mul(%x, %0) : f32[3,4]
        %2 = sum(%1) {axes=[1]} : f32[3] """,
    ),
    Case(
        "contract_with_vector",
        "x:f32[4] y:f32[4]",
        '%0 = contract(%x, %y) {spec="k,k->"} : f32[]',
        """%0 = mul(%y, %x) : f32[4]
        %1 = sum(%0) {axes=[0]} : f32[] """,
    ),
    Case(
        "contract_with_row_on_the_right",
        "x:f32[3,4] y:f32[4,5]",
        '%0 = contract(%x, %y) {spec="mk,kn->nm"} : f32[5,3]',
        '%0 = contract(%y, %x) {spec="km,nk->mn"} : f32[5,3]',
    ),
    Case(
        "contract_with_standard_labels",
        "x:f32[3,4] y:f32[4,5]",
        '%0 = contract(%x, %y) {spec="ij,jk->ik"} : f32[3,5]',
        '%0 = contract(%x, %y) {spec="mk,kn->mn"} : f32[3,5]',
    ),
    Case(
        "permute_of_contract",
        "x:f32[6,4] y:f32[4,5]",
        """%0 = contract(%x, %y) {spec="mk,kn->mn"} : f32[6,5]
        %1 = permute(%0) {dims=[1, 0]} : f32[5,6] """,
        '%0 = contract(%y, %x) {spec="km,nk->mn"} : f32[5,6]',
    ),
    Case(
        "permute_of_contract",
        "x:f32[3,2,4] y:f32[4,5]",
        """%0 = contract(%x, %y) {spec="abk,kn->bna"} : f32[2,5,3]
        %1 = reshape(%0) {shape=[10, 3]} : f32[10,3]
        %2 = permute(%1) {dims=[1, 0]} : f32[3,10] """,
        """%0 = reshape(%x) {shape=[6, 4]} : f32[6,4]
        %1 = contract(%0, %y) {spec="mk,kn->mn"} : f32[6,5]
        %2 = reshape(%1) {shape=[3, 10]} : f32[3,10] """,
    ),
    Case(
        "reduction_of_permute",
        "x:f32[2,3,4]",
        """%0 = permute(%x) {dims=[2, 0, 1]} : f32[4,2,3]
        %1 = sum(%0) {axes=[1]} : f32[4,3] """,
        """%0 = sum(%x) {axes=[0]} : f32[3,4]
        %1 = permute(%0) {dims=[1, 0]} : f32[4,3] """,
    ),
    Case(
        "windows_that_tile",
        "x:f32[2,6,7]",
        """%0 = windows(%x) {dilations=[1, 1], sizes=[2, 3], strides=[2, 3]} : f32[2,3,2,2,3]
        %1 = max(%0) {axes=[3, 4]} : f32[2,3,2] """,
        """%0 = slice(%x) {starts=[0, 0, 0], steps=[1, 1, 1], stops=[2, 6, 6]} : f32[2,6,6]
        %1 = reshape(%0) {shape=[2, 3, 2, 2, 3]} : f32[2,3,2,2,3]
        %2 = max(%1) {axes=[2, 4]} : f32[2,3,2] """,
    ),
    Case(
        "fold_that_tiles",
        "x:f32[2,3,2]",
        "%0 = fold(%x) {dilations=[1], shape=[2, 7], sizes=[2], strides=[2]} : f32[2,7]",
        """%0 = reshape(%x) {shape=[2, 6]} : f32[2,6]
        %1 = pad(%0) {high=[0, 1], interior=[0, 0], low=[0, 0], value=0.0} : f32[2,7]
        %2 = add(%1, 0.0:f32) : f32[2,7] """,
    ),
    Case(
        "split_of_permute",
        "x:f32[6,4]",
        """%0 = permute(%x) {dims=[1, 0]} : f32[4,6]
        %1 = reshape(%0) {shape=[2, 2, 3, 2]} : f32[2,2,3,2] """,
        """%0 = reshape(%x) {shape=[3, 2, 2, 2]} : f32[3,2,2,2]
        %1 = permute(%0) {dims=[2, 3, 0, 1]} : f32[2,2,3,2] """,
    ),
]
SPLITS = [
    Case(
        "reduction_in_stages",
        "x:f32[300000]",
        "%0 = sum(%x) {axes=[0]} : f32[]",
        """%0 = reshape(%x) {shape=[40, 7500]} : f32[40,7500]
        %1 = sum(%0) {axes=[1]} : f32[40]
        %2 = sum(%1) {axes=[0]} : f32[] """,
    ),
    Case(
        "reduction_in_stages",
        "x:f32[300007]",
        "%0 = sum(%x) {axes=[0]} : f32[]",
        """%0 = slice(%x) {starts=[0], steps=[1], stops=[294912]} : f32[294912]
        %1 = reshape(%0) {shape=[36, 8192]} : f32[36,8192]
        %2 = sum(%1) {axes=[1]} : f32[36]
        %3 = slice(%x) {starts=[294912], steps=[1], stops=[300007]} : f32[5095]
        %4 = reshape(%3) {shape=[1, 5095]} : f32[1,5095]
        %5 = sum(%4) {axes=[1]} : f32[1]
        %6 = concat(%2, %5) {axis=0} : f32[37]
        %7 = sum(%6) {axes=[0]} : f32[] """,
    ),
    Case(
        "reduction_in_stages",
        "x:f32[2000,64]",
        "%0 = max(%x) {axes=[0]} : f32[64]",
        """%0 = reshape(%x) {shape=[8, 250, 64]} : f32[8,250,64]
        %1 = max(%0) {axes=[1]} : f32[8,64]
        %2 = max(%1) {axes=[0]} : f32[64] """,
    ),
    Case(
        "reduction_in_stages",
        "x:f32[1200,200]",
        """%0 = exp(%x) : f32[1200,200]
        %1 = sum(%0) {axes=[0]} : f32[200] """,
        """%0 = exp(%x) : f32[1200,200]
        %1 = reshape(%0) {shape=[6, 200, 200]} : f32[6,200,200]
        %2 = sum(%1) {axes=[1]} : f32[6,200]
        %3 = sum(%2) {axes=[0]} : f32[200] """,
    ),
    Case(
        "reduction_in_stages",
        "x:f32[40,2,500]",
        "%0 = sum(%x) {axes=[0, 2]} : f32[2]",
        """%0 = sum(%x) {axes=[2]} : f32[40,2]
        %1 = sum(%0) {axes=[0]} : f32[2] """,
    ),
]
FOLDS = [
    Case(
        "constant_result",
        "x:f32[3]",
        """%0 = sqrt(4.0:f32) : f32[]
        %1 = mul(%x, %0) : f32[3] """,
        "%0 = mul(%x, 2.0:f32) : f32[3]",
    ),
    Case(
        "constant_result",
        "x:f32[3]",
        """%0 = iota() {axis=0, dtype=f32, shape=[6]} : f32[6]
        %1 = reshape(%0) {shape=[3, 2]} : f32[3,2]
        %2 = sum(%1) {axes=[1]} : f32[3]
        %3 = add(%x, %2) : f32[3] """,
        """%folded0: f32[3] = constant "folded0" [1.0, 5.0, 9.0]
        %0 = add(%x, %folded0) : f32[3] """,
    ),
    Case(
        "constant_result",
        "x:f32[4]",
        """%0 = iota() {axis=0, dtype=i64, shape=[4]} : i64[4]
        %1 = reshape(%0) {shape=[4, 1]} : i64[4,1]
        %2 = ge(%1, %0) : b1[4,4]
        %3 = any(%2) {axes=[1]} : b1[4]
        %4 = where(%3, %x, 0.0:f32) : f32[4] """,
        """%0 = full() {dtype=b1, shape=[4], value=true} : b1[4]
        %1 = where(%0, %x, 0.0:f32) : f32[4] """,
    ),
    Case(
        "take_of_progression",
        "x:f32[6,2]",
        """%0 = iota() {axis=0, dtype=i64, shape=[3]} : i64[3]
        %1 = add(%0, 2:i64) : i64[3]
        %2 = take(%x, %1) {axis=0} : f32[3,2] """,
        "%0 = slice(%x) {starts=[2, 0], steps=[1, 1], stops=[5, 2]} : f32[3,2]",
    ),
    Case(
        "put_of_progression",
        "x:f32[6,2] y:f32[3,2]",
        """%0 = iota() {axis=0, dtype=i64, shape=[3]} : i64[3]
        %1 = mul(%0, 2:i64) : i64[3]
        %2 = put(%x, %1, %y) {axis=0, mode="add"} : f32[6,2] """,
        """%0 = slice(%x) {starts=[0, 0], steps=[2, 1], stops=[5, 2]} : f32[3,2]
        %1 = add(%0, %y) : f32[3,2]
        %2 = slice_update(%x, %1) {starts=[0, 0], steps=[2, 1], stops=[5, 2]} : f32[6,2] """,
    ),
]
DECOMPOSED = [
    Case(
        "composed_operator",
        "x:f32[2,3]",
        "%0 = argmax(%x) {axes=[1]} : i64[2]",
        """%0 = max(%x) {axes=[1]} : f32[2]
        %1 = reshape(%0) {shape=[2, 1]} : f32[2,1]
        %2 = eq(%x, %1) : b1[2,3]
        %3 = isnan(%x) : b1[2,3]
        %4 = bitwise_or(%2, %3) : b1[2,3]
        %5 = iota() {axis=0, dtype=i32, shape=[3]} : i32[3]
        %6 = reshape(%5) {shape=[1, 3]} : i32[1,3]
        %7 = where(%4, %6, 3:i32) : i32[2,3]
        %8 = min(%7) {axes=[1]} : i32[2]
        %9 = cast(%8) {dtype=i64} : i64[2] """,
    ),
    Case(
        "convolution_of_padded",
        "x:f32[1,2,5] w:f32[3,2,3]",
        "%0 = conv(%x, %w) {dilation=[1], groups=1, padding=[[1, 1]], stride=[1]} : f32[1,3,5]",
        """%0 = pad(%x) {high=[0, 0, 1], interior=[0, 0, 0], low=[0, 0, 1], value=0.0} : f32[1,2,7]
        %1 = conv(%0, %w) {dilation=[1], groups=1, padding=[[0, 0]], stride=[1]} : f32[1,3,5] """,
    ),
    Case(
        "transposed_pointwise_convolution",
        "y:f32[1,3,4] w:f32[3,2,1]",
        "%0 = conv_transpose(%y, %w) {dilation=[1], groups=1, padding=[[0, 0]], size=[8], stride=[2]} : f32[1,2,8]",
        """%0 = permute(%w) {dims=[1, 0, 2]} : f32[2,3,1]
        %1 = conv(%y, %0) {dilation=[1], groups=1, padding=[[0, 0]], stride=[1]} : f32[1,2,4]
        %2 = pad(%1) {high=[0, 0, 1], interior=[0, 0, 1], low=[0, 0, 0], value=0.0} : f32[1,2,8] """,
    ),
    Case(
        "transposed_convolution_of_tiles",
        "y:f32[1,3,4] w:f32[3,2,2]",
        "%0 = conv_transpose(%y, %w) {dilation=[1], groups=1, padding=[[0, 0]], size=[9], stride=[2]} : f32[1,2,9]",
        """%0 = reshape(%y) {shape=[1, 1, 3, 4]} : f32[1,1,3,4]
        %1 = reshape(%w) {shape=[1, 3, 2, 2]} : f32[1,3,2,2]
        %2 = contract(%0, %1) {spec="ngou,gocx->ngcxu"} : f32[1,1,2,2,4]
        %3 = permute(%2) {dims=[0, 1, 2, 4, 3]} : f32[1,1,2,4,2]
        %4 = reshape(%3) {shape=[1, 2, 8]} : f32[1,2,8]
        %5 = pad(%4) {high=[0, 0, 1], interior=[0, 0, 0], low=[0, 0, 0], value=0.0} : f32[1,2,9] """,
    ),
    Case(
        "convolution_in_parts",
        "x:f32[1,8,16] w:f32[8,8,2]",
        "%0 = conv(%x, %w) {dilation=[14], groups=1, padding=[[14, 0]], stride=[1]} : f32[1,8,16]",
        """%0 = slice(%x) {starts=[0, 0, 0], steps=[1, 1, 1], stops=[1, 8, 14]} : f32[1,8,14]
        %1 = slice(%w) {starts=[0, 0, 1], steps=[1, 1, 1], stops=[8, 8, 2]} : f32[8,8,1]
        %2 = conv(%0, %1) {dilation=[14], groups=1, padding=[[0, 0]], stride=[1]} : f32[1,8,14]
        %3 = conv(%x, %w) {dilation=[14], groups=1, padding=[[0, 0]], stride=[1]} : f32[1,8,2]
        %4 = concat(%2, %3) {axis=2} : f32[1,8,16] """,
    ),
    Case(
        "transposed_convolution_of_neighbours",
        "y:f32[1,3,6] w:f32[3,2,3]",
        "%0 = conv_transpose(%y, %w) {dilation=[1], groups=1, padding=[[0, 0]], size=[8], stride=[1]} : f32[1,2,8]",
        """%0 = permute(%w) {dims=[1, 0, 2]} : f32[2,3,3]
        %1 = flip(%0) {axes=[2]} : f32[2,3,3]
        %2 = pad(%y) {high=[0, 0, 2], interior=[0, 0, 0], low=[0, 0, 2], value=0.0} : f32[1,3,10]
        %3 = conv(%2, %1) {dilation=[1], groups=1, padding=[[0, 0]], stride=[1]} : f32[1,2,8] """,
    ),
    Case(
        "transposed_convolution",
        "y:f32[1,3,4] w:f32[3,2,3]",
        "%0 = conv_transpose(%y, %w) {dilation=[1], groups=1, padding=[[1, 1]], size=[7], stride=[2]} : f32[1,2,7]",
        """%0 = permute(%w) {dims=[1, 0, 2]} : f32[2,3,3]
        %1 = flip(%0) {axes=[2]} : f32[2,3,3]
        %2 = pad(%y) {high=[0, 0, 1], interior=[0, 0, 0], low=[0, 0, 0], value=0.0} : f32[1,3,5]
        %3 = slice(%1) {starts=[0, 0, 1], steps=[1, 1, 1], stops=[2, 3, 2]} : f32[2,3,1]
        %4 = conv(%y, %3) {dilation=[1], groups=1, padding=[[0, 0]], stride=[1]} : f32[1,2,4]
        %5 = slice(%1) {starts=[0, 0, 0], steps=[1, 1, 2], stops=[2, 3, 3]} : f32[2,3,2]
        %6 = conv(%2, %5) {dilation=[1], groups=1, padding=[[0, 0]], stride=[1]} : f32[1,2,4]
        %7 = reshape(%4) {shape=[1, 2, 4, 1]} : f32[1,2,4,1]
        %8 = reshape(%6) {shape=[1, 2, 4, 1]} : f32[1,2,4,1]
        %9 = concat(%7, %8) {axis=3} : f32[1,2,4,2]
        %10 = reshape(%9) {shape=[1, 2, 8]} : f32[1,2,8]
        %11 = slice(%10) {starts=[0, 0, 0], steps=[1, 1, 1], stops=[1, 2, 7]} : f32[1,2,7] """,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.rule)
def test_canonical(case: Case) -> None:
    check(case, rule_sets.canonicalise, exact=False)


@pytest.mark.parametrize("case", SPLITS, ids=lambda c: c.rule)
def test_split(case: Case) -> None:
    check(case, split_reductions.split_reductions, exact=False)


@pytest.mark.parametrize("case", FOLDS, ids=lambda c: c.rule)
def test_fold(case: Case) -> None:
    check(case, constant_folding.fold_constants)


@pytest.mark.parametrize("case", DECOMPOSED, ids=lambda c: c.rule)
def test_decompose(case: Case) -> None:
    check(case, rule_sets.decompose, exact=False)
