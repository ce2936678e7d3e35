"""Processes as a grid: ``DeviceMesh``, with a group for each line of it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from tracecomp.base.errors import at_user_line
from tracecomp.communication.group import Group
from tracecomp.communication.world import world
from tracecomp.distributed.processes import (
    default_group,
    get_process_group_ranks,
    get_rank,
    get_world_size,
    init_process_group,
    is_initialized,
    new_group,
)
from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T

__all__ = ["DeviceMesh", "init_device_mesh"]


class DeviceMesh:
    """Ranks in an array of any number of dimensions, of which some may have names.

    ``mesh`` is that array, a tensor or nested lists, the same in all processes, which all create it. RuntimeError when
    it has more ranks than there are processes, or repeats a rank.
    """

    def __init__(
        self, device_type: str, mesh: Tensor | Sequence[Any], *, mesh_dim_names: Sequence[str] | None = None,
        _groups: Sequence[object] | None = None,
    ) -> None:  # fmt: skip
        self.device_type = device_type
        self.mesh = (mesh if isinstance(mesh, Tensor) else T.tensor(mesh)).detach()
        self.mesh_dim_names = tuple(mesh_dim_names) if mesh_dim_names else None
        self._parents: DeviceMesh | None = None
        if not is_initialized():
            init_process_group("gloo")
        ranks = self.mesh.flatten().tolist()
        if len(ranks) > get_world_size():
            raise RuntimeError(
                at_user_line(
                    f"Mesh should not be bigger than default world size {get_world_size()}, but found {len(ranks)} "
                    "ranks!"
                )
            )
        if len({*ranks}) < len(ranks):
            raise RuntimeError(at_user_line(f"DeviceMesh: ranks appear more than once: {ranks}"))
        self._place = self._found(get_rank())
        self._groups = [self._lines(dim) for dim in range(self.ndim)] if _groups is None else list(_groups)

    def _found(self, rank: int) -> list[int] | None:
        """The coordinates of a rank; None if it is not in the mesh."""
        places = (self.mesh == rank).nonzero().tolist()
        return [int(i) for i in places[0]] if places else None

    def _lines(self, dim: int) -> Any:
        """Create the groups of all lines along ``dim``; return this process's."""
        lines = self.mesh.transpose(dim, -1).reshape(-1, self.mesh.shape[dim]).tolist()
        if len(lines) == 1 and lines[0] == list(range(get_world_size())):
            return world.default
        made = [new_group([int(r) for r in line]) for line in lines]
        return next((g for g in made if isinstance(g, Group)), None)

    # ---- queries

    @property
    def ndim(self) -> int:
        return int(self.mesh.ndim)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.mesh.shape)

    def size(self, mesh_dim: int | None = None) -> int:
        """The number of ranks, in all or along one dimension."""
        return int(self.mesh.numel()) if mesh_dim is None else int(self.mesh.shape[mesh_dim])

    def get_coordinate(self) -> tuple[int, ...] | None:
        """The coordinates of this process; None if it is not in the mesh."""
        return tuple(self._place) if self._place is not None else None

    def get_rank(self) -> int:
        """This process's rank among all."""
        return get_rank()

    def get_local_rank(self, mesh_dim: int | str | None = None) -> int:
        """This process's coordinate along a dimension."""
        return get_rank(self.get_group(mesh_dim))

    def get_group(self, mesh_dim: int | str | None = None) -> Any:
        """The group of this process's line along a dimension, which is optional if there is only one."""
        if mesh_dim is None and self.ndim > 1:
            raise RuntimeError(
                at_user_line(
                    f"Found the DeviceMesh have {self.ndim} dimensions. Optional kwarg `mesh_dim` needs to be "
                    "specified when device_mesh.ndim > 1."
                )
            )
        return self._groups[self._dim(0 if mesh_dim is None else mesh_dim)]

    def get_all_groups(self) -> list[Any]:
        """The groups of this process, one for each dimension."""
        return [self.get_group(dim) for dim in range(self.ndim)]

    def _dim(self, name: int | str) -> int:
        if isinstance(name, int):
            return name
        if self.mesh_dim_names is None or name not in self.mesh_dim_names:
            raise KeyError(f"Invalid mesh_dim_name {name!r}. Valid mesh_dim_names are {self.mesh_dim_names}.")
        return self.mesh_dim_names.index(name)

    # ---- parts

    def __getitem__(self, names: str | tuple[str, ...]) -> DeviceMesh:
        """The mesh of this process along the named dimensions. KeyError for an unknown name."""
        if self.mesh_dim_names is None:
            raise RuntimeError("Cannot slice a DeviceMesh without mesh_dim_names!")
        listed = (names,) if isinstance(names, str) else tuple(names)
        dims = [self._dim(name) for name in listed]
        if listed == self.mesh_dim_names:
            return self
        if len({*dims}) < len(dims):
            raise KeyError(f"Invalid mesh_dim_names {listed} specified: one is repeated.")
        others = [d for d in range(self.ndim) if d not in dims]
        place = self._place or [0] * self.ndim
        part = self.mesh.permute(*others, *dims)[tuple(place[d] for d in others)]
        return self._child(part, listed, [self._groups[d] for d in dims])

    def _child(self, mesh: Tensor, names: Sequence[str], groups: Sequence[object]) -> DeviceMesh:
        found = DeviceMesh(self.device_type, mesh, mesh_dim_names=names, _groups=groups)
        found._parents = self._parents or self
        return found

    def _get_root_mesh(self) -> DeviceMesh:
        """The mesh of which this is a part."""
        return self._parents or self

    def _flatten(self, mesh_dim_name: str | None = None) -> DeviceMesh:
        """Return the mesh of all its ranks in one dimension."""
        root = self._get_root_mesh()
        others = [d for d in range(root.ndim) if (root.mesh_dim_names or ())[d] not in (self.mesh_dim_names or ())]
        rows = [self._line_of(root, others, at) for at in itertools.product(*(range(root.shape[d]) for d in others))]
        made = [new_group(row) for row in rows]
        group = next((g for g in made if isinstance(g, Group)), None)
        name = mesh_dim_name or "_".join(self.mesh_dim_names or ())
        return self._child(self.mesh.flatten(), (name,), [group])

    @staticmethod
    def _line_of(root: DeviceMesh, others: Sequence[int], at: Sequence[int]) -> list[int]:
        index: list[Any] = [slice(None)] * root.ndim
        for d, i in zip(others, at, strict=True):
            index[d] = i
        return [int(r) for r in root.mesh[tuple(index)].flatten().tolist()]

    @staticmethod
    def from_group(
        group: Any, device_type: str, mesh: Any = None, *, mesh_dim_names: Sequence[str] | None = None
    ) -> DeviceMesh:  # fmt: skip
        """Return a mesh for existing groups: one for each dimension of ``mesh``, or a single one."""
        groups = list(group) if isinstance(group, list | tuple) else [group]
        ranks = get_process_group_ranks(groups[0]) if mesh is None else mesh
        return DeviceMesh(device_type, ranks, mesh_dim_names=mesh_dim_names, _groups=groups)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, DeviceMesh) and self._key() == other._key())

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> object:
        return self.device_type, self.shape, tuple(self.mesh.flatten().tolist()), self.mesh_dim_names

    def __repr__(self) -> str:
        sizes = [str(n) for n in self.shape]
        if self.mesh_dim_names is not None:
            sizes = [f"{name}={n}" for name, n in zip(self.mesh_dim_names, sizes, strict=True)]
        strides = tuple(self.mesh.contiguous().stride())
        return f"DeviceMesh(({', '.join(sizes)}), '{self.device_type}', stride={strides})"


