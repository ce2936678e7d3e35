"""The base class of optimizers: parameter groups, state, saving, hooks."""

from __future__ import annotations

import copy
import functools
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tracecomp.base.code_origin import is_own
from tracecomp.base.errors import at_user_line, type_name
from tracecomp.base.interrupts import uninterrupted
from tracecomp.base.user_warnings import warn_as_pytorch
from tracecomp.eager.device import strided
from tracecomp.eager.foreign import check_takes, is_foreign
from tracecomp.eager.modes import enable_grad, modes, module_changes, no_grad, scope, set_grad_enabled
from tracecomp.eager.tensor import Tensor, clear_grad
from tracecomp.functional import names as T
from tracecomp.functional.default_dtype import default_dtype
from tracecomp.ir.types import float32, float64
from tracecomp.nn.sharding import ShardedTensor, marked, of_whole
from tracecomp.optim.options import Group, active
from tracecomp.optim.served import Served, updates
from tracecomp.optim.step_hooks import AFTER, BEFORE, hooked
from tracecomp.optim.step_hooks import _global_optimizer_post_hooks as _global_optimizer_post_hooks
from tracecomp.optim.step_hooks import _global_optimizer_pre_hooks as _global_optimizer_pre_hooks
from tracecomp.optim.step_hooks import register_optimizer_step_post_hook as register_optimizer_step_post_hook
from tracecomp.optim.step_hooks import register_optimizer_step_pre_hook as register_optimizer_step_pre_hook
from tracecomp.utils._foreach_utils import _group_tensors_by_device_and_dtype
from tracecomp.utils.hooks import RemovableHandle, register

State = dict[str, Any]
"""An optimizer's state of one parameter, or its whole saved state."""
Options = tuple[Any, ...]
"""The options of a group for one step, as returned by ``_group`` and unpacked by ``_update``."""
ParamsT = Iterable[Tensor | Group | tuple[str, Tensor]]
Scalar = float | Tensor
"""A number, or a tensor with one element, which a compiled step reads again in every call."""
Rates = Scalar | Sequence[Scalar]
"""One for all groups, or one for each."""
Closure = Callable[[], Scalar]
Hook = Callable[..., Any]
_SAVE = ("_optimizer_state_dict_pre_hooks", "_optimizer_state_dict_post_hooks")
_LOAD = ("_optimizer_load_state_dict_pre_hooks", "_optimizer_load_state_dict_post_hooks")


class _Required:
    """Marks an option without a default."""

    def __repr__(self) -> str:
        return "<required parameter>"


required = _Required()


def non_negative(**values: Scalar) -> None:
    """ValueError, with PyTorch's message, for a negative hyper-parameter; keys are its words with underscores."""
    for name, value in values.items():
        if not isinstance(value, Tensor) and not value >= 0.0:
            word = name.replace("_", " ") if name.startswith("learning") else f"{name} value"
            raise ValueError(f"Invalid {word}: {value}")


def check_betas(betas: Sequence[Scalar], name: str = "beta parameter") -> None:
    """ValueError unless every beta is in [0, 1)."""
    for i, beta in enumerate(betas):
        if not 0.0 <= beta < 1.0:
            raise ValueError(f"Invalid {name} at index {i}: {beta}")


def step_counter() -> Tensor:
    """The 0-d tensor that counts steps in the state."""
    counter: Tensor = T.tensor(0.0, dtype=float64 if default_dtype() is float64 else float32)
    return counter


def check_lr(lr: object) -> None:
    """ValueError when a learning rate is a tensor of several numbers."""
    check_takes("Optimizer", (type(lr),))
    if isinstance(lr, Tensor) and lr.numel() != 1:
        raise ValueError("Tensor lr must be 1-element")


def _named(listed: list[Any], group: Group) -> list[Any]:
    """Return the parameters of a list; names of (name, tensor) pairs go into ``group``."""
    names = [entry[0] for entry in listed if isinstance(entry, tuple)]
    if names and len(names) != len(listed):
        raise ValueError("all optimizer params should be with/without names. Some param names are missing")
    if names:
        group["param_names"] = names
        return [param for _, param in listed]
    return listed


def _use_grad_for_differentiable(func: Callable[..., object]) -> Callable[..., Any]:
    """Make a method ``step`` run without gradients, unless the optimizer's default ``differentiable`` is set."""

    @functools.wraps(func)
    def run(self: Optimizer, *args: Any, **kwargs: Any) -> Any:
        with set_grad_enabled(bool(self.defaults.get("differentiable"))):
            return func(self, *args, **kwargs)

    return run


