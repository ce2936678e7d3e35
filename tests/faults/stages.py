"""Programs in which faults of single stages show: few lines each, so that naming the right one means something."""

from __future__ import annotations

from typing import Any

import numpy as np

import tracecomp as torch
import tracecomp.nn.functional as F
from tests.faults.programs import Made, numbers


def stale_views() -> Made:
    def fn(x: Any) -> Any:
        h = x * 2.0
        row = h[1]  # @ row viewed
        h.add_(1.0)  # @ changed under the row
        return row * 3.0  # @ row read again

    return fn, (numbers(3, 5),)


def fractions() -> Made:
    def fn(x: Any) -> Any:
        h = torch.exp(x)
        return h * 1.5  # @ times a fraction

    return fn, (numbers(3, 5),)


def turned_over() -> Made:
    def fn(x: Any) -> Any:
        h = x + 1.0
        return h.flip(1)  # @ turned over

    return fn, (numbers(4, 4),)


def placed() -> Made:
    def fn(x: Any, at: Any) -> Any:
        h = x * 2.0
        h[at].mul_(3.0)  # @ row at a place scaled
        return h

    return fn, (numbers(4, 5), torch.tensor(1))


def overlapping() -> Made:
    base = numbers(8)

    def fn(x: Any, y: Any) -> Any:
        x.mul_(2.0)  # @ first part doubled
        return x + y * 3.0  # @ both parts read

    return fn, (base[:5], base[3:])


def handed_on() -> Made:
    def fn(x: Any, a: Any, b: Any) -> Any:
        return x * 2.0, b  # @ array handed on

    return fn, (numbers(3), np.arange(3.0), np.arange(3.0) + 5)


def order_kept() -> Made:
    def fn(x: Any) -> Any:
        return x.permute(1, 2, 0) * 2.0  # @ product in an order

    return fn, (numbers(3, 4, 5),)


def part_and_whole() -> Made:
    def fn(x: Any) -> Any:
        h = x * 2.0  # @ whole result
        return h, h[1:]  # @ part of the result

    return fn, (numbers(3, 4),)


def from_arrays() -> Made:
    def fn(x: Any, a: Any) -> Any:
        h = x * 2.0
        return h + float(a.mean())  # @ sum with an array

    return fn, (numbers(5), np.arange(5, dtype=np.float32))


def thresholds() -> Made:
    def fn(x: Any) -> Any:
        h = x * 2.0
        if h.max() > 9.0:  # @ above nine
            return h - 1.0
        return h + 1.0

    return fn, (numbers(3, 5),)


def two_thresholds() -> Made:
    def fn(x: Any) -> Any:
        if x[0, 0] > -100.0:  # @ first condition
            x = x + 1.0
        if x.min() > 7.5:  # @ second condition
            x = x * 0.5
        return x

    return fn, (numbers(3, 5),)


def strided_state() -> Made:
    state = numbers(5, 4).T.clone()

    def fn(x: Any) -> Any:
        state.add_(x)  # @ added to a transposed state
        return x * 2.0

    return fn, (numbers(4, 5, seed=1),)


def at_least_rows() -> Made:
    def fn(x: Any) -> Any:
        if x.shape[0] > 4:  # @ more than four rows
            return x * 2.0
        return x - 1.0

    return fn, (numbers(9, 5),)


def at_most_rows() -> Made:
    def fn(x: Any) -> Any:
        if x.shape[0] < 23:  # @ fewer than 23 rows
            return x * 2.0
        return x - 1.0

    return fn, (numbers(9, 5),)


def many_elements() -> Made:
    def fn(x: Any) -> Any:
        if x.shape[0] * x.shape[1] > 30:  # @ more than 30 elements
            return x * 2.0
        return x - 1.0

    return fn, (numbers(9, 5),)


def halves() -> Made:
    def fn(x: Any) -> Any:
        half = x.shape[0] // 2
        return x[:half] * 2.0  # @ first half

    return fn, (numbers(9, 5),)


def last_rows() -> Made:
    def fn(x: Any) -> Any:
        return x[-3:] * 2.0  # @ last three rows

    return fn, (numbers(9, 5),)


def summed_rows() -> Made:
    def fn(x: Any) -> Any:
        h = torch.exp(x)
        return h.sum(0)  # @ sum over all rows

    return fn, (numbers(9, 5),)


def one_more_row() -> Made:
    def fn(x: Any) -> Any:
        h = torch.cat([x, x[:1]])  # @ a row appended
        return torch.exp(h).sum(0)  # @ sum over one more

    return fn, (numbers(9, 5),)


def plain_product() -> Made:
    def fn(x: Any) -> Any:
        h = x * 2.0  # @ plain product
        return h + x  # @ plain sum

    return fn, (numbers(4, 6),)


