"""state_dict and load_state_dict: the part of ``Module`` that saves and restores parameters and buffers."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from tracecomp.autograd import no_grad
from tracecomp.base.user_warnings import warn_as_pytorch
from tracecomp.eager.foreign import is_foreign
from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.nn.parameter import Parameter, is_lazy
from tracecomp.nn.sharding import of_whole, remade
from tracecomp.utils.hooks import RemovableHandle, register

EXTRA_STATE = "_extra_state"


class StateDict(OrderedDict[str, Any]):
    """An ordered mapping of names to tensors; ``_metadata`` holds the version of every module."""

    _metadata: OrderedDict[str, dict[str, Any]]

    def __repr__(self) -> str:
        return repr(OrderedDict(self))


class _Keys(NamedTuple):
    missing_keys: list[str]
    unexpected_keys: list[str]


class IncompatibleKeys(_Keys):
    """Keys that ``load_state_dict(strict=False)`` skipped."""

    __slots__ = ()

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return f"_IncompatibleKeys(missing_keys={self.missing_keys}, unexpected_keys={self.unexpected_keys})"

    __str__ = __repr__


class _WithModule:
    """A hook that is called with its module, through a weak reference."""

    def __init__(self, hook: Callable[..., Any], module: Any) -> None:
        self.hook, self.module = hook, weakref.ref(module)

    def __call__(self, *args: Any) -> Any:
        return self.hook(self.module(), *args)

    def __getstate__(self) -> tuple[Callable[..., Any], Any]:
        return self.hook, self.module()

    def __setstate__(self, state: tuple[Callable[..., object], object]) -> None:
        self.hook, module = state
        self.module = weakref.ref(module)


class ModuleState:
    """Saving and loading, by the layout and the rules of PyTorch's Module."""

    _version: int = 1
    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Tensor | None]
    _modules: dict[str, Any]
    _non_persistent_buffers_set: set[str]
    _state_dict_hooks: OrderedDict[int, Callable[..., Any]]
    _state_dict_pre_hooks: OrderedDict[int, Callable[..., Any]]
    _load_state_dict_pre_hooks: OrderedDict[int, Callable[..., Any]]
    _load_state_dict_post_hooks: OrderedDict[int, Callable[..., Any]]

    def get_extra_state(self) -> Any:
        """Override to store more than tensors in the state_dict."""
        raise RuntimeError("Reached a code path in Module.get_extra_state() that should never be called.")

    def set_extra_state(self, state: Any) -> None:
        """Override together with ``get_extra_state``."""
        raise RuntimeError("Reached a code path in Module.set_extra_state() that should never be called.")

    def _has_extra_state(self, method: str) -> bool:
        return getattr(type(self), method) is not getattr(ModuleState, method)

    def _persistent_tensors(self) -> Iterator[tuple[str, Tensor]]:
        buffers = ((k, v) for k, v in self._buffers.items() if k not in self._non_persistent_buffers_set)
        yield from ((name, value) for name, value in self._parameters.items() if value is not None)
        yield from ((name, value) for name, value in buffers if value is not None)

    def _save_to_state_dict(self, destination: StateDict, prefix: str, keep_vars: bool) -> None:
        for name, value in self._persistent_tensors():
            destination[prefix + name] = value if keep_vars or is_lazy(value) else value.detach()
        if self._has_extra_state("get_extra_state"):
            destination[prefix + EXTRA_STATE] = self.get_extra_state()

    def state_dict(
        self, *args: Any, destination: Any = None, prefix: str = "", keep_vars: bool = False
    ) -> dict[str, Any]:
        """Every parameter and persistent buffer by its dotted name, sharing memory with the module."""
        if args:
            given: list[Any] = [*args, *(destination, prefix, keep_vars)[len(args) :]]
            destination, prefix, keep_vars = given
        if destination is None:
            destination = StateDict()
            destination._metadata = OrderedDict()
        metadata = getattr(destination, "_metadata", None)
        local_metadata = {"version": self._version}
        if metadata is not None:
            metadata[prefix[:-1]] = local_metadata
        for hook in self._state_dict_pre_hooks.values():
            hook(self, prefix, keep_vars)
        self._save_to_state_dict(destination, prefix, keep_vars)
        for name, module in self._modules.items():
            if module is not None:
                module.state_dict(destination=destination, prefix=f"{prefix}{name}.", keep_vars=keep_vars)
        for hook in self._state_dict_hooks.values():
            replaced = hook(self, destination, prefix, local_metadata)
            if replaced is not None:
                if getattr(hook, "_from_public_api", False):
                    raise RuntimeError("state_dict post-hook must return None")
                destination = replaced
        return destination

    def _register_state_dict_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        if getattr(hook, "_from_public_api", False):
            raise RuntimeError(f"{hook} was previously registered via register_state_dict_post_hook")
        return register(self._state_dict_hooks, hook)

    def register_state_dict_post_hook(self, hook: Callable[..., None]) -> RemovableHandle:
        """``hook(module, state_dict, prefix, local_metadata)`` after ``state_dict()``; it returns None."""
        hook._from_public_api = True  # type: ignore[attr-defined]
        return register(self._state_dict_hooks, hook)

    def register_state_dict_pre_hook(self, hook: Callable[..., None]) -> RemovableHandle:
        """``hook(module, prefix, keep_vars)`` before ``state_dict()``."""
        return register(self._state_dict_pre_hooks, hook)

    def _register_load_state_dict_pre_hook(
        self, hook: Callable[..., Any], with_module: bool = False
    ) -> RemovableHandle:
        return register(self._load_state_dict_pre_hooks, _WithModule(hook, self) if with_module else hook)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., object]) -> RemovableHandle:
        """``hook(module, state_dict, prefix, local_metadata, strict, missing, unexpected, errors)`` before loading."""
        return self._register_load_state_dict_pre_hook(hook, with_module=True)

    def register_load_state_dict_post_hook(self, hook: Callable[..., None]) -> RemovableHandle:
        """``hook(module, incompatible_keys)`` after loading; it may edit the two lists."""
        return register(self._load_state_dict_post_hooks, hook)

    def _load_tensor(self, name: str, key: str, own: Tensor, given: object, assign: bool, errors: list[str]) -> None:
        if is_foreign(type(given)):  # from the state of one of PyTorch's modules
            given = T.tensor(given)
        if not isinstance(given, Tensor):
            errors.append(
                f'While copying the parameter named "{key}", expected torch.Tensor or Tensor-like object '
                f"from checkpoint but received {type(given)}"
            )
            return
        given = of_whole(own, given)
        if is_lazy(given) and is_lazy(own):
            return
        if not is_lazy(own) and tuple(given.shape) != tuple(own.shape):
            errors.append(
                f"size mismatch for {key}: copying a param with shape {given.shape} from checkpoint, "
                f"the shape in current model is {own.shape}."
            )
            return
        if assign:
            if isinstance(own, Parameter) and not isinstance(given, Parameter):
                given = remade(own, given)
            setattr(self, name, given)
            return
        if own.is_meta and not given.is_meta:
            warn_as_pytorch(
                f"for {key}: copying from a non-meta parameter in the checkpoint to a meta parameter in the current "
                "model, which is a no-op. (Did you mean to pass `assign=True` to assign items in the state dictionary "
                "to their corresponding key in the module instead of copying them in place?)",
            )
        try:
            with no_grad():
                own.copy_(given)
        except Exception as error:  # a subclass's copy_ may raise anything; PyTorch collects all messages
            errors.append(
                f'While copying the parameter named "{key}", whose dimensions in the model are {own.shape} and '
                f"whose dimensions in the checkpoint are {given.shape}, an exception occurred : {error.args}."
            )

    def _load_from_state_dict(
        self,
        state_dict: dict[str, object],
        prefix: str,
        local_metadata: dict[str, object],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        for hook in self._load_state_dict_pre_hooks.values():
            hook(state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)
        assign = bool(local_metadata.get("assign_to_params_buffers", False))
        expected = list(self._persistent_tensors())
        for name, own in expected:
            key = prefix + name
            if key in state_dict:
                self._load_tensor(name, key, own, state_dict[key], assign, error_msgs)
            elif strict:
                missing_keys.append(key)
        extra = prefix + EXTRA_STATE
        if self._has_extra_state("set_extra_state"):
            if extra in state_dict:
                self.set_extra_state(state_dict[extra])
            elif strict:
                missing_keys.append(extra)
        elif strict and extra in state_dict:
            unexpected_keys.append(extra)
        if strict:
            known = {name for name, _ in expected}
            for key in state_dict:
                rest = key.removeprefix(prefix)
                if key.startswith(prefix) and key != extra and not self._expects(rest, known):
                    unexpected_keys.append(key)

    def _expects(self, key: str, known: set[str]) -> bool:
        head, dot, _ = key.partition(".")
        return key in known if not dot else head in self._modules

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> IncompatibleKeys:
        """Copy ``state_dict`` into parameters and buffers.

        Raises RuntimeError that lists every missing key, unexpected key (both only if ``strict``) and shape mismatch;
        TypeError if ``state_dict`` is not a mapping.
        """
        if not isinstance(state_dict, Mapping):
            raise TypeError(f"Expected state_dict to be dict-like, got {type(state_dict)}.")
        missing: list[str] = []
        unexpected: list[str] = []
        errors: list[str] = []
        metadata = getattr(state_dict, "_metadata", None)
        entries: dict[str, Any] = OrderedDict(state_dict)

        def load(module: Any, entries: dict[str, Any], prefix: str) -> None:
            local = {} if metadata is None else metadata.get(prefix[:-1], {})
            if assign:
                local = {**local, "assign_to_params_buffers": True}
            module._load_from_state_dict(entries, prefix, local, True, missing, unexpected, errors)
            for name, child in module._modules.items():
                if child is not None:
                    start = f"{prefix}{name}."
                    load(child, {k: v for k, v in entries.items() if k.startswith(start)}, start)
            incompatible = IncompatibleKeys(missing, unexpected)
            for hook in module._load_state_dict_post_hooks.values():
                if hook(module, incompatible) is not None:
                    raise RuntimeError("Hooks registered with register_load_state_dict_post_hook must return None.")

        load(self, entries, "")
        if strict:
            for title, keys in (("Unexpected", unexpected), ("Missing", missing)):
                if keys:
                    listed = ", ".join(f'"{k}"' for k in keys)
                    errors.insert(0, f"{title} key(s) in state_dict: {listed}. ")
        if errors:
            raise RuntimeError(
                "Error(s) in loading state_dict for {}:\n\t{}".format(type(self).__name__, "\n\t".join(errors))
            )
        return IncompatibleKeys(missing, unexpected)
