"""Tensors of which every process of a group has some rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tracecomp.base.errors import at_user_line
from tracecomp.communication.group import Group
from tracecomp.eager.modes import no_grad
from tracecomp.eager.overrides import disabled
from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.nn.parameter import Parameter
from tracecomp.ops.prim import prim


class Sharding:
    """The distribution of a tensor's rows: equal parts of axis 0, of which the last ones may have fewer or none.

    ``mesh`` is the caller's description of ``group``.
    """

    def __init__(
        self, shape: Sequence[int], group: Group, placements: tuple[object, ...], mesh: object = None
    ) -> None:  # fmt: skip
        self.shape, self.group, self.placements = tuple(shape), group, placements
        self.mesh = group if mesh is None else mesh
        rows = self.shape[0]
        self.each = -(-rows // group.size())
        self.start, self.stop = (min(r * self.each, rows) for r in (group.rank(), group.rank() + 1))

    @property
    def padded(self) -> int:
        """Elements of the largest part: the size that every process sends."""
        return self.each * math.prod(self.shape[1:])

    def own(self, whole: Tensor) -> Tensor:
        """Return this process's rows of ``whole``."""
        return whole[self.start : self.stop]

    def flat(self, rows: Tensor) -> Tensor:
        """Rows as ``padded`` elements."""
        missing = self.padded - rows.numel()
        return T.cat([rows.reshape(-1), T.zeros(missing, dtype=rows.dtype)]) if missing else rows.reshape(-1)

    def joined(self, parts: Sequence[Tensor]) -> Tensor:
        """Return the whole tensor from the ``padded`` elements of every process."""
        flat = T.cat(list(parts)) if len(parts) > 1 else parts[0]
        return flat[: math.prod(self.shape)].reshape(self.shape)

    def whole(self, rows: Tensor) -> Tensor:
        """The whole tensor, without gradient; all processes call it."""
        with no_grad():
            group = self.group
            found = prim.all_gather(self.flat(rows.detach()), group=group.group_name, size=group.size())
            return self.joined(found if isinstance(found, tuple) else (found,)).clone()

    def __deepcopy__(self, memo: object) -> Sharding:
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sharding) and (self.shape, self.group) == (other.shape, other.group)

    def __hash__(self) -> int:
        return hash(self.shape)


class ShardedTensor(Tensor):
    """The rows of this process: ``shape`` and all functions are those of the rows; ``full_tensor()`` is the whole."""

    __torch_function__ = disabled  # type: ignore[assignment]
    sharding: Sharding

    def full_tensor(self) -> Tensor:
        """The whole tensor, in every process; all of them call it."""
        return self.sharding.whole(self)

    @property
    def placements(self) -> tuple[object, ...]:
        """The placement of rows: ``(Shard(0),)``."""
        return self.sharding.placements

    @property
    def device_mesh(self) -> Any:
        """The processes that have the rows: the mesh or the group that the caller passed."""
        return self.sharding.mesh

    def as_parameter(self, requires_grad: bool) -> ShardedParameter:
        """Return the parameter with these rows."""
        return sharded_parameter(self.to_local(), self.sharding, requires_grad)

    def to_local(self) -> Tensor:
        """The rows as an ordinary tensor, in the same memory."""
        return Tensor.detach(self)

    def detach(self) -> Tensor:
        return marked(super().detach(), self.sharding)

    def __reduce_ex__(self, protocol: object) -> Any:
        raise RuntimeError(
            at_user_line(
                f"a tensor of shape {list(self.sharding.shape)} whose rows are spread over processes cannot be saved "
                "by one of them: use distributed.checkpoint, or full_tensor() in all processes"
            )
        )


class ShardedParameter(ShardedTensor, Parameter):
    """A parameter of which every process stores, updates and saves its rows."""

    __torch_function__ = disabled

    @property
    def grad(self) -> Tensor | None:
        """Its gradient, with the same sharding."""
        found = Tensor.grad.__get__(self)
        return found if found is None or isinstance(found, ShardedTensor) else marked(found, self.sharding)

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        Tensor.grad.__set__(self, value)  # type: ignore[attr-defined]

    @grad.deleter
    def grad(self) -> None:
        Tensor.grad.__delete__(self)  # type: ignore[attr-defined]

    def __repr__(self) -> str:
        place = f"rows {self.sharding.start} to {self.sharding.stop} of shape {list(self.sharding.shape)}"
        return f"Parameter, {place}:\n{Tensor.__repr__(self)}"

    def __deepcopy__(self, memo: dict[int, object]) -> Any:
        if id(self) not in memo:
            memo[id(self)] = sharded_parameter(self.to_local().clone(), self.sharding, self.requires_grad)
        return memo[id(self)]


def marked(rows: Tensor, sharding: Sharding) -> ShardedTensor:
    """Return ``rows`` as an object that knows its sharding."""
    rows.__class__ = ShardedTensor
    assert isinstance(rows, ShardedTensor)
    rows.sharding = sharding
    return rows


def sharded_parameter(rows: Tensor, sharding: Sharding, requires_grad: bool) -> ShardedParameter:
    """Return the parameter with ``rows``."""
    found: ShardedParameter = ShardedParameter(rows, requires_grad)
    found.sharding = sharding
    return found


def _drawn(name: str) -> Callable[..., Any]:
    """A method that draws random numbers for the whole tensor, of which the rows take theirs."""

    def run(self: ShardedTensor, *args: Any, **kwargs: Any) -> Any:
        whole = T.empty(self.sharding.shape, dtype=self.dtype)
        with no_grad():
            self.copy_(self.sharding.own(getattr(whole, name)(*args, **kwargs)))
        return self

    run.__name__ = name
    run.__doc__ = f"As ``Tensor.{name}`` of the whole tensor: every process draws the same numbers and keeps its rows."
    return run


for _name in (
    "normal_", "uniform_", "random_", "exponential_", "cauchy_", "log_normal_", "geometric_", "bernoulli_",
):  # fmt: skip
    setattr(ShardedTensor, _name, _drawn(_name))


def of_whole(tensor: Tensor, given: Tensor) -> Tensor:
    """The values to write to ``tensor``: its rows if ``given`` is a whole tensor and ``tensor`` is sharded."""
    if not isinstance(tensor, ShardedTensor) or isinstance(given, ShardedTensor):
        return given
    return tensor.sharding.own(given) if tuple(given.shape) == tensor.sharding.shape else given


def remade(param: Parameter, data: Tensor) -> Parameter:
    """Return a parameter like ``param`` with the memory of ``data``."""
    if isinstance(param, ShardedParameter):
        return sharded_parameter(data, param.sharding, param.requires_grad)
    return type(param)(data, param.requires_grad)
