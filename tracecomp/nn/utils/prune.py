"""Pruning: parameters multiplied by masks, under the names of torch.nn.utils.prune.

A pruned parameter ``name`` becomes a parameter ``name_orig`` and a buffer ``name_mask``; a forward pre-hook computes
their product for every call.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.functional.linalg.norms import vector_norm
from tracecomp.nn.module import Module


class BasePruningMethod:
    """A forward pre-hook that masks a parameter. Kinds of pruning define ``compute_mask`` and ``PRUNING_TYPE``."""

    _tensor_name: str
    PRUNING_TYPE: str

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self._tensor_name, self.apply_mask(module))

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The mask for ``t``, restricted to the elements that ``default_mask`` leaves."""
        raise NotImplementedError

    def apply_mask(self, module: Module) -> Tensor:
        """The masked parameter of ``module``."""
        original = module._parameters[self._tensor_name + "_orig"]
        mask = module._buffers[self._tensor_name + "_mask"]
        assert original is not None and mask is not None
        return mask.to(dtype=original.dtype) * original

    def prune(self, t: Tensor, default_mask: Tensor | None = None, importance_scores: Tensor | None = None) -> Tensor:
        """``t`` masked, by the importance of its elements, or of ``importance_scores``."""
        mask = T.ones_like(t) if default_mask is None else default_mask
        return t * self.compute_mask(t if importance_scores is None else importance_scores, mask)

    @classmethod
    def apply(
        cls, module: Module, name: str, *args: Any, importance_scores: Tensor | None = None, **kwargs: Any
    ) -> BasePruningMethod:
        """Mask ``module.name``, in addition to existing masks."""
        method = cls(*args, **kwargs)
        method._tensor_name = name
        found = _hook_of(module, name)
        value = getattr(module, name)
        if importance_scores is not None and importance_scores.shape != value.shape:
            raise AssertionError(f"importance_scores should have the same shape as parameter {name} of {module}")
        scores = (value if importance_scores is None else importance_scores).detach()
        before = T.ones_like(value.detach()) if found is None else getattr(module, name + "_mask")
        hook: BasePruningMethod = method
        if found is not None:
            key, old = found
            del module._forward_pre_hooks[key]
            hook = old if isinstance(old, PruningContainer) else PruningContainer(old)
            hook.add_pruning_method(method)
        mask = hook.compute_mask(scores, before)
        if found is None:
            module.register_parameter(name + "_orig", module._parameters.pop(name))
        module.register_buffer(name + "_mask", mask)
        setattr(module, name, hook.apply_mask(module))
        module.register_forward_pre_hook(hook)
        return hook

    def remove(self, module: Module) -> None:
        """Make the masked parameter plain again."""
        weight = self.apply_mask(module)
        if hasattr(module, self._tensor_name):
            delattr(module, self._tensor_name)
        original = module._parameters.pop(self._tensor_name + "_orig")
        assert original is not None
        original.data = weight.data
        del module._buffers[self._tensor_name + "_mask"]
        setattr(module, self._tensor_name, original)


class PruningContainer(BasePruningMethod):
    """Several methods one after the other: each applies to the elements that the previous ones leave."""

    PRUNING_TYPE = "container"

    def __init__(self, *methods: Any) -> None:
        self._pruning_methods: list[BasePruningMethod] = []
        given = list(methods[0]) if methods and isinstance(methods[0], Iterable) else list(methods)
        if given:
            self._tensor_name = given[0]._tensor_name
        for method in given:
            self.add_pruning_method(method)

    def add_pruning_method(self, method: object) -> None:
        """Add a method for the same parameter. TypeError for anything else, ValueError for another parameter."""
        if not isinstance(method, BasePruningMethod):
            raise TypeError(f"{type(method)} is not a BasePruningMethod subclass")
        if self._tensor_name != method._tensor_name:
            raise ValueError(
                "Can only add pruning methods acting on the parameter named "
                f"'{self._tensor_name}' to PruningContainer {self}. Found '{method._tensor_name}'"
            )
        self._pruning_methods.append(method)

    def __len__(self) -> int:
        return len(self._pruning_methods)

    def __iter__(self) -> Any:
        return iter(self._pruning_methods)

    def __getitem__(self, index: int) -> BasePruningMethod:
        return self._pruning_methods[index]

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """``default_mask`` minus the elements that the last method masks."""
        method = self._pruning_methods[-1]
        kept = _left(method, t, default_mask)
        mask = default_mask.to(dtype=t.dtype).clone()
        mask[kept] = method.compute_mask(t[kept], default_mask[kept]).to(dtype=mask.dtype)
        return mask


