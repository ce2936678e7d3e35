"""Modules that hold modules or parameters."""

from __future__ import annotations

import operator
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, SupportsIndex

from tracecomp.eager.foreign import check_takes
from tracecomp.eager.tensor import Tensor
from tracecomp.nn.module import Module, typename
from tracecomp.nn.parameter import Parameter


def _wrap_index(index: Any, length: int) -> int:
    index = operator.index(index)
    if not -length <= index < length:
        raise IndexError(f"index {index} is out of range")
    return index % length


class Sequential(Module):
    """Modules called one after another; from modules in order, or from an OrderedDict of them."""

    def __init__(self, *args: Any) -> None:
        super().__init__()
        if len(args) == 1 and isinstance(args[0], OrderedDict):
            for name, module in args[0].items():
                self.add_module(name, module)
        else:
            for position, module in enumerate(args):
                self.add_module(str(position), module)

    def forward(self, input: Any) -> Any:
        for module in self._modules.values():
            input = module(input)
        return input

    def _key(self, index: SupportsIndex) -> str:
        return list(self._modules)[_wrap_index(index, len(self))]

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return type(self)(OrderedDict(list(self._modules.items())[index]))
        return self._modules[self._key(index)]

    def __setitem__(self, index: SupportsIndex, module: Module) -> None:
        setattr(self, self._key(index), module)

    def __delitem__(self, index: SupportsIndex | slice) -> None:
        keys = list(self._modules)[index] if isinstance(index, slice) else [self._key(index)]
        for key in keys:
            delattr(self, key)
        self._renumber(list(self._modules.values()))

    def _renumber(self, modules: list[Any]) -> None:
        self._modules.clear()
        for position, module in enumerate(modules):
            self.add_module(str(position), module)

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._modules.values())

    def __add__(self, other: Sequential) -> Sequential:
        if not isinstance(other, Sequential):
            raise ValueError(f"add operator supports only objects of Sequential class, but {type(other)} is given.")
        return Sequential(*self, *other)

    def __iadd__(self, other: Sequential) -> Sequential:
        if not isinstance(other, Sequential):
            raise ValueError(f"add operator supports only objects of Sequential class, but {type(other)} is given.")
        return self.extend(other)

    def append(self, module: Module) -> Sequential:
        """Add a module at the end."""
        self.add_module(str(len(self)), module)
        return self

    def extend(self, sequential: Iterable[Module]) -> Sequential:
        """Add the modules of another container at the end."""
        for module in list(sequential):
            self.append(module)
        return self

    def insert(self, index: int, module: Module) -> Sequential:
        """Add a module before position ``index``. AssertionError unless it is a Module, IndexError out of range."""
        if not isinstance(module, Module):
            raise AssertionError(f"module should be of type: {Module}")
        if not -len(self) <= index <= len(self):
            raise IndexError(f"Index out of range: {index}")
        modules = list(self)
        modules.insert(index, module)
        self._renumber(modules)
        return self

    def pop(self, key: SupportsIndex) -> Any:
        """Remove and return the module at ``key``."""
        module = self[key]
        del self[key]
        return module