def rewritten() -> Made:
    def fn(x: Any, y: Any) -> Any:
        a = x * -2.0  # @ times minus two
        b = torch.where(x > 0, 1.0, 0.0)  # @ one where positive
        c = (y > 0).float() != 0  # @ mask of a mask
        d = torch.full((4, 6), 0.5) < x  # @ constant below
        e = torch.floor(torch.abs(y * 3.0))  # @ floor of an absolute
        f = torch.abs(x) * torch.abs(x)  # @ square of an absolute
        g = -y * 3.0  # @ product of a negation
        mask = x > y
        h = torch.where(mask, x, torch.where(mask, y, x * 0.25))  # @ chosen twice
        return a, b, c, d, e, f, g, h

    return fn, (numbers(4, 6), numbers(4, 6, seed=1))


def signed_zeros() -> Made:
    def fn(x: Any) -> Any:
        h = x * 0.0 + 0.0  # @ zero added
        return 1.0 / h  # @ reciprocal of zero

    return fn, (numbers(4, 6),)


def rearranged() -> Made:
    def fn(x: Any, y: Any, at: Any) -> Any:
        a = F.pad(torch.full((4, 6), 2.0), (1, 1), value=0.5)  # @ padded constant
        b = torch.cat([x[:, 3:6], x[:, 0:3]], 1)  # @ halves exchanged
        c = F.pad(x, (1, 5)) + F.pad(y, (7, -1))  # @ sum of padded parts
        d = torch.zeros(4, 6).scatter(1, at, 1.0)  # @ one of six
        e = F.unfold(x.reshape(1, 1, 4, 6), 2, stride=2)  # @ unfolded by halves
        return a * 2.0, b * 2.0, c * 2.0, d * 2.0, e * 2.0

    return fn, (numbers(4, 6), numbers(4, 6, seed=1), torch.tensor([[1], [0], [5], [3]]))


def long_sums() -> Made:
    def fn(x: Any) -> Any:
        h = torch.exp(x * 0.1)
        return h.sum(1)  # @ sum of many lanes

    return fn, (numbers(6, 1100),)


def complex_products() -> Made:
    def fn(z: Any) -> Any:
        h = z * (1.0 + 2.0j)  # @ times a complex constant
        return h + z  # @ complex sum

    z = torch.complex(numbers(4, 5), numbers(4, 5, seed=1))
    return fn, (z,)


def complex_turns() -> Made:
    def fn(z: Any, w: Any) -> Any:
        h = z * w  # @ complex product
        k = h / (w + 3.0)  # @ complex quotient
        return k.conj() * 2.0  # @ conjugate

    z = torch.complex(numbers(4, 5), numbers(4, 5, seed=1))
    return fn, (z, torch.complex(numbers(4, 5, seed=2), numbers(4, 5, seed=3)))


def overwritten_and_returned() -> Made:
    def fn(x: Any) -> Any:
        old = x.clone()  # @ old contents
        x.mul_(2.0)  # @ doubled over them
        return old

    return fn, (numbers(4, 6),)


def moved_on() -> Made:
    state = numbers(4, 6, seed=3)

    def fn(x: Any) -> Any:
        old = state.clone()  # @ old state
        state.copy_(x)  # @ new state
        return old

    return fn, (numbers(4, 6),)


def rows_onto_rows() -> Made:
    def fn(x: Any, at: Any) -> Any:
        h = torch.tanh(x)
        return h.index_add(0, at, h)  # @ rows added to themselves

    return fn, (numbers(5, 6), torch.tensor([1, 2, 0, 4, 3]))


def three_parts() -> Made:
    def fn(x: Any, u: Any, v: Any, w: Any) -> Any:
        a = x @ u  # @ first of three
        b = x @ v  # @ second of three
        c = x @ w  # @ third of three
        return torch.cat([a, b, c], 1)  # @ three joined

    return fn, (numbers(40, 24), *(numbers(24, 32, seed=n) for n in (1, 2, 3)))


def part_read_too() -> Made:
    def fn(x: Any, u: Any, v: Any) -> Any:
        a = x @ u  # @ part with two readers
        b = x @ v  # @ part with one reader
        return torch.cat([a, b], 1), a.sum(0)  # @ joined and summed

    return fn, (numbers(40, 24), numbers(24, 32, seed=1), numbers(24, 32, seed=2))


def padded_row() -> Made:
    def fn(x: Any) -> Any:
        h = torch.exp(x)
        return F.pad(h, (0, 0, 9, 7)) * 2.0  # @ rows padded

    return fn, (numbers(24, 12),)


def alive_together() -> Made:
    def fn(x: Any, w: Any) -> Any:
        a = x @ w  # @ first alive
        b = a @ w  # @ second alive
        c = b @ w  # @ third alive
        return (a + c) @ w + b  # @ all alive

    return fn, (numbers(48, 48), numbers(48, 48, seed=1) * 0.1)