def _left(method: BasePruningMethod, t: Tensor, mask: Tensor) -> Any:
    """The index of the elements that a method considers: unmasked elements, or channels with some."""
    if method.PRUNING_TYPE == "unstructured":
        return mask == 1
    if method.PRUNING_TYPE == "global":
        return (slice(None),) * t.ndim
    if method.PRUNING_TYPE != "structured":
        raise ValueError(f"Unrecognized PRUNING_TYPE {method.PRUNING_TYPE}")
    if not hasattr(method, "dim"):
        raise AttributeError('Pruning methods of PRUNING_TYPE "structured" need to have the attribute `dim` defined.')
    axis = _axis(t, method.dim)
    channels = mask.sum(dim=[d for d in range(t.ndim) if d != axis]) != 0
    return (*(slice(None),) * axis, channels)


class Identity(BasePruningMethod):
    """Masks nothing."""

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """``default_mask`` itself."""
        return default_mask


class CustomFromMask(BasePruningMethod):
    """A given mask."""

    PRUNING_TYPE = "global"

    def __init__(self, mask: Tensor) -> None:
        self.mask = mask

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """Elements that both masks leave."""
        assert default_mask.shape == self.mask.shape
        return default_mask * self.mask.to(dtype=default_mask.dtype)


class _Unstructured(BasePruningMethod):
    """Masks the ``amount`` (a number or a share) of elements whose score is least."""

    PRUNING_TYPE = "unstructured"

    def __init__(self, amount: float) -> None:
        _check_amount(amount)
        self.amount = amount

    def _scores(self, t: Tensor) -> Tensor:
        raise NotImplementedError

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """``default_mask`` without the elements that are masked now."""
        count = _count(self.amount, t.numel())
        mask = default_mask.clone()
        if count:
            mask.view(-1)[T.topk(self._scores(t).reshape(-1), count, largest=False).indices] = 0
        return mask


class RandomUnstructured(_Unstructured):
    """Masks elements at random."""

    def _scores(self, t: Tensor) -> Tensor:
        return T.rand_like(t)


class L1Unstructured(_Unstructured):
    """Masks the elements that are least in absolute value."""

    def _scores(self, t: Tensor) -> Tensor:
        return T.abs(t)


class _Structured(BasePruningMethod):
    """Masks the ``amount`` of channels along ``dim`` whose score is least."""

    PRUNING_TYPE = "structured"

    def __init__(self, amount: float, dim: int = -1) -> None:
        _check_amount(amount)
        self.amount = amount
        self.dim = dim

    def _scores(self, t: Tensor) -> Tensor:
        raise NotImplementedError

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """``default_mask`` without the channels that are masked now."""
        if t.ndim <= 1:
            raise ValueError(
                "Structured pruning can only be applied to multidimensional tensors. Found tensor of shape "
                f"{list(t.shape)} with {t.ndim} dims"
            )
        axis = _axis(t, self.dim)
        channels = t.shape[axis]
        count = _count(self.amount, channels)
        if not count:
            return default_mask
        mask = T.zeros_like(t)
        mask.index_fill_(axis, T.topk(self._scores(t), channels - count).indices, 1)
        return mask * default_mask.to(dtype=mask.dtype)


class RandomStructured(_Structured):
    """Masks channels at random."""

    def _scores(self, t: Tensor) -> Tensor:
        return T.rand(t.shape[self.dim])


class LnStructured(_Structured):
    """Masks the channels whose ``n``-norm is least."""

    def __init__(self, amount: float, n: Any, dim: int = -1) -> None:
        super().__init__(amount, dim)
        self.n = n

    def _scores(self, t: Tensor) -> Tensor:
        return vector_norm(t, self.n, [d for d in range(t.ndim) if d != _axis(t, self.dim)])


def identity(module: Module, name: str) -> Module:
    """Give ``module.name`` a mask of ones."""
    Identity.apply(module, name)
    return module


