"""Places that hold other tensors and numbers from call to call: attributes, globals, closure variables, their items."""

from __future__ import annotations

from dataclasses import dataclass
from types import CellType
from typing import Any

from tracecomp.eager.modes import module_changes
from tracecomp.eager.tensor import Tensor
from tracecomp.record.pytree import Leaves, flatten, unflatten

_ABSENT = object()


class Contents(dict[str, Any]):
    """A closure cell in the form of a mapping with one entry."""

    def __init__(self, cell: CellType) -> None:
        super().__init__()
        self.cell = cell

    def get(self, key: str, default: object = None) -> Any:
        try:
            return self.cell.cell_contents
        except ValueError:
            return default

    def __setitem__(self, key: str, value: object) -> None:
        self.cell.cell_contents = value


@dataclass(frozen=True, eq=False)
class StateSlot:
    """The entry ``key`` of ``mapping``: a tensor, or nested tuples, lists and dicts with tensors.

    ``where`` names it to people. ``module`` is the identity of the module whose attributes recordings compare when it
    changes, or 0.
    """

    mapping: dict[str, Any]
    key: str
    where: str
    module: int = 0

    @property
    def id(self) -> tuple[int, str]:
        """Equal for two places that are the same."""
        return slot_id(self.mapping, self.key)

    def value(self, default: object = None) -> Any:
        # Not by methods of a class of the program's own: the place is the entry itself.
        if isinstance(self.mapping, Contents):
            return self.mapping.get(self.key, default)
        return dict.get(self.mapping, self.key, default)

    def leaves(self) -> list[Any]:
        """The current contents, flattened from tuples, lists and dicts."""
        return leaves_of(self.value())

    def tensors(self) -> list[Tensor]:
        """The tensors held now."""
        return tensors_in(self.leaves())

    def fill(self, leaves: Leaves) -> None:
        """Hold ``leaves`` in the present tuples, lists and dicts, unless the program has deleted it."""
        if self.value(_ABSENT) is _ABSENT:
            return
        self.put(unflatten(flatten(self.value(), []), leaves), True)

    def put(self, value: object, same_object: bool) -> None:
        """Hold ``value`` from now on; with ``same_object``, lists and dicts that are here get new contents."""
        new = _assigned(self.value(), value) if same_object else value
        if isinstance(self.mapping, Contents):
            self.mapping[self.key] = new
        else:
            dict.__setitem__(self.mapping, self.key, new)
        if self.module:
            module_changes.changed(self.module)


def slot_id(mapping: object, key: str) -> tuple[int, str]:
    return (id(mapping.cell if isinstance(mapping, Contents) else mapping), key)


def leaves_of(value: object) -> list[Any]:
    leaves: list[Any] = []
    flatten(value, leaves)
    return leaves


def containers_within(value: object) -> list[Any]:
    """The lists and dicts in a container, in order, without itself."""
    parts = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    found = []
    for part in parts:
        found += [part] if isinstance(part, list | dict) else []
        found += containers_within(part)
    return found


def tensors_in(leaves: Leaves) -> list[Tensor]:
    return [leaf for leaf in leaves if isinstance(leaf, Tensor)]


def _assigned(old: Any, new: Any) -> Any:
    """``old`` with the contents of ``new`` where it is a list or a dict; else ``new``."""
    if isinstance(old, list):
        old[:] = [_assigned(a, b) for a, b in zip(old, new, strict=True)]
        return old
    if isinstance(old, dict):
        old.update({k: _assigned(old[k], v) for k, v in new.items()})
        return old
    return new