def two_bodies() -> Made:
    def large(t: Any) -> Any:
        for _ in range(3):
            t = torch.tanh(t @ t)  # @ large body
        return t

    def fn(x: Any, n: Any) -> Any:
        h = x @ x  # @ before two bodies
        k = torch.cond(n > 2, large, lambda t: t * 2.0, (h,))  # @ one of two bodies
        return k @ x + h  # @ after two bodies

    return fn, (numbers(24, 24) * 0.1, torch.tensor(5))


def all_of_rows() -> Made:
    def fn(x: Any) -> Any:
        return (x > -9.0).all(1), (x > 9.0).any(1)  # @ all and any

    return fn, (numbers(7, 90),)


def missing_numbers() -> Made:
    def fn(x: Any) -> Any:
        return x.amax(1)  # @ largest with a missing one

    x = np.random.default_rng(0).standard_normal((5, 70)).astype(np.float32)
    x[1, 40] = x[3, 3] = np.nan
    return fn, (torch.tensor(x),)


def halved_steps() -> Made:
    def fn(x: Any, y: Any) -> Any:
        h = x + y  # @ half sum
        return h * 0.1  # @ half product

    return fn, (numbers(13, 17).bfloat16(), numbers(13, 17, seed=1).bfloat16() * 4)


def halved_functions() -> Made:
    def fn(x: Any) -> Any:
        return torch.exp(x)  # @ half exponential

    return fn, (numbers(13, 17).bfloat16(),)


def small_writes() -> Made:
    def fn(x: Any) -> Any:
        y = x * 2
        y[1:3].mul_(1.00001)  # @ scaled slightly
        return y + 1  # @ read after a small write

    return fn, (numbers(5, 7),)


def whole_numbers() -> Made:
    def fn(n: Any, k: Any) -> Any:
        a = n % 8  # @ remainder by eight
        b = n // 4  # @ quotient by four
        c = n >> k  # @ shifted right
        return a, b, c

    return fn, (torch.arange(-20, 20), torch.arange(40) * 2)


def decomposed() -> Made:
    def fn(a: Any) -> Any:
        h = torch.exp(a * 0.1)
        u, s, v = torch.linalg.svd(h)  # @ decomposed
        return (u * s) @ v - v, u * 3.0  # @ composed again

    return fn, (numbers(4, 4),)


def rules() -> Made:
    def fn(x: Any, y: Any, at: Any) -> Any:
        a = torch.cos(x)  # @ slope of cos
        b = torch.erf(y)  # @ slope of erf
        c = torch.log1p(x * x)  # @ slope of log1p
        d = torch.gather(x, 1, at)  # @ slope of gather
        e = torch.cumsum(y, 1)  # @ slope of cumsum
        f = torch.maximum(x, y)  # @ slope of maximum
        return sum((t * t).sum() for t in (a, b, c, d, e, f))

    x, y = numbers(4, 5), numbers(4, 5, seed=1)
    return fn, (x.requires_grad_(), y.requires_grad_(), torch.tensor(np.arange(20).reshape(4, 5) % 5))


def two_gradients() -> Made:
    def fn(x: Any, y: Any) -> Any:
        h = torch.tanh(x) * y  # @ product of two
        return h, x * 2.0

    return fn, (numbers(4, 5).requires_grad_(), numbers(4, 5, seed=1).requires_grad_())


def parallel_rows() -> Made:
    def fn(x: Any, y: Any) -> Any:
        h = torch.exp(x) * y + torch.sin(x)  # @ large parallel map
        return h.sum(1)  # @ large parallel sums

    return fn, (numbers(600, 700), numbers(600, 700, seed=1))


def empty_or_not() -> Made:
    def fn(x: Any) -> Any:
        h = x * 2.0
        while h.sum() > 100.0:  # @ while above
            h = h * 0.5
        return h

    return fn, (numbers(3, 5),)


def columns_limited() -> Made:
    def fn(x: Any) -> Any:
        if x.shape[-1] > 12:  # @ many columns
            return x * 2.0
        return x - 1.0

    return fn, (numbers(4, 6),)


def spread() -> Made:
    def fn(x: Any) -> Any:
        h = torch.tanh(x)
        return h.amax(0) - h.mean(0)  # @ spread over rows

    return fn, (numbers(9, 5),)


def more_views() -> Made:
    def fn(x: Any, y: Any) -> Any:
        a = x.reshape(4, 1, 6).permute(2, 1, 0).reshape(6, 4)  # @ squeezed and turned
        b = y[:1].expand(4, 6)[1:3, 2:5]  # @ part of a repetition
        c = torch.cat([x, y], 0).flip(0, 1).flip(0)  # @ flipped again
        d = (x > 0).to(torch.int64).to(torch.int32)  # @ mask to integers
        e = x.T.reshape(2, 3, 4)  # @ split after turning
        return a * 2.0, b * 2.0, c * 2.0, d * 2, e * 2.0

    return fn, (numbers(4, 6), numbers(4, 6, seed=1))


