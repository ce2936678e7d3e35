"""Nested containers as a flat list of leaves and a description, under the names of ``torch.utils._pytree``.

Tuples, lists, dictionaries, named tuples, deques and classes of ``register_pytree_node`` are containers. Recordings
have a faster form, ``record/pytree.py``, whose descriptions are guards.
"""

from __future__ import annotations

import json
from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

__all__ = [
    "SUPPORTED_NODES",
    "Context",
    "DictKey",
    "GetAttrKey",
    "KeyPath",
    "LeafSpec",
    "MappingKey",
    "NodeDef",
    "PyTree",
    "SequenceKey",
    "TreeSpec",
    "arg_tree_leaves",
    "key_get",
    "keystr",
    "register_constant",
    "register_dataclass",
    "register_pytree_node",
    "tree_all",
    "tree_any",
    "tree_flatten",
    "tree_flatten_with_path",
    "tree_is_leaf",
    "tree_iter",
    "tree_leaves",
    "tree_leaves_with_path",
    "tree_map",
    "tree_map_",
    "tree_map_only",
    "tree_map_only_",
    "tree_map_with_path",
    "tree_structure",
    "tree_unflatten",
    "treespec_dumps",
    "treespec_loads",
]  # fmt: skip

PyTree: TypeAlias = Any
Context: TypeAlias = Any
KeyPath: TypeAlias = tuple[Any, ...]
FlattenFunc: TypeAlias = Callable[[Any], tuple[list[Any], Context]]
UnflattenFunc: TypeAlias = Callable[[Iterable[Any], Context], Any]
IsLeaf: TypeAlias = Callable[[Any], bool] | None


@dataclass(frozen=True)
class SequenceKey:
    """A place in a list or tuple."""

    idx: int

    def __str__(self) -> str:
        return f"[{self.idx!r}]"

    def get(self, container: Any) -> Any:
        return container[self.idx]


@dataclass(frozen=True)
class MappingKey:
    """A place in a dictionary."""

    key: Any

    def __str__(self) -> str:
        return f"[{self.key!r}]"

    def get(self, container: Any) -> Any:
        return container[self.key]


DictKey = MappingKey


@dataclass(frozen=True)
class GetAttrKey:
    """An attribute."""

    name: str

    def __str__(self) -> str:
        return f".{self.name}"

    def get(self, container: object) -> Any:
        return getattr(container, self.name)


class NodeDef(NamedTuple):
    """How a container is taken apart and put together."""

    type: type[Any]
    flatten_fn: FlattenFunc
    unflatten_fn: UnflattenFunc
    flatten_with_keys_fn: Callable[[Any], tuple[list[tuple[Any, Any]], Context]] | None = None


SUPPORTED_NODES: dict[type[Any], NodeDef] = {}
SUPPORTED_SERIALIZED_TYPES: dict[type[Any], Any] = {}
_SERIALIZED: dict[str, tuple[type[Any], Callable[[Context], Any], Callable[[Any], Context]]] = {}


def register_pytree_node(
    cls: type[Any], flatten_fn: FlattenFunc, unflatten_fn: UnflattenFunc, *, serialized_type_name: str | None = None,
    to_dumpable_context: Callable[[Context], Any] | None = None,
    from_dumpable_context: Callable[[Any], Context] | None = None,
    flatten_with_keys_fn: Callable[[Any], Any] | None = None,
) -> None:  # fmt: skip
    """Make ``cls`` a container; ValueError when it is one already."""
    if cls in SUPPORTED_NODES:
        raise ValueError(f"{cls} is already registered as pytree node.")
    SUPPORTED_NODES[cls] = NodeDef(cls, flatten_fn, unflatten_fn, flatten_with_keys_fn)
    name = serialized_type_name or f"{cls.__module__}.{cls.__qualname__}"
    _SERIALIZED[name] = (cls, to_dumpable_context or (lambda c: c), from_dumpable_context or (lambda c: c))


_register_pytree_node = register_pytree_node


