"""Random programs on tensors that share memory, and what can be seen of a call from outside."""

from __future__ import annotations

import random
import warnings
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

VIEWS = (
    "select", "slice", "step", "transpose", "flatten", "split", "expand", "unsqueeze", "squeeze", "one", "detach",
    "data", "quiet", "unbind", "chunk", "diagonal", "alias",
)  # fmt: skip
FRESH = ("add", "mul", "square", "sum", "clone", "contiguous", "product", "stack", "where", "take", "double")
WRITES = (
    "add_", "mul_", "copy_", "zero_", "set_row", "set_last", "mask_", "index_", "data_", "quiet_", "add_itself_",
    "fill_masked_", "transpose_",
)  # fmt: skip
CONTROL = ("branch", "item")
INSTRUCTIONS = VIEWS * 2 + FRESH + WRITES * 2 + CONTROL
DTYPES = ("float32", "float32", "float32", "float64", "float16", "int64")
SHAPES = ((4, 6), (6,), (2, 3, 4), (1, 5), (3, 1, 2), (), (1, 1), (8, 2))
HANDLES = ("as it is", "as it is", "detached", "data", "numpy")

Instruction = tuple[str, int, int]


@dataclass(frozen=True)
class Input:
    """An argument, or with ``captured`` a tensor of a closure: memory ``base`` seen through ``views``."""

    base: int
    views: tuple[Instruction, ...] = ()
    handle: str = "as it is"
    captured: bool = False


@dataclass(frozen=True)
class Program:
    """``bases`` are (shape, dtype, requires grad). ``other`` are the inputs of every second call, of the same types."""

    bases: tuple[tuple[tuple[int, ...], str, bool], ...]
    inputs: tuple[Input, ...]
    body: tuple[Instruction, ...]
    results: tuple[int, ...]
    poke: int = 0
    derive: int = 0
    apart: bool = False
    seed: int = field(default=0, compare=False)


def generate(seed: int) -> Program:
    """The program of ``seed``."""
    r = random.Random(seed)
    number = lambda: r.randrange(12)  # noqa: E731
    differentiable = r.random() < 0.5
    bases = []
    for _ in range(r.randint(1, 3)):
        dtype = r.choice(DTYPES)
        bases.append((r.choice(SHAPES), dtype, differentiable and dtype.startswith("float") and r.random() < 0.6))
    inputs = []
    for n in range(r.randint(1, 4)):
        views = tuple((r.choice(VIEWS[:10]), number(), number()) for _ in range(r.choice((0, 0, 1, 1, 2, 3))))
        inputs.append(Input(r.randrange(len(bases)), views, r.choice(HANDLES), n > 0 and r.random() < 0.3))
    body = tuple((r.choice(INSTRUCTIONS), number(), number()) for _ in range(r.randint(1, 8)))
    results = tuple(r.randrange(12) for _ in range(r.randint(1, 4)))
    return Program(tuple(bases), tuple(inputs), body, results, number(), r.choice((0, 0, 1, 2)), r.random() < 0.3, seed)


def smaller(p: Program) -> list[Program]:
    """Programs that are a little simpler than ``p``."""
    found = [replace(p, body=p.body[:k] + p.body[k + 1 :]) for k in range(len(p.body))]
    found += [replace(p, results=p.results[:k] + p.results[k + 1 :]) for k in range(len(p.results)) if p.results[1:]]
    found += [replace(p, inputs=p.inputs[:k] + p.inputs[k + 1 :]) for k in range(1, len(p.inputs))]
    for k, x in enumerate(p.inputs):
        simpler = [replace(x, views=x.views[:j] + x.views[j + 1 :]) for j in range(len(x.views))]
        simpler += [replace(x, handle="as it is")] if x.handle != "as it is" else []
        simpler += [replace(x, captured=False)] if x.captured else []
        found += [replace(p, inputs=(*p.inputs[:k], y, *p.inputs[k + 1 :])) for y in simpler]
    for k, (shape, dtype, grad) in enumerate(p.bases):
        for base in ((shape, "float32", grad), (shape, dtype, False), ((4, 6), dtype, grad)):
            if base != p.bases[k]:
                found.append(replace(p, bases=(*p.bases[:k], base, *p.bases[k + 1 :])))
    found += [replace(p, derive=p.derive - 1)] if p.derive else []
    found += [replace(p, apart=False)] if p.apart else []
    for k, (name, i, j) in enumerate(p.body):
        for call in {(name, 0, j), (name, i, 0)} - {(name, i, j)}:
            found.append(replace(p, body=(*p.body[:k], call, *p.body[k + 1 :])))
    return found


