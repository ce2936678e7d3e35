"""Parameters, buffers and modules by dotted names: PyTorch's ``torch.nn.utils._named_member_accessor``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tracecomp.eager.tensor import Tensor
from tracecomp.nn.module import Module

_MISSING = object()


def set_tensor(module: Module, name: str, tensor: Tensor) -> None:
    """Put ``tensor`` in the place of a parameter, a buffer or an attribute, without a check."""
    swap_tensor(module, name, tensor, allow_missing=True)


def swap_tensor(module: Module, name: str, tensor: Any, allow_missing: bool = False) -> Any:
    """Put ``tensor`` in the place ``name`` and return the one before; ``_MISSING`` removes the name.

    KeyError for a dotted name, AttributeError for a missing one unless ``allow_missing`` is set, TypeError for a value
    that is not a tensor.
    """
    if "." in name:
        raise KeyError('tensor name can\'t contain "."')
    if tensor is not _MISSING and tensor is not None and not isinstance(tensor, Tensor):
        raise TypeError(f"{tensor} is not an instance of torch.Tensor")
    place: dict[str, Any] = next((d for d in (module._parameters, module._buffers) if name in d), module.__dict__)
    before = place.get(name, _MISSING)
    if before is _MISSING and not allow_missing:
        raise AttributeError(f"{module._get_name()} has no attribute `{name}`")
    if tensor is not _MISSING:
        place[name] = tensor
    elif before is not _MISSING:
        del place[name]
    return before


class NamedMemberAccessor:
    """The members of a module and of its parts by dotted names."""

    def __init__(self, module: Module) -> None:
        self.module = module

    def get_submodule(self, name: str) -> Module:
        """The part called ``name``; the module itself for an empty name."""
        return self.module.get_submodule(name)

    def get_tensor(self, name: str) -> Tensor:
        """The tensor called ``name``. AttributeError if there is none."""
        part, last = self._place(name)
        tensor = getattr(part, last)
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{tensor} is not an instance of torch.Tensor")
        return tensor

    def swap_tensor(self, name: str, value: Tensor, allow_missing: bool = False) -> Any:
        """Replace the tensor called ``name`` and return it."""
        part, last = self._place(name)
        return swap_tensor(part, last, value, allow_missing)

    def swap_tensors_dict(
        self, named: dict[str, Tensor], allow_missing: bool = False
    ) -> tuple[dict[str, Any], list[str]]:
        """Replace the named tensors; return them by name, and the names that were missing.

        RuntimeError for missing names unless ``allow_missing`` is set; then nothing changes.
        """
        before = {name: self.swap_tensor(name, value, True) for name, value in named.items()}
        missing = [name for name, value in before.items() if value is _MISSING]
        if missing and not allow_missing:
            for name, value in before.items():
                self.swap_tensor(name, value, True)
            raise RuntimeError(f"Missing key(s): {', '.join(map(repr, missing))}.")
        return before, missing

    def check_keys(self, keys: Iterable[str]) -> tuple[list[str], list[str]]:
        """The tensors that ``keys`` lack, and the keys without a tensor."""
        keys = set(keys)
        own = {name for name, _ in self.module.named_parameters(remove_duplicate=False)}
        own |= {name for name, _ in self.module.named_buffers(remove_duplicate=False)}
        return sorted(own - keys), sorted(keys - own)

    def _place(self, name: str) -> tuple[Module, str]:
        path, _, last = name.rpartition(".")
        return self.module.get_submodule(path), last
