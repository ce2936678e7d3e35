"""Parameters computed from others: ``register_parametrization`` and the modules behind it."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from tracecomp.eager.modes import no_grad
from tracecomp.eager.tensor import Tensor
from tracecomp.nn.containers import ModuleDict, ModuleList
from tracecomp.nn.module import Module
from tracecomp.nn.parameter import Parameter

_caching = 0
_cache: dict[tuple[int, str], Tensor] = {}


@contextmanager
def cached() -> Iterator[None]:
    """A context in which every parametrised tensor is computed once."""
    global _caching
    _caching += 1
    try:
        yield
    finally:
        _caching -= 1
        if not _caching:
            _cache.clear()


def _check_like(before: Tensor, after: object, what: str, unsafe: bool, shape: bool = True) -> None:
    """ValueError when the result of ``what`` is not a tensor, or, unless ``unsafe``, has another dtype or shape."""
    if not isinstance(after, Tensor):
        raise ValueError(f"A {what} must return a tensor. Got {type(after).__name__}.")
    if unsafe:
        return
    wrong = "dtype" if after.dtype is not before.dtype else "shape" if shape and after.shape != before.shape else ""
    if wrong and what == "right_inverse":
        raise ValueError(
            f"When `right_inverse` outputs one tensor, it may not change the {wrong}.\noriginal {wrong}: "
            f"{getattr(before, wrong)}\nright_inverse {wrong}: {getattr(after, wrong)}"
        )
    if wrong:
        raise ValueError(
            f"Registering a parametrization may not change the {wrong} of the tensor, unless `unsafe` flag is enabled."
            f"\nunparametrized {wrong}: {getattr(before, wrong)}\nparametrized {wrong}: {getattr(after, wrong)}"
        )


class ParametrizationList(ModuleList):
    """The parametrisations of one tensor and their operands (``original``, or ``original0``, ...)."""

    def __init__(self, modules: Sequence[Module], original: Tensor, unsafe: bool = False) -> None:
        if not modules:
            raise ValueError("ParametrizationList requires one or more modules.")
        super().__init__(modules)
        self.unsafe = unsafe
        start: Any = original
        with no_grad():
            for module in reversed(list(self)):
                if hasattr(module, "right_inverse"):
                    with suppress(NotImplementedError):
                        start = module.right_inverse(start)
        self.is_tensor = isinstance(start, Tensor)
        if not self.is_tensor and not isinstance(start, Sequence):
            raise ValueError(
                "'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). Got "
                f"{type(start).__name__}"
            )
        for i, part in enumerate([start] if self.is_tensor else start):
            if not isinstance(part, Tensor):
                raise ValueError(
                    "When 'right_inverse' outputs a sequence of tensors, it must be a sequence of Tensor. Got element "
                    f"{i} of the sequence with type {type(part).__name__}."
                )
        self.ntensors = 1 if self.is_tensor else len(start)
        if self.is_tensor:
            _check_like(original, start, "right_inverse", unsafe)
            if start is not original:
                original.data = start.data
            start = [original]
        for i, part in enumerate(start):
            self._set_original("original" if self.is_tensor else f"original{i}", part, original)
        if not unsafe:
            with no_grad():
                _check_like(original, self(), "parametrization", unsafe, shape=not hasattr(self[0], "right_inverse"))

    def _set_original(self, name: str, value: Tensor, like: Tensor) -> None:
        if isinstance(like, Parameter):
            kept = value if isinstance(value, Parameter) else Parameter(value, like.requires_grad)
            self.register_parameter(name, kept)
        else:
            self.register_buffer(name, value)

    def originals(self) -> list[Tensor]:
        """The tensors that the first parametrisation takes."""
        if self.is_tensor:
            return [self.original]
        return [getattr(self, f"original{i}") for i in range(self.ntensors)]

    def right_inverse(self, value: Tensor) -> None:
        """Change the originals so that the parametrised tensor becomes ``value``."""
        with no_grad():
            start: Any = value
            for module in reversed(list(self)):
                if not hasattr(module, "right_inverse"):
                    raise RuntimeError(f"parametrization {type(module).__name__} does not implement right_inverse.")
                start = module.right_inverse(start)
            if self.is_tensor:
                _check_like(self.originals()[0], start, "right_inverse", self.unsafe)
            elif not isinstance(start, Sequence) or len(start) != self.ntensors:
                raise ValueError(f"'right_inverse' must return a sequence of {self.ntensors} tensors.")
            for own, new in zip(self.originals(), [start] if self.is_tensor else start, strict=True):
                own.data = new.data

    def forward(self) -> Tensor:
        """The parametrised tensor."""
        modules = list(self)
        value: Any = modules[0](*self.originals())
        for module in modules[1:]:
            value = module(value)
        return value


def _inject(module: Module, name: str) -> None:
    """Give ``module`` a separate class in which ``name`` is the parametrised tensor."""
    cls = type(module)
    if "parametrizations" not in module._modules:

        def deepcopy(self: Any, memo: dict[int, Any]) -> Any:
            made = object.__new__(type(self))
            memo[id(self)] = made
            made.__dict__.update({k: copy.deepcopy(v, memo) for k, v in self.__dict__.items()})
            return made

        def getstate(self: Any) -> Any:
            raise RuntimeError(
                "Serialization of parametrized modules is only supported through state_dict(): its class was made by "
                "register_parametrization and cannot be imported"
            )

        own = {"__deepcopy__": deepcopy, "__getstate__": getstate}
        module.__class__ = cls = type(f"Parametrized{cls.__name__}", (cls,), own)
        module.parametrizations = ModuleDict()

    def get(self: Any) -> Tensor:
        key = (id(self), name)
        if not _caching:
            return self.parametrizations[name]()
        if key not in _cache:
            _cache[key] = self.parametrizations[name]()
        return _cache[key]

    def set(self: Any, value: Tensor) -> None:
        self.parametrizations[name].right_inverse(value)

    setattr(cls, name, property(get, set))


def register_parametrization(
    module: Module, tensor_name: str, parametrization: Module, *, unsafe: bool = False
) -> Module:
    """Let ``module.tensor_name`` be ``parametrization(original)``. ValueError when there is no such tensor."""
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        if not unsafe:
            with no_grad():
                before: Tensor = getattr(module, tensor_name)
                after = parametrization(before)
                _check_like(before, after, "parametrization", unsafe)
                if hasattr(parametrization, "right_inverse"):
                    with suppress(NotImplementedError):
                        _check_like(before, parametrization.right_inverse(after), "right_inverse", unsafe)
        module.parametrizations[tensor_name].append(parametrization)
        return module
    if tensor_name not in module._parameters and tensor_name not in module._buffers:
        raise ValueError(
            f"Module '{module}' does not have a parameter, a buffer, or a parametrized element with name "
            f"'{tensor_name}'"
        )
    original = getattr(module, tensor_name)
    entry = ParametrizationList([parametrization], original, unsafe)
    delattr(module, tensor_name)
    _inject(module, tensor_name)
    module.parametrizations[tensor_name] = entry
    return module


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Whether some tensor (or the named one) of ``module`` is parametrised."""
    entries = module._modules.get("parametrizations")
    if not isinstance(entries, ModuleDict) or not len(entries):
        return False
    return tensor_name is None or tensor_name in entries