def view(torch: Any, name: str, x: Any, i: int, j: int) -> Any:
    """One view of ``x``, or several."""
    dim = i % x.dim() if x.dim() else 0
    size = x.shape[dim] if x.dim() else 1
    if name in ("select", "slice", "step", "one", "unbind", "chunk", "split") and (not x.dim() or not size):
        return x[None]
    if name == "select":
        return x.select(dim, j % size)
    if name == "slice":
        return x.narrow(dim, j % size, size - j % size)
    if name == "step":
        return x[(slice(None),) * dim + (slice(j % 2, None, 2),)]
    if name == "one":
        return x.narrow(dim, j % size, 1)
    if name == "transpose":
        return x.transpose(0, -1) if x.dim() else x
    if name == "flatten":
        return x.reshape(-1)
    if name == "split":
        return x.reshape(*x.shape[:dim], size // 2, 2, *x.shape[dim + 1 :]) if size % 2 == 0 else x.unsqueeze(dim)
    if name == "expand":
        return x[None].expand(2, *x.shape) if x.dim() < 3 else x
    if name == "unsqueeze":
        return x.unsqueeze(dim)
    if name == "squeeze":
        return x.squeeze()
    if name == "detach":
        return x.detach()
    if name == "data":
        return x.data
    if name == "alias":
        return x.view(x.shape)
    if name == "quiet":
        with torch.no_grad():
            return x[None]
    if name == "unbind":
        return list(x.unbind(dim))[:2]
    if name == "chunk":
        return list(x.chunk(2, dim))
    return x.diagonal(0, 0, 1) if x.dim() > 1 else x[..., None]


def fresh(torch: Any, name: str, a: Any, b: Any) -> Any:
    """Return a value with separate memory."""
    if name == "add":
        return a + b.sum().to(a.dtype)
    if name == "mul":
        return a * 2
    if name == "square":
        return a * a
    if name == "sum":
        return a.sum(0) if a.dim() else a.clone()
    if name == "product":
        flat = a.reshape(-1, 1)
        return flat * flat.t()
    if name == "stack":
        return torch.stack([a, a + 1])
    if name == "where":
        return torch.where(a > 0, a, -a)
    if name == "take":
        return a[torch.tensor([0, -1])] if a.dim() and a.shape[0] else a.clone()
    if name == "double":
        return a.double()
    return a.clone() if name == "clone" else a.contiguous()


def write(torch: Any, name: str, a: Any, b: Any) -> None:
    """Write into ``a``."""
    if name not in ("data_", "quiet_") and torch.__name__ == "torch":
        a.grad_fn  # noqa: B018  PyTorch refuses writes to a view that has not yet taken the history its base has got
    number = b.sum().to(a.dtype)
    if name == "add_":
        a.add_(number)
    elif name == "mul_":
        a.mul_(2)
    elif name == "copy_":
        a.copy_(number)
    elif name == "zero_":
        a.zero_()
    elif name == "set_row":
        a[0] = number
    elif name == "set_last":
        a[..., -1:] = 3
    elif name == "mask_":
        a[a > 0] = -1
    elif name == "fill_masked_":
        a.masked_fill_(a < 0, 2)
    elif name == "index_":
        a[torch.tensor([0])] = number
    elif name == "data_":
        a.data.mul_(2)
    elif name == "add_itself_":
        a.add_(a)
    elif name == "transpose_":
        a.copy_(a.flip(0) if a.dim() else a + 1)
    else:
        with torch.no_grad():
            a.mul_(2)


def run(torch: Any, body: tuple[Instruction, ...], results: tuple[int, ...], given: list[Any]) -> list[Any]:
    """The results of the program on its inputs."""
    values = [torch.from_numpy(x) if isinstance(x, np.ndarray) else x for x in given]
    for name, i, j in body:
        a, b = values[i % len(values)], values[j % len(values)]
        if name in VIEWS:
            found = view(torch, name, a, i // 2, j)
            values.extend(found if isinstance(found, list) else [found])
        elif name in FRESH:
            values.append(fresh(torch, name, a, b))
        elif name == "branch":
            values.append(a + 1 if a.sum() > 0 else a[None])
        elif name == "item":
            values.append(a * int(b.detach().sum().item()))
        else:
            write(torch, name, a, b)
    return [values[-1 - i % len(values)] for i in results]


class Case:
    """The program in one library, with separate state."""

    def __init__(self, torch: Any, p: Program, wrap: Any = None) -> None:
        self.torch, self.p = torch, p
        self.captured: dict[int, Any] = {}
        self.memories: list[np.ndarray[Any, Any]] = []
        self.leaves = self._leaves(0)
        for n, x in enumerate(p.inputs):
            if x.captured:
                self.captured[n] = self._input(x, self.leaves)
        self.lasting = self.leaves
        fixed, body, results = [self.captured.get(n) for n in range(len(p.inputs))], p.body, p.results

        def program(*given: Any) -> list[Any]:
            rest = iter(given)
            return run(torch, body, results, [next(rest) if t is None else t for t in fixed])

        self.fn = wrap(program) if wrap else program

    def _leaves(self, k: int) -> list[Any]:
        leaves = []
        for n, (shape, dtype, grad) in enumerate(self.p.bases):
            size = int(np.prod(shape))
            data = ((np.arange(size) * (n + 2) + k) % 7 - 2).astype(dtype).reshape(shape)
            leaf = self.torch.from_numpy(data) if not grad else self.torch.tensor(data)
            self.memories.append(leaf.detach().numpy())
            leaves.append((leaf.requires_grad_(grad), data))
        return leaves

    def _input(self, x: Input, leaves: list[Any]) -> Any:
        leaf, _ = leaves[x.base % len(leaves)]
        if leaf.requires_grad and x.handle == "as it is":
            leaf = leaf * 1
        found = leaf
        for name, i, j in x.views:
            found = view(self.torch, name, found, i, j)
        if x.handle == "detached":
            return found.detach()
        if x.handle == "data":
            return found.data
        if x.handle == "numpy":
            found = found.detach()
            return found.numpy() if not x.captured else found
        return found

    def call(self, k: int) -> Any:
        """Return the facts of call ``k``: values, strides, shared memory, counts; or the error."""
        leaves = self._leaves(k)
        seen: list[Any] = []
        given = []
        for n, x in enumerate(self.p.inputs):
            if self.p.apart and k % 2:
                leaves = self._leaves(k)
            if n not in self.captured:
                given.append(self._input(x, leaves))
        before = [version(t) for t in (*given, *self.captured.values())]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                results = list(self.fn(*given))
            except Exception as error:
                return type(error), str(error)
            tensors = [*results, *given, *self.captured.values()]
            seen.append([shown(t) for t in tensors])
            seen.append(sharing(tensors, self.memories))
            seen.append([version(t) - v for t, v in zip((*given, *self.captured.values()), before, strict=True)])
            seen.append(self._derived(results, leaves))
            seen.append(self._poked(results, tensors))
        return seen

    def _poked(self, results: list[Any], tensors: list[Any]) -> Any:
        """Everything after a write to one result."""
        target = results[self.p.poke % len(results)]
        try:
            if self.p.poke % 2:
                with self.torch.no_grad():
                    target.add_(5)
            else:
                target.mul_(3)
            return [shown(t) for t in tensors]
        except RuntimeError as error:
            return type(error).__name__

    def _derived(self, results: list[Any], leaves: list[Any]) -> Any:
        """First, and second, derivatives of the results."""
        torch, p = self.torch, self.p
        # The gradient of one result by another that it was made from is not seen by a compiled call.
        ends = [leaf for leaf, _ in (*leaves, *self.lasting) if leaf.requires_grad and leaf.is_leaf]
        try:
            roots = [r for r in results if r.requires_grad]
            if not (p.derive and ends and roots):
                return []
            loss = sum((r.double() * r.double()).sum() for r in roots)
            grads = torch.autograd.grad(loss, ends, create_graph=p.derive > 1, allow_unused=True)
            found = [None if g is None else array(g) for g in grads]
            if p.derive > 1:
                again = [g.double().pow(2).sum() for g in grads if g is not None and g.requires_grad]
                if again:
                    second = torch.autograd.grad(sum(again), ends, allow_unused=True)
                    return found + [None if g is None else array(g) for g in second]
                found += [None] * len(ends)
            return found
        except RuntimeError as error:
            return "RuntimeError", str(error).split(".")[0]


def array(t: Any) -> Any:
    return t if isinstance(t, np.ndarray) else t.detach().numpy().copy()


def version(t: Any) -> int:
    return 0 if isinstance(t, np.ndarray) else t._version


def shown(t: Any) -> Any:
    """Values, layout, and what autograd says of ``t``."""
    if isinstance(t, np.ndarray):
        return t.copy()
    try:
        asks: Any = t.requires_grad, t.is_leaf
    except RuntimeError as error:
        asks = type(error).__name__
    layout = [s for s, n in zip(t.stride(), t.shape, strict=True) if n > 1] if t.numel() else None
    return array(t), layout, asks, t._version


def memory(t: Any) -> np.ndarray[Any, Any]:
    """The array that shows the memory of ``t``."""
    if isinstance(t, np.ndarray):
        return t
    shown: np.ndarray[Any, Any] = t.detach().numpy()
    return shown


def place(array: Any, memories: list[Any]) -> tuple[int | None, int]:
    """Which of the ``memories`` an array looks into, and where it begins."""
    at = int(array.__array_interface__["data"][0])
    for n, known in enumerate(memories):
        start = int(known.__array_interface__["data"][0])
        if start <= at < start + known.nbytes:
            return n, at
    return None, at


def sharing(tensors: list[Any], memories: list[Any]) -> list[Any]:
    """Which tensors are one object, which share memory, and how far apart they begin.

    Among tensors outside of ``memories``, those with bytes in common share.
    """
    found: list[Any] = []
    arrays = list(map(memory, tensors))
    places = [place(a, memories) for a in arrays]
    for n, t in enumerate(tensors):
        same = next(k for k, o in enumerate(tensors) if o is t)
        if not arrays[n].size:
            found.append((same, None))
            continue
        where, at = places[n]
        first = next(
            k for k, (other, _) in enumerate(places)
            if other == where and arrays[k].size and (where is not None or np.may_share_memory(arrays[k], arrays[n]))
        )  # fmt: skip
        found.append((same, first, at - places[first][1]))
    return found