def complex_signals() -> Made:
    def fn(x: Any) -> Any:
        z = torch.fft.fft(x)  # @ spectrum
        w = torch.fft.ifft(z * 2.0)  # @ back again
        return w.real, z.imag  # @ parts of numbers

    return fn, (numbers(4, 12),)


def half_rows() -> Made:
    def fn(x: Any) -> Any:
        h = x * x
        return h.sum(1)  # @ sum of half rows

    return fn, (numbers(6, 300).bfloat16(),)


def long_products() -> Made:
    def fn(x: Any, y: Any) -> Any:
        h = x @ y  # @ many terms
        return h * 1.0

    return fn, (numbers(16, 3000), numbers(3000, 16, seed=1))


def trained() -> Made:
    weight = numbers(5, 3).requires_grad_()
    velocity = torch.zeros(5, 3)

    def fn(x: Any) -> Any:
        loss = (x @ weight).pow(2).sum()  # @ loss of a step
        loss.backward()
        with torch.no_grad():
            velocity.mul_(0.9).add_(weight.grad)  # @ velocity
            weight.sub_(velocity * 0.01)  # @ weight lowered
            weight.grad = None
        return loss.detach()

    return fn, (numbers(4, 5, seed=1),)


def factored() -> Made:
    def fn(a: Any) -> Any:
        h = a @ a.T
        values, vectors = torch.linalg.eigh(h)  # @ factored
        k = torch.linalg.pinv(vectors)  # @ inverted
        return values * 2.0, k @ h  # @ after factoring

    return fn, (numbers(4, 4),)


def steps() -> Made:
    def fn(x: Any) -> Any:
        a = torch.sin(x)  # @ slope of sin
        b = x.flip(0) * x  # @ slope of flip
        c = torch.exp(-x)  # @ slope of exp
        return ((a + b) * c).sum()

    return fn, (numbers(4, 5).requires_grad_(),)


def odd_rows() -> Made:
    def fn(x: Any) -> Any:
        if x.shape[0] % 2 == 1:  # @ odd rows
            return x * 2.0
        return x - 1.0

    return fn, (numbers(9, 5),)


def near_zero() -> Made:
    def fn(x: Any) -> Any:
        if x.abs().max() < 0.125:  # @ all are small
            return x * 8.0
        return x * 2.0

    return fn, (numbers(3, 5),)


def counted_positive() -> Made:
    def fn(x: Any) -> Any:
        n = int((x > 0).sum())  # @ count read
        return x[: n // 2] * 2.0

    return fn, (numbers(7),)


def least_rows() -> Made:
    def fn(x: Any) -> Any:
        h = x * 2.0
        return h.amin(0), h.prod(0)  # @ least and product

    return fn, (numbers(9, 5),)


def pairs_of_rows() -> Made:
    def fn(x: Any, y: Any) -> Any:
        h = torch.cat([x, y])  # @ rows joined
        return torch.softmax(h, 0) * 2.0  # @ softmax over joined rows

    return fn, (numbers(9, 5), numbers(6, 5, seed=1))


def choices() -> Made:
    def fn(x: Any, y: Any, n: Any) -> Any:
        a = torch.where(x > 0, y, y) + torch.where(x > 0, 0.0, 1.0)  # @ chosen of equals
        b = torch.maximum(torch.maximum(x, y), y * 2.0)  # @ larger of two
        c = (n & 0) + (n | n)  # @ bits absorbed
        d = x.to(torch.float16).to(torch.float64)  # @ widened twice
        e = (x - y) / -4.0  # @ negative quarter
        return a, b, c, d, e

    return fn, (numbers(4, 6), numbers(4, 6, seed=1), torch.arange(24).reshape(4, 6))


def whole_steps() -> Made:
    def fn(x: Any, n: Any) -> Any:
        a = torch.sign(x)  # @ signs
        b = torch.minimum(x, -x)  # @ smaller of two
        c = n.to(torch.float32)  # @ integers as floats
        d = torch.fmod(n, 7)  # @ truncated remainder
        return a, b, c, d

    return fn, (numbers(5, 9), torch.arange(-20, 25).reshape(5, 9))


def turned_product() -> Made:
    def fn(x: Any, y: Any) -> Any:
        h = torch.einsum("abk,cbk->bac", x, y)  # @ batched product
        return h.relu()  # @ cut off

    return fn, (numbers(5, 3, 7), numbers(4, 3, 7, seed=1))
