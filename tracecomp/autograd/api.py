"""``backward`` and ``grad``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, TypeAlias

from tracecomp.autograd.engine import Target, run_backward
from tracecomp.autograd.walks import walk
from tracecomp.eager import dispatch
from tracecomp.eager.foreign import check_takes, is_foreign
from tracecomp.eager.tensor import Tensor, create, gradient_edge
from tracecomp.functional.publish import publish
from tracecomp.ir.op import OPS

Tensors: TypeAlias = Tensor | Sequence[Tensor]


def backward(
    tensors: Tensors,
    grad_tensors: Tensor | Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Tensors | None = None,
) -> None:
    """Add the gradients of ``tensors`` to ``.grad`` of the leaves (or of ``inputs`` only)."""
    outputs = _listed(tensors, "backward")
    if inputs is not None and not isinstance(inputs, Tensor) and len(inputs) == 0:
        raise RuntimeError("`inputs` argument to `backward` cannot be empty.")
    grads = _root_grads(outputs, grad_tensors, len(outputs))
    targets = None
    if inputs is not None:
        given = _listed(inputs, "backward")
        targets = _targets(given)
        for x in given:
            if isinstance(x, Tensor) and x.grad_fn is not None:
                x.retain_grad()
    roots, keep_graph = _roots(outputs), bool(create_graph if retain_graph is None else retain_graph)
    if targets is None and not create_graph and walk(roots, grads, keep_graph):
        return
    run_backward(roots, grads, keep_graph=keep_graph, create_graph=create_graph, targets=targets)


def grad(
    outputs: Tensors,
    inputs: Tensors,
    grad_outputs: Tensor | Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Any, ...]:
    """The gradients of ``outputs`` with respect to ``inputs``, as a tuple; nothing is accumulated."""
    outs, ins = _listed(outputs, "grad"), _listed(inputs, "grad")
    if not ins:
        raise RuntimeError("`inputs` argument to `grad` cannot be empty.")
    if materialize_grads and allow_unused is False:
        raise ValueError("Expected allow_unused to be True or not passed when materialize_grads=True")
    if is_grads_batched:
        return _batched(outs, ins, grad_outputs, create_graph, bool(allow_unused or materialize_grads))
    grads = _root_grads(outs, grad_outputs, len(outs))
    targets = _targets(ins)
    found = run_backward(
        _roots(outs), grads, keep_graph=bool(create_graph if retain_graph is None else retain_graph),
        create_graph=create_graph, targets=targets, accumulate=False,
    )  # fmt: skip
    results = [found.get(t) for t in targets]
    if materialize_grads:
        return tuple(_zeros(x) if g is None else g for x, g in zip(ins, results, strict=True))
    unused = next((i for i, g in enumerate(results) if g is None), None)
    if not allow_unused and unused is not None:
        raise RuntimeError(
            f"The differentiated Tensor at index {unused} appears to not have been used in the graph. Set "
            "allow_unused=True if this is the desired behavior."
        )
    return tuple(results)


def _batched(
    outs: list[Tensor], ins: list[Tensor], grad_outputs: object, create_graph: bool, allow_unused: bool
) -> tuple[Any, ...]:
    given = _listed(grad_outputs, "grad")
    rows = [
        grad(outs, ins, [g[i] for g in given], True, create_graph, allow_unused=allow_unused)
        for i in range(len(given[0]))
    ]
    return tuple(None if column[0] is None else _stack(column) for column in zip(*rows, strict=True))


def _stack(rows: Sequence[Tensor]) -> Tensor:
    shape = (1, *rows[0].shape)
    apply = Tensor.__tracecomp_apply__
    lifted = tuple(apply(OPS["reshape"], (r,), {"shape": shape}) for r in rows)
    result: Tensor = apply(OPS["concat"], lifted, {"axis": 0})
    return result


def _listed(tensors: Any, name: str) -> list[Any]:
    listed = [tensors] if isinstance(tensors, Tensor) or is_foreign(type(tensors)) else list(tensors)
    check_takes(name, map(type, listed))
    return listed


def _targets(inputs: Sequence[Any]) -> list[Target]:
    """Return the destinations of the gradients of ``inputs``.

    RuntimeError for other objects, and for tensors without gradients.
    """
    found: list[Target] = []
    for x in inputs:
        if not isinstance(x, Tensor):
            raise RuntimeError(f"all inputs have to be Tensors, but got {type(x).__name__}")
        edge = gradient_edge(x)
        if edge is None:
            raise RuntimeError("One of the differentiated Tensors does not require grad")
        found.append(edge)
    return found


def _roots(outputs: Sequence[Tensor]) -> list[Target]:
    roots = []
    for i, t in enumerate(outputs):
        edge = gradient_edge(t)
        if edge is None:
            raise RuntimeError(f"element {i} of tensors does not require grad and does not have a grad_fn")
        roots.append(edge)
    return roots


def _zeros(x: Tensor) -> Tensor:
    return create("full", value=0.0, shape=tuple(x.shape), dtype=x.dtype)


def _root_grads(outputs: Sequence[Tensor], given: object, count: int) -> list[Tensor]:
    grads: list[Tensor | None] = [None] * count if given is None else _listed(given, "backward")
    if len(grads) != count:
        raise RuntimeError(f"got {count} tensors and {len(grads)} gradients")
    found = []
    for i, (out, g) in enumerate(zip(outputs, grads, strict=True)):
        if not isinstance(out, Tensor):
            raise TypeError(f"element {i} of outputs must be Tensor, not {type(out).__name__}")
        if g is None:
            if out.requires_grad and out.numel() != 1:
                raise RuntimeError("grad can be implicitly created only for scalar outputs")
            if out.dtype.is_complex:
                raise RuntimeError(f"grad can be implicitly created only for real scalar outputs but got {out.dtype}")
            ones = partial(create, "full", value=1.0, shape=tuple(out.shape), dtype=out.dtype)
            g = dispatch.call("ones_like", out) if type(out) in dispatch.CLASSES else ones()
        elif not isinstance(g, Tensor):
            raise TypeError(f"gradients can be either Tensors or None, but got {type(g).__name__}")
        elif g._data.shape != out._data.shape:
            raise RuntimeError(
                f"Mismatch in shape: grad_output[{i}] has a shape of {g.shape} and output[{i}] has a shape of "
                f"{out.shape}."
            )
        elif g.dtype.is_complex is not out.dtype.is_complex:
            raise RuntimeError(
                "For complex Tensors, both grad_output and output are required to have the same dtype. Mismatch in "
                f"dtype: grad_output[{i}] has a dtype of {g.dtype} and output[{i}] has a dtype of {out.dtype}."
            )
        found.append(g)
    return found


def _backward_method(
    self: Tensor,
    gradient: Tensor | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Tensors | None = None,
) -> None:
    """Add the gradients of this tensor to ``.grad`` of the leaves. See :func:`tracecomp.autograd.backward`."""
    backward(self, gradient, retain_graph, create_graph, inputs)


publish(_backward_method, "Tensor.backward")
