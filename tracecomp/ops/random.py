"""Counter-based random bits: Philox 4x32-10 (Salmon, Moraes, Dror and Shaw, SC 2011)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tracecomp.ir.arrays import Array, cached_slices
from tracecomp.ir.index import Index, index
from tracecomp.ir.loops import Buffer, Expr, IndexValue, Let, Load, Read, Stmt, Store, cast, in_range
from tracecomp.ir.op import Imperative, Op, Sample, register
from tracecomp.ir.philox import MULTIPLIERS, ROUNDS, WEYL, blocks
from tracecomp.ir.scalars import call, const
from tracecomp.ir.types import Shape, TensorType, int32, int64
from tracecomp.ops.define import bad, of, require
from tracecomp.ops.statements import Names, vectors


def _infer(state: TensorType, *, shape: Shape) -> TensorType:
    require(
        state == TensorType(int64, (2,)), RuntimeError, f"random_bits: expected a state of type i64[2], got {state}"
    )
    require(all(n >= 0 for n in shape), RuntimeError, f"random_bits: negative dimension in {shape}")
    return TensorType(int32, shape)


def philox(counter: Any, key: int) -> list[Any]:
    """Four words below 2**32 for each 64-bit counter (the high half of the 128-bit counter is zero).

    Counters are an int, or an array of uint64; words are of the same kind.
    """
    mask = 0xFFFFFFFF
    a, b, c, d = counter & mask, counter >> 32 & mask, counter & 0, counter & 0
    k, m = key & mask, key >> 32 & mask
    for _ in range(ROUNDS):
        p, q = a * MULTIPLIERS[0], c * MULTIPLIERS[1]
        a, b, c, d = q >> 32 ^ b ^ k, q & mask, p >> 32 ^ d ^ m, p & mask
        k, m = k + WEYL[0] & mask, m + WEYL[1] & mask
    return [a, b, c, d]


_FEW = 12
"""Most blocks for which Python's integers take less time than numpy's arrays: 53 us of 67 to 109 for 12 blocks, as much
for 16 (AMD EPYC, Zen 4)."""


def _impl(state: Array, *, shape: Shape) -> Any:
    count = math.prod(shape)
    seed, offset = int(state[0]), int(state[1])
    if blocks(count) <= _FEW:
        found = [philox(offset + n, seed) for n in range(blocks(count))]
        words = np.array(found, np.uint32).reshape(-1, 4).T
        return words.reshape(-1)[:count].view(np.int32).reshape(shape)
    counters = (np.arange(blocks(count), dtype=np.int64) + np.int64(offset)).view(np.uint64)
    words = np.empty((4, counters.size), np.uint32)
    for part in cached_slices(counters.size):
        words[:, part] = philox(counters[part], seed)
    return words.reshape(-1)[:count].view(np.int32).reshape(shape)


def _signed(value: int) -> Expr:
    value &= 0xFFFFFFFF
    return const(value - (1 << 32) if value >= 1 << 31 else value, int32)


class _Rounds:
    """Philox over named int32 values, one ``let`` per word and round."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self.found: list[Stmt] = []

    def let(self, value: Expr) -> Expr:
        name = self.names.let()
        self.found.append(Let(name, value))
        return Read(name, value.dtype, frozenset(value.vars()))

    def halves(self, value: Expr) -> list[Expr]:
        return [self.let(cast(value, int32)), self.let(cast(call("shr", value, const(32, int64)), int32))]

    def run(self, counter: Expr, key: Expr) -> list[Expr]:
        words = [*self.halves(counter), const(0, int32), const(0, int32)]
        keys = self.halves(key)
        for number in range(ROUNDS):
            m0, m1 = map(_signed, MULTIPLIERS)
            k0, k1 = (call("add", k, _signed(w * number)) for k, w in zip(keys, WEYL, strict=True))
            words = [
                self.let(call("xor", call("xor", call("mulhi", m1, words[2]), words[1]), k0)),
                self.let(call("mul", m1, words[2])),
                self.let(call("xor", call("xor", call("mulhi", m0, words[0]), words[3]), k1)),
                self.let(call("mul", m0, words[0])),
            ]
        return words


def _statements(
    ins: Sequence[Buffer], outs: Sequence[Buffer], in_types: Sequence[TensorType], out_types: Sequence[TensorType],
    *, shape: Shape,
) -> list[Stmt]:  # fmt: skip
    count = math.prod(shape)
    each, names = blocks(count), Names()

    def block(i: Index) -> list[Stmt]:
        rounds = _Rounds(names)
        counter = rounds.let(call("add", Load(ins[0], index(1)), IndexValue(i)))
        words = rounds.run(counter, rounds.let(Load(ins[0], index(0))))
        stores = [Store(outs[0], i + w * each, word, in_range(i + w * each, count)) for w, word in enumerate(words)]
        return [*rounds.found, *stores]

    # the rounds are long: a small chunk keeps the code short
    return vectors(names, each, block, kind="parallel", chunk=16)


register(
    Op(
        name="random_bits", kind="random", doc="32 random bits per element from state (seed, offset): Philox 4x32-10",
        infer=_infer, impl=_impl, loop=Imperative(_statements), attrs={"shape": tuple},
        samples=tuple(Sample((((2,), "i64", "any"),), {"shape": s}) for s in ((7,), (), (0,), (3, 5), (4, 130))),
        errors=(
            bad(RuntimeError, "expected a state", of("i64", 3), shape=(2,)),
        ),
    )
)  # fmt: skip
