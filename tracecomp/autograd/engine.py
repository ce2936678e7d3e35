"""The backward pass: it runs nodes in reverse order of creation, accumulates gradients and calls hooks."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Sequence
from typing import Any, cast

import numpy as np

from tracecomp.autograd.anomaly import check_nan, explain
from tracecomp.base.capture_guide import Section
from tracecomp.eager.aliasing import check_write
from tracecomp.eager.device import use
from tracecomp.eager.grad_fn import AccumulateGrad
from tracecomp.eager.meta import in_order
from tracecomp.eager.modes import modes
from tracecomp.eager.tensor import Tensor, assign_, get_grad, own, set_grad
from tracecomp.eager.tensor_base import Edge, Node, TensorBase
from tracecomp.ir.arrays import memory_order
from tracecomp.ir.op import OPS
from tracecomp.ir.types import from_numpy_dtype
from tracecomp.ops.autodiff import sum_to

Target = tuple[Node, int]
_PLAIN = (np.dtype(np.float32), np.dtype(np.float64))
Buffers = dict[Node, list[Tensor | None]]


def run_backward(
    roots: Sequence[Target],
    grads: Sequence[Tensor],
    *,
    keep_graph: bool,
    create_graph: bool,
    targets: Sequence[Target] | None = None,
    accumulate: bool = True,
    inside: bool = False,
) -> dict[Target, Tensor | None]:
    """Send ``grads`` from ``roots`` backwards. With ``targets``, only nodes on paths to them run, and their gradients
    are returned.

    With ``inside``, the pass ends at the targets: it skips their hooks and paths from one to another. This form is for
    recording, so no tensor retains its gradients.
    """
    before, outer = modes.grad, modes.backward_pass
    modes.grad = create_graph and not modes.inference
    try:
        with np.errstate(all="ignore"):
            modes.backward_pass = current = _Run(keep_graph, targets, accumulate, inside)
            return current.run(roots, grads)
    finally:
        modes.grad, modes.backward_pass = before, outer
        if modes.recorder is not None:
            modes.recorder.backward.origin = None


class _Run:
    """One backward pass."""

    def __init__(self, keep_graph: bool, targets: Sequence[Target] | None, accumulate: bool, inside: bool) -> None:
        self.keep_graph = keep_graph
        self.accumulate = accumulate
        self.wanted = None if targets is None else set(targets)
        self.inside = inside
        self.borders = {n for n, _ in targets or ()} if inside else set()
        self.ends: set[Node] = set()
        self.captured: dict[Target, Tensor | None] = {}
        self.buffers: Buffers = {}
        self._reached: Collection[Node] = ()
        self._needed: set[Node] | None = None

    def executes(self, node: Node) -> bool:
        """Whether ``node`` is part of this pass: reached from its roots, and needed where targets are given."""
        return node in self._reached and (self._needed is None or node in self._needed)

    def has_arrived(self, edge: Edge) -> bool:
        """Whether a gradient has arrived at ``edge`` already."""
        return edge is not None and edge[0] in self.buffers and self.buffers[edge[0]][edge[1]] is not None

    def taken(self, edge: Edge) -> Tensor | None:
        """Take the gradient that has arrived at ``edge``, to add to it and to send it there again."""
        if edge is None or edge[0] not in self.buffers:
            return None
        slots = self.buffers[edge[0]]
        found, slots[edge[1]] = slots[edge[1]], None
        return found

    def run(self, roots: Sequence[Target], grads: Sequence[Tensor]) -> dict[Target, Tensor | None]:
        """Run the nodes that the roots lead to, each when its last gradient has arrived; the captured gradients.

        Nodes that only lead from one that passes gradients on (``Node.passes_on``) run if they are given a gradient.
        The others count as done, so that nodes behind them do not wait.
        """
        if modes.recorder is not None:
            modes.recorder.backward_from(roots, grads)
        for (node, number), grad in zip(roots, grads, strict=True):
            self._arrive(node, number, grad)
        if not self.inside:
            self._announce(roots)
        # The number of gradients each node waits for: it runs after the last has arrived, so every node runs once.
        waiting, order = _dependencies([node for node, _ in roots], self.borders)
        needed, self._reached = None, order
        if self.wanted is not None:
            self._needed = needed = _leading_to({n for n, _ in self.wanted}, order)
            # The last nodes on the paths to wanted gradients: nothing behind them is computed.
            self.ends = self.borders or {
                n for n, _ in self.wanted if not any(e is not None and e[0] in needed for e in n.edges)
            }
        # Newest first: of the ready nodes, run the last one created. That is PyTorch's order, which hooks can observe.
        ready = [(-node.number, node) for node in self.buffers if not waiting.get(node)]
        heapq.heapify(ready)
        while ready:
            _, node = heapq.heappop(ready)
            if needed is not None and node not in needed:
                continue
            edges = node.edges
            reached = node in self.buffers
            found = self._step(node) if reached else ()
            if node.edges is not edges:
                self._taken_apart(node, edges, waiting, needed)
            only_given = node.passes_on or not reached
            for k, edge in enumerate(node.edges):
                if edge is None or node in self.ends:
                    continue
                child, number = edge
                given = found[k] if k < len(found) else None
                if given is not None or not only_given:
                    self._arrive(child, number, given)
                waiting[child] -= 1
                if not waiting[child]:
                    heapq.heappush(ready, (-child.number, child))
        return self.captured

    def _announce(self, roots: Sequence[Target]) -> None:
        """Mark nodes whose gradients are observed: in a differentiable pass, all of them."""
        nodes = [n for n, _ in self.wanted or ()]
        if modes.grad:
            nodes += _dependencies([node for node, _ in roots], set())[1]
        for node in nodes:
            node.observe()

    def _taken_apart(
        self, node: Node, before: Sequence[Edge], waiting: dict[Node, int], needed: set[Node] | None
    ) -> None:
        """Wait for the nodes that have just replaced ``node``: they lead to the same places as its edges.

        On the way there may be nodes that have run: those of results which passed their gradients on to ``node``.
        """
        ends = {edge[0] for edge in before if edge is not None}
        for edge in before:
            if edge is not None:
                waiting[edge[0]] -= 1
        new, stack = {node}, [node]
        while stack:
            for child in [e[0] for e in stack.pop().edges if e is not None]:
                if not waiting.get(child) and child not in ends:
                    new.add(child)
                    stack.append(child)
                waiting[child] = waiting.get(child, 0) + 1
        if needed is not None:
            needed |= new

    def _arrive(self, node: Node, number: int, grad: Tensor | None) -> None:
        slots = self.buffers.get(node)
        if slots is None:
            slots = self.buffers[node] = [None] * len(node.out_types)
        if grad is not None:
            if type(grad) is not Tensor and _consists_of_others(grad) and not isinstance(node, AccumulateGrad):
                grad = grad.to_dense()  # derivatives of operators are defined for dense tensors
            have = slots[number]
            slots[number] = grad if have is None else add(have, grad)

    def _step(self, node: Node) -> Sequence[Tensor | None]:
        """Return the gradients of a node's operands; hooks, captures and checks run in PyTorch's order."""
        # The gradient is complete: all contributions have arrived (``run``).
        grads = self.buffers.pop(node)
        leaf = isinstance(node, AccumulateGrad)
        if node not in self.borders:
            if leaf or node.tensor_hooks:
                _tensor_hooks(node, grads)
            if node.retained and not self.inside:
                _retain(node, grads)
        if node.pre_hooks:
            for hook in list(node.pre_hooks.values()):
                grads = _replaced(hook(tuple(grads)), grads)
        # Captured after hooks, which may have replaced it.
        if self.wanted is not None:
            for number, grad in enumerate(grads):
                if (node, number) in self.wanted:
                    self.captured[node, number] = grad
        # Leaves: the gradient is stored here.
        if leaf:
            if self.accumulate and grads[0] is not None:
                accumulate(cast("AccumulateGrad", node).variable, grads[0])
                if modes.recorder is not None:
                    modes.recorder.backward_done(node, grads, (), ())
            return ()
        if node in self.ends:
            return ()
        # A node without used results receives no gradient; a user's node is called in any case, as in PyTorch.
        if not node.takes_nothing and all(g is None for g in grads):
            return ()
        if modes.recorder is not None:
            modes.recorder.backward.step(node)
        try:
            found = _validated(node, cast("Sequence[Tensor | None]", node.backward(grads)))
        except Exception:  # in any derivative; re-raised
            explain(node)
            raise
        if modes.recorder is not None:
            modes.recorder.backward_done(node, grads, found, node.edges)
        if modes.anomaly and modes.check_nan:
            if modes.recorder is not None:
                modes.recorder.refuse_here("detects anomalies in a backward pass", Section.EXCLUDE)
            check_nan(node, found)
        if node.post_hooks:
            for hook in list(node.post_hooks.values()):
                found = _replaced(hook(tuple(found), tuple(grads)), found)
        # Only now, as hooks and anomaly mode may still read the saved tensors.
        if not self.keep_graph:
            node.release()
        return found


def _consists_of_others(x: TensorBase) -> bool:
    """Whether ``x`` has no memory to accumulate into, like a sparse tensor."""
    return hasattr(type(x), "__tensor_flatten__")


def add(a: TensorBase, b: TensorBase) -> Tensor:
    """The sum of two gradients; of a sparse one and a dense one it is dense."""
    if _consists_of_others(a) or _consists_of_others(b):
        return cast("Tensor", a) + cast("Tensor", b)
    result: Tensor = Tensor.__tracecomp_apply__(OPS["add"], (a, b), {})
    return result


def accumulate(variable: TensorBase, grad: TensorBase) -> None:
    """Add ``grad`` to ``variable.grad``: in place, unless the gradient is differentiated."""
    have = get_grad(variable)
    if _added_at_once(variable, have, grad):
        pass
    elif _consists_of_others(grad) or (have is not None and _consists_of_others(have)):
        if modes.recorder is not None:
            modes.recorder.refuse_here("gives a parameter a sparse gradient", Section.EXCLUDE, "Use sparse=False")
        set_grad(variable, cast("Tensor", grad).detach() if have is None else add(have, grad))
    elif have is None:
        fresh = own(grad)
        if not (fresh._data.flags.c_contiguous and variable._data.flags.c_contiguous):
            order = memory_order(variable._data) or tuple(range(fresh._data.ndim))
            fresh._data = in_order(fresh._data, order)
        set_grad(variable, fresh)
    elif modes.grad:
        set_grad(variable, add(have, grad))
    else:
        assign_(have, add(have, grad))
    if variable._post_hooks:
        for hook in list(variable._post_hooks.values()):
            hook(variable)


def _added_at_once(variable: TensorBase, have: Tensor | None, grad: TensorBase) -> bool:
    """Accumulate on arrays, if nothing observes it and the memory order is plain; return whether it was done."""
    if modes.grad or modes.recorder is not None or use.begun or type(grad) is not Tensor:
        return False
    array = grad._data
    if array.dtype not in _PLAIN or not array.flags.c_contiguous or not variable._data.flags.c_contiguous:
        return False
    if have is None:
        fresh = Tensor._wrap(array.copy())
        fresh._inference = modes.inference
        set_grad(variable, fresh)
        return True
    if type(have) is not Tensor or have._data.dtype is not array.dtype or have._data.shape != array.shape:
        return False
    check_write(have, False)
    if not have._data.flags.writeable:
        return False
    np.add(have._data, array, out=have._data)
    have._shared_storage().wrote()
    return True


def _tensor_hooks(node: Node, grads: list[Tensor | None]) -> None:
    """Run hooks of the tensors that the node computed (or whose accumulator it is)."""
    if isinstance(node, AccumulateGrad) and node.variable._hooks:
        _run_hooks(node.variable._hooks, grads, 0)
    if node.tensor_hooks:
        for number, hooks in node.tensor_hooks.items():
            _run_hooks(hooks, grads, number)


def _retain(node: Node, grads: Sequence[Tensor | None]) -> None:
    """Set ``grad`` of the node's tensors with ``retain_grad``."""
    for number, ref in cast("dict[int, Any]", node.retained).items():
        tensor, grad = ref(), grads[number]
        if tensor is not None and grad is not None:
            have = get_grad(tensor)
            set_grad(tensor, own(grad) if have is None else add(have, grad))


