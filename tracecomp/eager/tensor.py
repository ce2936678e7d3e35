"""The Tensor: numpy memory with one aliasing model for gradients, in-place writes and recording.

Every primitive goes through ``Tensor.__tracecomp_apply__``, every write through ``assign_``. Functions and methods
with torch names are attached by ``tracecomp.functional`` and ``tracecomp.autograd``.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from typing import Any, SupportsIndex, cast

import numpy as np

from tracecomp.base.capture_guide import Section
from tracecomp.base.errors import refuse_too_large, type_name
from tracecomp.base.user_warnings import warn_as_pytorch
from tracecomp.eager import dispatch, meta, overrides, tangents
from tracecomp.eager.aliasing import (
    alias,
    ask_as,
    assign_,
    attach,
    before_write,
    check_types,
    gradient_edge,
    link,
    own,
    refresh,
    replace_memory,
    several_views,
    track,
)
from tracecomp.eager.attributes import Attributes, own_attributes, replace_attributes, show_own_attributes
from tracecomp.eager.device import CPU, MemoryFormat, check_device, contiguous_format, device, preserve_format, use
from tracecomp.eager.evaluate import evaluate
from tracecomp.eager.grad_fn import NUMBERS, op_node
from tracecomp.eager.memory_formats import lies_in
from tracecomp.eager.methods import TensorMethods
from tracecomp.eager.modes import (
    enable_grad,
    grad_enabled,
    host,
    inference_mode,
    is_inference_mode_enabled,
    modes,
    no_grad,
    scope,
    set_grad_enabled,
)
from tracecomp.eager.process_memory import Elements, block_of
from tracecomp.eager.room import settled
from tracecomp.eager.size import Size
from tracecomp.eager.storage import Storage
from tracecomp.eager.tensor_base import Handle, Node, TensorBase, View, add_hook, all_attributes, base_of, blank, owner
from tracecomp.ir.arrays import row_major
from tracecomp.ir.op import OPS, Attrs, Op
from tracecomp.ir.types import DType, float32, from_numpy_dtype

__all__ = [
    "Size", "Storage", "Tensor", "assign_", "before_write", "create", "enable_grad", "get_grad", "grad_enabled",
    "gradient_edge", "host", "inference_mode", "is_inference_mode_enabled", "no_grad", "own", "scope", "set_grad",
    "set_grad_enabled", "wrap",
]  # fmt: skip

Array = np.ndarray[Any, Any]


class Tensor(TensorMethods):
    """An n-dimensional array with PyTorch's interface.

    A view has its base (``_base``) and the chain of view primitives between them (``_chain``). It is *linked*: if its
    storage was written since its last use (``_seen``), it takes its history from the base again. If that is ambiguous,
    it raises the error of ``_unwritable``: for views that were created without gradients (*quiet*), or several at once.
    A detached alias has only a weak reference to the tensor whose memory it shares (``_source``). While a call is
    recorded, ``_value`` is its graph value, and ``_look`` its base.
    """

    _base: Tensor | None
    _grad: Tensor | None
    __array_priority__ = 1000

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, object] | None = None
    ) -> Any:
        """The default override for subclasses: run the function on tensors, and convert results to the subclass."""
        return overrides.default(cls, func, types, args, kwargs)

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        dispatch.note_class(cls)
        overrides.prepare_subclass(Tensor, cls)
        show_own_attributes(Tensor, cls)

    def as_subclass(self, cls: type[Any]) -> Any:
        """The same memory and history as an object of ``cls``, a subclass of Tensor."""
        if not issubclass(cls, Tensor):
            raise TypeError(f"as_subclass(): {cls.__qualname__} is not a subclass of Tensor")
        with overrides.DisableTorchFunctionSubclass():
            found = Tensor.__tracecomp_apply__(OPS["reshape"], (self,), {"shape": tuple(self.shape)})
        found.__class__ = cls
        return found

    @staticmethod
    def _make_subclass(cls: type[Any], data: Tensor, require_grad: bool = False, **options: Any) -> Any:
        """A leaf of ``cls`` over the memory of ``data``."""
        with overrides.DisableTorchFunctionSubclass():
            found = data.detach()
            found.__class__ = cls
            return found.requires_grad_(require_grad)

    @staticmethod
    def _make_wrapper_subclass(
        cls: type[Any], size: Any, strides: Any = None, storage_offset: int | None = None, memory_format: Any = None,
        dtype: DType | None = None, layout: Any = None, device: Any = None, pin_memory: bool = False,
        requires_grad: bool = False, dispatch_sizes_strides_policy: Any = None, dispatch_device: bool = False,
        dispatch_layout: bool = False, **options: Any,
    ) -> Any:  # fmt: skip
        """A tensor of ``cls`` that says it has this shape, without memory: its ``__torch_dispatch__`` is its meaning.

        RuntimeError for a class that has none.
        """
        if cls not in dispatch.CLASSES:
            raise RuntimeError(
                f"{cls.__name__} must define __torch_dispatch__: tensors of _make_wrapper_subclass have no elements"
            )
        kind = (dtype or float32).numpy
        steps = None if strides is None else [s * kind.itemsize for s in strides]
        found = blank(cls)
        found._data = meta.new_array(tuple(size), kind, steps, CPU if device is None else check_device(device))
        return found.requires_grad_() if requires_grad else found

    @staticmethod
    def __tracecomp_apply__(op: Op, operands: tuple[Any, ...], attrs: Attrs) -> Any:
        """Run a primitive: numpy result, recorded node, autograd node, view relation."""
        recorder = modes.recorder
        given = attrs
        if recorder is not None:
            # Symbolic numbers and sizes have their current value here; the recorder keeps the formula.
            operands, attrs, given = _recorded(recorder, op, operands, attrs)
        arrays = []
        odd = tracked = False
        row_major = True
        for x in operands:
            if isinstance(x, Tensor):
                # The dtype first, of every operand: reading it makes an array with room dense.
                odd = x._data.dtype.kind in "cV" or odd
                array = x._data
                row_major = row_major and array.flags.c_contiguous
                tracked = tracked or x._requires_grad or x._linked or x._grad_fn is not None
                arrays.append(array)
            else:
                arrays.append(x)
        if use.begun:
            found = _elsewhere(op, operands, arrays, attrs)
            if found is not NotImplemented:
                return found
        # Types are checked only for mistakes that numpy would accept; for others numpy raises, as explained below.
        if odd:
            arrays = _checked(op, operands, attrs, arrays)
        try:
            laid = arrays if row_major or op.kind != "elementwise" else meta.laid_alike(arrays)
            result = evaluate(op, laid, given)
        # numpy's message says nothing of tensors: ``check_types`` raises PyTorch's, if types or shapes are wrong.
        except Exception as error:  # of any kind: a clear one is raised if types or sizes are the reason
            _explain(error, op, operands, attrs)
            raise
        if not row_major and op.kind == "elementwise":
            result = meta.in_order_of(arrays, result)
        several = type(result) is tuple
        outs = [_result(op, r) for r in result] if several else [_result(op, result)]
        if op.kind == "view":
            link(outs[0], operands[0], (op, attrs))
        if recorder is not None:
            # The recorder first, then autograd: the history of a recorded call is that of its eager run.
            recorder.node(op, operands, attrs, outs)
        if modes.grad:
            if tracked and op.vjp is not None:
                track(op, operands, attrs, arrays, outs)
        elif modes.inference:
            for t in outs:
                t._inference = t._inference or t._base is None
        return tuple(outs) if several else outs[0]

    @staticmethod
    def _wrap(array: Array) -> Tensor:
        return _new(array)

    @staticmethod
    def _create(name: str, **attrs: Any) -> Tensor:
        return create(name, **attrs)

    # ---- attributes

    @property
    def shape(self) -> Size:
        return Size(self._data.shape if modes.recorder is None else modes.recorder.sizes.shape_of(self))

    @property
    def ndim(self) -> int:
        return self._data.ndim

    @property
    def dtype(self) -> DType:
        return from_numpy_dtype(self._data.dtype)

    @property
    def requires_grad(self) -> bool:
        if self._requires_grad or self._grad_fn is not None:
            return True
        # A view asks as its base does, also where it cannot take its history: only asking for that is an error.
        return self._linked and self._data.dtype.kind not in "biu" and base_of(self).requires_grad

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Ask for gradients of this leaf; RuntimeError for integers and for results of operations."""
        if type(requires_grad) not in (bool, np.bool_):
            kind = type_name(requires_grad)
            raise TypeError(f"requires_grad_(): argument 'requires_grad' (position 1) must be bool, not {kind}")
        if self.grad_fn is not None:
            if requires_grad:
                return self
            raise RuntimeError(
                "you can only change requires_grad flags of leaf variables. If you want to use a computed variable in "
                "a subgraph that doesn't require differentiation use var_no_grad = var.detach()."
            )
        if requires_grad and self._data.dtype.kind in "biu":
            raise RuntimeError("only Tensors of floating point and complex dtype can require gradients")
        if requires_grad and self._inference and not modes.inference:
            raise RuntimeError("Setting requires_grad=True on inference tensor outside InferenceMode is not allowed.")
        before, self._requires_grad = self._requires_grad, bool(requires_grad)
        recorder = modes.recorder
        if recorder is not None and before is not self._requires_grad and not recorder.is_made(self):
            recorder.changes.set_requires_grad(self, before)
        return self

    @property
    def grad_fn(self) -> Node | None:
        if self._linked:
            refresh(self)
        return self._grad_fn

    @property
    def output_nr(self) -> int:
        return self._output_nr if self.grad_fn is not None else 0

    @property
    def is_leaf(self) -> bool:
        return self.grad_fn is None

    @property
    def grad(self) -> Tensor | None:
        """The accumulated gradient of a leaf (or of a tensor with ``retain_grad``), or None."""
        if self._grad_fn is not None and self._grad is None and not self.retains_grad:
            warn_as_pytorch(
                "The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. Its .grad attribute "
                "won't be populated during autograd.backward(). If you indeed want the .grad field to be populated for "
                "a non-leaf Tensor, use .retain_grad() on the non-leaf Tensor.",
            )
        return get_grad(self)

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if value is not None:
            if not isinstance(value, Tensor):
                raise TypeError(
                    f"assigned grad expected to be a Tensor or None but got grad of type {type_name(value)}"
                )
            if value is self:
                raise RuntimeError("can't assign Variable as its own grad")
            if value._data.shape != self._data.shape:
                raise RuntimeError(
                    f"attempting to assign a gradient of size '{list(value.shape)}' to a tensor of size "
                    f"'{list(self.shape)}'. Please ensure that the gradient and the tensor are the same size"
                )
            if value._data.dtype != self._data.dtype:
                raise RuntimeError(
                    f"attempting to assign a gradient with dtype '{value.dtype}' to a tensor with grad_dtype "
                    f"'{self.dtype}'. The gradient must match the tensor's grad_dtype (defaults to the tensor's dtype)."
                )
        set_grad(self, value)

    @grad.deleter
    def grad(self) -> None:
        set_grad(self, None)

    @property
    def data(self) -> Tensor:
        """The same memory without history; writes through it are not seen by autograd."""
        found = alias(self)
        found._storage = Storage(self._shared_storage().memory)
        return found

    @data.setter
    def data(self, value: Tensor) -> None:
        if not isinstance(value, Tensor):
            raise TypeError(f"Variable data has to be a tensor, but got {type_name(value)}")
        if meta.place_of([self._data]) != meta.place_of([value._data]):
            raise RuntimeError(
                "Attempted to call `variable.set_data(tensor)`, but `variable` and `tensor` have incompatible tensor "
                "type."
            )
        if self._requires_grad and not value.dtype.differentiable:
            raise RuntimeError(
                f"data: a tensor that requires grad must be of a floating or complex type, not {value.dtype}"
            )
        replace_memory(self, value)

    @property
    def retains_grad(self) -> bool:
        fn = self._grad_fn
        return fn is not None and fn.retained is not None and self._output_nr in fn.retained

    def _is_view(self) -> bool:
        return self._base is not None and not self._reshaped

    def is_inference(self) -> bool:
        return self._inference

    # ---- sizes

    def numel(self) -> int:
        return self._data.size if modes.recorder is None else self.shape.numel()

    nelement = numel

    def dim(self) -> int:
        return self._data.ndim

    ndimension = dim

    def size(self, dim: int | None = None) -> Any:
        """The shape, or its entry ``dim``; IndexError when out of range."""
        if dim is None:
            return self.shape
        ndim = self._data.ndim
        low, high = (-ndim, ndim - 1) if ndim else (-1, 0)
        if not low <= dim <= high or ndim == 0:
            raise IndexError(f"Dimension out of range (expected to be in range of [{low}, {high}], but got {dim})")
        return self.shape[dim]

    def stride(self, dim: int | None = None) -> Any:
        """Strides in elements; without any elements, those of its shape in row-major order."""
        data = settled(self)
        strides = tuple(s // data.itemsize for s in data.strides) if data.size else row_major(data.shape)
        return strides if dim is None else strides[dim]

    def storage_offset(self) -> int:
        return (self._address() - owner(self)[0]._address()) // self._data.itemsize

    def data_ptr(self) -> int:
        """The address of the first element; 0 where there is no memory."""
        if type(self._data) is meta.MetaArray:
            return 0
        self._shared_storage().share()
        return self._address()

    def element_size(self) -> int:
        return self._data.itemsize

    @property
    def itemsize(self) -> int:
        return self._data.itemsize

    @property
    def nbytes(self) -> int:
        return self._data.nbytes

    def is_contiguous(self, memory_format: MemoryFormat = contiguous_format) -> bool:
        """Whether the elements are dense in row-major order, or in that of ``channels_last``."""
        if memory_format is preserve_format:
            raise RuntimeError("is_contiguous(): memory_format must not be torch.preserve_format")
        return lies_in(settled(self), memory_format or contiguous_format)

    # ---- leaving the tensor world

    def numpy(self, *, force: bool = False) -> Array:
        """The array that shares this tensor's memory; RuntimeError when it requires grad, unless ``force``."""
        if modes.grad and self.requires_grad and not force:
            raise RuntimeError("Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.")
        if type(self._data) is meta.MetaArray:
            raise TypeError(
                f"can't convert {self._data.place} device type tensor to numpy. Use Tensor.cpu() to copy the tensor to "
                "host memory first."
            )
        self._shared_storage().share()
        found = self._read("numpy()")
        return found.view()  # an object of the caller's own: its shape and flags are none of the tensor's

    def _read(self, how: str) -> Array:
        """The elements, for the library to read because of ``how``."""
        if type(self._data) is meta.MetaArray:
            raise NotImplementedError(f"{how}: attempted to read the elements of a meta tensor, which has none")
        if modes.recorder is not None:
            modes.recorder.leave(self, how)
        return settled(self)

    def __dlpack__(
        self, *, stream: int | None = None, max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None, copy: bool | None = None,
    ) -> Any:  # fmt: skip
        """A DLPack capsule of the memory, or of a copy if ``copy`` is true; ``stream`` means nothing on the CPU.

        BufferError for tensors that require gradients, for element types and devices that DLPack does not have here.
        """
        if stream is not None and type(stream) is not int:
            raise TypeError("stream must be int or none")
        if self.requires_grad:
            raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
        if dl_device is not None and (int(dl_device[0]), int(dl_device[1])) != self.__dlpack_device__():
            raise BufferError(f"__dlpack__(): dl_device must be {self.__dlpack_device__()}, got {dl_device}")
        array = self.numpy()
        # Not all supported versions of numpy know ``copy`` and ``max_version``: without them it exports the memory.
        options: dict[str, Any] = {} if max_version is None or not _EXPORTS_VERSIONS else {"max_version": max_version}
        return (array.copy() if copy else array).__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        array = self.numpy()
        return array if dtype is None else array.astype(dtype, copy=False)

    def item(self) -> Any:
        """The one element as a Python number; RuntimeError when there is not exactly one."""
        try:
            size = self._data.size
        except AttributeError:  # ``map(Tensor.item, numbers)``
            raise TypeError(f"item(): self must be a Tensor, not {type_name(self)}") from None
        if size != 1:
            raise RuntimeError(f"a Tensor with {size} elements cannot be converted to Scalar")
        if use.begun and dispatch.asked((self,)):
            return dispatch.call("_local_scalar_dense", self)
        value = self._data.item()
        return value if modes.recorder is None else modes.recorder.item(self, value)

    def tolist(self) -> Any:
        """Nested lists of Python numbers."""
        return _observe(self, self._data.tolist())

    def __bool__(self) -> bool:
        if self._data.size != 1:
            many = "more than one value" if self._data.size else "no values"
            raise RuntimeError(f"Boolean value of Tensor with {many} is ambiguous")
        if use.begun and dispatch.asked((self,)):
            return bool(dispatch.call("_local_scalar_dense", self))
        value = bool(self._data.item())
        if modes.recorder is not None:
            truth = self if self._data.dtype.kind == "b" else self != 0
            modes.recorder.observe(truth, value)
        return value

    def __float__(self) -> float:
        return float(_real(self._single()))

    def __int__(self) -> int:
        return int(_real(self._single()))

    def __complex__(self) -> complex:
        return complex(self._single())

    def _single(self) -> Any:
        if self._data.size != 1:
            raise ValueError("only one element tensors can be converted to Python scalars")
        return self.item()

    def __index__(self) -> int:
        if self._data.dtype.kind not in "biu" or self._data.size != 1:
            raise TypeError("only integer tensors of a single element can be converted to an index")
        return int(self.item())

    def __len__(self) -> int:
        if self._data.ndim == 0:
            raise TypeError("len() of a 0-d tensor")
        return int(self.shape[0])

    # ---- gradient hooks

    def detach(self) -> Tensor:
        """The same memory without history; writes through it count for autograd."""
        if use.begun and dispatch.asked((self,)):
            given: Tensor = dispatch.call("detach", self)
            return given if given is not self else alias(self)
        found = alias(self)
        found._inference = self._inference
        return found

    def detach_(self) -> Tensor:
        """Forget this tensor's history; RuntimeError for a view."""
        if self._linked:
            raise RuntimeError("Can't detach views in-place. Use detach() instead.")
        self._grad_fn, self._output_nr, self._requires_grad = None, 0, False
        return self

    def retain_grad(self) -> None:
        """Keep the gradient of this result in ``.grad``."""
        if not self.requires_grad:
            raise RuntimeError("can't retain_grad on Tensor that has requires_grad=False")
        fn = self.grad_fn
        if fn is not None:
            fn.observe()
            fn.retained = {} if fn.retained is None else fn.retained
            fn.retained[self._output_nr] = weakref.ref(self)
            if modes.recorder is not None:
                modes.recorder.changes.retain(self)

    def register_hook(self, hook: Callable[[Tensor], Tensor | None]) -> Handle:
        """Call ``hook(grad)`` when this tensor's gradient is known; its result replaces the gradient."""
        if not self.requires_grad:
            raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
        fn = self.grad_fn
        if fn is not None:
            return fn.hook_tensor(self._output_nr, hook)
        self._hooks = {} if self._hooks is None else self._hooks
        return add_hook(self._hooks, hook)

    def register_post_accumulate_grad_hook(self, hook: Callable[[Tensor], None]) -> Handle:
        """Call ``hook(self)`` after ``.grad`` of this leaf was updated."""
        if not self.requires_grad:
            raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
        if self.grad_fn is not None:
            raise RuntimeError("post accumulate grad hooks cannot be registered on non-leaf tensors")
        self._post_hooks = {} if self._post_hooks is None else self._post_hooks
        return add_hook(self._post_hooks, hook)

    def __iter__(self) -> Iterator[Tensor]:
        if self._data.ndim == 0:
            raise TypeError("iteration over a 0-d tensor")
        return iter(several_views((_row(self, i) for i in range(self._data.shape[0])), "Unbind"))

    def __hash__(self) -> int:
        return id(self)

    @property
    def __dict__(self) -> dict[str, Any]:
        """The attributes that the program has put on this tensor."""
        return Attributes(self)

    @__dict__.setter
    def __dict__(self, value: dict[str, Any]) -> None:
        replace_attributes(self, value)

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        if not self.is_leaf:
            raise RuntimeError(
                "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the "
                "moment. If you were attempting to deepcopy a module, this may be because of a weight_norm usage."
            )
        with no_grad():
            copy = own(self)
        result = blank(type(self))
        all_attributes(result).update(deepcopy(own_attributes(self), memo))
        result._data, result._value, result._requires_grad = copy._data, copy._value, self._requires_grad
        memo[id(self)] = result
        if self._grad is not None:
            result._grad = self._grad.__deepcopy__(memo)
        return result

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        extra = own_attributes(self)
        if type(self._data) is meta.MetaArray:
            shown = (self._data.shape, self.dtype.numpy, self._data.strides, self._data.place)
            return _rebuild_without_memory, (type(self), shown, self._requires_grad, extra)
        array = self._read("pickle")
        elements = array if block_of(array) is None else Elements(array)
        return _rebuild, (type(self), elements, self._requires_grad, extra)


def _explain(error: Exception, op: Op, operands: tuple[Any, ...], attrs: Attrs) -> None:
    """Raise PyTorch's error for what numpy could not compute, if types, shapes or sizes are the reason."""
    check_types(op, operands, attrs)
    refuse_too_large(op.name, error)


_EXPORTS_VERSIONS = np.lib.NumpyVersion(np.__version__) >= "2.1.0"
"""Whether numpy exports capsules of DLPack 1.0, which say whether memory is read-only."""


def _real(value: object) -> Any:
    """A number that ``float`` and ``int`` take; RuntimeError for one with an imaginary part."""
    if not isinstance(value, complex):
        return value
    if value.imag:
        raise RuntimeError("value cannot be converted to type double without overflow")
    return value.real


def _observe(t: Tensor, value: object) -> Any:
    if modes.recorder is not None:
        modes.recorder.observe(t, value)
    return value


def _dispatched(op: Op, operands: tuple[Any, ...], arrays: list[Any], attrs: Attrs) -> Any:
    """Apply a primitive through ``__torch_dispatch__``, and record its history."""
    result = dispatch.ask(op, operands, attrs)
    several = isinstance(result, tuple | list)
    found = list(result) if several else [result]
    if not all(isinstance(t, Tensor) for t in found):
        return result
    outs = [alias(t) if any(t is x for x in operands) else t for t in found]
    if op.kind == "view":
        link(outs[0], operands[0], (op, attrs))
    if modes.grad and op.vjp is not None:
        track(op, operands, attrs, arrays, outs)
    return tuple(outs) if several else outs[0]


def _elsewhere(op: Op, operands: tuple[Any, ...], arrays: list[Any], attrs: Attrs) -> Any:
    """Return results from tangents, a dispatcher or a device without memory; else NotImplemented."""
    if modes.levels and tangents.has_tangent(operands):
        return tangents.push(op, operands, attrs, Tensor)
    if modes.watch is not None:
        modes.watch(op, arrays, attrs)
    if dispatch.asked(operands):
        return _dispatched(op, operands, arrays, attrs)
    place = meta.place_of_results(op, arrays)
    return NotImplemented if place is None else _without_memory(op, operands, arrays, attrs, place)


def _without_memory(
    op: Op, operands: tuple[Any, ...], arrays: list[Any], attrs: dict[str, object], place: device
) -> Any:
    """A primitive whose results have no memory."""
    if modes.recorder is not None:
        modes.recorder.refuse_here(
            f"computes {op.name} on tensors of device {place}, which have no data", Section.EXCLUDE
        )
    result = meta.apply(op, arrays, attrs, place)
    outs = [_new(r) for r in (result if type(result) is tuple else (result,))]
    if op.kind == "view":
        link(outs[0], operands[0], (op, attrs))
    if modes.grad and op.vjp is not None:
        track(op, operands, attrs, arrays, outs)
    for t in outs:
        t._inference = t._inference or (modes.inference and t._base is None)
    return tuple(outs) if type(result) is tuple else outs[0]


def to_place(t: Tensor, place: device | None) -> Tensor:
    """``t`` on another device: without its elements, which no tensor without memory can get again."""
    array = t._data
    here = array.place if type(array) is meta.MetaArray else None
    if here == place:
        return t
    if place is None:
        raise NotImplementedError(meta.NO_DATA)
    if modes.recorder is not None:
        modes.recorder.refuse_here(f"makes a tensor on device {place}, which has no data", Section.EXCLUDE)
    found = _new(meta.like(array, place))
    if modes.grad and t.requires_grad:
        track(OPS["cast"], (t,), {"dtype": t.dtype}, [array], [found])
    return found


def _new(array: Array) -> Tensor:
    t = blank(Tensor)
    t._data = array
    return t


def wrap(array: Array, cls: type[Tensor] = Tensor) -> Tensor:
    """A new leaf tensor over ``array``'s memory; in a recording, data that Python brought in."""
    t = _leaf(array, cls)
    if modes.recorder is not None:
        modes.recorder.constant(t)
    return t


def _leaf(array: Array, cls: type[Tensor] = Tensor) -> Tensor:
    t = blank(cls)
    t._data = array
    if modes.inference:
        t._inference = True
    return t


def create(name: str, **attrs: Any) -> Tensor:
    """The result of the primitive ``name`` that has no tensor operands (``full``, ``iota``)."""
    result: Tensor = Tensor.__tracecomp_apply__(OPS[name], (), attrs)
    return result


def inside(t: Tensor) -> Tensor:
    """``t``, which a function has made of numbers for its own use: a node that saved it may run a second time."""
    t._inside = True
    return t


def get_grad(t: TensorBase) -> Tensor | None:
    """``t.grad`` as autograd and optimizers see it."""
    return cast("Tensor | None", t._grad if modes.recorder is None else modes.recorder.get_grad(t))


def set_grad(t: TensorBase, value: TensorBase | None) -> None:
    """Make ``value`` the gradient of ``t``."""
    if modes.recorder is not None:
        modes.recorder.set_grad(t, value)
    t._grad = value


def clear_grad(t: Tensor, set_to_none: bool) -> None:
    """Forget the gradient of ``t``, or set it to zero and forget its history."""
    if set_to_none:
        t.grad = None
    elif (grad := t.grad) is not None:
        # As PyTorch: ``detach_`` is refused for views, whether they have a history or not.
        (grad.requires_grad_(False) if grad.grad_fn is None else grad.detach_()).zero_()


def _result(op: Op, array: object) -> Tensor:
    """A tensor of what numpy made, which may be one of its scalars."""
    if type(array) is not np.ndarray or not (op.kind in meta.KEEPS_ORDER or array.flags.c_contiguous):
        array = np.asarray(array, order=None if op.kind in meta.KEEPS_ORDER else "C")
    return _new(array)


def _recorded(
    recorder: Any, op: Op, operands: tuple[Any, ...], attrs: dict[str, object]
) -> tuple[tuple[Any, ...], dict[str, Any], dict[str, Any]]:
    """Operands and attributes as a recording wants them, and the attributes that numpy takes."""
    if recorder.numbers:
        operands, attrs = recorder.plain(operands), {k: recorder.plain(v) for k, v in attrs.items()}
    if not recorder.sized:
        return operands, attrs, attrs
    return recorder.sizes.sized_operands(operands), attrs, recorder.sizes.without_sizes(attrs)


def _checked(op: Op, operands: tuple[Any, ...], attrs: Attrs, arrays: list[Any]) -> list[Any]:
    """Operands for numpy where some are complex or of a type that numpy does not know."""
    if op.parts is None and any(a.dtype.kind == "c" for a in arrays if type(a) is np.ndarray):
        check_types(op, operands, attrs)
    return _strong(arrays) if len(arrays) > 1 and any(type(a) in NUMBERS for a in arrays) else arrays


def _strong(arrays: list[object]) -> list[Any]:
    """Operands for numpy, which treats Python numbers next to bfloat16, a foreign type, as float64."""
    dtype = next((a.dtype for a in arrays if isinstance(a, np.ndarray) and a.dtype.kind == "V"), None)
    return arrays if dtype is None else [np.asarray(a, dtype) if type(a) in NUMBERS else a for a in arrays]


def _row(t: Tensor, i: int) -> Tensor:
    shape = t._data.shape
    starts = (i,) + (0,) * (len(shape) - 1)
    stops = (i + 1, *shape[1:])
    row = (OPS["slice"], {"starts": starts, "stops": stops, "steps": (1,) * len(shape)})
    return look_through(t, (row, (OPS["reshape"], {"shape": shape[1:]})))


def look_through(t: Tensor, steps: tuple[View, ...]) -> Tensor:
    """The view of ``t`` through ``steps``, which share its memory: at once where nothing has to know each of them."""
    if not steps:
        return t
    array = settled(t)
    if use.begun or modes.recorder is not None or not array.size or t._inference:
        for op, attrs in steps:
            t = Tensor.__tracecomp_apply__(op, (t,), attrs)
        return t
    found = blank(Tensor)
    edge = None
    if modes.grad and (t._requires_grad or t._linked or t._grad_fn is not None) and array.dtype.kind not in "biu":
        edge = gradient_edge(t)
    for op, attrs in steps:
        before, array = array, op.impl(array, **attrs)
        if edge is not None:
            types = (before.dtype, before.shape), (array.dtype, array.shape)
            edge = op_node(op, attrs, (None,), types[:1], (edge,), (), types[1:]), 0
    found._data = array
    attach(found, t, steps, modes.grad)
    if edge is not None:
        found._grad_fn = edge[0]
    elif not modes.grad:
        ask_as(found, t)
    return found


def wrap_shared(array: Array) -> Tensor:
    """A new leaf tensor over memory that others can write."""
    t = _leaf(array)
    t._shared_storage().share()  # the recorder copies the elements of shared memory
    if modes.recorder is not None:
        modes.recorder.constant(t)
    return t


def shared(array: Array) -> Tensor:
    """Like ``wrap_shared``, for arrays that are not new data to a recording."""
    t = _new(array)
    t._shared_storage().share()
    return t


def _rebuild(cls: type[Tensor], array: Array, requires_grad: bool, extra: Mapping[str, object]) -> Tensor:
    t = blank(cls)
    shared = block_of(array) is not None
    t._data = array if shared or array.flags.owndata else array.copy()  # others may write buffers pickled out of band
    if shared:
        t._shared_storage().share()
    t._requires_grad = requires_grad
    all_attributes(t).update(extra)
    return t


def _rebuild_without_memory(cls: type[Tensor], shown: Any, requires_grad: bool, extra: Mapping[str, object]) -> Tensor:
    t = blank(cls)
    t._data, t._requires_grad = meta.new_array(*shown), requires_grad
    all_attributes(t).update(extra)
    return t


overrides.NOT_WRAPPED.add(vars(Tensor)["grad"].__get__)