def random_unstructured(module: Module, name: str, amount: float) -> Module:
    """Mask elements of ``module.name`` at random."""
    RandomUnstructured.apply(module, name, amount)
    return module


def l1_unstructured(module: Module, name: str, amount: float, importance_scores: Tensor | None = None) -> Module:
    """Mask the elements of ``module.name`` that are least in absolute value."""
    L1Unstructured.apply(module, name, amount, importance_scores=importance_scores)
    return module


def random_structured(module: Module, name: str, amount: float, dim: int) -> Module:
    """Mask channels of ``module.name`` along ``dim`` at random."""
    RandomStructured.apply(module, name, amount, dim)
    return module


def ln_structured(
    module: Module, name: str, amount: float, n: object, dim: int, importance_scores: Tensor | None = None
) -> Module:
    """Mask the channels of ``module.name`` along ``dim`` whose ``n``-norm is least."""
    LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


def custom_from_mask(module: Module, name: str, mask: Tensor) -> Module:
    """Mask ``module.name`` by ``mask``."""
    CustomFromMask.apply(module, name, mask)
    return module


def global_unstructured(
    parameters: Iterable[tuple[Module, str]], pruning_method: type[BasePruningMethod],
    importance_scores: dict[tuple[Module, str], Tensor] | None = None, **kwargs: Any,
) -> None:  # fmt: skip
    """Mask elements of all ``parameters`` (pairs of module and name) as if they were one."""
    pairs = list(parameters)
    given = importance_scores or {}
    scores = T.cat([given.get(p, getattr(*p)).detach().reshape(-1) for p in pairs])
    masks = [getattr(m, name + "_mask", None) for m, name in pairs]
    before = [T.ones_like(getattr(*p).detach()) if k is None else k for p, k in zip(pairs, masks, strict=True)]
    method = pruning_method(**kwargs)
    method._tensor_name = "temp"
    if method.PRUNING_TYPE != "unstructured":
        raise TypeError(
            f'Only "unstructured" PRUNING_TYPE supported for the `pruning_method`. Found method {pruning_method} of '
            f"type {method.PRUNING_TYPE}"
        )
    mask = PruningContainer(method).compute_mask(scores, T.cat([k.reshape(-1) for k in before]))
    sizes = [k.numel() for k in before]
    for (module, name), k, part in zip(pairs, before, mask.split(sizes), strict=True):
        custom_from_mask(module, name, part.view_as(k))


def remove(module: Module, name: str) -> Module:
    """Make the pruned ``module.name`` a plain parameter again. ValueError when it is not pruned."""
    found = _hook_of(module, name)
    if found is None:
        raise ValueError(f"Parameter '{name}' of module {module} has to be pruned before pruning can be removed")
    key, hook = found
    hook.remove(module)
    del module._forward_pre_hooks[key]
    return module


def is_pruned(module: Module) -> bool:
    """Whether a parameter of ``module`` or of its children is pruned."""
    return any(isinstance(hook, BasePruningMethod) for m in module.modules() for hook in m._forward_pre_hooks.values())


def _hook_of(module: Module, name: str) -> tuple[int, BasePruningMethod] | None:
    for key, hook in module._forward_pre_hooks.items():
        if isinstance(hook, BasePruningMethod) and hook._tensor_name == name:
            return key, hook
    return None


def _check_amount(amount: object) -> None:
    if not isinstance(amount, int | float):
        raise TypeError(f"Invalid type for amount: {amount}. Must be int or float.")
    if amount < 0 or (isinstance(amount, float) and amount > 1.0):
        raise ValueError(f"amount={amount} should either be a float in the range [0, 1] or a non-negative integer")


def _count(amount: Any, size: int) -> int:
    """The number of elements of ``size`` for an amount. ValueError when it is more."""
    if isinstance(amount, float):
        return round(amount * size)
    if amount > size:
        raise ValueError(f"amount={amount} should be smaller than the number of parameters to prune={size}")
    return int(amount)


def _axis(t: Tensor, dim: int) -> int:
    if not -t.ndim <= dim < t.ndim:
        raise IndexError(f"Invalid index {dim} for tensor of size {list(t.shape)}")
    return dim % t.ndim