def register_dataclass(cls: type[Any], *, field_names: list[str] | None = None, drop_field_names: Any = None) -> None:
    """Make a dataclass a container of its fields."""
    names = field_names or [f for f in cls.__dataclass_fields__ if f not in (drop_field_names or ())]

    def keyed(x: object) -> tuple[list[tuple[Any, Any]], Context]:
        return [(GetAttrKey(n), getattr(x, n)) for n in names], None

    register_pytree_node(
        cls, lambda x: ([getattr(x, n) for n in names], None),
        lambda values, _: cls(**dict(zip(names, values, strict=True))), flatten_with_keys_fn=keyed,
    )  # fmt: skip


def register_constant(cls: type[Any]) -> None:
    """Make ``cls`` a container without leaves: its objects are part of the description."""
    register_pytree_node(cls, lambda x: ([], x), lambda _, x: x, flatten_with_keys_fn=lambda x: ([], x))


def _deregister_pytree_node(cls: type[Any]) -> None:
    SUPPORTED_NODES.pop(cls)


# ---- Python's own containers


def _list_flatten(d: Any) -> tuple[list[Any], Context]:
    return list(d), None


def _list_flatten_with_keys(d: Any) -> tuple[list[tuple[Any, Any]], Context]:
    return [(SequenceKey(i), x) for i, x in enumerate(d)], None


def _list_unflatten(values: Iterable[object], context: Context) -> list[Any]:
    return list(values)


def _tuple_unflatten(values: Iterable[object], context: Context) -> tuple[Any, ...]:
    return tuple(values)


def _dict_flatten(d: Mapping[object, object]) -> tuple[list[Any], Context]:
    return list(d.values()), list(d)


def _dict_flatten_with_keys(d: Mapping[object, object]) -> tuple[list[tuple[Any, Any]], Context]:
    return [(MappingKey(k), v) for k, v in d.items()], list(d)


def _dict_unflatten(values: Iterable[object], context: Context) -> dict[Any, Any]:
    return dict(zip(context, values, strict=True))


def _ordered_dict_unflatten(values: Iterable[object], context: Context) -> OrderedDict[Any, Any]:
    return OrderedDict(zip(context, values, strict=True))


def _defaultdict_flatten(d: Any) -> tuple[list[Any], Context]:
    return list(d.values()), [d.default_factory, list(d)]


def _defaultdict_unflatten(values: Iterable[object], context: Context) -> Any:
    return defaultdict(context[0], zip(context[1], values, strict=True))


def _namedtuple_flatten(d: Any) -> tuple[list[Any], Context]:
    return list(d), type(d)


def _namedtuple_with_keys(d: Any) -> tuple[list[tuple[Any, Any]], Context]:
    return [(GetAttrKey(n), x) for n, x in zip(d._fields, d, strict=True)], type(d)


def _namedtuple_unflatten(values: Iterable[object], context: Context) -> Any:
    return context(*values)


register_pytree_node(tuple, _list_flatten, _tuple_unflatten, flatten_with_keys_fn=_list_flatten_with_keys)
register_pytree_node(list, _list_flatten, _list_unflatten, flatten_with_keys_fn=_list_flatten_with_keys)
register_pytree_node(dict, _dict_flatten, _dict_unflatten, flatten_with_keys_fn=_dict_flatten_with_keys)
register_pytree_node(
    OrderedDict, _dict_flatten, _ordered_dict_unflatten, flatten_with_keys_fn=_dict_flatten_with_keys
)  # fmt: skip
register_pytree_node(
    defaultdict, _defaultdict_flatten, _defaultdict_unflatten,
    flatten_with_keys_fn=lambda d: ([(MappingKey(k), v) for k, v in d.items()], [d.default_factory, list(d)]),
)  # fmt: skip
register_pytree_node(
    deque, lambda d: (list(d), d.maxlen), lambda values, maxlen: deque(values, maxlen),
    flatten_with_keys_fn=lambda d: ([(SequenceKey(i), x) for i, x in enumerate(d)], d.maxlen),
)  # fmt: skip
register_pytree_node(
    namedtuple, _namedtuple_flatten, _namedtuple_unflatten,  # type: ignore[arg-type]
    flatten_with_keys_fn=_namedtuple_with_keys,
)  # fmt: skip