def _default_to_fused_or_foreach(
    params: Sequence[Tensor], differentiable: bool, use_fused: bool = False
) -> tuple[bool, bool]:
    """Return (False, False): list and fused updates equal a loop over the tensors here."""
    return False, False


def _get_capturable_supported_devices(supports_xla: bool = True) -> list[str]:
    """Devices for which ``capturable=True`` is supported."""
    return ["cuda", "xpu", "hpu", *(["xla"] if supports_xla else [])]


def update_lists(
    kind: type[Optimizer], params: Sequence[Tensor], grads: Sequence[Tensor], states: Sequence[State], options: Options,
    maximize: bool, unscaled: bool = True,
) -> None:  # fmt: skip
    """Update each of ``params`` as ``kind`` would, from the gradient and the state at the same position.

    RuntimeError unless ``unscaled``: only PyTorch's fused kernels divide gradients by a scale.
    """
    if not unscaled:
        raise RuntimeError("grad_scale and found_inf are for fused kernels. Divide the gradients by the scale before.")
    rule = kind.__new__(kind)
    for param, grad, state in zip(params, grads, states, strict=True):
        update = rule._update_parts if param.dtype.is_complex else rule._update
        update(param, -grad if maximize else grad, state, options)


class Optimizer:
    """Update ``param_groups``. Subclasses define ``_group(group)`` (options of one step) and ``_update``.

    ``params`` are tensors, (name, tensor) pairs or dicts with ``"params"`` and options. TypeError and ValueError for
    anything else, for no parameters at all and for parameters that appear twice.
    """

    takes_sparse = False
    """Whether ``_update`` supports sparse gradients."""
    takes_complex = True
    """Whether complex parameters are updated, as pairs of real ones."""
    elementwise = True
    """Whether each element of a parameter is updated independently, so that its rows can be."""

    def __init__(self, params: ParamsT, defaults: Group) -> None:
        if isinstance(params, Tensor):
            raise TypeError(
                "params argument given to the optimizer should be an iterable of Tensors or dicts, but got "
                f"{params.type()}"
            )
        check_lr(defaults.get("lr"))
        if defaults.get("fused") and defaults.get("foreach"):
            raise RuntimeError("`fused` and `foreach` cannot be `True` together.")
        self.defaults = defaults
        self.state: defaultdict[Any, Any] = defaultdict(dict)
        self.param_groups: list[Group] = []
        self._opt_called = False
        self._tables()
        given: list[Any] = list(params)
        if not given:
            raise ValueError("optimizer got an empty parameter list")
        for group in given if isinstance(given[0], dict) else [{"params": given}]:
            self.add_param_group(dict(group))

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, value)
        if name == "state":
            module_changes.changed()

    def _tables(self) -> None:
        for name in (BEFORE, AFTER, *_SAVE, *_LOAD):
            setattr(self, name, OrderedDict())
        self._patch_step_function()

    profile_hook_step = staticmethod(hooked)
    _group_tensors_by_device_and_dtype = staticmethod(_group_tensors_by_device_and_dtype)

    def _patch_step_function(self) -> None:
        """Run the hooks around the ``step`` of this class, including classes of other libraries."""
        self._zero_grad_profile_name = f"Optimizer.zero_grad#{type(self).__name__}.zero_grad"
        cls: Any = type(self)
        if not getattr(cls.step, "hooked", False):
            cls.step = hooked(cls.step)

    def __getstate__(self) -> dict[str, Any]:
        return {"defaults": self.defaults, "state": self.state, "param_groups": self.param_groups}

    def __setstate__(self, state: State) -> None:
        self.__dict__.update(state)
        self._opt_called = False
        self._tables()

    def __repr__(self) -> str:
        text = type(self).__name__ + " ("
        for i, group in enumerate(self.param_groups):
            text += f"\nParameter Group {i}\n"
            text += "".join(f"    {key}: {group[key]}\n" for key in sorted(group) if key != "params")
        return text + ")"

    # -- groups ----------------------------------------------------------------------------------------------------

    def add_param_group(self, param_group: Group) -> None:
        """Add parameters with separate options."""
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, but got {type(param_group)}")
        if "params" not in param_group:
            raise KeyError(f"{type(self).__name__}: a parameter group needs the key 'params'")
        params = param_group["params"]
        if isinstance(params, set):
            raise TypeError(
                "optimizer parameters need to be organized in ordered collections, but the ordering of tensors in sets "
                "will change between runs. Please use a list instead."
            )
        listed = _named([params] if isinstance(params, Tensor) else list(params), param_group)
        # Everything is checked before any change: an error leaves the optimizer unchanged.
        for param in listed:
            if not isinstance(param, Tensor):
                raise TypeError(f"optimizer can only optimize Tensors, but one of the params is {type_name(param)}")
            if not self.defaults.get("differentiable") and not param.is_leaf:
                raise ValueError("can't optimize a non-leaf Tensor")
            if isinstance(param, ShardedTensor) and not self.elementwise:
                raise NotImplementedError(
                    at_user_line(f"{type(self).__name__} needs whole parameters, and these are sharded by fully_shard")
                )
        param_group["params"] = listed
        for name, default in self.defaults.items():
            if default is required and name not in param_group:
                raise ValueError(f"parameter group didn't specify a value of required optimization parameter {name}")
            param_group.setdefault(name, default)
        if len({id(p) for p in listed}) != len(listed):
            warn_as_pytorch("optimizer contains a parameter group with duplicate parameters")
        for group in self.param_groups:
            if ("param_names" in param_group) != ("param_names" in group):
                kind = "with names" if "param_names" in param_group else "without names"
                raise ValueError(
                    "all optimizer param groups should be with/without names. cannot add param group "
                    f"{kind} to the optimizer"
                )
        known = {id(p) for group in self.param_groups for p in group["params"]}
        if any(id(p) in known for p in listed):
            raise ValueError("some parameters appear in more than one parameter group")
        self.param_groups.append(param_group)
        # Invalidates guards of compiled calls that read the groups.
        module_changes.changed()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients of all parameters, or set them to zero."""
        for group in self.param_groups:
            for param in group["params"]:
                clear_grad(param, set_to_none)

    # -- stepping --------------------------------------------------------------------------------------------------

    def _group(self, group: Group) -> Options:
        """Return the options of a group for one step."""
        raise NotImplementedError

    def _update(self, param: Tensor, grad: Tensor, state: State, options: Options) -> None:
        """Update one parameter."""
        raise NotImplementedError

    @hooked
    def step(self, closure: Closure | None = None) -> Any:
        """Update every parameter that has a gradient; ``closure`` first recomputes the loss, which is returned."""
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        with uninterrupted, no_grad(), scope(type(self).__name__):  # Ctrl-C interrupts before or after all updates
            self._opt_called = True
            if modes.recorder is not None:
                modes.recorder.python.optimizer_ran(self)
            for group in self.param_groups:
                options = self._group(group)
                served = self._served(options)
                down = not active(group, "maximize") if "maximize" in group else True
                for param in group["params"]:
                    grad = param.grad
                    if grad is not None:
                        self._update_one(param, grad if down else -grad, options, served)
        return loss

    def _served(self, options: Options) -> Served | None:
        kind = type(self)
        if not is_own(kind._update):  # a user's class may read more than its operands
            return None
        return updates(kind, kind.__new__(kind)._update, options)

    def _update_one(self, param: Tensor, grad: Tensor, options: Options, served: Served | None) -> None:
        if type(grad) is not Tensor and grad.layout is not strided and not self.takes_sparse:
            raise RuntimeError(f"{type(self).__name__} does not support sparse gradients, consider SparseAdam instead")
        if param.dtype.is_complex and not self.takes_complex:
            raise RuntimeError(f"{type(self).__name__} does not support complex parameters")
        state = self.state[param]
        if param.dtype.is_complex:
            self._update_parts(param, grad, state, options)
        elif served is None or not served(param, grad, state):
            self._update(param, grad, state, options)
        if not state:
            del self.state[param]

    def _update_parts(self, param: Tensor, grad: Tensor, state: State, options: Options) -> None:
        """Update real and imaginary parts as separate parameters; their state is combined to complex again."""
        seen = {k: _as_real(v) for k, v in state.items()}
        parts, pair = dict(seen), _as_real(param)
        self._update(pair, _as_real(grad), parts, options)
        for key, value in parts.items():
            if value is not seen.get(key):
                paired = isinstance(value, Tensor) and value.shape == pair.shape
                state[key] = T.view_as_complex(value) if paired else value

    def _hooks_of(self, table: str) -> Iterable[Callable[..., Any]]:
        return tuple(getattr(self, table).values())

    def _hook(self, table: str, hook: Callable[..., object], prepend: bool = False) -> RemovableHandle:
        return register(getattr(self, table), hook, prepend)

    def register_step_pre_hook(self, hook: Callable[..., object]) -> RemovableHandle:
        """``hook(optimizer, args, kwargs)`` before every step."""
        return self._hook(BEFORE, hook)

    def register_step_post_hook(self, hook: Callable[..., object]) -> RemovableHandle:
        """``hook(optimizer, args, kwargs)`` after every step."""
        return self._hook(AFTER, hook)

    def register_state_dict_pre_hook(self, hook: Callable[..., object], prepend: bool = False) -> RemovableHandle:
        """``hook(optimizer)`` before ``state_dict()``."""
        return self._hook(_SAVE[0], hook, prepend)

    def register_state_dict_post_hook(self, hook: Callable[..., object], prepend: bool = False) -> RemovableHandle:
        """``hook(optimizer, state_dict)`` after ``state_dict()``; its result replaces the dict."""
        return self._hook(_SAVE[1], hook, prepend)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., object], prepend: bool = False) -> RemovableHandle:
        """``hook(optimizer, state_dict)`` before loading; its result replaces the dict."""
        return self._hook(_LOAD[0], hook, prepend)

    def register_load_state_dict_post_hook(self, hook: Callable[..., object], prepend: bool = False) -> RemovableHandle:
        """``hook(optimizer)`` after loading."""
        return self._hook(_LOAD[1], hook, prepend)

    # -- saving ----------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """The state by number of parameter, and the groups with numbers for parameters."""
        for hook in self._hooks_of(_SAVE[0]):
            hook(self)
        number: dict[int, int] = {}
        for group in self.param_groups:
            for param in group["params"]:
                number.setdefault(id(param), len(number))
        groups = [
            {**{k: v for k, v in group.items() if k != "params"}, "params": [number[id(p)] for p in group["params"]]}
            for group in self.param_groups
        ]
        state = {number[id(k)] if isinstance(k, Tensor) else k: _told(k, v) for k, v in self.state.items()}
        result = {"state": state, "param_groups": groups}
        for hook in self._hooks_of(_SAVE[1]):
            result = hook(self, result) or result
        return result

    def load_state_dict(self, state_dict: State) -> None:
        """Load state and options. ValueError when the groups have other numbers of parameters."""
        state_dict = dict(state_dict)
        for hook in self._hooks_of(_LOAD[0]):
            state_dict = hook(self, state_dict) or state_dict
        for key, parts in (("param_groups", [state_dict]), ("params", state_dict.get("param_groups"))):
            if isinstance(parts, list) and any(isinstance(part, dict) and key not in part for part in parts):
                raise KeyError(f"{type(self).__name__}.load_state_dict(): the state has no key {key!r}")
        saved = copy.deepcopy(state_dict["param_groups"])
        if len(saved) != len(self.param_groups):
            raise ValueError("loaded state dict has a different number of parameter groups")
        if any(len(a["params"]) != len(b["params"]) for a, b in zip(self.param_groups, saved, strict=True)):
            raise ValueError(
                "loaded state dict contains a parameter group that doesn't match the size of optimizer's group"
            )
        params = [p for group in self.param_groups for p in group["params"]]
        keys = [k for group in saved for k in group["params"]]
        owner = dict(zip(keys, params, strict=True))
        self.state = defaultdict(dict)
        for key, value in state_dict["state"].items():
            if key in owner:
                self.state[owner[key]] = _restore(owner[key], value)
            else:
                self.state[key] = value
        for group, new in zip(self.param_groups, saved, strict=True):
            kept = group["params"]
            group.clear()
            group.update(new, params=kept)
        for hook in self._hooks_of(_LOAD[1]):
            hook(self)


def _told(param: object, state: Any) -> Any:
    """The state of one parameter; if that is sharded, mark state tensors of its shape as sharded."""
    if not isinstance(param, ShardedTensor):
        return state
    rows = {k for k, v in state.items() if isinstance(v, Tensor) and v.shape == param.shape}
    return {k: marked(v.detach(), param.sharding) if k in rows else v for k, v in state.items()}


def _restore(param: Tensor, value: object, key: str = "") -> Any:
    """A copy of saved state, floating tensors but the step counter in the parameter's dtype.

    Tensors of PyTorch, from the state of one of its optimizers, are taken.
    """
    if is_foreign(type(value)):
        value = T.tensor(value)
    if isinstance(value, Tensor):
        value = of_whole(param, value)
        return value.clone() if key == "step" or not param.is_floating_point() else value.to(param.dtype).clone()
    if isinstance(value, dict):
        return {k: _restore(param, v, k) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_restore(param, v) for v in value)
    return value


def _as_real(x: object) -> Any:
    return T.view_as_real(x) if isinstance(x, Tensor) and x.dtype.is_complex else x