def remove_parametrizations(module: Module, tensor_name: str, leave_parametrized: bool = True) -> Module:
    """Make the tensor plain again, with its parametrised value or (on request) its original."""
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"Module {module} does not have a parametrization on {tensor_name}")
    entry = module.parametrizations[tensor_name]
    if not leave_parametrized and not entry.is_tensor:
        raise ValueError(
            "Cannot leave unparametrized (`leave_parametrized=False`) a tensor that is parametrized in terms of a "
            "sequence of tensors."
        )
    first = entry.originals()[0]
    value = first
    if leave_parametrized:
        with no_grad():
            computed = entry()
        if entry.is_tensor:
            with no_grad():
                first.data = computed.data
        else:
            value = Parameter(computed, first.requires_grad) if isinstance(first, Parameter) else computed
    delattr(type(module), tensor_name)
    del module.parametrizations[tensor_name]
    if isinstance(value, Parameter):
        module.register_parameter(tensor_name, value)
    else:
        module.register_buffer(tensor_name, value)
    if not is_parametrized(module):
        del module._modules["parametrizations"]
        module.__class__ = type(module).__bases__[0]
    return module


def type_before_parametrizations(module: Module) -> type:
    """The class that ``module`` had before its first parametrisation."""
    return type(module).__bases__[0] if is_parametrized(module) else type(module)


def transfer_parametrizations_and_params(
    from_module: Module, to_module: Module, tensor_name: str | None = None
) -> Module:
    """Give ``to_module`` copies of the parametrisations of ``from_module``."""
    names = [tensor_name] if tensor_name else list(from_module.parametrizations.keys())
    for name in names:
        entry = from_module.parametrizations[name]
        if not hasattr(to_module, name):
            setattr(to_module, name, Parameter(entry.originals()[0].detach().clone()))
        for parametrization in entry:
            register_parametrization(to_module, name, copy.deepcopy(parametrization))
        with no_grad():
            for own, other in zip(to_module.parametrizations[name].originals(), entry.originals(), strict=True):
                own.data = other.detach().clone()
    return to_module