def is_namedtuple_class(cls: Any) -> bool:
    """Whether ``cls`` is a class of named tuples."""
    return isinstance(cls, type) and issubclass(cls, tuple) and hasattr(cls, "_fields")


def is_namedtuple_instance(value: object) -> bool:
    return is_namedtuple_class(type(value))


def is_structseq_instance(value: object) -> bool:
    """Whether ``value`` is of one of Python's own types like ``os.stat_result``."""
    return isinstance(value, tuple) and hasattr(value, "n_sequence_fields")


def _get_node_type(tree: object) -> Any:
    return namedtuple if is_namedtuple_instance(tree) and type(tree) not in SUPPORTED_NODES else type(tree)


def tree_is_leaf(tree: PyTree, is_leaf: IsLeaf = None) -> bool:
    """Whether ``tree`` is not a container."""
    return (is_leaf is not None and is_leaf(tree)) or _get_node_type(tree) not in SUPPORTED_NODES


# ---- descriptions


@dataclass(eq=False)
class TreeSpec:
    """The structure of a tree without its leaves."""

    type: Any
    context: Context
    children_specs: list[TreeSpec] = field(default_factory=list)

    def __post_init__(self) -> None:
        leaf = self.type is None
        self.num_leaves: int = 1 if leaf else sum(c.num_leaves for c in self.children_specs)
        self.num_nodes: int = 1 + sum(c.num_nodes for c in self.children_specs)
        self.num_children = len(self.children_specs)

    def children(self) -> list[TreeSpec]:
        return list(self.children_specs)

    def child(self, index: int) -> TreeSpec:
        return self.children_specs[index]

    def is_leaf(self) -> bool:
        return self.type is None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TreeSpec) or self.type is not other.type or self.num_children != other.num_children:
            return False
        return bool(self._context_of() == other._context_of()) and self.children_specs == other.children_specs

    def _context_of(self) -> Any:
        return self.context

    def __hash__(self) -> int:
        context = self.context if isinstance(self.context, Hashable) else str(self.context)
        return hash((self.type, context, tuple(map(hash, self.children_specs))))

    def __repr__(self) -> str:
        if self.is_leaf():
            return "*"
        children = ", ".join(map(repr, self.children_specs))
        return f"TreeSpec({self.type.__name__}, {self.context}, [{children}])"

    def unflatten(self, leaves: Iterable[object]) -> PyTree:
        """The tree with ``leaves``; ValueError when there are more or fewer than it has places."""
        leaves = list(leaves)
        if len(leaves) != self.num_leaves:
            raise ValueError(
                f"treespec.unflatten(leaves): `leaves` has length {len(leaves)} but the spec refers to a pytree that "
                f"holds {self.num_leaves} items ({self})."
            )
        return self._build(iter(leaves))

    def _build(self, leaves: Any) -> PyTree:
        if self.is_leaf():
            return next(leaves)
        return SUPPORTED_NODES[self.type].unflatten_fn([c._build(leaves) for c in self.children_specs], self.context)

    def flatten_up_to(self, tree: PyTree) -> list[Any]:
        """Return the parts of ``tree``, which begins like this one, at this one's leaves; ValueError otherwise."""
        if self.is_leaf():
            return [tree]
        if _get_node_type(tree) is not self.type:
            raise ValueError(f"Node type mismatch; expected {self.type!r}, but got {type(tree)!r}.")
        parts, context = SUPPORTED_NODES[self.type].flatten_fn(tree)
        if len(parts) != self.num_children or (self.type is not defaultdict and context != self.context):
            raise ValueError(f"Node context or arity mismatch; expected {self!r}, but got {tree!r}.")
        return [x for c, part in zip(self.children_specs, parts, strict=True) for x in c.flatten_up_to(part)]


class LeafSpec(TreeSpec):
    """The description of a leaf."""

    def __init__(self) -> None:
        super().__init__(None, None, [])


_LEAF = LeafSpec()


def treespec_leaf() -> TreeSpec:
    return _LEAF