class ModuleList(Module):
    """A list of modules."""

    def __init__(self, modules: Iterable[Module] | None = None) -> None:
        super().__init__()
        if modules is not None:
            self.extend(modules)

    def _key(self, index: SupportsIndex) -> str:
        return str(_wrap_index(index, len(self)))

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return type(self)(list(self._modules.values())[index])
        return self._modules[self._key(index)]

    def __setitem__(self, index: SupportsIndex, module: Module) -> None:
        setattr(self, self._key(index), module)

    def __delitem__(self, index: Any) -> None:
        modules = list(self)
        del modules[index]
        self._replace(modules)

    def _replace(self, modules: list[Any]) -> None:
        self._modules.clear()
        self.extend(modules)

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._modules.values())

    def __iadd__(self, modules: Iterable[Module]) -> ModuleList:
        return self.extend(modules)

    def __add__(self, other: Iterable[Module]) -> ModuleList:
        return ModuleList([*self, *other])

    def __contains__(self, module: object) -> bool:
        return any(module is own for own in self)

    def append(self, module: Module) -> ModuleList:
        """Add a module at the end."""
        self.add_module(str(len(self)), module)
        return self

    def extend(self, modules: Iterable[Module]) -> ModuleList:
        """Add modules at the end. TypeError unless iterable."""
        if not isinstance(modules, Iterable):
            raise TypeError(f"ModuleList.extend should be called with an iterable, but got {type(modules).__name__}")
        for module in list(modules):
            self.append(module)
        return self

    def insert(self, index: int, module: Module) -> None:
        """Add a module before position ``index``."""
        modules = list(self)
        modules.insert(index, module)
        self._replace(modules)

    def pop(self, key: SupportsIndex) -> Any:
        """Remove and return the module at ``key``."""
        module = self[key]
        del self[key]
        return module

    def __repr__(self) -> str:
        if not len(self):
            return f"{self._get_name()}()"
        texts = [repr(m) for m in self]
        lines: list[str] = []
        start = 0
        for end in range(1, len(texts) + 1):
            if end < len(texts) and texts[end] == texts[start]:
                continue
            count = end - start
            label = f"({start}): " if count == 1 else f"({start}-{end - 1}): {count} x "
            lines.append(label + texts[start].replace("\n", "\n  "))
            start = end
        return f"{self._get_name()}(\n  " + "\n  ".join(lines) + "\n)"


class ModuleDict(Module):
    """A dictionary of modules, in order of insertion."""

    def __init__(self, modules: object = None) -> None:
        super().__init__()
        if modules is not None:
            self.update(modules)

    def __getitem__(self, key: str) -> Any:
        return self._modules[key]

    def __setitem__(self, key: str, module: Module) -> None:
        self.add_module(key, module)

    def __delitem__(self, key: str) -> None:
        del self._modules[key]

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __contains__(self, key: str) -> bool:
        return key in self._modules

    def clear(self) -> None:
        self._modules.clear()

    def pop(self, key: str) -> Any:
        """Remove and return the module under ``key``."""
        return self._modules.pop(key)

    def keys(self) -> Any:
        return self._modules.keys()

    def items(self) -> Any:
        return self._modules.items()

    def values(self) -> Any:
        return self._modules.values()

    def update(self, modules: object) -> None:
        """Add the modules of a mapping or of (name, module) pairs. TypeError or ValueError otherwise."""
        for key, module in _pairs(modules, "ModuleDict"):
            self[key] = module


def _pairs(entries: object, name: str) -> list[tuple[str, Any]]:
    if not isinstance(entries, Iterable):
        raise TypeError(
            f"{name}.update should be called with an iterable of key/value pairs, but got {type(entries).__name__}"
        )
    if isinstance(entries, Mapping | ModuleDict | ParameterDict):
        return list(entries.items())
    pairs = []
    for position, pair in enumerate(entries):
        if not isinstance(pair, Iterable):
            raise TypeError(f"{name} update sequence element #{position} should be Iterable; is{type(pair).__name__}")
        key_value = tuple(pair)
        if len(key_value) != 2:
            raise ValueError(f"{name} update sequence element #{position} has length {len(key_value)}; 2 is required")
        pairs.append((key_value[0], key_value[1]))
    return pairs


def _as_parameter(value: object) -> Any:
    check_takes("Parameter", (type(value),))
    return Parameter(value) if isinstance(value, Tensor) and not isinstance(value, Parameter) else value