def group_of_mesh(mesh: object, what: str) -> Group:
    """Return the group over which ``what`` distributes rows: the default one, ``mesh`` itself, or its only line.

    A mesh of two dimensions is one of replicas and shards, as in PyTorch. NotImplementedError if it has replicas, or
    more dimensions.
    """
    if mesh is None:
        return default_group()
    if isinstance(mesh, Group):
        return mesh
    if not isinstance(mesh, DeviceMesh):
        raise TypeError(
            at_user_line(f"{what}: mesh must be a DeviceMesh or a process group, got {type(mesh).__name__}")
        )
    if mesh.ndim > 2 or mesh.size() != mesh.shape[-1]:
        raise NotImplementedError(
            at_user_line(f"{what}: {mesh} has replicas of shards, which are not supported. Use one dimension of it")
        )
    group = mesh.get_group(mesh.ndim - 1)
    if not isinstance(group, Group):
        raise RuntimeError(at_user_line(f"{what}: rank {get_rank()} is not in {mesh}"))
    return group


def init_device_mesh(
    device_type: str, mesh_shape: Sequence[int], *, mesh_dim_names: Sequence[str] | None = None,
    backend_override: object = None,
) -> DeviceMesh:  # fmt: skip
    """Create the mesh of all ranks in their order, in the shape ``mesh_shape``.

    Creates the default group if there is none. RuntimeError if names are not unique or their number differs from that
    of the dimensions.
    """
    if mesh_dim_names is not None:
        if len({*mesh_dim_names}) != len(mesh_dim_names):
            raise RuntimeError(
                at_user_line(
                    "Each mesh_dim_name must be unique. Found repeated mesh_dim_name in mesh_dim_names "
                    f"{tuple(mesh_dim_names)}"
                )
            )
        if len(mesh_shape) != len(mesh_dim_names):
            raise RuntimeError(
                at_user_line(
                    "mesh_shape and mesh_dim_names should have same length! Found "
                    f"len(mesh_dim_names): {len(mesh_dim_names)} and len(mesh_shape):{len(mesh_shape)}."
                )
            )
    if not device_type.isalpha():
        raise RuntimeError(at_user_line(f"Device type with index is not supported but got {device_type}."))
    count = 1
    for extent in mesh_shape:
        count *= extent
    return DeviceMesh(device_type, T.arange(count).reshape(*mesh_shape), mesh_dim_names=mesh_dim_names)