def _flatten(tree: PyTree, leaves: list[object], is_leaf: IsLeaf) -> TreeSpec:
    if tree_is_leaf(tree, is_leaf):
        leaves.append(tree)
        return _LEAF
    kind = _get_node_type(tree)
    parts, context = SUPPORTED_NODES[kind].flatten_fn(tree)
    return TreeSpec(kind, context, [_flatten(part, leaves, is_leaf) for part in parts])


def tree_flatten(tree: PyTree, is_leaf: IsLeaf = None) -> tuple[list[Any], TreeSpec]:
    """The leaves of ``tree``, and its description.

    >>> tree_flatten({"a": 1, "b": (2, [3])})
    ([1, 2, 3], TreeSpec(dict, ['a', 'b'], [*, TreeSpec(tuple, None, [*, TreeSpec(list, None, [*])])]))
    """
    leaves: list[Any] = []
    spec = _flatten(tree, leaves, is_leaf)
    return leaves, spec


def tree_unflatten(leaves: Iterable[object], treespec: TreeSpec) -> PyTree:
    """The tree with these leaves; ValueError when there are more or fewer than it has places."""
    return treespec.unflatten(leaves)


def tree_leaves(tree: PyTree, is_leaf: IsLeaf = None) -> list[Any]:
    return tree_flatten(tree, is_leaf)[0]


def tree_iter(tree: PyTree, is_leaf: IsLeaf = None) -> Iterable[Any]:
    return iter(tree_leaves(tree, is_leaf))


def tree_structure(tree: PyTree, is_leaf: IsLeaf = None) -> TreeSpec:
    return tree_flatten(tree, is_leaf)[1]


def tree_map(func: Callable[..., object], tree: PyTree, *rests: PyTree, is_leaf: IsLeaf = None) -> PyTree:
    """``tree`` with ``func(leaf, *leaves of rests)`` for each leaf."""
    leaves, spec = tree_flatten(tree, is_leaf)
    others = [spec.flatten_up_to(r) for r in rests]
    return spec.unflatten([func(*xs) for xs in zip(leaves, *others, strict=True)])


def tree_map_(func: Callable[..., object], tree: PyTree, *rests: PyTree, is_leaf: IsLeaf = None) -> PyTree:
    """``tree``, after ``func`` was called for each leaf."""
    tree_map(func, tree, *rests, is_leaf=is_leaf)
    return tree


def _is_one(kinds: Any, value: Any) -> bool:
    return isinstance(value, kinds) if isinstance(kinds, type | tuple) or hasattr(kinds, "__args__") else kinds(value)