def _run_hooks(hooks: dict[int, Any], grads: list[Tensor | None], number: int) -> None:
    for hook in list(hooks.values()):
        grad = grads[number]
        if grad is None:
            return
        result = hook(grad)
        if result is None:
            continue
        if not isinstance(result, Tensor):
            raise TypeError(f"hook should return a Tensor or None, but got {type(result).__name__}")
        if result._data.shape != grad._data.shape:
            raise RuntimeError(f"hook has changed the size of value: from {list(grad.shape)} to {list(result.shape)}")
        if result._data.dtype != grad._data.dtype:
            raise RuntimeError(f"hook has changed the type of value: from {grad.dtype} to {result.dtype}")
        grads[number] = result


def _replaced(result: Any, old: Sequence[Tensor | None]) -> list[Tensor | None]:
    if result is None:
        return list(old)
    found = list(result) if isinstance(result, tuple | list) else [result]
    if len(found) != len(old):
        raise RuntimeError(
            f"a hook has returned an incorrect number of values: got {len(found)}, but expected {len(old)}"
        )
    return found


def _validated(node: Node, grads: Sequence[Tensor | None]) -> list[Tensor | None]:
    """Cast and expand gradients to the dtype and shape of their operands."""
    found: list[Tensor | None] = list(grads)
    for k, edge in enumerate(node.edges[: len(found)]):
        grad = found[k]
        if edge is None or grad is None:
            continue
        dtype, shape = edge[0].out_types[edge[1]]
        if grad._data.shape != shape:
            try:
                fits = np.broadcast_shapes(grad._data.shape, shape) == grad._data.shape
            except ValueError:
                fits = False
            if not fits:
                raise RuntimeError(
                    f"Function {node.name()} returned an invalid gradient at index {k} - got {list(grad.shape)} but "
                    f"expected shape compatible with {list(shape)}"
                )
            grad = found[k] = sum_to(grad, shape)
        if grad._data.dtype != dtype:
            found[k] = Tensor.__tracecomp_apply__(OPS["cast"], (grad,), {"dtype": from_numpy_dtype(dtype)})
    return found


def _dependencies(roots: Sequence[Node], borders: set[Node]) -> tuple[dict[Node, int], list[Node]]:
    """The number of gradients each node waits for, and every reachable node; the pass stops at ``borders``."""
    waiting: dict[Node, int] = {}
    seen = set(roots)
    stack = list(seen)
    order = []
    while stack:
        node = stack.pop()
        order.append(node)
        for edge in node.edges if node not in borders else ():
            if edge is not None:
                child = edge[0]
                waiting[child] = waiting.get(child, 0) + 1
                if child not in seen:
                    seen.add(child)
                    stack.append(child)
    return waiting, order


def _leading_to(targets: set[Node], nodes: list[Node]) -> set[Node]:
    """The nodes on a path to a target."""
    found = set(targets)
    for node in sorted(nodes, key=lambda n: n.number):
        if any(e is not None and e[0] in found for e in node.edges):
            found.add(node)
    return found