class ParameterList(Module):
    """A list of parameters; tensors become parameters, other values are unchanged."""

    def __init__(self, values: Iterable[Any] | None = None) -> None:
        super().__init__()
        self._size = 0
        if values is not None:
            self.extend(values)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return type(self)(self[i] for i in range(*index.indices(len(self))))
        return getattr(self, str(_wrap_index(index, len(self))))

    def __setitem__(self, index: SupportsIndex, value: object) -> None:
        setattr(self, str(_wrap_index(index, len(self))), _as_parameter(value))

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def __iadd__(self, values: Iterable[object]) -> ParameterList:
        return self.extend(values)

    def append(self, value: Any) -> ParameterList:
        """Add a value at the end."""
        self._size += 1
        self[len(self) - 1] = value
        return self

    def extend(self, values: Iterable[Any]) -> ParameterList:
        """Add values at the end. TypeError unless iterable."""
        if not isinstance(values, Iterable) or isinstance(values, Tensor):
            raise TypeError(f"ParameterList.extend should be called with an iterable, but got {type(values).__name__}")
        for value in values:
            self.append(value)
        return self

    def extra_repr(self) -> str:
        return "\n".join(_describe(str(i), value, getattr(value, "dtype", None)) for i, value in enumerate(self))


class ParameterDict(Module):
    """A dictionary of parameters, in order of insertion."""

    def __init__(self, parameters: Any = None) -> None:
        super().__init__()
        self._keys: dict[str, None] = {}
        if parameters is not None:
            self.update(parameters)

    def __getitem__(self, key: str) -> Any:
        if key not in self._keys:
            raise KeyError(key)
        return getattr(self, key)

    def __setitem__(self, key: str, value: Any) -> None:
        self._keys[key] = None
        setattr(self, key, _as_parameter(value))

    def __delitem__(self, key: str) -> None:
        del self._keys[key]
        delattr(self, key)

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __reversed__(self) -> Iterator[str]:
        return reversed(self._keys)

    def __contains__(self, key: str) -> bool:
        return key in self._keys

    def __or__(self, other: ParameterDict) -> ParameterDict:
        return ParameterDict([*self.items(), *other.items()])

    def __ior__(self, other: ParameterDict) -> ParameterDict:
        self.update(other)
        return self

    def copy(self) -> ParameterDict:
        """A new dictionary of the same parameters."""
        return ParameterDict(OrderedDict(self.items()))

    def setdefault(self, key: str, default: Any = None) -> Any:
        """The value under ``key``, which becomes ``default`` when there is none."""
        if key not in self:
            self[key] = default
        return self[key]

    def clear(self) -> None:
        for key in list(self._keys):
            del self[key]

    def pop(self, key: str) -> Any:
        """Remove and return the value under ``key``."""
        value = self[key]
        del self[key]
        return value

    def popitem(self) -> tuple[str, Any]:
        """Remove and return the last pair. KeyError if there is none."""
        if not self._keys:
            raise KeyError("popitem(): dictionary is empty")
        key = next(reversed(self._keys))
        return key, self.pop(key)

    def get(self, key: str, default: Any = None) -> Any:
        return getattr(self, key, default)

    def fromkeys(self, keys: Iterable[str], default: object = None) -> ParameterDict:
        """A new dictionary with ``default`` under every key."""
        return ParameterDict((k, default) for k in keys)

    def keys(self) -> Any:
        return self._keys.keys()

    def items(self) -> Iterable[tuple[str, Any]]:
        return ((k, self[k]) for k in self._keys)

    def values(self) -> Iterable[Any]:
        return (self[k] for k in self._keys)

    def update(self, parameters: Any) -> None:
        """Add the entries of a mapping or of (name, value) pairs. TypeError or ValueError otherwise."""
        for key, value in _pairs(parameters, "ParameterDict"):
            self[key] = value

    def extra_repr(self) -> str:
        return "\n".join(_describe(key, value, typename(value)) for key, value in self.items())


def _describe(name: str, value: object, kind_of_elements: object) -> str:
    if not isinstance(value, Tensor):
        return f"  ({name}): Object of type: {type(value).__name__}"
    kind = "Parameter" if isinstance(value, Parameter) else "Tensor"
    size = "x".join(map(str, value.shape))
    return f"  ({name}): {kind} containing: [{kind_of_elements} of size {size}]"