def map_only(kinds: object, /) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator: apply the function to values of ``kinds`` (types, or a predicate), and return others unchanged."""
    return lambda func: lambda x: func(x) if _is_one(kinds, x) else x


def tree_map_only(kinds: object, func: Callable[..., object], tree: PyTree, is_leaf: IsLeaf = None) -> PyTree:
    """``tree_map`` for the leaves that are of ``kinds`` (types, or a predicate)."""
    return tree_map(map_only(kinds)(func), tree, is_leaf=is_leaf)


def tree_map_only_(kinds: object, func: Callable[..., object], tree: PyTree, is_leaf: IsLeaf = None) -> PyTree:
    return tree_map_(map_only(kinds)(func), tree, is_leaf=is_leaf)


def tree_all(pred: Callable[[Any], bool], tree: PyTree, is_leaf: IsLeaf = None) -> bool:
    return all(map(pred, tree_leaves(tree, is_leaf)))


def tree_any(pred: Callable[[Any], bool], tree: PyTree, is_leaf: IsLeaf = None) -> bool:
    return any(map(pred, tree_leaves(tree, is_leaf)))


def tree_all_only(kinds: object, pred: Callable[[Any], bool], tree: PyTree, is_leaf: IsLeaf = None) -> bool:
    return all(pred(x) for x in tree_leaves(tree, is_leaf) if _is_one(kinds, x))


def tree_any_only(kinds: object, pred: Callable[[Any], bool], tree: PyTree, is_leaf: IsLeaf = None) -> bool:
    return any(pred(x) for x in tree_leaves(tree, is_leaf) if _is_one(kinds, x))


def arg_tree_leaves(*args: PyTree, **kwargs: PyTree) -> list[Any]:
    """The leaves of all arguments."""
    return tree_leaves((args, kwargs))


def _broadcast_to_and_flatten(tree: PyTree, treespec: TreeSpec, is_leaf: IsLeaf = None) -> list[Any] | None:
    """The leaves of ``tree`` repeated for all leaves of ``treespec`` below them; None where they do not fit."""
    if tree_is_leaf(tree, is_leaf):
        return [tree] * treespec.num_leaves
    if treespec.is_leaf() or _get_node_type(tree) is not treespec.type:
        return None
    parts, context = SUPPORTED_NODES[treespec.type].flatten_fn(tree)
    if len(parts) != treespec.num_children or context != treespec.context:
        return None
    found: list[Any] = []
    for part, spec in zip(parts, treespec.children_specs, strict=True):
        below = _broadcast_to_and_flatten(part, spec, is_leaf)
        if below is None:
            return None
        found += below
    return found


# ---- with paths


def _with_paths(tree: PyTree, path: KeyPath, is_leaf: IsLeaf) -> Iterable[tuple[KeyPath, Any]]:
    if tree_is_leaf(tree, is_leaf):
        yield path, tree
        return
    node = SUPPORTED_NODES[_get_node_type(tree)]
    if node.flatten_with_keys_fn is None:
        raise ValueError(f"Did not find a flatten_with_keys_fn for type: {node.type}.")
    for key, part in node.flatten_with_keys_fn(tree)[0]:
        yield from _with_paths(part, (*path, key), is_leaf)


def tree_flatten_with_path(tree: PyTree, is_leaf: IsLeaf = None) -> tuple[list[tuple[KeyPath, Any]], TreeSpec]:
    """Pairs of path and leaf, and the description."""
    return list(_with_paths(tree, (), is_leaf)), tree_structure(tree, is_leaf)


def tree_leaves_with_path(tree: PyTree, is_leaf: IsLeaf = None) -> list[tuple[KeyPath, Any]]:
    return list(_with_paths(tree, (), is_leaf))


def tree_map_with_path(func: Callable[..., object], tree: PyTree, *rests: PyTree, is_leaf: IsLeaf = None) -> PyTree:
    """``tree`` with ``func(path, leaf, *leaves of rests)`` for each leaf."""
    pairs, spec = tree_flatten_with_path(tree, is_leaf)
    others = [spec.flatten_up_to(r) for r in rests]
    return spec.unflatten([func(*pair, *xs) for pair, *xs in zip(pairs, *others, strict=True)])


def keystr(kp: KeyPath) -> str:
    """A path as text: ``['a'][0].b``."""
    return "".join(map(str, kp))


def key_get(obj: object, kp: KeyPath) -> Any:
    """The value at a path of ``obj``."""
    for key in kp:
        obj = key.get(obj)
    return obj


# ---- descriptions as text


def treespec_dumps(treespec: TreeSpec, protocol: int | None = None) -> str:
    """A description as JSON."""
    return json.dumps([1, _dumped(treespec)])


def _dumped(spec: TreeSpec) -> dict[str, Any]:
    if spec.is_leaf():
        return {"type": None, "context": None, "children_spec": []}
    name = next(n for n, (cls, *_) in _SERIALIZED.items() if cls is spec.type)
    context = json.dumps(_SERIALIZED[name][1](spec.context))
    return {"type": name, "context": context, "children_spec": [_dumped(c) for c in spec.children_specs]}


def treespec_loads(serialized: str) -> TreeSpec:
    """The description that ``treespec_dumps`` wrote."""
    return _loaded(json.loads(serialized)[1])


def _loaded(data: dict[str, Any]) -> TreeSpec:
    if data["type"] is None:
        return _LEAF
    cls, _, from_dumpable = _SERIALIZED[data["type"]]
    return TreeSpec(cls, from_dumpable(json.loads(data["context"])), [_loaded(c) for c in data["children_spec"]])
